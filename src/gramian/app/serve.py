"""The service: recommendations over HTTP from one or more saved models, and the page that shows what they think.

Ids are numbers or text, as the model has them; a number may be sent as text. Every error is a 4xx with {"error": a sentence}.
"""

import asyncio
import json
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from numba import set_num_threads
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from gramian.app import describe, shapes
from gramian.app.guard import LOG, OPEN_TO_ALL, USUAL, App, Counts, Guard, Limits, Tokens
from gramian.app.portrait import portrait
from gramian.app.shapes import HISTORY, LONGEST
from gramian.app.shelf import MANY, Listed, Served, Shelf
from gramian.app.standings import Standings
from gramian.errors import GramianError, MissingFile, NotSupported, UnknownId

T = TypeVar("T")
PAGE = Path(__file__).with_name("page")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
WATCHED = 1.0  # seconds between looks at the folders
STATUS = {UnknownId: 404, MissingFile: 404, NotSupported: 409}  # of errors; all others are 422
ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": shapes.Error} for status in (400, 404, 413, 422)}
ERRORS[400]["content"] = {"text/plain": {}}  # Uvicorn's own words for what is no HTTP

EMPTY = Listed([], [], False)  # for somebody unknown


class Json(JSONResponse):
    """JSON in ASCII: what cannot be encoded, such as half of an emoji in an id, stays as it was sent."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class Service:
    """What is behind the addresses: models, a thread that scores for one, one for many on all cores, and what is counted."""

    def __init__(self, shelf: Shelf, journal: Path | None, counts: Counts) -> None:
        self.shelf, self.counts = shelf, counts
        self.standings = None if journal is None else Standings(journal)
        self.one = ThreadPoolExecutor(1, "one", set_num_threads, (1,))  # a core to itself: to wake the others would take longer
        self.many = ThreadPoolExecutor(1, "many")
        self.portraits: dict[str, tuple[Served, dict[str, Any]]] = {}
        self.is_ready = False

    @asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(self.watch())
        yield
        self.is_ready = False
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        self.one.shutdown(cancel_futures=True)
        self.many.shutdown(cancel_futures=True)

    async def watch(self) -> None:
        """Warm up, then look at the folders again and again."""
        every = list(self.shelf.models.values())
        for served in every:
            await self.scored(served.warm)
        for served in every:
            await to_thread(served.unfold)
            await self.scored(served.warm)
            await asyncio.get_running_loop().run_in_executor(self.many, served.warm, MANY)
        self.is_ready = True
        while True:
            await asyncio.sleep(WATCHED)
            try:
                await to_thread(self.refresh)
            except Exception:
                LOG.exception("Looking for replaced models failed; trying again")

    async def scored(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.one, work)

    def refresh(self, *, again: bool = False) -> dict[str, bool]:
        before = dict(self.shelf.failed)
        replaced = self.shelf.refresh(again=again)
        for name, fresh in replaced.items():
            if fresh or self.shelf.failed.get(name) != before.get(name):
                self.counts.loads.labels(name, "replaced" if fresh else "failed").inc()
                LOG.warning("%s: %s", name, "replaced" if fresh else f"the one before goes on. {self.shelf.failed[name]}")
        return replaced

    async def recommend(self, ask: shapes.AskOne) -> Response:
        """The best items for one user or history."""
        served = self.shelf[ask.model]
        (found,) = await self.scored(lambda: ask.lists(served, ask.of(served)))
        self.counts.lists.labels(served.name).inc()
        return Json({"model": served.name, **vars(found)})

    async def recommend_batch(self, ask: shapes.AskMany) -> Response:
        """The best items for many users and histories: first the users' lists, then the histories', in their order."""
        served = self.shelf[ask.model]

        def work() -> bytes:
            here = (served.users.positions(ask.users) >= 0).tolist()
            known = [user for user, own in zip(ask.users, here, strict=True) if own]
            given: list[list[shapes.Id]] = [*([] for _ in known), *ask.histories]
            found = ask.lists(served, served.histories(given, users=[*known, *(None for _ in ask.histories)]))
            self.counts.lists.labels(served.name).inc(len(found))
            of_user = dict(zip(known, found, strict=False))
            lists = [{"user": user, **vars(of_user.get(user, EMPTY))} for user in ask.users]
            lists += [vars(own) for own in found[len(known) :]]
            unknown = [user for user in ask.users if user not in of_user]
            return bytes(Json({"model": served.name, "lists": lists, "unknown_users": unknown}).body)

        found = await asyncio.get_running_loop().run_in_executor(self.many, work)
        return Response(found, media_type="application/json")

    async def similar(self, item: str, model: str | None = None, k: Annotated[int, Query(ge=1, le=LONGEST)] = 10) -> Response:
        """The items most similar to one."""
        served = self.shelf[model]
        found = await self.scored(lambda: served.similar(item, k))
        return Json({"model": served.name, **found})

    async def explain(self, ask: shapes.AskWhy) -> Response:
        """Why an item has its score: what each item of the history adds to it."""
        served = self.shelf[ask.model]
        found = await self.scored(lambda: served.explain(ask.item, ask.of(served)))
        return Json({"model": served.name, **found})

    async def items(
        self,
        model: str | None = None,
        query: Annotated[str, Query(max_length=200, description="Words of a title")] = "",
        id: Annotated[list[str], Query(max_length=HISTORY, description="Ids, in place of words")] = [],  # noqa: B006
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        """Items by words of their title, those that begin with them first; or by ids."""
        served = self.shelf[model]
        if id:
            found, unknown = served.look_up(id)
            return Json({"items": found, "unknown": unknown})
        return Json({"items": await to_thread(served.search, query, limit), "unknown": []})

    async def models(self) -> Response:
        """The models that are served."""
        return Json({"models": [self.facts(served) for served in self.shelf.models.values()]})

    def facts(self, served: Served) -> dict[str, Any]:
        return served.facts() | {"failed": self.shelf.failed.get(served.name)}

    async def model(self, name: str) -> Response:
        """A model: its facts, its figures in the benchmark journal, its spectrum or weights, how popular its lists are."""
        served, standings = self.shelf[name], self.standings
        measured = [] if standings is None else await to_thread(standings.measured, served.model.recipe)
        return Json(self.facts(served) | {"measured": measured} | await self.scored(lambda: self.portrait(served)))

    def portrait(self, served: Served) -> dict[str, Any]:
        known, found = self.portraits.get(served.name, (None, {}))
        if known is not served:
            found = portrait(served)
            self.portraits[served.name] = served, found
        return found

    async def leaderboard(self) -> Response:
        """The tables of the benchmark journal."""
        if self.standings is None:
            raise MissingFile("a benchmark journal", "none", "Serve one with --journal FILE")
        return Json({"tables": await to_thread(self.standings.tables)})

    async def reload(self) -> Response:
        """Load models that were replaced on disk now. A broken one never takes the place of a good one."""
        replaced = await to_thread(self.refresh, again=True)
        return Json({"models": replaced, "failed": self.shelf.failed})

    async def health(self) -> Response:
        """Whether the service answers."""
        return Json({"status": "ok"})

    async def ready(self) -> Response:
        """Whether its models are loaded and warm."""
        return Json({"status": "ready"}) if self.is_ready else Json({"status": "warming up"}, 503)

    async def metrics(self) -> Response:
        """For Prometheus."""
        return Response(generate_latest(self.counts.registry), media_type=CONTENT_TYPE_LATEST)


def create_app(
    models: Shelf | Sequence[str | Path],
    *,
    journal: Path | None = None,
    tokens: Tokens = OPEN_TO_ALL,
    limits: Limits = USUAL,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> App:
    """The service of model folders as an ASGI application. Those that are replaced are picked up while it runs."""
    counts = Counts()
    shelf = models if isinstance(models, Shelf) else Shelf([Path(folder) for folder in models])
    service = Service(shelf, journal, counts)
    app = FastAPI(
        title="Gramian",
        description=__doc__,
        version=version("gramian"),
        docs_url=None,
        redoc_url=None,
        lifespan=service.running,
        responses=ERRORS,
    )
    for method, path, answer, shape in (
        ("POST", "/recommend", service.recommend, shapes.ListOf),
        ("POST", "/recommend/batch", service.recommend_batch, shapes.Lists),
        ("GET", "/similar", service.similar, shapes.Similar),
        ("POST", "/explain", service.explain, shapes.Reason),
        ("GET", "/items", service.items, shapes.Items),
        ("GET", "/models", service.models, shapes.Models),
        ("GET", "/models/{name}", service.model, shapes.Model),
        ("GET", "/leaderboard", service.leaderboard, shapes.Leaderboard),
        ("POST", "/reload", service.reload, shapes.Reloaded),
        ("GET", "/health", service.health, shapes.Status),
        ("GET", "/ready", service.ready, shapes.Status),
    ):
        app.add_api_route(path, answer, methods=[method], response_model=shape)
    app.add_api_route("/metrics", service.metrics, response_class=PlainTextResponse)
    add_pages(app)
    app.add_exception_handler(GramianError, lambda request, error: problem(STATUS.get(type(error), 422), str(error)))
    app.add_exception_handler(RequestValidationError, wrong)
    app.add_exception_handler(HTTPException, nowhere)
    inner: App = CORSMiddleware(app, origins, allow_methods=["GET", "POST"], allow_headers=["*"]) if origins else app
    return Guard(inner, counts, limits, tokens, hosts, origins)


def add_pages(app: FastAPI) -> None:
    """The page and its parts, read once: no path of a request reaches the file system."""
    files = {path.name: path.read_bytes() for path in sorted(PAGE.iterdir()) if path.suffix in TYPES}

    def sent(name: str) -> Response:
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return sent("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return sent(name) if name in files else problem(404, "There is no such page.")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(describe.page(app.openapi()))


def problem(status: int, why: str) -> Response:
    return Json({"error": why}, status)


def nowhere(request: Request, error: Any) -> Response:
    words = {404: "There is nothing at this address; see /docs.", 405: "This address does not take this method; see /docs."}
    found = problem(error.status_code, words.get(error.status_code, str(error.detail)))
    found.headers.update(error.headers or {})
    return found


def wrong(request: Request, error: Any) -> Response:
    """The first of what is wrong with a request, in words."""
    first, *others = error.errors()
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    more = f" (and {len(others)} more)" if others else ""
    return problem(422, f"{where or 'The request'}: {first['msg'][:300]}{more}. See /docs.")
