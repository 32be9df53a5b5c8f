"""Scores of the pairs of a batch, with their gradients, in PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gramian.linalg.gathered import gathered_gradients, gathered_products


class GatheredProducts(torch.autograd.Function):
    """left[b] · right[index[b, n]] on the CPU, by the kernels of `gramian.linalg.gathered`."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, index: Tensor) -> Tensor:
        ctx.arrays = tuple(tensor.detach().contiguous().numpy() for tensor in (left, right, index))
        return torch.from_numpy(gathered_products(*ctx.arrays))

    @staticmethod
    def backward(ctx: Any, by_scores: Tensor) -> tuple[Tensor, Tensor, None]:
        by_left, by_right = gathered_gradients(by_scores.contiguous().numpy(), *ctx.arrays)
        return torch.from_numpy(by_left), torch.from_numpy(by_right), None


def score_pairs(user_rows: Tensor, item_rows: Tensor, index: Tensor) -> Tensor:
    """Scores of these items for the users: the same items for all (one dimension), or a row of items for each user."""
    if index.ndim == 1:
        return user_rows @ gather_rows(item_rows, index).T
    if user_rows.device.type == "cpu":
        scores: Tensor = GatheredProducts.apply(user_rows, item_rows, index)
        return scores
    return torch.bmm(gather_rows(item_rows, index), user_rows[:, :, None])[:, :, 0]


def gather_rows(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index] for an index of one or two dimensions. Its backward pass is faster than that of rows[index]."""
    return rows.index_select(0, index.reshape(-1)).view(*index.shape, -1)
