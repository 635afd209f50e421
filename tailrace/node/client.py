"""The client of `tailraced`: what the command, the dashboard and the agent talk to the service with.

It needs nothing but Python's own modules, so that a command that only asks starts at once.
"""

from __future__ import annotations

import json
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace import __version__
from tailrace.errors import ExitCode, Failure, Mistake, TailraceError
from tailrace.process.control import Control, ControlError, ControlLost, NoAnswer
from tailrace.process.plain import MOST_ERROR, last_line, plain
from tailrace.state.folder import IMAGES, LOOK, OPERATE

API = 1
"""The version of the methods (`tailrace.node.api`): a client and a service of different ones do not talk."""
FAILED = -32000
ENDING = -32010
"""The code of a service that is about to end: what was asked was not begun."""
_HELLO_SECONDS = 10.0
_START_SECONDS = 120.0
_END_SECONDS = 10.0
_TRIES = 5


class Said(TailraceError):
    """What the service says of a mistake or a failure, line by line."""

    def __init__(self, lines: list[str], status: int, *, service_ends: bool = False) -> None:
        super().__init__("; ".join(lines))
        self._lines = lines
        self.exit_status = ExitCode(status)
        self.service_ends = service_ends
        """Nothing is up, so the service that was started for it ends."""

    @property
    def lines(self) -> list[str]:
        return self._lines


class NoService(Failure):
    """No service runs in the folder."""


class Client:
    """A connection to the service of a state folder."""

    def __init__(self, folder: Path, *, look: bool = False) -> None:
        """Connects; `look`: to the socket for those who may only look. Raises NoService, Mistake, Failure."""
        self.path = folder / (LOOK if look else OPERATE)
        self.told: Callable[[str], None] = lambda _: None
        """Called with a line about what is being done, while a method runs."""
        self.logged: Callable[[int, str], None] = lambda _level, _text: None
        """Called with what the service logs meanwhile, where `verbose` asks for it, and its level."""
        self.heard: Callable[[str, dict[str, Any]], None] = lambda _method, _params: None
        """Called with what else it says meanwhile."""
        try:
            self._control = Control(self.path, timeout=_HELLO_SECONDS, notified=self._notified)
        except ControlLost as error:
            raise _why_not(self.path, error) from None
        self._events: deque[dict[str, Any]] = deque()
        """Those that came while something else was waited for."""
        if self._control.peer not in (0, os.geteuid()) and os.geteuid() != 0:
            self.close()
            raise Mistake(f"{self.path}: belongs to another user ({self._control.peer}), who is not to be trusted")
        self.pid, self.version = self._hello()
        self._control.patience(None)

    def _hello(self) -> tuple[int, str]:
        """Its process and version."""
        try:
            answer = self._control.call("service.version")
            api, version = int(answer["api"]), plain(str(answer["version"]))
        except ControlLost as error:
            self.close()
            if "closed" in str(error) or "lost" in str(error):
                raise NoService(str(error)) from None
            raise Failure(f"{error}; this is not the socket of a service of Tailrace's") from None
        except (ControlError, KeyError, TypeError, ValueError) as error:
            self.close()
            if isinstance(error, ControlError) and error.code == FAILED:
                raise Failure(str(error)) from None
            raise Failure(f"{self.path}: this is not the socket of a service of Tailrace's") from None
        said = answer.get("pid")
        process = said if type(said) is int and said > 0 else self._control.process
        if api != API:
            self.close()
            raise Mistake(
                f"the service (process {process}) is of Tailrace {version} and speaks version "
                f"{api} of its API, this command of {__version__} version {API}; end it with "
                f"`kill {process}`, which leaves what is up running, and try again"
            )
        return process, version

    def call(self, method: str, **params: Any) -> Any:
        """A method's result. Ctrl-C and SIGTERM do not end the wait: the service is told, undoes what it has begun, and
        its answer says so. Raises Said, NoService if the service is about to end, Failure if it has ended."""
        with self._cancelling():
            try:
                return self._control.call(method, **params)
            except ControlError as error:
                if error.code == ENDING:
                    raise NoService(str(error)) from None
                data = error.data if isinstance(error.data, dict) else {}
                lines = [plain(str(line), MOST_ERROR) for line in data.get("lines", [str(error)])]
                ends = bool(data.get("service_ends"))
                raise Said(lines, int(data.get("exit_status", 1)), service_ends=ends) from None
            except NoAnswer as error:
                raise Failure(f"{error} in time: the service is busy, or stands still") from None
            except ControlLost as error:
                raise Failure(
                    f"{error}: the service has ended in the middle of {method}; what was up goes on, and "
                    "`tailrace status` says what is"
                ) from None

    def subscribe(self, since: int | None = None) -> int:
        """Has events sent from now on, or from a number on; returns the number of the next one."""
        return int(self.call("events.subscribe", **({} if since is None else {"since": since}))["next"])

    def next_event(self, seconds: float | None = None) -> dict[str, Any] | None:
        """The next event that was subscribed to, as it comes; None if none does for so long. Raises Failure where the
        service has ended."""
        deadline = time.monotonic() + seconds if seconds is not None else None
        while not self._events:
            left = max(deadline - time.monotonic(), 0.0) if deadline is not None else None
            self._control.read_one(left)
            if left == 0.0 and not self._events:
                return None
        return self._events.popleft()

    def wait_for_end(self, seconds: float = _END_SECONDS) -> None:
        """Returns when the service has ended, as one does that was started for what is down now; or after a while: it
        may have found something to do."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            select.select([handle], [], [], seconds)
        finally:
            os.close(handle)

    def patience(self, seconds: float | None) -> None:
        """How long an answer may take from now on; None: as long as it likes."""
        self._control.patience(seconds)

    def cancel(self, why: str) -> None:
        """Asks for the end of the call that is waited for, from another thread."""
        with suppress(ControlLost):
            if (waiting := self._control.waiting) is not None:
                self._control.notify("call.cancel", call=waiting, why=why)

    def close(self) -> None:
        self._control.close()

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        if method == "event" or method == "events.lost":
            self._events.append(params if method == "event" else {"kind": "events.lost", **params})
        elif method == "progress":
            self.told(str(params.get("text", "")))
        elif method == "log":
            self.logged(int(params.get("level", 0)), str(params.get("text", "")))
        else:
            self.heard(method, params)

    @contextmanager
    def _cancelling(self) -> Iterator[None]:
        """A signal that would end this process cancels the call instead; the second one ends it."""
        asked: list[int] = []

        def cancel(number: int, frame: FrameType | None) -> None:
            if asked or not self._control.waiting:
                before = old[number]
                if callable(before):
                    before(number, frame)
                return
            asked.append(number)
            why = "interrupted by Ctrl-C" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
            with suppress(ControlLost):
                self._control.notify("call.cancel", call=self._control.waiting, why=why)

        old: dict[int, Any] = {}
        try:
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if callable(signal.getsignal(each)):
                    old[each] = signal.signal(each, cancel)
        except ValueError:  # not in the main thread, which gets no signals
            pass
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


def _why_not(path: Path, error: ControlLost) -> TailraceError:
    """Why nobody is connected to."""
    try:
        path.stat()
    except PermissionError:
        return Mistake(f"{path.parent}: you may not enter it; run as its owner (sudo)")
    except OSError:
        return NoService(str(error))
    if not os.access(path, os.W_OK):
        return Mistake(f"{path}: you may not use it; {_how_to_use(path)}")
    return NoService(str(error))


def _how_to_use(path: Path) -> str:
    """What somebody does who may not use a socket."""
    with suppress(OSError):
        found = path.stat()
        owner = "run it with sudo" if found.st_uid == 0 else f"run it as its owner, user {found.st_uid}"
        return owner + (f", or join its group ({_group(path)})" if found.st_mode & stat.S_IWGRP else "")
    return "run it with sudo"


def _group(path: Path) -> str:
    try:
        return path.group()
    except (KeyError, OSError):
        return "which has no name"


def ask(
    folder: Path,
    method: str,
    *,
    look: bool = False,
    start: bool = True,
    told: Callable[[str], None] = lambda _: None,
    logged: Callable[[int, str], None] = lambda _level, _text: None,
    **params: Any,
) -> Any:
    """One method of the service of a folder. `start`: a service is started where none runs. One that was started so
    ends when nothing is up, and is waited for. Raises NoService, Said, Mistake, Failure."""
    for _ in range(_TRIES):
        client: Client | None = None
        try:
            client = Client(folder, look=look)
        except NoService:
            if not start:
                raise
            try:
                start_service(folder)
            except Said:
                with suppress(NoService):  # another command has started one at the same time
                    client = Client(folder, look=look)
                if client is None:
                    raise
            client = client or Client(folder, look=look)
        client.told, client.logged = told, logged
        try:
            result = client.call(method, **params)
            if result.get("service_ends"):
                client.wait_for_end()
            return result
        except Said as said:
            if said.service_ends:
                client.wait_for_end()
            raise
        except NoService:
            client.wait_for_end()
        finally:
            client.close()
    raise Failure(f"{folder}: the service keeps ending; see {folder}/service.log")


def start_service(folder: Path) -> None:
    """Starts `tailraced` for what is going to be up; returns when it answers. Raises Said or Failure."""
    ready, tell = os.pipe()
    # Never from the folder that it happens to be started in, which may be anybody's.
    argv = [sys.executable, "-I" if sys.flags.isolated else "-P", "-m", "tailrace.node.service", str(folder)]
    argv += ["--while-up", "--ready-fd", str(tell)]
    images = {IMAGES: str(Path(os.environ[IMAGES]).absolute())} if os.environ.get(IMAGES) else {}
    try:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(tell,),
            start_new_session=True,
            cwd="/",
            env={**os.environ, **images},
        )
    finally:
        os.close(tell)
    said = b""
    with os.fdopen(ready, "rb", buffering=0) as stream:
        while b"\n" not in said and select.select([stream], [], [], _START_SECONDS)[0]:
            more = stream.read(65536)
            if not more:
                break
            said += more
    if not said.endswith(b"\n"):
        program.kill()
        words = last_line(program.communicate()[1], "it says nothing")
        raise Failure(f"the service could not be started: {words}")
    assert program.stderr is not None
    program.stderr.close()
    answer = json.loads(said)
    if "lines" in answer:
        program.wait()
        raise Said(answer["lines"], answer["exit_status"])
    # It lives on by itself: whose child it is makes no difference any more.
    program.returncode = 0
