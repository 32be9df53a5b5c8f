"""`gramian serve --workers`: a main process that owns the models, and workers that answer requests.

The main process loads and updates the models, appends to the event logs, watches the folders, and starts the workers. It
accepts no request from outside: the workers do, and forward to it what changes models, over a socket in a private folder. A
worker that dies is started again. Without its main process no worker goes on, since nobody could update its models.

Uvicorn's own supervisor is not used because its workers share nothing but a socket, and load their models themselves.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import uvicorn

from gramian.errors import InvalidInput
from gramian.linalg.threads import available_cores
from gramian.service import METRICS_FOLDER, SERVICE_LOG
from gramian.service.app import assemble_app, create_service
from gramian.service.metrics import Metrics
from gramian.service.server import (
    SHUTDOWN_SECONDS,
    TokenFiles,
    configure_logging,
    format_address,
    list_hosts,
    port_error,
    read_tokens,
    tune_interpreter,
    warn_of_access,
)
from gramian.service.shared_registry import MODEL_SOCKET, SharedRegistry
from gramian.service.worker import OWNER_SOCKET, WorkerSettings, bind_shared, run_worker

MAX_FAILED_STARTS = 3  # of workers, one after the other, after which the service stops
CHECK_SECONDS = 0.2  # between two looks at a signal
SPAWN = multiprocessing.get_context("spawn")  # Numba's threads do not survive a fork


class Worker:
    """A worker process.

    Parameters
    ----------
    settings
        What it needs to know.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self.is_listening = SPAWN.Event()
        self.process = SPAWN.Process(target=run_worker, args=(settings, self.is_listening), daemon=True)
        self.process.start()

    def stop(self, deadline: float) -> None:
        """Wait until the process has ended, and kill it after the deadline."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        self.process.kill()
        self.process.join()


class Supervisor:
    """Workers that are started again when they die.

    Parameters
    ----------
    settings
        What they need to know.
    n_workers
        How many there are.
    """

    def __init__(self, settings: WorkerSettings, n_workers: int) -> None:
        self.settings, self.n_failed_starts, self.is_stopping = settings, 0, False
        self.workers = [Worker(settings) for _ in range(n_workers)]

    def run(self, on_listen: Callable[[], None]) -> None:
        """Keep the workers running until a signal. `on_listen` is called once, when all accept requests."""
        is_announced = False
        while not self.is_stopping:
            wait([worker.process.sentinel for worker in self.workers], CHECK_SECONDS)
            if not is_announced and all(worker.is_listening.is_set() for worker in self.workers):
                is_announced = True
                on_listen()
            self.workers = [worker if worker.process.is_alive() else self._restart(worker) for worker in self.workers]

    def _restart(self, worker: Worker) -> Worker:
        """Start a worker in place of a dead one. Raises an error if several died before they could answer."""
        if self.is_stopping:
            return worker
        self.n_failed_starts = 0 if worker.is_listening.is_set() else self.n_failed_starts + 1
        if self.n_failed_starts >= MAX_FAILED_STARTS:
            got = f"{MAX_FAILED_STARTS} in a row that ended before they could answer, the last with {worker.process.exitcode}"
            raise InvalidInput("workers that start", got, "See the log above, or leave --workers out")
        SERVICE_LOG.warning("worker %s died (%s) and is started again", worker.process.pid, worker.process.exitcode)
        return Worker(self.settings)

    def stop(self) -> None:
        """Let the workers finish their requests, and end them."""
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + SHUTDOWN_SECONDS + 5
        for worker in self.workers:
            worker.stop(deadline)


def run_workers(
    registry: SharedRegistry,
    *,
    n_workers: int,
    host: str,
    port: int,
    max_connections: int,
    journal: Path | None,
    token_files: TokenFiles,
    hosts: Sequence[str],
    origins: Sequence[str],
    quiet: bool,
    log: Path | None = None,
    follow: Path | None = None,
) -> None:
    """Serve with several worker processes until interrupted.

    Parameters
    ----------
    registry
        The models, in memory that can be shared.
    n_workers
        How many processes answer requests.
    host, port, journal, token_files, hosts, origins, quiet, log, follow
        As for `run_server`.
    max_connections
        How many connections may be open, divided among the workers.
    """
    configure_logging(is_quiet=quiet)
    tokens, folder = read_tokens(token_files), Path(os.environ[METRICS_FOLDER])
    warn_of_access(host, tokens, log)
    with hold_port(host, port) as (family, address), listen_for_workers(folder) as listener:

        def on_warm() -> None:
            tune_interpreter()
            registry.accept_workers(listener)

        service = create_service(registry, Metrics(is_shared=True), journal, on_warm, log, follow)
        settings = WorkerSettings(
            folder=folder,
            address=address,
            family=family,
            n_threads=max(1, available_cores() // n_workers),
            max_connections=-(-max_connections // n_workers),
            journal=journal,
            tokens=tokens,
            hosts=list_hosts(host, hosts),
            origins=origins,
            is_quiet=quiet,
        )
        supervisor = Supervisor(settings, n_workers)
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: setattr(supervisor, "is_stopping", True))
        with run_owner(assemble_app(service, []), folder):
            try:
                supervisor.run(lambda: registry.announce(format_address(*address)))
            finally:
                supervisor.stop()  # before the main process, to which they forward, stops answering
        registry.close()


@contextmanager
def run_owner(app: Any, folder: Path) -> Iterator[None]:
    """Answer what workers forward, in a thread."""
    config = uvicorn.Config(
        app, uds=str(folder / OWNER_SOCKET), access_log=False, log_config=None, log_level="warning", ws="none",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="owner")
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def hold_port(host: str, port: int) -> Iterator[tuple[int, tuple[str, int]]]:
    """Yield the family and the address of a port that the workers can bind together, and keep other programs from it."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError:
        raise InvalidInput("the name or address of this machine as --host", host, "Check it") from None
    try:
        with socket.socket(family) as alone:  # fails where another program listens, even one that would share the port
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind(address)
            address = alone.getsockname()
        held = bind_shared(family, address[:2])
    except OSError:
        raise port_error(host, port) from None
    with held:
        yield family, (host, address[1])


@contextmanager
def listen_for_workers(folder: Path) -> Iterator[socket.socket]:
    """Yield a socket to which workers connect to get the models."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder / MODEL_SOCKET))
        listener.listen()
        yield listener
