"""How every comparison runs: pairs of sides in turn (A B A B), each in windows with looks at the cores' distance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench.model import Comparison, Pair, Ratio, Sample, measure_pairs, pairs_of
from tailrace.bench.setting import CORE_TO_CORE, Cores, Setting, check_able, prepared
from tailrace.errors import Failure, Mistake
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import Stopped

Step = Callable[[float], None]
"""Told how many seconds of a side are done."""
FRAMES = (64, 1518)
"""Smallest and largest frame."""
MOST_PAIRS = 1000
"""More would take days, and tell no more."""


def after(step: Step, seconds: float) -> Step:
    """Told the seconds of a part that begins when so many seconds of the side are done."""
    return lambda done: step(seconds + done)


@dataclass(frozen=True)
class Plan:
    """What all comparisons have in common. Raises Mistake where it cannot be measured."""

    frame: int = 64
    """Bytes, with the 4 of the FCS."""
    pairs: int = 5
    seconds: float = 3.0
    """How long each side is measured."""
    cores: tuple[int, int] | None = None
    """The switch's CPU and the load's; the last and the first allowed unless given."""

    @property
    def subject(self) -> Mapping[str, Any]:
        """What is measured of, in the document."""
        return {"frame": self.frame}

    @property
    def named(self) -> Sequence[str]:
        """The same for the progress bar."""
        return [f"{self.frame} B"]

    def __post_init__(self) -> None:
        if not FRAMES[0] <= self.frame <= FRAMES[1]:
            raise Mistake(
                f"--frame {self.frame}: expected a frame size from {FRAMES[0]} to {FRAMES[1]} bytes, FCS included"
            )
        if not 1 <= self.pairs <= MOST_PAIRS:
            raise Mistake(f"--pairs {self.pairs}: expected 1 to {MOST_PAIRS}")
        if not 0.2 <= self.seconds <= 3600:
            raise Mistake(f"--seconds {self.seconds:g}: expected 0.2 to 3600")


@dataclass(frozen=True)
class Side:
    """One side of every pair: `measure` starts what it needs, measures it (`Setting.samples`) and ends it."""

    name: str
    seconds: float
    """How long it takes in all, for the progress bar."""
    measure: Callable[[Setting, Step], list[Sample]]


def compare(
    bench: str,
    plan: Plan,
    sides: Sequence[Side],
    ratios: Sequence[Ratio],
    *,
    folder: Path,
    report: Reporter,
    pages: int,
    programs: Sequence[str],
    settings: Mapping[str, Any] | None = None,
    around: Callable[[Setting], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> Comparison:
    """Measures all pairs. Everything that it starts and reserves is gone when it returns or raises.

    `pages` 2 MiB pages are reserved and `programs` of ours must be there. What cuts it short once there are pairs,
    Ctrl-C too, is in the result (`error`). `around` holds what all sides share, from before the first to after the
    last. Raises Mistake, Fault or Failure.
    """
    cores = Cores.choose(plan.cores, f"bench {bench}")
    check_able(f"bench {bench}", (CORE_TO_CORE, *programs))
    with prepared(folder, cores, pages, report) as setting, around(setting):

        def turn(number: int) -> list[Pair]:
            measured: dict[str, list[Sample]] = {}
            for side in sides:
                label = ", ".join([f"pair {number + 1} of {plan.pairs}: {side.name}", *plan.named])
                report.stage(label, side.seconds)
                measured[side.name] = side.measure(setting, partial(report.advance, label))
            return pairs_of(measured)

        pairs: list[Pair] = []
        error: BaseException | None = None
        try:
            pairs.extend(measure_pairs(turn, plan.pairs))  # those before what cuts it short are kept
        except (Failure, KeyboardInterrupt, Stopped) as problem:
            error = problem.cause if isinstance(problem, Stopped) else problem
            if not pairs:
                raise error from problem
        described = {**plan.subject, "seconds": plan.seconds, **(settings or {})}
        return Comparison(bench, described, pairs, ratios, setting.machine(), plan.pairs, error)


def total_seconds(plan: Plan, sides: Sequence[Side]) -> float:
    """How long all pairs take if none is set aside."""
    return plan.pairs * sum(side.seconds for side in sides)
