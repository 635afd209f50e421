"""Who runs, watched without polling: a process's end is an event of its descriptor (pidfd_open(2)), and what becomes of
a port the switch says itself. Runs in the server's event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tailrace.fabric.base import members_words
from tailrace.node.events import KINDS
from tailrace.process.process import ProcessId

_log = logging.getLogger(__name__)
_MOST_LINE = 4 << 20
_AGAIN_SECONDS = 1.0


class Supervisor:
    """The processes and the switch of one node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: Callable[[], None],
        port_is: Callable[[str, str, str | None], None],
        configured_by: Callable[[int], None],
    ) -> None:
        """`ended` is called when a process has ended; `port_is` with a port's name, new state, and why, if it says;
        `configured_by` with the process that has changed the switch's configuration."""
        self._loop = loop
        self._ended = ended
        self._port_is = port_is
        self._configured_by = configured_by
        self._handles: dict[ProcessId, int] = {}
        self._switch: socket.socket | None = None
        self._switch_of: ProcessId | None = None
        self._control = Path()
        self._heard = b""
        self._ports: dict[str, str] = {}
        """The state of each port of the switch, as it was last heard of."""

    def watch(self, processes: Iterable[ProcessId], switch: ProcessId | None, control: Path) -> None:
        """Watches these processes, and no others any more, and the events of the switch among them."""
        wanted = set(processes)
        for process in [each for each in self._handles if each not in wanted]:
            self._leave(process)
        for process in wanted - set(self._handles):
            try:
                handle = os.pidfd_open(process.pid)
            except OSError:
                self._ended()
                continue
            self._handles[process] = handle
            self._loop.add_reader(handle, self._has_ended, process)
            if not process.alive():  # and its number is somebody else's by now
                self._has_ended(process)
        if switch != self._switch_of:
            self._switch_of = None
            self._hang_up()
            self._ports.clear()
            self._switch_of, self._control = switch, control
            if switch is not None:
                self._listen(control)

    def close(self) -> None:
        self.watch((), None, Path())

    def _has_ended(self, process: ProcessId) -> None:
        self._leave(process)
        self._ended()

    def _leave(self, process: ProcessId) -> None:
        handle = self._handles.pop(process, None)
        if handle is not None:
            self._loop.remove_reader(handle)
            os.close(handle)

    # --- the switch --------------------------------------------------------------------------------------------------

    def _listen(self, control: Path) -> None:
        """Asks the switch for its events."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            found.settimeout(1.0)
            found.connect(str(control))
            found.sendall(b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}\n')
            found.setblocking(False)
        except OSError as error:
            found.close()
            _log.warning("the switch's events cannot be had: %s", error)
            self._hang_up()
            return
        self._switch, self._heard = found, b""
        self._loop.add_reader(found, self._hear)

    def _hear(self) -> None:
        assert self._switch is not None
        try:
            more = self._switch.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        if not more:  # it has ended, or has left a listener that did not read in time
            self._hang_up()
            return
        *lines, self._heard = (self._heard + more).split(b"\n")
        try:
            if len(self._heard) > _MOST_LINE:
                raise ValueError("a line without an end")
            for line in lines:
                message = json.loads(line)
                if message.get("method") == "config":
                    self._configured_by(int(message["params"]["pid"]))
                    continue
                ports = message["result"]["ports"] if "result" in message else [message["params"]]
                for port in ports:
                    self._say(port)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            _log.warning("the switch's events are not understood (%s)", error)
            self._hang_up()

    def _say(self, port: dict[str, Any]) -> None:
        """The switch is confined, and this is not, so what it says is checked. Raises ValueError, LookupError,
        TypeError."""
        name, state, reason = port["name"], port["state"], port.get("reason")
        if f"port.{state}" not in KINDS or not isinstance(name, str) or not isinstance(reason, str | None):
            raise ValueError("no port's state")
        if self._ports.get(name) != state:
            self._ports[name] = state
            self._port_is(name, state, reason)
        elif bond := port.get("bond"):
            self._port_is(name, "members", members_words(bond, reason))

    def _hang_up(self) -> None:
        """Listens no more; again in a moment, if that switch still runs."""
        if self._switch is not None:
            self._loop.remove_reader(self._switch)
            self._switch.close()
        self._switch = None
        if self._switch_of is not None:
            self._loop.call_later(_AGAIN_SECONDS, self._listen_again, self._switch_of)

    def _listen_again(self, switch: ProcessId) -> None:
        if self._switch is None and self._switch_of == switch and switch in self._handles:
            self._listen(self._control)
