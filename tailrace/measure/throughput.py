"""Throughput: the highest rate that is forwarded with at most a stated loss.

Three searches with one result: RFC 2544 (26.1), where the first lossy trial counts; ETSI GS NFV-TST 009 (12.3.3), where
a rate has to lose max(r) times; Multiple Loss Ratio search (RFC 9971), which looks for several loss ratios at once with
the library that its authors maintain (`multiple_loss_ratio.py`). Each looks in short trials first, and lets long ones
decide.

Only loss decides. Copies and disorder are written down with every trial, and reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tailrace.errors import Failure
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.search import HEADROOM, HIGHEST_PPS, LOWEST_PPS, PLAIN_LOSS, Bounds, Range, bracket, verified
from tailrace.measure.session import Session
from tailrace.measure.tester import Stopped
from tailrace.measure.trials import CUT_SHORT, OutOfTrials, Settle, Trials
from tailrace.results.findings import Goal, SearchTrial, ThroughputFinding
from tailrace.results.trial import LAYER_1_OVERHEAD
from tailrace.spec.tests import Throughput


def find_throughput(trials: Trials, test: Throughput) -> list[Bounds]:
    """The bounds for each loss ratio of the test, in its order; all trials are in `trials.made`."""
    try:
        top = float(test.rate or 0.0)
        first = trials.run(top, test.trial)
    except OutOfTrials:
        return [Bounds(limit="trials") for _ in test.loss]
    highest = top or min(max(first.sent_pps, first.forwarded_pps) * HEADROOM, HIGHEST_PPS)
    lowest = min(LOWEST_PPS, highest / 2)
    if test.search == "mlrsearch":
        # The library takes a third of a second to load.
        from tailrace.measure.multiple_loss_ratio import multiple_loss_ratios

        return in_order(test.loss, multiple_loss_ratios(trials, test, lowest, highest))
    repeats = test.repeats if test.search == "tst009" else 1
    found: list[Bounds] = []
    for loss in test.loss:
        # A rate that has passed for this loss already, whatever was looked for then, is a better start than none.
        passed = (trial.sent_pps for trial in trials.made[1:] if trial.loss_ratio <= loss)
        start = max(passed, default=first.forwarded_pps)
        found.append(_binary(trials, test, loss, repeats, Range(start, lowest, highest)))
    return in_order(test.loss, found)


def in_order(losses: Sequence[float], found: Sequence[Bounds]) -> list[Bounds]:
    """The bounds for each loss ratio, none below that of a smaller one: what passed with less loss passes with more.

    Searches that meet the machine at two times may say otherwise.
    """
    made = list(found)
    for number in sorted(range(len(made)), key=losses.__getitem__):
        for loss, other in zip(losses, made, strict=False):
            if loss < losses[number] and other.low > made[number].low:
                made[number] = Bounds(other.low, max(other.high, made[number].high), made[number].limit)
    return made


def _binary(trials: Trials, test: Throughput, loss: float, repeats: int, where: Range) -> Bounds:
    """Short trials until the bounds are close, then long ones from there: those alone make the lower bound."""

    def passes(trial: SearchTrial) -> bool:
        return trial.loss_ratio <= loss

    # The step up from what was forwarded must not start with a failure by the width of a frame.
    start = where.start * (1 - test.precision / 4)
    # Where a twentieth of what was forwarded still loses frames, nobody asks for a third digit.
    resolution = test.precision * where.start / 20
    where = Range(start, where.lowest, where.highest, test.precision, resolution=resolution)
    plain_loss = max(PLAIN_LOSS, 2 * loss)
    short = bracket(verified(trials, test.trial, passes, repeats, plain_loss), where)
    if test.trial == test.duration or short.limit == "trials":
        return short
    known = Bounds(0.0, short.high, short.limit)
    where = replace(where, start=short.low or where.lowest)
    return bracket(verified(trials, test.duration, passes, repeats, plain_loss), where, known)


def mean_frame(profile: Profile) -> float | None:
    """Mean frame size in bytes with FCS; None of a capture."""
    frames: list[int] | None = profile.traffic.get("frames")
    if frames is None:
        return None
    weights = profile.traffic.get("weights", [1] * len(frames))
    return float(sum(size * weight for size, weight in zip(frames, weights, strict=True)) / sum(weights))


def goal(loss: float, bounds: Bounds, frame: float | None) -> Goal:
    """What was found, for results."""
    return Goal(
        loss_ratio=loss,
        pps=bounds.low,
        upper_pps=bounds.high if bounds.high < float("inf") else None,
        gbps_l1=bounds.low * ((frame or 0) + LAYER_1_OVERHEAD) * 8 / 1e9 if frame else 0.0,
        gbps_l2=bounds.low * (frame or 0) * 8 / 1e9,
        limit=bounds.limit,
    )


@dataclass(frozen=True)
class ThroughputMethod(Method[Throughput]):
    """`tailrace measure throughput`."""

    name = "throughput"

    def steps(self, tests: Sequence[Throughput], place: Place) -> list[Step]:
        steps: list[Step] = []
        for test in tests:
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                work = partial(_measure, name=name, profile=profile, test=test, place=place)
                steps.append(Step(name, _expected(test), work))
        return steps


def _expected(test: Throughput) -> float:
    settle = Settle.asked(test.settle, test.duration)
    short, long = (each + test.wait + settle.before(each) for each in (test.trial, test.duration))
    deciding = 3 * len(test.loss) if test.search == "mlrsearch" else 1.5 * len(test.loss)
    return 10 * short + deciding * long


def _measure(session: Session, name: str, profile: Profile, test: Throughput, place: Place) -> None:
    place.lead(session, place.functions)
    settle = Settle.asked(test.settle, test.duration)
    label = f"{name}: throughput"
    trials = Trials(session.measure, profile, label, test.wait, settle, most=test.trials, pause=session.pause)
    reason: str | None = CUT_SHORT
    found: list[Bounds] = []
    try:
        found = find_throughput(trials, test)
        reason = never_kept_up(trials.made)
    except (Stopped, Failure) as error:
        reason = str(error) or CUT_SHORT
        raise
    finally:
        if trials.made:
            frame = mean_frame(profile)
            session.folder.add_finding(
                ThroughputFinding(
                    name=name,
                    **profile.kind._asdict(),
                    functions=place.functions,
                    valid=reason is None,
                    reason=reason,
                    search=test.search,
                    precision=test.precision,
                    goals=tuple(goal(loss, bounds, frame) for loss, bounds in zip(test.loss, found, strict=False)),
                    trials=tuple(trials.made),
                )
            )
    if reason is not None:
        session.folder.invalidate(f"{name}: {reason}")


def never_kept_up(made: Sequence[SearchTrial]) -> str | None:
    """Why a search says nothing of the device: the tester kept no rate at all, so each looked too high. None if it did.

    A tester that is merely too slow keeps the rates that it can; one whose core somebody else works on keeps none.
    """
    tried = [trial for trial in made if trial.offered_pps]
    if not any(trial.fell_short == "tester" for trial in tried) or any(trial.fell_short is None for trial in tried):
        return None
    lowest = min(trial.offered_pps for trial in tried) / 1e6
    most = max((trial.sent_pps for trial in made if not trial.lost), default=0.0) / 1e6
    return (
        f"the tester kept no rate, down to {lowest:.4g} Mpps; something else may run on its core. The rates found say "
        f"nothing of the device, which carried {most:.4g} Mpps without loss; measure again when the machine is idle"
    )
