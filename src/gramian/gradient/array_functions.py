"""Functions of NumPy arrays and PyTorch tensors alike, so that a loss is written once for training and for fold-in.

`array_api_compat` would replace only exp, log and sign: the array API standard has no logsumexp, softmax, sigmoid or softplus.
PyTorch is imported only where a tensor is passed, so that fitted models serve without it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

Array = Any  # np.ndarray or torch.Tensor


def exp(x: Array) -> Array:
    return np.exp(x) if isinstance(x, np.ndarray) else x.exp()


def log(x: Array) -> Array:
    return np.log(x) if isinstance(x, np.ndarray) else x.log()


def sign(x: Array) -> Array:
    return np.sign(x) if isinstance(x, np.ndarray) else x.sign()


def heaviside(x: Array) -> Array:
    """1 where x > 0, otherwise 0, in x's dtype."""
    return (x > 0).astype(x.dtype) if isinstance(x, np.ndarray) else (x > 0).to(x.dtype)


def logsumexp(x: Array) -> Array:
    """log Σ_j e^{x_j} of each row."""
    return special.logsumexp(x, axis=1) if isinstance(x, np.ndarray) else x.logsumexp(1)


def softmax(x: Array) -> Array:
    """e^{x_j} / Σ_k e^{x_k} in each row."""
    return special.softmax(x, axis=1) if isinstance(x, np.ndarray) else x.softmax(1)


def nan_to_zero(x: Array) -> Array:
    """Replace NaN with 0."""
    return np.nan_to_num(x) if isinstance(x, np.ndarray) else x.nan_to_num()


def sigmoid(x: Array) -> Array:
    """σ(x) = 1 / (1 + e^{−x})."""
    return special.expit(x) if isinstance(x, np.ndarray) else x.sigmoid()


def softplus(x: Array) -> Array:
    """log(1 + e^x)."""
    if isinstance(x, np.ndarray):
        return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    from torch.nn.functional import softplus as torch_softplus  # noqa: PLC0415

    return torch_softplus(x)


def concatenate_columns(*blocks: Array) -> Array:
    """Two-dimensional blocks side by side."""
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks, axis=1)
    from torch import cat  # noqa: PLC0415

    return cat(blocks, 1)


def project_to_simplex(x: Array) -> tuple[Array, Array]:
    """Project each row on the probability simplex: sparsemax   (Martins and Astudillo 2016).

    Returns the projection [x − τ]₊ and the threshold τ of each row, as a column. Σ_j [x_j − τ]₊ − 1 is convex and decreasing
    in τ, so Newton's method from max x − 1 increases monotonically to its root.
    """
    threshold = (x.max(1) if isinstance(x, np.ndarray) else x.amax(1))[:, None] - 1
    previous_size = None
    while True:
        projection = (x - threshold).clip(min=0)
        support_size = (projection > 0).sum(1)
        if previous_size is not None and bool((support_size == previous_size).all()):
            return projection, threshold
        previous_size, threshold = support_size, threshold + ((projection.sum(1) - 1) / support_size)[:, None]
