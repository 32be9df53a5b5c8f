"""The models by name, and the kinds of fitted result by name: the tables that saving, loading and the command line read."""

from importlib import import_module
from pathlib import Path

from gramian.models.als import IALS, WRMF, DebiasedIALS
from gramian.models.autoencoders import DEQL, DLAE, EASE, EDLAE, DebiasedEASE
from gramian.models.factors import Factors
from gramian.models.low_rank import (
    ADMMEDLAE,
    LRR,
    VLAE,
    WLAE,
    DropoutMF,
    LowRankDLAE,
    LowRankEDLAE,
    NuclearNormMF,
    RegularizedPCA,
)
from gramian.models.newton import RG2NewtonCG
from gramian.models.popularity import Popularity
from gramian.models.recipe import Recipe
from gramian.models.rg import RG2, RG2ALS, RGX
from gramian.models.scorers import ItemWeights, LowRank, SameForAll, SparseWeights
from gramian.models.slim import SLIM
from gramian.recommender import Recommender, loaded

FULL_RANK = (EASE, DLAE, EDLAE, DEQL, DebiasedEASE)
LOW_RANK = (LRR, LowRankDLAE, LowRankEDLAE, ADMMEDLAE, RegularizedPCA, DropoutMF, WLAE, VLAE, NuclearNormMF)
FACTOR = (IALS, WRMF, DebiasedIALS, RG2, RG2ALS, RGX, RG2NewtonCG)
MODELS: dict[str, type[Recipe]] = {m.__name__: m for m in (Popularity, *FULL_RANK, *LOW_RANK, SLIM, *FACTOR)}
SCORERS = {s.name: s for s in (ItemWeights, LowRank, SparseWeights, Factors, SameForAll)}


def load(path: str | Path) -> Recommender:
    """A model saved by `model.save`, after its checksums were verified. Nothing in the folder can run."""
    wing = import_module("gramian.sampled")  # whose recipes and fitted results need no PyTorch
    return loaded(path, MODELS | wing.MODELS, SCORERS | wing.SCORERS)
