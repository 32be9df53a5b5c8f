"""Named public data sets. One small real set is bundled; the others are read from a folder and verified."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path
from typing import TypeVar

import polars as pl

from gramian.data.datasets.formats import FORMATS_BY_SUFFIX, SHIPPED_FORMATS, read_titles_and_genres
from gramian.data.datasets.registry import BUNDLED, Dataset
from gramian.data.datasets.registry import DATASETS as DATASETS
from gramian.data.interactions import Interactions
from gramian.errors import DamagedFile, InvalidInput, MissingFile, UnknownId

Parsed = TypeVar("Parsed")
DATA_VARIABLE = "GRAMIAN_DATA"  # the environment variable that names the data folder


def names() -> list[str]:
    """Return the names of all known data sets."""
    return list(DATASETS)


def load(
    name: str,
    *,
    min_value: float | None = None,
    weights: bool = False,
    weight: str | None = None,
    max_dislike: float | None = None,
) -> Interactions:
    """Load a named data set.

    Parameters
    ----------
    name
        One of `gr.datasets.names()`.
    min_value
        Keep the events whose value (such as a rating) is at least this, each counting 1.
    weights
        Use the values as weights instead.
    weight
        "binary", "log", "bm25" or "tfidf", as in `Interactions.with_weights`.
    max_dislike
        With `min_value`, events whose value is at most this are dislikes, which count −1.

    Returns
    -------
    Interactions
        A data set published in parts comes as one; `gr.split.published(name)` keeps the parts apart.
    """
    dataset, folder = find_dataset(name)
    if dataset.value is None and (weights or min_value is not None):
        raise InvalidInput("a data set that has values", name, "Leave min_value and weights out")
    events = Interactions.of(
        pl.concat(_read_tables(name, dataset, folder).values(), how="vertical_relaxed"),
        user="user_id",
        item="item_id",
        value=dataset.value if weights else None,
        min_value=None if min_value is None or dataset.value is None else (dataset.value, min_value),
        time=dataset.time,
        weight=weight,
        max_dislike=max_dislike,
    )
    items = folder / "items.parquet"
    if not items.exists():
        return events
    titles, tags = _parse_or_report(items, read_titles_and_genres)
    named = events.with_titles(titles)
    return named.with_tags(tags) if tags else named


def load_published(name: str) -> dict[str, Interactions]:
    """Return the published parts of the data set `name`, by the stems of their files.

    These are train and test, or train and the fold_in and target of users who are held out for validation and for test.
    """
    dataset, folder = find_dataset(name)
    if not dataset.is_split:
        split = [n for n, d in DATASETS.items() if d.is_split]
        raise InvalidInput(f"a data set published as train and test ({', '.join(split)})", name, "Split it yourself")
    return {stem: Interactions.of(table) for stem, table in _read_tables(name, dataset, folder).items()}


def find_dataset(name: str) -> tuple[Dataset, Path]:
    """Return the data set `name` and the folder that holds its files."""
    if name not in DATASETS:
        raise UnknownId(f"a data set among {', '.join(DATASETS)}", repr(name), "See `gramian datasets`")
    dataset = DATASETS[name]
    if name == BUNDLED:
        return dataset, Path(str(package_files("gramian.data"))) / "bundled"
    root = os.environ.get(DATA_VARIABLE)
    folder = Path(root or ".") / name
    if not root or not folder.is_dir():
        raise MissingFile(
            f"{name} in {folder if root else 'the folder that ' + DATA_VARIABLE + ' names'}",
            "no such folder" if root else f"{DATA_VARIABLE} unset",
            f"Get it from {dataset.address}, put its files into a folder {name}, and set {DATA_VARIABLE} to its parent folder",
        )
    return dataset, folder


def _read_tables(name: str, dataset: Dataset, folder: Path) -> dict[str, pl.DataFrame]:
    """Read the event tables by stem and verify their checksums and the published statistics."""
    tables = {stem: _read_table(folder, stem, checksum) for stem, checksum in dataset.files.items()}
    events = pl.concat(tables.values(), how="vertical_relaxed")  # the width of ids may differ
    actual = (events["user_id"].n_unique(), events["item_id"].n_unique(), len(events))
    published = (dataset.n_users, dataset.n_items, dataset.n_interactions)
    if actual != published:
        raise DamagedFile(
            "{:,} users, {:,} items and {:,} interactions in {}".format(*published, name),
            "{:,}, {:,} and {:,}".format(*actual),
            f"Get the files again from {dataset.address}",
        )
    return tables


def _read_table(folder: Path, stem: str, checksum: str) -> pl.DataFrame:
    """Read the events of a stem from the verified parquet file, or from the format its publisher ships."""
    parquet = folder / f"{stem}.parquet"
    if checksum and parquet.exists():
        digest = sha256(parquet.read_bytes()).hexdigest()
        if not digest.startswith(checksum):
            raise DamagedFile(f"{parquet} with sha256 {checksum}…", f"{digest[:16]}…", "Get the file again")
        return _parse_or_report(parquet, pl.read_parquet)
    forms = SHIPPED_FORMATS.get(stem) or {f"{stem}{suffix}": reader for suffix, reader in FORMATS_BY_SUFFIX.items()}
    for pattern, reader in forms.items():
        if paths := sorted(folder.glob(pattern)):
            events = pl.concat([_parse_or_report(path, reader) for path in paths], rechunk=True)
            if any(events.null_count().row(0)):  # a line of fewer fields
                raise DamagedFile(f"{folder / pattern} as published", "lines that lack values", "Get the file again")
            return events
    names = [f"{stem}.parquet", *forms] if checksum else forms
    raise MissingFile(f"{' or '.join(names)} in {folder}", "no such file", "Put the published files there")


def _parse_or_report(path: Path, parse: Callable[[Path], Parsed]) -> Parsed:
    try:
        return parse(path)
    except (ValueError, SyntaxError, OSError, pl.exceptions.PolarsError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DamagedFile(f"{path} as its publisher ships it", reason, "Get the file again") from None
