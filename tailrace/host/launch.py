"""Starts programs for one state: on record first, output in a log, ending with the command or living on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.errors import Failure
from tailrace.host.process import Limits, ProcessId, how_it_ended, reap, start
from tailrace.host.state import Process, State

_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")
"""With which our own programs begin a line of a file (dataplane/common/log.h)."""


@dataclass(frozen=True)
class Launcher:
    """What every start in one session has in common."""

    state: State
    logs: Path
    tied: bool
    """Processes die with this command (a run), or live on by themselves (`tailrace up`)."""
    network: str | None = None
    """The network namespace that they run in; this command's own unless said."""
    _begun: dict[str, int] = field(default_factory=dict, compare=False)
    """By a process's name: where in its log its last start begins."""

    def start(
        self, name: str, argv: Sequence[str], limits: Limits, keep: Iterable[int] = (), stdin: int | None = None
    ) -> Process:
        """Starts a program under a name of ours and records it."""
        held: list[Process] = []
        log = self.log(name)
        self._begun[name] = log.stat().st_size if log.exists() else 0

        def record(process: ProcessId) -> None:
            held.append(Process(name, process.pid, process.start, Path(argv[0]).name))
            self.state.add(held[0])

        limits = replace(limits, tied=self.tied, network=limits.network or self.network)
        start(argv, log=self.log(name), limits=limits, record=record, keep=keep, stdin=stdin)
        return held[0]

    def log(self, name: str) -> Path:
        """Where the output of a process goes."""
        return self.logs / f"{name}.log"

    def said(self, name: str, words: str) -> bool:
        """Whether a process of this name has written these words since its last start."""
        try:
            return words.encode() in self.log(name).read_bytes()[self._begun.get(name, 0) :]
        except FileNotFoundError:
            return False

    def last_words(self, name: str) -> str:
        """The last line that a process wrote, which is its error if it has failed."""
        try:
            lines = [line for line in self.log(name).read_text(errors="replace").splitlines() if line.strip()]
        except OSError:
            return ""
        errors = [line for line in lines if " error: " in line]
        return _TIME.sub("", (errors or lines or [""])[-1])

    def failure(self, name: str, what: str) -> Failure:
        """An error that says what happened to a process and what it said itself."""
        words = self.last_words(name)
        return Failure(f"{what}: {words}" if words else f"{what}; see {self.log(name)}")


def why_ended(launcher: Launcher, process: Process) -> str:
    """One line about a process of ours that is gone."""
    how = how_it_ended(reap(process.pid))
    words = launcher.last_words(process.name)
    who = f"the {process.name}" if process.name in ("switch", "tester") else f"the function {process.name}"
    return f"{who} {how}" + (f" ({words})" if words and "killed" not in how else "")
