"""The families of models that a selection tries, each with a starting point, axes to walk along, and what is swept for free.

A point of a family is a position on each axis. All recipes at a point share one fit: parameters that cost nothing once the
fit is done, such as the rank of a truncated decomposition, are swept there. The walk is a pattern search (Hooke and Jeeves
1961): one step along each axis in both directions, then half a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gramian.core.recipe import Recipe
from gramian.data.interactions import Interactions
from gramian.models.als import IALS
from gramian.models.autoencoders import DEQL, RDLAE
from gramian.models.bspm import BSPM
from gramian.models.chebycf import ChebyCF
from gramian.models.dan import DAN
from gramian.models.gfcf import GFCF
from gramian.models.low_rank import LowRankDLAE, LowRankEDLAE
from gramian.models.neighbours import ItemKNN, RP3beta
from gramian.models.popularity import Popularity
from gramian.models.rg import RG2
from gramian.models.sgfcf import SGFCF
from gramian.models.shrinkage import LRR, VLAE, RegularizedPCA
from gramian.models.slim import SLIM
from gramian.models.sparse_edlae import SparseEDLAE
from gramian.models.turbocf import TurboCF

Point = tuple[float, ...]  # the position on each axis, in steps from its start
FINEST_STEP = 0.5  # of an axis: half the first step


@dataclass(frozen=True)
class Axis:
    """The values of a numeric parameter: start · step^position, or start + step · position, within limits.

    Parameters
    ----------
    name
        The parameter.
    start, step
        The first value, and the factor or the difference between two values.
    low, high
        The limits.
    is_linear
        Whether steps are differences rather than factors.
    is_whole
        Whether the values are whole numbers.
    """

    name: str
    start: float
    step: float
    low: float
    high: float
    is_linear: bool = False
    is_whole: bool = False

    def value(self, position: float) -> float | None:
        """Return the value at a position; None beyond the limits."""
        value = self.start + self.step * position if self.is_linear else self.start * self.step**position
        if not self.low - 1e-9 <= value <= self.high * (1 + 1e-9):
            return None
        value = min(max(value, self.low), self.high)  # against rounding
        return round(value) if self.is_whole else float(f"{value:.3g}")


@dataclass(frozen=True)
class ModelFamily:
    """Models that are searched together.

    Parameters
    ----------
    name
        The name in tables.
    models
        The classes. All of them have the parameters of the axes, and share a fit at a point.
    axes
        The parameters that cost a fit.
    starts
        Positions that are tried first.
    swept
        Parameter → values that are swept at every point, beside the parameters that are declared free.
    is_dense
        Whether a fit solves for an items × items matrix, so that its time grows faster than the number of interactions.
    """

    name: str
    models: tuple[type[Recipe], ...]
    axes: tuple[Axis, ...] = ()
    starts: tuple[Point, ...] = ((),)
    swept: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    is_dense: bool = False

    def recipes(self, point: Point, events: Interactions) -> list[Recipe]:
        """Return all recipes at a point that make sense for the data; none beyond the limits of an axis."""
        values = [axis.value(position) for axis, position in zip(self.axes, point, strict=True)]
        if None in values:
            return []
        fixed = dict(zip((axis.name for axis in self.axes), values, strict=True))
        highest_rank = min(events.n_users, events.n_items)
        recipes = []
        for model in self.models:
            swept = {}
            for param in model.param_fields():
                if param.name in self.swept:
                    swept[param.name] = self.swept[param.name]
                elif param.metadata["free"] and param.name not in fixed:
                    swept[param.name] = param.metadata["tries"]
            for choice in product(*swept.values()):
                recipe = model(**fixed, **dict(zip(swept, choice, strict=True)))
                if recipe.params.get("rank", 1) <= highest_rank and not (recipe.needs_binary and not events.is_binary):
                    recipes.append(recipe)
        return recipes

    def neighbours(self, point: Point, step: float) -> Iterator[Point]:
        """Yield the points one step along each axis, in both directions."""
        for number in range(len(self.axes)):
            for sign in (1, -1):
                yield tuple(p + sign * step if k == number else p for k, p in enumerate(point))


DROPOUT = Axis("dropout", 0.3, 0.15, 0.0, 0.9, is_linear=True)
L2 = Axis("l2", 200.0, 3.0, 0.5, 100_000.0)
NEIGHBOURS = Axis("neighbours", 100, 2.0, 10, 1000, is_whole=True)
FILTER_RANK = Axis("rank", 128, 2.0, 8, 1024, is_whole=True)
RANKS = (16, 32, 64, 128, 256, 512)  # swept in one decomposition
L2S = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)

FAMILIES = (  # in the order in which they are tried: what is fast and usually good first, what is slow last
    ModelFamily("popularity", (Popularity,)),
    ModelFamily("autoencoder", (DEQL, RDLAE), (DROPOUT, L2), ((-2, 0), (0, 0)), {"zero_diagonal": (False,)}, is_dense=True),
    ModelFamily(
        "random walk",
        (RP3beta,),
        (
            NEIGHBOURS,
            Axis("alpha", 1.0, 0.2, 0.2, 2.0, is_linear=True),
            Axis("beta", 0.6, 0.2, 0.0, 1.2, is_linear=True),
        ),
        ((0, 0, 0), (0, 0, -2)),
    ),
    ModelFamily(
        "item neighbours", (ItemKNN,), (NEIGHBOURS,), ((0,),), {"similarity": ("cosine", "bm25"), "shrinkage": (0, 30)}
    ),
    ModelFamily(
        "iALS",
        (IALS,),
        (
            Axis("rank", 128, 2.0, 8, 512, is_whole=True),
            Axis("unobserved_weight", 0.3, 3.0, 1e-4, 3.0),
            Axis("l2", 0.01, 3.0, 1e-5, 1.0),
        ),
        ((-2, 0, 0), (0, 0, 0)),
        {"n_epochs": (8, 16)},
    ),
    ModelFamily(
        "graph filter",
        (GFCF, BSPM, ChebyCF),
        (FILTER_RANK,),
        ((0,),),
        {"sharpening": (1.0, 2.5), "item_power": (0.0, 0.2, 0.4)},
    ),
    ModelFamily("shrunk singular values", (LRR, RegularizedPCA, VLAE), (), ((),), {"rank": RANKS, "l2": L2S}),
    ModelFamily("RG²", (RG2,), (), ((),), {"rank": RANKS, "l2": (0.01, 0.03, 0.1, 0.2, 0.3, 0.5)}),
    ModelFamily(
        "normalised autoencoder",
        (DAN,),
        (DROPOUT, L2, Axis("user_power", 0.2, 0.1, 0.0, 0.6, is_linear=True)),
        ((0, 0, 0), (0, -3, 0)),
        is_dense=True,
    ),
    ModelFamily(
        "linear graph filter",
        (TurboCF,),
        (Axis("user_power", 0.5, 0.1, 0.1, 0.9, is_linear=True),),
        ((0,),),
        {"power": (1.0,), "order": (1, 2)},
    ),
    ModelFamily(
        "sharpened graph filter",
        (SGFCF,),
        (FILTER_RANK, Axis("power", 0.5, 0.1, 0.1, 0.5, is_linear=True)),
        ((0, 0),),
        {"sharpness": (0.75, 1.5), "high_pass": (0, 0.5), "offset": (10,)},
    ),
    ModelFamily("low-rank autoencoder", (LowRankDLAE, LowRankEDLAE), (DROPOUT, L2), ((0, 0),), {"rank": RANKS}, is_dense=True),
    ModelFamily("sparse autoencoder", (SparseEDLAE,), (DROPOUT, L2, NEIGHBOURS), ((0, 0, 0), (2, -1, 0))),
    ModelFamily("SLIM", (SLIM,), (Axis("l1", 10.0, 3.0, 0.01, 1000.0), L2), ((0, 0),), is_dense=True),
)
