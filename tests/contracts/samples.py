"""What the contract tests need of every registered model: small parameters and small data that suit all of them."""

from dataclasses import replace
from functools import cache

import numpy as np

import gramian as gr
from gramian.core.params import Configurable
from gramian.data.synthetic import clustered

EVENTS = clustered(120, 60, 2_400, n_tastes=5).with_titles({item: f"Title {item}" for item in range(60)})
EVENTS = replace(EVENTS, times=np.random.default_rng(0).permutation(EVENTS.n_interactions))
EVENTS = EVENTS.with_tags({item: ["even" if item % 2 == 0 else "odd"] for item in range(60)})
EVENTS = EVENTS.with_features(gr.Features.of_catalog(EVENTS.catalog))
SMALL = {"rank": 6, "n_epochs": 2, "hidden": 16, "batch_size": 64}
OTHERS = {"l2": {"RG2": 0.05, "RG2ALS": 0.05, "RGX": 0.05, "RG2NewtonCG": 0.05, "RegularizedPCA": 1.0, "NuclearNormMF": 2.0}}


def small(model: type[Configurable]) -> Configurable:
    """A recipe of the model that fits the small data quickly."""
    recipe = model()
    names = {f.name for f in model.param_fields()}
    changes = {name: value for name, value in SMALL.items() if name in names}
    changes |= {name: by_model[model.__name__] for name, by_model in OTHERS.items() if model.__name__ in by_model}
    nested = {name: shrink(value) for name, value in recipe.params.items() if isinstance(value, Configurable)}
    return replace(recipe, **changes, **nested)


def shrink(part: Configurable) -> Configurable:
    limits = {"rank": 6, "n_negatives": 8}
    changes = {name: limits[name] for name in limits if name in part.params}
    nested = {name: shrink(value) for name, value in part.params.items() if isinstance(value, Configurable)}
    return replace(part, **changes, **nested)


@cache
def fitted(model: type[Configurable]) -> gr.Recommender:
    """The model fitted to the small data, once for all contract tests."""
    return small(model).fit(EVENTS)


def models() -> list[type[gr.Recommender]]:
    """Every registered model."""
    return list(gr.MODELS.values())
