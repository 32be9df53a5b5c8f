"""Recommendations over HTTP from one or more saved models, and a page that shows them.

Ids are numbers or text, as the model has them; a number may be sent as text. Every error is a 4xx with {"error": a sentence},
or a 503 with Retry-After while the service is overloaded.
"""

from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from gramian.errors import GramianError, InvalidInput, MissingFile, NotSupported, UnknownId
from gramian.service import schemas
from gramian.service.api_docs import describe_bodies, render_api_docs
from gramian.service.endpoints import AsciiJSONResponse, Service
from gramian.service.live_updates import LiveModel
from gramian.service.metrics import Metrics
from gramian.service.middleware.access import AccessMiddleware, Tokens
from gramian.service.middleware.body_limits import BodyLimitMiddleware, BodyLimits
from gramian.service.middleware.responses import ResponseMiddleware
from gramian.service.model_registry import ModelRegistry

PAGE_FOLDER = Path(__file__).with_name("page")
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
MAX_LISTED_ERRORS = 100  # of a body
MAX_VALIDATION_MESSAGE = 300  # characters of Pydantic's message that a response repeats
ERROR_STATUS = {UnknownId: 404, MissingFile: 404, NotSupported: 409}  # of other errors: 422
ERROR_SCHEMAS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse} for status in (400, 404, 409, 413, 415, 422, 429, 431, 503)
}
HTTP_ERRORS = {
    404: "There is nothing at this address; see /docs.",
    405: "This address does not take this method; see /docs.",
}
DEFAULT_LIMITS, NO_TOKENS = BodyLimits(), Tokens()


def create_app(
    models: ModelRegistry | Sequence[str | Path],
    *,
    journal: Path | None = None,
    tokens: Tokens = NO_TOKENS,
    limits: BodyLimits = DEFAULT_LIMITS,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    on_warm: Callable[[], None] = lambda: None,
    log: str | Path | None = None,
    follow: str | Path | None = None,
) -> FastAPI:
    """Return the service as an ASGI application. Models that are replaced on disk are picked up while it runs.

    Parameters
    ----------
    models
        Model folders; each is served under the name of its folder.
    journal
        A benchmark journal for the leaderboard.
    tokens
        The bearer tokens that requests need; none by default.
    limits
        The largest body of a request, and the time it may take to arrive.
    hosts
        The host names that requests may use; any by default.
    origins
        Other sites whose pages may send requests, such as "https://example.org".
    on_warm
        Called once, when the models are loaded and warm.
    log
        A folder for the event logs of the models. With it, the service learns events and forgets users.
    follow
        A file, or a folder of .jsonl files, whose events the first model learns; it needs a log.
    """
    metrics = Metrics()
    registry = models if isinstance(models, ModelRegistry) else ModelRegistry([Path(folder) for folder in models])
    service = create_service(registry, metrics, journal, on_warm, log, follow)
    return assemble_app(service, list_middleware(metrics, tokens, limits, hosts, origins))


def create_service(
    registry: ModelRegistry,
    metrics: Metrics,
    journal: Path | None = None,
    on_warm: Callable[[], None] = lambda: None,
    log: str | Path | None = None,
    follow: str | Path | None = None,
) -> Service:
    """Return the endpoints; the parameters are those of `create_app`."""
    if follow is not None and log is None:
        raise InvalidInput("log=folder with follow", "no log", "Pass log=folder, in which the followed events are kept")
    live = {} if log is None else {name: LiveModel(name, registry, Path(log), metrics) for name in registry.models}
    followed = None if follow is None else Path(follow)
    return Service(registry, journal, metrics, on_warm, live, follow=followed)


def assemble_app(service: Service, middleware: Sequence[Middleware]) -> FastAPI:
    """Return the application with these endpoints and this middleware."""
    app = FastAPI(
        title="Gramian",
        description=__doc__,
        version=version("gramian"),
        docs_url=None,
        redoc_url=None,
        lifespan=service.lifespan,
        responses=ERROR_SCHEMAS,
        middleware=middleware,
        exception_handlers={
            GramianError: handle_gramian_error,
            RequestValidationError: handle_query_error,
            ValidationError: handle_body_error,
            HTTPException: handle_http_error,
        },
    )
    bodies: dict[str, type[BaseModel]] = {}
    for method, path, endpoint, body, schema in (
        ("POST", "/recommend", service.recommend, schemas.RecommendRequest, schemas.RecommendResponse),
        ("POST", "/recommend/batch", service.recommend_batch, schemas.BatchRequest, schemas.BatchResponse),
        ("GET", "/similar", service.similar, None, schemas.SimilarResponse),
        ("POST", "/explain", service.explain, schemas.ExplainRequest, schemas.ExplainResponse),
        ("POST", "/influence", service.influence, schemas.InfluenceRequest, schemas.InfluenceResponse),
        ("POST", "/explain/missing", service.explain_missing, schemas.ExplainMissingRequest, schemas.ExplainMissingResponse),
        ("POST", "/history", service.user_history, schemas.HistoryRequest, schemas.HistoryResponse),
        ("GET", "/items", service.items, None, schemas.ItemsResponse),
        ("GET", "/models", service.models, None, schemas.ModelsResponse),
        ("GET", "/models/{name}", service.model, None, schemas.ModelCard),
        ("GET", "/leaderboard", service.leaderboard, None, schemas.LeaderboardResponse),
        ("POST", "/events", service.add_events, schemas.EventsRequest, schemas.EventsResponse),
        ("DELETE", "/users/{user:path}", service.forget_user, None, schemas.ForgetResponse),
        ("POST", "/reload", service.reload, None, schemas.ReloadResponse),
        ("GET", "/health", service.health, None, schemas.StatusResponse),
        ("GET", "/ready", service.ready, None, schemas.StatusResponse),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_model=schema)
        bodies |= {} if body is None else {path: body}
    app.add_api_route("/metrics", service.prometheus_metrics, response_class=PlainTextResponse)
    add_pages(app)
    build_openapi = app.openapi
    app.openapi = cache(lambda: describe_bodies(build_openapi(), bodies))  # type: ignore[method-assign]
    return app


def list_middleware(
    metrics: Metrics, tokens: Tokens, limits: BodyLimits, hosts: Sequence[str], origins: Sequence[str]
) -> list[Middleware]:
    """Return the middleware, outermost first: every response has the headers and is counted, refusals too."""
    stack = [Middleware(ResponseMiddleware, metrics)]
    if hosts:
        bracketed = [f"[{host}]" if ":" in host else host for host in hosts]  # IPv6 addresses as in the Host header
        stack.append(Middleware(TrustedHostMiddleware, bracketed, www_redirect=False))
    if origins:
        stack.append(Middleware(CORSMiddleware, origins, allow_methods=["GET", "POST"], allow_headers=["*"]))
    return [*stack, Middleware(AccessMiddleware, origins, tokens), Middleware(BodyLimitMiddleware, limits)]


def add_pages(app: FastAPI) -> None:
    """Add the page, its files and /docs. The files are read once: no path of a request reaches the file system."""
    files = {path.name: path.read_bytes() for path in sorted(PAGE_FOLDER.iterdir()) if path.suffix in MEDIA_TYPES}

    def send_file(name: str) -> Response:
        return Response(files[name], media_type=MEDIA_TYPES[Path(name).suffix], headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return send_file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        return send_file(name) if name in files else error_response(404, "There is no such page.")

    @cache
    def render_docs() -> str:
        return render_api_docs(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(await to_thread(render_docs))


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error with a sentence for the person who sent the request."""
    return AsciiJSONResponse({"error": message}, status, headers)


async def handle_gramian_error(request: Request, error: Any) -> Response:
    return error_response(ERROR_STATUS.get(type(error), 422), str(error))


async def handle_http_error(request: Request, error: Any) -> Response:
    message = HTTP_ERRORS.get(error.status_code, str(error.detail))
    return error_response(error.status_code, message, error.headers)


async def handle_query_error(request: Request, error: Any) -> Response:
    return validation_response(error.errors())


async def handle_body_error(request: Request, error: Any) -> Response:
    if error.error_count() > MAX_LISTED_ERRORS:  # listing a million would take seconds
        return error_response(422, f"There are {error.error_count():,} errors in this request. See /docs.")
    return validation_response(error.errors(include_input=False, include_url=False))


def validation_response(errors: Sequence[Any]) -> Response:
    """Name the first field that is wrong, and how many other errors there are."""
    first, *others = errors
    field = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    more = f" (and {len(others)} more)" if others else ""
    return error_response(422, f"{field or 'The request'}: {first['msg'][:MAX_VALIDATION_MESSAGE]}{more}. See /docs.")
