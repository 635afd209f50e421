"""How often functions had ended, what their chains did meanwhile, and how many frames were lost: counted on record.

A function is out when all its replicas have ended. An outage is counted once, however often it is looked at: a replica
that is started again is another process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tailrace.fabric.base import PortState
from tailrace.plan.planned import PlannedFunction
from tailrace.state.record import Outages, Record
from tailrace.switch.config import function_name, instance_name

LOST = "drop_receiver_down"
"""What the switch counts at a port: frames for it while nobody was attached."""


def count_outages(
    record: Record, functions: Iterable[PlannedFunction], gone: Collection[str], bypassed: Collection[str]
) -> bool:
    """Counts the functions that are out now, and were not when this was last asked; returns whether there are any.
    `gone`: replicas that have ended; `bypassed`: functions that chains lead past from now on."""
    groups: dict[str, list[PlannedFunction]] = {}
    for each in functions:
        groups.setdefault(each.function, []).append(each)
    counted = False
    for name, group in groups.items():
        policy = group[0].on_failure
        if not all(each.name in gone for each in group) or (policy == "bypass" and name not in bypassed):
            continue
        before = record.outages.get(name, Outages())
        ended = tuple(sorted(instance_name(each.name, record.instances.get(each.name, 1)) for each in group))
        if ended != before.last:
            record.outages[name] = replace(before, last=ended, **{policy: vars(before)[policy] + 1})
            counted = True
    return counted


def keep_lost(record: Record, ports: Iterable[PortState], ended: Collection[str]) -> bool:
    """Adds what the ports of these processes, as they were last, have lost: they go, with their counters, when another
    has the place. Returns whether that is anything."""
    functions, kept = functions_of(record.plan), False
    for port in ports:
        owner = port.name.rpartition(".")[0]
        lost = port.counters.get(LOST, 0)
        if owner in ended and lost:
            name = functions.get(function_name(owner), function_name(owner))
            before = record.outages.get(name, Outages())
            record.outages[name] = replace(before, lost=before.lost + lost)
            kept = True
    return kept


def functions_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """The function of each replica of a plan on record."""
    return {each["name"]: each.get("function", each["name"]) for each in plan.get("functions", [])}
