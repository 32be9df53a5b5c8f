"""What a model trained by gradients serves with. Nothing here needs PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy import special

from gramian import store
from gramian.data.interactions import Interactions
from gramian.data.split import hashed
from gramian.data.tables import is_number
from gramian.errors import NotSupported
from gramian.linalg.product import dense_panels, times
from gramian.models.recipe import part_of
from gramian.models.scorers import cosines
from gramian.sampled.backbones import back_to, rows_of
from gramian.sampled.losses import LOSSES, Loss, Scores

STEPS = 60  # at most, for a user who was not trained
ENOUGH = 1e-4  # a slope this part of the first is none
AT_ONCE = 1 << 24  # numbers in the largest array of scores
SHOWN = 256  # candidates where every positive meets every one of them


def keys(histories: sp.csr_array) -> np.ndarray:
    """A number for each history: the sum of random numbers of its items. Two that are equal are the same history."""
    numbers = hashed(0, histories.indices, 0)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(numbers, dtype=np.uint64)])
    return (sums[histories.indptr[1:]] - sums[histories.indptr[:-1]]).view(np.int64)


class Known:
    """Users who were trained, by their histories."""

    def __init__(self, keys: np.ndarray) -> None:
        self.keys, self.order = keys, np.argsort(keys, kind="stable")

    def of(self, histories: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """For each history, the first user who has it, and whether there is one. Nobody has an empty one."""
        sought = keys(histories)
        at = np.searchsorted(self.keys, sought, sorter=self.order)
        user = self.order[np.minimum(at, len(self.order) - 1)]
        return user, (self.keys[user] == sought) & (np.diff(histories.indptr) > 0)


class TrainedVectors:
    """A vector for each item and each trained user. Whoever has the history of a trained user has their vector; the vector of
    anyone else is found by the same loss, with the items as they are and every item a candidate."""

    name: ClassVar[str] = "trained-vectors"

    def __init__(self, loss: Loss, geometry: str, l2: float, arrays: dict[str, np.ndarray]) -> None:
        self.loss, self.geometry, self.l2, self.arrays = loss, geometry, l2, arrays
        self.items = arrays["items"]
        self.rows = np.ascontiguousarray(rows_of(self.items, geometry, "item"))
        self.known = Known(arrays["keys"])

    @staticmethod
    def of(
        loss: Loss,
        geometry: str,
        l2: float,
        vectors: dict[str, np.ndarray],
        item_own: np.ndarray | None,
        events: Interactions,
    ) -> TrainedVectors:
        log_q = loss.log_probabilities(events.popularity).astype(vectors["items"].dtype)
        arrays = {"users": vectors["users"], "items": vectors["items"], "keys": keys(events.matrix), "log_q": log_q}
        return TrainedVectors(loss, geometry, l2, arrays | ({} if item_own is None else {"item_own": item_own}))

    @property
    def n_items(self) -> int:
        return len(self.items)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return dense_panels(np.ascontiguousarray(rows_of(self.users(histories), self.geometry, "user")), self.rows)

    def users(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of users with these histories."""
        user, trained = self.known.of(histories)
        found = self.arrays["users"][user]
        found[~trained] = 0
        sizes = np.diff(histories.indptr)
        others = np.flatnonzero(~trained & (sizes > 0))
        by_size = others[np.argsort(-sizes[others], kind="stable")]
        while len(by_size):  # as many as fit in memory, the longest first
            longest, rank = int(sizes[by_size[0]]), self.items.shape[1]
            wide = max(self.n_items, longest * (max(rank, min(SHOWN, self.n_items)) if self.loss.pairs else rank))
            some, by_size = np.split(by_size, [max(1, AT_ONCE // wide)])
            found[some] = self.solved(histories[some])
        return found

    def solved(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of least loss for these histories, by gradient steps of Barzilai and Borwein, none of them uphill."""
        problem = Problem(self, histories)
        z = problem.first()
        value, slope = problem.at(z, np.arange(len(z)))
        steepest = np.sqrt((slope * slope).sum(1))
        length = 0.1 * (0.1 + np.sqrt((z * z).sum(1))) / np.maximum(steepest, 1e-30)
        left = np.flatnonzero(steepest > 0)
        for _ in range(STEPS):
            if len(left) == 0:
                break
            step = -length[left, None] * slope[left]
            there = z[left] + step
            new_value, new_slope = problem.at(there, left)
            down = new_value <= value[left] - 1e-4 * length[left] * (slope[left] ** 2).sum(1)
            bend = (step * (new_slope - slope[left])).sum(1)
            wide = np.where(bend > 0, (step * step).sum(1) / np.maximum(bend, 1e-30), 4 * length[left])
            length[left] = np.where(down, np.minimum(wide, 10 * length[left]), length[left] / 4)
            moved = left[down]
            z[moved], value[moved], slope[moved] = there[down], new_value[down], new_slope[down]
            flat = np.sqrt((slope[left] ** 2).sum(1)) <= ENOUGH * steepest[left]
            stuck = length[left] * np.sqrt((slope[left] ** 2).sum(1)) <= 1e-7 * np.sqrt((z[left] ** 2).sum(1))
            left = left[~(flat | stuck)]
        return problem.vectors(z)

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the vectors of items, or minus their squared distance."""
        if self.geometry == "distance":
            return (rows_of(self.items[[item]], self.geometry, "user") @ self.rows.T)[0]
        return cosines(self.items, item)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        what = "a model whose scores are sums over the history"
        raise NotSupported(
            what, f"one trained by {type(self.loss).__name__}", "Fit EASE, IALS, or MF() with MSE() or RG2Loss()"
        )

    def weights(self) -> np.ndarray:
        raise NotSupported("an item-item model", "a factor model", "Use factors()")

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.items}

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"loss": self.loss.to_json(), "geometry": self.geometry, "l2": self.l2}, self.arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> TrainedVectors:
        store.require(isinstance(facts["loss"], dict), "a loss")
        loss, items, users = part_of(facts["loss"], LOSSES), arrays["items"], arrays["users"]
        store.require(isinstance(loss, Loss), "a loss")
        assert isinstance(loss, Loss)
        store.require(facts["geometry"] in ("product", "cosine", "distance"), "a geometry of scores")
        store.require(is_number(facts["l2"]) and 0 <= facts["l2"] < np.inf, "a penalty of at least 0")
        store.require(items.ndim == users.ndim == 2 and items.shape[1] == users.shape[1], "vectors of one length")
        own = {"item_own"} if "item_own" in loss.owns else set()
        store.require(set(arrays) == {"items", "users", "keys", "log_q"} | own, "the arrays of trained vectors")
        store.require(len(users) > 0 and arrays["keys"].shape == (len(users),), "a key for every user")
        store.require(arrays["keys"].dtype == np.int64, "keys of 64 bits")
        store.require(arrays["log_q"].shape == (len(items),), "a probability for every item")
        store.require(not own or arrays["item_own"].shape == (len(items), 1), "a margin for every item")
        require_numbers(array for name, array in arrays.items() if name != "keys")
        return TrainedVectors(loss, facts["geometry"], facts["l2"], arrays)


class Network:
    """Layers through which a history goes to a code, and a row and a bias for each item that score it."""

    name: ClassVar[str] = "network"

    def __init__(self, activations: tuple[str, ...], normalised: bool, arrays: dict[str, np.ndarray]) -> None:
        self.activations, self.normalised, self.arrays = activations, normalised, arrays
        self.rows = np.concatenate([arrays["output"], arrays["output_bias"][:, None]], axis=1)
        self.known = Known(arrays["keys"]) if "keys" in arrays else None

    @property
    def n_items(self) -> int:
        return len(self.rows)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return dense_panels(self.users(histories), self.rows)

    def users(self, histories: sp.csr_array) -> np.ndarray:
        """The codes of these histories, and a 1 that meets the bias."""
        kind = self.rows.dtype
        sizes = np.maximum(np.diff(histories.indptr), 1)
        data = np.repeat(
            (1 / np.sqrt(sizes) if self.normalised else np.ones(len(sizes))).astype(kind), np.diff(histories.indptr)
        )
        code = times(sp.csr_array((data, histories.indices, histories.indptr), histories.shape), self.arrays["weight0"])
        if self.known is not None:
            user, trained = self.known.of(histories)
            code[trained] += self.arrays["users"][user[trained]]
        for layer, activation in enumerate(self.activations):
            code = code @ self.arrays[f"weight{layer}"] if layer else code
            code = ACTIVATIONS[activation](code + self.arrays[f"bias{layer}"])
        return np.concatenate([code, np.ones((len(code), 1), kind)], axis=1)

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the rows that score items."""
        return cosines(self.arrays["output"], item)

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        raise NotSupported("a model whose scores are sums over the history", "a nonlinear autoencoder", "Fit EASE, say")

    def weights(self) -> np.ndarray:
        raise NotSupported("an item-item model", "a nonlinear autoencoder", "Use factors()")

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.rows}

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"activations": list(self.activations), "normalised": self.normalised}, self.arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Network:
        activations = facts["activations"]
        store.require(
            isinstance(activations, list) and bool(activations) and set(activations) <= set(ACTIVATIONS), "activations"
        )
        store.require(isinstance(facts["normalised"], bool), "whether histories are normalised")
        layers = {f"{part}{layer}" for part in ("weight", "bias") for layer in range(len(activations))}
        users = {"users", "keys"} & set(arrays)
        store.require(set(arrays) == layers | users | {"output", "output_bias"} and len(users) != 1, "the layers of a network")
        width = n = len(arrays["output_bias"])
        for layer in range(len(activations)):
            shape = arrays[f"weight{layer}"].shape
            store.require(len(shape) == 2 and shape[0] == width, f"a layer {layer} that fits the one before")
            width = shape[1]
            store.require(arrays[f"bias{layer}"].shape == (width,), f"a bias for each part of layer {layer}")
        store.require(arrays["output"].shape == (n, width), "a row for every item")
        if users:
            k = arrays["weight0"].shape[1]
            m = len(arrays["keys"])
            store.require(m > 0 and arrays["keys"].dtype == np.int64 and arrays["keys"].shape == (m,), "keys of 64 bits")
            store.require(arrays["users"].shape == (m, k), "a vector for every user")
        require_numbers([array for name, array in arrays.items() if name != "keys"])
        return Network(tuple(activations), facts["normalised"], arrays)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"tanh": np.tanh, "sigmoid": special.expit, "none": lambda x: x}


def require_numbers(arrays: Iterable[np.ndarray]) -> None:
    """Finite, and of one precision."""
    arrays = list(arrays)
    kinds = {part.dtype for part in arrays}
    store.require(len(kinds) == 1 and kinds <= {np.dtype(np.float32), np.dtype(np.float64)}, "numbers of one precision")
    store.require(all(bool(np.isfinite(part).all()) for part in arrays), "finite numbers")


class Problem:
    """The loss of some histories by their users' vectors, each with the user's own number where the loss has one."""

    def __init__(self, scorer: TrainedVectors, histories: sp.csr_array) -> None:
        self.scorer, self.loss, self.kind = scorer, scorer.loss.folded(), scorer.items.dtype
        sizes = np.diff(histories.indptr)
        row = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(histories.nnz) - histories.indptr[:-1][row]
        shape = (len(sizes), int(sizes.max()))
        self.weight, self.columns = np.zeros(shape, self.kind), np.zeros(shape, np.int64)
        self.weight[row, place] = (1 / sizes)[row]
        self.columns[row, place] = histories.indices
        debiased = getattr(self.loss, "debiased", None)
        priors = debiased.priors(sizes, scorer.n_items) if debiased else None
        self.priors = None if priors is None else priors.astype(self.kind)[:, None]
        self.shown = np.arange(scorer.n_items)
        self.log_q = None if self.loss.all_items else scorer.arrays["log_q"]
        if self.loss.pairs and scorer.n_items > SHOWN:  # draws, always the same, that are alike
            probabilities = np.exp(scorer.arrays["log_q"].astype(np.float64))
            places = (np.random.default_rng(0).random(SHOWN) + np.arange(SHOWN)) / SHOWN * probabilities.sum()
            self.shown = np.minimum(np.searchsorted(np.cumsum(probabilities), places, side="right"), scorer.n_items - 1)
            self.log_q = None
        self.rows = scorer.rows[self.shown] if len(self.shown) < scorer.n_items else scorer.rows
        self.n = scorer.n_items if self.loss.all_items else self.loss.n_negatives  # type: ignore[attr-defined]

    @cached_property
    def between(self) -> np.ndarray:
        """Scores of the candidates for what was touched."""
        found: np.ndarray = rows_of(self.scorer.items[self.columns.reshape(-1)], self.scorer.geometry, "user") @ self.rows.T
        return found.reshape(*self.columns.shape, -1)

    def first(self) -> np.ndarray:
        """The mean of what was touched, and 0 for the user's own number."""
        vectors = self.scorer.items / np.maximum(np.linalg.norm(self.scorer.items, axis=1, keepdims=True), 1e-12)
        items = vectors if self.scorer.geometry == "cosine" else self.scorer.items
        mean = np.einsum("up,upk->uk", self.weight, items[self.columns])
        own = np.zeros((len(mean), int("own" in self.loss.owns)), self.kind)
        return np.concatenate([mean, own], axis=1)

    def vectors(self, z: np.ndarray) -> np.ndarray:
        return z[:, : self.scorer.items.shape[1]]

    def at(self, z: np.ndarray, who: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The loss of each of these users, with the penalty, and its slopes."""
        scorer, p = self.scorer, self.vectors(z)
        users, columns, weight = rows_of(p, scorer.geometry, "user"), self.columns[who], self.weight[who]
        others, touched = users @ self.rows.T, scorer.rows[columns]
        positive = (touched @ users[:, :, None])[:, :, 0]
        parts: dict[str, Any] = {"log_share": self.log_q, "log_q": self.log_q}
        if self.priors is not None:
            parts |= {"prior": self.priors[who], "liked": positive, "liked_weight": weight}
        if "own" in self.loss.owns:
            parts["own"] = z[:, -1:]
        if "item_own" in self.loss.owns:
            parts["item_own"] = scorer.arrays["item_own"][columns, 0]
        if self.loss.needs_between:
            parts["between"] = self.between[who]
        value, slopes = self.loss(Scores(positive, weight, others, self.n, **parts))
        pull = slopes.positive if slopes.liked is None else slopes.positive + slopes.liked
        by_row = slopes.others @ self.rows + (pull[:, None, :] @ touched)[:, 0]
        by_vector = back_to(p, by_row, scorer.geometry) + 2 * scorer.l2 * p
        value = value + scorer.l2 * (p * p).sum(1)
        return value, by_vector if slopes.own is None else np.concatenate([by_vector, slopes.own], axis=1)
