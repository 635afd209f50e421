"""What a knob is: one declaration from which it is read, set, checked, undone and documented."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from tailrace.errors import Mistake
from tailrace.host.machine import Machine
from tailrace.host.setting import Form, Setting
from tailrace.resources.roles import Roles

When = Literal["boot", "run"]
Value = bool | int | str


@dataclass(frozen=True)
class Context:
    """What a knob's settings depend on."""

    machine: Machine
    roles: Roles
    knobs: Mapping[str, Any] = field(default_factory=dict)
    """The values of all knobs that are set together."""

    def system_near(self, node: int | None) -> tuple[int, ...]:
        """The system's CPUs on the nearest node that has some; all of them for a device that names no node."""
        nodes = {cpu.number: cpu.node for cpu in self.machine.cpus}
        system = self.roles.system
        near = self.machine.nearest(node, {nodes[cpu] for cpu in system})
        return tuple(cpu for cpu in system if near is None or nodes[cpu] == near)


@dataclass(frozen=True)
class Knob:
    """One thing that can be tuned."""

    name: str
    what: str
    """What it does, in one line."""
    why: str
    """What it is good for."""
    cost: str
    """What it costs: power, memory, cores, safety; `nothing` if nothing."""
    source: str
    """Who documents it, or sets it."""
    when: When
    takes: str
    """The values that it takes, in words."""
    settings: Callable[[Context, Any], Iterable[Setting]]
    """The places that it sets on a machine; none where the machine does not have it."""
    known: Callable[[Any], bool] = lambda value: isinstance(value, bool)
    """Whether a value is one of those it takes."""
    needs: str = "any Linux"
    """What a machine must have for it to set anything."""
    kernels: str = "any"
    """The versions of Linux that it holds for, where an older or a newer one knows it not, or otherwise."""
    mib: int = 0
    """Memory that each one of its value takes, where it costs memory."""

    @property
    def verified(self) -> str:
        """How it is checked."""
        return "read from /proc/cmdline after the reboot" if self.when == "boot" else "read back from the same place"


class Family:
    """Knobs that belong together."""

    name: ClassVar[str]
    title: ClassVar[str]
    text: ClassVar[str]
    """What they have in common."""
    knobs: ClassVar[Sequence[Knob]]


def file_setting(
    context: Context, path: str, wanted: object, form: Form = Form.TEXT, *, optional: bool = False
) -> list[Setting]:
    """The setting of one file, or none where the machine does not have it."""
    if not context.machine.tree.exists(path):
        return []
    return [Setting(f"file:{path}", str(wanted), form, optional)]


def is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def one_of(*words: str) -> Callable[[Any], bool]:
    """Values that are one of these words."""
    return lambda value: value in words


def is_number_by_node(value: Any) -> bool:
    """Whether it is a number, or a mapping of nodes and numbers."""
    numbers = [*value, *value.values()] if isinstance(value, dict) else [value]
    return bool(numbers) and all(is_number(number) and number >= 0 for number in numbers)


def huge_pages_by_node(context: Context, name: str, value: Any, mib: int) -> dict[int, int]:
    """How many pages of so many MiB a knob wants on which node; of one number, on that of the switch and the functions,
    or the nearest one that has memory.

    Raises Mistake for a node that is not there, or has less memory: with all of it in huge pages no kernel starts.
    """
    machine = context.machine
    memory = {node.number: node.memory_mib for node in machine.nodes}
    able = [node for node, there_is in memory.items() if there_is] or list(memory)  # a copy may tell of none
    near = machine.nearest(context.roles.node, able)
    pages = dict(sorted(value.items())) if isinstance(value, dict) else {near or 0: value}
    for node, count in pages.items():
        if node not in memory or (count and node not in able):
            there = ", ".join(map(str, able)) or "none known"
            what = "no memory on node" if node in memory else "no node"
            raise Mistake(f"knobs.{name}: there is {what} {node}; this machine has {there}")
        there_is = memory[node]
        if there_is and count * mib >= there_is:
            raise Mistake(
                f"knobs.{name}: {count} pages of {mib} MiB leave nothing of the {there_is} MiB of node {node}; "
                "take fewer, in a profile of your own"
            )
    return pages
