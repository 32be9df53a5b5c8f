"""Features of items: tags, numbers, text and vectors as one sparse matrix, items × features, in blocks.

Every column of a table is a block. Each block is brought to one scale, so that the inner product of two items is a similarity:

    tags      1 for each tag of the item, the row scaled to length 1
    text      words hashed into buckets, times their inverse document frequency, the row scaled to length 1
    vectors   as they are, the row scaled to length 1
    numbers   minus the mean, divided by the standard deviation

A block keeps what it learned from its column, so that items that come later are encoded in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import polars as pl
import scipy.sparse as sp

from gramian.data.ids import Index, as_id_list, is_missing
from gramian.data.numbers import parse_floats, require_finite_numbers
from gramian.data.tables import ITEM_NAMES, as_table, column_names, guess_name, select_columns
from gramian.data.tags import parse_tags
from gramian.errors import InvalidInput, UnknownId
from gramian.linalg.sparse import csr_from_sorted, scale_columns, scale_rows, squared_column_norms
from gramian.validation import require_instance, require_whole_number

if TYPE_CHECKING:
    from gramian.data.catalog import Catalog

KINDS = ("tags", "numbers", "text", "vectors")
N_BUCKETS = 1024  # of a text column: few beside the items of most catalogs, and several times the words of most titles
WORD = re.compile(r"\w\w+")
MAX_SHOWN_ITEMS = 5  # in an error
MAX_SHOWN_WORDS = 3  # of those that share a bucket, most frequent first


@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """How one column becomes features.

    Parameters
    ----------
    name
        The name of the column.
    kind
        "tags", "numbers", "text" or "vectors".
    names
        The name of each feature, for explanations.
    center, scale
        A feature is (value − center) · scale, before the row is scaled to length 1.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    center: np.ndarray
    scale: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def is_same(self, other: FeatureBlock) -> bool:
        """Whether another block encodes in the same way."""
        same_names = (self.name, self.kind, self.names) == (other.name, other.kind, other.names)
        return same_names and np.allclose(self.center, other.center) and np.allclose(self.scale, other.scale)

    def encode(self, values: sp.csr_array) -> sp.csr_array:
        """Return the features of raw values, items × features."""
        if self.kind == "numbers":
            return to_csr((values.toarray() - self.center) * self.scale)
        scaled = scale_columns(values.astype(np.float64), self.scale)
        largest = np.asarray(abs(scaled).max(axis=1).todense()).ravel() if scaled.nnz else np.zeros(scaled.shape[0])
        scaled = scale_rows(scaled, 1 / np.where(largest > 0, largest, 1), np.float64)  # so that squares do not overflow
        lengths = np.sqrt(squared_column_norms(sp.csr_array(scaled.T.tocsr())))
        return to_csr(scale_rows(scaled, 1 / np.where(lengths > 0, lengths, 1), np.float64))


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """Features of items, for models that learn from them and for items that nobody has touched yet.

    Make them with `Features.of`, and attach them with `events.with_features`.

    Parameters
    ----------
    items
        The ids of the rows.
    matrix
        Items × features, sparse.
    blocks
        How each column became features; their features lie side by side in the matrix.
    """

    items: Index
    matrix: sp.csr_array
    blocks: tuple[FeatureBlock, ...]

    @staticmethod
    def of(
        data: Any,
        *,
        items: Iterable[Any] | None = None,
        item: str | None = None,
        tags: str | Sequence[str] = (),
        numbers: str | Sequence[str] = (),
        text: str | Sequence[str] = (),
        vectors: str | Sequence[str] = (),
        tag_separator: str = "|",
        n_buckets: int = N_BUCKETS,
        like: Features | None = None,
    ) -> Features:
        """Make features from a table with one item per row, or from an array.

        Parameters
        ----------
        data
            A polars, pandas or arrow table; or a numpy or scipy sparse array of items × features, such as text embeddings.
        items
            The ids of the rows of an array.
        item
            The column of item ids of a table. Left out, common names such as `item_id` are tried.
        tags
            Columns of tags or categories: lists, or text such as "Comedy|Romance". Items may be without tags.
        numbers
            Columns of numbers.
        text
            Columns of text, such as titles, whose words are hashed.
        vectors
            Columns of lists of numbers, such as embeddings.
        tag_separator
            What stands between the tags of a text.
        n_buckets
            How many features a column of text has. Words that share one are not told apart.
        like
            Other features, whose columns are encoded in the same way: for items that come later.

        Returns
        -------
        Features
        """
        if isinstance(data, Features):
            return data
        if sp.issparse(data) or isinstance(data, np.ndarray):
            return _features_of_array(data, items, like)
        if items is not None:
            raise InvalidInput("items=... with an array", "a table", "Name its column of ids: item=...")
        if like is None:
            roles = {"tags": tags, "numbers": numbers, "text": text, "vectors": vectors}
            pairs = [(name, kind) for kind, names in roles.items() for name in ([names] if isinstance(names, str) else names)]
            columns = dict(pairs)
            if not columns or len(columns) < len(pairs):
                got = "one column named twice" if columns else "none named"
                do = "Pass tags='genres', numbers='year', text='title' or vectors='embedding', say"
                raise InvalidInput("columns of features", got, do)
        else:
            columns = {block.name: block.kind for block in like.blocks}
        require_whole_number("n_buckets", n_buckets, example=N_BUCKETS)
        table = as_table(data)
        names = column_names(table)
        id_column = item or guess_name(names, ITEM_NAMES)
        for name in (id_column, *columns):
            if names.count(name) != 1:
                raise InvalidInput(f"a column named {name!r}", f"columns {', '.join(names)}", "Name yours: item=..., tags=...")
        series = select_columns(table, [id_column, *columns])
        if missing := int(is_missing(series[id_column]).sum()):
            raise InvalidInput(f"an id in every row of {id_column!r}", f"{missing:,} nulls", "Drop these rows")
        index = Index(series[id_column].to_list())
        blocks, parts = [], []
        for number, (name, kind) in enumerate(columns.items()):
            known = None if like is None else like.blocks[number]
            block, values = _encode_column(series[name], kind, known, tag_separator, n_buckets)
            blocks.append(block)
            parts.append(block.encode(values))
        return Features(index, _stack_columns(parts), tuple(blocks))

    @staticmethod
    def of_catalog(catalog: Catalog, *, tags: bool = True, titles: bool = False, n_buckets: int = N_BUCKETS) -> Features:
        """Make features from the tags and titles that a catalog has.

        Parameters
        ----------
        catalog
            The items, such as `events.catalog`.
        tags, titles
            Which of the two to use.
        n_buckets
            How many features the hashed words of the titles have.

        Returns
        -------
        Features
        """
        columns: dict[str, Any] = {"item_id": pl.Series("item_id", range(len(catalog)))}
        for name, is_wanted, values in (("tags", tags, catalog.tags), ("title", titles, catalog.titles)):
            if is_wanted and values is None:
                do = "Attach them first, or make features from a table: gr.Features.of(table, ...)"
                raise InvalidInput(f"a catalog with {name}", repr(catalog), do)
            if is_wanted:
                columns[name] = pl.Series(name, [list(v) if name == "tags" else v for v in values or ()])
        used_tags, used_text = ["tags"] if tags else [], ["title"] if titles else []
        features = Features.of(pl.DataFrame(columns), tags=used_tags, text=used_text, n_buckets=n_buckets)
        return replace(features, items=catalog.ids)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        blocks = ", ".join(f"{block.name} ({len(block)} {block.kind})" for block in self.blocks)
        return f"Features({len(self):,} items: {blocks})"

    @property
    def n_features(self) -> int:
        """The number of features."""
        return int(self.matrix.shape[1])

    @cached_property
    def names(self) -> list[str]:
        """The name of each feature."""
        return [name for block in self.blocks for name in block.names]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the items and their features, the same on every machine."""
        digest = sha256(repr((self.items.tolist(), self.names)).encode())
        for array, dtype in ((self.matrix.indptr, "<i8"), (self.matrix.indices, "<i4"), (self.matrix.data, "<f4")):
            digest.update(array.astype(dtype).tobytes())
        return digest.hexdigest()

    def take(self, items: Iterable[Any]) -> Features:
        """Return the features of these items, in this order; raise `UnknownId` for items without features."""
        ids = as_id_list("item ids", items)
        rows = self.items.positions(ids)
        missing = [id_ for id_, row in zip(ids, rows, strict=True) if row < 0]
        if missing:
            do = "Add these items to the table of features, or leave them out of the interactions"
            raise UnknownId("features of every item", f"none of {_format_items(missing)}", do)
        return Features(self.items.take(rows), self.matrix[rows], self.blocks)

    def is_encoded_like(self, other: Features) -> bool:
        """Whether the features of both mean the same."""
        pairs = zip(self.blocks, other.blocks, strict=False)
        return len(self.blocks) == len(other.blocks) and all(a.is_same(b) for a, b in pairs)

    def join(self, other: Features) -> Features:
        """Return these items followed by others, which are encoded in the same way."""
        if not other.is_encoded_like(self):
            do = "Encode both together, or the later ones with gr.Features.of(..., like=features)"
            raise InvalidInput(f"features encoded as in {self!r}", repr(other), do)
        matrix = sp.csr_array(sp.vstack([self.matrix, other.matrix], format="csr"))
        return Features(Index(self.items.tolist() + other.items.tolist()), matrix, self.blocks)

    def scaled(self, weights: float | Sequence[float], dtype: type = np.float32) -> np.ndarray:
        """Return the dense matrix F · diag(√weight), with one weight for all features or one for each block."""
        if isinstance(weights, int | float):
            weights = [weights] * len(self.blocks)
        if len(weights) != len(self.blocks):
            names = ", ".join(block.name for block in self.blocks)
            got = f"{len(weights)} weights"
            raise InvalidInput(f"one weight, or one for each block of features ({names})", got, "Pass one number")
        per_feature = np.repeat(np.sqrt(weights), [len(block) for block in self.blocks])
        return np.asarray(self.matrix.toarray() * per_feature, dtype)


def _features_of_array(data: Any, items: Iterable[Any] | None, like: Features | None) -> Features:
    """Return features of an array with one row for each item."""
    if items is None:
        raise InvalidInput("items=... with an array", "no ids of its rows", "Pass items=events.items.tolist(), say")
    index = Index(as_id_list("item ids", items))
    values = sp.csr_array(data, dtype=np.float64) if sp.issparse(data) else np.asarray(data)
    if values.ndim != 2 or values.shape[0] != len(index) or values.dtype.kind not in "biuf":
        got = f"{values.dtype} of shape {values.shape} for {len(index):,} items"
        raise InvalidInput("an array of numbers with one row for each item", got, "Pass items × features")
    entries = values.data if sp.issparse(values) else values
    if not np.isfinite(entries).all():
        got = f"{int((~np.isfinite(entries)).sum()):,} that are NaN or infinite"
        raise InvalidInput("finite numbers as features", got, "Fill them, or leave these items out")
    if like is not None and [block.kind for block in like.blocks] != ["vectors"]:
        raise InvalidInput(f"a table with the columns of {like!r}", "an array", "Pass such a table")
    raw = sp.csr_array(values, dtype=np.float64)
    block = _vector_block("vector", raw.shape[1]) if like is None else like.blocks[0]
    _require_width(block, raw.shape[1])
    return Features(index, block.encode(raw), (block,))


def _encode_column(
    column: pl.Series, kind: str, known: FeatureBlock | None, tag_separator: str, n_buckets: int
) -> tuple[FeatureBlock, sp.csr_array]:
    """Return the block of a column, learned from it unless it is known, and the raw values."""
    if kind == "tags":
        return _encode_tags(column, known, tag_separator)
    if kind == "text":
        return _encode_text(column, known, n_buckets)
    rows = _list_column(column) if kind == "vectors" else _number_column(column)
    values = sp.csr_array(rows)
    if known is None:
        known = _vector_block(column.name, values.shape[1]) if kind == "vectors" else _number_block(column.name, rows)
    _require_width(known, values.shape[1])
    return known, values


def _encode_tags(column: pl.Series, known: FeatureBlock | None, separator: str) -> tuple[FeatureBlock, sp.csr_array]:
    rows = [parse_tags(value, separator) for value in column.to_list()]
    prefix = f"{column.name}: "
    if known is None:
        names = tuple(prefix + tag for tag in sorted({tag for row in rows for tag in row}))
        known = FeatureBlock(column.name, "tags", names, np.zeros(len(names)), np.ones(len(names)))
    position = {name: at for at, name in enumerate(known.names)}
    columns = [sorted(position[prefix + tag] for tag in row if prefix + tag in position) for row in rows]
    return known, _rows_to_csr([dict.fromkeys(row, 1.0) for row in columns], len(known))


def _encode_text(column: pl.Series, known: FeatureBlock | None, n_buckets: int) -> tuple[FeatureBlock, sp.csr_array]:
    """Hash words into buckets: the hashing trick (Weinberger et al. 2009), without signs."""
    if known is not None:
        n_buckets = len(known)
    rows = [Counter(WORD.findall(str(value).lower())) if value is not None else Counter() for value in column.to_list()]
    bucket = {word: crc32(word.encode()) % n_buckets for row in rows for word in row}
    counts: list[dict[int, float]] = []
    for row in rows:
        hashed: dict[int, float] = {}
        for word, count in row.items():
            hashed[bucket[word]] = hashed.get(bucket[word], 0.0) + count
        counts.append(hashed)
    values = _rows_to_csr(counts, n_buckets)
    if known is None:
        words: dict[int, list[str]] = {}
        for word, _ in Counter(word for row in rows for word in row).most_common():
            words.setdefault(bucket[word], []).append(word)
        names = [f"{column.name}: {'/'.join(words.get(at, [f'#{at}'])[:MAX_SHOWN_WORDS])}" for at in range(n_buckets)]
        n_with = np.bincount(values.indices, minlength=n_buckets)
        scale = np.log((1 + len(rows)) / (1 + n_with)) + 1  # smoothed inverse document frequency
        known = FeatureBlock(column.name, "text", tuple(names), np.zeros(n_buckets), scale)
    return known, values


def _number_block(name: str, values: np.ndarray) -> FeatureBlock:
    spread = values.std(axis=0)
    return FeatureBlock(name, "numbers", (name,), values.mean(axis=0), 1 / np.where(spread > 0, spread, 1))


def _vector_block(name: str, width: int) -> FeatureBlock:
    return FeatureBlock(name, "vectors", tuple(f"{name}[{k}]" for k in range(width)), np.zeros(width), np.ones(width))


def _number_column(column: pl.Series) -> np.ndarray:
    numbers = parse_floats(column.cast(pl.Float64) if column.dtype == pl.Boolean else column)
    if numbers.null_count():
        got = f"{numbers.null_count():,} nulls"
        raise InvalidInput(f"a number in every row of {column.name!r}", got, "Fill them, or leave these items out")
    return require_finite_numbers(numbers).cast(pl.Float64).to_numpy()[:, None]


def _list_column(column: pl.Series) -> np.ndarray:
    """Return a column of vectors as an array, after checking that they are of one length and finite."""
    rows = column.to_list()
    do = "Give every item a vector of the same length"
    lengths = {len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else None for row in rows}
    if len(lengths) != 1 or None in lengths:
        got = f"lengths {sorted(lengths - {None})}" + (" and rows without one" if None in lengths else "")  # type: ignore[type-var]
        raise InvalidInput(f"vectors of one length in {column.name!r}", got, do)
    try:
        values = np.array(rows, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"lists of numbers in {column.name!r}", "others", do) from None
    if not np.isfinite(values).all():
        got = f"NaN or infinity in {int((~np.isfinite(values)).any(axis=1).sum()):,} of them"
        raise InvalidInput(f"finite numbers in the vectors of {column.name!r}", got, "Fill them, or leave these items out")
    return values


def _require_width(block: FeatureBlock, width: int) -> None:
    if width != len(block):
        got = f"{width} features"
        raise InvalidInput(f"{len(block)} features in {block.name!r}", got, "Make them in the same way")


def to_csr(values: Any) -> sp.csr_array:
    """Return an array as CSR in the form the kernels expect."""
    matrix = sp.csr_array(values, dtype=np.float32)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _rows_to_csr(rows: Sequence[dict[int, float]], width: int) -> sp.csr_array:
    """Return rows of {column: value} as CSR."""
    lengths = [len(row) for row in rows]
    columns = np.array([column for row in rows for column in sorted(row)], np.int64)
    values = np.array([row[column] for row in rows for column in sorted(row)])
    return csr_from_sorted(np.repeat(np.arange(len(rows)), lengths), columns, values, (len(rows), width))


def _stack_columns(parts: Sequence[sp.csr_array]) -> sp.csr_array:
    stacked = sp.csr_array(sp.hstack(parts, format="csr")) if len(parts) > 1 else parts[0]
    return to_csr(stacked)


def _format_items(items: Sequence[Any]) -> str:
    more = f" and {len(items) - MAX_SHOWN_ITEMS:,} more" if len(items) > MAX_SHOWN_ITEMS else ""
    return ", ".join(map(repr, items[:MAX_SHOWN_ITEMS])) + more


def align_features(features: Features, items: Index) -> Features:
    """Return features in the order of a catalog; refuse those of unknown items, and items without features."""
    require_instance(features, Features, "Make them: gr.Features.of(table, tags='genres')")
    unknown = [id_ for id_, at in zip(features.items.tolist(), items.positions(features.items.tolist()), strict=True) if at < 0]
    if unknown:
        do = "Keep those of known items: features.take(events.items.tolist()). Pass the others to model.add_items"
        raise UnknownId("features of items in the catalog", f"those of {_format_items(unknown)}", do)
    return features.take(items.tolist())


def merge_features(sources: Sequence[Features], items: Index) -> Features | None:
    """Return features of these items from several sources, the last of which wins; None where one has none."""
    if not sources:
        return None
    last = sources[-1]
    for source in reversed(sources[:-1]):
        if source.is_encoded_like(last):
            others = [
                id_
                for id_, at in zip(source.items.tolist(), last.items.positions(source.items.tolist()), strict=True)
                if at < 0
            ]
            last = last.join(source.take(others)) if others else last
    return last.take(items.tolist()) if (last.items.positions(items.tolist()) >= 0).all() else None
