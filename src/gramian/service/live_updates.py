"""A served model that learns events and forgets users while it is served.

What a request sends is appended to the event log before it is acknowledged. A thread applies the log to the model: many events
in one update, deletions one by one. It swaps the new model in as a whole; requests that are being answered finish with the old
one. The model is saved from time to time, after which the log drops what the saved model has learned, and at once after a
deletion, so that neither folder nor log has a trace of the user (`model_saver.py`). After a kill, the log is applied from where
the saved model stopped.

An update of an item-item model does not rewrite the full matrix P that is served: its thin factors are served beside P at once,
and a thread subtracts them later (`consolidation.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
from numba import set_num_threads
from starlette.exceptions import HTTPException

from gramian.core.receipts import make_receipt
from gramian.core.recommender import Recommender
from gramian.core.updates import SupportsRefinement, SupportsUpdates, SupportsVerification
from gramian.data.interactions import Interactions
from gramian.data.tables import to_series
from gramian.errors import InvalidInput, NotSupported, UnknownId
from gramian.io.event_log import Event, EventLog, LogRecord
from gramian.linalg.memory import available_bytes
from gramian.linalg.recycled import allocate_from
from gramian.linalg.threads import available_cores
from gramian.linalg.updated import UpdatedSymmetric
from gramian.models.scorers import InverseWeights
from gramian.service import SERVICE_LOG
from gramian.service.consolidation import Consolidation
from gramian.service.json_ids import JsonId
from gramian.service.metrics import Metrics
from gramian.service.model_registry import ModelRegistry
from gramian.service.model_saver import RETRY_SECONDS, ModelSaver, Superseded
from gramian.service.served_model import ServedModel

MAX_PENDING_EVENTS = 100_000  # events and deletions that may wait; further ones get a 429
EVENTS_PER_UPDATE = 20_000  # applied at once: a list must not become much older than the newest event
POLL_SECONDS = 0.05  # between two looks at a log that other processes append to
SAVE_SECONDS = 60.0  # between two saves of a model that learns events
CONSOLIDATED_RANK = 64  # of deferred updates, which are then subtracted: at 20,000 items every list reads 5 MB more
SETTLING_SECONDS = 2.0  # without an update, after which those of a lower rank are subtracted, too
RETRY_LATER = {"retry-after": "5"}  # seconds


class LiveModel:
    """The log of one served model, and the thread that applies it.

    Parameters
    ----------
    name
        The name of the model in the registry.
    registry
        The served models.
    log_folder
        Where the log is: a file with the model's name.
    metrics
        The metrics in which updates are counted.
    """

    def __init__(self, name: str, registry: ModelRegistry, log_folder: Path, metrics: Metrics) -> None:
        self.name, self.registry, self.metrics = name, registry, metrics
        self.served = registry.models[name]
        self.model = self.served.model
        log_folder.mkdir(parents=True, exist_ok=True)
        self.log = EventLog(log_folder / f"{name}.log", start=self.model.log_position)
        self.saver = ModelSaver(name, registry, self.log)
        self.memory, self.holds_trace = registry.memories[name], False  # of users who were forgotten, in spare memory
        self.consolidation = Consolidation(name, self.memory)
        self.n_threads = max(1, available_cores() - 1)  # of an update: requests keep a core
        self.updated = time.monotonic()  # when the last update was served
        self.receipts: dict[int, Future[dict[str, Any]]] = {}  # by the number of the record, for requests that wait
        self.wake, self.is_stopped = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to apply the log, to the model as it was prepared for serving."""
        self.model = self.served.model
        self.consolidation.reserve(self.model)
        self.thread = threading.Thread(target=self._run, name=f"updates of {self.name}", daemon=True)
        self.thread.start()

    def report_lag(self) -> None:
        """Set the metrics of what waits."""
        n_pending, seconds = self.log.pending(self.model.log_position)
        self.metrics.pending_events.labels(self.name).set(n_pending)
        self.metrics.update_lag.labels(self.name).set(seconds)

    def stop(self) -> None:
        """Stop after the update that is being applied. What is left in the log is applied at the next start."""
        self.is_stopped.set()
        self.wake.set()
        if self.thread is not None:
            self.thread.join()
        self.consolidation.finish()
        self.saver.complete(self.model)

    def parse_event(self, event: Event) -> Event:
        """Return an event with its ids as the log has them, or raise the reason why the model cannot learn it."""
        user, item, weight = event
        recipe, users, items = self.model.recipe, self.served.users, self.served.items
        if not isinstance(recipe, SupportsUpdates | SupportsRefinement):
            raise NotSupported("a model that can learn events", type(recipe).__name__, "Fit it again with the events")
        recipe.require_binary(weight == 1)
        return users.encode([users.parse(user)])[0], items.encode([items.parse(item)])[0], weight

    def submit_events(self, events: Sequence[Event], key: str | None) -> tuple[int, bool]:
        """Append events of a request to the log, if the model can learn them. Returns what `EventLog.append` does."""
        parsed = [self.parse_event(event) for event in events]
        self._require_room(len(events))
        number, is_new = self.log.append(events=parsed, key=key)
        self.wake.set()
        return number, is_new

    def append_followed(self, events: Sequence[Event], position: tuple[str, int]) -> None:
        """Append parsed events of a followed file, and up to which byte they are its events."""
        self._require_room(len(events))
        self.log.append(events=events, position=position)
        self.wake.set()

    def submit_deletion(self, user: JsonId) -> Future[dict[str, Any]]:
        """Append a deletion to the log. The future has the receipt once the model without the user is served and saved."""
        recipe = self.model.recipe
        if not (isinstance(recipe, SupportsUpdates) and isinstance(recipe, SupportsVerification)):
            got = f"{type(recipe).__name__}, which may keep a trace of every user"
            raise NotSupported("a model that can forget exactly and prove it", got, "Fit it again without the user")
        id = self.served.users.parse(user)
        (encoded,) = self.served.users.encode([id])
        waiting = self.log.read(self.model.log_position)
        is_waiting = any(encoded == other for record in waiting for other, _, _ in record.events)
        if self.served.users.index.positions([id])[0] < 0 and not is_waiting:
            raise UnknownId(f"a user of {self.name}", repr(user)[:80], "There is nothing to forget")
        self._require_room(1)
        future: Future[dict[str, Any]] = Future()
        future.set_running_or_notify_cancel()
        number, _ = self.log.append(forget=[encoded])
        self.receipts[number] = future
        self.wake.set()
        return future

    def _require_room(self, n_events: int) -> None:
        n_pending, _ = self.log.pending(self.model.log_position)
        if n_pending + n_events > MAX_PENDING_EVENTS:
            raise HTTPException(429, f"{n_pending:,} events of {self.name} are waiting. Try again later.", RETRY_LATER)

    def _run(self) -> None:
        set_num_threads(self.n_threads)  # in this thread
        while not self.is_stopped.is_set():
            try:
                self.apply()
            except Exception as error:  # the old model is served on, and the log keeps what was sent
                SERVICE_LOG.exception("%s: an update failed; trying again in %g s", self.name, RETRY_SECONDS)
                self.metrics.updates.labels(self.name, "failed").inc()
                self.registry.record_failure(self.name, error)
                self.is_stopped.wait(RETRY_SECONDS)  # new events do not make it try sooner
            self.wake.wait(POLL_SECONDS)
            self.wake.clear()

    def apply(self) -> None:
        """Apply what the log has and the model has not, and save the model if it is time."""
        self._follow_replacement()
        for is_deletion, group in groupby(self.log.read(self.model.log_position), lambda record: bool(record.forget)):
            records = list(group)
            while records and not self.is_stopped.is_set():
                self._serve_consolidated()
                n = 1 if is_deletion else count_records(records)
                now, records = records[:n], records[n:]
                if not (self._forget(now[0]) if is_deletion else self._observe(now)):
                    return  # the folder was replaced meanwhile: start again from its model
        self._serve_consolidated()
        if deferred_rank(self.model) >= CONSOLIDATED_RANK or time.monotonic() - self.updated >= SETTLING_SECONDS:
            self.consolidation.begin(self.model)
        if self.holds_trace and not self.consolidation.is_running and not deferred_rank(self.model) and self.memory.clear():
            self.holds_trace = False
        self.saver.save_in_time(self.model, SAVE_SECONDS)

    def _follow_replacement(self) -> None:
        """Go on from the model of the folder, if another program has replaced it."""
        served = self.registry.models[self.name]
        if served is self.served:
            return
        self.served, self.model = served, served.model
        self.saver.follow_replacement()
        if self.model.log_position > self.log.last:
            raise InvalidInput(f"a model with the log of {self.name}", "one with another log", "Name its log")
        if self.model.log_position < self.log.state.base:
            n = self.log.state.base - self.model.log_position
            SERVICE_LOG.warning("%s: replaced by a model without %d records that the log has dropped", self.name, n)

    def _observe(self, records: Sequence[LogRecord]) -> bool:
        events = [event for record in records for event in record.events]
        with allocate_from(self.memory):
            updated = (
                self._model_to_update().observe(self._to_interactions(events), n_threads=self.n_threads)
                if events
                else self.model
            )
        return self._swap(updated, records[-1], len(events))

    def _model_to_update(self) -> Recommender:
        """Return the model in the form that defers updates, or half of its matrix where memory does not allow for another
        full one."""
        scorer = self.model.scorer
        if not isinstance(scorer, InverseWeights) or not scorer.inverse.is_full:
            return self.model
        has_memory = self.memory.spare or self.consolidation.is_running  # which has the spare memory
        if not has_memory and scorer.full_bytes > available_bytes() / 2:
            return self.model.compact()
        if isinstance(scorer.inverse, UpdatedSymmetric):
            return self.model
        return self.model.with_scorer(scorer.with_inverse(UpdatedSymmetric.of(scorer.inverse)))

    def _serve_consolidated(self) -> None:
        """Serve the matrix from which updates were subtracted, if it is ready."""
        consolidated = self.consolidation.apply(self.model)
        if consolidated is not None:
            self._publish(consolidated)

    def _to_interactions(self, events: Sequence[Event]) -> Interactions:
        users, items = self.served.users, self.served.items
        columns = {
            "user": to_series("user", [users.parse(user) for user, _, _ in events]),
            "item": to_series("item", [items.parse(item) for _, item, _ in events]),
        }
        weights = [weight for _, _, weight in events]
        is_binary = all(weight == 1 for weight in weights) and (self.model.histories is None or self.model.histories.is_binary)
        if is_binary:
            return Interactions.of(pl.DataFrame(columns), user="user", item="item")
        return Interactions.of(pl.DataFrame({**columns, "value": weights}), user="user", item="item", value="value")

    def _forget(self, record: LogRecord) -> bool:
        started, before = datetime.fromtimestamp(record.time, UTC), self.model
        users = [self.served.users.parse(user) for user in record.forget]
        assert before.histories is not None
        self.saver.cancel()  # it writes a model with these users
        try:
            is_known = (before.histories.users.positions(users) >= 0).any()
            with allocate_from(self.memory):
                updated = self._model_to_update().forget_users(users, n_threads=self.n_threads) if is_known else before
        except InvalidInput as error:  # the last user of the model: this deletion can never be applied
            self._resolve(record.number, error)
            return self._swap(before, record, 0)
        if not self._swap(updated, record, len(users)):
            return False
        try:
            save = partial(self.saver.save_without_trace, self.model)
            self._resolve(record.number, make_receipt(before, self.model, users, started, save))
            self.holds_trace = True
        except Superseded:
            return False
        except Exception as error:
            self._resolve(record.number, error)
            raise
        return True

    def _resolve(self, number: int, result: dict[str, Any] | Exception) -> None:
        future = self.receipts.pop(number, None)
        if future is not None and isinstance(result, Exception):
            future.set_exception(result)
        elif future is not None:
            future.set_result(result)  # type: ignore[arg-type]

    def _swap(self, updated: Recommender, record: LogRecord, n_events: int) -> bool:
        """Serve an updated model, unless the folder was replaced while it was computed."""
        model = Recommender(
            updated.scorer, updated.recipe, updated.catalog, updated.histories, self.model.card, log_position=record.number
        )
        if not self._publish(model):
            return False
        self.updated = time.monotonic()
        self.metrics.updates.labels(self.name, "applied").inc()
        self.metrics.applied_events.labels(self.name).inc(n_events)
        return True

    def _publish(self, model: Recommender) -> bool:
        """Serve a model, unless the folder was replaced meanwhile."""
        served = ServedModel(self.name, model)
        self.registry.prepare(served)
        with self.registry.locks[self.name]:
            if self.registry.models[self.name] is not self.served:
                return False
            self.registry.publish(served)
            self.served, self.model = served, served.model
        return True


def deferred_rank(model: Recommender) -> int:
    """Return the rank of the updates that have not been subtracted from the matrix of a model."""
    inverse = model.scorer.inverse if isinstance(model.scorer, InverseWeights) else None
    return inverse.rank if isinstance(inverse, UpdatedSymmetric) else 0


def count_records(records: Sequence[LogRecord]) -> int:
    """Return how many of the first records to apply at once: at least one, and of about `EVENTS_PER_UPDATE` events."""
    n_events = 0
    for n, record in enumerate(records):
        n_events += len(record.events)
        if n and n_events > EVENTS_PER_UPDATE:
            return n
    return len(records)
