"""Runs for the page: the list, one as its report, and what changed between two."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tailrace.errors import Mistake
from tailrace.report.html import render
from tailrace.results.diff import diff
from tailrace.results.index import find_runs
from tailrace.results.stored import StoredRun, read_run

MOST = 500


def listed(runs: Path) -> list[dict[str, Any]]:
    """The newest runs of a folder; none where nothing has been measured yet."""
    return [asdict(each) for each in find_runs(runs)[:MOST]] if runs.is_dir() else []


def report(runs: Path, name: str) -> str:
    """A run's report as HTML, made of its results: a file that says it is one may be anybody's. Raises Mistake,
    ResultError."""
    return render([_stored(runs, name)])


def difference(runs: Path, a: str, b: str) -> dict[str, Any]:
    """Raises as report does."""
    return diff(_stored(runs, a), _stored(runs, b)).as_data()


def _stored(runs: Path, name: str) -> StoredRun:
    """A run by the name that the list has for it, which never leads elsewhere."""
    if name not in {each.folder for each in find_runs(runs)}:
        raise Mistake(f"there is no run {name} in {runs}")
    return read_run(runs / name)
