"""The client side of the control socket: JSON-RPC 2.0 over a Unix stream socket, one JSON object a line each way."""

from __future__ import annotations

import errno
import json
import logging
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.process.plain import plain

_log = logging.getLogger(__name__)
_MOST_LINE = 64 << 20
"""Bytes of an answer, more than that about any configuration."""
_PEER = struct.Struct("iII")  # process, user, group
_TIME = struct.Struct("@ll")  # struct timeval
INVALID_PARAMS = -32602
FAILED = -32000
UNKNOWN = -32001
IN_USE = -32002
CONFLICT = -32003


class ControlError(Failure):
    """A method was refused; `code` says whose fault it is."""

    def __init__(self, method: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.method = method
        self.code = code
        self.data = data
        """What else the daemon says of it."""


class ControlLost(Failure):
    """The other side is gone or does not answer."""


class NoAnswer(ControlLost):
    """The other side does not answer in time; it may do so later."""


def request_line(number: int, method: str, params: Mapping[str, Any]) -> str:
    """A call, without the end of its line."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def result_of(method: str, answer: Mapping[str, Any]) -> Any:
    """What the answer to a call says. Raises ControlError if it was refused, ControlLost if it says neither result nor
    error: who answers may be a function, which is not trusted."""
    try:
        if "error" not in answer:
            return answer["result"]
        refused = answer["error"]
        error = ControlError(method, int(refused["code"]), plain(str(refused["message"])), refused.get("data"))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise ControlLost(f"{method}: answered with neither a result nor an error") from None
    raise error


class _Lines:
    """What comes from a socket, line by line. Nothing that has come is lost where a signal or a timeout cuts a wait
    short."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._come = bytearray()

    def readline(self, deadline: float | None = None) -> bytes:
        """The next line; what is left at the end, which has no newline. `deadline` is of time.monotonic(). Raises
        OSError, TimeoutError."""
        searched = 0
        while (end := self._come.find(b"\n", searched)) < 0:
            searched = len(self._come)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and (left <= 0 or not select.select([self._source], [], [], left)[0]):
                raise TimeoutError
            if len(self._come) > _MOST_LINE:
                raise OSError(errno.EMSGSIZE, "a line without an end")
            more = self._source.recv(1 << 16)
            if not more:
                end = len(self._come) - 1
                break
            self._come += more
        line = bytes(self._come[: end + 1])
        del self._come[: end + 1]
        return line

    def has_line(self) -> bool:
        """Whether a line has come that was not read."""
        return b"\n" in self._come

    def close(self) -> None:
        self._come.clear()


def _connect(connection: socket.socket, path: Path, timeout: float | None) -> None:
    """Connects, and waits for that where many do so at once, no longer than an answer may take. Raises OSError."""
    if timeout is not None:  # Linux refuses at once who waits by poll(2), as a socket of Python's with a timeout does
        longest = _TIME.pack(*divmod(max(int(timeout * 1e6), 1), 10**6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, longest)
    connection.connect(str(path))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(0, 0))
    connection.settimeout(timeout)


class Control:
    """A connection to one daemon. Calls are answered in order, one at a time."""

    def __init__(
        self,
        path: Path,
        timeout: float | None = 10.0,
        notified: Callable[[str, dict[str, Any]], None] = lambda _method, _params: None,
    ) -> None:
        """Connects. `timeout`: seconds that an answer may take; None: as long as it likes. `notified` is called with
        what the daemon sends without being asked. Raises ControlLost."""
        self.path = path
        self.waiting: int | None = None
        """The number of the call whose answer is waited for, once it is sent."""
        self._notified = notified
        self._next = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _connect(self._socket, path, timeout)
        except OSError as error:
            self._socket.close()
            raise ControlLost(f"{path}: nobody answers ({error.strerror})") from None
        self._stream = _Lines(self._socket)
        peer = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        self.process, self.peer, _ = _PEER.unpack(peer)
        """Of the daemon, as it began to listen: its process, and the user that it runs as."""

    def call(self, method: str, **params: Any) -> Any:
        """The method's result. Raises ControlError if it is refused, ControlLost if the daemon has gone."""
        self._next += 1
        timeout = self._socket.gettimeout()
        deadline = None if timeout is None else time.monotonic() + timeout
        _log.debug("%s: %s", self.path.name, method)
        try:
            self._socket.sendall(request_line(self._next, method, params).encode() + b"\n")
            self.waiting = self._next
            answer = self._answer(deadline)
            while answer.get("id") in range(1, self._next):
                answer = self._answer(deadline)  # that was to a call that Ctrl-C has cut short
        except TimeoutError:
            raise NoAnswer(f"{self.path}: no answer to {method}") from None
        except OSError as error:
            raise ControlLost(f"{self.path}: connection lost ({error.strerror})") from None
        finally:
            self.waiting = None
        return result_of(method, answer)

    def notify(self, method: str, **params: Any) -> None:
        """Sends what is not answered. Raises ControlLost."""
        try:
            self._socket.sendall(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")
        except OSError as error:
            raise ControlLost(f"{self.path}: connection lost ({error.strerror})") from None

    def read_one(self, seconds: float | None = None) -> None:
        """Waits for what the daemon sends next without being asked, at most so long. Raises ControlLost."""
        try:
            if self._stream.has_line() or select.select([self._socket], [], [], seconds)[0]:
                self._read()
        except OSError as error:
            raise ControlLost(f"{self.path}: connection lost ({error.strerror})") from None

    def patience(self, timeout: float | None) -> None:
        """How many seconds an answer may take from now on; None: as long as it likes."""
        self._socket.settimeout(timeout)

    def _answer(self, deadline: float | None) -> dict[str, Any]:
        """The next one that comes, whatever it answers."""
        while (answer := self._read(deadline)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError
        return answer

    def _read(self, deadline: float | None = None) -> dict[str, Any] | None:
        """The next message, if it is an answer; the others are passed on."""
        line = self._stream.readline(deadline)
        if not line.endswith(b"\n"):
            raise ControlLost(f"{self.path}: connection closed")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise ControlLost(f"{self.path}: answered with something that is not JSON-RPC")
        if "method" not in message:
            return message
        params = message.get("params")
        self._notified(str(message["method"]), params if isinstance(params, dict) else {})
        return None

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def connect_when_ready(path: Path, alive: Callable[[], bool], seconds: float) -> Control:
    """Connects as soon as the daemon answers `version`. Raises ControlLost if it ends or takes longer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            control = Control(path)
            control.call("version")
            return control
        except ControlLost:
            if not alive():
                raise ControlLost("ended before it was ready") from None
            if time.monotonic() > deadline:
                raise ControlLost(f"was not ready within {seconds:g} s") from None
            time.sleep(0.01)
