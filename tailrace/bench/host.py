"""How long the commands of `tailrace host` take, each in a process of its own, as a user starts it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tailrace.bench.model import Spread
from tailrace.errors import Failure, Mistake
from tailrace.host.journal import ENVIRONMENT, read_journal, state_folder
from tailrace.kernel.tree import Tree
from tailrace.measure.progress import Reporter
from tailrace.process.plain import last_line
from tailrace.process.process import undisturbed

HERE = Path("/")
_TIMEOUT = 120.0


@dataclass(frozen=True)
class HostBenchPlan:
    """What is to be timed. Raises Mistake where that cannot be."""

    program: Path
    """The command tailrace."""
    root: Path = HERE
    """A copied machine is looked at only; this one is tuned and put back each time."""
    profile: str = "latency"
    times: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 1000:
            raise Mistake(f"--times {self.times}: expected 1 to 1000")
        if self.root != HERE:
            return
        if os.geteuid() != 0:
            raise Mistake("timing apply and undo needs root; start it with sudo, or time a copied machine with --root")
        if read_journal(state_folder()).entries:
            raise Mistake("the host is tuned already; run `tailrace host undo` first")

    @property
    def commands(self) -> Mapping[str, Sequence[str]]:
        """Each with its words, in the order in which they make sense."""
        profile = ("--profile", self.profile)
        looking = {"inspect": (), "plan": profile}
        if self.root == HERE:
            return {**looking, "apply": (*profile, "--run-time", "--yes"), "verify": (), "undo": ("--yes",)}
        return {**looking, "verify": profile}

    @property
    def total_seconds(self) -> float:
        return 0.6 * self.times * len(self.commands)


@dataclass(frozen=True)
class HostTimes:
    """How long each command took, from its start to its end."""

    plan: HostBenchPlan
    seconds: Mapping[str, Spread]
    cpus: int
    """Of the machine that was looked at."""

    def document(self) -> dict[str, Any]:
        return {
            "bench": "host",
            "root": str(self.plan.root),
            "profile": self.plan.profile,
            "cpus": self.cpus,
            "seconds": {name: spread.document() for name, spread in self.seconds.items()},
        }


def run(plan: HostBenchPlan, report: Reporter) -> HostTimes:
    """Times every command in turn; the host is as it was afterwards. Raises Failure if one fails."""
    taken: dict[str, list[float]] = {name: [] for name in plan.commands}
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-host-") as state:
        try:
            report.stage("commands", plan.total_seconds)
            for number in range(plan.times):
                for name, words in plan.commands.items():
                    taken[name].append(_seconds(plan, name, words, state))
                report.advance("commands", plan.total_seconds * (number + 1) / plan.times)
        finally:
            if plan.root == HERE:
                with undisturbed():
                    _seconds(plan, "undo", ("--yes",), state)
    cpus = len(list(Tree(plan.root).find("/sys/devices/system/cpu", "cpu*")))
    return HostTimes(plan, {name: Spread.of(values) for name, values in taken.items()}, cpus)


def _seconds(plan: HostBenchPlan, name: str, words: Sequence[str], state: str) -> float:
    argv = [str(plan.program), "host", name, "--root", str(plan.root), *words]
    environment = {**os.environ, ENVIRONMENT: state}
    began = time.monotonic()
    done = subprocess.run(
        argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=_TIMEOUT, env=environment, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise Failure(f"tailrace host {name}: {last_line(done.stderr, f'exit status {done.returncode}')}")
    return seconds


def host_table(times: HostTimes) -> Group:
    """One row a command."""
    table = Table(
        title="`tailrace host`, s", title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
    for heading in ("times", "min", "median", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, spread in times.seconds.items():
        figures = (f"{value:.2f}" for value in (spread.least, spread.median, spread.most))
        table.add_row(name, str(spread.count), *figures)
    of = "this machine" if times.plan.root == HERE else str(times.plan.root)
    note = f"Each from the start of its process to its end; profile {times.plan.profile}, {times.cpus} CPUs, {of}."
    return Group(table, Text(note, style="dim"))
