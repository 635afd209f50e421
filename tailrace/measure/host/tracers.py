"""The kernel's own tracers of latency: timerlat, osnoise and hwlat, in a trace instance of ours.

timerlat says apart how late a timer's interrupt comes and how late its thread runs. osnoise says how long a thread that
never sleeps is kept from running. hwlat turns interrupts off and sees what is taken below the kernel: firmware, or a
hypervisor. What the tracers share with other instances (their period, their CPUs) is put back afterwards, of a run
that was killed by the next one.

Sources: Linux, Documentation/trace/timerlat-tracer.rst, osnoise-tracer.rst, hwlat_detector.rst.
"""

from __future__ import annotations

import json
import os
import re
import select
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure
from tailrace.kernel.cpus import show_list, show_mask
from tailrace.measure.host.tools import Progress, Setting, Slice, from_values
from tailrace.results.run import write_atomically
from tailrace.state.folder import default_folder
from tailrace.state.ours import TRACING_NOTE, leave
from tailrace.state.record import Held

TRACING = Path("/sys/kernel/tracing")
_INSTANCE = TRACING / "instances/tailrace"
_BUFFER_KIB = 4096
"""For each CPU: many seconds of a tracer's lines."""


@dataclass(frozen=True)
class Tracer:
    """One tracer of the kernel."""

    name: str
    """As the kernel calls it, and the test."""
    line: re.Pattern[str]
    """Of its output: the CPU, the figure's name (may be empty) and the value, or an `other` one, of which the larger
    counts."""
    unit_ns: int
    """Of the value."""
    figures: tuple[str, ...]
    """The names of what it measures."""
    options: Mapping[str, str]
    """Files under TRACING that it needs set; `CPUS` stands for the list of CPUs."""
    event: str | None = None
    """The trace event to turn on, where the tracer's own lines are summaries."""

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        """What was found, by figure and CPU. Raises Failure if the kernel refuses."""
        values: dict[tuple[str, int], Counter[int]] = {
            (figure, cpu): Counter() for figure in self.figures for cpu in setting.cpus
        }
        cpus = show_list(setting.cpus)
        try:
            wanted = {name: cpus if text == "CPUS" else text for name, text in self.options.items()}
            with _options(wanted), _instance(setting.cpus) as instance:
                if self.event:
                    (instance / f"events/{self.event}/enable").write_text("1")
                (instance / "current_tracer").write_text(self.name)
                for text in _lines(instance, seconds, progress):
                    self._take(text, values)
                missed = {cpu: _overrun(instance, cpu) for cpu in setting.cpus}
        except OSError as error:
            raise Failure(f"{self.name}: {error.filename or TRACING}: {error.strerror}") from None
        return {
            figure: {cpu: Slice(from_values(values[figure, cpu]), missed[cpu]) for cpu in setting.cpus}
            for figure in self.figures
        }

    def _take(self, text: str, values: dict[tuple[str, int], Counter[int]]) -> None:
        found = self.line.search(text)
        if found is None:
            return
        kind = found["kind"] if "kind" in self.line.groupindex else ""
        figure = f"{self.name}-{kind}" if kind else self.name
        counter = values.get((figure, int(found["cpu"])))
        if counter is not None:
            largest = max(int(found[name]) for name in ("value", "other") if name in self.line.groupindex)
            counter[largest * self.unit_ns] += 1


TRACERS = {
    tracer.name: tracer
    for tracer in (
        Tracer(
            "timerlat",
            re.compile(r"\[(?P<cpu>\d+)\].*context\s+(?P<kind>irq|thread)\s+timer_latency\s+(?P<value>\d+) ns"),
            1,
            ("timerlat-irq", "timerlat-thread"),
            {"osnoise/cpus": "CPUS", "osnoise/timerlat_period_us": "1000"},
        ),
        Tracer(
            "osnoise",
            re.compile(r"\[(?P<cpu>\d+)\].*sample_threshold: .*duration (?P<value>\d+) ns"),
            1,
            ("osnoise",),
            # The thread never sleeps while it looks: the rest of the second is for whoever else is there.
            {"osnoise/cpus": "CPUS", "osnoise/runtime_us": "900000", "osnoise/period_us": "1000000"},
            event="osnoise/sample_threshold",
        ),
        Tracer(
            "hwlat",
            # Inner: between a loop's two readings of the clock. Outer: from one loop to the next. Each is time taken.
            re.compile(r"\[(?P<cpu>\d+)\].*inner/outer\(us\):\s*(?P<value>\d+)/\s*(?P<other>\d+)"),
            1000,
            ("hwlat",),
            {},
        ),
    )
}


def available_tracers() -> tuple[str, ...]:
    """Those of TRACERS that this kernel has; none where tracefs is not mounted or may not be read."""
    try:
        names = (TRACING / "available_tracers").read_text().split()
    except OSError:
        return ()
    return tuple(name for name in TRACERS if name in names)


@contextmanager
def _options(wanted: Mapping[str, str]) -> Iterator[None]:
    """Files that all instances share, set for the block. What they were is noted first: a run that is killed leaves
    them to the next one. Raises Mistake where the state folder is somebody else's."""
    folder = default_folder()
    note = folder / TRACING_NOTE
    folder.mkdir(parents=True, exist_ok=True)
    Held(folder).take()
    _put_back(note)
    before = {name: (TRACING / name).read_text().strip() for name in wanted}
    if before:
        write_atomically(note, json.dumps(before))
    try:
        for name, text in wanted.items():
            (TRACING / name).write_text(text)
        yield
    finally:
        _put_back(note)
        leave(folder)


def _put_back(note: Path) -> None:
    try:
        before: dict[str, str] = json.loads(note.read_text())
    except FileNotFoundError:
        return
    for name, text in reversed(before.items()):
        with suppress(OSError):
            (TRACING / name).write_text(text)
    note.unlink()


@contextmanager
def _instance(cpus: Mapping[int, str]) -> Iterator[Path]:
    """A trace instance of our own, gone after the block."""
    if _INSTANCE.exists():  # of a run that was killed
        _end(_INSTANCE)
    _INSTANCE.mkdir()
    try:
        (_INSTANCE / "tracing_on").write_text("1")
        (_INSTANCE / "tracing_cpumask").write_text(show_mask(cpus))
        (_INSTANCE / "buffer_size_kb").write_text(str(_BUFFER_KIB))
        yield _INSTANCE
    finally:
        _end(_INSTANCE)


def _end(instance: Path) -> None:
    with suppress(OSError):
        (instance / "current_tracer").write_text("nop")
    instance.rmdir()


def _lines(instance: Path, seconds: int, progress: Progress) -> Iterator[str]:
    """The tracer's output while it runs, then what is left of it."""
    pipe = os.open(instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
    rest = b""
    began, stopped = time.monotonic(), False
    try:
        while True:
            done = time.monotonic() - began
            progress(min(done, seconds))
            if done >= seconds and not stopped:
                (instance / "tracing_on").write_text("0")
                stopped = True
            try:
                new = os.read(pipe, 1 << 16)
            except BlockingIOError:
                new = b""
            if not new:
                if stopped:
                    return
                select.select([], [], [], 0.05)
                continue
            *whole, rest = (rest + new).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)
    finally:
        os.close(pipe)


def _overrun(instance: Path, cpu: int) -> int:
    """Lines that the buffer of a CPU had no room for."""
    text = (instance / f"per_cpu/cpu{cpu}/stats").read_text()
    found = re.search(r"^overrun: (\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0
