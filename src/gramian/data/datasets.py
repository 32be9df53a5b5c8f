"""Named public data sets. One small real set is in the package; the others are read from a folder and verified."""

from __future__ import annotations

import os
from ast import literal_eval
from collections.abc import Callable
from dataclasses import dataclass
from glob import escape
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path
from typing import TypeVar

import polars as pl

from gramian.data.interactions import Interactions
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId

T = TypeVar("T")
Reader = Callable[[Path], pl.DataFrame]
BUNDLED = "movielens"
FOLDER = "GRAMIAN_DATA"  # the environment variable that names the data folder


@dataclass(frozen=True)
class Dataset:
    """Where a data set comes from, how its files are recognised, and what it must hold."""

    about: str
    address: str
    terms: str
    files: dict[str, str]  # stem of an event file → the first 16 digits of the sha256 of its parquet form, "" if it has none
    n_users: int
    n_items: int
    n_interactions: int
    value: str | None = None
    time: str | None = None

    @property
    def is_split(self) -> bool:
        return "train" in self.files


GROUPLENS = "files.grouplens.org/datasets"
LIGHTGCN = "the data folder of the repository gusye1234/LightGCN-PyTorch on GitHub"
AMAZON = "the Amazon review data of Julian McAuley's group, "

DATASETS = {
    "movielens": Dataset(
        "MovieLens latest-small of 2016: ratings of movies, with titles (bundled)",
        f"{GROUPLENS}/movielens",
        "acknowledge; redistribute under the same terms; no commercial use",
        {"ratings": "360b2d5d2ad249b7"},
        671, 9_066, 100_004, value="rating", time="timestamp",
    ),
    "ml-1m": Dataset(
        "MovieLens 1M: ratings of movies, with titles",
        f"{GROUPLENS}/movielens",
        "research use, no redistribution",
        {"ratings": "dcb1d4d89e1c0b26"},
        6_040, 3_706, 1_000_209, value="rating", time="timestamp",
    ),
    "ml-latest-small-2018": Dataset(
        "MovieLens latest-small of 2018: ratings of movies, with titles",
        f"{GROUPLENS}/movielens",
        "acknowledge; redistribute under the same terms; no commercial use",
        {"ratings": "924afd95591b600d"},
        610, 9_724, 100_836, value="rating", time="timestamp",
    ),
    "lastfm-2k": Dataset(
        "last.fm, HetRec 2011: play counts of artists, with names",
        f"{GROUPLENS}/hetrec2011",
        "research use",
        {"interactions": "a4213222e522a7e1"},
        1_892, 17_632, 92_834, value="play_count",
    ),
    "gowalla": Dataset(
        "Gowalla check-ins, the LightGCN train/test split",
        LIGHTGCN,
        "see the source",
        {"train": "b689be4b8d740f56", "test": "0fe02710c8e850be"},
        29_858, 40_981, 1_027_370,
    ),
    "yelp2018": Dataset(
        "Yelp 2018, the LightGCN train/test split",
        LIGHTGCN,
        "see the source",
        {"train": "8cf6f172e4a70993", "test": "031cde78a1a29bca"},
        31_668, 38_048, 1_561_406,
    ),
    "amazon-cds-m1": Dataset(
        "Amazon CDs, the SimpleX/BGCF train/test split",
        AMAZON + "as split by SimpleX",
        "see the source",
        {"train": "f3675216439f4c77", "test": "42e6b22f2dade28d"},
        43_169, 35_648, 777_426,
    ),
    "amazon-beauty-m1": Dataset(
        "Amazon Beauty, the SimpleX/BGCF train/test split",
        AMAZON + "as split by SimpleX",
        "see the source",
        {"train": "41df4a42b9f51ba8", "test": "ddfed13ebb581f9e"},
        7_068, 3_570, 79_506,
    ),
    "amazon-videogames-sasrec": Dataset(
        "Amazon Video Games in time order, the SASRec file",
        AMAZON + "as prepared by SASRec",
        "see the source",
        {"interactions": "aacea421916c97ea"},
        31_013, 23_715, 287_107, time="position",
    ),
    "amazon-beauty-bert4rec": Dataset(
        "Amazon Beauty in time order, the BERT4Rec file",
        AMAZON + "as prepared by BERT4Rec",
        "see the source",
        {"interactions": "1b290d7fb1bc14bd"},
        40_226, 54_542, 353_962, time="position",
    ),
    "ml-10m": Dataset(
        "MovieLens 10M: ratings of movies, in half stars",
        f"{GROUPLENS}/movielens/ml-10m.zip (ratings.dat)",
        "research use, no redistribution",
        {"ratings": ""},
        69_878, 10_677, 10_000_054, value="rating", time="timestamp",
    ),
    "ml-20m": Dataset(
        "MovieLens 20M: ratings of movies, in half stars",
        f"{GROUPLENS}/movielens/ml-20m.zip (ratings.csv)",
        "research use, no redistribution",
        {"ratings": ""},
        138_493, 26_744, 20_000_263, value="rating", time="timestamp",
    ),
    "netflix": Dataset(
        "Netflix Prize: ratings of movies, with dates",
        "archive.org/details/nf_prize_dataset.tar (training_set/mv_*.txt) or netflix-inc/netflix-prize-data on Kaggle "
        "(combined_data_*.txt)",
        "research use, no redistribution",
        {"training_set": ""},
        480_189, 17_770, 100_480_507, value="rating", time="date",
    ),
    "msd": Dataset(
        "Million Song Dataset, the Echo Nest taste profiles: play counts of songs",
        "millionsongdataset.com/tasteprofile (train_triplets.txt)",
        "research use, not commercial",
        {"train_triplets": ""},
        1_019_318, 384_546, 48_373_586, value="play_count",
    ),
    "amazon-book": Dataset(
        "Amazon Books, the LightGCN train/test split",
        f"{LIGHTGCN} (train.txt and test.txt)",
        "see the source",
        {"train": "", "test": ""},
        52_643, 91_599, 2_984_108,
    ),
    "electronics": Dataset(
        "Amazon Electronics of 2014, the 5-core: ratings of products",
        "snap.stanford.edu/data/amazon/productGraph/categoryFiles (reviews_Electronics_5.json.gz)",
        "see the source",
        {"reviews_Electronics_5": ""},
        192_403, 63_001, 1_689_188, value="rating", time="timestamp",
    ),
    "steam": Dataset(
        "Steam reviews of games, with dates, collected by Kang and McAuley in 2018",
        "cseweb.ucsd.edu/~jmcauley/datasets.html (steam_reviews.json.gz)",
        "see the source",
        {"steam_reviews": ""},
        2_567_538, 15_474, 7_793_069, time="date",
    ),
    "simplewiki": Dataset(
        "Simple English Wikipedia of January 2025: links from page to page, the 20-core",
        "dumps.wikimedia.org/simplewiki/20250101 (links.tsv, to be made of its pagelinks table: the columns pl_from and "
        "pl_target_id, separated by tabs, without a header, of the links that k_core(20) keeps)",
        "CC BY-SA",
        {"links": ""},
        129_404, 129_432, 13_715_724,
    ),
}  # fmt: skip


def names() -> list[str]:
    return list(DATASETS)


def load(name: str, *, min_value: float | None = None, weights: bool = False) -> Interactions:
    """A named data set: every event an interaction, or those rated `min_value` and more, or `weights=True` for the values.

    A data set published as train and test files comes as one; `gr.split.published(name)` keeps the two apart.
    """
    dataset, folder = find(name)
    if dataset.value is None and (weights or min_value is not None):
        raise InvalidInput("a data set that has values", name, "Leave min_value and weights out")
    events = Interactions.of(
        pl.concat(_tables(name, dataset, folder).values()),
        user="user_id",
        item="item_id",
        value=dataset.value if weights else None,
        min_value=None if min_value is None or dataset.value is None else (dataset.value, min_value),
        time=dataset.time,
    )
    items = folder / "items.parquet"
    if not items.exists():
        return events
    titles, tags = _parsed(items, _names)
    named = events.with_titles(titles)
    return named.with_tags(tags) if tags else named


def load_published(name: str) -> tuple[Interactions, Interactions]:
    """The published train and test parts of a data set."""
    dataset, folder = find(name)
    if not dataset.is_split:
        split = [n for n, d in DATASETS.items() if d.is_split]
        raise InvalidInput(f"a data set published as train and test ({', '.join(split)})", name, "Split it yourself")
    tables = _tables(name, dataset, folder)
    return Interactions.of(tables["train"]), Interactions.of(tables["test"])


def find(name: str) -> tuple[Dataset, Path]:
    """A data set and the folder that holds its files."""
    if name not in DATASETS:
        raise UnknownId(f"a data set among {', '.join(DATASETS)}", repr(name), "See `gramian datasets`")
    dataset = DATASETS[name]
    if name == BUNDLED:
        return dataset, Path(str(package_files("gramian.data"))) / "bundled"
    root = os.environ.get(FOLDER)
    folder = Path(root or ".") / name
    if not root or not folder.is_dir():
        raise MissingFile(
            f"{name} in {folder if root else 'the folder that ' + FOLDER + ' names'}",
            "no such folder" if root else f"{FOLDER} unset",
            f"Get it from {dataset.address}, put its files into a folder {name}, and set {FOLDER} to the folder above it",
        )
    return dataset, folder


def _tables(name: str, dataset: Dataset, folder: Path) -> dict[str, pl.DataFrame]:
    """The event tables by stem, after their checksums and the published statistics were verified."""
    tables = {stem: _table(folder, stem, checksum) for stem, checksum in dataset.files.items()}
    events = pl.concat(tables.values())
    found = (events["user_id"].n_unique(), events["item_id"].n_unique(), len(events))
    published = (dataset.n_users, dataset.n_items, dataset.n_interactions)
    if found != published:
        raise DamagedFile(
            "{:,} users, {:,} items and {:,} interactions in {}".format(*published, name),
            "{:,}, {:,} and {:,}".format(*found),
            f"Get the files again from {dataset.address}",
        )
    return tables


def _table(folder: Path, stem: str, checksum: str) -> pl.DataFrame:
    """The events of a stem: the verified parquet form, or the form its publisher ships."""
    parquet = folder / f"{stem}.parquet"
    if checksum and parquet.exists():
        found = sha256(parquet.read_bytes()).hexdigest()
        if not found.startswith(checksum):
            raise DamagedFile(f"{parquet} with sha256 {checksum}…", f"{found[:16]}…", "Get the file again")
        return _parsed(parquet, pl.read_parquet)
    forms = FORMS.get(stem) or {f"{stem}{suffix}": reader for suffix, reader in SUFFIXES.items()}
    for pattern, reader in forms.items():
        if paths := sorted(folder.glob(pattern)):
            events = pl.concat([_parsed(path, reader) for path in paths], rechunk=True)
            if any(events.null_count().row(0)):  # a line of fewer fields
                raise DamagedFile(f"{folder / pattern} as published", "lines that lack values", "Get the file again")
            return events
    names = [f"{stem}.parquet", *forms] if checksum else forms
    raise MissingFile(f"{' or '.join(names)} in {folder}", "no such file", "Put what is published there")


def _parsed(path: Path, parse: Callable[[Path], T]) -> T:
    try:
        return parse(path)
    except (ValueError, SyntaxError, OSError, pl.exceptions.PolarsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DamagedFile(f"{path} as its publisher ships it", reason, "Get the file again") from None


def _lists(path: Path) -> pl.DataFrame:
    """LightGCN's form: a line per user, the user first, then the items."""
    lines = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
    pairs = [(line[0], item) for line in lines if line for item in line[1:]]
    return pl.DataFrame(pairs, schema={"user_id": pl.Int32, "item_id": pl.Int32}, orient="row")


def _csv(path: Path) -> pl.DataFrame:
    """MovieLens since 2013."""
    types = {"userId": pl.Int32, "movieId": pl.Int32, "rating": pl.Float32, "timestamp": pl.Int64}
    events = pl.read_csv(path, schema_overrides=types, glob=False)
    return events.select(pl.col("userId").alias("user_id"), pl.col("movieId").alias("item_id"), "rating", "timestamp")


def _dat(path: Path) -> pl.DataFrame:
    """MovieLens before 2013: user::item::rating::timestamp, to Polars seven columns of which three are empty."""
    user_item = {"user_id": pl.Int32, "": pl.Boolean, "item_id": pl.Int32, " ": pl.Boolean}
    columns = user_item | {"rating": pl.Float32, "  ": pl.Boolean, "timestamp": pl.Int64}
    return pl.read_csv(path, separator=":", has_header=False, schema=columns, glob=False).drop("", " ", "  ")


def _triplets(path: Path) -> pl.DataFrame:
    """Taste profiles: user, song and count between tabs. The ids are long and repeated, so each is kept once."""
    columns = {"user_id": pl.Categorical, "item_id": pl.Categorical, "play_count": pl.Int32}
    return pl.read_csv(path, separator="\t", has_header=False, schema=columns, quote_char=None, glob=False)


def _links(path: Path) -> pl.DataFrame:
    """Two ids between tabs."""
    columns = {"user_id": pl.Int64, "item_id": pl.Int64}
    return pl.read_csv(path, separator="\t", has_header=False, schema=columns, glob=False)


def _netflix(path: Path) -> pl.DataFrame:
    """The Netflix Prize: a line `movie:` and then, for each of its ratings, a line `user,rating,date`; one movie or many."""
    movie, line = pl.col("movie"), pl.col("line")
    rating = line.str.extract_groups(r"^(?<user_id>\d+),(?<rating>\d),(?<date>[\d-]+)$")
    lines = _lines(path).select(line.str.extract(r"^(\d+):$").cast(pl.Int16).alias("movie"), rating.alias("rated"))
    events = lines.unnest("rated").select(
        pl.col("user_id").cast(pl.Int32),
        movie.forward_fill().alias("item_id"),
        pl.col("rating").cast(pl.Int8),
        pl.col("date").str.to_date("%Y-%m-%d"),
        movie,
    )
    return events.filter(movie.is_null()).drop("movie").collect()


def _reviews(path: Path) -> pl.DataFrame:
    """Amazon: a JSON object per review."""
    columns = {"reviewerID": pl.String, "asin": pl.String, "overall": pl.Float32, "unixReviewTime": pl.Int64}
    events = pl.scan_ndjson(escape(str(path)), schema=columns).collect()
    return events.rename(dict(zip(columns, ("user_id", "item_id", "rating", "timestamp"), strict=True)))


def _steam(path: Path) -> pl.DataFrame:
    """Steam: a Python dict per review. Its fields are matched from the first on, as a review may quote what looks like one.

    This is ten times faster than to evaluate the dicts; only names with escapes are evaluated, as the literals they are.
    """
    text = r"""u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*\""""
    before = rf"""^\{{(?:u?'\w+': (?:{text}|[^'",]+), )*?"""
    line, name = pl.col("line"), pl.col("user_id")
    events = (
        _lines(path)
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


def _lines(path: Path) -> pl.LazyFrame:
    """Whole lines, by a separator that no text has."""
    return pl.scan_csv(path, separator="\x01", has_header=False, schema={"line": pl.String}, quote_char=None, glob=False)


# How events are shipped: most by the stem's suffix, others under names of their own, which may stand for many files.
SUFFIXES: dict[str, Reader] = {".txt": _lists, ".csv": _csv, ".dat": _dat}
FORMS: dict[str, dict[str, Reader]] = {
    "training_set": {"training_set/mv_*.txt": _netflix, "combined_data_*.txt": _netflix},
    "train_triplets": {"train_triplets.txt": _triplets},
    "reviews_Electronics_5": {"reviews_Electronics_5.json.gz": _reviews},
    "steam_reviews": {"steam_reviews.json.gz": _steam},
    "links": {"links.tsv": _links},
}


def _names(path: Path) -> tuple[dict[int, str], dict[int, str]]:
    """Titles and, where there are some, genres by id."""
    items = pl.read_parquet(path)
    ids = items["item_id"]
    genres = zip(ids, items["genres"].replace("(no genres listed)", ""), strict=True) if "genres" in items.columns else ()
    return dict(zip(ids, items["title"], strict=True)), dict(genres)
