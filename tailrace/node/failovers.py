"""Virtual functions in front of machines' ports: plugged wherever a machine runs that has one on this node."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tailrace.errors import TailraceError
from tailrace.plan.planned import Plan
from tailrace.process.process import undisturbed
from tailrace.resources.virtual_functions import Failover
from tailrace.state.record import Process, State
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


@contextmanager
def unplugged(state: State, process: Process, failovers: Sequence[Failover]) -> Iterator[list[str]]:
    """Has a machine's ports carry their frames themselves, for good if the block ends well. Yields the names of the
    functions that were unplugged. Raises Failure."""
    if not failovers:
        yield []
        return
    from tailrace.functions.failover import replug, unplug  # only here: it needs libvirt

    taken = unplug(state, process, failovers)
    try:
        yield [each.vf.name for each in taken if each.vf is not None]
    except BaseException:
        with undisturbed():
            try:
                for problem in replug(state, process, taken):
                    _log.warning("%s: %s", process.name, problem)
            except TailraceError as error:  # it has ended
                _log.warning("%s: %s", process.name, error)
        raise
