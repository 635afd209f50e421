"""What the pictures in SVG have in common: their sheet, in the colours that a reader has chosen, and their texts."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

_STYLE = Path(__file__).parent / "templates/picture.css"


def document(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    """An SVG document, light or dark as its reader has it. `label`: what it shows, for who cannot see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(label)}">\n'
        f'<style>{_STYLE.read_text()}</style>\n<rect width="100%" height="100%" rx="8" fill="var(--paper)"/>\n'
        f"{body}\n</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Words at a place; `kind`: classes of picture.css."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line of the grid."""
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" class="grid"/>'


def path(points: Iterable[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    return f'<path class="{kind}" d="M{" L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
