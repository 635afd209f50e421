"""What a known connection costs in a firewall, a NAT or a balancer: in turn with the skeleton, which follows none, on
one core and over the same ports of vhost-user (`tailrace-function-cost`). Frames are of a million connections, at
random.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace import __version__
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.function import SKELETON
from tailrace.bench.model import Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.errors import Failure, Mistake
from tailrace.measure.progress import Reporter
from tailrace.process.process import Limits
from tailrace.process.programs import own_program
from tailrace.resources.place import POLLER_NICE

PROGRAM = "tailrace-function-cost"
FIREWALL, MANY_RULES = "firewall", "firewall_10000_rules"
KINDS: Mapping[str, Mapping[str, str]] = {
    FIREWALL: {FIREWALL: "firewall, 1 rule", MANY_RULES: "firewall, 10000 rules"},
    "nat": {"nat": "nat"},
    "balancer": {"balancer": "balancer, 16 back ends"},
}
"""By kind: its sides, and what the program calls them."""
_PREPARE_SECONDS = 8.0
"""What a million connections take until they are known."""
_PATIENCE = 120.0


@dataclass(frozen=True)
class FollowingPlan(Plan):
    """What is to be measured. Raises Mistake where it cannot be."""

    kind: str = FIREWALL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds != int(self.seconds):
            raise Mistake(f"--seconds {self.seconds:g}: expected a whole number for {self.kind}")

    @property
    def sides(self) -> Sequence[Side]:
        names = {SKELETON: (SKELETON, SKELETON), **{name: (self.kind, text) for name, text in KINDS[self.kind].items()}}
        seconds = self.seconds + _PREPARE_SECONDS
        return [Side(name, seconds, partial(_side, self, kind, text)) for name, (kind, text) in names.items()]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def ratios(kind: str) -> tuple[Ratio, ...]:
    """Of rates; for the firewall also what its rules cost a known connection, in cycles."""
    rates = (
        Ratio("mpps", "mpps", kind, SKELETON),
        Ratio("mpps_few", "mpps_few", kind, SKELETON),
        Ratio("mpps_answers", "mpps_answers", kind, SKELETON),
    )
    return rates + ((Ratio("rules", "cycles_per_packet", MANY_RULES, FIREWALL),) if kind == FIREWALL else ())


def run(plan: FollowingPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    return compare(
        "function",
        plan,
        plan.sides,
        ratios(plan.kind),
        folder=folder,
        report=report,
        pages=0,
        programs=[PROGRAM],
        settings={"function": plan.kind},
    )


def _side(plan: FollowingPlan, kind: str, subject: str, setting: Setting, step: Step) -> list[Sample]:
    setting.versions["tailrace"] = __version__
    samples = setting.samples([], lambda: figures(_measured(plan, kind, setting), subject))
    step(plan.seconds + _PREPARE_SECONDS)
    return samples


def figures(found: Mapping[str, object], subject: str) -> Figures:
    """Of what the program has printed. What follows no connection has no answers: they are frames as any. Raises
    Failure if this subject is not there."""
    cycles, hz = found.get(subject), found.get("tsc_hz")
    if not isinstance(cycles, Mapping) or not isinstance(hz, int):
        raise Failure(f"{PROGRAM} printed nothing about {subject}")
    made = {
        "cycles_per_packet": cycles["many"],
        "cycles_few": cycles["few"],
        "cycles_answers": cycles["answers"] or cycles["many"],
    }
    made |= {
        name: hz / made[of] / 1e6
        for name, of in (("mpps", "cycles_per_packet"), ("mpps_few", "cycles_few"), ("mpps_answers", "cycles_answers"))
    }
    if cycles["begin"]:
        made["connections_per_second"] = hz / cycles["begin"]
    return {name: round(value, 3) for name, value in made.items()}


def _measured(plan: FollowingPlan, kind: str, setting: Setting) -> dict[str, object]:
    launcher, place = setting.launcher, setting.cores.switch_place
    argv = [str(own_program(PROGRAM)), "--vhost", "--json", kind, "--seconds", f"{plan.seconds:.0f}"]
    launcher.log(PROGRAM).unlink(missing_ok=True)
    process = launcher.start(PROGRAM, argv, Limits(cpus=(place.core,), nice=POLLER_NICE))
    ended = process.id.wait(plan.seconds + _PATIENCE)
    launcher.state.undo(process)
    if not ended:
        raise Failure(f"{PROGRAM} did not come to an end")
    try:
        found: dict[str, object] = json.loads(launcher.last_words(PROGRAM))
    except ValueError:
        raise launcher.failure(PROGRAM, f"{PROGRAM} failed") from None
    return found
