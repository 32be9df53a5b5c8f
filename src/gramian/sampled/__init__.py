"""Models trained by gradients, in PyTorch (the extra `gramian[torch]`). Recipes, and models once trained, do without it."""

from gramian.models.recipe import Recipe
from gramian.sampled.autoencoders import CDAE as CDAE
from gramian.sampled.autoencoders import MultDAE as MultDAE
from gramian.sampled.autoencoders import MultVAE as MultVAE
from gramian.sampled.backbones import MF as MF
from gramian.sampled.backbones import LightGCN as LightGCN
from gramian.sampled.factor_model import FactorModel as FactorModel
from gramian.sampled.losses import BCE as BCE
from gramian.sampled.losses import BPR as BPR
from gramian.sampled.losses import CCL as CCL
from gramian.sampled.losses import MINE as MINE
from gramian.sampled.losses import MSE as MSE
from gramian.sampled.losses import SML as SML
from gramian.sampled.losses import UIB as UIB
from gramian.sampled.losses import Debias as Debias
from gramian.sampled.losses import InfoNCE as InfoNCE
from gramian.sampled.losses import MINEPlus as MINEPlus
from gramian.sampled.losses import RG2Loss as RG2Loss
from gramian.sampled.losses import SampledSoftmax as SampledSoftmax
from gramian.sampled.losses import Softmax as Softmax
from gramian.sampled.losses import Sparsemax as Sparsemax
from gramian.sampled.negatives import ByPopularity as ByPopularity
from gramian.sampled.negatives import Everything as Everything
from gramian.sampled.negatives import InBatch as InBatch
from gramian.sampled.negatives import Uniform as Uniform
from gramian.sampled.scorers import Network, TrainedVectors

MODELS: dict[str, type[Recipe]] = {m.__name__: m for m in (FactorModel, CDAE, MultDAE, MultVAE)}
SCORERS = {s.name: s for s in (TrainedVectors, Network)}
