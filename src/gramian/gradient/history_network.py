"""Models whose users are functions of their histories, as networks that serve without PyTorch."""

from __future__ import annotations

import numpy as np

from gramian.data.interactions import Interactions
from gramian.gradient.backbones import Backbone, SimpleX, scoring_rows
from gramian.gradient.scorers import Network, history_keys


def history_network(backbone: Backbone, arrays: dict[str, np.ndarray], events: Interactions) -> Network:
    """The network that computes the scores of a trained backbone from a history."""
    items = arrays["items"]
    activations: tuple[str, ...]
    output = scoring_rows(items, "cosine", "item") if backbone.cosine else items
    layers = {"output": output, "output_bias": np.zeros(len(items), items.dtype)}
    activations = ("relu", "none")
    if isinstance(backbone, SimpleX):
        own, activations = items.dtype.type(backbone.own_weight), ("none",)
        layers |= {"weight0": (1 - own) * items @ arrays["history_weight"], "bias0": np.zeros(backbone.rank, items.dtype)}
        layers |= {"users": own * arrays["users"], "keys": history_keys(events.matrix)}
    else:
        layers |= {name: arrays[name] for name in ("bias0", "weight1", "bias1")}
        layers["weight0"] = arrays["inputs"] @ arrays["weight0"]
    return Network(activations, 1.0, layers, is_cosine=backbone.cosine)
