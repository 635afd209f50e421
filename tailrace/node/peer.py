"""HOST of `tailrace migrate`: another node, whose service is asked on its socket.

A path is the state folder of a node of this machine, in whatever namespaces that lives. Anything else is a host that
ssh reaches without a password, as libvirt does (qemu+ssh); the socket is forwarded.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.migrate.facts import Facts, read_facts
from tailrace.node.client import Client, NoService
from tailrace.process.plain import last_line
from tailrace.process.programs import system_program
from tailrace.state.folder import OPERATE

ANSWER_SECONDS = 60.0
"""In which another node says what it has: it may be busy with a change."""
_CONNECT_SECONDS = 20.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,252}")
_FOLDER = "/run/tailrace"
"""Of root's node on another host."""


@dataclass(frozen=True)
class Host:
    """Another node."""

    name: str
    folder: Path
    """With its socket, or what leads there."""
    far: bool
    """It is on another host, by ssh."""

    def connect(self) -> Client:
        """Raises Failure, Mistake."""
        try:
            client = Client(self.folder)
        except NoService:
            raise Mistake(f"{self.name}: no service runs there; start one: `tailrace up SPEC`") from None
        client.patience(ANSWER_SECONDS)
        return client

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One method of its service. Raises Failure, Mistake, Said."""
        client = self.connect()
        try:
            return dict(client.call(method, **params))
        finally:
            client.close()

    def facts(self, name: str) -> Facts:
        """What it says of itself and of a function. Raises Failure, Mistake, Said."""
        return read_facts(self.ask("migrate.facts", name=name)["facts"])

    def libvirt(self, facts: Facts) -> tuple[str, str | None]:
        """Where libvirt reaches that one's libvirt, and where memory is sent; None: libvirt says that itself."""
        if self.far:
            return f"qemu+ssh://{self.name}/system", None
        return facts.libvirt_uri, "tcp://127.0.0.1"


def check_host(name: str) -> None:
    """Raises Mistake where a name can be no node's."""
    if not name.startswith("/") and not _NAME.fullmatch(name):
        raise Mistake(f"{name!r} is no host; expected a host's name for ssh, or a state folder's absolute path")


@contextmanager
def reached(name: str) -> Iterator[Host]:
    """Another node, for as long as it is needed. Raises Failure, Mistake."""
    check_host(name)
    if name.startswith("/"):
        yield Host(name, Path(name), far=False)
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-ssh-") as folder, _forwarded(name, Path(folder) / OPERATE):
        yield Host(name, Path(folder), far=True)


@contextmanager
def _forwarded(name: str, socket: Path) -> Iterator[None]:
    """The socket of another host's service, forwarded here by ssh(1), which asks for nothing. Raises Failure."""
    # Who asks in a thread may end in the middle of that.
    words = [system_program("setpriv"), "--pdeathsig", "KILL", system_program("ssh"), "-N", "-T"]
    words += ["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
    words += ["-o", f"ConnectTimeout={_CONNECT_SECONDS:.0f}", "-o", "StreamLocalBindMask=0177"]
    words += ["-o", "ServerAliveInterval=5", "-L", f"{socket}:{_FOLDER}/{OPERATE}", "--", name]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as program:
        try:
            deadline = time.monotonic() + _CONNECT_SECONDS
            while not socket.exists():
                if program.poll() is not None or time.monotonic() > deadline:
                    program.kill()
                    assert program.stderr is not None
                    why = last_line(program.stderr.read(), "no answer in time")
                    raise Failure(f"{name}: ssh does not get there ({why}); try `ssh {name} tailrace status` as root")
                time.sleep(0.02)
            yield
        finally:
            program.kill()
