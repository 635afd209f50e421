"""The demo: what latency a chain of functions has on this machine, with proof, in two minutes.

One node is brought up with the longest chain; the switch then leads through none, one or both of its functions. So the
floor, the chain of one and the chain of two are measured on the same processes, minutes apart at most.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from tailrace.measure.chain import Timing, measure
from tailrace.measure.latency import Case
from tailrace.measure.method import Place, Step, case_name, run_steps
from tailrace.measure.profile import profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.session import Session
from tailrace.spec.load import parse_spec
from tailrace.spec.model import Spec
from tailrace.spec.units import Rate

SPEC = """\
# What `tailrace demo` brings up. To repeat a part of it, longer: tailrace measure latency --floor THIS-FILE
fabric: tailrace
functions:
  first: {kind: skeleton}
  second: {kind: skeleton}
chains:
  demo: [tester.a, first, second, tester.b]
tests:
  - latency: {frames: [64, 256, imix, 1518], rate: 90%, duration: 60s}
"""
PROFILES: tuple[int | str, ...] = (64, 256, "imix", 1518)
LENGTHS = (0, 1, 2)
RATE = Rate(fraction=0.9)
TIMING = Timing(trial=2.0, floor=1.0, options=SearchOptions(trial_seconds=0.15, most_trials=16))


def demo_spec() -> Spec:
    return parse_spec(SPEC, "demo")


#: Nothing is repeated after so many seconds, so that the demo is over in two minutes on any machine.
PATIENCE = 85.0


def cases(timing: Timing = TIMING) -> list[Case]:
    """Every profile through every length of chain."""
    return [
        Case(case_name(profile(frames), length), profile(frames), length, RATE, timing.trial)
        for frames in PROFILES
        for length in LENGTHS
    ]


def seconds(timing: Timing = TIMING) -> float:
    """How long the measuring is expected to take."""
    return sum(_seconds(case, timing) for case in cases(timing))


def _seconds(case: Case, timing: Timing) -> float:
    return timing.of(case, with_floor=bool(case.functions))


def run_demo(session: Session, timing: Timing = TIMING) -> None:
    """The whole demo on a node that is up."""
    if session.node is None:
        return
    began = time.monotonic()
    timing = replace(timing, patient=lambda: time.monotonic() - began < PATIENCE)
    place = Place(session.node.plan.chains[0])

    def work(session: Session, case: Case) -> None:
        measure(session, place, [case], timing, with_floor=True)

    run_steps(session, [Step(case.name, _seconds(case, timing), partial(work, case=case)) for case in cases(timing)])
