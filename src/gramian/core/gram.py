"""The Gram matrix S = XᵀX with its catalog: the one statistic that nearly every model is a function of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.io.catalog import catalog_ids, read_catalog
from gramian.io.damage import report_damage, require_content, require_finite
from gramian.io.folder import read_folder, write_folder
from gramian.linalg.gram import write_gram
from gramian.linalg.sparse import normalise_rows
from gramian.linalg.symmetric import Symmetric, parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.validation import require_instance


class Gram:
    """S = XᵀX with the catalog of its items. Grams of shards add up to the Gram of all, and one Gram fits many models.

    Parameters
    ----------
    matrix
        The stored half of the matrix.
    catalog
        The items, with their popularity.
    n_users
        How many users were summed.
    is_binary
        Whether every interaction counted 1.
    is_normalised
        Whether each user's row was divided by the square root of its sum, as RG2 and graph filters need it.
    """

    def __init__(self, matrix: Symmetric, catalog: Catalog, n_users: int, is_binary: bool, is_normalised: bool = False) -> None:
        self.matrix, self.catalog, self.n_users, self.is_binary = matrix, catalog, n_users, is_binary
        self.is_normalised = is_normalised

    @staticmethod
    def of(
        events: Interactions, dtype: str | type = "float32", *, normalised: bool = False, n_threads: int | None = None
    ) -> Gram:
        """Compute the Gram matrix of interactions, in parallel over items.

        Parameters
        ----------
        events
            The interactions.
        dtype
            "float32" or "float64".
        normalised
            Divide each user's row by the square root of its sum first.
        n_threads
            How many threads to use; all cores if left out.

        Returns
        -------
        Gram
        """
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        matrix = Symmetric.empty(events.n_items, parse_dtype(dtype))
        with limit_threads(n_threads):
            write_gram(matrix, normalise_rows(events.matrix, matrix.dtype.type) if normalised else events.matrix)
        return Gram(matrix, events.catalog, events.n_users, events.is_binary, normalised)

    @property
    def items(self) -> Index:
        """Item ids in column order."""
        return self.catalog.ids

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.matrix.n

    def __repr__(self) -> str:
        normalised = ", row-normalised" if self.is_normalised else ""
        return f"Gram({self.n_items:,} items, {self.n_users:,} users, {self.matrix.dtype}{normalised})"

    def __iadd__(self, other: Gram) -> Gram:
        """Add another shard's Gram into this one, in place."""
        if not isinstance(other, Gram):
            return NotImplemented
        if self.items != other.items:
            raise InvalidInput("Grams of the same items in the same order", "other items", "Use `events.reindex` first")
        if self.is_normalised != other.is_normalised:
            raise InvalidInput("two plain or two row-normalised Grams", "one of each", "Compute both the same way")
        self.matrix.buffer += other.matrix.buffer
        self.catalog = self.catalog.with_popularity(self.catalog.popularity + other.catalog.popularity)
        self.n_users += other.n_users
        self.is_binary &= other.is_binary
        return self

    def __add__(self, other: Gram) -> Gram:
        if not isinstance(other, Gram):
            return NotImplemented
        total = Gram(self.matrix.copy(), self.catalog, self.n_users, self.is_binary, self.is_normalised)
        total += other
        return total

    def save(self, path: str | Path) -> None:
        """Write the Gram to a folder; `Gram.load` reads it."""
        facts = {"n": self.n_items, "width": self.matrix.width, "n_users": self.n_users, "is_binary": self.is_binary}
        facts["is_normalised"] = self.is_normalised
        arrays = {"gram": self.matrix.buffer, "popularity": self.catalog.popularity.astype(np.int64)}
        write_folder(path, "gram", facts, arrays, catalog_ids(self.catalog))

    @staticmethod
    def load(path: str | Path) -> Gram:
        """Read a Gram that `save` wrote, after verifying its checksums."""
        facts, arrays, ids = read_folder(path, "gram")
        with report_damage(path):
            require_finite(arrays)
            matrix = Symmetric.from_buffer(facts["n"], arrays["gram"], facts["width"])
            is_binary, is_normalised = bool(facts["is_binary"]), bool(facts.get("is_normalised", False))
            if "popularity" not in arrays:  # written by version 0.1
                require_content(is_binary and not is_normalised, "a Gram with its items' popularity: compute it again")
                arrays["popularity"] = matrix.diagonal().astype(np.int64)
            catalog = read_catalog(arrays["popularity"], ids)
            require_content(len(catalog) == matrix.n, "an id for every item")
            return Gram(matrix, catalog, int(facts["n_users"]), is_binary, is_normalised)
