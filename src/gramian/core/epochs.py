"""Recipes that are trained epoch by epoch: a generator, over which progress, early stopping and checkpoints are plain loops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np

from gramian.core.fit_check import require_convergence
from gramian.core.recipe import Counts, Recipe, require_rank
from gramian.core.recommender import Recommender
from gramian.core.scorer import Scorer
from gramian.data.interactions import Interactions
from gramian.errors import InvalidInput
from gramian.io.checkpoints import Checkpoint, load_latest_checkpoint, save_checkpoint
from gramian.linalg.memory import require_memory
from gramian.linalg.resumable import lock_folder
from gramian.linalg.symmetric import parse_dtype
from gramian.linalg.threads import limit_threads
from gramian.progress import progress_bar
from gramian.validation import require_instance

Key = dict[str, Any]  # identifies a training in its scratch folder


@dataclass(frozen=True)
class TrainingState:
    """Everything a training needs to continue.

    Parameters
    ----------
    arrays
        The vectors of users and items, and whatever else the training keeps, such as an optimizer's moments.
    objective
        The loss with its penalties on the training data.
    facts
        A few numbers, such as the learning rate.
    validation_score
        The validation score of the last epoch, if the caller sent one.
    """

    arrays: dict[str, np.ndarray]
    objective: float = float("nan")
    facts: dict[str, Any] = field(default_factory=dict)
    validation_score: float | None = None

    @staticmethod
    def of(users: np.ndarray, items: np.ndarray, objective: float = float("nan")) -> TrainingState:
        """Make a state of user and item vectors."""
        return TrainingState({"users": users, "items": items}, objective)

    @property
    def users(self) -> np.ndarray:
        """The user vectors."""
        return self.arrays["users"]

    @property
    def items(self) -> np.ndarray:
        """The item vectors."""
        return self.arrays["items"]


@dataclass(frozen=True)
class Epoch:
    """The model after an epoch, and its objective: the loss with penalties on the training data."""

    number: int
    objective: float
    model: Recommender


class EpochRecipe(Recipe):
    """A recipe that is trained epoch by epoch."""

    rank: int
    n_epochs: int
    seed: int

    @abstractmethod
    def iterate(self, events: Interactions, state: TrainingState) -> Generator[TrainingState, float | None, None]:
        """Yield the state after each further epoch, without end. Receives the epoch's validation score through `send()`."""

    @abstractmethod
    def to_scorer(self, events: Interactions, state: TrainingState) -> Scorer:
        """Return the scorer of a state."""

    def epochs(
        self,
        events: Interactions,
        *,
        dtype: str | type = "float32",
        scratch: str | Path | None = None,
        repeat_last: bool = False,
        n_threads: int | None = None,
    ) -> Generator[Epoch, float | None, None]:
        """Train, and yield the model after each epoch.

        Parameters
        ----------
        events
            The interactions.
        dtype
            "float32" or "float64".
        scratch
            A folder for checkpoints. A training that was killed continues after the last one when it is started again with
            this folder, and gives the same bits; so does a training with more epochs. The folder is locked until the
            generator ends or is closed.
        repeat_last
            When resuming, yield the epoch of the last checkpoint first, for a caller who has not evaluated it yet.
        n_threads
            How many threads to use; all cores if left out.

        Yields
        ------
        Epoch
            A caller may `send()` a validation score of it, higher is better, to a training that adapts its learning rate.
        """
        self.require_signals(require_instance(events, Interactions, "Wrap it: gr.Interactions.of(...)"))
        self.require_trainable(events, events.has_unit_weights)
        self.require_features(events.catalog)
        parsed_dtype = parse_dtype(dtype)
        require_memory(self.fit_bytes(events, parsed_dtype), f"training {self} on {events}", "Choose a lower rank")
        return self._epochs(events, parsed_dtype, None if scratch is None else Path(scratch), repeat_last, n_threads)

    def require_trainable(self, counts: Counts, is_binary: bool) -> None:
        """Refuse parameters that make no sense for these interactions."""
        require_rank(self.rank, min(counts.n_users, counts.n_items) - 1, counts)
        self.require_binary(is_binary)

    def _epochs(
        self, events: Interactions, dtype: type, folder: Path | None, repeat_last: bool, n_threads: int | None
    ) -> Generator[Epoch, float | None, None]:
        if folder is None:
            yield from self._train(events, self.initial_state(events, dtype), 0, None, n_threads)
            return
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder):
            key = {"recipe": self.resume_key(), "events": events.fingerprint, "dtype": np.dtype(dtype).name}
            if self.needs_features and events.catalog.features is not None:
                key["features"] = events.catalog.features.fingerprint
            checkpoint = load_latest_checkpoint(folder, key)
            if checkpoint is None:
                yield from self._train(events, self.initial_state(events, dtype), 0, (folder, key), n_threads)
                return
            number = checkpoint.epoch
            state = TrainingState(checkpoint.arrays, checkpoint.objective, checkpoint.facts)
            del checkpoint
            if number > self.n_epochs:
                expected = f"at most {self.n_epochs} epochs in {folder}"
                raise InvalidInput(expected, f"{number}", "Choose a new folder, or raise n_epochs")
            if number == self.n_epochs or repeat_last:
                score = yield self._epoch(events, number, state)
                state = replace(state, validation_score=score)
            training = self._train(events, state, number, (folder, key), n_threads)
            del state  # the training frees it after its first epoch
            yield from training

    def _train(
        self, events: Interactions, state: TrainingState, n_done: int, scratch: tuple[Path, Key] | None, n_threads: int | None
    ) -> Generator[Epoch, float | None, None]:
        states = self.iterate(events, state)
        first_objective = state.objective  # NaN before the first epoch
        del state
        score = None
        with progress_bar("epochs", self.n_epochs) as advance:
            advance(n_done)
            for number in range(n_done + 1, self.n_epochs + 1):
                with limit_threads(n_threads):
                    state = states.send(score)
                    first_objective = state.objective if isnan(first_objective) else first_objective
                    require_convergence(state.objective, first_objective, self)
                    epoch = self._epoch(events, number, state)
                if scratch:
                    save_checkpoint(*scratch, Checkpoint(number, state.arrays, state.objective, state.facts))
                del state  # the generator holds it too: two copies would be in memory
                advance(1)
                score = yield epoch
                del epoch

    def _epoch(self, events: Interactions, number: int, state: TrainingState) -> Epoch:
        model = Recommender(self.to_scorer(events, state), self, events.catalog, events)
        return Epoch(number, state.objective, model)

    def resume_key(self) -> Key:
        """Return the recipe as JSON without its number of epochs: trainings that share it share their checkpoints."""
        data = self.to_json()
        data["params"].pop("n_epochs")
        return data

    def initial_state(self, counts: Counts, dtype: type) -> TrainingState:
        """Return the state before the first epoch: users at 0, items at random."""
        return TrainingState.of(np.zeros((counts.n_users, self.rank), dtype), self.initial_items(counts.n_items, dtype))

    def initial_items(self, n_items: int, dtype: type) -> np.ndarray:
        """Return random item vectors of length about 1. Shorter ones would cost one more epoch."""
        rng = np.random.default_rng(self.seed)
        items = rng.standard_normal((n_items, self.rank), np.float32) / np.float32(np.sqrt(self.rank))
        return items.astype(dtype)

    def train(self, events: Interactions, **options: Any) -> Epoch:
        """Train to the last epoch and return it. The options are those of `epochs`."""
        epochs = self.epochs(events, **options)
        number = 0
        while number < self.n_epochs:
            epoch = None  # its model would be in memory during the next epoch
            epoch = next(epochs)
            number = epoch.number
        epochs.close()
        assert epoch is not None
        return epoch

    def fit_scorer(self, events: Interactions, dtype: type) -> Scorer:
        return self.train(events, dtype=dtype).model.scorer

    def fit_scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        return self.train(events, dtype=dtype, scratch=scratch).model.scorer

    def n_copies(self) -> int:
        """Return how many arrays of the size of all vectors are in memory at once."""
        return 3

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The vectors, the interactions by item, and a few numbers for each user and item."""
        rows = events.n_users + events.n_items
        return rows * (self.n_copies() * self.rank * np.dtype(dtype).itemsize + 128) + 12 * events.n_interactions

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        vectors = (events.n_users + events.n_items) * self.rank * np.dtype(dtype).itemsize
        return self.fit_bytes(events, dtype), 3 * vectors
