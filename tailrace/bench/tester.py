"""What checking every frame costs: the tester beside plain testpmd, on the same ports and core, as fast as each can.

Both play both guests of one hop, saturated, both ways; pairs alternate them (A B A B). testpmd only passes on what
comes. The tester makes, signs, receives, checks and times every frame. Both are counted by the same switch's
counters, over the same kind of window; what the tester counts itself stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench import testpmd
from tailrace.bench.model import TESTER, TESTPMD, OwnCount, Rate, TesterPair, TesterResult, Window, steady_pairs
from tailrace.bench.setting import CORE_TO_CORE, Cores, Setting, check_able, check_alive, prepared
from tailrace.bench.sides import TailraceSwitch
from tailrace.bench.testpmd import Traffic
from tailrace.bench.window import SETTLE_SECONDS, check_whole, saturate, watch_window
from tailrace.errors import Failure, Fault, Mistake
from tailrace.host import hugepages
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.session import undisturbed
from tailrace.measure.tester import TESTER_PROGRAM, Tester
from tailrace.plan import TESTER_BUFFERS_MIB

FRAMES = (64, 1518)
FLOWS = (1, 1_000_000)
SIDE_SECONDS = 5.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""
WAIT_SECONDS = 2.0
"""How long the tester waits for the last frames."""
SPARE_SECONDS = 60.0
"""So much longer than the window the tester would send if it were not told to end."""


@dataclass(frozen=True)
class TesterPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    frame: int
    flows: int = 1
    pairs: int = 5
    seconds: float = 3.0
    cores: tuple[int, int] | None = None
    """The switch's CPU and that of the tester and of testpmd; the last and the first allowed unless given."""

    def __post_init__(self) -> None:
        if not FRAMES[0] <= self.frame <= FRAMES[1]:
            raise Mistake(
                f"--frame {self.frame}: expected a frame size from {FRAMES[0]} to {FRAMES[1]} bytes, FCS included"
            )
        if not FLOWS[0] <= self.flows <= FLOWS[1]:
            raise Mistake(f"--flows {self.flows}: expected {FLOWS[0]} to {FLOWS[1]}")
        if self.pairs < 1:
            raise Mistake(f"--pairs {self.pairs}: expected at least 1")
        if not 0.2 <= self.seconds <= 3600:
            raise Mistake(f"--seconds {self.seconds:g}: expected 0.2 to 3600")

    @property
    def total_seconds(self) -> float:
        return self.pairs * 2 * self.side_seconds

    @property
    def side_seconds(self) -> float:
        return self.seconds + SETTLE_SECONDS + SIDE_SECONDS

    @property
    def pages(self) -> int:
        """2 MiB pages that the hungrier of the two takes."""
        return max(testpmd.MEMORY_MIB, TESTER_BUFFERS_MIB) // hugepages.PAGE_MIB + 8


def run(plan: TesterPlan, folder: Path, report: Reporter) -> TesterResult:
    """Measures all pairs. Everything that it starts and reserves is gone when it returns or raises."""
    cores = Cores.choose(plan.cores, "bench tester")
    check_able("bench tester", (CORE_TO_CORE, "tailrace-switch", TESTER_PROGRAM))
    testpmd.program()
    with prepared(folder, cores, plan.pages, report) as setting:
        pairs, moved = steady_pairs(partial(_pair, setting, plan), plan.pairs)
        return TesterResult(plan.frame, plan.flows, plan.seconds, pairs, setting.machine(), moved)


def _pair(setting: Setting, plan: TesterPlan, number: int) -> TesterPair:
    """The tester, then testpmd."""
    label = f"pair {number + 1} of {plan.pairs}"
    before = setting.core_to_core()
    with _hop(setting, plan, label, TESTER) as (switch, sockets, progress):
        window, own = _with_tester(setting, plan, switch, sockets, progress)
        tester = Rate.of(window)
    between = setting.core_to_core()
    with _hop(setting, plan, label, TESTPMD) as (switch, sockets, progress):
        plain = Rate.of(saturate(setting, switch, sockets, plan.frame, plan.seconds, progress))
    return TesterPair(before, setting.core_to_core(), tester, own, plain, core_to_core_between_ns=between)


@contextmanager
def _hop(
    setting: Setting, plan: TesterPlan, label: str, name: str
) -> Iterator[tuple[TailraceSwitch, list[Path], Callable[[float], None]]]:
    """A switch with two joined ports, the sockets where their guests are to listen, and whom to tell of progress."""
    label = f"{label}: {name}, {plan.frame} B"
    setting.report.stage(label, plan.side_seconds)
    sockets = [setting.launcher.state.sockets / f"guest{end}" for end in (0, 1)]
    switch = TailraceSwitch(setting.launcher, setting.cores.switch_place)
    try:
        switch.start(sockets)
        setting.versions |= switch.version()
        yield switch, sockets, lambda done: setting.report.advance(label, SIDE_SECONDS / 2 + done)
    except Fault as error:
        raise Fault(f"{name}, {plan.frame} B: {error}") from None
    finally:
        with undisturbed():
            switch.stop()


def _with_tester(
    setting: Setting,
    plan: TesterPlan,
    switch: TailraceSwitch,
    sockets: list[Path],
    progress: Callable[[float], None],
) -> tuple[Window, OwnCount]:
    """One trial around the window, as fast as possible, with the tester listening where testpmd would."""
    ports = [(name, f"vhost-server:{path}") for name, path in zip("ab", sockets, strict=True)]
    place = setting.cores.load_place
    tester = Tester.start(setting.launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=True)
    try:
        setting.versions |= tester.version()
        streams = profile(plan.frame, plan.flows).streams(0.0)
        tester.begin(streams, SETTLE_SECONDS + plan.seconds + SPARE_SECONDS, wait=WAIT_SECONDS)
        window = watch_window(plan.seconds, switch, lambda: check_alive([tester.process]), progress)
        result = tester.cut_short(WAIT_SECONDS)
        if result is None:
            raise Failure("the tester did not come to an end")
        own = own_count(result)
        check_whole(Traffic(own.sent, own.sent - own.lost), switch.counters())
        return window, own
    finally:
        with undisturbed():
            tester.stop()


def own_count(result: dict[str, Any]) -> OwnCount:
    """What the tester says of the whole trial, both directions together. Raises Fault if it received nothing."""
    streams = result["streams"]
    if any(stream["received"] == 0 or stream["received_seconds"] <= 0 for stream in streams):
        raise Fault("no frame came back to the tester")
    total = {
        key: sum(int(stream[key]) for stream in streams)
        for key in ("sent", "received", "unsent", "lost", "duplicate", "out_of_sequence")
    }
    mpps = sum(stream["received"] / stream["received_seconds"] for stream in streams) / 1e6
    return OwnCount(mpps=mpps, **total)
