"""Models that are trained epoch by epoch: a generator, over which progress, early stopping and checkpoints are plain loops."""

from __future__ import annotations

import shutil
import warnings
from abc import abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numba import get_num_threads

from gramian import store
from gramian.data.interactions import Interactions
from gramian.errors import DamagedFile, InvalidInput, MissingFile, StartingOver
from gramian.linalg.memory import require
from gramian.linalg.scratch import locked
from gramian.linalg.speed import gather_rate
from gramian.linalg.symmetric import checked_dtype
from gramian.linalg.threads import threads
from gramian.models.low_rank import require_rank
from gramian.models.recipe import Recipe, require_interactions, setting
from gramian.progress import bar
from gramian.recommender import Recommender, Scorer

CHECKPOINTS = ("gramian-epoch-even", "gramian-epoch-odd")  # one is whole while the other is written


def epochs_setting(default: int = 16) -> Any:
    return setting(default, "rounds of training", at_least=1)


def seed_setting() -> Any:
    return setting(0, "seed of the first vectors", at_least=0)


@dataclass(frozen=True)
class State:
    """What training has reached: arrays (the vectors of users and items, and what else it needs to go on), a few facts, and the
    loss with its penalties. `verdict` is what whoever looks at the epochs thought of it, where training goes on from here."""

    arrays: dict[str, np.ndarray]
    objective: float = float("nan")
    facts: dict[str, Any] = field(default_factory=dict)
    verdict: float | None = None

    @staticmethod
    def of(users: np.ndarray, items: np.ndarray, objective: float = float("nan")) -> State:
        return State({"users": users, "items": items}, objective)

    @property
    def users(self) -> np.ndarray:
        return self.arrays["users"]

    @property
    def items(self) -> np.ndarray:
        return self.arrays["items"]


@dataclass(frozen=True)
class Epoch:
    """A model after so many epochs, and its loss with penalties on what it was trained on."""

    number: int
    objective: float
    model: Recommender


class Iterative(Recipe):
    """A recipe whose vectors are improved epoch by epoch."""

    rank: int
    n_epochs: int
    seed: int
    needs_binary = False  # whether the loss is for 0/1 interactions only

    @abstractmethod
    def improved(self, events: Interactions, state: State) -> Generator[State, float | None, None]:
        """The state after one epoch more, and one more, without end. It is sent what was thought of the last."""

    @abstractmethod
    def fitted(self, events: Interactions, state: State) -> Scorer:
        """What a state gives for serving."""

    def epochs(
        self,
        events: Interactions,
        *,
        dtype: str | type = "float32",
        scratch: str | Path | None = None,
        again: bool = False,
        n_threads: int | None = None,
    ) -> Generator[Epoch, float | None, None]:
        """Train, and give the model after each epoch, to look at or to stop.

        Who looks may `send` what they think of it, the higher the better, to a training that adapts itself to that.

        With a `scratch` folder the last epochs are kept there, and the same training, killed and started again, goes on after
        them, to the same bits; so does one for more epochs; with `again`, the last that was kept comes first, for who has still
        to judge it. The folder is this training's until the iterator is at its end,
        closed or forgotten.
        """
        require_interactions(events)
        self.require_possible(events)
        kind = checked_dtype(dtype)
        require(self.fit_bytes(events, kind), f"training {self} on {events}", "Choose a lower rank")
        return self._epochs(events, kind, None if scratch is None else Path(scratch), again, n_threads)

    def require_possible(self, events: Interactions) -> None:
        """Refuse settings that make no sense for these interactions."""
        require_rank(self.rank, min(events.n_users, events.n_items) - 1, events)
        if self.needs_binary and not events.is_binary:
            do = "Read the events with min_value=... instead of value=..., or use IALS or RG2"
            raise InvalidInput(f"0/1 interactions for {type(self).__name__}", "weights", do)

    def _epochs(
        self, events: Interactions, kind: type, folder: Path | None, again: bool, n_threads: int | None
    ) -> Generator[Epoch, float | None, None]:
        if folder is None:
            yield from self._from(events, self.first(events, kind), 0, None, n_threads)
            return
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            key = {"recipe": self.endless(), "events": events.fingerprint, "dtype": np.dtype(kind).name}
            number, state = latest(folder, key) or (0, self.first(events, kind))
            if number > self.n_epochs:
                wanted = f"at most {self.n_epochs} epochs in {folder}"
                raise InvalidInput(wanted, f"{number}", "Name a new folder, or raise n_epochs")
            if number == self.n_epochs or (number and again):
                verdict = yield Epoch(number, state.objective, Recommender(self.fitted(events, state), self, events))
                state = replace(state, verdict=verdict)
            yield from self._from(events, state, number, (folder, key), n_threads)

    def _from(
        self, events: Interactions, state: State, number: int, keep: tuple[Path, Any] | None, n_threads: int | None
    ) -> Generator[Epoch, float | None, None]:
        training = self.improved(events, state)
        del state
        verdict = None
        with bar("epochs", self.n_epochs) as advance:
            advance(number)
            for following in range(number + 1, self.n_epochs + 1):
                with threads(n_threads):
                    state = training.send(verdict)
                    epoch = Epoch(following, state.objective, Recommender(self.fitted(events, state), self, events))
                if keep:
                    keep_state(*keep, following, state)
                del state  # which the training goes on from: it would be in memory twice
                advance(1)
                verdict = yield epoch
                del epoch

    def endless(self) -> dict[str, Any]:
        """The recipe without its number of epochs."""
        found = self.to_json()
        found["settings"].pop("n_epochs")
        return found

    def first(self, events: Interactions, dtype: type) -> State:
        """Users at 0, items at random and about 1 long: smaller ones take an epoch more."""
        rng = np.random.default_rng(self.seed)
        items = rng.standard_normal((events.n_items, self.rank), np.float32) / np.float32(np.sqrt(self.rank))
        return State.of(np.zeros((events.n_users, self.rank), dtype), items.astype(dtype))

    def scorer(self, events: Interactions, dtype: type) -> Scorer:
        return last(self.epochs(events, dtype=dtype)).model.scorer

    def scorer_in(self, scratch: Path, events: Interactions, dtype: type) -> Scorer:
        return last(self.epochs(events, dtype=dtype, scratch=scratch)).model.scorer

    def copies(self) -> int:
        """How many arrays of the size of all vectors there are at once."""
        return 4

    def passes(self) -> float:
        """How often an epoch gathers a vector for each interaction, from either side."""
        return 1.0

    def fit_bytes(self, events: Interactions, dtype: type) -> int:
        """The vectors, the interactions by item, and a few numbers for each user and item."""
        rows = events.n_users + events.n_items
        return rows * (self.copies() * self.rank * np.dtype(dtype).itemsize + 128) + 12 * events.n_interactions

    def fit_seconds(self, events: Interactions, dtype: type) -> float:
        return self.n_epochs * self.passes() * 2 * events.n_interactions * self.rank / gather_rate(get_num_threads())

    def scratch_bytes(self, events: Interactions, dtype: type) -> tuple[int, int]:
        vectors = (events.n_users + events.n_items) * self.rank * np.dtype(dtype).itemsize
        return self.fit_bytes(events, dtype), 3 * vectors


def last(epochs: Iterable[Epoch]) -> Epoch:
    """The last of them, none of the others kept."""
    for epoch in epochs:
        found = epoch
    return found


def keep_state(folder: Path, key: dict[str, Any], number: int, state: State) -> None:
    facts = {"key": key, "epoch": number, "objective": state.objective, "facts": state.facts}
    store.write(folder / CHECKPOINTS[number % 2], "checkpoint", facts, state.arrays, {})


def latest(folder: Path, key: dict[str, Any]) -> tuple[int, State] | None:
    """The last epoch that was kept whole, if there is one. What a kill has left half written is removed."""
    found, damaged = [], {}
    for half in folder.glob(".gramian-epoch-*"):
        shutil.rmtree(half, ignore_errors=True)
    for name in CHECKPOINTS:
        try:
            facts, arrays, _ = store.read(folder / name, "checkpoint")
        except MissingFile:
            continue
        except DamagedFile as error:
            damaged[folder / name] = error
            continue
        if facts["key"] != key:
            raise InvalidInput(f"the scratch folder of this training in {folder}", "that of another", "Name a new folder")
        found.append((int(facts["epoch"]), State(arrays, facts["objective"], facts["facts"])))
    for path, problem in damaged.items():
        if not found:
            raise problem
        warnings.warn(f"{problem} Going on from the epoch before.", StartingOver, stacklevel=4)
        shutil.rmtree(path)
    return max(found, key=lambda kept: kept[0], default=None)


def clear_checkpoints(folder: Path) -> None:
    """Of a training, and of the path along it."""
    for name in ("gramian-epoch-*", "gramian-report-*", "gramian-best*"):
        for path in (*folder.glob(name), *folder.glob(f".{name}")):
            shutil.rmtree(path, ignore_errors=True)
