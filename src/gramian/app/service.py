"""`gramian serve`: tokens, an address, a log, and Uvicorn."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn

from gramian.app.guard import LOG, LOOPBACK, Tokens
from gramian.app.serve import create_app
from gramian.app.shelf import Shelf
from gramian.errors import InvalidInput, MissingFile

VARIABLES = ("GRAMIAN_READ_TOKEN", "GRAMIAN_ADMIN_TOKEN")
SHORTEST = 16  # characters of a token worth the name


def run(
    shelf: Shelf,
    *,
    host: str,
    port: int,
    journal: Path | None,
    tokens: tuple[Path | None, Path | None],
    hosts: Sequence[str],
    origins: Sequence[str],
    quiet: bool,
) -> None:
    """Serve until told to stop."""
    known = tokens_of(tokens)
    if not quiet:
        LOG.setLevel(logging.INFO)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(message)s")
    own = [*LOOPBACK, *hosts] if host in LOOPBACK else list(hosts)
    app = create_app(shelf, journal=journal, tokens=known, hosts=own, origins=origins)
    if host not in LOOPBACK and known.read is None:
        LOG.warning("%s can be reached from elsewhere and has no token: set %s, say.", host, VARIABLES[0])
    settings: dict[str, Any] = {"access_log": False, "log_config": None, "log_level": "warning", "server_header": False}
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, timeout_graceful_shutdown=10, **settings))
    LOG.warning("Serving %s at http://%s:%d", ", ".join(shelf.models), host, port)
    gc.freeze()  # what is there now stays, and need not be looked through again and again
    gc.enable()
    with suppress(SystemExit):  # with which Uvicorn ends where it cannot listen
        server.run()
    if not server.started:
        raise InvalidInput(f"a free port at {host}", f"{port}, which is taken", "Choose another with --port")


def tokens_of(files: tuple[Path | None, Path | None]) -> Tokens:
    """The read and the admin token, each from its file or from the environment."""
    found: list[str | None] = []
    for file, variable in zip(files, VARIABLES, strict=True):
        if file is not None and not file.is_file():
            raise MissingFile(f"a token in {file}", "no such file", "Check the path")
        token = os.environ.get(variable) if file is None else file.read_text(encoding="utf-8").strip()
        if token is not None and (len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token):
            raise InvalidInput(
                f"a token of at least {SHORTEST} letters and digits",
                f"{len(token)} characters",
                "Make one: openssl rand -hex 32",
            )
        found.append(token)
    return Tokens(*found)
