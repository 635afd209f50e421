"""Older results.json brought to the format that this Tailrace writes, one format at a time.

A step takes the document of one format and returns that of the next; it may only reckon from what the document says.
What cannot be known becomes null, never a guess. Who changes the format adds a step here, and keeps a file of the old
format in tests/unit/data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Document = dict[str, Any]


def _say_method_and_spec(document: Document) -> Document:
    """1 to 2: what was measured and of which spec was only in the run's name, such as latency-chain."""
    method, _, spec = str(document.get("name", "")).partition("-")
    return {**document, "method": method or "unknown", "spec": spec or None}


_CELL_FIGURES = (
    "no_loss_pps", "offered_pps", "mpps", "loss_ratio", "p50_us", "p99_us", "p99_9_us", "max_us", "floor_ratio",
    "trial",
)  # fmt: skip


def _give_cells_rounds(document: Document) -> Document:
    """2 to 3: a cell of a matrix was measured once, and had the figures of that round alone."""

    def with_round(finding: Document) -> Document:
        if finding.get("method") != "matrix" or finding.get("trial") is None:
            return finding
        return {**finding, "rounds": [{"round": 1, **{name: finding.get(name) for name in _CELL_FIGURES}}]}

    return {**document, "findings": [with_round(each) for each in document.get("findings", ())]}


def _pool(document: Document) -> Document:
    """3 to 4: what rounds and pairs say together is reckoned from the rest, whenever it is read.

    How much was sent to the sides of pairs is left unknown: it stands with their trials only.
    """
    return document


STEPS: dict[int, Callable[[Document], Document]] = {1: _say_method_and_spec, 2: _give_cells_rounds, 3: _pool}


def migrate(document: Document, version: int, target: int) -> Document:
    """The `document` of format `version` in the format `target`, which is not older; the argument is left alone."""
    for step in range(version, target):
        document = {**STEPS[step](document), "format": step + 1}
    return document
