"""A neighbour at full rate: a chain of its own on the same switch, its function and a generator that sends all it can.

It shares the switch's worker, its core and memory, with the chain that is measured, as tenants of one node do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.errors import Fault
from tailrace.fabric.base import Port
from tailrace.functions.process import InProcess
from tailrace.functions.program import BUFFERS_MIB
from tailrace.functions.runtime import Instance
from tailrace.measure.profile import Profile
from tailrace.measure.session import Session
from tailrace.measure.tester import Tester
from tailrace.measure.trials import judge
from tailrace.node.running import reserve_pages
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.process.process import real_time_refusal, undisturbed
from tailrace.resources.place import FUNCTION_PRIORITY, Place
from tailrace.results.comparison import NEIGHBOUR_FIGURE

NAME = "neighbour"
LONGEST_SECONDS = 4 * 3600.0
PAGES = (BUFFERS_MIB + TESTER_BUFFERS_MIB) // 2 + 8
_PORTS = (f"{NAME}-a", f"{NAME}.0", f"{NAME}.1", f"{NAME}-b")
_RUNTIME = InProcess()
_READY_SECONDS = 15.0
_WAIT = 0.1


@dataclass
class Ran:
    """How a neighbour ran; known once it has ended."""

    pps: float | None = None
    """Frames a second that its function passed on, in the worse direction; None of one that passes none on."""

    @property
    def figures(self) -> dict[str, float]:
        """What is kept of it beside the figures of the trial."""
        return {} if self.pps is None else {NEIGHBOUR_FIGURE: round(self.pps / 1e6, 6)}


@contextmanager
def neighbour_function(session: Session, cpus: Sequence[int], profile: Profile) -> Iterator[Ran]:
    """The neighbour at work while the block lasts; gone after it, with how fast it ran."""
    node, launcher = session.node, session.tester.launcher
    if node is None:
        raise ValueError("a neighbour's chain needs a node")
    state, fabric = launcher.state, node.fabric
    before = list(state.record.things)
    huge = node.plan.huge
    if huge:
        reserve_pages(state, PAGES)
    try:
        uris = fabric.carry(NAME, [Port(name) for name in _PORTS])
        at = cpus[-1]
        refused = real_time_refusal(FUNCTION_PRIORITY)
        priority = None if refused else FUNCTION_PRIORITY
        function = Instance(
            NAME,
            "skeleton",
            (uris[_PORTS[1]], uris[_PORTS[2]]),
            Place(cpus[0], (cpus[0],), "interrupt", priority, nice=0),
            256 << 20,
            huge,
            group=node.state.group,
        )
        process = _RUNTIME.start(launcher, function).process
        ends = [("a", uris[_PORTS[0]]), ("b", uris[_PORTS[3]])]
        place = Place(at, (at,), nice=0)
        generator = Tester.start(
            launcher, ends, place, memory_mib=TESTER_BUFFERS_MIB, huge=huge, name=f"{NAME}-generator"
        )
        deadline = time.monotonic() + _READY_SECONDS
        _RUNTIME.wait(launcher, process, function.place, deadline)
        _wait_up(session, _PORTS, deadline)
        generator.begin(profile.streams(0.0), LONGEST_SECONDS, wait=_WAIT, interval=60.0)
        ran = Ran()
        yield ran
        for each in (process, generator.process):
            if not each.id.alive():
                raise Fault(f"the neighbour's {each.name} ended before the trial did")
        ran.pps = passed_on(generator.cut_short(_WAIT))
        generator.control.close()
    finally:
        with undisturbed():
            fabric.release(NAME, _PORTS)
            for thing in reversed([each for each in state.record.things if each not in before]):
                state.undo(thing)


def passed_on(result: dict[str, Any] | None) -> float | None:
    """Frames a second that came back of what a generator sent as fast as it could, in the worse direction."""
    if result is None or not result["duration"]:
        return None
    return judge(result, 0.0, result["duration"]).forwarded_pps


def _wait_up(session: Session, ports: Sequence[str], deadline: float) -> None:
    node = session.node
    while node is not None:
        states = {port.name: port.state for port in node.fabric.ports()}
        waiting = [name for name in ports if states.get(name) != "up"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise Fault(f"nobody came to the neighbour's port {waiting[0]} within {_READY_SECONDS:g} s")
        time.sleep(0.01)
