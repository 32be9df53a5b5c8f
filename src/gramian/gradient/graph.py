"""The graph convolution of LightGCN   (He et al. 2020)."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

TORCH_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class InteractionGraph:
    """The bipartite graph of users and items, by its normalized adjacency matrix Â = diag(degree)^-½ · A · diag(degree)^-½."""

    def __init__(self, x: sp.csr_array, n_layers: int, device: torch.device, dtype: torch.dtype) -> None:
        self.n_layers = n_layers
        binary = sp.csr_array((np.ones(x.nnz), x.indices, x.indptr), x.shape)
        user_scale, item_scale = (1 / np.sqrt(np.maximum(binary.sum(axis=axis), 1)) for axis in (1, 0))
        normalized = sp.csr_array(binary.multiply(user_scale[:, None]).multiply(item_scale[None, :]))
        self.items_to_users = to_sparse_tensor(normalized, device, dtype)
        self.users_to_items = to_sparse_tensor(sp.csr_array(normalized.T.tocsr()), device, dtype)

    def propagate(self, vectors: dict[str, Tensor]) -> dict[str, Tensor]:
        """1/(L + 1) · Σ_{l=0..L} Âˡ E, of the vectors E of users and items.

        The map is linear and symmetric, so it also takes the gradients by its output back to those by its input.
        """
        users, items = vectors["users"], vectors["items"]
        total = {"users": users.clone(), "items": items.clone()}
        for _ in range(self.n_layers):
            users, items = self.items_to_users @ items, self.users_to_items @ users
            total["users"] += users
            total["items"] += items
        return {name: tensor / (self.n_layers + 1) for name, tensor in total.items()}


def to_sparse_tensor(x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> Tensor:
    indptr, indices = (torch.from_numpy(np.asarray(array, np.int64)) for array in (x.indptr, x.indices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that CSR tensors are in beta state
        return torch.sparse_csr_tensor(indptr, indices, torch.from_numpy(x.data).to(dtype), size=x.shape).to(device)


def propagate_arrays(x: sp.csr_array, vectors: dict[str, np.ndarray], n_layers: int) -> dict[str, np.ndarray]:
    """Propagate NumPy arrays along the graph of the interactions x."""
    graph = InteractionGraph(x, n_layers, torch.device("cpu"), TORCH_DTYPES[vectors["users"].dtype.name])
    propagated = graph.propagate({name: torch.from_numpy(array) for name, array in vectors.items()})
    return {name: tensor.numpy() for name, tensor in propagated.items()}
