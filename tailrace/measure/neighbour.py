"""A noisy neighbour: stress-ng, bounded in time and kept to some CPUs, on record like all that is started."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tailrace.errors import Failure, Mistake
from tailrace.process.process import Limits, descendants
from tailrace.process.programs import system_program
from tailrace.state.launch import Launcher
from tailrace.state.record import Folder, Process

PROGRAM = "stress-ng"
MOST_SECONDS = 4 * 3600
"""It ends by itself then, whatever becomes of us."""
STRESSES = {
    "cpu": ("--cpu", "{count}", "--cpu-method", "matrixprod"),
    "cache": ("--cache", "{count}"),
    "memory": ("--stream", "{count}"),
    "disk": ("--hdd", "{count}", "--hdd-bytes", "64M", "--hdd-opts", "fsync"),
}
"""What each presses on, in stress-ng's words: arithmetic; the last-level cache; memory bandwidth; writes to disk."""
_IN_MEMORY = ("tmpfs", "ramfs")
_READY_SECONDS = 10.0
_SETTLE_SECONDS = 0.3


def why_not(name: str, folder: Path) -> str | None:
    """Why this neighbour, writing to `folder`, cannot be had on this machine, or None."""
    try:
        system_program(PROGRAM)
    except Mistake as missing:
        return str(missing)
    if name == "disk" and _file_system(folder) in _IN_MEMORY:
        return f"{folder} is in memory, not on a disk; put the run folder on one with --runs FOLDER"
    return None


def _file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of the file system that a folder is on."""
    kinds = {Path(line.split()[1]): line.split()[2] for line in mounts.read_text().splitlines()}
    return next((kinds[place] for place in (folder.resolve(), *folder.resolve().parents) if place in kinds), "")


def command(name: str, cpus: Sequence[int], folder: str) -> list[str]:
    """stress-ng's command line: one worker on each CPU, temporary files in `folder`."""
    words = [word.format(count=len(cpus)) for word in STRESSES[name]]
    bound = ["--timeout", str(MOST_SECONDS), "--temp-path", folder, "--quiet"]
    return [system_program(PROGRAM), *words, "--taskset", ",".join(map(str, cpus)), *bound]


class Neighbour:
    """One of STRESSES at work while a `with` block lasts."""

    def __init__(self, launcher: Launcher, name: str, cpus: Sequence[int], folder: Path) -> None:
        """`folder` is where it makes files, in a folder of its own that is gone afterwards."""
        self._launcher = launcher
        self._name = name
        self._cpus = tuple(cpus)
        self._folder = Folder(str(folder.absolute() / "neighbour"))
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._launcher.state.add(self._folder)
        Path(self._folder.path).mkdir(exist_ok=True)
        name = f"neighbour-{self._name}"
        line = command(self._name, self._cpus, self._folder.path)
        self._process = self._launcher.start(name, line, Limits(cpus=self._cpus))
        try:
            self._wait(self._process, name)
        except BaseException:
            self._end()
            raise
        return self

    def _wait(self, process: Process, name: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while len(descendants(process.pid)) < len(self._cpus):
            if not process.id.alive() or time.monotonic() > deadline:
                raise self._launcher.failure(name, f"the neighbour {self._name} did not start")
            time.sleep(0.02)
        time.sleep(_SETTLE_SECONDS)  # its workers first fill their memory

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and not self._process.id.alive() and error is None:
            self._end()
            raise Failure(f"the neighbour {self._name} ended before the trial did")
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._launcher.state.undo(self._process)
            self._process = None
        self._launcher.state.undo(self._folder)
