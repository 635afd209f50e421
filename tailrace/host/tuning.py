"""From a profile and a machine to what would be changed: a plan is data, and making one changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.host.boot import BootLoader
from tailrace.host.command_line import PARAMETERS
from tailrace.host.journal import Applied
from tailrace.host.knobs import FAMILIES, Context, Family, Knob
from tailrace.host.knobs.cores import second_threads
from tailrace.host.machine import Machine
from tailrace.host.profile import Profile
from tailrace.host.setting import Setting
from tailrace.host.task_cpus import displaced
from tailrace.host.values import Values
from tailrace.kernel.cpus import parse_list, show_list
from tailrace.process.systemd import OWN
from tailrace.resources.hugepages import POOL
from tailrace.resources.roles import ROLES, Roles, deal_roles, nodes_with_cpus

MOST_QUEUES_PER_CPU = 100
"""Half of the interrupts that an x86 CPU can take: other devices have some, and cards more than one a queue."""


SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")
_PAGES = re.compile(r"^\s*-?\s*vm[./](nr_(?:overcommit_)?hugepages(?:_mempolicy)?)\s*=\s*(\d+)", re.MULTILINE)
_NAMED = 3
"""So many processes are named one by one."""


@dataclass(frozen=True)
class Step:
    """One place, with what stands there and what is wanted."""

    knob: Knob
    setting: Setting
    now: str | None

    @property
    def done(self) -> bool:
        return self.setting.satisfied(self.now)

    @property
    def reboot(self) -> bool:
        """Whether it takes effect at the next boot only."""
        return self.knob.when == "boot"


@dataclass(frozen=True)
class Tuned:
    """A knob of the profile on this machine."""

    family: type[Family]
    knob: Knob
    value: Any
    steps: Sequence[Step]
    """None: the machine does not have it."""

    @property
    def mib(self) -> int:
        """The memory that it takes from everything else."""
        if not self.knob.mib or not self.steps:
            return 0
        return self.knob.mib * (sum(self.value.values()) if isinstance(self.value, dict) else int(self.value))


@dataclass(frozen=True)
class TuningPlan:
    """A profile on a machine."""

    profile: Profile
    roles: Roles
    tuned: Sequence[Tuned]
    asked: Applied
    """What it was made from."""
    warnings: Sequence[str] = ()
    """What the machine's shape makes worse than it could be, and what to do."""

    def steps(self, when: str | None = None) -> Iterator[Step]:
        """Every place, in order; those of `boot` or `run` knobs only if asked."""
        for tuned in self.tuned:
            for step in tuned.steps:
                if when is None or step.knob.when == when:
                    yield step

    def arguments(self) -> list[tuple[str, str]]:
        """The kernel arguments that are wanted, in order."""
        return [(step.setting.target, step.setting.wanted) for step in self.steps("boot")]

    def missing(self) -> dict[str, str]:
        """Knobs of the profile that can set nothing on this machine, each with what it needs."""
        return {tuned.knob.name: tuned.knob.needs for tuned in self.tuned if not tuned.steps}

    def costs(self) -> list[str]:
        """What the profile costs, each cost once, with the knobs that cost it."""
        by: dict[str, list[str]] = {}
        for tuned in self.tuned:
            if tuned.steps and tuned.knob.cost != "nothing":
                by.setdefault(tuned.knob.cost, []).append(tuned.knob.name)
        cpus = self.roles.isolated if by else ()  # a profile that sets nothing keeps nobody away from them
        lost = [f"CPUs {show_list(cpus)}, {len(cpus)} in all, serve only their role"] if cpus else []
        memory = sum(tuned.mib for tuned in self.tuned)
        kept = [f"{memory:,} MiB of memory are reserved as huge pages"] if memory else []
        return lost + kept + [f"{cost} ({', '.join(names)})" for cost, names in by.items()]


def make_tuning_plan(
    machine: Machine,
    profile: Profile,
    nic: str | None = None,
    *,
    roles_of: Profile | None = None,
    kept: Applied | None = None,
) -> TuningPlan:
    """What the profile wants of this machine, with its own roles or those of another profile. Of what was applied
    before (`kept`) the node stays, unless a card is named, and CPUs that were taken offline keep their roles.

    Raises Mistake if its roles need more cores than there are.
    """
    machine = machine.with_cores(kept.siblings) if kept else machine
    wanted = (roles_of or profile).roles
    node, system = (kept.node, kept.system) if kept else (None, None)
    roles = deal_roles(machine, wanted, nic, kept=node, kept_system=system)
    context, values = Context(machine, roles, profile.knobs), Values(machine.tree)
    tuned = []
    for family in FAMILIES:
        for knob in family.knobs:
            if knob.name not in profile.knobs:
                continue
            value = profile.knobs[knob.name]
            steps = [Step(knob, setting, values.read(setting)) for setting in knob.settings(context, value)]
            tuned.append(Tuned(family, knob, value, steps))
    parted = second_threads(context) if profile.knobs.get("siblings_offline") else []
    siblings = sorted({machine.cpu(cpu).siblings for cpu in parted})
    return TuningPlan(
        profile,
        roles,
        tuned,
        Applied(
            profile.reference, nic, roles_of.reference if roles_of else None, roles.node, siblings, roles.system_cores
        ),
        [
            *_warnings(machine, roles),
            *_default_page_size(machine, tuned),
            *_displaced(machine, tuned),
            *_spoilt_arguments(tuned, values.boot),
            *([] if kept else _foreign_arguments(tuned)),
        ],
    )


def _warnings(machine: Machine, roles: Roles) -> list[str]:
    far = [
        nic
        for nic in machine.nics
        if nic.node is not None
        and not nic.virtual_function
        and machine.nearest(nic.node, nodes_with_cpus(machine)) != roles.node
    ]
    return [
        f"{nic.name} is on node {nic.node}, the switch's cores are on node {roles.node}, so its frames cross nodes; "
        f"use another card, or the cores of its node with --nic {nic.name}"
        for nic in far
    ] + [*_busy_system(machine, roles), *_slow_cores(machine, roles)]


def _busy_system(machine: Machine, roles: Roles) -> list[str]:
    """More queues of network cards than the system's CPUs near them take well, by a share that somebody chose."""
    near, nodes = Context(machine, roles), {nic.node for nic in machine.nics}
    found = []
    for node in sorted(nodes, key=lambda node: -1 if node is None else node):
        cpus = near.system_near(node)
        cards = [nic for nic in machine.nics if nic.node == node]
        queues = sum(nic.queues for nic in cards)
        if queues > MOST_QUEUES_PER_CPU * len(cpus):
            found.append(
                f"{', '.join(nic.name for nic in cards)}: {queues} queues, each with an interrupt, for the system's "
                f"CPUs {show_list(cpus)}: give the system more cores (roles, system: auto), or the cards fewer queues "
                "(card_queues)"
            )
    return found


def _displaced(machine: Machine, tuned: Sequence[Tuned]) -> list[str]:
    """Processes that somebody has pinned to CPUs from which their group is to be kept."""
    steps = [step for each in tuned for step in each.steps if step.setting.scheme == "tasks" and not step.done]
    if not steps or not machine.tree.live:
        return []
    found = displaced(machine.tree, [step.setting.target for step in steps], set(parse_list(steps[0].setting.wanted)))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [
        f"{', '.join(found[:_NAMED])}{more} are pinned to isolated CPUs and would be moved off them: start them again "
        f"in {OWN} (`systemd-run --scope --slice={OWN}`), or leave user_tasks out"
    ] * bool(found)


def _slow_cores(machine: Machine, roles: Roles) -> list[str]:
    """Roles that poll, or run functions, on cores of a slower kind."""
    slow = {role: sorted(set(roles.cpus[role]) & set(machine.slow)) for role in ROLES[1:]}
    return [
        f"CPUs {show_list(cpus)} of {role} are on slower cores, so a function's speed depends "
        "on where it runs; give the role fewer cores: it gets fast ones first"
        for role, cpus in slow.items()
        if cpus
    ]


def _default_page_size(machine: Machine, tuned: Sequence[Tuned]) -> list[str]:
    """Numbers of huge pages of no named size, which a default size of 1 GiB would make a thousand times as large."""
    targets = {step.setting.target for each in tuned for step in each.steps if not step.done}
    if "default_hugepagesz" not in targets:
        return []
    after = (
        "pages of 1 GiB after a reboot with default_hugepagesz=1G, maybe more than there is memory: remove it "
        f"first, and reserve pages of 2 MiB by {POOL}/nr_hugepages or the knob huge_pages_2mib"
    )
    return [f"{where}, which means {after}" for where in (*_sysctls(machine), *_unsized(machine))]


def _sysctls(machine: Machine) -> Iterator[str]:
    """Where sysctl(8) is told a number at boot."""
    tree = machine.tree
    found = [f"{folder}/{name}" for folder in SYSCTL_FOLDERS for name in tree.names(folder) if name.endswith(".conf")]
    for path in ("/etc/sysctl.conf", *found):
        for name, count in _PAGES.findall(tree.text(path) or ""):
            if int(count):
                yield f"{path} sets vm.{name} to {count}"


def _unsized(machine: Machine) -> Iterator[str]:
    """A number on the kernel's command line before any size."""
    for argument in machine.kernel.line.arguments:
        if argument.key == "hugepagesz":
            return
        if argument.key == "hugepages" and argument.value != "0":
            yield f"{argument} is on the kernel's command line, without a size"


def _spoilt_arguments(tuned: Sequence[Tuned], boot: BootLoader) -> list[str]:
    """Who else gives the next boot a word on the same arguments, so that it is not what the profile says."""
    steps = [step for each in tuned for step in each.steps if step.setting.scheme == "argument"]
    pairs = [(step.setting.target, step.setting.wanted) for step in steps]
    return [*boot.losses(pairs), *boot.conflicts(pairs)]


def _foreign_arguments(tuned: Sequence[Tuned]) -> list[str]:
    """Kernel arguments of which the first one counts, and which somebody else has given the running kernel."""
    steps = [step for each in tuned for step in each.steps if step.setting.scheme == "argument" and not step.done]
    return [
        f"{step.setting.target}={step.now} is on the kernel's command line already, set by others, and the kernel "
        "keeps the first one: remove it where it was set (the boot loader, an operator's profile) before you reboot"
        for step in steps
        if step.now is not None and step.setting.target in PARAMETERS and PARAMETERS[step.setting.target].first
    ]
