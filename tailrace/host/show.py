"""The machine, a plan and a check for a terminal, and the same as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branches

from tailrace.host.capabilities import Found
from tailrace.host.capabilities.base import in_this_tree
from tailrace.host.command_line import show_line
from tailrace.host.machine import DISTURBERS, Machine
from tailrace.host.setting import Form, Setting, meaning, plain
from tailrace.host.show_cards import card_document, card_lines
from tailrace.host.tuner import Checked, Outcome, State
from tailrace.host.tuning import Step, TuningPlan
from tailrace.kernel.cpus import show_list
from tailrace.resources.cards import Card
from tailrace.resources.roles import Roles, show_roles
from tailrace.resources.topology import CPUS, Nic, Node

_PLACES = 3
"""So many alike are named one by one."""
#: What asks for something first.
_STYLES = {
    State.DRIFTED: "red",
    State.GONE: "red",
    State.WRONG: "yellow",
    State.REBOOT: "yellow",
    State.REFUSED: "dim",
    State.RIGHT: "green",
}


def machine_document(machine: Machine, found: Sequence[Found], cards: Sequence[Card] = ()) -> dict[str, Any]:
    """Everything that inspecting found."""
    kernel = asdict(machine.kernel)
    kernel.pop("config")
    of_nic = {card.address: card for card in cards}
    return {
        "architecture": machine.architecture,
        "vendor": machine.vendor,
        "model": machine.model,
        "cpus": [{**asdict(cpu), "core": cpu.core} for cpu in machine.cpus],
        "nodes": [asdict(node) for node in machine.nodes],
        "caches": [asdict(cache) for cache in machine.caches],
        "nics": [{**asdict(nic), **card_document(of_nic.get(nic.address))} for nic in machine.nics],
        "accelerators": [asdict(each) for each in machine.accelerators],
        "clock": asdict(machine.clock),
        "power": asdict(machine.power),
        "kernel": kernel,
        "disturbers": {name: DISTURBERS[name] for name in machine.disturbers},
        "capabilities": [
            {
                "name": each.capability.name,
                "title": each.capability.title,
                "why": each.capability.why,
                "present": each.finding.present,
                "enabled": each.finding.enabled,
                "how": each.capability.how,
                "evidence": each.finding.evidence,
            }
            for each in found
        ],
    }


def machine_tree(machine: Machine, found: Sequence[Found], cards: Sequence[Card] = ()) -> Branches:
    """Topology, kernel and capabilities as a tree."""
    of_nic = {card.address: card for card in cards}
    top = Branches(Text(f"{machine.model}: {machine.parts}", style="bold"))
    for node in machine.nodes:
        huge = ", ".join(f"{pool.free} of {pool.total} × {size_words(pool.kib)}" for pool in node.huge)
        branch = top.add(f"node {node.number}: {_cpus(node)}, {_memory(node)}, huge pages free: {huge or 'none'}")
        if len(machine.nodes) > 1 and node.distances:
            branch.add(f"distances {' '.join(map(str, node.distances))}")
        branch.add(_cores(machine, node.number))
        for line in _caches(machine, node.cpus):
            branch.add(line)
        for nic in machine.nics:
            if machine.home(nic.node) == node.number:
                vfs = f", virtual functions {nic.vfs} of {nic.most_vfs}" if nic.most_vfs else ""
                speed = f", {nic.mbps / 1000:g} Gbit/s" if nic.mbps else ""
                queues = f", {nic.queues} queue{'' if nic.queues == 1 else 's'}" if nic.queues else ""
                leaf = branch.add(f"{nic_words(nic)} ({nic.driver}{speed}{queues}{vfs})")
                for line in card_lines(of_nic.get(nic.address)):
                    leaf.add(Text(line, style="dim"))
        for device in machine.accelerators:
            if machine.home(device.node) == node.number:
                branch.add(f"{device.name} at {device.address}")
    offline = show_list(cpu.number for cpu in machine.cpus if not cpu.online)
    if offline:
        top.add(f"offline: CPUs {offline}")
    clock = machine.clock
    others = f" of {', '.join(clock.sources)}" if clock.sources else ""
    counter = f"; TSC {_hertz(clock.tsc_khz)}" if machine.architecture == "x86_64" else ""
    top.add(f"clock {clock.source}{others}{counter}")
    for line in _power(machine):
        top.add(line)
    kernel = top.add(f"kernel {machine.kernel.release}{', real-time' if machine.kernel.realtime else ''}")
    if machine.kernel.version:
        kernel.add(Text(machine.kernel.version, style="dim"))
    if in_this_tree(machine, "/proc/cmdline"):
        given = machine.kernel.line
        init = f"; to the first process: {given.init}" if given.init else ""
        kernel.add(Text(f"{show_line(given.arguments) or 'no arguments'}{init}", style="dim"))
    for name in machine.disturbers:
        kernel.add(Text(f"{name} runs: {DISTURBERS[name]}", style="yellow"))
    able = top.add("capabilities")
    for each in found:
        able.add(_capability(each))
    return top


def nic_words(nic: Nic) -> str:
    """A card by its interface and address, or by its address alone."""
    return f"{nic.name} at {nic.address}" if nic.interface else f"network card at {nic.address}"


def _capability(found: Found) -> Table:
    finding, capability = found.finding, found.capability
    if finding.present:
        word, style = ("on", "green") if finding.enabled else ("off" if finding.enabled is False else "there", "yellow")
    else:
        word, style = "none" if finding.present is False else "unknown", "dim"
    text = Text.assemble((capability.title, "bold"), f": {capability.why}")
    if word in ("off", "there"):
        text.append(f"\nto enable: {capability.how}")
    text.append(f"\n{finding.evidence}", style="dim")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(min_width=7)
    grid.add_column()
    grid.add_row(Text(word, style=style), text)
    return grid


def _cpus(node: Node) -> str:
    return f"CPUs {show_list(node.cpus)}" if node.cpus else "no CPU"


def _memory(node: Node) -> str:
    return f"{node.memory_mib} MiB" if node.memory_mib else "no memory"


def _cores(machine: Machine, node: int) -> str:
    """How many cores and sockets a node has, and which CPUs share a core."""
    cpus = [cpu for cpu in machine.cpus if cpu.online and cpu.node == node]
    cores = sorted({cpu.siblings for cpu in cpus})
    sockets = show_list({cpu.package for cpu in cpus})
    said = f"{len(cores)} core{'' if len(cores) == 1 else 's'}, socket {sockets}" if cores else "no core"
    slow = [cpu.number for cpu in cpus if cpu.number in machine.slow]
    if slow:
        said += f"; of a slower kind: CPUs {show_list(slow)}"
    shared = ["+".join(map(str, core)) for core in cores if len(core) > 1]
    if not shared:
        return f"{said}; one CPU each" if cores else said
    return f"{said}; CPUs of one core: {', '.join(shared if len(shared) <= 4 else [*shared[:2], '...', shared[-1]])}"


def _caches(machine: Machine, cpus: Sequence[int]) -> list[str]:
    """Each kind of cache of the node once: how many, how large, shared by how many CPUs."""
    kinds = Counter(
        (cache.level, cache.kind, cache.kib, len(cache.cpus)) for cache in machine.caches if set(cache.cpus) & set(cpus)
    )
    return [
        f"L{level} {kind.lower()}: {count} × {size_words(kib)}, {shared} CPU{'s' if shared > 1 else ''} each"
        for (level, kind, kib, shared), count in sorted(kinds.items())
    ]


def _power(machine: Machine) -> list[str]:
    power = machine.power
    frequency, idle = (
        f"no {what} driver" if in_this_tree(machine, f"{CPUS}/cpu{folder}") else f"{what} driver unknown"
        for what, folder in (("frequency", "freq"), ("idle", "idle"))
    )
    if power.frequency:
        frequency = f"frequency by {power.frequency}, governor {power.governor}"
    if power.idle:
        idle = f"idle states by {power.idle}{': ' if power.states else ''}{', '.join(power.states)}"
    return [f"{frequency}; {idle}"]


def _hertz(khz: int | None) -> str:
    return f"{khz / 1e6:.3f} GHz" if khz else "of unknown rate"


def size_words(kib: int) -> str:
    """A size in the largest unit that it is a whole number of."""
    if kib % (1 << 20) == 0:
        return f"{kib >> 20} GiB"
    return f"{kib >> 10} MiB" if kib % 1024 == 0 else f"{kib} KiB"


def roles_document(roles: Roles) -> dict[str, Any]:
    return {
        "node": roles.node,
        "because": roles.because,
        "system": roles.share,
        "cpus": {role: show_list(cpus) for role, cpus in roles.cpus.items()},
    }


def plan_document(plan: TuningPlan) -> dict[str, Any]:
    """The plan as data: the same facts give the same document."""
    return {
        "profile": plan.profile.name,
        "inherits": list(plan.profile.line),
        "about": plan.profile.about,
        "roles": roles_document(plan.roles),
        "knobs": [
            {
                "knob": tuned.knob.name,
                "family": tuned.family.name,
                "value": tuned.value,
                "what": tuned.knob.what,
                "why": tuned.knob.why,
                "when": tuned.knob.when,
                "here": bool(tuned.steps),
                "places": [
                    {
                        "place": step.setting.place,
                        "now": step.now,
                        "wanted": step.setting.wanted,
                        "done": step.done,
                    }
                    for step in tuned.steps
                ],
            }
            for tuned in plan.tuned
        ],
        "arguments": [f"{name}={value}" if value else name for name, value in plan.arguments()],
        "missing": plan.missing(),
        "warnings": list(plan.warnings),
        "costs": plan.costs(),
    }


def plan_lines(plan: TuningPlan) -> list[str]:
    """The roles of the cores, in words."""
    return [
        f"Profile {plan.profile.name}: {plan.profile.about}.",
        f"Node {plan.roles.node}: {plan.roles.because}.",
        f"The system has {plan.roles.share}.",
        *(f"  {line}" for line in show_roles(plan.roles)),
    ]


def plan_table(plan: TuningPlan) -> Table:
    """One row a knob: what it is now, what is wanted, why, and whether it needs a reboot."""
    table = _two_columns("knob", "now → wanted, and why")
    table.add_column("", no_wrap=True)
    for tuned in plan.tuned:
        if not tuned.steps:
            table.add_row(tuned.knob.name, f"needs {tuned.knob.needs}", "not here", style="dim")
            continue
        waits = "reboot" if tuned.knob.when == "boot" else ""
        done = all(step.done for step in tuned.steps)
        now = _several([_shown(step.setting, step.now) for step in tuned.steps])
        wanted = _several([_shown(step.setting, step.setting.wanted) for step in tuned.steps])
        table.add_row(
            Text(tuned.knob.name),
            Text.assemble(now if done else f"{now} → {wanted}", "\n", (tuned.knob.why, "dim")),
            Text("done", style="green") if done else waits,
        )
    return table


def _two_columns(first: str, second: str) -> Table:
    """A table whose second column takes what room there is, and loses nothing where that is little."""
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first, no_wrap=True)
    table.add_column(second, overflow="fold")
    return table


def _shown(setting: Setting, text: str | None) -> str:
    """A value for people: the word that is chosen, CPUs as a list."""
    if text is None:
        return "none"
    if setting.form is Form.CPU_MASK:
        value = meaning(setting.form, text)
        return show_list(value) if isinstance(value, tuple) else text
    return plain(setting.form, text) or {"argument": "set", "tasks": "all"}.get(setting.scheme, "none")


def _several(values: Sequence[str]) -> str:
    """One value, or how many there are of it; of many different ones the most frequent."""
    counts = Counter(values)
    named = counts.items() if len(counts) <= _PLACES else counts.most_common(_PLACES - 1)
    words = [f"{value} ({count}×)" if count > 1 else value for value, count in named]
    rest = len(counts) - len(words)
    return ", ".join([*words, f"and {rest} other values, which --json lists"] if rest else words)


def check_table(found: Sequence[Checked]) -> Table:
    """One row for places of a knob that are alike; what is right is counted and not listed."""
    groups: dict[tuple[State, str, str, str, str | None], list[str]] = {}
    for each in found:
        if each.state is not State.RIGHT:
            step = each.step
            now, wanted = (_shown(step.setting, text) for text in (step.now, step.setting.wanted))
            groups.setdefault((each.state, step.knob.name, wanted, now, each.by), []).append(step.setting.target)
    table = _two_columns("", "knob, and where")
    urgent = list(_STYLES)
    for (state, knob, wanted, now, by), targets in sorted(groups.items(), key=lambda each: urgent.index(each[0][0])):
        whom = f", by {by}" if by else ""
        where = " ".join(targets[:_PLACES])
        more = f" and {len(targets) - _PLACES} more, which --json lists" if len(targets) > _PLACES else ""
        said = Text.assemble((knob, "bold"), f": wanted {wanted}, found {now}{whom}", (f"\n{where}{more}", "dim"))
        table.add_row(Text(state.value, style=_STYLES[state]), said)
    return table


def refused_lines(outcome: Outcome) -> list[str]:
    """What the kernel did not take when it was applied: one line for places of a knob that are alike."""
    groups = Counter((step.knob.name, _shown(step.setting, step.setting.wanted), why) for step, why in outcome.refused)
    return [
        f"Cannot be set here: {knob} to {wanted}{f', {count} places' if count > 1 else ''}: {why}."
        for (knob, wanted, why), count in groups.items()
    ]


def check_document(found: Sequence[Checked]) -> dict[str, Any]:
    counts = Counter(each.state.value for each in found)
    return {
        "drifted": any(each.state is State.DRIFTED for each in found),
        "lost": any(each.state.lost for each in found),
        "counts": {state.value: counts[state.value] for state in State},
        "places": [{**_place(each.step), "state": each.state.value, "by": each.by} for each in found],
    }


def _place(step: Step) -> dict[str, Any]:
    return {
        "knob": step.knob.name,
        "place": step.setting.place,
        "wanted": step.setting.wanted,
        "now": step.now,
    }
