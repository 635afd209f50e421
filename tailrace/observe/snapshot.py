"""The counter page over time: snapshots, and rates between two of them. Reading it costs the switch nothing.

A snapshot is what all slots held within some microseconds; the slot's generation separates a counter that was begun
anew from one that went on. `Sampler` follows the switch of one state folder through its ends and new beginnings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.node.folder import folder_in_use
from tailrace.node.record import Process, State, check_ours, peek
from tailrace.observe.page import Page, Slot
from tailrace.process.process import ProcessId
from tailrace.switch.control import Control
from tailrace.switch.fabric import SWITCH

Key = tuple[str, str, int]
"""Kind, name and generation of a slot."""


@dataclass(frozen=True)
class Snapshot:
    """All counters at one moment."""

    time: float
    """Of the monotonic clock, in seconds."""
    slots: dict[Key, dict[str, int]]
    facts: Facts

    def of(self, kind: str) -> dict[str, dict[str, int]]:
        """The counters of every slot of a kind, by name."""
        return {key[1]: counters for key, counters in self.slots.items() if key[0] == kind}


@dataclass(frozen=True)
class Facts:
    """What does not stand on the page: asked of the switch and of the record now and then."""

    chains: dict[str, list[str]] = field(default_factory=dict)
    """Each chain's places: from, functions, to."""
    ports: dict[str, str] = field(default_factory=dict)
    """Each port's state."""
    workers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """core, idle policy, tsc_hz of each."""
    version: int | None = None
    spec: str = ""
    crowded: dict[str, int] | None = None
    """Of each function whose flows are known: how many found no slot in their table. None where the switch could not
    be asked."""
    functions: dict[str, Planned] = field(default_factory=dict)
    """Each function of the plan."""
    restarts: dict[str, int] = field(default_factory=dict)
    """How often a function, or a replica, that had ended by itself was started again."""


@dataclass(frozen=True)
class Planned:
    """A function, over its replicas."""

    what: str
    """What it does, or what it starts from, and where it lives."""
    ports: tuple[str, ...]
    """As the plan names them."""


def rates(before: Snapshot, now: Snapshot) -> dict[Key, dict[str, float]]:
    """Each counter's growth for each second; a slot that was not there before has grown from nothing."""
    seconds = max(now.time - before.time, 1e-9)
    found = {}
    for key, counters in now.slots.items():
        old = before.slots.get(key, {})
        found[key] = {name: max(value - old.get(name, 0), 0) / seconds for name, value in counters.items()}
    return found


class Sampler:
    """Takes snapshots of the switch of a state folder, for as long as there is one."""

    def __init__(self, folder: Path, facts_every: float = 2.0) -> None:
        self._folder = folder
        self._facts_every = facts_every
        self._page: Page | None = None
        self._process: ProcessId | None = None
        self._facts = Facts()
        self._asked = float("-inf")

    @property
    def folder(self) -> Path:
        return folder_in_use(self._folder)

    def snapshot(
        self, wanted: Callable[[str, str], bool] = lambda _kind, _name: True, *, sparse: bool = False
    ) -> Snapshot | None:
        """The counters now, of slots whose kind and name are wanted; `sparse`: without those that are 0. None while no
        switch is up. Raises Mistake if the one that is up is another user's."""
        if self._process is None or not self._process.alive():
            self.close()
            if not self._open():
                return None
        if time.monotonic() - self._asked > self._facts_every:
            self._facts = self._ask()
            self._asked = time.monotonic()
        page = self._page
        if page is None:
            return None
        slots = page.slots(wanted, sparse=sparse)
        return Snapshot(time.monotonic(), {_key(slot): slot.counters for slot in slots}, self._facts)

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
        self._page, self._process, self._asked = None, None, float("-inf")

    def _open(self) -> bool:
        process = self._switch()
        if process is None or not process.id.alive():
            return False
        check_ours(self.folder)
        try:
            self._page = Page(State(self.folder, peek(self.folder)).page)
        except Failure:
            return False
        self._process = process.id
        return True

    def _switch(self) -> Process | None:
        if not (self.folder / "state.json").exists():
            return None
        try:
            record = peek(self.folder)
        except Failure:
            return None
        state = State(self.folder, record)
        return next((process for process in state.processes() if process.name == SWITCH), None)

    def _ask(self) -> Facts:
        """What the record and the switch say; what cannot be asked stays unknown."""
        try:
            record = peek(self.folder)
        except Failure:
            return self._facts
        chains = {
            chain["name"]: [chain["start"], *chain["through"], chain["end"]]
            for chain in record.plan.get("chains", [])
            if "start" in chain
        }
        ports: dict[str, str] = {}
        workers: dict[str, dict[str, Any]] = {}
        crowded: dict[str, int] | None = None
        version = None
        try:
            control = Control(State(self.folder, record).control, timeout=1.0)
            try:
                ports = {port["name"]: port["state"] for port in control.call("port.list")}
                workers = {worker["name"]: worker for worker in control.call("worker.list")}
                version = control.call("config.get")["version"]
                functions = control.call("function.list", flows=False)
                crowded = {each["name"]: each["crowded"] for each in functions if "crowded" in each}
            finally:
                control.close()
        except (Failure, KeyError):
            pass
        return Facts(
            chains, ports, workers, version, record.spec, crowded, _planned(record.plan), dict(record.restarts)
        )


def _planned(plan: dict[str, Any]) -> dict[str, Planned]:
    found: dict[str, Planned] = {}
    for each in plan.get("functions", []):
        name = each["function"]
        ports = (*found[name].ports, *each["ports"]) if name in found else tuple(each["ports"])
        found[name] = Planned(f"{each['kind'] or each.get('image') or 'guest'} · {each['runs']}", ports)
    return found


def _key(slot: Slot) -> Key:
    return slot.kind, slot.name, slot.generation
