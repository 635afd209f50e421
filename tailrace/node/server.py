"""The sockets of `tailraced`: JSON-RPC 2.0, one JSON text a line, and the events that listeners are sent.

All of it runs in one thread, an event loop that sleeps until something comes. What operates the node runs in the main
thread, one at a time (`tailrace.node.service`), and plans are made there; what else only looks runs beside it. Clients
are hostile: their number, the length of a line, the calls that one has open and what it leaves unread are bounded, and
who reads nothing costs nobody else anything.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.errors import Failure, Mistake, TailraceError
from tailrace.node.api import METHODS, Method, Params, wrong
from tailrace.node.client import ENDING
from tailrace.node.events import History
from tailrace.spec.port import LONGEST_SOCKET
from tailrace.state.folder import ENVIRONMENT, LOOK, OPERATE

_log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
FAILED = -32000
NOT_ALLOWED = -32004

MOST_CLIENTS = 128
"""On each socket."""
MOST_LINE = 4 << 20
"""Bytes of a request: room for a spec of 1 MiB, however its characters are escaped."""
MOST_CALLS = 8
"""That one client may have open."""
MOST_UNREAD = 256 << 10
"""Bytes that wait for a listener before it is sent no more events for now."""
UNREAD_SECONDS = 30.0
"""After which a client that reads nothing of what waits for it is left."""
TOGETHER_SECONDS = 0.05
"""Events of so long a time go out together, but for the first."""


class Refusal(Exception):
    """A request that is answered with an error of the protocol."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def refusal_of(error: BaseException) -> Refusal:
    """How an error of ours is answered: with what the command would have printed, and its exit status."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TailraceError):
        data = {"kind": type(error).__name__, "lines": list(error.lines), "exit_status": int(error.exit_status)}
        return Refusal(FAILED, "; ".join(error.lines), data)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return refusal_of(Failure(f"{where}{error.strerror or error}"))
    _log.error("internal error", exc_info=error)
    return refusal_of(Failure(f"internal error of the service: {type(error).__name__}: {error}; please report its log"))


@dataclass(eq=False)
class Call:
    """A call of a client's."""

    method: Method
    params: Params
    verbose: int
    client: Client
    number: Any
    """Its id."""
    server: Server
    given_up: str | None = None
    """Why its client has cancelled it."""
    begun: bool = False
    """It does not wait for another any more."""

    @property
    def key(self) -> Any:
        """What it is told by from the other calls that its client has open: a notification has no id."""
        return self if self.number is None else self.number

    def tell(self, method: str, **params: Any) -> None:
        """Sends its caller a notification; from any thread."""
        self.server.soon(lambda: self.client.send({"jsonrpc": "2.0", "method": method, "params": params}))


@dataclass(eq=False)
class Client:
    """One connection."""

    writer: asyncio.StreamWriter
    operates: bool
    calls: dict[Any, Call] = field(default_factory=dict)
    """That it has open, by their keys."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    cursor: int | None = None
    """The number of the next event that it is sent; None: it has not asked for any."""
    stuck_since: float | None = None
    """When it was last seen to read nothing of what waits for it."""
    stuck_at: int = 0

    def send(self, message: Mapping[str, Any]) -> None:
        self.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def write(self, line: bytes) -> None:
        if not self.writer.is_closing():
            self.writer.write(line)

    @property
    def gone(self) -> bool:
        """Whether it listens no more: it has ended, or was lost."""
        return self.writer.is_closing()

    @property
    def unread(self) -> int:
        return self.writer.transport.get_write_buffer_size()

    def stuck(self, now: float) -> bool:
        """Whether it has read nothing for too long, though something waits for it."""
        unread = self.unread
        if unread == 0 or self.stuck_since is None or unread < self.stuck_at:
            self.stuck_since = now
        self.stuck_at = unread
        return unread > 0 and now - self.stuck_since > UNREAD_SECONDS


class Server:
    """The two sockets of a folder, and the thread that serves them."""

    def __init__(
        self,
        folder: Path,
        answer: Callable[[Call], Coroutine[Any, Any, Mapping[str, Any]]],
        cancel: Callable[[Call, str], None],
        groups: tuple[int | None, int | None] = (None, None),
    ) -> None:
        """`answer` gives a call's result, or raises; `cancel` asks for a call's end. `groups`: who may operate, who may
        look, beside the folder's owner."""
        self.folder = folder
        self._answer = answer
        self._cancel = cancel
        self._groups = groups
        self.loop = asyncio.new_event_loop()
        self.history = History()
        self._clients: set[Client] = set()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._happened: deque[tuple[str, str, dict[str, Any], float]] = deque()
        """Events that no listener was sent yet."""
        self._flushing = False
        """The thread is going to look at those."""
        self._again: asyncio.Handle = asyncio.Handle(lambda: None, (), self.loop)
        self.ending = False
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    # --- for the main thread -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listens. Raises Mistake, OSError."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result()

    def stop(self) -> None:
        """Sends what is to be sent, and ends."""
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def soon(self, call: Callable[[], object]) -> None:
        """Has something called in the server's thread."""
        self.loop.call_soon_threadsafe(call)

    def publish(self, kind: str, about: str = "", **details: Any) -> None:
        """An event for all listeners."""
        _log.info("event: %s %s %s", kind, about, details or "")
        self._happened.append((kind, about, details, time.time()))
        if not self._flushing:
            self._flushing = True
            self.soon(self._flush)

    def run_on(self, cpus: frozenset[int]) -> None:
        """Keeps the server's thread to these CPUs."""

        def pin() -> None:
            try:
                os.sched_setaffinity(0, cpus)
            except OSError as error:
                _log.warning("the service's CPUs: %s", error.strerror)

        self.soon(pin)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    async def _listen(self) -> None:
        for name, operates, group in ((OPERATE, True, self._groups[0]), (LOOK, False, self._groups[1])):
            path = self.folder / name
            if len(os.fsencode(path)) > LONGEST_SOCKET:
                raise Mistake(f"{path}: too long for a socket's path; set {ENVIRONMENT} to a shorter folder")
            if path.is_socket():  # of a service that was killed: the folder is this one's alone
                path.unlink()
            old = os.umask(0o177)
            try:
                server = await asyncio.start_unix_server(
                    functools.partial(self._serve, operates), path=str(path), limit=MOST_LINE
                )
            finally:
                os.umask(old)
            if group is not None:
                os.chown(path, -1, group)
                path.chmod(0o660)
            self._servers.append(server)

    async def _end(self) -> None:
        self.ending = True
        for server in self._servers:
            server.close()
        for name in (OPERATE, LOOK):
            (self.folder / name).unlink(missing_ok=True)
        for _ in range(100):  # whose answers are on their way
            if not self._tasks and not any(client.unread for client in self._clients):
                break
            await asyncio.sleep(0.01)
        self._flush(last=True)
        for client in list(self._clients):
            client.writer.close()

    async def _serve(self, operates: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer, operates)
        if sum(each.operates == operates for each in self._clients) >= MOST_CLIENTS:
            self._refuse(client, None, Refusal(FAILED, f"more than {MOST_CLIENTS} clients at once; try again later"))
            writer.close()
            return
        self._clients.add(client)
        try:
            while line := await self._line(reader, client):
                self._hear(client, line)
                await self._room(client)
            if client.tasks:  # who has said all that it has to say may still listen
                await asyncio.wait(client.tasks, timeout=UNREAD_SECONDS)
                async with asyncio.timeout(UNREAD_SECONDS):
                    await client.writer.drain()
        except (ConnectionError, asyncio.CancelledError, TimeoutError):
            pass
        finally:
            self._clients.discard(client)
            writer.close()

    async def _line(self, reader: asyncio.StreamReader, client: Client) -> bytes:
        try:
            return await reader.readline()
        except ValueError:
            self._refuse(client, None, Refusal(INVALID_REQUEST, f"a request longer than {MOST_LINE} bytes"))
            return b""

    async def _room(self, client: Client) -> None:
        """Waits until a client that is sent much has read it. Raises TimeoutError if it does not."""
        if client.unread > MOST_UNREAD:
            async with asyncio.timeout(UNREAD_SECONDS):
                await client.writer.drain()

    def _hear(self, client: Client, line: bytes) -> None:
        number: Any = None
        answered = True
        try:
            request = _parsed(line)
            given = request.get("id")
            if "id" in request and (isinstance(given, bool) or not isinstance(given, int | str)):
                raise Refusal(INVALID_REQUEST, "id: expected a number or a string, or none where no answer is wanted")
            number, answered = given, given is not None
            if request.get("jsonrpc") != "2.0":
                answered = True
                raise Refusal(INVALID_REQUEST, 'jsonrpc: expected "2.0"')
            call = self._call(client, request, number)
            if call.method.name == "call.cancel":  # which is heard whatever else is open
                wanted: Any = call.params
                if (running := client.calls.get(wanted.call)) is not None:
                    self._cancel(running, wanted.why)
                return
            if len(client.calls) >= MOST_CALLS or call.key in client.calls:
                said = f"expected at most {MOST_CALLS} calls at once, each with an id of its own"
                raise Refusal(INVALID_REQUEST, said)
        except Refusal as refusal:
            if answered:  # a notification never is
                self._refuse(client, number, refusal)
            return
        client.calls[call.key] = call
        task = self.loop.create_task(self._do(call))
        for tasks in (self._tasks, client.tasks):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _call(self, client: Client, request: dict[str, Any], number: Any) -> Call:
        """The call that a request asks for. Raises Refusal."""
        if self.ending:
            raise Refusal(ENDING, "the service is about to end")
        method = METHODS.get(str(request["method"]))
        if method is None:
            raise Refusal(METHOD_NOT_FOUND, f"no method {str(request['method'])[:64]!r}")
        if method.operates and not client.operates:
            raise Refusal(NOT_ALLOWED, f"{method.name}: this socket is for looking; expected {OPERATE}")
        params = dict(request.get("params", {}))
        verbose = params.pop("verbose", 0)
        verbose = verbose if verbose in (1, 2) else 0
        try:
            return Call(method, method.params.model_validate(params), verbose, client, number, self)
        except ValidationError as error:
            said = wrong(method, error)
            data = {"kind": Mistake.__name__, "lines": said, "exit_status": int(Mistake.exit_status)}
            raise Refusal(INVALID_PARAMS, f"{method.name}: {'; '.join(said)}", data) from None

    async def _do(self, call: Call) -> None:
        try:
            result = await self._answer(call)
        except BaseException as error:
            self._finish(call)
            if call.number is not None:
                self._refuse(call.client, call.number, refusal_of(error))
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        self._finish(call)
        if call.number is not None:
            call.client.send({"jsonrpc": "2.0", "id": call.number, "result": result})

    def _finish(self, call: Call) -> None:
        call.client.calls.pop(call.key, None)

    def _refuse(self, client: Client, number: Any, refusal: Refusal) -> None:
        error = {"code": refusal.code, "message": str(refusal)}
        if refusal.data is not None:
            error["data"] = refusal.data
        client.send({"jsonrpc": "2.0", "id": number, "error": error})

    # --- events ------------------------------------------------------------------------------------------------------

    def subscribe(self, client: Client, since: int | None) -> int:
        """Has a client sent events from a number on; returns the number of the next one."""
        self._note()
        client.cursor = min(since, self.history.next) if since is not None else self.history.next
        self.soon(self._flush)  # after the answer
        return self.history.next

    def _note(self) -> None:
        while self._happened:
            self.history.add(*self._happened.popleft())

    def _flush(self, *, last: bool = False) -> None:
        """Sends each listener what it has not been sent; again soon where there may be more."""
        now = self.loop.time()
        sent = behind = False
        self._note()
        made: dict[tuple[int, int], bytes] = {}
        for client in list(self._clients):
            if client.cursor is None:
                continue
            while client.cursor < self.history.next and client.unread < MOST_UNREAD:
                lost, lines, after = self.history.since(client.cursor, 1024)
                if lost:
                    details = {"from": client.cursor, "to": client.cursor + lost - 1}
                    client.send({"jsonrpc": "2.0", "method": "events.lost", "params": details})
                key = (after - len(lines), after)
                if key not in made:
                    made[key] = b"".join(lines)
                client.write(made[key])
                client.cursor = after
                sent = True
            if client.cursor < self.history.next:
                behind = True
                if client.stuck(now):
                    _log.warning("a listener has read nothing for %g s and is left", UNREAD_SECONDS)
                    client.writer.transport.abort()
                    self._clients.discard(client)
        if last:
            return
        if sent or behind:
            self._flushing = True
            self._again.cancel()  # one at a time
            self._again = self.loop.call_later(TOGETHER_SECONDS, self._flush)
            return
        self._flushing = False
        if self._happened:  # since they were noted, by who took this thread to be going to look
            self._flushing = True
            self.soon(self._flush)


def _parsed(line: bytes) -> dict[str, Any]:
    """A request as an object. Raises Refusal."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        raise Refusal(PARSE_ERROR, "not JSON") from None
    params = request.get("params", {}) if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("method"), str) or not isinstance(params, dict):
        raise Refusal(INVALID_REQUEST, "a request is an object with a string 'method' and, if any, an object 'params'")
    return request
