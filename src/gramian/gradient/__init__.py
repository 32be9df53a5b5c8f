"""Models trained by gradients, with PyTorch (the extra `gramian[torch]`).

Only training needs PyTorch: recipes are defined, and fitted models loaded and served, without it.
"""

from gramian.core.registry import register
from gramian.gradient.autoencoders import CDAE as CDAE
from gramian.gradient.autoencoders import MultDAE as MultDAE
from gramian.gradient.autoencoders import MultVAE as MultVAE
from gramian.gradient.backbones import DGCF as DGCF
from gramian.gradient.backbones import GAT as GAT
from gramian.gradient.backbones import MF as MF
from gramian.gradient.backbones import NGCF as NGCF
from gramian.gradient.backbones import SGL as SGL
from gramian.gradient.backbones import LightGCN as LightGCN
from gramian.gradient.backbones import PinSage as PinSage
from gramian.gradient.backbones import SimpleX as SimpleX
from gramian.gradient.backbones import YouTubeNet as YouTubeNet
from gramian.gradient.cml import CML as CML
from gramian.gradient.debiasing import Debias as Debias
from gramian.gradient.factor_model import FactorModel as FactorModel
from gramian.gradient.gradient_recipe import Training as Training
from gramian.gradient.losses import BCE as BCE
from gramian.gradient.losses import BPR as BPR
from gramian.gradient.losses import CCL as CCL
from gramian.gradient.losses import MINE as MINE
from gramian.gradient.losses import MSE as MSE
from gramian.gradient.losses import SML as SML
from gramian.gradient.losses import UIB as UIB
from gramian.gradient.losses import InfoNCE as InfoNCE
from gramian.gradient.losses import MeanDifference as MeanDifference
from gramian.gradient.losses import MINEPlus as MINEPlus
from gramian.gradient.losses import RG2Loss as RG2Loss
from gramian.gradient.losses import SampledSoftmax as SampledSoftmax
from gramian.gradient.losses import Softmax as Softmax
from gramian.gradient.losses import Sparsemax as Sparsemax
from gramian.gradient.neumf import NeuMF as NeuMF
from gramian.gradient.neumf_scorer import NeuralFactors as _NeuralFactors
from gramian.gradient.samplers import ByPopularity as ByPopularity
from gramian.gradient.samplers import Everything as Everything
from gramian.gradient.samplers import InBatch as InBatch
from gramian.gradient.samplers import Uniform as Uniform
from gramian.gradient.scorers import Network as _Network
from gramian.gradient.scorers import TrainedVectors as _TrainedVectors

for entry in (FactorModel, CDAE, MultDAE, MultVAE, NeuMF, _TrainedVectors, _Network, _NeuralFactors):
    register(entry)
del entry
