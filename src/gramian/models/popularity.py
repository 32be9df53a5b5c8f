"""The baseline everything must beat."""

from dataclasses import dataclass

from gramian.data.interactions import Interactions
from gramian.models.recipe import Recipe
from gramian.models.scorers import SameForAll


@dataclass(frozen=True)
class Popularity(Recipe):
    """The items most users touched, for everybody (minus what they have seen)."""

    def scorer(self, events: Interactions, dtype: type) -> SameForAll:
        return SameForAll(events.popularity)

    def updated(self, scorer: SameForAll, after: Interactions, change: Interactions, sign: int) -> SameForAll:
        return SameForAll(after.popularity)
