"""Who may look: requests that carry the token, from our own page, by a name that is ours.

A browser sends what any page asks it to send. So a request is refused if its Host is a name that somebody else may have
led here (DNS rebinding), or its Origin another page; the cookie is of no use to other sites (SameSite).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.dashboard.door import LET_IN
from tailrace.dashboard.passwords import Passwords
from tailrace.errors import Mistake

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LEAST = 16
"""Characters of a token."""


def token_of(file: Path | None) -> str:
    """The token in a file, which is made if there is none; without a file, a new one. Raises Mistake."""
    if file is None:
        return secrets.token_urlsafe(24)
    try:
        with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="ascii") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise Mistake(f"{file}: others may read it; `chmod 600` it first")
            token = opened.read().strip()
            if not token:
                token = secrets.token_urlsafe(24)
                opened.write(f"{token}\n")
    except (OSError, UnicodeError) as error:
        raise Mistake(f"{file}: {getattr(error, 'strerror', None) or 'not a token'}") from None
    if len(token) < _LEAST or not token.replace("-", "").replace("_", "").isalnum():
        raise Mistake(f"{file}: expected a token of at least {_LEAST} letters, digits, - and _")
    return token


class Guard:
    """Lets requests pass to the application, or answers them itself."""

    def __init__(self, app: ASGIApp, token: str, listen: str, control: bool, passwords: Passwords | None) -> None:
        self._app = app
        self._passwords = passwords
        self._methods = ("GET", "POST") if control else ("GET",)
        self._token = token.encode()
        self._names = {"localhost", socket.gethostname().lower(), listen.lower()}
        # Cookies do not know ports: each server has a name of its own.
        self._cookie = f"tailrace-{hashlib.sha256(self._token).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = await self._refuse(request)
        if refused is None:
            scope[LET_IN] = True

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if refused is None and "token" in request.query_params:
                    headers.append("Set-Cookie", self._set_cookie(request))
            await send(message)

        await (refused or self._app)(scope, receive, with_headers)

    async def _refuse(self, request: Request) -> PlainTextResponse | None:
        if request.method not in self._methods:
            return PlainTextResponse("This only shows.\n", 405)
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse("Not a name of this server; use its address, or localhost.\n", 421)
        origin = request.headers.get("origin")
        authorization = request.headers.get("authorization", "")
        # A browser says whose page it is wherever something is to be changed; programs have the token, and no cookie.
        silent = origin is None and request.method == "POST" and not authorization.startswith("Bearer ")
        if silent or (origin is not None and origin != f"{request.url.scheme}://{host}"):
            return PlainTextResponse("Not for other pages.\n", 403)
        given = (
            request.query_params.get("token"),
            request.cookies.get(self._cookie),
            authorization.removeprefix("Bearer "),
        )
        if any(secrets.compare_digest(each.encode(), self._token) for each in given if each):
            return None
        text = "Open the link that `tailrace dashboard` has printed.\n"
        if self._passwords is None:
            return PlainTextResponse(text, 401)
        if await self._passwords.fits(authorization):
            return None
        return PlainTextResponse(text, 401, {"WWW-Authenticate": 'Basic realm="Tailrace", charset="UTF-8"'})

    def _is_ours(self, host: str) -> bool:
        """An address, or a name of this machine, with any port: it may be forwarded, as by `ssh -L`."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._names:
                return True
            ip_address(name)
        except ValueError:
            return False
        return True

    def _set_cookie(self, request: Request) -> str:
        secure = "; Secure" if request.url.scheme == "https" else ""
        return f"{self._cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict{secure}"
