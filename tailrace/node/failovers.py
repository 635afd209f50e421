"""Virtual functions in front of machines' ports: plugged wherever a machine runs that has one on this node."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tailrace.errors import TailraceError
from tailrace.plan.planned import Plan
from tailrace.process import hypervisor
from tailrace.process.process import undisturbed
from tailrace.resources.virtual_functions import Failover
from tailrace.state.record import Process, Record, State, VfioFile
from tailrace.switch.config import function_name

_log = logging.getLogger(__name__)


def _wanted(state: State, plan: Plan) -> Iterator[tuple[Process, tuple[Failover, ...]]]:
    """The machines that run, with what may be in front of their ports."""
    failovers = {each.name: each.failover for each in plan.started if each.failover}
    for process in state.processes():
        found = failovers.get(function_name(process.name))
        if found and process.outside and process.id.alive():
            yield process, found


def plug_failovers(state: State, plan: Plan) -> list[str]:
    """Plugs those of a plan that are not yet; returns why any cannot be: its port carries the frames then."""
    from tailrace.functions.failover import replug  # only here: it needs libvirt

    problems = []
    for process, failovers in _wanted(state, plan):
        try:
            problems += [f"{process.name}: {each}" for each in replug(state, process, failovers)]
        except TailraceError as error:
            problems.append(f"{process.name}: {error}")
    return problems


def plug_again(state: State, plan: Plan) -> bool:
    """After unplugs that were not to be: plugs what machines have let go of meanwhile. Returns whether any may still do
    so."""
    if not leaving(state.record):
        return False
    from tailrace.functions import failover  # only here: it needs libvirt

    for process, failovers in _wanted(state, plan):
        try:
            for problem in failover.plug_again(state, process, failovers):
                _log.warning("%s: %s", process.name, problem)
        except TailraceError as error:  # it has ended
            _log.warning("%s: %s", process.name, error)
    return leaving(state.record)


def leaving(record: Record) -> bool:
    """Whether a machine has been asked to let go of a function that it still has."""
    return any(isinstance(thing, VfioFile) and thing.leaves for thing in record.things)


def unplug_others(state: State, plan: Plan) -> None:
    """Unplugs what is in front of ports of machines that go on and have another function in a plan, or none. Raises
    Failure."""
    things = [each for each in state.record.things if isinstance(each, VfioFile) and each.card]
    if not things:
        return
    from tailrace.functions.failover import plugged, unplug  # only here: it needs libvirt

    for process, failovers in _wanted(state, plan):
        planned = {each.vf.address for each in failovers if each.vf is not None}
        there = plugged(hypervisor.machine_xml(process.outside))
        ports = [port for port, address in there.items() if address not in planned]
        if ports:
            unplug(state, process, ports)


@contextmanager
def unplugged(state: State, process: Process, failovers: Sequence[Failover]) -> Iterator[list[str]]:
    """Has a machine's ports carry their frames themselves, for good if the block ends well. Yields the names of the
    functions that were unplugged. Raises Failure. What its system lets go of only later is plugged by plug_again()."""
    if not failovers:
        yield []
        return
    from tailrace.functions import failover  # only here: it needs libvirt

    taken: list[int] = []
    try:
        taken = failover.unplug(state, process, [each.port for each in failovers])
        yield [each.vf.name for each in failovers if each.vf is not None and each.port in taken]
    except BaseException:
        with undisturbed():
            try:
                ours = [each for each in failovers if each.port in taken]
                problems = failover.replug(state, process, ours) + failover.plug_again(state, process, failovers)
                for problem in problems:
                    _log.warning("%s: %s", process.name, problem)
            except TailraceError as error:  # it has ended
                _log.warning("%s: %s", process.name, error)
        raise
