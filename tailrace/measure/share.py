"""`tailrace measure share`: how much of a chain's latency is one function's own, and where all of it goes.

The chain is measured as it is, and with the skeleton (a function that does nothing but forward) in the place of the
function: the same switch, ports, cores, rate and frames. So what both have, the switch, the rings and the wake-ups, is
taken out, and what is left is what the function does. Pairs stand the other way round in turn (A B, B A, A B): what
changes steadily on the machine meets both sides alike, and the function is replaced once for each pair.

At last both chains are traced, one trial each. The stamps of the hops cut each frame's time where it changes hands, so
the elements add up to the whole; set beside each other they show in which element the difference lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import Failure, Mistake
from tailrace.measure.hop_meter import HopMeter
from tailrace.measure.latency import TRIAL_WAIT
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.session import Session
from tailrace.measure.side import Load, at_rate, measured
from tailrace.node.change import change_over
from tailrace.node.running import Node, reserve_each
from tailrace.plan.planned import Plan
from tailrace.results import Trial
from tailrace.results.comparison import FIRST_LOOK
from tailrace.results.share import Budget, Element, Figures, ShareFinding, SharePair, Side, contributions_of
from tailrace.spec.tests import Share

SKELETON = "skeleton"
_SIDES: tuple[Side, Side] = ("function", "skeleton")
CHANGE_SECONDS = 2.0
"""What replacing a function takes, for the progress bar."""


@dataclass(frozen=True)
class ShareMethod(Method[Share]):
    """`tailrace measure share`."""

    name = "share"

    def steps(self, tests: Sequence[Share], place: Place) -> list[Step]:
        if place.chain is None or not place.functions:
            raise Mistake("share takes a function out of a chain; expected a SPEC whose chain has one")
        chain = place.chain.through
        steps: list[Step] = []
        for test in tests:
            if test.function is not None and test.function not in chain:
                raise Mistake(f"--function {test.function}: not in the chain; it has {', '.join(chain)}")
            for profile in profiles_of(test):
                for function in (test.function,) if test.function is not None else dict.fromkeys(chain):
                    name = name_of(profile, place, [step.name for step in steps], f"-share-of-{function}")
                    load = Load(name, profile, test.rate, test.duration)
                    seconds = load.duration if load.rate.fraction is not None else 0.0
                    seconds += (test.pairs + 1) * (2 * (load.seconds + TRIAL_WAIT) + CHANGE_SECONDS)
                    steps.append(Step(name, seconds, partial(_measure, test, load, function, place.functions)))
        return steps

    def begin(self, session: Session) -> None:
        if session.node is not None and session.node.state.record.purpose == "up":
            raise Mistake(
                "share replaces a function while it measures, so it does not work on a chain that `tailrace up` "
                "started; run `tailrace down` first"
            )


def with_skeleton(plan: Plan, function: str) -> Plan:
    """The plan with the skeleton in the place of the function, in all its replicas. Raises Mistake for a guest."""
    replicas = [each for each in plan.functions if each.function == function]
    if not all(each.started for each in replicas):
        raise Mistake(f"{function} is a guest, which Tailrace does not start; it cannot put the skeleton in its place")
    functions = tuple(
        replace(each, kind=SKELETON, settings=(), network=None, told=None) if each.function == function else each
        for each in plan.functions
    )
    return replace(plan, functions=functions)


def stand(node: Node, plan: Plan) -> None:
    """Makes the node be this plan, which differs in what its functions are. Raises Failure."""
    version, wanted = node.difference_to(plan)
    if wanted.nothing:
        return
    new = replace(node, plan=plan)

    def prepare() -> None:
        if plan.huge:
            reserve_each(node.state, plan.pages_of(wanted.start))

    change_over(new, wanted, version, prepare=prepare)
    node.plan = plan


def figures_of(trial: Trial) -> Figures:
    """What a pair keeps of a trial, by direction."""
    found: Figures = {}
    for way in trial.directions:
        found[way.name] = {"loss_ratio": way.loss_ratio}
        if way.latency_us is not None:
            latency = way.latency_us
            found[way.name] |= {
                "average_us": latency.average,
                "p50_us": latency.p50,
                "p90_us": latency.p90,
                "p99_us": latency.p99,
                "p99.9_us": latency.p99_9,
                "max_us": latency.max,
            }
            ratio = trial.floor_ratio_of(way)
            if ratio is not None:
                found[way.name]["floor_ratio"] = ratio
        if trial.offered_pps and way.offered:
            found[way.name]["sent_ratio"] = way.sent / way.offered
    return found


def budgets_of(with_function: Trial, with_the_skeleton: Trial) -> tuple[Budget, ...]:
    """Where the mean goes in both, element by element; of the directions that were traced alike in both."""
    found = []
    others = {way.name: way.hops for way in with_the_skeleton.directions}
    for way in with_function.directions:
        one, other = way.hops, others.get(way.name)
        if one is None or other is None or [part.kind for part in one.parts] != [part.kind for part in other.parts]:
            continue
        found.append(
            Budget(
                direction=way.name,
                function_trial=with_function.name,
                skeleton_trial=with_the_skeleton.name,
                elements=tuple(
                    Element(
                        kind=here.kind,
                        name=here.name,
                        function_us=here.latency_us.average,
                        skeleton_us=there.latency_us.average,
                    )
                    for here, there in zip(one.parts, other.parts, strict=True)
                ),
                function_us=one.average_us,
                skeleton_us=other.average_us,
            )
        )
    return tuple(found)


def _measure(test: Share, load: Load, function: str, functions: int, session: Session) -> None:
    node = session.node
    if node is None:
        raise Mistake("share takes a function out of a chain; expected a SPEC whose chain has one")
    plans: dict[Side, Plan] = {"function": node.plan, "skeleton": with_skeleton(node.plan, function)}
    kind = next(each.kind for each in node.plan.functions if each.function == function)
    rate, searched = load.rate.pps or 0.0, None
    if load.rate.fraction is not None:
        first = measured(session, load.case(FIRST_LOOK, functions))
        rate, searched = first.offered_pps, first.searched
    finding = ShareFinding(
        name=load.name,
        **load.profile.kind._asdict(),
        functions=functions,
        valid=True,
        reason=None,
        function=function,
        kind=kind,
        offered_pps=rate,
        rate_fraction=load.rate.fraction,
        searched=searched,
        pairs=(),
        contributions=(),
    )

    def trial(side: Side, which: str) -> Trial:
        stand(node, plans[side])
        return at_rate(session, load.case(f"{which}-{side}", functions), rate)

    for number in range(1, test.pairs + 1):
        order = _SIDES if number % 2 else _SIDES[::-1]
        both = {side: figures_of(trial(side, f"pair-{number}")) for side in order}
        pairs = (*finding.pairs, SharePair(function=both["function"], skeleton=both["skeleton"]))
        finding = finding.model_copy(update={"pairs": pairs, "contributions": contributions_of(pairs)})
        session.folder.put_finding(finding)
    # The side that stands already comes first.
    order = _SIDES[::-1] if test.pairs % 2 else _SIDES
    traced: dict[Side, Trial] = {}
    for side in order:
        stand(node, plans[side])
        with _tracing(session, node):
            traced[side] = trial(side, "traced")
    budgets = budgets_of(traced["function"], traced["skeleton"])
    session.folder.put_finding(finding.model_copy(update={"budgets": budgets}))
    stand(node, plans["function"])


@contextmanager
def _tracing(session: Session, node: Node) -> Iterator[None]:
    """Trials of the block are traced hop by hop. Replacing a function ends a trace, so it is not for the block."""
    session.hops = HopMeter(node.fabric.control)
    try:
        yield
    finally:
        meter, session.hops = session.hops, None
        with suppress(Failure):  # a switch that has gone has no trace either
            meter.close()
