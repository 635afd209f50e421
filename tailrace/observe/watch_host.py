"""`tailrace watch` of a run of `measure host` or `compare host`, which is in results.json slice by slice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.observe.watch_view import State, events, heading
from tailrace.process.plain import plain
from tailrace.report.figures import count, microseconds
from tailrace.results import ResultError, Run, load_run
from tailrace.results.host import HostSoak, HostTrial
from tailrace.results.lock import is_held
from tailrace.results.model import timestamp
from tailrace.results.run import RESULTS
from tailrace.spec.units import show_span

METHODS = ("host", "compare-host")


@dataclass
class HostView:
    """The run as it stands."""

    folder: Path
    run: Run
    file: os.stat_result
    """results.json when it was read; only another is read again, as that takes time of the machine that is measured."""

    @classmethod
    def open(cls, folder: Path) -> HostView:
        """The run in a folder, of any method. Raises ResultError if there is none."""
        file = _file(folder)
        return cls(folder, load_run(folder), file)

    def look(self) -> HostView:
        file = _file(self.folder)
        if (file.st_ino, file.st_mtime_ns) != (self.file.st_ino, self.file.st_mtime_ns):
            self.run, self.file = load_run(self.folder), file
        return self

    @property
    def state(self) -> State:
        if self.run.finished is not None:
            return "done" if self.run.valid else "broken off"
        return "running" if is_held(self.folder) else "cut off"

    @property
    def soak(self) -> HostSoak | None:
        """How far it is; None before the end of its first slice."""
        return self.run.host_soak

    def worst(self) -> list[HostTrial]:
        """Of each figure, load and profile the CPU with the largest value so far."""
        found: dict[tuple[str, str, str | None], HostTrial] = {}
        for trial in self.run.host_trials:
            key = trial.test, trial.load, trial.host_profile
            if trial.latency_us is not None and (key not in found or _max(trial) > _max(found[key])):
                found[key] = trial
        return list(found.values())

    def as_data(self) -> dict[str, Any]:
        soak = self.soak
        return {
            "folder": str(self.folder),
            "name": self.run.name,
            "state": self.state,
            "reason": None if self.state == "running" else self.run.reason,
            "asked_s": soak.asked_s if soak else None,
            "measured_s": measured_s(soak),
            "slices": soak.slices if soak else None,
            "done": soak.done if soak else 0,
            "cpus": [_data(trial) for trial in self.run.host_trials],
            "gaps": [gap.model_dump() for gap in soak.gaps] if soak else [],
            "clock_steps": [step.model_dump() for step in soak.clock_steps] if soak else [],
        }

    def draw(self, _width: int, /) -> RenderableType:
        cpus = len({trial.cpu for trial in self.run.host_trials})
        what = f"{self.run.name}, {cpus} CPU{'' if cpus == 1 else 's'}" if cpus else self.run.name
        parts: list[RenderableType] = [heading(self.folder, what), self._progress()]
        if self.state == "broken off":
            parts.append(Text(f"broken off: {plain(str(self.run.reason))}", style="yellow"))
        if self.soak is None:
            parts.append(Text("the first slice is being measured", style="dim"))
            return Group(*parts)
        parts += [_table(self.worst()), *events(self.soak.gaps, self.soak.clock_steps)]
        return Group(*parts)

    def _progress(self) -> RenderableType:
        soak, state = self.soak, self.state
        if soak is None:
            return Text(f" {state}")
        text = f" {show_span(measured_s(soak))} of {show_span(soak.asked_s)}, {soak.done:,} of {soak.slices:,} slices, "
        if state == "running":
            spent = soak.end_s - sum(gap.end_s - gap.start_s for gap in soak.gaps)
            left = (soak.slices - soak.done) * spent / max(soak.done, 1)
            text += f"until {timestamp(self.file.st_mtime + left):%Y-%m-%d %H:%M} UTC"
        else:
            text += state
        table = Table.grid(expand=False)
        bar = ProgressBar(total=soak.slices, completed=soak.done, width=24)
        table.add_row(bar, Text(text, style="default" if state in ("running", "done") else "yellow"))
        return table


def measured_s(soak: HostSoak | None) -> float:
    """How long was measured, of all slices together, in seconds."""
    return soak.asked_s * soak.done / soak.slices if soak and soak.slices else 0.0


def _file(folder: Path) -> os.stat_result:
    try:
        return (folder / RESULTS).stat()
    except OSError as error:
        raise ResultError(f"{folder / RESULTS}: {error.strerror}") from None


def _max(trial: HostTrial) -> float:
    return trial.latency_us.max if trial.latency_us else 0.0


def _at(trial: HostTrial) -> float:
    """When the slice with the largest value began, in seconds after the start of the run."""
    return max(trial.intervals, key=lambda each: each.max_us or 0.0).start_s if trial.intervals else 0.0


def _data(trial: HostTrial) -> dict[str, Any]:
    latency = trial.latency_us
    return {
        **{name: getattr(trial, name) for name in ("test", "load", "host_profile", "cpu", "role", "samples", "missed")},
        "p99.99_us": latency.p99_99 if latency else None,
        "max_us": latency.max if latency else None,
        "max_at_s": _at(trial) if latency else None,
    }


def _table(worst: Sequence[HostTrial]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("the worst so far")
    for title in ("values", "p99.99 µs", "max µs", "CPU", "after"):
        table.add_column(title, justify="right", no_wrap=True)
    for trial in worst:
        if trial.latency_us is None:
            continue
        profile = f", {plain(trial.host_profile)}" if trial.host_profile else ""
        table.add_row(
            f"{plain(trial.test)}, load {trial.load}{profile}",
            count(trial.samples),
            microseconds(trial.latency_us.p99_99),
            microseconds(trial.latency_us.max),
            f"{trial.cpu} {plain(trial.role)}",
            show_span(_at(trial)),
        )
    return table
