"""Other nodes in one page: a file with the addresses and tokens of their dashboards, and what is passed on of them.

The page asks its own server, which asks the other with a token that the browser never sees. What comes is somebody
else's: of its headers only the kind of content is believed, and a page gets no origin.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tailrace.dashboard.api import REPORT_POLICY
from tailrace.dashboard.yaml_file import read_yaml
from tailrace.errors import Mistake

MOST = 64
_SECONDS = 5.0
"""For a connection, and the head of an answer."""
UNREACHED = (OSError, ValueError, EOFError, IndexError, asyncio.LimitOverrunError)
"""What `Remote.ask` raises."""
ANOTHER_TOKEN = "its dashboard has another token than the list of nodes"
_KINDS = ("text/event-stream", "application/json", "application/x-ndjson", "text/html")


def _like(pattern: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"expected {expected}")
        return text

    return AfterValidator(check)


class Remote(BaseModel):
    """Another node's dashboard."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, _like(r"[A-Za-z0-9._-]{1,64}", "up to 64 letters, digits and . _ -")]
    url: Annotated[str, _like(r"https?://[^/?#@\s]{1,240}/?", "http://HOST:PORT or https://HOST:PORT")]
    token: Annotated[str, _like(r"[A-Za-z0-9_-]{16,256}", "the other's token: 16 letters, digits, - and _ at least")]
    certificate: Path | None = Field(
        None, description="PEM: of who has signed its certificate, unless the system knows"
    )

    _lookups: ThreadPoolExecutor = PrivateAttr(default_factory=lambda: ThreadPoolExecutor(1))
    """Its own thread: a name server that does not answer holds up this node alone."""

    async def ask(self, method: str, path: str) -> tuple[int, str, Body]:
        """The status, kind of content and body of an answer, by HTTP/1.0, whose body ends with its connection. Raises
        UNREACHED."""
        address = urlsplit(self.url)
        async with asyncio.timeout(_SECONDS):
            reader, writer = await self._connect()
            try:
                fields = [f"{method} {path} HTTP/1.0", f"Host: {address.netloc}", f"Authorization: Bearer {self.token}"]
                writer.write("\r\n".join([*fields, "", ""]).encode("ascii"))
                status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                code = int(status.split(" ")[1])
            except BaseException:
                writer.close()
                raise
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        return code, headers.get("content-type", ""), Body(reader, writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first of its addresses that answers."""
        address, context = urlsplit(self.url), self._context
        port, host = address.port or (443 if context else 80), address.hostname or ""
        look_up = asyncio.get_running_loop().run_in_executor
        found = await look_up(self._lookups, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        error = OSError("it has no address")
        for *_, place in found:
            try:
                name = host if context else None
                return await asyncio.open_connection(str(place[0]), port, ssl=context, server_hostname=name)
            except OSError as failed:
                error = failed
        raise error

    def check(self) -> None:
        """Raises Mistake if its certificate cannot be read."""
        try:
            _ = self._context  # which reads it
        except ssl.SSLError as error:
            raise Mistake(f"{self.name}: {self.certificate}: not a certificate in PEM form ({error})") from None
        except OSError as error:
            raise Mistake(f"{self.name}: {self.certificate}: {error.strerror}") from None

    @cached_property
    def _context(self) -> ssl.SSLContext | None:
        """Made once: that reads all certificates that the system knows."""
        return ssl.create_default_context(cafile=self.certificate) if self.url.startswith("https:") else None


class Body:
    """An answer's, as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while chunk := await self._reader.read(1 << 16):
                yield chunk
        finally:
            self.close()

    def close(self) -> None:
        self._writer.close()


_NAME_IT = "name it, or that of who has signed it, as `certificate` in the list"
_RENEW, _OTHER_NAME = "renew it", "use a name or an address that the certificate has as `url`"
_CURES = {9: "set the clocks", 10: _RENEW, 62: _OTHER_NAME, 63: _OTHER_NAME, 64: _OTHER_NAME}
"""By OpenSSL's number: not yet valid, expired; another host's name, e-mail or address (x509_vfy.h)."""


def why_not(remote: Remote, error: BaseException) -> str:
    """What is said of a node that could not be asked."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"{remote.name}: its certificate is not trusted ({error.verify_message})"
        return f"{why}; {_CURES.get(error.verify_code, _NAME_IT)}"
    if isinstance(error, ssl.SSLError):
        http = error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
        why = f"{remote.name}: TLS does not come about ({error.reason or error})"
        return f"{why}; is its address http://…?" if http else why
    refused = isinstance(error, ConnectionRefusedError)  # whose text is asyncio's
    why = "connection refused" if refused else getattr(error, "strerror", None) or str(error) or "it does not answer"
    return f"{remote.name}: {why}; does `tailrace dashboard` run there?"


def read_nodes(file: Path) -> tuple[Remote, ...]:
    """Raises Mistake with what is wrong, and where."""
    try:
        if file.stat().st_mode & 0o077:
            raise Mistake(f"{file}: others may read it, and it has tokens; `chmod 600` it first")
    except OSError as error:
        raise Mistake(f"{file}: {error.strerror}") from None
    found = read_yaml(file, TypeAdapter(Annotated[tuple[Remote, ...], Field(max_length=MOST)]))
    if len({each.name for each in found}) < len(found):
        raise Mistake(f"{file}: two nodes have one name")
    for each in found:
        each.check()
    return found


def routes(remotes: tuple[Remote, ...]) -> list[Route]:
    """The names, and what is passed on: the stream of each, and what its views ask for."""
    known = {each.name: each for each in remotes}

    async def names(_: Request) -> Response:
        return JSONResponse({"nodes": list(known)})

    async def pass_on(request: Request) -> Response:
        remote, path = known.get(request.path_params["name"]), request.path_params["path"]
        if remote is None or not (path == "stream" or path.startswith("api/")):
            return JSONResponse({"error": "There is no such node, or view of it."}, 404)
        query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        try:
            status, kind, body = await remote.ask(request.method, f"/{quote(path)}{f'?{query}' if query else ''}")
        except UNREACHED as error:
            return JSONResponse({"error": why_not(remote, error)}, 502)
        if status == 401:
            body.close()
            return JSONResponse({"error": f"{remote.name}: {ANOTHER_TOKEN}"}, 502)
        if kind.partition(";")[0] not in _KINDS:
            kind = "text/plain"
        policy = {"Content-Security-Policy": REPORT_POLICY} if kind.startswith("text/html") else None
        return StreamingResponse(body.chunks(), status, policy, kind)

    return [Route("/nodes", names), Route("/nodes/{name}/{path:path}", pass_on, methods=["GET", "POST"])]
