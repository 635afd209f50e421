"""HOST of `tailrace migrate`: another node, whose service is asked on its socket.

A path is the state folder of a node of this machine, in whatever namespaces that lives. Anything else is a host that
ssh reaches without a password: the sockets of its service and of its libvirt are forwarded by that alone, so the other
host needs no more than an ssh server. (libvirt's own qemu+ssh would log in once more, and need netcat there for a
libvirt that Tailrace has started.)
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
from urllib.parse import parse_qs, urlsplit

from tailrace.errors import Failure, Mistake
from tailrace.migrate.facts import Facts, read_facts
from tailrace.node.client import Client, NoService
from tailrace.process.plain import last_line
from tailrace.process.programs import finished, system_program
from tailrace.state.folder import OPERATE

ANSWER_SECONDS = 60.0
"""In which another node says what it has: it may be busy with a change."""
_CONNECT_SECONDS = 20.0
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,252}")
_FOLDER = "/run/tailrace"
"""Of root's node on another host."""
_SYSTEMS = "/run/libvirt/libvirt-sock"
"""Of a host's libvirt, where its URI names no other."""
_PATH = re.compile(r"/[\w./-]{1,100}", re.ASCII)
_LIBVIRT = "libvirt.socket"
#: What to do about it, by what ssh says. {name}: the host.
_CURES = {
    "Host key verification failed": "root here does not know its key, or knows another one: `ssh {name} true` as root "
    "shows that; compare it with `ssh-keygen -lf` of the key there, and accept it",
    "Permission denied": "no key of root's here is accepted there: `ssh-copy-id {name}` as root",
    "Connection refused": "no ssh server listens there: start one, or name its port in root's ~/.ssh/config",
    "Could not resolve hostname": "expected a name that root's ~/.ssh/config or /etc/hosts has, or an address",
}


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
            if not self.far:
                raise Mistake(f"{self.name}: no service runs there; start one: `tailrace up SPEC`") from None
            raise Mistake(
                f"{self.name}: no service answers there in {_FOLDER}; start one: `tailrace up SPEC`. If one runs, the "
                "ssh server does not forward its socket: neither sshd_config (AllowStreamLocalForwarding) nor the "
                "key's line in authorized_keys may forbid that"
            ) from None
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

    @contextmanager
    def libvirt(self, facts: Facts) -> Iterator[tuple[str, str | None]]:
        """Where libvirt reaches that one's libvirt, for the block, and where memory is sent; None: libvirt says that
        itself. Raises Failure, Mistake."""
        if not self.far:
            yield facts.libvirt_uri, "tcp://127.0.0.1"
            return
        there, socket = _libvirt_socket(self.name, facts.libvirt_uri), self.folder / _LIBVIRT
        memory = _memory_uri(self.name)
        with _forwarded(self.name, socket, there):
            yield f"qemu+unix:///system?socket={socket}", memory


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
    with tempfile.TemporaryDirectory(prefix="tailrace-ssh-") as made:
        folder = Path(made)
        with _forwarded(name, folder / OPERATE, f"{_FOLDER}/{OPERATE}"):
            yield Host(name, folder, far=True)


def _libvirt_socket(name: str, uri: str) -> str:
    """The socket of a host's libvirt. Raises Mistake."""
    path = parse_qs(urlsplit(uri).query).get("socket", [_SYSTEMS])[-1]
    if not _PATH.fullmatch(path):
        raise Mistake(f"{name}: libvirt's socket there is {path!r}; expected letters, digits, . _ -")
    return path


def _memory_uri(name: str) -> str | None:
    """Where QEMU sends memory to a host: the address at which ssh reaches it; None where ssh goes by a third one.
    Raises Failure, Mistake."""
    done = finished([system_program("ssh"), "-G", "--", name])
    if done.returncode != 0:
        raise Failure(f"{name}: ssh cannot read its settings ({last_line(done.stderr)})")
    settings = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    if any(settings.get(each, "none") != "none" for each in ("proxyjump", "proxycommand")):
        return None
    address = settings.get("hostname", name)
    return f"tcp://[{address}]" if ":" in address else f"tcp://{address}"


@contextmanager
def _forwarded(name: str, socket: Path, there: str) -> Iterator[None]:
    """A socket of another host, forwarded here by ssh(1), which asks for nothing. Raises Failure."""
    # Who asks in a thread may end in the middle of that. A connection that others share would keep the socket.
    words = [system_program("setpriv"), "--pdeathsig", "KILL", system_program("ssh"), "-N", "-T", "-S", "none"]
    words += ["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes"]
    words += ["-o", f"ConnectTimeout={_CONNECT_SECONDS:.0f}", "-o", "StreamLocalBindMask=0177"]
    words += ["-o", "ServerAliveInterval=5", "-L", f"{socket}:{there}", "--", name]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as program:
        try:
            deadline = time.monotonic() + _CONNECT_SECONDS
            while not socket.exists():
                if program.poll() is not None or time.monotonic() > deadline:
                    program.kill()
                    assert program.stderr is not None
                    raise Failure(_why_not_reached(name, program.stderr.read().decode(errors="replace")))
                time.sleep(0.02)
            yield
        finally:
            program.kill()


def _why_not_reached(name: str, said: str) -> str:
    cure = next((each for words, each in _CURES.items() if words in said), "try `ssh {name} true` as root")
    return f"{name}: ssh does not get there ({last_line(said, 'no answer in time')}); {cure.format(name=name)}"
