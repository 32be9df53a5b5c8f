"""The endpoints and what they share: the models, the threads that do the work, and the metrics."""

import asyncio
import json
import threading
from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar
from weakref import WeakKeyDictionary

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from gramian.errors import GramianError, InvalidInput, MissingFile, NotSupported
from gramian.service import SERVICE_LOG, schemas
from gramian.service.follow import EventFollower
from gramian.service.leaderboard import Leaderboard
from gramian.service.live_updates import LiveModel
from gramian.service.metrics import Metrics
from gramian.service.model_card import build_model_card
from gramian.service.model_registry import ModelRegistry
from gramian.service.schemas import MAX_HISTORY_LENGTH, MAX_LIST_LENGTH
from gramian.service.served_model import ServedModel
from gramian.service.work_queue import RETRY_AFTER, MicroBatcher, WorkQueue

R = TypeVar("R")
NOTHING_LIVE: Mapping[str, LiveModel] = {}
REFRESH_INTERVAL = 1.0  # seconds between two checks for replaced models
RELOAD_SECONDS = 120.0  # after which a model that is still being loaded is reported as failed
MAX_QUERY_LENGTH = 200  # characters of a search
MAX_SEARCH_RESULTS = 100  # items
MAX_SINGLES = 256  # single requests that wait: a quarter of a second's work
MAX_BATCHES = 16  # that wait, or whose responses are being sent; the largest response has 50 MB
MAX_LOOKUPS = 64  # searches, model cards and leaderboards that wait
MAX_WRITES = 64  # requests that wait to be appended to a log: each takes a few milliseconds
FORGET_SECONDS = 120.0  # to wait for a receipt
MAX_BATCH_PAUSE = 0.02  # seconds that a slice of a batch waits for single requests, so that batches go on under any load


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII."""

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def encode_json(content: Any) -> bytes:
    """Return JSON in ASCII, or raise `InvalidInput` if a score is not finite."""
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
    except ValueError:  # infinities and NaN have no JSON
        raise InvalidInput("finite scores", "scores beyond the range of numbers", "Send smaller weights") from None


class PiecewiseResponse(Response):
    """A large JSON response in pieces, none of which is kept once it is sent.

    Parameters
    ----------
    pieces
        The bytes.
    on_end
        Called when the response has been sent, or cannot be.
    """

    def __init__(self, pieces: list[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(media_type="application/json", headers={"content-length": str(sum(map(len, pieces)))})
        self.pieces, self.on_end = pieces, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self.pieces.reverse()
            while self.pieces:  # waits where the client reads slowly
                await send({"type": "http.response.body", "body": self.pieces.pop(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.on_end()


class Service:
    """The endpoints.

    Single requests, batches, and the look-ups of the page have a thread and a bounded queue each. Requests are parsed in these
    threads, too, so that the event loop only receives and sends.

    Parameters
    ----------
    registry
        The served models.
    journal
        A benchmark journal for the leaderboard.
    metrics
        The metrics to count lists and reloads in.
    on_warm
        Called once, when the models are loaded and warm.
    live
        The models that learn events, by name.
    follow
        A file or folder whose events the first of them learns.
    n_threads
        How many threads may score a batch; all cores by default.
    """

    def __init__(
        self,
        registry: ModelRegistry,
        journal: Path | None,
        metrics: Metrics,
        on_warm: Callable[[], None] = lambda: None,
        live: Mapping[str, LiveModel] = NOTHING_LIVE,
        *,
        follow: Path | None = None,
        n_threads: int | None = None,
    ) -> None:
        self.registry, self.metrics, self.on_warm, self.live = registry, metrics, on_warm, live
        self.follower = None if follow is None else EventFollower(follow, next(iter(live.values())))
        self.journal = None if journal is None else Leaderboard(journal)
        # Single requests are scored on one core: waking the others would take longer than the work.
        self.singles, self.batches = WorkQueue("single", MAX_SINGLES, 1), WorkQueue("batch", MAX_BATCHES, n_threads)
        self.recommendations = MicroBatcher(self.singles, self.answer_lists)
        self.lookups, self.writes = WorkQueue("look-up", MAX_LOOKUPS, n_threads), WorkQueue("write", MAX_WRITES, 1)
        self.model_cards: WeakKeyDictionary[ServedModel, dict[str, Any]] = WeakKeyDictionary()  # a replaced model must go
        self.is_warm = self.is_reloading = False

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Warm up and watch the model folders while the application runs."""
        watching = asyncio.create_task(self.watch(app))
        yield
        self.is_warm = False
        watching.cancel()
        await asyncio.wait({watching})
        for updates in (self.follower, *self.live.values()):
            if updates is not None:
                await to_thread(updates.stop)
        self.recommendations.close()
        for queue in (self.singles, self.batches, self.lookups, self.writes):
            queue.close()

    async def watch(self, app: FastAPI) -> None:
        """Warm up all models, then look for replaced ones."""
        await to_thread(app.openapi)  # which would block the event loop when it is first asked for
        await self.warm_up_all()
        self.on_warm()
        self.is_warm = True
        for live in self.live.values():
            live.start()
        if self.follower is not None:
            self.follower.start()
        await self.warm_up_reranking()
        await asyncio.gather(*(self.watch_model(name) for name in self.registry.folders))

    async def warm_up_all(self) -> None:
        """Warm up all models. In a method of its own: a loop in `watch` would keep the last model in memory for ever."""
        for served in list(self.registry.models.values()):
            await self.warm_up(served)

    async def warm_up_reranking(self) -> None:
        """Load the kernels of what few requests need, after the service is ready: a failure concerns these requests alone.

        On a new machine they are compiled, which takes many seconds. It must not hold up a queue of requests.
        """
        for served in [served for served in self.registry.models.values() if not served.is_broken]:
            try:
                await to_thread(served.warm_up_reranking)
            except Exception:
                SERVICE_LOG.exception("%s: re-ranking failed in the warm-up", served.name)

    async def warm_up(self, served: ServedModel) -> None:
        """Load the kernels of a model, in the threads that use them. A model that fails is not served; the others are."""
        run = asyncio.get_running_loop().run_in_executor
        try:
            await run(self.singles.executor, served.warm_up)
            await to_thread(self.registry.prepare, served)
            await run(self.singles.executor, served.warm_up)
            await run(self.batches.executor, served.warm_up_batch)
            await run(self.lookups.executor, served.search, "", 1)
            await to_thread(self.registry.publish, served)
        except Exception as error:
            served.is_broken = True
            self.registry.record_failure(served.name, error)
            self.report_reload(served.name, is_new=False)

    async def watch_model(self, name: str) -> None:
        """Load a model whenever its folder is replaced. Models are watched independently: one that hangs delays no other."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                await self.reload_model(name)
            except Exception:
                SERVICE_LOG.exception("%s: looking for a newer version failed; trying again", name)

    async def reload_model(self, name: str, *, retry: bool = False) -> bool:
        """Load a model if its folder was replaced; count and log it. Return whether it was.

        A load that takes too long is reported as failed. It cannot be stopped, and its model is served if it ends after all.
        """
        error_before = self.registry.errors.get(name)
        loading = asyncio.ensure_future(run_in_daemon(lambda: self.registry.refresh_model(name, retry=retry)))
        await asyncio.wait({loading}, timeout=RELOAD_SECONDS)
        if not loading.done():
            self.registry.errors[name] = f"Loading takes longer than {RELOAD_SECONDS:g} s."
            self.report_reload(name, is_new=False)
            error_before = self.registry.errors[name]
        is_new = await loading
        if is_new or self.registry.errors.get(name) != error_before:
            self.report_reload(name, is_new=is_new)
        return is_new

    def report_reload(self, name: str, *, is_new: bool) -> None:
        """Count and log that a model was replaced or failed."""
        self.metrics.reloads.labels(name, "replaced" if is_new else "failed").inc()
        SERVICE_LOG.warning("%s: %s", name, "replaced" if is_new else f"not loaded. {self.registry.errors.get(name)}")

    def find_model(self, name: str | None) -> ServedModel:
        """Return a model that works, or raise the error for the client."""
        served = self.registry[name]
        if served.is_broken:
            raise HTTPException(503, f"The model {served.name} does not work; GET /models tells why.")
        return served

    async def recommend(self, request: Request) -> Response:
        """Return the best items for a user, a history, or both."""
        return await self.recommendations.run(await read_json(request))

    def answer_lists(self, bodies: Sequence[bytes]) -> Iterator[tuple[int, Response | Exception]]:
        """Yield the number of each request for a list with its response or error. Like requests are answered in one call."""
        alike: dict[tuple[ServedModel, str | int], list[tuple[int, schemas.RecommendRequest]]] = {}
        for number, body in enumerate(bodies):
            try:
                options = schemas.RecommendRequest.model_validate_json(body)
                served = self.find_model(options.model)
                alike.setdefault((served, served.group(options) or number), []).append((number, options))
            except Exception as error:
                yield number, error
        for (served, _), members in alike.items():
            numbers, requests = zip(*members, strict=True)
            yield from zip(numbers, self.answer_alike(served, requests), strict=True)

    def answer_alike(self, served: ServedModel, requests: Sequence[schemas.RecommendRequest]) -> Sequence[Response | Exception]:
        """Return the responses to requests of one group. If one of them fails, each is answered alone."""
        try:
            responses = [AsciiJSONResponse(content) for content in served.recommend_together(requests)]
        except Exception as error:
            if len(requests) == 1:
                return [error]
            return [outcome for request in requests for outcome in self.answer_alike(served, [request])]
        self.metrics.lists.labels(served.name).inc(len(responses))
        return responses

    async def recommend_batch(self, request: Request) -> Response:
        """Return the best items for many users and histories: first the users' lists, then the histories', in their order."""
        body, is_abandoned = await read_json(request), threading.Event()
        self.batches.enter()
        try:
            work = self.batches.run_in_place(lambda: self.encode_batch(body, is_abandoned))
            pieces = await run_until_disconnect(work, request.receive)
        except BaseException:
            is_abandoned.set()
            self.batches.leave()
            raise
        return PiecewiseResponse(pieces, self.batches.leave)

    def encode_batch(self, body: bytes, is_abandoned: threading.Event) -> list[bytes]:
        """Return the response to a batch in pieces. After each slice it waits a little for single requests."""
        request = schemas.BatchRequest.model_validate_json(body)
        served = self.find_model(request.model)
        unknown = served.unknown_users(request.users)
        pieces = [encode_json({"model": served.name, "unknown_users": unknown})[:-1] + b',"lists":[']
        for lists in served.recommend_batch(request):
            pieces.append(b"," * (len(pieces) > 1) + b",".join(map(encode_json, lists)))
            if is_abandoned.is_set():
                return []
            self.singles.is_empty.wait(MAX_BATCH_PAUSE)
        self.metrics.lists.labels(served.name).inc(len(request.users) + len(request.histories) - len(unknown))
        return [*pieces, b"]}"]

    async def similar(
        self, item: str, model: str | None = None, k: Annotated[int, Query(ge=1, le=MAX_LIST_LENGTH)] = 10
    ) -> Response:
        """Return the items most similar to an item."""
        return await self.singles.run(lambda: AsciiJSONResponse(self.find_model(model).similar(item, k)))

    async def explain(self, request: Request) -> Response:
        """Explain the score of an item: what each item of the history adds to it."""
        body = await read_json(request)

        def respond() -> Response:
            options = schemas.ExplainRequest.model_validate_json(body)
            return AsciiJSONResponse(self.find_model(options.model).explain(options))

        return await self.singles.run(respond)

    async def influence(self, request: Request) -> Response:
        """Trace the score of an item back to training users and events, by leaving each of them out."""
        body = await read_json(request)

        def respond() -> Response:
            options = schemas.InfluenceRequest.model_validate_json(body)
            return AsciiJSONResponse(self.find_model(options.model).influence(options))

        return await self.lookups.run(respond)

    async def explain_missing(self, request: Request) -> Response:
        """Say why an item is missing from a list, and which smallest change of the history would bring it in."""
        body = await read_json(request)

        def respond() -> Response:
            options = schemas.ExplainMissingRequest.model_validate_json(body)
            return AsciiJSONResponse(self.find_model(options.model).explain_missing(options))

        return await self.lookups.run(respond)  # a search of changes takes longer than a list

    async def user_history(self, request: Request) -> Response:
        """Return the items in the history of a user the model was fitted on."""
        body = await read_json(request)

        def respond() -> Response:
            options = schemas.HistoryRequest.model_validate_json(body)
            return AsciiJSONResponse(self.find_model(options.model).user_history(options))

        return await self.lookups.run(respond)

    async def items(
        self,
        model: str | None = None,
        query: Annotated[str, Query(max_length=MAX_QUERY_LENGTH, description="Part of a title")] = "",
        id: Annotated[list[str], Query(max_length=MAX_HISTORY_LENGTH, description="Ids, instead of a query")] = [],  # noqa: B006
        limit: Annotated[int, Query(ge=1, le=MAX_SEARCH_RESULTS)] = 20,
    ) -> Response:
        """Search items by title, those that begin with the query first; or look them up by id."""
        served = self.registry[model]
        return await self.lookups.run(lambda: AsciiJSONResponse(served.look_up(id) if id else served.search(query, limit)))

    async def models(self) -> Response:
        """List the served models."""
        return AsciiJSONResponse({"models": [self.model_info(served) for served in self.registry.models.values()]})

    def model_info(self, served: ServedModel) -> dict[str, Any]:
        return served.info() | {"failed": self.registry.errors.get(served.name)}

    async def model(self, name: str) -> Response:
        """Describe a model: its data, benchmark metrics, spectrum or weights, and the popularity of what it recommends."""

        def respond() -> Response:
            served, journal = self.find_model(name), self.journal
            measured = [] if journal is None else read_journal(lambda: journal.find_metrics(served.model.recipe))
            return AsciiJSONResponse(self.model_info(served) | {"measured": measured} | self.model_card(served))

        return await self.lookups.run(respond)

    def model_card(self, served: ServedModel) -> dict[str, Any]:
        """Return the card of a model, computed once for each loaded version."""
        if served not in self.model_cards:
            self.model_cards[served] = build_model_card(served)
        return self.model_cards[served]

    async def leaderboard(self) -> Response:
        """Return the tables of the benchmark journal."""
        journal = self.journal
        if journal is None:
            raise MissingFile("a benchmark journal", "none", "Serve one with --journal FILE")
        return await self.lookups.run(lambda: AsciiJSONResponse({"tables": read_journal(journal.tables)}))

    def find_live(self, name: str | None) -> LiveModel:
        """Return a model that learns events, or raise the error for the client."""
        served = self.find_model(name)
        if served.name not in self.live:
            raise NotSupported("a service that learns events", "one without a log", "Start it with --log FOLDER")
        return self.live[served.name]

    async def add_events(self, request: Request) -> Response:
        """Learn events. They are on the disk when the response is sent, and in the answers after the next update."""
        body = await read_json(request)

        def respond() -> Response:
            options = schemas.EventsRequest.model_validate_json(body)
            live = self.find_live(options.model)
            events = [(event.user, event.item, event.weight) for event in options.events]
            number, is_new = live.submit_events(events, options.key)
            pending, _ = live.log.pending(live.model.log_position)
            return AsciiJSONResponse({"model": live.name, "number": number, "is_new": is_new, "pending": pending}, 202)

        return await self.writes.run(respond)

    async def forget_user(self, user: str, model: str | None = None) -> Response:
        """Forget a user. The response is the receipt, sent when neither the model nor its files have a trace of the user."""
        receipt = await self.writes.run(lambda: self.find_live(model).submit_deletion(user))
        try:
            return AsciiJSONResponse(await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(receipt)), FORGET_SECONDS))
        except TimeoutError:
            raise HTTPException(503, "The deletion is recorded and will be applied; its receipt takes longer.") from None

    async def reload(self) -> Response:
        """Load models that were replaced on disk, now. A broken model never replaces a working one."""
        if self.is_reloading:
            raise HTTPException(503, "The models are being reloaded. Try again later.", RETRY_AFTER)
        self.is_reloading = True
        try:
            reloads = {name: asyncio.ensure_future(self.reload_model(name, retry=True)) for name in self.registry.folders}
            await asyncio.wait(reloads.values(), timeout=RELOAD_SECONDS)
        finally:
            self.is_reloading = False
        replaced = {name: reload.done() and reload.result() for name, reload in reloads.items()}
        return AsciiJSONResponse({"models": replaced, "failed": self.registry.errors})

    async def health(self) -> Response:
        """Tell whether the service answers."""
        return AsciiJSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Tell whether the models are loaded and warm: 503 until they are, and while none of them works."""
        if not self.is_warm:
            return AsciiJSONResponse({"status": "warming up"}, 503)
        is_working = any(not served.is_broken for served in self.registry.models.values())
        return AsciiJSONResponse({"status": "ready"}) if is_working else AsciiJSONResponse({"status": "no model works"}, 503)

    async def prometheus_metrics(self) -> Response:
        """Return metrics in Prometheus format."""
        for live in self.live.values():
            live.report_lag()
        return Response(self.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def read_json(request: Request) -> bytes:
    """Return the body of a request, or refuse it if it does not say that it is JSON.

    Browsers send JSON to another site only after asking it, and other types without asking.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415, "Send JSON, with the header content-type: application/json.")
    return await request.body()


def read_journal(read: Callable[[], R]) -> R:
    """Read from the journal. What is wrong with it goes into the log: it names files of this machine."""
    try:
        return read()
    except (GramianError, OSError) as error:
        SERVICE_LOG.warning("The benchmark journal cannot be read. %s", error)
        raise HTTPException(503, "The benchmark journal cannot be read; the log tells why.") from None


async def run_until_disconnect(work: Awaitable[R], receive: Receive) -> R:
    """Return the result of the work, unless the client disconnects before it is done."""

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(499, "The client disconnected.")  # seen in the log only
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def run_in_daemon(work: Callable[[], R]) -> R:
    """Do work in a thread that does not keep the process alive, since it may never end."""
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def set_result() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again where it is awaited
            future.set_exception(error)

    threading.Thread(target=set_result, daemon=True).start()
    return await asyncio.wrap_future(future)
