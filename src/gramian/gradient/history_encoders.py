"""Encoders whose users are functions of their histories, in PyTorch for training."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gramian.gradient.encoder import AutogradEncoder, Tables, select_rows
from gramian.gradient.graph import EdgePattern, multiply


class HistoryEncoder(AutogradEncoder):
    """An encoder that reads the mean of the vectors in a history."""

    def __init__(self, backbone: Any, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__(backbone, x, device, dtype)
        self.histories = EdgePattern.of(x, device)

    def history_means(self, vectors: Tensor, users: Tensor | None, held_out: Tensor | None = None) -> Tensor:
        """The mean of the vectors in the history of each of these users (None: all); 0 for an empty history.

        Interactions that are held out do not count.
        """
        histories = self.histories
        rows = np.arange(histories.shape[0]) if users is None else users.cpu().numpy()
        edges, indptr = histories.edges_of_rows(rows)
        pattern = EdgePattern(indptr, histories.indices[edges], (len(rows), histories.shape[1]), self.device)
        row = np.repeat(np.arange(len(rows)), np.diff(indptr))
        is_counted = np.ones(histories.size)
        if held_out is not None:
            is_counted[held_out.cpu().numpy()] = 0
        weights = is_counted[edges]
        sizes = np.bincount(row, weights, minlength=len(rows))
        weights = weights / np.maximum(sizes, 1)[row]
        return multiply(pattern, torch.from_numpy(weights).to(self.device, self.dtype), vectors)


class SimpleXEncoder(HistoryEncoder):
    """g · p_u + (1 − g) · V · mean of q_i over the history, with g = own_weight   (Mao et al. 2021)."""

    def forward(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        own_weight = self.backbone.own_weight
        history = self.history_means(tables["items"], users) @ tables["history_weight"]
        return own_weight * select_rows(tables["users"], users) + (1 - own_weight) * history, select_rows(
            tables["items"], items
        )


class YouTubeNetEncoder(HistoryEncoder):
    """ReLU(mean of v_i over the history · W + b) · V + c, without the items to be predicted   (Covington et al. 2016)."""

    def forward(self, tables: Tables, users: Tensor | None, items: Tensor | None) -> tuple[Tensor, Tensor]:
        means = self.history_means(tables["inputs"], users, self.held_out)
        code = (means @ tables["weight0"] + tables["bias0"]).relu()
        return code @ tables["weight1"] + tables["bias1"], select_rows(tables["items"], items)
