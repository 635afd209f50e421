"""Delays that are put in on purpose while `measure interrupts --causes` runs, each known by the TSC, and what is told
of the interrupts that were under way in them.

Nothing is said of how long interrupts took, and what else held some up is no part of the answer: it is asked of the
interrupts that were raised while a delay lasted.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest
from running_node import Command, wait_until

from tailrace.errors import TailraceError
from tailrace.measure.recorder import RECORDER
from tailrace.results.causes import Cause, CausedFrame, Causes
from tailrace.state.record import State, peek

PRIORITY = 97
"""Above the receivers' own."""
ALL_TOLD = ("--period", "20ms", "--duration", "2s")
"""A run of a hundred interrupts, so that all are explained, also those that were delayed a little."""
LEAST, RUNS = 10, 12
"""Interrupts that a delay has held up, and the runs in which so many must come together."""
Spans = list[tuple[int, int]]
"""When each delay began and ended, by the TSC."""


@dataclass(frozen=True)
class Kind:
    """A kind of delay, and the cause that must be found."""

    name: str
    cause: str
    word: str
    """In the cause's text."""
    us: int = 0
    """How long a hog runs."""

    def told(self, frame: CausedFrame) -> bool:
        """Whether it is what held the interrupt up most."""
        return any(map(self.named, frame.causes[:1]))

    def named(self, cause: Cause) -> bool:
        return cause.kind == self.cause and self.word in cause.text


def hog(us: int) -> Kind:
    """A real-time task above the receiver's priority."""
    return Kind("hog", "task", "tailrace-inject", us)  # the kernel keeps 15 letters of a name


STORM = Kind("storm", "interrupt", "the timer's interrupt")
STOP = Kind("stop", "stopped", "was stopped by a signal")


def receiver_at_work(command: Command, side: str) -> int | None:
    """The process that holds the receiver, while the side is measured: of a machine QEMU's.

    It stands still from when it is ready until then, and the recorder is started meanwhile.
    """
    try:
        found = {each.name: each.pid for each in State(command.run, peek(command.run)).processes()}
        if RECORDER not in found or side not in found:
            return None
        stat = Path(f"/proc/{found[side]}/stat").read_text()
    except (TailraceError, OSError):
        return None
    return None if stat[stat.rindex(")") + 2] == "T" else found[side]


def inject(binaries: Path, kind: Kind, cpu: int, process: int, times: int, apart: float = 0.0) -> Spans:
    """So many delays, one after the other, with seconds between them."""
    argv = [str(binaries / "test/tailrace-injector"), kind.name, "--cpu", str(cpu), "--priority", str(PRIORITY)]
    argv += ["--process", str(process), *(["--us", str(kind.us)] if kind.us else [])]
    spans: Spans = []
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as injector:
        assert injector.stdin is not None and injector.stdout is not None
        for _ in range(times):
            time.sleep(apart)
            injector.stdin.write("\n")
            injector.stdin.flush()
            begin, end = map(int, injector.stdout.readline().split())
            spans.append((begin, end))
        injector.stdin.close()
        assert injector.wait(60) == 0
    return spans


@dataclass(frozen=True)
class Told:
    """What one run told of a side's slowest interrupts."""

    causes: Causes
    spans: Spans
    interrupts: int = 0
    """That were raised in all."""

    @property
    def cycles_per_us(self) -> float:
        """Of the TSC; 0 if no two interrupts tell."""
        frames = self.causes.frames
        if not frames:
            return 0.0
        first, last = (choose(frames, key=lambda frame: frame.sent_tsc) for choose in (min, max))
        seconds = (last.sent - first.sent).total_seconds()
        return (last.sent_tsc - first.sent_tsc) / seconds / 1e6 if seconds else 0.0

    def within(self, frame: CausedFrame) -> float:
        """For how long of an interrupt's way delays lasted, in µs."""
        rate = self.cycles_per_us
        arrived = frame.sent_tsc + frame.latency_us * rate
        return sum(max(min(end, arrived) - max(begin, frame.sent_tsc), 0) / rate for begin, end in self.spans)

    def held(self) -> list[CausedFrame]:
        """Those raised during a delay, and not so shortly before its end that nothing is to be explained; or shortly
        before it, and not received before it was nearly over: of interrupts that one delay holds up only the slowest is
        told, and on a slow machine that is often such a one."""
        frames, rate = self.causes.frames, self.cycles_per_us

        def by(frame: CausedFrame, begin: int, end: int) -> bool:
            part = (end - begin) // 4
            if begin <= frame.sent_tsc < end - part:
                return True
            return begin - 2 * part <= frame.sent_tsc < begin and frame.sent_tsc + frame.latency_us * rate > end - part

        return [frame for frame in frames if any(by(frame, *span) for span in self.spans)]

    def __str__(self) -> str:
        held = {frame.sequence for frame in self.held()}
        return "\n".join(
            f"{'held up' if frame.sequence in held else '       '} {frame.latency_us:.0f} µs: "
            f"{[f'{cause.us:.0f} {cause.text}' for cause in frame.causes]}, {frame.unexplained_us:.0f} unexplained, "
            f"{frame.usual_us:.0f} usual"
            for frame in self.causes.frames
        )


def delay_each(command: Command, binaries: Path, side: str) -> Causes:
    """What is told of a run of a hundred interrupts, of which most wake a task that runs before the receiver, or on the
    CPU of its machine."""
    cpu = max(os.sched_getaffinity(0))
    words = ("--sides", side, "--cpu", str(cpu), *ALL_TOLD, "--causes", "--json")
    running = command.begin("measure", "interrupts", *words)
    wait_until(lambda: running.poll() is not None or receiver_at_work(command, side), command.limit)
    if running.poll() is None:
        found = {each.name: each.pid for each in State(command.run, peek(command.run)).processes()}
        argv = [str(binaries / "test/tailrace-injector"), *FIRST, "--cpu", str(cpu), "--priority", str(PRIORITY)]
        subprocess.run([*argv, "--process", str(found[f"{side}-sender"])], check=True, timeout=60)
    return told_of(command, running, side)[0]


def told_of(command: Command, running: subprocess.Popen[str], side: str) -> tuple[Causes, int]:
    """The causes of the slowest interrupts of a run's only side, once it has ended by itself, and how many interrupts
    were raised."""
    said, errors = running.communicate(timeout=command.limit)
    assert running.returncode == 0, errors
    run = json.loads(said)
    assert run["valid"], run["reason"]
    (found,) = [trial for trial in run["host_trials"] if trial["test"] == f"interrupt-{side}"]
    assert all(trial["causes"] is None for trial in run["host_trials"] if trial is not found)
    causes = Causes.model_validate(found["causes"])
    check_adds_up(causes)
    return causes, found["samples"] + found["missed"]


FIRST = ("first", "--times", "80")
SIZES = (5, 50, 500)
_INJECTED = re.compile(r": inject-(\d+) \(thread")


def check_sizes(runs: Iterable[Causes], inside: str = "", least: float = 2) -> None:
    """What tasks took of the interrupts that woke them is told within `least` µs or 5 % by the median, and where:
    `inside` this machine, or on this host. What waking one and letting it go takes is known from those that ran for
    nothing."""
    found: dict[int, list[float]] = {}
    for causes in runs:
        for cause in (each for frame in causes.frames for each in frame.causes):
            if (named := _INJECTED.search(cause.text)) is not None:
                assert cause.kind == "task" and cause.inside == inside, cause
                found.setdefault(int(named[1]), []).append(cause.us)
    waking = median(found[0])
    spread = median(abs(each - waking) for each in found[0])
    print(f"\nwaking takes {waking:.2f} µs, half of them within {spread:.2f}")
    told = {us: median(found[us]) - waking for us in SIZES}
    for us in SIZES:
        near = sum(abs(each - waking - us) <= max(2, us / 20) for each in found[us])
        print(f"{us} µs: {told[us]:.2f} told; of {len(found[us])} single ones {near} within 2 µs or 5 %")
    assert all(len(found[us]) >= LEAST and abs(told[us] - us) <= max(least, us / 20) for us in SIZES), found


def check_adds_up(causes: Causes) -> None:
    """Causes, unexplained and usual time are the latency."""
    for frame in causes.frames:
        parts = sum(cause.us for cause in frame.causes) + frame.unexplained_us + frame.usual_us
        assert parts == pytest.approx(frame.latency_us, abs=0.01)


def measured(
    command: Command, binaries: Path, side: str, kind: Kind, times: int, words: Sequence[str], apart: float = 0.0
) -> Told:
    """What a run of the command tells of the side while so many delays are put in."""
    cpu = max(os.sched_getaffinity(0))
    words = ("--sides", side, "--cpu", str(cpu), *words, "--causes", "--json")
    running = command.begin("measure", "interrupts", *words)
    process = wait_until(lambda: running.poll() is not None or receiver_at_work(command, side), command.limit)
    spans: Spans = []
    if running.poll() is None:
        spans = inject(binaries, kind, cpu, process, times, apart)
    causes, interrupts = told_of(command, running, side)
    return Told(causes, spans, interrupts)


def check_named(
    command: Command, binaries: Path, side: str, kind: Kind, times: int, *words: str, first: bool
) -> list[Told]:
    """That the delays are named of the interrupts that they held up, of at least LEAST in a few runs; with `first` that
    they took most."""
    found: list[Told] = []
    while sum(len(told.held()) for told in found) < LEAST and len(found) < RUNS:
        found.append(measured(command, binaries, side, kind, times, words))
    held = [frame for told in found for frame in told.held()]
    right = [frame for frame in held if any(map(kind.named, frame.causes[:1] if first else frame.causes))]
    said = "\n".join(map(str, found))
    assert len(held) >= LEAST, said
    assert len(right) >= 0.9 * len(held), said
    return found
