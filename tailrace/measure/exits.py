"""`tailrace measure exits`: how often the guests of a chain's machines are left while frames pass, by interface kind.

The chain is brought up with each kind in turn, and is sent the same frames at the same rate.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack

from tailrace.errors import Mistake
from tailrace.functions.acceleration import acceleration
from tailrace.functions.exits import counting
from tailrace.measure.latency import TRIAL_WAIT, Case, kept, run_trial
from tailrace.measure.method import profiles_of
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.plan.planned import Plan
from tailrace.results.findings import ExitsFinding
from tailrace.spec.model import Spec
from tailrace.spec.tests import Exits
from tailrace.spec.units import Rate
from tailrace.state.record import Folder
from tailrace.switch.config import function_name
from tailrace.switch.confine import group_for, make_folder

START_SECONDS = 20.0
"""What bringing a chain up and down takes, for the progress bar."""


def with_interface(spec: Spec, interface: str) -> Spec:
    """The spec with this kind at all ports of its machines."""
    functions = {
        name: each.model_copy(update={"interface": [interface]}) if each.runs == "machine" else each
        for name, each in spec.functions.items()
    }
    return spec.model_copy(update={"functions": functions})


def machines_of(plan: Plan) -> list[str]:
    """The machines that the measured chain leads through. Raises Mistake where there is none."""
    through = next(chain.through for chain in plan.chains if chain.tested)
    found = [each.name for each in plan.started if each.function in through and each.runs == "machine"]
    if not found:
        raise Mistake("no function of the chain runs in a machine, so there are no exits; expected `runs: machine`")
    return found


def seconds(test: Exits) -> float:
    """How long it is expected to take."""
    return len(test.interfaces) * (START_SECONDS + len(profiles_of(test)) * (test.duration + TRIAL_WAIT))


def measure_exits(interface: str, test: Exits, session: Session) -> None:
    """All traffic of a test, through the chain that is up with this kind of interface."""
    for profile in profiles_of(test):
        _measure(session, interface, test, profile)


def _measure(session: Session, interface: str, test: Exits, profile: Profile) -> None:
    node = session.node
    assert node is not None, "exits are of a chain"
    wanted = machines_of(node.plan)
    machines = [each for each in node.state.processes() if function_name(each.name) in wanted]
    functions = next(len(chain.through) for chain in node.plan.chains if chain.tested)
    case = Case(f"{interface}-{profile.name}", profile, functions, Rate(pps=test.rate), test.duration)
    session.stage(case.name, case.seconds + TRIAL_WAIT)
    kind = acceleration().kind
    with ExitStack() as counted:
        counts: list[Counter[str]] = []
        for machine in machines:
            group = group_for(node.state, function_name(machine.name))
            folder = make_folder(node.state, f"{machine.name}.exits", group)
            counted.callback(node.state.undo, Folder(str(folder)))
            counts.append(counted.enter_context(counting(machine, kind, folder)))
        began = time.monotonic()
        result = run_trial(session.measure, session.folder, case, test.rate, None)
        took = time.monotonic() - began
    trial = kept(session.folder, case, result, test.rate)
    session.folder.add_finding(
        ExitsFinding(
            name=case.name,
            **profile.kind._asdict(),
            functions=functions,
            valid=True,
            reason=None,
            interface=interface,
            drivers=tuple(sorted({node.plan.function(name).driver for name in wanted})),
            source="kvm" if kind == "kvm" else "emulated",
            machines=len(machines),
            seconds=took,
            packets=trial.total("received"),
            reasons=dict(sum(counts, Counter())),
        )
    )
