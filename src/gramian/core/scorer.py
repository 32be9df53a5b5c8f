"""Scorers: the fitted arrays of a model, on column numbers. The Recommender translates ids.

A scorer must return scores and save itself. It has a further capability if it has the methods of that protocol:

    SupportsExplanations   contributions(history, values, item)
    SupportsSimilarity     similar(item)
    SupportsWeights        weights()
    SupportsFactors        factors(), user_vectors(histories)
    ExplainsKinds          kinds, contributions_by_kind(history, values, item)
    EncodesHistories       encode_events(events), encode_history(history, items), decode_values(values)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import scipy.sparse as sp

from gramian.core.registry import SCORERS
from gramian.data.interactions import Interactions
from gramian.errors import NotSupported

USERS_PER_BLOCK = 16_384  # scored at once: enough to share the packing of weights, few enough to bound the memory
Panels = Iterator[tuple[int, np.ndarray]]
VisitPanel = Callable[[np.ndarray, int, int | None], None]
SavedScorer = tuple[dict[str, Any], dict[str, np.ndarray]]  # facts for JSON, and arrays


class Scorer(ABC):
    """Base class of all scorers. `name` identifies the class in a model folder."""

    registry = SCORERS
    name: ClassVar[str]

    @property
    @abstractmethod
    def n_items(self) -> int:
        """The number of items."""

    @property
    def users_per_block(self) -> int:
        """How many histories `panels` is passed at once. Fewer where the scores of all items are computed together."""
        return USERS_PER_BLOCK

    @abstractmethod
    def panels(self, histories: sp.csr_array) -> Panels:
        """Yield the scores of all items for these histories, a few columns at a time: (first column, users × columns).

        A panel may be overwritten by the caller, and its memory may be reused for the next one.
        """

    def visit_panels(self, histories: sp.csr_array, visit: VisitPanel) -> None:
        """Call visit(panel, first column, first user) with all scores; the user is None where the panel is of all users.

        A scorer may call it from several threads at once, with different ranges of users, but not for the same user.
        """
        for first, panel in self.panels(histories):
            visit(panel, first, None)

    def compact(self) -> Scorer:
        """Return the scorer in the form that a folder holds, where memory may hold another."""
        return self

    @abstractmethod
    def save(self) -> SavedScorer:
        """Return the facts and arrays from which `load` restores the scorer."""

    @staticmethod
    @abstractmethod
    def load(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Scorer:
        """Restore a scorer. The content is not trusted: check everything that scoring relies on.

        Only that floating-point arrays are finite is known: `load_model` has checked it.
        """

    @property
    def capabilities(self) -> frozenset[type]:
        """The capabilities this scorer has, as protocol classes."""
        return frozenset(capability for capability in CAPABILITIES if isinstance(self, capability))


@runtime_checkable
class EncodesHistories(Protocol):
    """Takes histories in values of its own, such as the kinds of events of an item, or how long ago it was."""

    def encode_events(self, events: Interactions) -> Interactions:
        """Return interactions with the values that `panels` takes."""
        ...

    def encode_history(self, history: Any, items: list[Any]) -> Iterable[float]:
        """Return the value of each item of a history: a list of items, oldest first, or a mapping from items."""
        ...

    def decode_values(self, values: np.ndarray) -> list[Any]:
        """Return values as a mapping of `encode_history` has them."""
        ...


@runtime_checkable
class ExplainsKinds(Protocol):
    """Scores are sums over the history and over kinds of events."""

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The names of the kinds; None if there is one."""
        ...

    def contributions_by_kind(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """Return what each kind of event of each history column adds to the score of an item: columns × kinds."""
        ...


@runtime_checkable
class SupportsExplanations(Protocol):
    """Scores are sums over the history."""

    def contributions(self, history: np.ndarray, values: np.ndarray, item: int) -> np.ndarray:
        """Return what each history column adds to the score of an item; the sum is the score."""
        ...


@runtime_checkable
class SupportsSimilarity(Protocol):
    """Items can be compared with each other."""

    def similar(self, item: int) -> np.ndarray:
        """Return the similarity of every item to this one."""
        ...


@runtime_checkable
class ComparesLists(SupportsSimilarity, Protocol):
    """Similarities of few items, faster than by the rows of `similar`."""

    def similarities(self, lists: np.ndarray) -> np.ndarray:
        """Return the similarity of all pairs of columns in each list, lists × depth × depth; any value where one is −1."""
        ...


@runtime_checkable
class SupportsWeights(Protocol):
    """An item-item model: scores = history · W."""

    def weights(self) -> np.ndarray:
        """Return the dense n × n W."""
        ...


@runtime_checkable
class SupportsFactors(Protocol):
    """A low-rank or factor model."""

    def factors(self) -> dict[str, np.ndarray]:
        """Return the vectors of items: encoder and decoder, or one vector each."""
        ...

    def user_vectors(self, histories: sp.csr_array) -> np.ndarray:
        """Return the vectors of users with these histories."""
        ...


CAPABILITIES: dict[type, str] = {  # capability → the models that have it, as an error message names them
    SupportsExplanations: "a model whose scores are sums over the history",
    SupportsSimilarity: "a model that relates items to each other",
    SupportsWeights: "an item-item model",
    SupportsFactors: "a low-rank or factor model",
}
EXAMPLES = {
    SupportsExplanations: "Fit EASE or IALS, say",
    SupportsSimilarity: "Fit EASE, say",
    SupportsWeights: "Fit EASE, say, or use factors() of a factor model",
    SupportsFactors: "Fit LRR or IALS, say, or use weights() of an item-item model",
}
Capability = TypeVar("Capability")


def require_capability(scorer: Scorer, capability: type[Capability], model: object) -> Capability:
    """Return the scorer typed by a capability that it has, or raise `NotSupported`."""
    if capability not in scorer.capabilities:
        raise NotSupported(CAPABILITIES[capability], str(model), EXAMPLES[capability])
    return scorer  # type: ignore[return-value]


def compare_items(scorer: Scorer, lists: np.ndarray) -> np.ndarray:
    """Return the similarity of all pairs of columns in each list, lists × depth × depth; any value where one is −1."""
    similar = require_capability(scorer, SupportsSimilarity, f"the scorer {scorer.name!r}").similar
    if isinstance(scorer, ComparesLists):
        return scorer.similarities(lists)
    columns, places = np.unique(np.maximum(lists, 0), return_inverse=True)
    matrix = np.array([similar(column)[columns] for column in columns.tolist()], np.float32).reshape(len(columns), -1)
    places = places.reshape(lists.shape)
    return matrix[places[:, :, None], places[:, None, :]]


def align_panels(streams: Sequence[Panels]) -> Iterator[tuple[int, list[np.ndarray]]]:
    """Cut the panels of several scorers, whose widths may differ, at common columns: yield (first column, one panel each)."""
    current = [next(stream, None) for stream in streams]
    first = 0
    while all(panel is not None for panel in current):
        known = [panel for panel in current if panel is not None]
        last = min(start + panel.shape[1] for start, panel in known)
        yield first, [panel[:, first - start : last - start] for start, panel in known]
        current = [
            next(stream, None) if start + panel.shape[1] == last else (start, panel)
            for stream, (start, panel) in zip(streams, known, strict=True)
        ]
        first = last
