"""All models that need no PyTorch, and the scorers they are fitted to. A new model is one import and one line of the table."""

from gramian.core.registry import register
from gramian.models import factors as _factors
from gramian.models import feature_ials as _feature_ials
from gramian.models import graph_filter as _graph_filter
from gramian.models import multi_behavior as _multi_behavior
from gramian.models import scorers as _scorers
from gramian.models import sequence as _sequence
from gramian.models import sgfcf as _sgfcf
from gramian.models.add_ease import AddEASE as AddEASE
from gramian.models.als import IALS as IALS
from gramian.models.als import WRMF as WRMF
from gramian.models.als import DebiasedIALS as DebiasedIALS
from gramian.models.autoencoders import DEQL as DEQL
from gramian.models.autoencoders import DLAE as DLAE
from gramian.models.autoencoders import EASE as EASE
from gramian.models.autoencoders import EDLAE as EDLAE
from gramian.models.autoencoders import RDLAE as RDLAE
from gramian.models.autoencoders import DebiasedEASE as DebiasedEASE
from gramian.models.blend import Blend as Blend
from gramian.models.bspm import BSPM as BSPM
from gramian.models.cease import CEASE as CEASE
from gramian.models.chebycf import ChebyCF as ChebyCF
from gramian.models.dan import DAN as DAN
from gramian.models.expected_loss import DecoupledAutoencoder as DecoupledAutoencoder
from gramian.models.expected_loss import LowRankRegression as LowRankRegression
from gramian.models.feature_ials import FeatureIALS as FeatureIALS
from gramian.models.gfcf import GFCF as GFCF
from gramian.models.l3ae import L3AE as L3AE
from gramian.models.low_rank import LowRankDLAE as LowRankDLAE
from gramian.models.low_rank import LowRankEDLAE as LowRankEDLAE
from gramian.models.low_rank_edlae import ADMMEDLAE as ADMMEDLAE
from gramian.models.low_rank_edlae import ALSEDLAE as ALSEDLAE
from gramian.models.low_rank_edlae import PrintedUpdates as PrintedUpdates
from gramian.models.low_rank_edlae import SteckUpdates as SteckUpdates
from gramian.models.multi_behavior import MultiBehaviorEASE as MultiBehaviorEASE
from gramian.models.neighbours import ItemKNN as ItemKNN
from gramian.models.neighbours import RP3beta as RP3beta
from gramian.models.newton import RG2NewtonCG as RG2NewtonCG
from gramian.models.popularity import Popularity as Popularity
from gramian.models.rg import RG2 as RG2
from gramian.models.rg import RG2ALS as RG2ALS
from gramian.models.rg import RGX as RGX
from gramian.models.sequence import SLIST as SLIST
from gramian.models.sequence import TALE as TALE
from gramian.models.sgfcf import SGFCF as SGFCF
from gramian.models.shrinkage import LRR as LRR
from gramian.models.shrinkage import VLAE as VLAE
from gramian.models.shrinkage import WLAE as WLAE
from gramian.models.shrinkage import DropoutMF as DropoutMF
from gramian.models.shrinkage import NuclearNormMF as NuclearNormMF
from gramian.models.shrinkage import RegularizedPCA as RegularizedPCA
from gramian.models.slim import SLIM as SLIM
from gramian.models.solvers import Cholesky as Cholesky
from gramian.models.solvers import ConjugateGradient as ConjugateGradient
from gramian.models.solvers import Subspace as Subspace
from gramian.models.sparse_edlae import SparseEDLAE as SparseEDLAE
from gramian.models.svdae import SVDAE as SVDAE
from gramian.models.turbocf import TurboCF as TurboCF

for model in (
    Popularity,
    *(EASE, DLAE, EDLAE, DEQL, RDLAE, DebiasedEASE, DAN),  # full rank
    *(LRR, LowRankDLAE, LowRankEDLAE, ADMMEDLAE, ALSEDLAE, RegularizedPCA, DropoutMF, WLAE, VLAE, NuclearNormMF),  # low rank
    *(SLIM, SparseEDLAE, ItemKNN, RP3beta),  # sparse
    *(IALS, WRMF, DebiasedIALS, RG2, RG2ALS, RGX, RG2NewtonCG),  # factor models
    *(GFCF, ChebyCF, BSPM, TurboCF, SGFCF, SVDAE),  # graph filters
    *(CEASE, AddEASE, L3AE, FeatureIALS),  # with features of the items
    *(MultiBehaviorEASE, SLIST, TALE),  # kinds of events, sequences
    Blend,
):
    register(model)
for scorer in (
    *(_scorers.InverseWeights, _scorers.SymmetricWeights, _scorers.LowRankWeights, _scorers.SparseWeights),
    *(_factors.Factors, _feature_ials.FeatureFactors, _scorers.GlobalScores, _scorers.ScorerSum),
    *(_graph_filter.PolynomialFilter, _sgfcf.ShareOfTotal),
    *(_multi_behavior.KindWeights, _sequence.SequenceWeights),
):
    register(scorer)
del model, scorer
