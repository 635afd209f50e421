"""The limits of each chain by size of frame, as a picture: in the manner of the roofline model (Williams et al., 2009).

Each kind of interface is a line, the lowest of its limits, which are thin. Points are what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tailrace.advise.chain import FRAMES, INTERFACES, Answer, Chain, answers
from tailrace.advise.learn import Measured
from tailrace.advise.machine import Machine
from tailrace.report import svg

WIDTH, PANEL, TOP, BOTTOM, LEFT, RIGHT = 1060, 340, 56, 40, 64, 430
"""Of a panel, as small as it may be: what is beside its lines may need more."""
_LETTER = 7.2
"""How wide one is on average, with some room."""
SIZES = (64, 128, 256, 512, 1024, 1518)
STEPS = (*FRAMES[:: len(FRAMES) // 100], FRAMES[-1])


def draw(machine: Machine, chains: Mapping[str, Chain], measured: Sequence[Measured] = ()) -> str:
    """An SVG document: a panel for each chain that the machine's parameters say something of. Raises ValueError where
    there is none."""
    chains = {name: each for name, each in chains.items() if answers(machine, each, FRAMES[0])}
    if not chains:
        raise ValueError("no chain has an answer")
    parts: list[str] = []
    width, above = WIDTH, 0
    for name, chain in chains.items():
        known = {size: {each.interface: each for each in answers(machine, chain, size)} for size in FRAMES}
        bounded = {each: _bounded(of) for each in INTERFACES if (of := _by(known, each))}
        parts += _panel(name, chain, known, bounded, measured, above)
        texts = [_said(*turn) for turns in bounded.values() for turn in turns]
        width = max(width, WIDTH - RIGHT + 38 + round(_LETTER * max(map(len, texts))))
        above += max(PANEL, TOP + sum(40 + 18 * len(turns) for turns in bounded.values()) + BOTTOM)
    return svg.document(width, above, f"What each chain carries, by size of frame: {machine.name}", parts)


def _by(known: Mapping[int, Mapping[str, Answer]], interface: str) -> dict[int, Answer]:
    return {size: each[interface] for size, each in known.items() if interface in each}


def _said(first: int, last: int, why: str) -> str:
    return f"{first} to {last} B: {why}"


def _panel(
    name: str,
    chain: Chain,
    known: Mapping[int, Mapping[str, Answer]],
    bounded: Mapping[str, Sequence[tuple[int, int, str]]],
    measured: Sequence[Measured],
    above: float,
) -> Iterator[str]:
    points = [each for each in measured if each.chain.functions == chain.functions]
    values = [limit.mpps for each in known.values() for answer in each.values() for limit in answer.limits]
    values += [each.mpps for each in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    right, bottom = WIDTH - RIGHT, PANEL - BOTTOM

    def across(frame: float) -> float:
        return LEFT + (right - LEFT) * math.log(frame / FRAMES[0]) / math.log(FRAMES[-1] / FRAMES[0])

    def down(mpps: float) -> float:
        return above + bottom - (bottom - TOP) * (math.log10(mpps) - low) / max(high - low, 1)

    many = "1 function" if chain.functions == 1 else f"{chain.functions} functions"
    yield svg.text(18, above + 30, f"{name}, {many}: Mpps by bytes of a frame", "title")
    for power in range(low, high + 1):
        yield svg.line(LEFT, down(10.0**power), right, down(10.0**power))
        yield svg.text(LEFT - 8, down(10.0**power) + 4, f"{10.0**power:,g}", "soft end")
    for size in SIZES:
        yield svg.line(across(size), above + TOP, across(size), above + bottom)
        yield svg.text(across(size), above + bottom + 18, str(size), "soft mid")
    y = above + TOP
    for number, interface in enumerate(INTERFACES, 1):
        if interface not in bounded:
            continue
        of = _by(known, interface)
        for limit in dict.fromkeys(each.name for answer in of.values() for each in answer.limits):
            drawn = [(across(size), down(of[size].by_name[limit])) for size in STEPS if limit in of[size].by_name]
            if drawn:
                yield svg.path(drawn, f"c{number} thin")
        yield svg.path([(across(size), down(of[size].mpps)) for size in STEPS], f"c{number}")
        yield f'<rect class="bar c{number}" x="{right + 18}" y="{y:.1f}" width="12" height="12" rx="2"/>'
        yield svg.text(right + 38, y + 11, f"{interface}, bounded by")
        for turn, found in enumerate(bounded[interface]):
            yield svg.text(right + 38, y + 30 + 18 * turn, _said(*found), "soft")
        y += 40 + 18 * len(bounded[interface])
    for each in points:
        yield f'<circle class="point" cx="{across(each.frame):.1f}" cy="{down(each.mpps):.1f}" r="4"/>'
    if points:
        yield f'<circle class="point" cx="{right + 24}" cy="{y + 6:.1f}" r="4"/>'
        yield svg.text(right + 38, y + 11, "measured")


def _bounded(of: Mapping[int, Answer]) -> list[tuple[int, int, str]]:
    """From which size to which what is the bottleneck."""
    found: list[tuple[int, int, str]] = []
    for size, answer in of.items():
        if found and found[-1][2] == answer.bottleneck.name:
            found[-1] = (found[-1][0], size, found[-1][2])
        else:
            found.append((size, size, answer.bottleneck.name))
    return found
