"""What a known connection costs in a firewall, a NAT or a balancer: in turn with the skeleton, which follows none, on
one core and over the same ports of vhost-user (`tailrace-function-cost`). Frames are of a million connections, at
random.

And how its rate grows with cores, and the skeleton's, which has nothing that cores share: each with one core and with
two, in its own loop between ports in memory (`tailrace-function-cores`).
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

PROGRAM, CORES_PROGRAM = "tailrace-function-cost", "tailrace-function-cores"
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
        one = [Side(name, seconds, partial(_side, self, kind, text)) for name, (kind, text) in names.items()]
        several = [(SKELETON, 1, 1), (SKELETON, 2, 2), (self.kind, 1, 1), (self.kind, 1, 2), (self.kind, 2, 2)]
        return one + [Side(on_cores(*each), seconds, partial(_cores_side, self, *each)) for each in several]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def on_cores(kind: str, cores: int, queues: int) -> str:
    """The side that measures the rate of so many cores together."""
    return f"{kind}_on_{cores}" if queues == cores else f"{kind}_on_{cores}_queues_{queues}"


def ratios(kind: str) -> tuple[Ratio, ...]:
    """Of rates, of two cores beside one too; for the firewall also of what its rules cost a known connection."""
    one, queues, two = (on_cores(kind, *each) for each in ((1, 1), (1, 2), (2, 2)))
    rates = (
        Ratio("mpps", "mpps", kind, SKELETON),
        Ratio("mpps_few", "mpps_few", kind, SKELETON),
        Ratio("mpps_answers", "mpps_answers", kind, SKELETON),
        Ratio("cores", "mpps", two, one),
        Ratio("cores_few", "mpps_few", two, one),
        Ratio("cores_handed_on", "mpps_handed_on", two, one),
        Ratio("cores_skeleton", "mpps", on_cores(SKELETON, 2, 2), on_cores(SKELETON, 1, 1)),
        Ratio("queues", "mpps", queues, one),
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
        programs=[PROGRAM, CORES_PROGRAM],
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
    argv = [PROGRAM, "--vhost", "--json", kind, "--seconds", f"{plan.seconds:.0f}"]
    return _printed(argv, (setting.cores.switch,), plan, setting)


def _cores_side(plan: FollowingPlan, kind: str, cores: int, queues: int, setting: Setting, step: Step) -> list[Sample]:
    cpus = (setting.cores.switch, setting.cores.load)[:cores]
    argv = [CORES_PROGRAM, "--cores", ",".join(map(str, cpus)), "--queues", str(queues)]
    argv += ["--seconds", f"{plan.seconds:.0f}", kind]
    samples = setting.samples([], lambda: rates(_printed(argv, cpus, plan, setting), kind))
    step(plan.seconds + _PREPARE_SECONDS)
    return samples


def rates(found: Mapping[str, object], kind: str) -> Figures:
    """Of what the program has printed for some cores together. Where nothing is handed on, all frames come to where
    they belong. Raises Failure if there is no rate."""
    made = {name: value for name, value in found.items() if isinstance(value, int | float)}
    if not made.get("mpps"):
        raise Failure(f"{CORES_PROGRAM} printed no rate of {kind}")
    made.setdefault("mpps_handed_on", made["mpps"])
    return {name: round(value, 3) for name, value in made.items()}


def _printed(argv: Sequence[str], cpus: Sequence[int], plan: FollowingPlan, setting: Setting) -> dict[str, object]:
    """The line of JSON that a program ends with."""
    launcher, name = setting.launcher, argv[0]
    launcher.log(name).unlink(missing_ok=True)
    allowed = tuple(sorted({*cpus, setting.cores.control})) if len(cpus) > 1 else tuple(cpus)
    process = launcher.start(name, [str(own_program(name)), *argv[1:]], Limits(cpus=allowed, nice=POLLER_NICE))
    ended = process.id.wait(plan.seconds + _PATIENCE)
    launcher.state.undo(process)
    if not ended:
        raise Failure(f"{name} did not come to an end")
    try:
        found: dict[str, object] = json.loads(launcher.last_words(name))
    except ValueError:
        raise launcher.failure(name, f"{name} failed") from None
    return found
