"""The machine's topology as a picture: nodes and their sockets, cores with the roles of their CPUs, caches, devices."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path

from tailrace.host.machine import Machine
from tailrace.host.show import nic_words, size_words
from tailrace.kernel.cpus import show_list
from tailrace.resources.roles import ROLES, WORDS, Roles
from tailrace.resources.topology import Node

COLOURS = {"system": "#66717e", "switch": "#b35f12", "vnf": "#2a6fad", "tester": "#2e7b4b"}
"""Each dark enough for white letters (WCAG 2.1, 1.4.3: a contrast of 4.5)."""
_OFFLINE = "#e4e7eb"
_INK, _FAINT, _EDGE = "#1f2933", "#52606d", "#cbd2d9"
_FAINT_INK = f'fill="{_FAINT}"'
_CORE, _THREAD, _GAP, _PAD, _LINE = 54, 22, 7, 16, 20
_ACROSS = 16
"""Cores in one row."""
_LEAST = 528
"""The width of a node with few cores, for the words in it."""
_LETTER = 7
"""The width of a letter, about."""


def draw(machine: Machine, roles: Roles) -> str:
    """An SVG document, which shrinks with the window that shows it."""
    most = max((len(_cores(machine, node)) for node in machine.nodes), default=0)
    inner = max(_LEAST, min(most, _ACROSS) * (_CORE + _GAP) - _GAP + 2 * _PAD)
    parts = [
        _text(_PAD, 28, machine.model, inner, 'font-size="17" font-weight="600"'),
        _text(_PAD, 48, f"{machine.parts}; kernel {machine.kernel.release}", inner, _FAINT_INK),
    ]
    y = 64
    for node in machine.nodes:
        y += _node(parts, machine, node, roles, y, inner) + _PAD
    for role in (role for role in ROLES if roles.cpus[role]):
        words = f"{role}: {show_list(roles.cpus[role])} ({WORDS[role]})"
        parts.append(f'<rect x="{_PAD}" y="{y}" width="14" height="14" rx="3" fill="{COLOURS[role]}"/>')
        parts.append(_text(_PAD + 22, y + 12, words, inner - 22))
        y += _LINE + 2
    why = f"Cores that frames need are on node {roles.node}: {roles.because}."
    parts.append(_text(_PAD, y + 12, why, inner, _FAINT_INK))
    width, height = inner + 2 * _PAD, y + _LINE + _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="13" fill="{_INK}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _node(parts: list[str], machine: Machine, node: Node, roles: Roles, top: int, width: int) -> int:
    """Adds one node's box; returns its height."""
    cores = _cores(machine, node)
    rows = -(-len(cores) // _ACROSS)
    high = _THREAD * max((len(threads) for threads in cores.values()), default=1) + 8
    notes = _notes(machine, node)
    height = 34 + rows * (high + _GAP) + _LINE * len(notes) + 8
    sockets = show_list({cpu.package for cpu in machine.cpus if cpu.online and cpu.node == node.number})
    said = f"socket {sockets}, {_memory(node.memory_mib)}" if sockets else _memory(node.memory_mib)
    parts.append(
        f'<rect x="{_PAD}" y="{top}" width="{width}" height="{height}" rx="8" fill="#f5f7fa" stroke="{_EDGE}"/>'
        f'<text x="{2 * _PAD}" y="{top + 22}"><tspan font-weight="600">node {node.number}</tspan>'
        f'<tspan dx="12" fill="{_FAINT}">{escape(said)}</tspan></text>'
    )
    for number, core in enumerate(sorted(cores)):
        x = 2 * _PAD + number % _ACROSS * (_CORE + _GAP)
        y = top + 34 + number // _ACROSS * (high + _GAP)
        parts.append(f'<rect x="{x}" y="{y}" width="{_CORE}" height="{high}" rx="5" fill="#fff" stroke="{_EDGE}"/>')
        for place, thread in enumerate(cores[core]):
            parts.append(_thread(machine, roles, thread, x + 5, y + 5 + _THREAD * place))
    for number, note in enumerate(notes):
        parts.append(_text(2 * _PAD, top + height - 10 - _LINE * (len(notes) - 1 - number), note, width - 2 * _PAD))
    return height


def _cores(machine: Machine, node: Node) -> dict[int, list[int]]:
    """The logical CPUs of each core, also offline ones; of those every one is a core, because no more is known."""
    cores: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        if cpu.node == node.number:
            cores.setdefault(cpu.core, []).append(cpu.number)
    return cores


def _thread(machine: Machine, roles: Roles, cpu: int, x: int, y: int) -> str:
    role, online = roles.role(cpu), machine.cpu(cpu).online
    fill, ink = (COLOURS[role], "#fff") if online else (_OFFLINE, _FAINT)
    return (
        f'<rect x="{x}" y="{y}" width="{_CORE - 10}" height="{_THREAD - 2}" rx="3" fill="{fill}">'
        f"<title>CPU {cpu}: {role if online else 'offline'}</title></rect>"
        f'<text x="{x + (_CORE - 10) / 2:g}" y="{y + 15}" text-anchor="middle" fill="{ink}">{cpu}</text>'
    )


def _notes(machine: Machine, node: Node) -> list[str]:
    """What else the node has: its last-level caches, huge pages, network cards, accelerators."""
    notes = []
    last = max((cache.level for cache in machine.caches), default=0)
    shared = [cache for cache in machine.caches if cache.level == last and set(cache.cpus) & set(node.cpus)]
    sizes = Counter(size_words(cache.kib) for cache in shared)
    if sizes:
        notes.append(f"L{last} cache: {', '.join(f'{count} × {size}' for size, count in sizes.items())}")
    slow = set(machine.slow) & set(node.cpus)
    if slow:
        notes.append(f"of a slower kind: CPUs {show_list(slow)}")
    huge = [f"{pool.total} of {size_words(pool.kib)}" for pool in node.huge if pool.total]
    if huge:
        notes.append(f"huge pages: {', '.join(huge)}")
    for nic in machine.nics:
        if machine.home(nic.node) == node.number:
            functions = f", {nic.vfs} of {nic.most_vfs} virtual functions" if nic.most_vfs else ""
            notes.append(f"{nic_words(nic)} ({nic.driver}{functions})")
    notes += [
        f"{each.name} at {each.address}" for each in machine.accelerators if machine.home(each.node) == node.number
    ]
    return notes


def _memory(mib: int) -> str:
    if not mib:
        return "no memory"
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


def _text(x: int, y: int, text: str, room: int, more: str = "") -> str:
    """A line, cut off where the room ends."""
    letters = room // _LETTER
    cut = text if len(text) <= letters else f"{text[: letters - 1]}…"
    return f'<text x="{x}" y="{y}" {more}>{escape(cut)}</text>'


def write_picture(path: Path, machine: Machine, roles: Roles) -> None:
    """Writes the picture to a file. Raises OSError."""
    path.write_text(draw(machine, roles))
