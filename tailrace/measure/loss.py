"""Frame loss rate by offered rate (RFC 2544, section 26.3): from the full rate down in steps, until two rates in a row
lose nothing. One that was not sent as it was offered is none of these: what it would have lost is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tailrace.errors import Failure
from tailrace.measure.method import Method, Place, Step, name_of, profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.measure.tester import Stopped
from tailrace.measure.trials import CUT_SHORT, Settle, Trials
from tailrace.results.findings import LossFinding
from tailrace.spec.tests import Loss

#: So many rates in a row without loss end the curve.
CLEAN_END = 2
#: How long to send as fast as possible, where no full rate is given, in seconds.
FULL_RATE_SECONDS = 0.5


def full_rate(trials: Trials, test: Loss) -> float:
    """The rate that is 100 %: as given, or what the tester can send. The trial for that is no point."""
    if test.rate is not None:
        return float(test.rate)
    rate = trials.run(0.0, min(FULL_RATE_SECONDS, test.duration)).sent_pps
    trials.made.clear()
    return rate


def loss_curve(trials: Trials, test: Loss, full: float) -> None:
    """Measures the points; they are in `trials.made`."""
    clean = 0
    for index in range(round(1 / test.step)):
        trial = trials.run(full * (1 - index * test.step), test.duration)
        clean = 0 if trial.lost or trial.fell_short else clean + 1
        if clean == CLEAN_END:
            return


@dataclass(frozen=True)
class LossMethod(Method[Loss]):
    """`tailrace measure loss`."""

    name = "loss"

    def steps(self, tests: Sequence[Loss], place: Place) -> list[Step]:
        steps: list[Step] = []
        for test in tests:
            for profile in profiles_of(test):
                name = name_of(profile, place, [step.name for step in steps])
                settle = Settle.asked(test.settle, test.duration).before(test.duration)
                seconds = (test.duration + test.wait + settle) * min(6, 1 / test.step)
                steps.append(Step(name, seconds, partial(_measure, name=name, profile=profile, test=test, place=place)))
        return steps


def _measure(session: Session, name: str, profile: Profile, test: Loss, place: Place) -> None:
    place.lead(session, place.functions)
    settle = Settle.asked(test.settle, test.duration)
    label = f"{name}: loss"
    trials = Trials(session.measure, profile, label, test.wait, settle, most=100_000, pause=session.pause)
    reason: str | None = CUT_SHORT
    full = 0.0
    try:
        full = full_rate(trials, test)
        loss_curve(trials, test, full)
        reason = None
    except (Stopped, Failure) as error:
        reason = str(error) or CUT_SHORT
        raise
    finally:
        if full and trials.made:
            session.folder.add_finding(
                LossFinding(
                    name=name,
                    **profile.kind._asdict(),
                    functions=place.functions,
                    valid=reason is None,
                    reason=reason,
                    full_pps=full,
                    trials=tuple(trials.made),
                )
            )
