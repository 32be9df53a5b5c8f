"""Saves a served model over its folder: in a thread, so that updates go on meanwhile, or at once after a deletion.

After a deletion, neither folder nor log may have a trace of the user when the receipt is sent. To hash and write the matrix of
a large model takes seconds. Its folder is therefore replaced by one without fitted arrays first: recipe, catalog, and the
histories without the user. That is a model which is fitted when it is loaded. The complete folder follows in the thread. A
later deletion cancels this, since the thread would write what the next user has left in the model.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gramian.core.recommender import Recommender
from gramian.io.event_log import EventLog
from gramian.io.model_folder import is_fitted, save_model_folder
from gramian.service import SERVICE_LOG
from gramian.service.model_registry import ModelRegistry, folder_version

SAVED_AT_ONCE_BYTES = 1 << 26  # of fitted arrays, which are hashed and written in about 0.3 s
RETRY_SECONDS = 30.0  # after a save or an update that failed
COMPLETION_SECONDS = 5.0  # after a deletion, when its folder is completed: the next deletion would cancel an earlier write
LOW_PRIORITY = 10  # as of `nice`: about a tenth of what a thread that answers requests gets


class Superseded(Exception):
    """The model is not to be saved any more: a user is to be forgotten, or another program has replaced the folder."""


class ModelSaver:
    """Saves the versions of one served model.

    Parameters
    ----------
    name
        The name of the model.
    registry
        The served models, with their folders.
    log
        The log of the model, which drops what a saved model has learned.
    """

    def __init__(self, name: str, registry: ModelRegistry, log: EventLog) -> None:
        self.name, self.registry, self.log, self.folder = name, registry, log, registry.folders[name]
        self.is_cancelled, self.thread = threading.Event(), threading.Thread()
        self.last_save = time.monotonic()
        self.has_failed = False
        self.is_complete = True  # whether the folder has the fitted arrays
        self.follow_replacement()

    def follow_replacement(self) -> None:
        """Look at a folder that another program has written."""
        with suppress(Exception):  # a folder that is damaged is reported by the registry
            self.is_complete = is_fitted(self.folder)

    def save_in_time(self, model: Recommender, seconds: float) -> None:
        """Start to save a model in the thread if the folder is incomplete, or this many seconds behind the log."""
        wait = RETRY_SECONDS if self.has_failed else seconds if self.is_complete else COMPLETION_SECONDS
        is_behind = not self.is_complete or self.log.state.base < model.log_position
        if is_behind and not self.thread.is_alive() and time.monotonic() - self.last_save >= wait:
            self.thread = threading.Thread(target=self._run, args=(model,), name=f"saves of {self.name}")
            self.thread.start()

    def complete(self, model: Recommender) -> None:
        """Wait for a save that is going on, and write the fitted arrays if the folder does not have them."""
        self.finish()
        if not self.is_complete and not self.has_failed:
            self._run(model)

    def _run(self, model: Recommender) -> None:
        lower_priority()
        try:
            self.save(model)
            self.has_failed = False
        except Superseded:
            pass
        except Exception:
            SERVICE_LOG.exception("%s cannot be saved; trying again in %g s", self.name, RETRY_SECONDS)
            self.has_failed, self.last_save = True, time.monotonic()

    def cancel(self) -> None:
        """Stop a save that is going on. What it has written is deleted."""
        self.is_cancelled.set()
        self.finish()
        self.is_cancelled.clear()

    def finish(self) -> None:
        """Wait for a save that is going on."""
        if self.thread.is_alive():
            self.thread.join()

    def save_without_trace(self, model: Recommender) -> None:
        """Save a model after a deletion: without the fitted arrays, unless they are small."""
        saved = model.take_apart()
        self.save(model, is_complete=saved.scorer_bytes <= SAVED_AT_ONCE_BYTES)

    def save(self, model: Recommender, *, is_complete: bool = True) -> None:
        """Save a model, with its fitted arrays or without. Raises `Superseded` if another program has replaced the folder."""
        saved = model.compact().take_apart() if is_complete else model.take_apart().without_scorer()
        save_model_folder(self.folder, saved, proceed=self._proceed, replacing=self._replacing())
        self.log.compact(model.log_position)
        self.is_complete, self.last_save = is_complete, time.monotonic()

    def _proceed(self) -> None:
        if self.is_cancelled.is_set():
            raise Superseded

    @contextmanager
    def _replacing(self) -> Iterator[None]:
        """Keep the registry from loading the folder, which is of a model that it serves already or has served."""
        with self.registry.locks[self.name]:
            if folder_version(self.folder) not in ((), self.registry.versions[self.name]):
                raise Superseded
            self._proceed()
            yield
            self.registry.versions[self.name] = folder_version(self.folder)


def lower_priority() -> None:
    """Let the system prefer all other threads to this one and those that it starts, where it can (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)
