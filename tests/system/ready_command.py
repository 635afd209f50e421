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
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
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
    found: dict[int, str] = {}

    def read(number: int) -> None:
        with os.fdopen(number, encoding="utf-8") as stream:
            found[number] = stream.read()

    (output, its_output), (errors, its_errors) = os.pipe(), os.pipe()
    told, tell = socket.socketpair()
    with told:
        with tell:
            files = [tell.fileno(), its_output, its_errors, *([] if stdin == subprocess.DEVNULL else [stdin])]
            socket.send_fds(_copied(), [request], files)
        os.close(its_output)
        os.close(its_errors)
        readers = [threading.Thread(target=read, args=(each,)) for each in (output, errors)]
        for reader in readers:
            reader.start()
        told.settimeout(timeout)
        pid = _NUMBER.unpack(told.recv(_NUMBER.size, socket.MSG_WAITALL))[0]
        try:
            status = _NUMBER.unpack(told.recv(_NUMBER.size, socket.MSG_WAITALL))[0]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout) from None
    for reader in readers:
        reader.join()
    return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), found[output], found[errors])


def _is_the_same(program: Path, environment: dict[str, str]) -> bool:
    differs = environment.items() ^ _BEFORE.items()
    ours = (Path(sys.prefix) / "bin/tailrace").resolve()
    return program.resolve() == ours and not any(name.startswith(LOOKED_AT) for name, _ in differs)


_BEFORE = dict(os.environ)
_starting = threading.Lock()
_process: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def _copied() -> socket.socket:
    """Takes requests of the process that is copied, which is started when it is first needed."""
    global _process
    with _starting:
        if _process is not None:
            return _process[1]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-P", __file__, str(theirs.fileno())]
            started = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/", env=_BEFORE)
            _process = started, ours
        return ours


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
