"""What all of `tailrace bench` ends with: a benchmark that runs, and its result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import typer
from rich.console import RenderableType

from tailrace.cli.output import print_json, run_command
from tailrace.measure.progress import Reporter, Silent, reporter
from tailrace.report.screen import Screen
from tailrace.state.folder import default_folder

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output, and no progress bar.")]
_WIDE = 200


class _Plan(Protocol):
    @property
    def total_seconds(self) -> float: ...


class _Result(Protocol):
    def document(self) -> dict[str, Any]: ...


PlanT = TypeVar("PlanT", bound=_Plan)
ResultT = TypeVar("ResultT", bound=_Result)


def finish(
    make_plan: Callable[[], PlanT],
    run: Callable[[PlanT, Path, Reporter], ResultT],
    table: Callable[[ResultT], RenderableType],
    *,
    as_json: bool,
) -> None:
    """Runs a benchmark with a progress bar, shows its result, and exits."""

    def work() -> int:
        plan = make_plan()
        bar = reporter(plan.total_seconds, wanted=not as_json)
        with bar or nullcontext():
            result = run(plan, default_folder(), bar or Silent())
        if as_json:
            print_json(result.document())
        else:
            # A file has no width: none of the figures is cut there.
            sized = sys.stdout.isatty() or "COLUMNS" in os.environ
            Screen(width=None if sized else _WIDE).print(table(result))
        error: BaseException | None = getattr(result, "error", None)
        if error is not None:  # the result is what was measured before
            raise error
        return 0

    raise typer.Exit(run_command(work))
