"""Fitted models that were trained by gradients. They score, save and load without PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy import special

from gramian.core.params import parse_configurable
from gramian.core.registry import LOSSES
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.gradient.backbones import scoring_rows
from gramian.gradient.fold_in import PAIRWISE_CANDIDATES, FoldInProblem, solve_fold_in
from gramian.gradient.loss import Loss
from gramian.io.damage import require_content
from gramian.linalg.hashing import hash_pairs
from gramian.linalg.product import dense_panels, multiply_sparse
from gramian.models.scorers import cosine_similarities
from gramian.validation import is_number

FOLD_IN_ELEMENTS = 1 << 24  # elements in the largest temporary array of a fold-in: 64 MB in float32
BIAS_ARRAYS = {"user_bias": "own", "item_bias": "item_own"}  # names of learned biases in saved models and checkpoints since 0.1


def history_keys(histories: sp.csr_array) -> np.ndarray:
    """A 64-bit key of each history: the sum of its items' hashes. Different histories collide with probability 2⁻⁶⁴."""
    hashes = hash_pairs(0, histories.indices, 0)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes, dtype=np.uint64)])
    return (sums[histories.indptr[1:]] - sums[histories.indptr[:-1]]).view(np.int64)


class TrainedUsers:
    """Finds users who were in training by their histories."""

    def __init__(self, keys: np.ndarray) -> None:
        self.keys, self.order = keys, np.argsort(keys, kind="stable")

    def find(self, histories: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
        """For each history, the first trained user who has it, and whether there is one. An empty history matches no user."""
        keys = history_keys(histories)
        position = np.searchsorted(self.keys, keys, sorter=self.order)
        user = self.order[np.minimum(position, len(self.order) - 1)]
        return user, (self.keys[user] == keys) & (np.diff(histories.indptr) > 0)


class TrainedVectors(Scorer):
    """A vector for each item and for each trained user.

    The history of a trained user gets that user's vector. Any other history is folded in: its vector minimises the trained
    loss, with the items fixed and every item as a negative.
    """

    name = "trained-vectors"

    def __init__(self, loss: Loss, geometry: str, penalties: tuple[float, float], arrays: dict[str, np.ndarray]) -> None:
        self.loss, self.geometry, self.arrays = loss, geometry, arrays
        self.l2, self.decay = penalties  # on ‖p_u‖², beside the user's mean loss: l2 + decay/|I_u|
        self.items, self.log_q, self.item_bias = arrays["items"], arrays["log_q"], arrays.get(BIAS_ARRAYS["item_bias"])
        self.rows = np.ascontiguousarray(scoring_rows(self.items, geometry, "item"))
        self.trained_users = TrainedUsers(arrays["keys"])

    @staticmethod
    def of(
        loss: Loss,
        geometry: str,
        penalties: tuple[float, float],
        vectors: dict[str, np.ndarray],
        item_bias: np.ndarray | None,
        events: Interactions,
    ) -> TrainedVectors:
        log_q = loss.log_probabilities(events.popularity).astype(vectors["items"].dtype)
        keys = history_keys(events.matrix)
        arrays = {"users": vectors["users"], "items": vectors["items"], "keys": keys, "log_q": log_q}
        if item_bias is not None:
            arrays[BIAS_ARRAYS["item_bias"]] = item_bias
        return TrainedVectors(loss, geometry, penalties, arrays)

    @property
    def n_items(self) -> int:
        return len(self.items)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return dense_panels(np.ascontiguousarray(scoring_rows(self.user_vectors(histories), self.geometry, "user")), self.rows)

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of users with these histories; 0 for an empty history."""
        user, is_trained = self.trained_users.find(histories)
        vectors = self.arrays["users"][user]
        vectors[~is_trained] = 0
        sizes = np.diff(histories.indptr)
        new_users = np.flatnonzero(~is_trained & (sizes > 0))
        remaining = new_users[np.argsort(-sizes[new_users], kind="stable")]  # longest first: a batch is padded to its longest
        while len(remaining):
            longest, width = int(sizes[remaining[0]]), self.items.shape[1]
            if self.loss.is_pairwise:
                width = max(width, min(PAIRWISE_CANDIDATES, self.n_items))
            batch, remaining = np.split(remaining, [max(1, FOLD_IN_ELEMENTS // max(self.n_items, longest * width))])
            vectors[batch] = self.fold_in(histories[batch])
        return vectors

    def fold_in(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of least loss for these histories, none of which is empty."""
        return solve_fold_in(FoldInProblem(self, histories))

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the vectors of items, or minus their squared distance."""
        if self.geometry == "distance":
            return (scoring_rows(self.items[[item]], self.geometry, "user") @ self.rows.T)[0]
        return cosine_similarities(self.items, item)

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.items}

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = {"loss": self.loss.to_json(), "geometry": self.geometry, "l2": self.l2, "decay": self.decay}
        return facts, self.arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> TrainedVectors:
        require_content(isinstance(facts["loss"], dict), "a loss")
        loss, items, users = parse_configurable(facts["loss"], tuple(LOSSES.values())), arrays["items"], arrays["users"]
        require_content(isinstance(loss, Loss), "a loss")
        assert isinstance(loss, Loss)
        require_content(facts["geometry"] in ("product", "cosine", "distance"), "a geometry of scores")
        penalties = (facts["l2"], facts.get("decay", 0.0))  # models of 0.1 have no decay
        require_content(all(is_number(number) and 0 <= number < np.inf for number in penalties), "penalties of at least 0")
        require_content(items.ndim == users.ndim == 2 and items.shape[1] == users.shape[1], "vectors of one length")
        item_bias = BIAS_ARRAYS["item_bias"]
        expected = {"items", "users", "keys", "log_q"} | ({item_bias} if "item_bias" in loss.learned_biases else set())
        require_content(set(arrays) == expected, "the arrays of trained vectors")
        require_content(len(users) > 0 and arrays["keys"].shape == (len(users),), "a key for every user")
        require_content(arrays["keys"].dtype == np.int64, "keys of 64 bits")
        require_content(arrays["log_q"].shape == (len(items),), "a probability for every item")
        if item_bias in expected:
            require_content(arrays[item_bias].shape == (len(items), 1), "a margin for every item")
        require_one_precision(array for name, array in arrays.items() if name != "keys")
        return TrainedVectors(loss, facts["geometry"], penalties, arrays)


class Network(Scorer):
    """The layers of a network: encode a history, then score the code by a row and a bias of each item.

    A history of s items is divided by s^size_power: 0 is the sum of its items, ½ has length 1, and 1 is their mean.
    """

    name = "network"

    def __init__(
        self, activations: tuple[str, ...], size_power: float, arrays: dict[str, np.ndarray], is_cosine: bool = False
    ) -> None:
        self.activations, self.size_power, self.arrays, self.is_cosine = activations, size_power, arrays, is_cosine
        self.rows = np.concatenate([arrays["output"], arrays["output_bias"][:, None]], axis=1)
        self.trained_users = TrainedUsers(arrays["keys"]) if "keys" in arrays else None

    @property
    def n_items(self) -> int:
        return len(self.rows)

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        return dense_panels(self.user_vectors(histories), self.rows)

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        """The codes of these histories, with a column of ones for the items' biases."""
        dtype, sizes = self.rows.dtype, np.diff(histories.indptr)
        scale = np.maximum(sizes, 1.0) ** -self.size_power
        x = sp.csr_array((np.repeat(scale.astype(dtype), sizes), histories.indices, histories.indptr), histories.shape)
        code = multiply_sparse(x, self.arrays["weight0"])
        if self.trained_users is not None:
            user, is_trained = self.trained_users.find(histories)
            code[is_trained] += self.arrays["users"][user[is_trained]]
        for layer, activation in enumerate(self.activations):
            code = code @ self.arrays[f"weight{layer}"] if layer else code
            code = ACTIVATIONS[activation](code + self.arrays[f"bias{layer}"])
        if self.is_cosine:
            code = scoring_rows(code, "cosine", "user")
        return np.concatenate([code, np.ones((len(code), 1), dtype)], axis=1)

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the items' rows in the output layer."""
        return cosine_similarities(self.arrays["output"], item)

    def factors(self) -> dict[str, np.ndarray]:
        return {"vector": self.rows}

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        facts = {"activations": list(self.activations), "size_power": self.size_power, "is_cosine": self.is_cosine}
        return facts, self.arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Network:
        activations = facts["activations"]
        is_known = isinstance(activations, list) and bool(activations) and set(activations) <= set(ACTIVATIONS)
        require_content(is_known, "activations")
        size_power, is_cosine = load_size_power(facts), facts.get("is_cosine", False)
        require_content(isinstance(is_cosine, bool), "whether scores are cosines")
        layers = {f"{array}{layer}" for array in ("weight", "bias") for layer in range(len(activations))}
        user_arrays = {"users", "keys"} & set(arrays)
        expected = layers | user_arrays | {"output", "output_bias"}
        require_content(set(arrays) == expected and len(user_arrays) != 1, "the layers of a network")
        width = n_items = len(arrays["output_bias"])
        for layer in range(len(activations)):
            shape = arrays[f"weight{layer}"].shape
            require_content(len(shape) == 2 and shape[0] == width, f"a layer {layer} that fits the one before")
            width = shape[1]
            require_content(arrays[f"bias{layer}"].shape == (width,), f"a bias for each unit of layer {layer}")
        require_content(arrays["output"].shape == (n_items, width), "a row for every item")
        if user_arrays:
            keys, n_users = arrays["keys"], len(arrays["keys"])
            require_content(n_users > 0 and keys.dtype == np.int64 and keys.shape == (n_users,), "keys of 64 bits")
            require_content(arrays["users"].shape == (n_users, arrays["weight0"].shape[1]), "a vector for every user")
        require_one_precision(array for name, array in arrays.items() if name != "keys")
        return Network(tuple(activations), size_power, arrays, is_cosine)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "relu": lambda x: np.maximum(x, 0),
    "none": lambda x: x,
}


def load_size_power(facts: dict[str, Any]) -> float:
    """The power of a history's size in a saved network. Version 0.1 saved whether it is ½."""
    if "size_power" not in facts:
        require_content(isinstance(facts["normalised"], bool), "whether histories are normalised")
        return 0.5 if facts["normalised"] else 0.0
    require_content(facts["size_power"] in (0, 0.5, 1), "a power of the size of a history")
    return float(facts["size_power"])


def require_one_precision(arrays: Iterable[np.ndarray]) -> None:
    """Require numbers that are all float32 or all float64."""
    dtypes = {array.dtype for array in arrays}
    is_float = len(dtypes) == 1 and dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}
    require_content(is_float, "numbers of one precision")
