"""What stands before the service: who may ask, how much, for how long; what is counted, logged and sent with answers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("gramian.serve")
OPEN = ("/", "/health", "/ready", "/docs", "/openapi.json")  # to everybody: nothing of the models is in them
ADMIN = ("/reload",)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Limits:
    """Of the body of a request."""

    body: int = 8_000_000  # bytes
    seconds: float = 10.0  # for it to arrive


@dataclass(frozen=True)
class Tokens:
    """Bearer tokens: one to read, one to read and to administer. Without any, everybody who reaches the service may do both."""

    read: str | None = None
    admin: str | None = None

    def refusal(self, path: str, given: str | None) -> tuple[int, str] | None:
        """Why somebody with this token may not go there; None where they may."""
        if path in OPEN or path.startswith("/page/") or (self.read is None and self.admin is None):
            return None
        is_admin, is_reader = same(self.admin, given), same(self.read, given)
        if path in ADMIN:
            if is_admin:
                return None
            return (403, "This needs the admin token.") if is_reader or self.admin is None else (401, "Send the admin token.")
        if self.read is None or is_reader or is_admin:
            return None
        return 401, "Send a token: Authorization: Bearer ..."


def same(token: str | None, given: str | None) -> bool:
    """Whether they are the same, in a time that does not tell how much of them is."""
    return token is not None and given is not None and hmac.compare_digest(token.encode(), given.encode())


OPEN_TO_ALL, USUAL = Tokens(), Limits()


class Counts:
    """What Prometheus is told."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter("gramian_requests", "Answers by route and status", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "gramian_request_seconds",
            "Seconds from a request to the end of its answer",
            ["route"],
            registry=self.registry,
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
        )
        self.lists = Counter("gramian_lists", "Lists of recommendations made", ["model"], registry=self.registry)
        self.loads = Counter("gramian_reloads", "Models replaced, or found broken", ["model", "result"], registry=self.registry)


class Refused(Exception):
    """A request that goes no further: a status, and why in a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        counts: Counts,
        limits: Limits,
        tokens: Tokens,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self.app, self.counts, self.limits, self.tokens = app, counts, limits, tokens
        self.hosts, self.origins = frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in own]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, replay(await self.body(scope, receive), receive), sending)
        except Refused as refused:
            await answer(refused, sending)
        except Exception:
            LOG.exception("%s %s failed", scope["method"], scope["path"])
            if status != 500:  # half an answer is out already
                raise
            await answer(Refused(500, "Something went wrong here; it has been logged."), sending)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "other")
            self.counts.requests.labels(route, status).inc()
            self.counts.seconds.labels(route).observe(seconds)
            LOG.info("%s %s %s %.1f ms", scope["method"], readable(scope["path"]), status, seconds * 1e3)

    def check(self, scope: Scope) -> None:
        """Refuse hosts that are not ours (a stranger's name for this machine), pages of others, and missing tokens."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if self.hosts and hostname(host) not in self.hosts:
            raise Refused(
                400, f"This host is not served under the name it was asked for; allow it with --allow-host {hostname(host)}."
            )
        origin = headers.get(b"origin")
        if origin is not None and origin not in self.origins and origin.partition("://")[2] != host:
            raise Refused(403, "Pages from other places may not ask here; allow them with --allow-origin.")
        if scope["method"] == "OPTIONS":
            return
        kind, _, token = headers.get(b"authorization", "").partition(" ")
        refusal = self.tokens.refusal(scope["path"], token.strip() if kind.lower() == "bearer" else None)
        if refusal:
            raise Refused(*refusal)

    async def body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, if it is not too large and does not take too long."""
        too_large = Refused(413, f"expected a body of at most {self.limits.body:,} bytes; got more. Send several requests.")
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise too_large
        parts, size, more = [], 0, True
        try:
            async with asyncio.timeout(self.limits.seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "The client went away.")
                    parts.append(message.get("body", b""))
                    size, more = size + len(parts[-1]), message.get("more_body", False)
                    if size > self.limits.body:
                        raise too_large
        except TimeoutError:
            raise Refused(
                408, f"expected the whole body within {self.limits.seconds:g} s; got a part. Send it faster."
            ) from None
        return b"".join(parts)


def replay(body: bytes, receive: Receive) -> Receive:
    """A body that has arrived, and then whatever comes after."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again


async def answer(refused: Refused, send: Send) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [(b"www-authenticate", b"Bearer")] if refused.status == 401 else []
    headers += [(b"connection", b"close")] if refused.status in (408, 413) else []
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": refused.why}).encode()})


def hostname(host: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def readable(path: str) -> str:
    """A path for the log, in which nothing can start a new line or a colour."""
    return path.encode("unicode_escape").decode("ascii")[:200]
