# The public names of the package and their modules. `__init__.py` imports a module when one of its names is first used.

from gramian import errors as errors
from gramian import gradient as gradient
from gramian import rerank as rerank
from gramian import spark as spark
from gramian.core.gram import Gram as Gram
from gramian.core.missing import HistoryChange as HistoryChange
from gramian.core.missing import MissingExplanation as MissingExplanation
from gramian.core.recipe import equivalent as equivalent
from gramian.core.recommender import Recommender as Recommender
from gramian.core.recommender import load_model
from gramian.core.registry import MODELS as MODELS
from gramian.core.registry import register as register
from gramian.core.results import Explanation as Explanation
from gramian.core.results import Influence as Influence
from gramian.core.results import Recommendations as Recommendations
from gramian.data import datasets as datasets
from gramian.data import split as split
from gramian.data.catalog import Catalog as Catalog
from gramian.data.features import Features as Features
from gramian.data.interactions import Interactions as Interactions
from gramian.data.profile import Profile as Profile
from gramian.data.profile import describe as describe
from gramian.data.read import read as read
from gramian.data.split import Split as Split
from gramian.evaluation.breakdown import evaluate_by_popularity as evaluate_by_popularity
from gramian.evaluation.comparison import ModelComparison as ModelComparison
from gramian.evaluation.comparison import compare as compare
from gramian.evaluation.evaluate import evaluate as evaluate
from gramian.evaluation.leave_one_user_out import leave_one_user_out as leave_one_user_out
from gramian.evaluation.metrics import Metric as Metric
from gramian.evaluation.report import Report as Report
from gramian.models import *  # noqa: F403
from gramian.selection.auto import Selection as Selection
from gramian.selection.auto import auto as auto
from gramian.selection.retraining import Retraining as Retraining
from gramian.selection.retraining import retrain as retrain
from gramian.tuning.epoch_path import EpochPath as EpochPath
from gramian.tuning.epoch_path import epoch_path as epoch_path
from gramian.tuning.rank_path import RankPath as RankPath
from gramian.tuning.rank_path import rank_path as rank_path
from gramian.tuning.search import Search as Search
from gramian.tuning.search import tune as tune

load = load_model
__version__: str
