"""The fitted network of NeuMF in NumPy: scores of all items in blocks, and the vectors of new users.

The first layer of the tower is a sum of a user's and an item's part, [p′, q′]·W = p′·W_p + q′·W_q. So its products are computed
once for each user and each item, and only the later layers once for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramian.core.scorer import Scorer
from gramian.gradient.array_functions import sigmoid, softplus
from gramian.gradient.fold_in import PAIRWISE_CANDIDATES, UserProblem, pad_histories, solve_fold_in, stratified_sample
from gramian.gradient.scorers import FOLD_IN_ELEMENTS, TrainedUsers, require_one_precision
from gramian.io.damage import require_content
from gramian.models.scorers import cosine_similarities
from gramian.validation import is_number

PAIR_ELEMENTS = 1 << 20  # numbers in the first layer of a block of pairs: 4 MB in float32
MAX_USERS = 1024  # scored at once


class NeuralFactors(Scorer):
    """Vectors of users and items, and a network that scores their pairs.

    The history of a trained user gets that user's vectors. Any other history gets those of least loss.
    """

    name = "neural-factors"

    def __init__(self, n_negatives: int, l2: float, arrays: dict[str, np.ndarray]) -> None:
        self.n_negatives, self.l2, self.arrays = n_negatives, l2, arrays
        self.items, self.rank = arrays["items"], arrays["items"].shape[1] // 2
        self.n_layers = sum(name.startswith("weight") for name in arrays)
        self.factor_weight, self.tower_weight = np.split(arrays["output"][:, 0], [self.rank])
        self.item_layer = self.items[:, self.rank :] @ arrays["weight0"][self.rank :]
        self.trained_users = TrainedUsers(arrays["keys"])

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def users_per_block(self) -> int:
        return MAX_USERS

    def panels(self, histories: sp.csr_array) -> Iterator[tuple[int, np.ndarray]]:
        users = self.user_vectors(histories)
        factors, layer = users[:, : self.rank] * self.factor_weight, self.user_layer(users)
        width = max(1, min(self.n_items, PAIR_ELEMENTS // max(1, layer.size)))
        for first in range(0, self.n_items, width):
            columns = slice(first, first + width)
            code = layer[:, None, :] + self.item_layer[columns]
            yield first, factors @ self.items[columns, : self.rank].T + self.tower(code)[0] @ self.tower_weight

    def user_layer(self, users: np.ndarray) -> np.ndarray:
        """The users' part of the first layer, before its ReLU."""
        layer: np.ndarray = users[:, self.rank :] @ self.arrays["weight0"][: self.rank] + self.arrays["bias0"]
        return layer

    def tower(self, first_layer: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The output of the tower, given its first layer before the ReLU, and where each layer is above 0."""
        code, masks = first_layer, []
        for layer in range(self.n_layers):
            if layer:
                code = code @ self.arrays[f"weight{layer}"] + self.arrays[f"bias{layer}"]
            masks.append(code > 0)
            code = np.maximum(code, 0)
        return code, masks

    def score_pairs(self, users: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Scores of a row of items for each user, and the masks of the tower's layers."""
        code, masks = self.tower(self.user_layer(users)[:, None, :] + self.item_layer[items])
        factors = (users[:, None, : self.rank] * self.factor_weight * self.items[items, : self.rank]).sum(2)
        return factors + code @ self.tower_weight, masks

    def backpropagate_scores(self, gradients: np.ndarray, items: np.ndarray, masks: list[np.ndarray]) -> np.ndarray:
        """Gradients by the users' vectors, given those by the scores of a row of items for each."""
        by_code = gradients[:, :, None] * self.tower_weight
        for layer in range(self.n_layers - 1, 0, -1):
            by_code = (by_code * masks[layer]) @ self.arrays[f"weight{layer}"].T
        by_layer = (by_code * masks[0]).sum(1)
        by_factors = np.einsum("up,upk->uk", gradients, self.items[items, : self.rank]) * self.factor_weight
        return np.concatenate([by_factors, by_layer @ self.arrays["weight0"][: self.rank].T], axis=1)

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        """The vectors of users with these histories; the mean of all users' for an empty history."""
        user, is_trained = self.trained_users.find(histories)
        vectors = self.arrays["users"][user]
        vectors[~is_trained] = self.arrays["users"].mean(axis=0)
        sizes = np.diff(histories.indptr)
        new_users = np.flatnonzero(~is_trained & (sizes > 0))
        remaining = new_users[np.argsort(-sizes[new_users], kind="stable")]  # longest first: a batch is padded to its longest
        while len(remaining):
            pairs = int(sizes[remaining[0]]) + min(self.n_items, PAIRWISE_CANDIDATES)
            size = max(1, FOLD_IN_ELEMENTS // (16 * pairs * self.item_layer.shape[1]))  # about 16 arrays of the first layer
            batch, remaining = np.split(remaining, [size])
            vectors[batch] = solve_fold_in(NeuralProblem(self, histories[batch]))
        return vectors

    def similar(self, item: int) -> np.ndarray:
        """The cosine between the vectors of items."""
        return cosine_similarities(self.items, item)

    def save(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"n_negatives": self.n_negatives, "l2": self.l2}, self.arrays

    @staticmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> NeuralFactors:
        n_negatives, l2 = facts["n_negatives"], facts["l2"]
        require_content(is_number(n_negatives) and 1 <= n_negatives < np.inf, "a number of negatives")
        require_content(is_number(l2) and 0 <= l2 < np.inf, "a penalty of at least 0")
        users, items, keys = arrays["users"], arrays["items"], arrays["keys"]
        n_layers = sum(name.startswith("weight") for name in arrays)
        layers = {f"{array}{layer}" for array in ("weight", "bias") for layer in range(n_layers)}
        require_content(
            n_layers > 0 and set(arrays) == layers | {"users", "items", "keys", "output"}, "the layers of a network"
        )
        require_content(items.ndim == users.ndim == 2 and items.shape[1] == users.shape[1], "vectors of one length")
        require_content(len(users) > 0 and keys.shape == (len(users),) and keys.dtype == np.int64, "keys of 64 bits")
        width = items.shape[1]
        require_content(width > 0 and width % 2 == 0, "two vectors of one length for every item")
        for layer in range(n_layers):
            shape = arrays[f"weight{layer}"].shape
            require_content(len(shape) == 2 and shape[0] == width, f"a layer {layer} that fits the one before")
            width = shape[1]
            require_content(arrays[f"bias{layer}"].shape == (width,), f"a bias for each unit of layer {layer}")
        require_content(arrays["output"].shape == (items.shape[1] // 2 + width, 1), "a weight for each unit")
        require_one_precision(array for name, array in arrays.items() if name != "keys")
        return NeuralFactors(int(n_negatives), float(l2), arrays)


class NeuralProblem(UserProblem):
    """The loss of each history as a function of its user's vectors: binary cross-entropy, with up to 256 items as negatives."""

    def __init__(self, scorer: NeuralFactors, histories: sp.csr_array) -> None:
        self.scorer, n = scorer, scorer.n_items
        self.positives, self.positive_weight = pad_histories(histories, scorer.items.dtype)
        self.candidates = np.arange(n)
        if n > PAIRWISE_CANDIDATES:
            self.candidates = stratified_sample(np.full(n, -np.log(n)), PAIRWISE_CANDIDATES)

    def initial_point(self) -> np.ndarray:
        return np.repeat(self.scorer.arrays["users"].mean(axis=0, keepdims=True), len(self.positives), axis=0)

    def vectors(self, z: np.ndarray) -> np.ndarray:
        return z

    def value_and_gradient(self, z: np.ndarray, users: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scorer, positives, weight = self.scorer, self.positives[users], self.positive_weight[users]
        items = np.concatenate([positives, np.broadcast_to(self.candidates, (len(z), len(self.candidates)))], axis=1)
        scores, masks = scorer.score_pairs(z, items)
        y, y_negative = np.split(scores, [positives.shape[1]], axis=1)
        value = (weight * softplus(-y)).sum(1) + scorer.n_negatives * softplus(y_negative).mean(1)
        negative_weight = scorer.n_negatives / y_negative.shape[1]
        by_scores = np.concatenate([-weight * sigmoid(-y), negative_weight * sigmoid(y_negative)], axis=1)
        gradient = scorer.backpropagate_scores(by_scores.astype(z.dtype), items, masks) + 2 * scorer.l2 * z
        return value + scorer.l2 * (z * z).sum(1), gradient
