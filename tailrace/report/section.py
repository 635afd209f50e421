"""A part of a report: a table, what to know to read it, and its charts; drawn alike in the terminal and in HTML."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.report.lines import Chart


@dataclass(frozen=True)
class Section:
    heading: str
    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    heat: tuple[tuple[float | None, ...], ...] = ()
    """Where the table is a map: how warm each cell is, from 0 (the worst) to 1; None where there is no figure."""
    ends: tuple[str, str] | None = None
    """The worst and the best figure of a map."""
    naming: int = 1
    """So many of the first columns name a row; where a table is too wide for a terminal, each part has them."""
