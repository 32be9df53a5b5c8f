"""A worker: a process that serves the models of the main process from shared memory.

It answers what needs a model only. What changes models, or tells about the whole service, it forwards to the main process,
which alone owns the event log and the folders. A worker whose main process has ended stops at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import threading
import time
import weakref
from asyncio import to_thread
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from numba import set_num_threads
from starlette.exceptions import HTTPException

from gramian.linalg.recycled import find_root
from gramian.service import SERVICE_LOG
from gramian.service.app import assemble_app, list_middleware
from gramian.service.endpoints import FORGET_SECONDS, Service
from gramian.service.http_protocol import ConnectionLimits
from gramian.service.metrics import Metrics
from gramian.service.middleware.access import Tokens
from gramian.service.middleware.body_limits import BodyLimits
from gramian.service.model_registry import ModelRegistry
from gramian.service.served_model import ServedModel
from gramian.service.server import LimitedServer, configure_logging, tune_interpreter
from gramian.service.shared_models import SharedModel, find_full_matrix, map_model
from gramian.service.shared_registry import MESSAGE_BYTES, MODEL_SOCKET
from gramian.service.work_queue import RETRY_AFTER

OWNER_SOCKET = "owner"  # in the folder of a running service: HTTP of the main process
MAX_DESCRIPTORS = 2  # of a message
FORWARD_SECONDS = FORGET_SECONDS + 30
FORWARDED_HEADERS = ("content-type", "retry-after")
RELEASE_SECONDS = 1.0  # for the requests that were begun with an old model; a batch may take longer
RELEASE_POLL_SECONDS = 0.002  # between two looks at whether they have ended
ENDED = 1  # exit code of a worker whose main process has ended


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker needs to know.

    Parameters
    ----------
    folder
        The folder of the running service: sockets and metrics.
    address
        Host and port to listen at, together with the other workers.
    family
        The address family of the host.
    n_threads
        How many threads may score a batch.
    max_connections
        How many connections may be open.
    journal, tokens, hosts, origins
        As for `create_app`.
    is_quiet
        Whether requests are not logged.
    """

    folder: Path
    address: tuple[str, int]
    family: int
    n_threads: int
    max_connections: int
    journal: Path | None
    tokens: Tokens
    hosts: Sequence[str]
    origins: Sequence[str]
    is_quiet: bool


class WorkerRegistry(ModelRegistry):
    """The models that the main process has sent."""

    def __init__(self) -> None:
        self.folders, self.errors = {}, {}
        self.models: dict[str, ServedModel] = {}
        self.refused: set[str] = set()  # models that do not work

    def __getitem__(self, name: str | None) -> ServedModel:
        if name in self.refused or (name is None and not self.models):
            raise HTTPException(503, f"The model {name or ''} does not work; GET /models tells why.")
        return super().__getitem__(name)


class ModelReceiver:
    """The connection to the main process, over which models arrive.

    Parameters
    ----------
    registry
        Where models are served from.
    folder
        The folder of the running service.
    """

    def __init__(self, registry: WorkerRegistry, folder: Path) -> None:
        self.registry, self.folder = registry, folder
        self.loaded: dict[int, ServedModel] = {}  # models to be served soon, by number
        self.matrices: dict[int, weakref.ref[np.ndarray]] = {}  # what models have mapped, while a request may read it
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.connect(str(folder / MODEL_SOCKET))
        self.connection.send(str(os.getpid()).encode())

    def receive(self) -> bool:
        """Do what one message says. Return False once all models have arrived; raise OSError when the main process ended."""
        content, descriptors, _, _ = socket.recv_fds(self.connection, MESSAGE_BYTES, MAX_DESCRIPTORS)
        if not content:
            raise ConnectionError("the main process has ended")
        message = json.loads(content)
        if message["do"] == "start":
            return False
        error = None
        try:
            getattr(self, f"_{message['do']}")(message, descriptors)
        except Exception as problem:
            if message["do"] != "release":  # there, the main process takes other memory
                SERVICE_LOG.exception("%s cannot be served", message["name"])
            error = f"{type(problem).__name__}: {problem}"
        self.connection.send(json.dumps({"error": error}).encode())
        return True

    def _load(self, message: dict[str, Any], descriptors: Sequence[int]) -> None:
        shared = SharedModel(descriptors[0], message["n_array_bytes"], descriptors[1] if len(descriptors) > 1 else None)
        try:
            served = ServedModel(message["name"], map_model(shared))
        finally:
            shared.close()
        served.warm_up()
        self.loaded[message["number"]] = served
        if shared.matrix is not None:
            entries = find_full_matrix(served.model)
            assert entries is not None
            self.matrices[message["number"]] = weakref.ref(find_root(entries))

    def _serve(self, message: dict[str, Any], descriptors: Sequence[int]) -> None:
        served = self.loaded.pop(message["number"])
        self.registry.models[served.name] = served
        self.registry.refused.discard(served.name)
        for number, other in list(self.loaded.items()):
            if other.name == served.name and number < message["number"]:
                del self.loaded[number]

    def _release(self, message: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Wait until no request reads a model that was served."""
        matrix, deadline = self.matrices.pop(message["number"], None), time.monotonic() + RELEASE_SECONDS
        while matrix is not None and matrix() is not None:
            if time.monotonic() > deadline:
                raise TimeoutError("a request that takes long reads the old model")
            time.sleep(RELEASE_POLL_SECONDS)

    def _refuse(self, message: dict[str, Any], descriptors: Sequence[int]) -> None:
        self.registry.refused.add(message["name"])

    def receive_all(self, n_threads: int) -> None:
        """Receive messages until the main process ends; then end this process."""
        set_num_threads(n_threads)
        with suppress(OSError):
            while True:
                self.receive()
        SERVICE_LOG.warning("worker %d stops, because the main process has ended", os.getpid())
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(ENDED)


class WorkerService(Service):
    """The endpoints of a worker.

    Parameters
    ----------
    settings
        What the worker was told.
    metrics
        The metrics that all processes share.
    """

    def __init__(self, settings: WorkerSettings, metrics: Metrics) -> None:
        registry = WorkerRegistry()
        super().__init__(registry, settings.journal, metrics, n_threads=settings.n_threads)
        self.settings, self.receiver = settings, ModelReceiver(registry, settings.folder)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Receive the models before any request is accepted, and further ones while the application runs."""
        await to_thread(app.openapi)
        while await to_thread(self.receiver.receive):
            pass
        await self.warm_up_all()
        tune_interpreter()
        receive = self.receiver.receive_all
        threading.Thread(target=receive, args=(self.settings.n_threads,), name="models", daemon=True).start()
        warming = asyncio.create_task(self.warm_up_reranking())
        self.is_warm = True
        yield
        self.is_warm = False
        await asyncio.wait({warming})
        for queue in (self.singles, self.batches, self.lookups, self.writes):
            queue.close()

    async def warm_up(self, served: ServedModel) -> None:
        """Load the kernels of a model, in the threads that use them. The main process has tried the model already."""
        run = asyncio.get_running_loop().run_in_executor
        await run(self.singles.executor, served.warm_up)
        await run(self.batches.executor, served.warm_up_batch)
        await run(self.lookups.executor, served.search, "", 1)

    async def models(self, request: Request) -> Response:  # type: ignore[override]
        """List the served models."""
        return await self.forward(request)

    async def model(self, request: Request, name: str) -> Response:  # type: ignore[override]
        """Describe a model: its data, benchmark metrics, spectrum or weights, and the popularity of what it recommends."""
        return await self.forward(request)

    async def add_events(self, request: Request) -> Response:
        """Learn events. They are on the disk when the response is sent, and in the answers after the next update."""
        return await self.forward(request)

    async def forget_user(self, request: Request, user: str, model: str | None = None) -> Response:  # type: ignore[override]
        """Forget a user. The response is the receipt, sent when neither the model nor its files have a trace of the user."""
        return await self.forward(request)

    async def reload(self, request: Request) -> Response:  # type: ignore[override]
        """Load models that were replaced on disk, now. A broken model never replaces a working one."""
        return await self.forward(request)

    async def prometheus_metrics(self, request: Request) -> Response:  # type: ignore[override]
        """Return metrics in Prometheus format."""
        return await self.forward(request)

    async def forward(self, request: Request) -> Response:
        """Send a request to the main process, and return its response."""
        try:
            return await asyncio.wait_for(forward_request(request, self.settings.folder / OWNER_SOCKET), FORWARD_SECONDS)
        except (OSError, TimeoutError):
            raise HTTPException(503, "The main process does not answer. Try again later.", RETRY_AFTER) from None


async def forward_request(request: Request, path: Path) -> Response:
    """Send a request to the socket of another process, and return its response."""
    body, scope = await request.body(), request.scope
    target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    kind = b"content-type: application/json\r\n" if body else b""
    head = b"%b %b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n%bcontent-length: %d\r\n\r\n"
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(head % (request.method.encode(), target, kind, len(body)) + body)
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if len(content) != int(headers.get("content-length", -1)):
        raise ConnectionError("the response was cut off")  # the main process was killed
    kept = {name: headers[name] for name in FORWARDED_HEADERS if name in headers}
    return Response(content, int(first.split()[1]), kept)


def run_worker(settings: WorkerSettings, is_listening: Any) -> None:
    """Serve until this process is told to stop.

    Parameters
    ----------
    settings
        What the worker needs to know.
    is_listening
        An event of the main process, set once requests are accepted.
    """
    configure_logging(is_quiet=settings.is_quiet)
    set_num_threads(settings.n_threads)
    metrics = Metrics(is_shared=True)
    service = WorkerService(settings, metrics)
    middleware = list_middleware(metrics, settings.tokens, BodyLimits(), settings.hosts, settings.origins)
    limits = ConnectionLimits(max_connections=settings.max_connections)
    app = assemble_app(service, middleware)
    server = LimitedServer(app, *settings.address, limits, on_listen=lambda address: is_listening.set())
    with suppress(KeyboardInterrupt):  # Ctrl-C reaches every process of a terminal
        server.run([bind_shared(settings.family, settings.address)])
    sys.exit(0)


def bind_shared(family: int, address: tuple[str, int]) -> socket.socket:
    """Return a socket at an address that other processes of this user have bound, too. The system spreads connections."""
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address)
    return bound
