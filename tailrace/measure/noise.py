"""`tailrace measure noise`: the same trial with and without a noisy neighbour, in turn, and their ratios.

Each noisy trial stands right after a quiet one, and a ratio is made of these two alone. What was up is not started
anew between them, so nothing differs but the neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tailrace.errors import Mistake
from tailrace.measure.latency import Case
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.neighbour import Neighbour, why_not
from tailrace.measure.neighbour_function import Ran, neighbour_function
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.measure.side import LATENCY_FIGURES, Load, at_rate, figures, measured
from tailrace.resources.topology import allowed_cpus
from tailrace.results.comparison import FIRST_LOOK, ComparedPair, ComparisonFinding, ratios_of
from tailrace.results.no_loss import NoLossRate
from tailrace.spec.tests import Noise

QUIET = "quiet"
VNF = "vnf"
START_SECONDS = 2.0
"""What starting and ending one neighbour takes, for the progress bar."""


@dataclass
class NoiseMethod(Method[Noise]):
    """`tailrace measure noise`."""

    name = "noise"
    cpus: tuple[int, ...] = field(default_factory=lambda: tuple(cpu.number for cpu in allowed_cpus()))
    """Those that this process may use, before it was kept off the switch's."""

    def steps(self, tests: Sequence[Noise], place: Place) -> list[Step]:
        steps: list[Step] = []
        for test in tests:
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                load = Load(name, profile, test.rate, test.duration)
                seconds = load.duration + test.pairs * len(test.neighbours) * (2 * load.duration + START_SECONDS)
                steps.append(Step(name, seconds, partial(self._measure, test, load, place.functions)))
        return steps

    def _measure(self, test: Noise, load: Load, functions: int | None, session: Session) -> None:
        rate, searched = load.rate.pps or 0.0, None
        if load.rate.fraction is not None:
            first = measured(session, load.case(f"{QUIET}-{FIRST_LOOK}", functions))
            rate, searched = first.offered_pps, first.searched
        where, shared = spare(session, self.cpus)
        if shared:
            session.folder.note(
                f"no core is free for neighbours: they run on core {', '.join(map(str, where))} beside pollers, at "
                "ordinary priority, so the figures include the sharing of a core"
            )
        left_out: dict[str, str] = {each: reason for each in test.neighbours if (reason := refusal(session, each))}
        sides = [each for each in test.neighbours if each not in left_out]
        if not sides:
            raise Mistake(f"no neighbour can run here: {said(left_out)}")
        pairs: list[ComparedPair] = []
        for number in range(1, test.pairs + 1):
            for side in sides:
                both: dict[str, dict[str, float]] = {}
                for which in (QUIET, side):
                    name = f"{load.name}-pair-{number}-{side}" + (f"-{QUIET}" if which == QUIET else "")
                    case = Case(name, load.profile, functions, load.rate, load.seconds)
                    with neighbour(session, which, where, load.profile) as ran:
                        found = figures(at_rate(session, case, rate))
                    both[which] = found | ran.figures
                pairs.append(ComparedPair(sides=both))
                self._keep(session, load, functions, rate, searched, sides, left_out, pairs)

    def _keep(
        self,
        session: Session,
        load: Load,
        functions: int | None,
        rate: float,
        searched: NoLossRate | None,
        sides: Sequence[str],
        left_out: dict[str, str],
        pairs: Sequence[ComparedPair],
    ) -> None:
        session.folder.put_finding(
            ComparisonFinding(
                method="noise",
                name=load.name,
                **load.profile.kind._asdict(),
                functions=functions,
                valid=True,
                reason=None,
                baseline=QUIET,
                sides=(QUIET, *sides),
                left_out=left_out,
                offered_pps=rate,
                rate_fraction=load.rate.fraction,
                searched={} if searched is None else {QUIET: searched},
                pairs=tuple(pairs),
                ratios=ratios_of(pairs, sides, QUIET, LATENCY_FIGURES),
            )
        )


def spare(session: Session, cpus: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """The CPUs for neighbours, and whether pollers are on them: those that no poller has, else those that are not the
    switch's, where no operator would put a tenant."""
    switch: set[int] = set()
    taken: set[int] = set()
    if session.node is not None:
        where = session.node.plan.placement
        switch = {*where.workers, where.switch.core}
        taken = {*switch, *(core for each in where.functions.values() for core in each.cores)}
        taken |= {where.tester.core} if where.tester else set()
    free = tuple(cpu for cpu in cpus if cpu not in taken)
    if free and taken:
        return free, False
    return tuple(cpu for cpu in cpus if cpu not in switch) or tuple(cpus), True


def said(left_out: dict[str, str]) -> str:
    """disk, memory: stress-ng is missing; vnf: ..."""
    names: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        names.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(each)}: {reason}" for reason, each in names.items())


def refusal(session: Session, name: str) -> str | None:
    """Why a neighbour cannot be had here, or None."""
    if name == VNF:
        return None if session.node is not None else "only Tailrace's own switch can have another chain"
    return why_not(name, session.folder.path)


@contextmanager
def neighbour(session: Session, name: str, cpus: Sequence[int], profile: Profile) -> Iterator[Ran]:
    """A neighbour at work while the block lasts; nothing, where it is quiet. After it, how it ran."""
    if name == QUIET:
        yield Ran()
    elif name == VNF:
        with neighbour_function(session, cpus, profile) as ran:
            yield ran
    else:
        with Neighbour(session.tester.launcher, name, cpus, session.folder.path):
            yield Ran()
