"""Named public data sets. One small real set is in the package; the others are read from a folder and verified."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path
from typing import TypeVar

import polars as pl

from gramian.data.interactions import Interactions
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId

T = TypeVar("T")
BUNDLED = "movielens"
FOLDER = "GRAMIAN_DATA"  # the environment variable that names the data folder


@dataclass(frozen=True)
class Dataset:
    """Where a data set comes from, how its files are recognised, and what it must hold."""

    about: str
    address: str
    terms: str
    files: dict[str, str]  # stem of an event file → the first 16 digits of the sha256 of its parquet form
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
    return events.with_titles(_parsed(items, _titles)) if items.exists() else events


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
    """One file of events: the verified parquet form, or the form its publisher ships."""
    parquet, lists, csv, dat = (folder / f"{stem}{suffix}" for suffix in (".parquet", ".txt", ".csv", ".dat"))
    if parquet.exists():
        found = sha256(parquet.read_bytes()).hexdigest()
        if not found.startswith(checksum):
            raise DamagedFile(f"{parquet} with sha256 {checksum}…", f"{found[:16]}…", "Get the file again")
        return _parsed(parquet, pl.read_parquet)
    for path, parse in ((lists, _lists), (csv, _csv), (dat, _dat)):
        if path.exists():
            return _parsed(path, parse)
    raise MissingFile(f"{stem}.parquet, .txt, .csv or .dat in {folder}", "none of them", "Put the published file there")


def _parsed(path: Path, parse: Callable[[Path], T]) -> T:
    try:
        return parse(path)
    except (ValueError, OSError, pl.exceptions.PolarsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DamagedFile(f"{path} as its publisher ships it", reason, "Get the file again") from None


def _lists(path: Path) -> pl.DataFrame:
    """LightGCN's form: a line per user, the user first, then the items."""
    lines = [[int(word) for word in line.split()] for line in path.read_text().splitlines()]
    pairs = [(line[0], item) for line in lines if line for item in line[1:]]
    return pl.DataFrame(pairs, schema={"user_id": pl.Int32, "item_id": pl.Int32}, orient="row")


def _csv(path: Path) -> pl.DataFrame:
    """MovieLens since 2013."""
    return pl.read_csv(path).rename({"userId": "user_id", "movieId": "item_id"})


def _dat(path: Path) -> pl.DataFrame:
    """MovieLens 1M: user::item::rating::timestamp."""
    rows = [[int(word) for word in line.split("::")] for line in path.read_text().splitlines()]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")


def _titles(path: Path) -> dict[int, str]:
    items = pl.read_parquet(path)
    return dict(zip(items["item_id"], items["title"], strict=True))
