"""What `measure interrupts` was asked for: kept as text, so that a run that is broken off can go on with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import yaml
from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Mistake
from tailrace.measure.beside import LOAD, Guest, Neighbour
from tailrace.measure.host.loads import LOADS
from tailrace.measure.host.plan import HostPlan, read_plan
from tailrace.measure.interrupts import Clock, Side, Way
from tailrace.spec.core_schema import read_version_1_1

COMMAND = "measure interrupts"


@dataclass(frozen=True)
class InterruptPlan:
    """All of it."""

    host: HostPlan
    sides: Sequence[Side]
    beside: Sequence[Neighbour]
    image: str
    """Of machines that name none."""
    causes: bool

    def text(self) -> str:
        """As YAML."""
        one = self.sides[0]
        asked = _Asked(
            one.period_ns,
            one.budget_ns,
            one.clock,
            self.image,
            self.causes,
            tuple(_Receiver(each.side, each.paths, each.guest) for each in self.sides),
            {each.name: each.guest for each in self.beside},
        )
        return self.host.text() + yaml.safe_dump({"interrupts": asdict(asked)}, sort_keys=False)


@dataclass(frozen=True)
class _Receiver:
    name: str
    paths: tuple[Way, ...]
    guest: Guest | None


@dataclass(frozen=True)
class _Asked:
    period_ns: int
    budget_ns: int | None
    clock: Clock
    image: str
    causes: bool
    receivers: tuple[_Receiver, ...]
    beside: dict[str, Guest]


def read_interrupt_plan(text: str, where: str) -> InterruptPlan:
    """As it was written. Raises Mistake, saying `where`, if it is none."""
    try:
        asked = TypeAdapter(_Asked).validate_python(read_version_1_1(text)["interrupts"])
    except (yaml.YAMLError, KeyError, TypeError, ValidationError):
        raise Mistake(f"{where}: not what `{COMMAND}` of this version was asked for; begin a new run") from None
    sides = [
        Side(each.name, asked.period_ns, each.guest, asked.budget_ns, asked.clock, each.paths)
        for each in asked.receivers
    ]
    tools = {tool.name: tool for side in sides for tool in side.tools()}
    host = read_plan(text, where, tools.__getitem__, (*LOADS, LOAD), COMMAND)
    return InterruptPlan(
        host, sides, [Neighbour(name, guest) for name, guest in asked.beside.items()], asked.image, asked.causes
    )
