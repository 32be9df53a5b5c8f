"""Who may send requests: the page of this service, pages of allowed sites, and clients with the right bearer token."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PUBLIC_PATHS = ("/", "/health", "/ready", "/docs", "/openapi.json")  # they and the page's files show nothing of the models
ADMIN_PATHS = ("/reload", "/influence")  # the second names training users
WRITE_PATHS = ("/events", "/users/")  # beginnings of paths that change a model
Refusal = tuple[int, str]  # status and message


@dataclass(frozen=True)
class Tokens:
    """The tokens of a service.

    Parameters
    ----------
    read
        The token for everything that changes nothing; without it, reading needs no token.
    admin
        The token for everything. Without it, nobody may reload models, unless there is no other token either.
    write
        The token for sending events, forgetting users and reading. Without it, only the admin token may do the first two.
    """

    read: str | None = None
    admin: str | None = None
    write: str | None = None


class AccessMiddleware:
    """Refuse requests of other sites' pages, requests without the token they need, and ambiguous ones.

    Starlette's CORSMiddleware is not enough: it hides the response from a page of another origin but still runs the request,
    and a POST without a body, such as /reload, is sent without asking first. Its AuthenticationMiddleware leaves both the
    check and the refusal to us.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str], tokens: Tokens) -> None:
        self.app, self.origins, self.tokens = app, frozenset(origins), tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.refusal(scope["path"], Headers(scope=scope)) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        status, message = refusal
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        await JSONResponse({"error": message}, status, headers)(scope, receive, send)

    def refusal(self, path: str, headers: Headers) -> Refusal | None:
        """Return why a request is refused, or None if it is not."""
        names = [name for name, _ in headers.raw]
        if names.count(b"host") > 1 or names.count(b"authorization") > 1:  # a proxy may have checked the other one
            return 400, "Send one Host and one Authorization header at most."
        origin = headers.get("origin")  # absent unless a browser sends it
        if origin is not None and origin not in self.origins and origin.partition("://")[2] != headers.get("host"):
            return 403, "Pages of other sites may not send requests here; allow them with --allow-origin."
        if self.tokens == Tokens() or path in PUBLIC_PATHS or path.startswith("/page/"):
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return self.token_refusal(path, token.strip() if scheme.lower() == "bearer" else "")

    def token_refusal(self, path: str, token: str) -> Refusal | None:
        """Return why this token may not access the path, or None if it may."""
        is_admin, is_reader = tokens_equal(self.tokens.admin, token), tokens_equal(self.tokens.read, token)
        is_writer = tokens_equal(self.tokens.write, token)
        if is_admin:
            return None
        if path in ADMIN_PATHS:
            is_closed = is_reader or is_writer or self.tokens.admin is None
            return (403, "This needs the admin token.") if is_closed else (401, "Send the admin token.")
        if is_writer:
            return None
        if path.startswith(WRITE_PATHS):
            is_closed = is_reader or self.tokens.admin is self.tokens.write is None
            return (403, "This needs the write token.") if is_closed else (401, "Send the write token.")
        if is_reader or self.tokens.read is None:
            return None
        return 401, "Send a token: Authorization: Bearer ..."


def tokens_equal(expected: str | None, sent: str) -> bool:
    """Compare in constant time, so that the time taken does not tell how much of a token is right."""
    return expected is not None and hmac.compare_digest(expected.encode(), sent.encode())
