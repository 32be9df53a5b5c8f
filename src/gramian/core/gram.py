"""The Gram matrix S = XᵀX with its catalog: the one statistic that nearly every model is a function of.

A normalised Gram is R̃ᵀR̃ with R̃ = diag(u)^-user_power · X · diag(s)^-item_power, where u is the sum of each user's row and s is
the number of users of each item. The usual symmetric normalisation is ½ for both; the plain Gram is 0 for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from gramian.data.catalog import Catalog
from gramian.data.ids import Index
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.io.catalog import catalog_ids, feature_arrays, read_catalog
from gramian.io.damage import report_damage, require_content, require_finite
from gramian.io.folder import read_folder, write_folder
from gramian.linalg.gram import write_gram
from gramian.linalg.sparse import normalise_rows
from gramian.linalg.symmetric import Symmetric, parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.validation import is_number, require_instance


class GramPowers(NamedTuple):
    """The powers of a normalised Gram: rows of X are divided by u^user_power, columns by s^item_power."""

    user_power: float = 0.0
    item_power: float = 0.0

    def __str__(self) -> str:
        return f"user_power={self.user_power:g}, item_power={self.item_power:g}"


PLAIN = GramPowers()


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
    powers
        How X was normalised; not at all if left out.
    """

    def __init__(self, matrix: Symmetric, catalog: Catalog, n_users: int, is_binary: bool, powers: GramPowers = PLAIN) -> None:
        self.matrix, self.catalog, self.n_users, self.is_binary = matrix, catalog, n_users, is_binary
        self.powers = powers

    @staticmethod
    def of(
        events: Interactions,
        dtype: str | type = "float32",
        *,
        user_power: float = 0.0,
        item_power: float = 0.0,
        n_threads: int | None = None,
    ) -> Gram:
        """Compute the Gram matrix of interactions, in parallel over items.

        Parameters
        ----------
        events
            The interactions.
        dtype
            "float32" or "float64".
        user_power
            Divide each user's row by this power of its sum first. RG2 and graph filters take 0.5.
        item_power
            Divide each item's column by this power of its number of users. Graph filters take 0.5.
        n_threads
            How many threads to use; all cores if left out.

        Returns
        -------
        Gram
        """
        require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)")
        events.require_one_kind("a Gram")
        powers = parse_powers(user_power, item_power)
        if any(powers):
            events.require_no_dislikes("a normalised Gram", "degrees are sums of weights")
        matrix = Symmetric.empty(events.n_items, parse_dtype(dtype))
        with limit_threads(n_threads):
            rows = normalise_rows(events.matrix, powers.user_power, matrix.dtype.type) if powers.user_power else events.matrix
            write_gram(matrix, rows)
            scale_items(matrix, events.popularity, powers.item_power)
        return Gram(matrix, events.catalog, events.n_users, events.is_binary, powers)

    @property
    def items(self) -> Index:
        """Item ids in column order."""
        return self.catalog.ids

    @property
    def n_items(self) -> int:
        """The number of items."""
        return self.matrix.n

    def __repr__(self) -> str:
        normalised = f", {self.powers}" if any(self.powers) else ""
        return f"Gram({self.n_items:,} items, {self.n_users:,} users, {self.matrix.dtype}{normalised})"

    def __iadd__(self, other: Gram) -> Gram:
        """Add another shard's Gram, of other users, into this one, in place.

        The popularity of an item becomes the sum over both shards, and an item power is applied to that sum.
        """
        if not isinstance(other, Gram):
            return NotImplemented
        if self.items != other.items:
            raise InvalidInput("Grams of the same items in the same order", "other items", "Use `events.reindex` first")
        if self.powers != other.powers:
            raise InvalidInput("Grams of the same powers", f"{self.powers} and {other.powers}", "Compute both the same way")
        total = self.catalog.popularity + other.catalog.popularity
        if self.powers.item_power:
            self_scale, other_scale = (
                (g.catalog.popularity / np.maximum(total, 1)) ** self.powers.item_power for g in (self, other)
            )
            self.matrix.scale(self_scale.astype(self.matrix.dtype))
            other_scale = other_scale.astype(self.matrix.dtype)
            for first, last, block in self.matrix.blocks():
                block += other.matrix.block(first, last) * other_scale[first:last] * other_scale[first:, None]
        else:
            self.matrix.buffer += other.matrix.buffer
        self.catalog = self.catalog.with_popularity(total)
        self.n_users += other.n_users
        self.is_binary &= other.is_binary
        return self

    def __add__(self, other: Gram) -> Gram:
        if not isinstance(other, Gram):
            return NotImplemented
        total = Gram(self.matrix.copy(), self.catalog, self.n_users, self.is_binary, self.powers)
        total += other
        return total

    def save(self, path: str | Path) -> None:
        """Write the Gram to a folder; `Gram.load` reads it."""
        facts = {"n": self.n_items, "width": self.matrix.width, "n_users": self.n_users, "is_binary": self.is_binary}
        facts |= self.powers._asdict()
        arrays = {"gram": self.matrix.buffer, "popularity": self.catalog.popularity.astype(np.int64)}
        arrays |= feature_arrays(self.catalog)
        write_folder(path, "gram", facts, arrays, catalog_ids(self.catalog))

    @staticmethod
    def load(path: str | Path) -> Gram:
        """Read a Gram that `save` wrote, after verifying its checksums."""
        facts, arrays, ids = read_folder(path, "gram")
        with report_damage(path):
            require_finite(arrays)
            matrix = Symmetric.from_buffer(facts["n"], arrays["gram"], facts["width"])
            is_binary = bool(facts["is_binary"])
            user_power = facts.get("user_power", 0.5 if facts.get("is_normalised", False) else 0.0)  # was a boolean in 0.1
            powers = parse_powers(user_power, facts.get("item_power", 0.0))
            if "popularity" not in arrays:  # written by version 0.1
                require_content(is_binary and not any(powers), "a Gram with its items' popularity: compute it again")
                arrays["popularity"] = matrix.diagonal().astype(np.int64)
            catalog = read_catalog(arrays["popularity"], ids, arrays)
            require_content(len(catalog) == matrix.n, "an id for every item")
            return Gram(matrix, catalog, int(facts["n_users"]), is_binary, powers)


def parse_powers(user_power: float, item_power: float) -> GramPowers:
    """Return the powers of a Gram, or raise `InvalidInput` unless they are numbers between 0 and 1."""
    for name, power in (("user_power", user_power), ("item_power", item_power)):
        if not (is_number(power) and 0 <= power <= 1):
            raise InvalidInput(f"{name} between 0 and 1", repr(power), "Pass 0.5 for the usual normalisation, or 0 for none")
    return GramPowers(float(user_power), float(item_power))


def scale_items(matrix: Symmetric, popularity: np.ndarray, power: float) -> None:
    """Replace S by diag(s)^-power · S · diag(s)^-power, in place. Items without interactions stay 0."""
    if power:
        matrix.scale((np.maximum(popularity, 1.0) ** -power).astype(matrix.dtype))
