"""`gramian serve`: models over HTTP."""

from __future__ import annotations

import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from gramian.errors import NotSupported
from gramian.service import METRICS_FOLDER
from gramian.service.model_registry import ModelRegistry, read_kernels
from gramian.service.shared_registry import SharedRegistry
from gramian.validation import format_install_advice


def serve_command(
    models: Annotated[
        list[Path], typer.Argument(help="Model folders that `gramian fit` wrote; each is served under its folder's name.")
    ],
    *,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at; 0 for any free one.", min=0, max=65_535)] = 8000,
    max_connections: Annotated[
        int,
        typer.Option(
            help="Maximum number of open connections; beyond it, a new one closes the one that has been idle longest.", min=1
        ),
    ] = 500,
    journal: Annotated[Path | None, typer.Option(help="A benchmark's journal, for the leaderboard on the page.")] = None,
    read_token: Annotated[
        Path | None,
        typer.Option(help="A file with the token that requests must carry; or set GRAMIAN_READ_TOKEN.", show_default=False),
    ] = None,
    admin_token: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token for reloading models and other changes; or set GRAMIAN_ADMIN_TOKEN.", show_default=False
        ),
    ] = None,
    write_token: Annotated[
        Path | None,
        typer.Option(
            help="A file with the token for sending events and forgetting users; or set GRAMIAN_WRITE_TOKEN.",
            show_default=False,
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="A folder for event logs. With it, POST /events and DELETE /users/{id} change the served models."),
    ] = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            help="A file of JSON lines, or a folder of .jsonl files, that is followed: the first model learns its events. "
            "Needs --log."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name of this service, as behind a reverse proxy; repeat for more."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="A site whose pages may send requests (CORS), such as https://example.org; repeat for more."),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Processes that answer requests, from one copy of the models in memory. Beyond 1, another process owns the "
            "models and the event logs. Linux only.",
            min=1,
            max=64,
        ),
    ] = 1,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> None:
    """Serve models over HTTP, with a page that shows what they recommend and why."""
    is_shared = workers > 1
    if is_shared and sys.platform != "linux":
        do = "Leave --workers out, or run several services behind a proxy"
        raise NotSupported("Linux, to serve with --workers", sys.platform, do)
    gc.disable()  # the server enables it once its models are warm: little of what is allocated until then becomes garbage
    with ExitStack() as stack:
        if is_shared:  # Prometheus' client reads the variable when it is imported
            os.environ[METRICS_FOLDER] = stack.enter_context(TemporaryDirectory(prefix="gramian-"))
        with ThreadPoolExecutor(1) as background:
            load: type[ModelRegistry] = SharedRegistry if is_shared else ModelRegistry
            loading = background.submit(load, models)  # while the web framework is imported
            try:
                from gramian.service import server, supervisor  # noqa: PLC0415
            except ModuleNotFoundError as error:
                got, do = f"no {error.name}", format_install_advice("serve")
                raise NotSupported("FastAPI and Uvicorn, to serve", got, do) from None
            read_kernels()
        registry = loading.result()
        options: dict[str, Any] = {
            "host": host,
            "port": port,
            "max_connections": max_connections,
            "journal": journal,
            "token_files": (read_token, admin_token, write_token),
            "hosts": allow_host or [],
            "origins": allow_origin or [],
            "quiet": quiet,
            "log": log,
            "follow": follow,
        }
        if isinstance(registry, SharedRegistry):
            supervisor.run_workers(registry, n_workers=workers, **options)
        else:
            server.run_server(registry, **options)
