"""Gramian: linear recommenders from implicit feedback. One Gram matrix, every model."""

from importlib import import_module as _import_module
from importlib.metadata import version

from gramian import errors as errors
from gramian.data import datasets as datasets
from gramian.data import split as split
from gramian.data.interactions import Interactions as Interactions
from gramian.data.read import read as read
from gramian.data.split import Split as Split
from gramian.evaluation.evaluate import Report as Report
from gramian.evaluation.evaluate import evaluate as evaluate
from gramian.evaluation.leave_one_out import leave_one_user_out as leave_one_user_out
from gramian.linalg.gram import Gram as Gram
from gramian.models import MODELS as MODELS
from gramian.models import load as load
from gramian.models.als import IALS as IALS
from gramian.models.als import WRMF as WRMF
from gramian.models.als import DebiasedIALS as DebiasedIALS
from gramian.models.autoencoders import DEQL as DEQL
from gramian.models.autoencoders import DLAE as DLAE
from gramian.models.autoencoders import EASE as EASE
from gramian.models.autoencoders import EDLAE as EDLAE
from gramian.models.autoencoders import DebiasedEASE as DebiasedEASE
from gramian.models.low_rank import ADMMEDLAE as ADMMEDLAE
from gramian.models.low_rank import LRR as LRR
from gramian.models.low_rank import VLAE as VLAE
from gramian.models.low_rank import WLAE as WLAE
from gramian.models.low_rank import DropoutMF as DropoutMF
from gramian.models.low_rank import LowRankDLAE as LowRankDLAE
from gramian.models.low_rank import LowRankEDLAE as LowRankEDLAE
from gramian.models.low_rank import NuclearNormMF as NuclearNormMF
from gramian.models.low_rank import RegularizedPCA as RegularizedPCA
from gramian.models.newton import RG2NewtonCG as RG2NewtonCG
from gramian.models.popularity import Popularity as Popularity
from gramian.models.recipe import equivalent as equivalent
from gramian.models.rg import RG2 as RG2
from gramian.models.rg import RG2ALS as RG2ALS
from gramian.models.rg import RGX as RGX
from gramian.models.slim import SLIM as SLIM
from gramian.models.solvers import Cholesky as Cholesky
from gramian.models.solvers import ConjugateGradient as ConjugateGradient
from gramian.models.solvers import Subspace as Subspace
from gramian.recommender import Explanation as Explanation
from gramian.recommender import Recommendations as Recommendations
from gramian.recommender import Recommender as Recommender
from gramian.tuning.epoch_path import EpochPath as EpochPath
from gramian.tuning.epoch_path import epoch_path as epoch_path
from gramian.tuning.rank_path import RankPath as RankPath
from gramian.tuning.rank_path import rank_path as rank_path
from gramian.tuning.search import Search as Search
from gramian.tuning.search import tune as tune

__version__ = version("gramian")


def __getattr__(name: str) -> object:
    """The optional wings, when they are first asked for."""
    if name in ("sampled", "spark"):
        try:
            return _import_module(f"gramian.{name}")
        except ModuleNotFoundError as error:
            if error.name not in ("pyspark", "pyarrow"):
                raise
            raise errors.NotSupported("PySpark, to work on a cluster", "no such package", "Install gramian[spark]") from None
    raise AttributeError(f"module 'gramian' has no attribute {name!r}")
