"""The encoder of every backbone."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from gramian.gradient.backbones import DGCF, GAT, MF, NGCF, SGL, Backbone, LightGCN, PinSage, SimpleX, YouTubeNet
from gramian.gradient.encoder import Encoder, LightGCNEncoder, TableEncoder
from gramian.gradient.graph import TORCH_DTYPES
from gramian.gradient.graph_encoders import DGCFEncoder, GATEncoder, NGCFEncoder, PinSageEncoder, SGLEncoder
from gramian.gradient.history_encoders import SimpleXEncoder, YouTubeNetEncoder

ENCODERS: dict[type[Backbone], type[Encoder]] = {
    MF: TableEncoder,
    LightGCN: LightGCNEncoder,
    SimpleX: SimpleXEncoder,
    YouTubeNet: YouTubeNetEncoder,
    NGCF: NGCFEncoder,
    SGL: SGLEncoder,
    PinSage: PinSageEncoder,
    GAT: GATEncoder,
    DGCF: DGCFEncoder,
}


def make_encoder(backbone: Backbone, x: sp.csr_array, device: torch.device, dtype: torch.dtype) -> Encoder:
    """The encoder of a backbone on these interactions."""
    return ENCODERS[type(backbone)](backbone, x, device, dtype)


def encode_arrays(backbone: Backbone, x: sp.csr_array, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The vectors of all users and items that are scored, of NumPy arrays."""
    encoder = make_encoder(backbone, x, torch.device("cpu"), TORCH_DTYPES[arrays["items"].dtype.name])
    users, items = encoder.encode({name: torch.from_numpy(arrays[name]) for name in backbone.tables}, None, None)
    return {"users": users.numpy(), "items": items.numpy()}
