"""`gramian serve`: reads tokens, sets up the log and runs Uvicorn."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from gramian.errors import InvalidInput, MissingFile
from gramian.service import SERVICE_LOG
from gramian.service.app import create_app
from gramian.service.http_protocol import ConnectionLimits, LimitedProtocol
from gramian.service.middleware.access import Tokens
from gramian.service.model_registry import ModelRegistry

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
TOKEN_VARIABLES = ("GRAMIAN_READ_TOKEN", "GRAMIAN_ADMIN_TOKEN", "GRAMIAN_WRITE_TOKEN")
MIN_TOKEN_LENGTH = 16  # characters; shorter ones can be guessed
SHUTDOWN_SECONDS = 10  # for running requests to finish
SWITCH_SECONDS = 0.0005  # for which one thread may keep the interpreter from another that asks for it, in place of 5 ms
GC_THRESHOLD = 2_000  # new objects between two collections, about 90 requests: 2 ms each. With 100,000 it was 150 ms each
DEFAULT_CONNECTION_LIMITS = ConnectionLimits()
TokenFiles = tuple[Path | None, Path | None, Path | None]  # read, admin, write


class LimitedServer(uvicorn.Server):
    """Uvicorn with limits on connections.

    Parameters
    ----------
    app
        The application.
    host, port
        The address to listen at; port 0 for any free port.
    limits
        The limits on connections.
    on_listen
        Called with the URL, once it listens there.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str = "127.0.0.1",
        port: int = 0,
        limits: ConnectionLimits = DEFAULT_CONNECTION_LIMITS,
        on_listen: Callable[[str], None] = lambda address: None,
    ) -> None:
        self.on_listen = on_listen
        options: dict[str, Any] = {"access_log": False, "log_config": None, "log_level": "warning", "server_header": False}
        options |= {"http": partial(LimitedProtocol, limits), "ws": "none", "timeout_keep_alive": limits.idle_seconds}
        options |= {"timeout_graceful_shutdown": SHUTDOWN_SECONDS}
        super().__init__(uvicorn.Config(app, host=host, port=port, **options))

    @property
    def address(self) -> str:
        """The URL at which it listens."""
        return format_address(self.config.host, self.servers[0].sockets[0].getsockname()[1])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_listen(self.address)


def run_server(
    registry: ModelRegistry,
    *,
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
    """Serve until interrupted.

    Parameters
    ----------
    registry
        The served models.
    host, port
        The address to listen at; port 0 for any free port.
    max_connections
        How many connections may be open.
    journal
        A benchmark journal for the leaderboard.
    token_files
        Files with the read, the admin and the write token, where they are not in the environment.
    hosts
        Further host names that requests may use.
    origins
        Other sites whose pages may send requests.
    quiet
        Log no requests.
    log
        A folder for event logs, if the models shall learn events.
    follow
        A file or folder whose events the first model learns.
    """
    configure_logging(is_quiet=quiet)
    tokens = read_tokens(token_files)
    warn_of_access(host, tokens, log)
    app = create_app(
        registry,
        journal=journal,
        tokens=tokens,
        hosts=list_hosts(host, hosts),
        origins=origins,
        on_warm=tune_interpreter,
        log=log,
        follow=follow,
    )
    server = LimitedServer(app, host, port, ConnectionLimits(max_connections=max_connections), registry.announce)
    with suppress(SystemExit):  # raised by Uvicorn where it cannot listen
        server.run()
    if not server.started:
        raise port_error(host, port)


def configure_logging(*, is_quiet: bool) -> None:
    """Log to the standard error, requests too unless it shall be quiet."""
    if not is_quiet:
        SERVICE_LOG.setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s")


def warn_of_access(host: str, tokens: Tokens, log: Path | None) -> None:
    """Refuse a log that other machines could write to without a token, and warn of models that they can read."""
    if host in LOOPBACK_HOSTS:
        return
    if log is not None and tokens.write is tokens.admin is None:
        do = f"Set {TOKEN_VARIABLES[2]}, or pass --write-token FILE"
        raise InvalidInput(f"a write token with --log at {host}, which other machines reach", "none", do)
    if tokens.read is None:
        SERVICE_LOG.warning("%s can be reached from other machines, and no token is set. Set %s.", host, TOKEN_VARIABLES[0])


def list_hosts(host: str, hosts: Sequence[str]) -> list[str]:
    """Return the host names that requests may use, given the address to listen at and further names."""
    return [*LOOPBACK_HOSTS, *hosts] if host in LOOPBACK_HOSTS else list(hosts)


def format_address(host: str, port: int) -> str:
    """Return the URL of a host and a port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def port_error(host: str, port: int) -> InvalidInput:
    """Return the error for a port that is taken."""
    return InvalidInput(f"a free port at {host}", f"{port}, which is taken", "Choose another with --port")


def tune_interpreter() -> None:
    """Set the interpreter up for requests that are answered beside updates and batches.

    The garbage of loading and compiling is collected now, and from then on only that of requests: later, the first collection
    would delay requests by 0.1 to 0.2 s. A request changes between threads several times, and takes the interpreter from a
    busy one each time.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what was loaded stays, so the garbage collector need not look at it again
    gc.set_threshold(GC_THRESHOLD)
    gc.enable()


def read_tokens(files: TokenFiles) -> Tokens:
    """Read the read, the admin and the write token, each from its file or from the environment."""
    tokens: list[str | None] = []
    for file, variable in zip(files, TOKEN_VARIABLES, strict=True):
        if file is not None and not file.is_file():
            raise MissingFile(f"a token in {file}", "no such file", "Check the path")
        token = os.environ.get(variable) if file is None else file.read_text(encoding="utf-8").strip()
        if token is not None and (
            len(token) < MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable() or " " in token
        ):
            raise InvalidInput(
                f"a token of at least {MIN_TOKEN_LENGTH} letters and digits",
                f"{len(token)} characters",
                "Make one: openssl rand -hex 32",
            )
        tokens.append(token)
    return Tokens(*tokens)
