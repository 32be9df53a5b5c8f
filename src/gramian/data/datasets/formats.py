"""Readers of the formats in which public data sets are shipped."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from glob import escape
from pathlib import Path

import polars as pl

Reader = Callable[[Path], pl.DataFrame]


def read_adjacency_lists(path: Path) -> pl.DataFrame:
    """Read LightGCN's format: a line per user, with the user first and then the items."""
    lines = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
    pairs = [(line[0], item) for line in lines if line for item in line[1:]]
    return pl.DataFrame(pairs, schema={"user_id": pl.Int32, "item_id": pl.Int32}, orient="row")


def read_movielens_csv(path: Path) -> pl.DataFrame:
    """Read the csv format of MovieLens since 2013."""
    types = {"userId": pl.Int32, "movieId": pl.Int32, "rating": pl.Float32, "timestamp": pl.Int64}
    events = pl.read_csv(path, schema_overrides=types, glob=False)
    return events.select(pl.col("userId").alias("user_id"), pl.col("movieId").alias("item_id"), "rating", "timestamp")


def read_movielens_dat(path: Path) -> pl.DataFrame:
    """Read the format of MovieLens before 2013, user::item::rating::timestamp: seven columns to Polars, three of them empty."""
    user_item = {"user_id": pl.Int32, "": pl.Boolean, "item_id": pl.Int32, " ": pl.Boolean}
    columns = user_item | {"rating": pl.Float32, "  ": pl.Boolean, "timestamp": pl.Int64}
    return pl.read_csv(path, separator=":", has_header=False, schema=columns, glob=False).drop("", " ", "  ")


def read_taste_profiles(path: Path) -> pl.DataFrame:
    """Read taste profiles: user, song and count separated by tabs. Ids are long and repeated, so each is stored once."""
    columns = {"user_id": pl.Categorical, "item_id": pl.Categorical, "play_count": pl.Int32}
    return pl.read_csv(path, separator="\t", has_header=False, schema=columns, quote_char=None, glob=False)


def read_links(path: Path) -> pl.DataFrame:
    """Read two ids separated by a tab."""
    columns = {"user_id": pl.Int64, "item_id": pl.Int64}
    return pl.read_csv(path, separator="\t", has_header=False, schema=columns, glob=False)


def read_netflix(path: Path) -> pl.DataFrame:
    """Read the Netflix Prize: for each movie a line `movie:`, then a line `user,rating,date` for each of its ratings."""
    movie, line = pl.col("movie"), pl.col("line")
    rating = line.str.extract_groups(r"^(?<user_id>\d+),(?<rating>\d),(?<date>[\d-]+)$")
    lines = scan_lines(path).select(line.str.extract(r"^(\d+):$").cast(pl.Int16).alias("movie"), rating.alias("rated"))
    events = lines.unnest("rated").select(
        pl.col("user_id").cast(pl.Int32),
        movie.forward_fill().alias("item_id"),
        pl.col("rating").cast(pl.Int8),
        pl.col("date").str.to_date("%Y-%m-%d"),
        movie,
    )
    return events.filter(movie.is_null()).drop("movie").collect()


def read_amazon_reviews(path: Path) -> pl.DataFrame:
    """Read Amazon reviews: a JSON object per review."""
    columns = {"reviewerID": pl.String, "asin": pl.String, "overall": pl.Float32, "unixReviewTime": pl.Int64}
    events = pl.scan_ndjson(escape(str(path)), schema=columns).collect()
    return events.rename(dict(zip(columns, ("user_id", "item_id", "rating", "timestamp"), strict=True)))


def read_steam_reviews(path: Path) -> pl.DataFrame:
    """Read Steam reviews: a Python dict per review.

    Fields are matched from the first one on, because a review's text may look like a field. This is ten times faster than
    evaluating the dicts; only names with escapes are evaluated, as literals.
    """
    text = r"""u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*\""""
    before = rf"""^\{{(?:u?'\w+': (?:{text}|[^'",]+), )*?"""
    line, name = pl.col("line"), pl.col("user_id")
    events = (
        scan_lines(path)
        .select(
            line.str.extract(rf"{before}u?'username': ({text})").alias("user_id"),
            line.str.extract(rf"{before}u?'product_id': u?'(\w+)'").alias("item_id"),
            line.str.extract(rf"{before}u?'date': u?'([\d-]+)'").str.to_date("%Y-%m-%d").alias("date"),
        )
        .collect()
    )
    escaped = name.str.contains("\\", literal=True)
    names = {literal: literal_eval(literal) for literal in events.filter(escaped)["user_id"].unique()}
    unquoted = name.str.strip_prefix("u").str.head(-1).str.tail(-1)
    return events.with_columns(pl.when(escaped).then(name.replace(names)).otherwise(unquoted))


def scan_lines(path: Path) -> pl.LazyFrame:
    """Scan whole lines, by a separator that no text contains."""
    return pl.scan_csv(path, separator="\x01", has_header=False, schema={"line": pl.String}, quote_char=None, glob=False)


# Most data sets are shipped under the stem and a suffix, others under names of their own, which may match many files.
FORMATS_BY_SUFFIX: dict[str, Reader] = {".txt": read_adjacency_lists, ".csv": read_movielens_csv, ".dat": read_movielens_dat}
SHIPPED_FORMATS: dict[str, dict[str, Reader]] = {
    "training_set": {"training_set/mv_*.txt": read_netflix, "combined_data_*.txt": read_netflix},
    "train_triplets": {"train_triplets.txt": read_taste_profiles},
    "reviews_Electronics_5": {"reviews_Electronics_5.json.gz": read_amazon_reviews},
    "steam_reviews": {"steam_reviews.json.gz": read_steam_reviews},
    "links": {"links.tsv": read_links},
}


def read_titles_and_genres(path: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Return titles and, where there are some, genres by item id."""
    items = pl.read_parquet(path)
    ids = items["item_id"]
    genres = zip(ids, items["genres"].replace("(no genres listed)", ""), strict=True) if "genres" in items.columns else ()
    return dict(zip(ids, items["title"], strict=True)), dict(genres)
