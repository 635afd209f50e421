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
    """Where the table is a map: how warm each cell is, from 0 (the least) to 1; None where there is no figure."""
    naming: int = 1
    """So many of the first columns name a row; where a table is too wide for a terminal, each part has them."""
