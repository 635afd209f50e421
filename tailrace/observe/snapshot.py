"""The counter page over time: snapshots, and rates between two of them. Reading it costs the switch nothing.

A snapshot is what all slots held within some microseconds; the slot's generation separates a counter that was begun
anew from one that went on. `Sampler` follows the switch of one state folder through its ends and new beginnings.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.observe.page import OtherLayout, Page, Slot, Table
from tailrace.plan.planned import cpus_of
from tailrace.process.control import Control
from tailrace.state.folder import folder_in_use
from tailrace.state.record import Process, State, check_ours, peek
from tailrace.switch.config import SWITCH

_VERSION_EVERY = 5.0
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
    cpus: dict[str, list[int]] = field(default_factory=dict)
    """The CPU of each thread of a function that can have more and fewer."""
    restarts: dict[str, int] = field(default_factory=dict)
    """How often a function, or a replica, that had ended by itself was started again."""
    outages: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of a function: how often it was out, by what its chains did (bypass, block, drop), and the frames `lost`."""


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
        self._process: int | None = None
        """A pidfd: whether it lives is asked ten times a second."""
        self._facts = Facts()
        self._asked = float("-inf")
        self._record: tuple[tuple[Path, int, int], State, Facts] | None = None
        """As it was last read, and which one that was."""
        self._version: tuple[list[int] | None, float, int] = (None, 0.0, 0)
        """The workers' programs when the configuration's version was asked for, when that was, and the version."""

    @property
    def folder(self) -> Path:
        return folder_in_use(self._folder)

    def at_hand(self) -> bool:
        """Whether a snapshot needs nobody's answer now: it is read from memory."""
        return self._page is not None and time.monotonic() - self._asked <= self._facts_every

    def snapshot(self, *kinds: str) -> Snapshot | None:
        """The counters now, of slots of these kinds; without any, of all. None while no switch is up. Raises Mistake if
        the one that is up is another user's, OtherLayout if it is of another version."""
        page = self._look()
        if page is None:
            return None
        slots = page.slots(*kinds)
        return Snapshot(time.monotonic(), {_key(slot): slot.counters for slot in slots}, self._facts)

    def tables(self, *kinds: str, live: bool = False) -> list[Table]:
        """The same, just after a snapshot, field by field; nothing while no switch is up. `live`: of those whose slots
        are still the same only what is asked for is read, until the next snapshot."""
        page = self._page
        return [] if page is None else [(live and page.live(kind)) or page.table(kind) for kind in kinds]

    def counters(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """All counters of the slots of these names, or whose names begin so (`PORT` of `PORT/0`), as they are now, just
        after a snapshot; nothing while no switch is up."""
        if self._page is None:
            return {}
        table = self._page.live(kind) or self._page.table(kind)
        return {
            slot: {counter: column[row] for counter, column in table.columns.items()}
            for row, (slot, _) in enumerate(table.slots)
            if slot in names or slot.rpartition("/")[0] in names
        }

    def _look(self) -> Page | None:
        """The page of the switch that is up."""
        if self._process is None or _ended(self._process):
            self.close()
            if not self._open():
                return None
        if time.monotonic() - self._asked > self._facts_every:
            self._facts = self._ask()
            self._asked = time.monotonic()
        return self._page

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
        if self._process is not None:
            os.close(self._process)
        self._page, self._process, self._asked = None, None, float("-inf")
        self._version = (None, 0.0, 0)

    def _open(self) -> bool:
        process = self._switch()
        if process is None or not process.id.alive():
            return False
        check_ours(self.folder)
        try:
            self._page = Page(State(self.folder, peek(self.folder)).page)
        except OtherLayout:
            raise
        except Failure:
            return False
        try:
            self._process = os.pidfd_open(process.id.pid)
        except OSError:
            return False
        if not process.id.alive():  # its number may be another's by now
            self.close()
            return False
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
            state, known = self._recorded()
        except (Failure, OSError):
            return self._facts
        ports: dict[str, str] = {}
        workers: dict[str, dict[str, Any]] = {}
        crowded: dict[str, int] | None = None
        version = None
        try:
            control = Control(state.control, timeout=1.0)
            try:
                ports = {port["name"]: port["state"] for port in control.call("port.list")}
                workers = {worker["name"]: worker for worker in control.call("worker.list")}
                version = self._version_of(control, [worker["program"] for worker in workers.values()])
                functions = control.call("function.list", flows=False)
                crowded = {each["name"]: each["crowded"] for each in functions if "crowded" in each}
            finally:
                control.close()
        except (Failure, KeyError):
            self._version = (None, 0.0, 0)
        return replace(known, ports=ports, workers=workers, version=version, crowded=crowded)

    def _version_of(self, control: Control, programs: list[int]) -> int:
        """The configuration's version. With it comes the whole configuration, so it is asked for again only where
        workers have other programs, or after some seconds. Raises Failure, KeyError."""
        known, asked, version = self._version
        now = time.monotonic()
        if programs != known or now - asked > _VERSION_EVERY:
            version = control.call("config.get")["version"]
            self._version = programs, now, version
        return version

    def _recorded(self) -> tuple[State, Facts]:
        """What the record says, read again only when it was written anew: with a thousand chains that takes a while.
        Raises Failure, OSError."""
        path = self.folder / "state.json"
        stat = path.stat()
        written = path, stat.st_ino, stat.st_mtime_ns
        if self._record is None or self._record[0] != written:
            record = peek(self.folder)
            chains = {
                chain["name"]: [chain["start"], *chain["through"], chain["end"]]
                for chain in record.plan.get("chains", [])
                if "start" in chain
            }
            facts = Facts(
                chains,
                spec=record.spec,
                functions=_planned(record.plan),
                cpus=cpus_of(record.plan),
                restarts=dict(record.restarts),
                outages={name: each.counts for name, each in record.outages.items()},
            )
            self._record = written, State(self.folder, record), facts
        return self._record[1:]


def _planned(plan: dict[str, Any]) -> dict[str, Planned]:
    found: dict[str, Planned] = {}
    for each in plan.get("functions", []):
        name = each["function"]
        ports = (*found[name].ports, *each["ports"]) if name in found else tuple(each["ports"])
        found[name] = Planned(f"{each['kind'] or each.get('image') or 'guest'} · {each['runs']}", ports)
    return found


def _ended(handle: int) -> bool:
    """Whether the process of a pidfd has (pidfd_open(2))."""
    looking = select.poll()
    looking.register(handle, select.POLLIN)
    return bool(looking.poll(0))


def _key(slot: Slot) -> Key:
    return slot.kind, slot.name, slot.generation
