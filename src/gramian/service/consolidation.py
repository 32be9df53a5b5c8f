"""Subtracts the deferred updates of a served item-item model from its matrix, while the model answers requests.

An update of the model keeps its thin factors beside the matrix (`linalg/updated.py`), so that it is served at once. Each of
them makes every list a little slower. So a thread makes a new matrix without them, in the memory of the version before, and
leaves the processor to requests. Updates that arrive meanwhile stay beside the new matrix.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from numba import set_num_threads

from gramian.core.recommender import Recommender
from gramian.errors import NotEnoughMemory
from gramian.linalg.memory import available_bytes
from gramian.linalg.recycled import RecycledMemory, allocate_from
from gramian.linalg.symmetric import Symmetric
from gramian.linalg.updated import UpdatedSymmetric
from gramian.models.scorers import InverseWeights
from gramian.service import SERVICE_LOG
from gramian.service.model_saver import RETRY_SECONDS, lower_priority


class Consolidation:
    """The thread that subtracts the updates of one model.

    Parameters
    ----------
    name
        The name of the model.
    memory
        Where the new matrix is made.
    """

    def __init__(self, name: str, memory: RecycledMemory) -> None:
        self.name, self.memory = name, memory
        self.thread = threading.Thread()
        self.source: UpdatedSymmetric | None = None  # what is subtracted
        self.matrix: Symmetric | None = None  # the new matrix, once it is ready
        self.failed_at = float("-inf")

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work."""
        return self.thread.is_alive()

    def reserve(self, model: Recommender) -> None:
        """Start to get the memory for the first new matrix: the system clears it, which takes seconds."""
        scorer = model.scorer
        if isinstance(scorer, InverseWeights) and scorer.inverse.is_full and scorer.full_bytes <= available_bytes() / 2:
            self.thread = threading.Thread(target=self._reserve, args=(scorer.inverse,), name=f"memory of {self.name}")
            self.thread.start()

    def _reserve(self, inverse: Symmetric) -> None:
        lower_priority()
        with allocate_from(self.memory), suppress(NotEnoughMemory):
            Symmetric.empty(inverse.n, inverse.dtype.type, inverse.width).buffer[:] = 0  # and dropped: it is spare then

    def begin(self, model: Recommender) -> None:
        """Start to subtract the updates of a model, if it has any and the thread is idle."""
        scorer = model.scorer
        if self.is_running or self.matrix is not None or time.monotonic() - self.failed_at < RETRY_SECONDS:
            return
        if isinstance(scorer, InverseWeights) and isinstance(scorer.inverse, UpdatedSymmetric) and scorer.inverse.rank:
            self.source = scorer.inverse
            self.thread = threading.Thread(target=self._subtract, args=(self.source,), name=f"consolidation of {self.name}")
            self.thread.start()

    def _subtract(self, source: UpdatedSymmetric) -> None:
        lower_priority()
        set_num_threads(1)
        try:
            with allocate_from(self.memory):
                self.matrix = source.subtracted()
        except Exception:  # the updates stay beside the matrix
            SERVICE_LOG.exception("the updates of %s cannot be consolidated; trying again in %g s", self.name, RETRY_SECONDS)
            self.source, self.failed_at = None, time.monotonic()

    def apply(self, model: Recommender) -> Recommender | None:
        """Return the model on the new matrix, with the updates that are not in it; None if it is not ready, or of another
        matrix than the model's."""
        if self.is_running or self.matrix is None or self.source is None:
            return None
        source, matrix, scorer = self.source, self.matrix, model.scorer
        self.source = self.matrix = None
        if not (isinstance(scorer, InverseWeights) and isinstance(scorer.inverse, UpdatedSymmetric)):
            return None
        if scorer.inverse.base is not source.base:
            return None
        return model.with_scorer(InverseWeights(scorer.inverse.rebased(matrix, source.rank), scorer.factor, scorer.diagonal))

    def finish(self) -> None:
        """Wait for the thread."""
        if self.is_running:
            self.thread.join()
