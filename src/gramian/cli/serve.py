"""`gramian serve`: models over HTTP."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from gramian.errors import NotSupported
from gramian.service.model_registry import ModelRegistry, read_kernels
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> None:
    """Serve models over HTTP, with a page that shows what they recommend and why."""
    gc.disable()  # the server enables it once its models are warm: little of what is allocated until then becomes garbage
    with ThreadPoolExecutor(1) as background:
        loading = background.submit(ModelRegistry, models)  # while the web framework is imported
        try:
            from gramian.service import server  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise NotSupported("FastAPI and Uvicorn, to serve", f"no {error.name}", format_install_advice("serve")) from None
        read_kernels()
    server.run_server(
        loading.result(),
        host=host,
        port=port,
        max_connections=max_connections,
        journal=journal,
        token_files=(read_token, admin_token, write_token),
        hosts=allow_host or [],
        origins=allow_origin or [],
        quiet=quiet,
        log=log,
        follow=follow,
    )
