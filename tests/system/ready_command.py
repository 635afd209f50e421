"""The command `tailrace`, run by a copy of a process that has read its modules: that is most of what a start of the
command costs, and the tests start it a thousand times.

`run()` does what `subprocess.run` does. Each run is a process of its own, with its own streams, environment, folder and
exit status, and enters the command as its script does. Where a copy would not be the same (another program, variables
that an interpreter or a library looks at when it starts), the program itself is started.

As a program this is the process that is copied. It has one thread, so that a copy is whole; it takes requests from the
socket that it is given, and ends when that is closed.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

LOADED = (
    "tailrace.cli.bench",
    "tailrace.cli.commands",
    "tailrace.cli.function",
    "tailrace.cli.host",
    "tailrace.cli.measure",
    "tailrace.cli.operate",
    "tailrace.cli.results",
    "tailrace.measure.session",
    "tailrace.report.screen",
    "typer.main",
)
"""All but `tailrace.cli.main`, which looks at the arguments when it is loaded."""
LOOKED_AT = ("PYTHON", "LD_", "LC_", "LANG", "ASAN_", "UBSAN_", "TAILRACE_LIBVIRT")
"""How the variables begin that are looked at when a program starts, or a module of ours is loaded."""
_NUMBER = struct.Struct("<I")
_LONGEST = 1 << 17
"""Bytes of a request."""
PATIENCE = 100.0
"""Seconds for what takes no time of a command's, however busy the machine is."""


def run(
    program: Path,
    arguments: Sequence[str],
    *,
    environment: dict[str, str],
    folder: Path,
    timeout: float,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.CompletedProcess[str]:
    """What it printed, and its status. Raises subprocess.TimeoutExpired, and has killed it then."""
    command = [str(program), *arguments]
    request = json.dumps({"command": command, "environment": environment, "folder": str(folder)}).encode()
    if not _is_the_same(program, environment) or len(request) > _LONGEST:
        return subprocess.run(
            command,
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=environment,
            cwd=folder,
        )
    with ExitStack() as opened:
        pid, told, output, errors = _started(request, stdin, opened)
        found = {told: b"", output: b"", errors: b""}
        if not read_all(found, timeout):
            if not found[told]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                read_all({told: b""}, PATIENCE)
            raise subprocess.TimeoutExpired(command, timeout)
    status = os.waitstatus_to_exitcode(_NUMBER.unpack(found[told])[0])
    return subprocess.CompletedProcess(command, status, _text(found[output]), _text(found[errors]))


def read_all(found: dict[int, bytes], seconds: float) -> bool:
    """Reads these pipes, each until nobody can write to it any more; False if that is not so after this time."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for each in found:
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in selector.select(left):
                some = os.read(key.fd, 1 << 16)
                found[key.fd] += some
                if not some:
                    selector.unregister(key.fd)
    return True


def _text(some: bytes) -> str:
    return some.decode().replace("\r\n", "\n").replace("\r", "\n")


def _started(request: bytes, stdin: int, opened: ExitStack) -> tuple[int, int, int, int]:
    """The command's process, and where its status, its output and its errors come; `opened` closes these. Waits until
    the process that is copied is ready, which is no time of the command's. Raises RuntimeError where it ends."""
    for _ in range(2):  # it may have ended since it was last needed
        with ExitStack() as ours, ExitStack() as theirs:
            reading: list[int] = []
            writing: list[int] = []
            for _ in range(3):
                for end, ends, stack in zip(os.pipe(), (reading, writing), (ours, theirs), strict=True):
                    ends.append(end)
                    stack.callback(os.close, end)
            copied = _ask(request, [*writing, *([] if stdin == subprocess.DEVNULL else [stdin])])
            theirs.close()
            told, output, errors = reading
            with selectors.DefaultSelector() as selector:
                selector.register(told, selectors.EVENT_READ)
                number = os.read(told, _NUMBER.size) if selector.select(PATIENCE) else b""
            if number:
                opened.push(ours.pop_all())
                return _NUMBER.unpack(number)[0], told, output, errors
        end_copied(copied)
    raise RuntimeError("the process that is copied ended, or stood still, before it ran the command")


def _is_the_same(program: Path, environment: dict[str, str]) -> bool:
    differs = environment.items() ^ _BEFORE.items()
    ours = (Path(sys.prefix) / "bin/tailrace").resolve()
    return program.resolve() == ours and not any(name.startswith(LOOKED_AT) for name, _ in differs)


_BEFORE = dict(os.environ)
_starting = threading.Lock()
_process: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def _ask(request: bytes, files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Hands a request to the process that is copied, which is started when it is first needed, and returns that. Where
    it has ended, nobody keeps the files."""
    global _process
    with _starting:
        if _process is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                argv = [sys.executable, "-P", __file__, str(theirs.fileno())]
                files_of_it = [theirs.fileno()]
                process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=files_of_it, cwd="/", env=_BEFORE)
            _process = process, ours
        process, requests = _process
        with suppress(ConnectionError):
            socket.send_fds(requests, [request], files)
        return process


def end_copied(process: subprocess.Popen[bytes] | None = None) -> None:
    """Ends the process that is copied, if it is this one; another is started when it is needed. Commands go on."""
    global _process
    with _starting:
        if _process is None or process not in (None, _process[0]):
            return
        (ending, requests), _process = _process, None
        requests.close()
        ending.kill()
        ending.wait()


# --- the process that is copied ------------------------------------------------------------------------------------


def _next_command(requests: socket.socket) -> None:
    """Returns in each copy, which is then to be the command; ends when nobody asks any more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who waits for a command ends by itself
    while True:
        text, files, _, _ = socket.recv_fds(requests, _LONGEST, 4)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            break
        for each in files:
            os.close(each)
    requests.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tell, *streams = files
    process = os.fork()
    if process != 0:
        for each in streams:
            os.close(each)
        try:
            os.write(tell, _NUMBER.pack(process))
            os.write(tell, _NUMBER.pack(os.waitpid(process, 0)[1]))
        finally:  # who asked may have given up
            os._exit(0)
    os.close(tell)
    for number, each in zip((1, 2, 0), streams, strict=False):  # its own standard input is /dev/null
        os.dup2(each, number)
        os.close(each)
    asked: dict[str, Any] = json.loads(text)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.argv = asked["command"]
    sys.orig_argv = [sys.executable, *sys.argv]


if __name__ == "__main__":
    for name in LOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.freeze()
    _next_command(socket.socket(fileno=int(sys.argv[1])))
    from tailrace.cli.main import main

    sys.exit(main())
