"""`tailrace measure reorder`: whether disturbed order is seen where it must be, and kept where it has to be.

Where a function's replicas delay frames unequally, flows overtake each other: each flow stays with its replica, and
those of a faster one arrive before those that were sent earlier through a slower one. So the same flows are sent twice:

- *together*, as one stream each way. A frame that took a slower replica is overtaken by later ones of a faster, so it
  is out of sequence (RFC 4737, section 3), and all that took the fastest are in order: how many took a slower one is
  known from the switch's own counters of the replicas' ports.
- *apart*, each flow as a stream of its own. A flow is pinned to one replica, which keeps order: no frame may be out of
  sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tailrace.errors import Mistake, Refused
from tailrace.measure.latency import TRIAL_WAIT, Case, kept, run_trial
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.plan.planned import Plan, PlannedFunction
from tailrace.results import Trial
from tailrace.results.findings import Order, ReorderFinding
from tailrace.spec.tests import Reorder
from tailrace.spec.units import Rate
from tailrace.switch.config import port_name

_DELAY = "delay-us="


@dataclass(frozen=True)
class Apart(Profile):
    """A profile whose flows are streams of their own."""

    flows: int = 1

    def streams(self, rate: float, ends: Sequence[str] = ("a", "b")) -> list[dict[str, Any]]:
        one = {key: value for key, value in self.traffic.items() if key != "flows"}
        return [
            {**way, **one, "flows": 1, "flow": flow, "name": f"{way['name']}-{flow}", "rate": rate / self.flows}
            for way in ({key: way[key] for key in ("name", "from", "to")} for way in super().streams(rate, ends))
            for flow in range(self.flows)
        ]


def delays_of(functions: Sequence[PlannedFunction]) -> dict[str, float]:
    """How long each replica of the functions delays a frame, in µs, by its name: those of unequal delay only."""
    delays = {
        each.name: next((float(word.removeprefix(_DELAY)) for word in each.settings if word.startswith(_DELAY)), 0.0)
        for each in functions
    }
    groups: dict[str, set[float]] = {}
    for each in functions:
        groups.setdefault(each.function, set()).add(delays[each.name])
    return {each.name: delays[each.name] for each in functions if len(groups[each.function]) > 1}


def slower_of(plan: Plan) -> list[PlannedFunction]:
    """The replicas that delay frames more than the fastest of their function."""
    delays = delays_of(plan.functions)
    return [
        each
        for each in plan.functions
        if each.name in delays
        and delays[each.name] > min(delays[other.name] for other in plan.functions if other.function == each.function)
    ]


@dataclass(frozen=True)
class ReorderMethod(Method[Reorder]):
    """`tailrace measure reorder`."""

    name = "reorder"

    def steps(self, tests: Sequence[Reorder], place: Place) -> list[Step]:
        if place.chain is None:
            raise Mistake("reorder needs a function whose replicas delay frames unequally; expected a SPEC with one")
        steps: list[Step] = []
        for test in tests:
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                work = partial(_measure, name=name, profile=profile, test=test, place=place)
                steps.append(Step(name, 2 * (test.duration + TRIAL_WAIT), work))
        return steps

    def check(self, plan: Plan) -> None:
        chain = next(each for each in plan.chains if each.tested)
        if not any(each.function in chain.through for each in slower_of(plan)):
            raise Refused(
                f"chains.{chain.name}: none of its functions has replicas that delay frames unequally, so nothing "
                "would be out of sequence; expected one such as {kind: impair, replicas: 2, impair: {delay: [0s, 2ms]}}"
            )


def _measure(session: Session, name: str, profile: Profile, test: Reorder, place: Place) -> None:
    assert session.node is not None
    place.lead(session, place.functions)
    apart = Apart(profile.name, profile.traffic, flows=test.flows)
    before = _through_slower(session)
    together = _trial(session, f"{name}-together", profile, test, place)
    slower = _through_slower(session) - before
    each = _trial(session, f"{name}-apart", apart, test, place)
    found = ReorderFinding(
        name=name,
        profile=profile.name,
        functions=place.functions,
        valid=True,
        reason=None,
        flows=test.flows,
        delays_us=delays_of(session.node.plan.functions),
        slower=slower,
        together=order_of(together),
        apart=order_of(each),
    )
    reason = found.unseen
    session.folder.add_finding(found.model_copy(update={"valid": reason is None, "reason": reason}))
    if reason is not None:
        session.folder.invalidate(f"{name}: {reason}")


def _trial(session: Session, name: str, profile: Profile, test: Reorder, place: Place) -> Trial:
    rate = float(test.rate)
    case = Case(name, profile, place.functions, Rate(pps=rate), test.duration)
    return kept(session.folder, case, run_trial(session.measure, session.folder, case, rate, None), rate, None)


def _through_slower(session: Session) -> int:
    """Frames that the switch has given to slower replicas, in both directions, until now."""
    assert session.node is not None
    node = session.node
    which = {each.name: node.state.record.instances.get(each.name, 1) for each in node.plan.functions}
    names = {port_name(port, which) for each in slower_of(node.plan) for port in each.ports}
    return sum(port.counters["sent_packets"] for port in node.fabric.ports() if port.name in names)


def order_of(trial: Trial) -> Order:
    """What a trial says of order, over both directions."""
    known = [way.extents for way in trial.directions if way.extents is not None]
    frames = sum(each.frames for each in known)
    return Order(
        sent=trial.total("sent"),
        received=trial.total("sent") - trial.total("lost"),
        out_of_sequence=trial.total("out_of_sequence"),
        beyond_window=trial.total("beyond_window"),
        extent_average=sum(each.average * each.frames for each in known) / frames if frames else 0.0,
        extent_max=max((each.max for each in known), default=0),
        extent_unknown=sum(each.unknown for each in known),
    )
