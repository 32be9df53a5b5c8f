"""The few kinds of fitted result. They work on column numbers; ids are the Recommender's business."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from gramian import store
from gramian.errors import NotSupported
from gramian.linalg.memory import require
from gramian.linalg.product import dense_panels, panels, row_panels, times, unfold
from gramian.linalg.symmetric import PANEL, Symmetric

UNFOLDED = 8 * PANEL  # rows at a time


class ItemWeights:
    """W = −P · dMat(factor) + dMat(diagonal): one symmetric matrix, one factor and one diagonal entry per item.

    Every full-rank linear autoencoder is of this form, so W itself is never stored.
    """

    name: ClassVar[str] = "item-weights"

    def __init__(self, inverse: Symmetric, factor: np.ndarray, diagonal: np.ndarray) -> None:
        self.inverse = inverse
        self.factor, self.diagonal = factor.astype(inverse.dtype), diagonal.astype(inverse.dtype)

    @property
    def n_items(self) -> int:
        return self.inverse.n

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return panels(histories, self.inverse, -self.factor, self.diagonal)

    def similar(self, item: int) -> np.ndarray:
        """Partial correlation: how two items go together when all others are held fixed; the same for the whole family."""
        scale = 1 / np.sqrt(self.inverse.diagonal())
        return -self.inverse.row(item) * scale * scale[item]

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        row = self.inverse.row(item).astype(np.float64)[history]
        return values * (-row * self.factor[item] + (history == item) * self.diagonal[item])

    def weights(self) -> np.ndarray:
        weights = self.inverse.dense()
        weights *= -self.factor
        weights[np.diag_indices(len(weights))] += self.diagonal
        return weights

    def factors(self) -> dict[str, np.ndarray]:
        raise NotSupported("a low-rank or factor model", "an item-item model", "Use weights()")

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = {"inverse": self.inverse.buffer, "factor": self.factor, "diagonal": self.diagonal}
        return {"n": self.inverse.n, "width": self.inverse.width}, arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> ItemWeights:
        inverse = Symmetric.stored(facts["n"], arrays["inverse"], facts["width"])
        shapes = {arrays["factor"].shape, arrays["diagonal"].shape}
        store.require(shapes == {(inverse.n,)}, "a factor and a diagonal entry for every item")
        return ItemWeights(inverse, arrays["factor"], arrays["diagonal"])


class Unfolded(ItemWeights):
    """The same model with W itself in memory, a row for each item: twice the bytes, and many times faster for a few users."""

    def __init__(self, folded: ItemWeights, rows: np.ndarray) -> None:
        super().__init__(folded.inverse, folded.factor, folded.diagonal)
        self.rows = rows

    @staticmethod
    def n_bytes(folded: ItemWeights) -> int:
        return folded.n_items**2 * folded.inverse.dtype.itemsize

    @staticmethod
    def steps(folded: ItemWeights) -> Iterator[Unfolded | None]:
        """Unfold some rows at a time, so that others can be answered in between: nothing, again and again, and then it."""
        n = folded.n_items
        rows = np.empty((n, n), folded.inverse.dtype)
        for first in range(0, n, UNFOLDED):
            unfold(rows[first : first + UNFOLDED], first, folded.inverse, -folded.factor, folded.diagonal)
            yield None
        yield Unfolded(folded, rows)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return row_panels(histories, self.rows)


class LowRank:
    """W = encoder · decoderᵀ, two thin arrays: a history is encoded, and every item is scored in `rank` operations."""

    name: ClassVar[str] = "low-rank"

    def __init__(self, encoder: np.ndarray, decoder: np.ndarray) -> None:
        self.encoder, self.decoder = (np.ascontiguousarray(part, np.float32) for part in (encoder, decoder))

    @property
    def n_items(self) -> int:
        return len(self.decoder)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return dense_panels(self.users(histories), self.decoder)

    def similar(self, item: int) -> np.ndarray:
        """The cosine between what items decode from."""
        return cosines(self.decoder, item)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return values * (self.encoder[history].astype(np.float64) @ self.decoder[item])

    def weights(self) -> np.ndarray:
        n = self.n_items
        require(4 * n * n, f"dense {n:,} × {n:,} weights", "Use factors()")
        return self.encoder @ self.decoder.T

    def factors(self) -> dict[str, np.ndarray]:
        return {"encoder": self.encoder, "decoder": self.decoder}

    def users(self, histories: sp.csr_array) -> np.ndarray:
        return times(histories, self.encoder)

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, {"encoder": self.encoder, "decoder": self.decoder}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> LowRank:
        encoder, decoder = arrays["encoder"], arrays["decoder"]
        store.require(encoder.ndim == 2 and encoder.shape == decoder.shape, "an encoder and a decoder of one shape")
        store.require(encoder.dtype == decoder.dtype == np.float32, "an encoder and a decoder in float32")
        return LowRank(encoder, decoder)


def cosines(vectors: np.ndarray, at: int) -> np.ndarray:
    """Of one vector with every vector; 0 with those of no length."""
    length = np.sqrt(np.einsum("ik,ik->i", vectors, vectors))
    length[length == 0] = 1
    return vectors @ (vectors[at] / length[at]) / length


class SparseWeights:
    """A sparse W."""

    name: ClassVar[str] = "sparse-weights"

    def __init__(self, matrix: sp.csr_array) -> None:
        self.matrix = matrix.astype(np.float32)
        self.by_column = self.matrix.tocsc()

    @property
    def n_items(self) -> int:
        return int(self.matrix.shape[1])

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        for first in range(0, self.n_items, PANEL):
            yield first, times(histories, self.by_column[:, first : first + PANEL].toarray())

    def similar(self, item: int) -> np.ndarray:
        """How much each item counts for this one and this one for it."""
        return self.matrix[[item]].toarray()[0] + self.by_column[:, [item]].toarray()[:, 0]

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        return values * self.by_column[:, [item]].toarray()[history, 0].astype(np.float64)

    def weights(self) -> np.ndarray:
        n = self.n_items
        require(4 * n * n, f"dense {n:,} × {n:,} weights", "Use model.scorer.matrix")
        return self.matrix.toarray()

    def factors(self) -> dict[str, np.ndarray]:
        raise NotSupported("a low-rank or factor model", "an item-item model", "Use weights()")

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        matrix = self.matrix
        arrays = {"indptr": matrix.indptr.astype(np.int64), "indices": matrix.indices.astype(np.int32), "data": matrix.data}
        return {}, arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SparseWeights:
        indptr, indices, data = arrays["indptr"], arrays["indices"], arrays["data"]
        n = len(indptr) - 1
        flat = all(part.ndim == 1 for part in (indptr, indices, data)) and n >= 0
        kinds = indptr.dtype == np.int64 and indices.dtype == np.int32 and data.dtype == np.float32
        store.require(bool(flat and kinds), "rows of weights in float32")
        sound = indptr[0] == 0 and indptr[-1] == len(indices) == len(data) and (np.diff(indptr) >= 0).all()
        store.require(bool(sound), "a row of weights for every item")
        store.require(len(indices) == 0 or (indices.min() >= 0 and indices.max() < n), "weights between known items")
        store.require(bool(np.isfinite(data).all()), "finite weights")
        return SparseWeights(sp.csr_array((data, indices, indptr), (n, n)))


class SameForAll:
    """One score per item, whoever asks."""

    name: ClassVar[str] = "same-for-all"

    def __init__(self, values: np.ndarray) -> None:
        self.values = values.astype(np.float32)

    @property
    def n_items(self) -> int:
        return len(self.values)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        for first in range(0, len(self.values), PANEL):
            yield first, np.tile(self.values[first : first + PANEL], (histories.shape[0], 1))

    def similar(self, item: int) -> np.ndarray:
        raise NotSupported("a model that relates items to each other", "one that ranks them the same for all", "Fit EASE, say")

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        raise NotSupported("a model that looks at the history", "one that ranks items the same for all", "Fit EASE, say")

    def weights(self) -> np.ndarray:
        raise NotSupported("an item-item model", "one score per item", "Fit EASE, say")

    def factors(self) -> dict[str, np.ndarray]:
        raise NotSupported("a low-rank or factor model", "one score per item", "Fit another model")

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {}, {"values": self.values}

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> SameForAll:
        store.require(arrays["values"].ndim == 1, "one value for every item")
        return SameForAll(arrays["values"])
