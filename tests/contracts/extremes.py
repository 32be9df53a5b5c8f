"""Random fits at numeric extremes: weights from 1e-38 to 1e38, degenerate matrices, parameters at the ends of their ranges.

A case must end in finite scores or in an error of the library, never in an exception of NumPy, a warning of NumPy or a score
that is not finite. test_numeric_extremes.py runs a few cases of each model; benchmarks/numeric_extremes.py runs many.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

import gramian as gr
from contracts.samples import small
from gramian.core.params import Configurable
from gramian.errors import GramianError, HeavyTailWarning, PoorFitWarning, PrecisionWarning

MAGNITUDES = (1e-38, 1e-30, 1e-15, 1e-6, 1e6, 1e15, 1e30, 1e38)
SIZES = ("n_epochs", "steps", "hidden", "seed", "batch_size", "halve_after", "warm_up")  # that cost time and no digits
EXPECTED_WARNINGS = (PrecisionWarning, PoorFitWarning, HeavyTailWarning)


def draw_matrix(rng: np.random.Generator) -> np.ndarray:
    """A small 0/1 matrix: random, of identical users, of one user, full, of two separate groups, or with an empty row."""
    shape = int(rng.integers(1, 40)), int(rng.integers(2, 40))
    x = (rng.random(shape) < rng.uniform(0.05, 0.6)).astype(float)
    match rng.integers(8):
        case 0:
            x[:] = x[0]
        case 1:
            x = x[:1]
        case 2:
            x[:] = 1
        case 3:
            x[: shape[0] // 2, : shape[1] // 2] = x[shape[0] // 2 :, shape[1] // 2 :] = 0
        case 4:
            x[0] = 0
    x[0, 0] = 1
    return x


def draw_weights(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Give the entries weights: often 1, else of one extreme magnitude or of all magnitudes between 1e-15 and 1e15."""
    kind = rng.integers(4)
    if kind < 2:
        return x
    if kind == 2:
        return x * rng.choice(MAGNITUDES) * rng.uniform(0.5, 2, x.shape)
    return x * 10.0 ** rng.uniform(-15, 15, x.shape)


def draw_features(rng: np.random.Generator, events: gr.Interactions) -> gr.Features:
    """Random vectors, of one magnitude, as features of the items: some are 0, and some are repeated."""
    vectors = rng.standard_normal((events.n_items, 3)) * (rng.random((events.n_items, 1)) < 0.9)
    return gr.Features.of(vectors * float(rng.choice(MAGNITUDES)), items=events.items.tolist())


def draw_value(rng: np.random.Generator, field: Any, value: Any) -> Any:
    """A parameter's value at or near an end of its range, or far out; its default if it is not a number."""
    if isinstance(value, bool | str | tuple | Configurable) or value is None or field.name in SIZES:
        return value
    low, below = field.metadata["at_least"], field.metadata["below"]
    if isinstance(value, int):
        return int(rng.choice([max(low, 1), 2, 5, 40]))
    ends = [low if low > -inf else -1e6, max(low, 0) + 1e-9, 1e-3, 0.5, 1e3, 1e9, 1e30, 0.999999]
    allowed = [end for end in ends if low <= end < below]
    return float(rng.choice(allowed))


def draw_recipe(rng: np.random.Generator, model: type[Configurable]) -> Configurable:
    """A recipe with some parameters at extremes."""
    recipe: Any = small(model)
    changed = [f for f in model.param_fields() if rng.random() < 0.2]
    return replace(recipe, **{f.name: draw_value(rng, f, recipe.params[f.name]) for f in changed})


def run_case(model: type[Configurable], seed: int) -> str:
    """Fit and score one case. Returns "refused" or "finite"; raises AssertionError where neither is true."""
    rng = np.random.default_rng([seed, sum(model.__name__.encode())])
    weighted = draw_weights(rng, draw_matrix(rng))
    dtype = rng.choice(["float32", "float32", "float64"])
    recipe: Any = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for expected in EXPECTED_WARNINGS:
            warnings.simplefilter("ignore", expected)
        try:
            events = gr.Interactions.of(weighted)
            events = replace(events, times=np.arange(events.n_interactions))
            events = events.with_features(draw_features(rng, events))
            recipe = draw_recipe(rng, model)
            fitted = recipe.fit(events, dtype=str(dtype))
            assert np.isfinite(fitted.scores(events)).all()
            history = {item: float(rng.choice(MAGNITUDES)) for item in fitted.items[:5]}
            lists = fitted.recommend_for([history], k=5)
            assert np.isfinite(lists.scores[0]).all()
        except GramianError:
            return "refused"
        except Exception as error:
            raise AssertionError(f"{model.__name__}, seed {seed}: {recipe} on {weighted.shape}: {error!r}") from error
    return "finite"
