"""Starts programs for one state: on record first, output in a log, ending with the command or living on.

Two ways lead there, of which `Launcher` chooses: what lives on is a unit of systemd's where that is the first process
(`tailrace.process.units`); everything else is started held (`tailrace.process.process`).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process import log_writer, units
from tailrace.process.plain import plain
from tailrace.process.process import Limits, ProcessId, how_it_ended, reap, start
from tailrace.state.record import Process, State

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")
"""With which our own programs begin a line of a file (dataplane/common/log.h)."""
_PODMAN = re.compile(r"^\S+ std(?:out|err) [FP] ")
"""With which podman begins a line of a container's."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1bc|[\x00-\x08\x0b-\x1f]")
"""A whole command to a terminal, which a machine's firmware gives: of plain() its letters would be left."""
LOG_BYTES = 8 << 20
"""After which a bounded log begins anew, with as much from before kept beside it."""
_MOST_LINE = 1024
"""Characters of a line that is shown."""
_WRITER_ENDS = 2.0
"""Seconds in which what a program said last is in its log."""


@dataclass(frozen=True)
class Launcher:
    """What every start in one session has in common."""

    state: State
    logs: Path
    tied: bool
    """Processes die with this command (a run), or live on by themselves (`tailrace up`)."""
    network: str | None = None
    """The network namespace that they run in; this command's own unless said."""
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict, compare=False)
    """By a process's name: its log's inode and size when it was last started."""

    @property
    def by_systemd(self) -> bool:
        """Whether what it starts are units of systemd's. What is tied to this process is not: it dies with it, which
        systemd, whose child it would be, has no means for."""
        return not self.tied and units.available()

    def start(
        self,
        name: str,
        argv: Sequence[str],
        limits: Limits,
        keep: Iterable[int] = (),
        stdin: int | None = None,
        *,
        bounded: bool = False,
        before: Sequence[str] = (),
        runtime: str = "",
    ) -> Process:
        """Starts a program under a name of ours and records it. `bounded`: its log is, whatever it prints. `before`:
        words before it, of another program that becomes this one. `runtime`: of a function, where it lives."""
        log = self.log_begins(name)
        limits = replace(limits, tied=self.tied, network=limits.network or self.network)
        if self.by_systemd and stdin is None:
            unit = Process(name, 0, 0, Path(argv[0]).name, runtime, unit=units.unit_name(name))
            return self._start_unit(unit, argv, limits, keep)
        held: list[Process] = []
        writer, output = _start_writer(log) if bounded else (ProcessId(0, 0), None)

        def record(process: ProcessId) -> None:
            program = Path(argv[0]).name
            held.append(Process(name, process.pid, process.start, program, runtime, writer.pid, writer.start))
            self.state.add(held[0])

        try:
            into = log if output is None else output
            start([*before, *argv], log=into, limits=limits, record=record, keep=keep, stdin=stdin)
        finally:
            if output is not None:
                os.close(output)
        return held[0]

    def _start_unit(self, unit: Process, argv: Sequence[str], limits: Limits, keep: Iterable[int]) -> Process:
        self.state.add(unit)
        log = self.log(unit.name)
        process = units.start(unit.unit, unit.name, argv, log=log, limit=LOG_BYTES, limits=limits, keep=keep)
        if process is None:
            unit.wait_for_words(_WRITER_ENDS)
            raise self.failure(unit.name, f"{unit.program}: has ended at its start")
        started = replace(unit, pid=process.pid, start=process.start)
        self.state.alter(unit, started)
        return started

    def log_begins(self, name: str) -> Path:
        """Where the output of a process goes that is about to be started: what is there is from before."""
        log = self.log(name)
        found = next((path.stat() for path in (log, log_writer.previous(log)) if path.exists()), None)
        self._begun[name] = (found.st_ino, found.st_size) if found else (0, 0)
        return log

    def log(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def said(self, name: str, words: str) -> bool:
        """Whether a process of this name has written these words since its last start."""
        return words.encode() in self._since_start(name)

    def _since_start(self, name: str) -> bytes:
        """What a process of this name has written since its last start, as far as its log has it."""
        inode, size = self._begun.get(name, (0, 0))
        said = b""
        for path in (log_writer.previous(self.log(name)), self.log(name)):
            try:
                with path.open("rb") as file:
                    # The log that there was: whatever is before its end of then is from before.
                    if inode != 0 and os.fstat(file.fileno()).st_ino == inode:
                        file.seek(size)
                        said = b""
                    said += file.read()
            except FileNotFoundError:
                continue
        return said

    def last_words(self, name: str, count: int = 1) -> str:
        """The last line that a process wrote, which is its error if it has failed; or the last so many."""
        said = self._since_start(name).decode(errors="replace")
        lines = [line for line in said.splitlines() if line.strip()]
        errors = [line for line in lines if " error: " in line]
        if count > 1:
            return " | ".join(_shown(line) for line in lines[-count:])
        return _shown(_TIME.sub("", _PODMAN.sub("", (errors or lines or [""])[-1])))

    def failure(self, name: str, what: str, lines: int = 1) -> Failure:
        """An error that says what happened to a process and what it said itself, the last so many lines of it."""
        words = self.last_words(name, lines)
        return Failure(f"{what}: {words}" if words else f"{what}; see {self.log(name)}")


def _shown(line: str) -> str:
    """A line of whoever it is, without the commands to a terminal that a machine's firmware gives."""
    return plain(_CONTROL.sub("", line), _MOST_LINE).strip()


def _start_writer(log: Path) -> tuple[ProcessId, int]:
    """Starts who writes the log; returns its name, and where its input goes in. It ends when nobody has that any more:
    so nothing is lost if this command ends before it is on record."""
    source, sink = os.pipe()
    argv = [sys.executable, "-I", "-S", log_writer.__file__, str(log), str(LOG_BYTES)]
    try:
        return start(argv, log=log, limits=Limits(tied=False), record=lambda _: None, stdin=source), sink
    except BaseException:
        os.close(sink)
        raise
    finally:
        os.close(source)


def why_ended(launcher: Launcher, process: Process, lines: int = 1) -> str:
    """One line about a process of ours that is gone, with the last `lines` that it wrote."""
    how = how_it_ended(reap(process.pid))
    process.wait_for_words(_WRITER_ENDS)
    words = launcher.last_words(process.name, lines)
    who = f"the {process.name}" if process.name in ("switch", "tester") else f"the function {process.name}"
    return f"{who} {how}" + (f" ({words})" if words and "killed" not in how else "")
