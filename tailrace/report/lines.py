"""Line charts as plain SVG: they need no script, and print as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 44
COLOURS = 8
DOT = 3
"""Radius of a dot."""

Place = tuple[float, float]
"""In the picture: across and down."""


@dataclass(frozen=True)
class Line:
    """A series: its name and its points; x is a number, or the name of a group (all lines then have groups)."""

    label: str
    points: tuple[tuple[float | str, float], ...]


@dataclass(frozen=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]

    @property
    def svg(self) -> Markup:
        """The chart as an <svg> element; whatever comes from outside is escaped."""
        return _draw(self)


def ticks(most: float, wanted: int = 5) -> list[float]:
    """From 0 to at least `most`, in steps of 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [float(f"{index * step:.12g}") for index in range(math.ceil(most / step - 1e-9) + 1)]


def _groups(chart: Chart) -> list[str]:
    return list(dict.fromkeys(x for line in chart.lines for x, _ in line.points if isinstance(x, str)))


def _draw(chart: Chart) -> Markup:
    groups = _groups(chart)
    y_ticks = ticks(max((y for line in chart.lines for _, y in line.points), default=1.0))
    if groups:
        x_ticks = [(index + 0.5, name) for index, name in enumerate(groups)]
        x_most = float(len(groups))
    else:
        found = ticks(max((float(x) for line in chart.lines for x, _ in line.points), default=1.0))
        x_ticks = [(value, f"{value:g}") for value in found]
        x_most = found[-1]

    def across(x: float | str) -> float:
        place = groups.index(x) + 0.5 if isinstance(x, str) else x
        return LEFT + (WIDTH - LEFT - RIGHT) * place / x_most

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / y_ticks[-1]

    parts = [
        Markup(f'<svg class="lines" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="')
        + escape(f"{chart.title}: {chart.y_label} by {chart.x_label}")
        + Markup('">')
    ]
    for value in y_ticks:
        parts.append(
            Markup(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(value):.1f}" y2="{up(value):.1f}"/>')
        )
        parts.append(_text(f"{value:g}", LEFT - 6, up(value) + 4, "end"))
    for place, name in x_ticks:
        parts.append(_text(name, across(place), HEIGHT - BOTTOM + 16, "middle"))
    parts.append(_text(chart.x_label, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "middle"))
    parts.append(_text(chart.y_label, LEFT, TOP - 3, "start"))
    drawn = [[(across(x), up(y)) for x, y in line.points] for line in chart.lines]
    for number, line in enumerate(chart.lines):
        above = [point for points in drawn[number + 1 :] for point in points]
        parts.append(_line(number, line, drawn[number], above))
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _text(text: str, x: float, y: float, anchor: str) -> Markup:
    return Markup(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">') + escape(text) + Markup("</text>")


def _line(number: int, line: Line, points: Sequence[Place], above: Sequence[Place]) -> Markup:
    """A line with its dots; a dot that those of lines above it would hide is a ring around them."""
    colour = f"var(--s{number % COLOURS})"
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    made = Markup(f'<polyline fill="none" stroke-width="2" style="stroke: {colour}" points="{path}"/>')
    for (x, y), (name, value) in zip(points, line.points, strict=True):
        hiding = sum(math.dist((x, y), other) < DOT for other in above)
        ring = f"fill: none; stroke: {colour}; stroke-width: 2" if hiding else f"fill: {colour}"
        made += (
            Markup(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DOT * (1 + hiding)}" style="{ring}"><title>')
            + escape(f"{line.label}: {name if isinstance(name, str) else f'{name:.4g}'}, {value:.4g}")
            + Markup("</title></circle>")
        )
    return made
