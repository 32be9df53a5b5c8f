"""Re-ranking stages: variety, calibration and rules for the end of a list.

Pass them in the order in which they apply, `model.recommend(users, rerank=[MMR(0.3), MaxPerTag(2)])`, or as specs on the
command line and as JSON over HTTP. Put rules last: a later stage may undo what an earlier one did.
"""

from gramian.core.registry import register
from gramian.core.reranking import Move as Move
from gramian.core.reranking import Reranker as Reranker
from gramian.rerank.calibration import Calibration as Calibration
from gramian.rerank.diversity import MMR as MMR
from gramian.rerank.popularity import PopularityPenalty as PopularityPenalty
from gramian.rerank.rules import MaxPerTag as MaxPerTag
from gramian.rerank.rules import ReservedSlots as ReservedSlots

for stage in (MMR, Calibration, PopularityPenalty, MaxPerTag, ReservedSlots):
    register(stage)
del stage
