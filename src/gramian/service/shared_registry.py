"""The models of a service with several workers: the main process loads and updates them, and the workers map its memory.

A new model is swapped in in two steps. First every worker maps it and tries it, then all are told to serve it, and each
confirms. So a model that one worker cannot serve replaces none, and when `publish` returns, no worker answers from the old
model, except requests that it had begun. A worker that does not answer is killed, rather than left behind with an old model.

Last, every worker says when it has ended these requests. Only then is the memory of the old model used for a later one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from gramian.linalg.recycled import RecycledMemory, allocate_from
from gramian.linalg.threads import available_cores
from gramian.service import SERVICE_LOG
from gramian.service.model_registry import ModelRegistry
from gramian.service.served_model import ServedModel
from gramian.service.shared_models import SharedMemory, SharedModel, find_shared_file, move_to_shared_memory, share_model

REPLY_SECONDS = 60.0  # for a worker to map a model and try it
MESSAGE_BYTES = 1 << 16  # at most; models are sent as descriptors
MODEL_SOCKET = "models"  # in the folder of a running service


class WorkerChannel:
    """The connection to one worker.

    Parameters
    ----------
    connection
        A socket that keeps the boundaries of messages.
    pid
        The worker's process.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection, self.pid = connection, pid
        self.loaded: set[int] = set()  # the numbers of the models that it has mapped
        connection.settimeout(REPLY_SECONDS)

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send a message, with open files."""
        socket.send_fds(self.connection, [json.dumps(message).encode()], list(descriptors))

    def wait(self) -> str | None:
        """Return the error that the worker answers with; None for success. Raises OSError if it does not answer."""
        reply = self.connection.recv(MESSAGE_BYTES)
        if not reply:
            raise ConnectionError("the worker has ended")
        error: str | None = json.loads(reply)["error"]
        return error


class SharedRegistry(ModelRegistry):
    """Models by name, in memory that the workers share.

    Parameters
    ----------
    folders
        Model folders with different names.
    """

    memory_type: type[RecycledMemory] = SharedMemory

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(folders)
        self.shared: dict[ServedModel, tuple[int, SharedModel]] = {}
        self.channels: list[WorkerChannel] = []
        self.lock, self.numbers = threading.RLock(), count(1)

    def prepare(self, served: ServedModel) -> None:
        """Write a model to shared memory, and have every worker map it and try it."""
        with allocate_from(self.memories[served.name]):
            served.expand_weights(available_cores())  # this process answers no requests
            served.model = move_to_shared_memory(served.model)
        shared, served.model = share_model(served.model)
        with self.lock:
            self.shared[served] = next(self.numbers), shared
            errors = self._ask(self.channels, served, "load")
        if errors:
            with self.lock:
                self._drop(served, is_released=False)
            raise RuntimeError(errors[0])

    def publish(self, served: ServedModel) -> None:
        """Have every worker serve a prepared model, and return once all do."""
        with self.lock:
            number, _ = self.shared[served]
            self._ask([channel for channel in self.channels if number not in channel.loaded], served, "load")
            self._ask(self.channels, served, "serve")
            super().publish(served)
            for other in [other for other, (n, _) in self.shared.items() if other.name == served.name and n < number]:
                is_released = self.shared[other][1].matrix is None or not self._ask(self.channels, other, "release")
                self._drop(other, is_released=is_released)

    def accept_workers(self, listener: socket.socket) -> None:
        """Send the models to every worker that connects to a listening socket, in a thread."""

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # closed: the service stops
                    return
                try:
                    self._welcome(connection)
                except OSError:
                    connection.close()

        threading.Thread(target=accept, name="models of workers", daemon=True).start()

    def _welcome(self, connection: socket.socket) -> None:
        """Send all models to a new worker."""
        channel = WorkerChannel(connection, int(connection.recv(MESSAGE_BYTES)))
        with self.lock:
            self.channels.append(channel)
            for name, served in self.models.items():
                if served in self.shared:
                    self._ask([channel], served, "load")
                    self._ask([channel], served, "serve")
                else:
                    channel.send({"do": "refuse", "name": name})
                    channel.wait()
            channel.send({"do": "start"})

    def _ask(self, channels: Sequence[WorkerChannel], served: ServedModel, verb: str) -> list[str]:
        """Send a message to workers, all at once, and return the errors in their answers. One without an answer is killed."""
        number, shared = self.shared[served]
        message = {"do": verb, "name": served.name, "number": number, "n_array_bytes": shared.n_array_bytes}
        asked, errors = [], []
        for channel in channels:
            with suppress(OSError):  # noticed below
                channel.send(message, shared.descriptors if verb == "load" else ())
            asked.append(channel)
        for channel in asked:
            try:
                error = channel.wait()
            except OSError as problem:
                SERVICE_LOG.warning("worker %d does not answer (%s) and is stopped", channel.pid, problem)
                self.channels.remove(channel)
                channel.connection.close()
                with suppress(ProcessLookupError):
                    os.kill(channel.pid, signal.SIGKILL)
                continue
            channel.loaded.add(number)
            errors += [] if error is None else [error]
        return errors

    def close(self) -> None:
        """Close the connections and the shared memory."""
        with self.lock:
            for channel in self.channels:
                channel.connection.close()
            self.channels = []
            for served in list(self.shared):
                self._drop(served, is_released=False)

    def _drop(self, served: ServedModel, *, is_released: bool) -> None:
        number, shared = self.shared.pop(served)
        shared.close()
        file = find_shared_file(served.model)
        if file is not None:
            file.is_read_elsewhere |= not is_released  # of one version: another on the same matrix may have been released
        for channel in self.channels:
            channel.loaded.discard(number)
