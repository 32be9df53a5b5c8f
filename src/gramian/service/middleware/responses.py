"""What every response has: security headers, errors as JSON, a place in the metrics, and a line in the access log."""

import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gramian.service import SERVICE_LOG
from gramian.service.metrics import Metrics

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
STOCK_REFUSALS = {
    "Invalid host header": "This service does not answer under that host name; allow it with --allow-host.",
}
MAX_LOGGED_PATH = 200  # characters


class ResponseMiddleware:
    """Complete every response, and answer uncaught exceptions with a 500.

    Starlette's ServerErrorMiddleware is not enough: it runs outside all other middleware, so that its response would have
    neither security headers nor metrics, and it raises the exception again, so that the server logs it twice. Starlette's
    TrustedHostMiddleware and CORSMiddleware refuse in plain text; their text becomes JSON here.

    Parameters
    ----------
    app
        The application.
    metrics
        The metrics in which requests are counted and timed.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, is_plain_refusal = time.perf_counter(), 0, False

        async def send_complete(message: Message) -> None:
            nonlocal status, is_plain_refusal
            if message["type"] == "http.response.start":
                headers, status = dict(message["headers"]), message["status"]
                is_plain_refusal = status >= 400 and headers.get(b"content-type", b"").startswith(b"text/plain")
                if is_plain_refusal:
                    return
                message["headers"] = [*message["headers"], *(pair for pair in ENCODED_HEADERS if pair[0] not in headers)]
            elif is_plain_refusal:
                text = message["body"].decode()
                await JSONResponse({"error": STOCK_REFUSALS.get(text, text)}, status)(scope, receive, send_complete)
                return
            await send(message)

        try:
            await self.app(scope, receive, send_complete)
        except Exception:
            SERVICE_LOG.exception("%s %s failed", scope["method"], printable_path(scope))
            if status:  # too late for another response: let the server close the connection
                raise
            message = {"error": "Something went wrong here; it has been logged."}
            await JSONResponse(message, 500)(scope, receive, send_complete)
        finally:
            self.note(scope, status or 500, time.perf_counter() - started)

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request without its query, its body and its token."""
        route = getattr(scope.get("route"), "path", "other")
        self.metrics.requests.labels(route, status).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        SERVICE_LOG.info("%s %s %s %.1f ms", scope["method"], printable_path(scope), status, seconds * 1e3)


def printable_path(scope: Scope) -> str:
    """Return a path for the log, escaped, so that it cannot start a new line or a terminal sequence."""
    return str(scope["path"])[:MAX_LOGGED_PATH].encode("unicode_escape").decode("ascii")
