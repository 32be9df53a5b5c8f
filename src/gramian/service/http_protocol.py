"""HTTP connections with limits: on their number, and on the time that a client takes to send a request or to read a response.

Uvicorn has none of these for its fast parser: a client that never finishes its headers, or never reads, holds a connection
and its memory for ever. No ASGI middleware can help, because it runs only when the headers are complete.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

JSON_HEADERS = b"content-type: application/json\r\nconnection: close\r\n"


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits on connections.

    Parameters
    ----------
    max_connections
        How many connections may be open. Beyond it, a new connection closes the one that has waited longest for its client.
    max_header_bytes
        The size of the request line and the headers of one request.
    header_seconds
        The time within which they must arrive, from the first byte or from the start of the connection.
    body_seconds
        The time within which a body must arrive, even that of a request that was refused.
    write_seconds
        The time within which a client must read a response that does not fit into the buffers.
    idle_seconds
        How long a connection without a request stays open.
    """

    max_connections: int = 500  # below 1,024, the usual limit on the open files of a process
    max_header_bytes: int = 131_072  # 2,000 ids in the query of GET /items are about as large
    header_seconds: float = 10.0
    body_seconds: float = 15.0  # the middleware answers after 10 s
    write_seconds: float = 30.0
    idle_seconds: int = 75  # longer than the 60 s of nginx, so that a proxy does not send into a closed connection


class LimitedProtocol(HttpToolsProtocol):
    """One connection. A request arrives in two stages, its headers and its body; each has a deadline.

    Parameters
    ----------
    limits
        The limits.
    options
        What Uvicorn passes to its protocols.
    """

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(**options)
        self.limits = limits
        self.is_reading_headers = True
        self.n_header_bytes = 0  # received of headers that are incomplete
        self.receive_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.last_progress = 0.0  # time of the last complete request or response
        self.refusal = 400, "This is not a valid HTTP request."
        self.header_refusal = 431, f"expected headers of at most {limits.max_header_bytes:,} bytes; got more. Send fewer."

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.last_progress = self.loop.time()
        self.receive_timer = self.loop.call_later(self.limits.header_seconds, self.refuse_late_request)
        if len(self.connections) > self.limits.max_connections:
            connections = cast("set[LimitedProtocol]", self.connections)
            waiting = (connection for connection in connections if connection.is_waiting)
            longest = min(waiting, key=lambda connection: connection.last_progress)
            connections.discard(longest)
            longest.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether the next step is the client's: to send the rest of a request, to read a response, or to send a request."""
        return self.is_answered or not self.is_reading_headers or self.write_timer is not None

    @property
    def is_answered(self) -> bool:
        """Whether no response is being made or sent."""
        return self.cycle is None or self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # which Uvicorn omits after an error
        self.stop_receive_timer()
        self.stop_write_timer()

    def data_received(self, data: bytes) -> None:
        if self.is_reading_headers:
            self.n_header_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self.is_reading_headers and self.n_header_bytes > self.limits.max_header_bytes:
            self.refuse(*self.header_refusal)
        elif self.receive_timer is None and (self.n_header_bytes or not self.is_reading_headers):
            seconds = self.limits.header_seconds if self.is_reading_headers else self.limits.body_seconds
            self.receive_timer = self.loop.call_later(seconds, self.refuse_late_request)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.n_header_bytes = max(1, self.n_header_bytes)  # a request may begin in the middle of what was received

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.is_reading_headers:  # otherwise it is a trailer, after a chunked body
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.stop_receive_timer()
        self.is_reading_headers, self.n_header_bytes = False, 0
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.max_header_bytes:
            self.refusal = self.header_refusal
            raise ValueError(self.refusal)  # the parser turns it into its own error, for which Uvicorn sends its 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.stop_receive_timer()
        self.is_reading_headers, self.last_progress = True, self.loop.time()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.last_progress = self.loop.time()
        if self.transport.is_closing():
            self.start_write_timer()
        elif not self.flow.write_paused:
            self.stop_write_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.start_write_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.is_answered and not self.transport.is_closing():
            self.stop_write_timer()  # otherwise it goes on: a large response has one deadline, not one for each of its pieces

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.start_write_timer()

    def send_400_response(self, msg: str) -> None:
        self.refuse(*self.refusal)

    def refuse_late_request(self) -> None:
        """Close a connection whose client did not send all of its request in time."""
        self.refuse(408, "expected the whole request in time; got a part of it. Send it faster.")

    def refuse(self, status: int, message: str) -> None:
        """Send an error, unless a response has begun, and close the connection."""
        if self.is_answered or not self.cycle.response_started:
            body = json.dumps({"error": message}).encode()
            self.transport.write(STATUS_LINE[status] + JSON_HEADERS + b"content-length: %d\r\n\r\n" % len(body) + body)
        if not self.is_answered:
            self.cycle.disconnected = True  # the application must not send a second response
            self.cycle.message_event.set()
        self.transport.close()
        self.start_write_timer()

    def start_write_timer(self) -> None:
        """Abort the connection after a time: closing alone would wait until the client has read everything."""
        if self.write_timer is None:
            self.write_timer = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def stop_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    def stop_receive_timer(self) -> None:
        if self.receive_timer is not None:
            self.receive_timer.cancel()
            self.receive_timer = None
