"""The machine's topology as a picture: sockets, nodes, cores with their roles, caches and network cards."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tailrace.host.machine import Machine, Node
from tailrace.host.roles import ROLES, Roles

COLOURS = {"system": "#9aa5b1", "switch": "#d9822b", "vnf": "#2f7dc1", "tester": "#3f9d63"}
_CELL, _GAP, _PAD = 54, 8, 16
_ACROSS = 16
"""Cores in one row."""


def draw(machine: Machine, roles: Roles) -> str:
    """An SVG document."""
    parts: list[str] = []
    y = 64
    width = 2 * _PAD + _ACROSS * (_CELL + _GAP)
    for node in machine.nodes:
        height = _node(parts, machine, node, roles, y, width - 2 * _PAD)
        y += height + _PAD
    legend = "".join(
        f'<rect x="{_PAD + 130 * number}" y="{y}" width="14" height="14" rx="3" fill="{COLOURS[role]}"/>'
        f'<text x="{_PAD + 130 * number + 20}" y="{y + 12}">{role}</text>'
        for number, role in enumerate(ROLES)
    )
    title = f"{machine.model}, {len(machine.online)} CPUs"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y + 32}" viewBox="0 0 {width} {y + 32}" '
        'font-family="system-ui, sans-serif" font-size="13" fill="#1f2933">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text x="{_PAD}" y="28" font-size="17" font-weight="600">{escape(title)}</text>'
        f'<text x="{_PAD}" y="48" fill="#616e7c">Kernel {escape(machine.kernel.release)}; '
        f"{escape(roles.because)}</text>{''.join(parts)}{legend}</svg>\n"
    )


def _node(parts: list[str], machine: Machine, node: Node, roles: Roles, top: int, width: int) -> int:
    """Adds one node's box; returns its height."""
    cores: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        if cpu.node == node.number:
            cores.setdefault(cpu.core, []).append(cpu.number)
    rows = -(-len(cores) // _ACROSS)
    siblings = max((len(threads) for threads in cores.values()), default=1)
    cell = 22 * siblings + 10
    cards = [nic for nic in machine.nics if (nic.node or 0) == node.number]
    notes = [f"{nic.name} {nic.address}{f', {nic.most_vfs} VFs' if nic.most_vfs else ''}" for nic in cards]
    last = max((cache.level for cache in machine.caches), default=0)
    shared = [cache for cache in machine.caches if cache.level == last and set(cache.cpus) & set(node.cpus)]
    if shared:
        notes.insert(0, f"L{last}: {len(shared)} × {shared[0].kib // 1024} MiB")
    height = 34 + rows * (cell + _GAP) + 20 * len(notes) + _GAP
    parts.append(
        f'<rect x="{_PAD}" y="{top}" width="{width}" height="{height}" rx="8" fill="#f5f7fa" stroke="#cbd2d9"/>'
        f'<text x="{_PAD + 12}" y="{top + 22}" font-weight="600">node {node.number}</text>'
        f'<text x="{_PAD + 80}" y="{top + 22}" fill="#616e7c">{node.memory_mib} MiB</text>'
    )
    for number, core in enumerate(sorted(cores)):
        x = _PAD + 12 + number % _ACROSS * (_CELL + _GAP - 1)
        y = top + 34 + number // _ACROSS * (cell + _GAP)
        parts.append(f'<rect x="{x}" y="{y}" width="{_CELL}" height="{cell}" rx="5" fill="#ffffff" stroke="#cbd2d9"/>')
        for place, thread in enumerate(cores[core]):
            role = roles.role(thread)
            fill = COLOURS[role] if machine.cpu(thread).online else "#e4e7eb"
            parts.append(
                f'<rect x="{x + 5}" y="{y + 5 + 22 * place}" width="{_CELL - 10}" height="20" rx="3" fill="{fill}">'
                f"<title>CPU {thread}: {role}</title></rect>"
                f'<text x="{x + _CELL / 2}" y="{y + 19 + 22 * place}" text-anchor="middle" '
                f'fill="#ffffff">{thread}</text>'
            )
    for number, note in enumerate(notes):
        parts.append(
            f'<text x="{_PAD + 12}" y="{top + height - 8 - 20 * (len(notes) - 1 - number)}">{escape(note)}</text>'
        )
    return height


def write_picture(path: Path, machine: Machine, roles: Roles) -> None:
    """Writes the picture to a file. Raises OSError."""
    path.write_text(draw(machine, roles))
