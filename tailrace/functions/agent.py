"""What a machine of Tailrace's own image does when it is asked to: its first process runs commands that come by the
third serial port (functions/guest/init).

A request is a line, a shell command in base64; the answer is a line, its status and all that it has printed in base64.
"""

from __future__ import annotations

import base64
import re
import secrets
import shlex
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process.plain import plain

_MOST = 1 << 20
_TOLD_SECONDS = 10
COMMANDS = "/run/commands"
"""Where functions/guest/init lets the function take commands from."""
FUNCTION = "/run/function"
"""Where it lets the function answer at."""
_ANSWER = re.compile(rb"(\d{1,3}) ((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}[A-Za-z0-9+/=]=)?)\r?")


def ask_bytes(path: Path, command: str, seconds: float = 30.0) -> bytes:
    """What a command prints that runs inside; `path` is the socket of the machine's third serial port. Raises Failure,
    also where it ends with another status than 0, or nobody answers within so many seconds."""
    # What answers is asked by others too, and may have been too late for them: an answer begins with its request's.
    token = secrets.token_hex(8)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            deadline = time.monotonic() + seconds
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(base64.b64encode(f"echo {token}\n{command}".encode()) + b"\n")
            code, printed = next(_answers(connection, deadline, token))
    except TimeoutError:
        raise Failure(f"nobody inside the machine has answered within {seconds:g} s") from None
    except OSError as error:
        raise Failure(f"the machine's agent cannot be reached ({path}: {error.strerror})") from None
    if code != 0:
        words = plain(" ".join(printed.decode(errors="replace").split())) or f"status {code}"
        raise Failure(f"inside the machine, `{command.partition(chr(10))[0]}` has failed: {words}")
    return printed


def _answers(connection: socket.socket, deadline: float, token: str) -> Iterator[tuple[int, bytes]]:
    """Status and text of each answer to this request. Raises Failure, TimeoutError."""
    rest, said = b"", 0
    while True:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))  # the machine is not trusted to come to an end
        more = connection.recv(65536)
        said += len(more)
        if not more or said > _MOST:
            raise Failure(f"the machine has {'said too much' if more else 'ended'}")
        if time.monotonic() > deadline:
            raise TimeoutError
        *lines, rest = (rest + more).split(b"\n") if b"\n" in more else (rest + more,)
        for line in lines:
            # While it boots, its terminal says again what it is sent.
            answer = _ANSWER.fullmatch(line)
            if answer is not None:
                first, _, printed = base64.b64decode(answer[2]).partition(b"\n")
                if first == token.encode():
                    yield int(answer[1]), printed


def ask(path: Path, command: str, seconds: float = 30.0) -> str:
    """The same, as text."""
    return ask_bytes(path, command, seconds).decode(errors="replace")


def beside(log: Path) -> Path:
    """The socket of the third serial port of the machine whose console is that log."""
    return log.with_suffix(".agent")


def call(path: Path, request: str, seconds: float = 30.0) -> str:
    """What the function inside answers to a request of its control socket, a line of JSON each. Raises Failure."""
    none = "no function of Tailrace answers: it has `driver: linux`, or its image has to be built again"
    there = f"[ -S {FUNCTION} ] || {{ echo '{none}'; exit 1; }}"
    return ask(path, f"{there}\ntailrace-vnf --ask {FUNCTION} <<'END'\n{request}\nEND\n", seconds)


def taken_up(epoch: int, entropy: bytes) -> list[str]:
    """The commands for a machine that goes on after it was saved: what the time is, and randomness of its own, since
    others may go on from the same file."""
    return [f"date -s @{epoch} >/dev/null", f"echo {entropy.hex()} >/dev/urandom"]


def identity(name: str, machine_id: str, addresses: Sequence[str]) -> list[str]:
    """The commands that make a copy another machine than the one that it was copied from."""
    words = [f"echo {shlex.quote(machine_id)} >/etc/machine-id", f"hostname {shlex.quote(name)}"]
    told = "; ".join(f"echo address {port} {mac}" for port, mac in enumerate(addresses))
    refused = "echo 'its function takes no addresses; build its image again'; exit 1"
    # Where nobody reads the FIFO, to open it takes for ever.
    return [*words, f"timeout {_TOLD_SECONDS} sh -c '({told}) >{COMMANDS}' || {{ {refused}; }}"]
