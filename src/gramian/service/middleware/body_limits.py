"""Limits on the bodies of requests: their sizes, and the time until all of a body has arrived."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BATCH_PATH = "/recommend/batch"


@dataclass(frozen=True)
class BodyLimits:
    """The limits on bodies.

    Parameters
    ----------
    max_bytes
        The size of one body.
    max_batch_bytes
        The size of the body of a batch.
    max_total_bytes
        The sizes of all bodies that are in memory at the same time, together.
    max_seconds
        The time within which a body must arrive.
    """

    max_bytes: int = 2_000_000  # a history and filters of the greatest length, of UUIDs, are as large
    max_batch_bytes: int = 8_000_000  # 1,000 histories of 1,000 short ids are as large
    max_total_bytes: int = 128_000_000
    max_seconds: float = 10.0


class BodyLimitMiddleware:
    """Receive the whole body before the application runs, or refuse it.

    Starlette's own limit (`max_body_size`) bounds the size but not the time: a client that sends a byte now and then would
    hold a connection for as long as it likes.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app, self.limits = app, limits
        self.total_bytes = 0  # of the bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        chunks: list[bytes] = []
        try:
            refusal = await self.receive_all(chunks, scope, receive)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            messages: list[Message] = [{"type": "http.request", "body": b"".join(chunks), "more_body": False}]

            async def receive_body() -> Message:
                return messages.pop() if messages else await receive()

            await self.app(scope, receive_body, send)
        finally:
            self.total_bytes -= sum(map(len, chunks))

    async def receive_all(self, chunks: list[bytes], scope: Scope, receive: Receive) -> Response | None:
        """Receive the chunks of a body, or return the response that refuses it."""
        is_batch, max_seconds = scope["path"] == BATCH_PATH, self.limits.max_seconds
        max_bytes = self.limits.max_batch_bytes if is_batch else self.limits.max_bytes
        declared = Headers(scope=scope).get("content-length", "")
        n_bytes, has_more = 0, True
        is_too_large = declared.isdecimal() and int(declared) > max_bytes
        try:
            async with asyncio.timeout(max_seconds):
                while has_more and not is_too_large:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return JSONResponse({"error": "The client disconnected."}, 400)  # seen in the log only
                    chunks.append(message.get("body", b""))
                    n_bytes += len(chunks[-1])
                    self.total_bytes += len(chunks[-1])
                    is_too_large, has_more = n_bytes > max_bytes, message.get("more_body", False)
                    if self.total_bytes > self.limits.max_total_bytes:
                        words = "The bodies of other requests fill the memory reserved for them. Try again later."
                        return JSONResponse({"error": words}, 503, {"retry-after": "1", "connection": "close"})
        except TimeoutError:
            words = f"expected the whole body within {max_seconds:g} s; got a part. Send it faster."
            return JSONResponse({"error": words}, 408, {"connection": "close"})
        if is_too_large:
            words = f"expected a body of at most {max_bytes:,} bytes; got more. Send several requests."
            return JSONResponse({"error": words}, 413, {"connection": "close"})
        return None
