"""A progress bar with the time left, on standard error; silent where nobody watches."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Protocol, Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from tailrace.report.screen import Screen


class Reporter(Protocol):
    """Told of stages, each with its expected seconds, and of the seconds done in the present one."""

    def stage(self, label: str, seconds: float) -> None: ...

    def advance(self, label: str, seconds: float) -> None: ...


class _TimeLeft(ProgressColumn):
    """Expected seconds left, by the plan and not by the speed so far: trials take the time that they take."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = max(round((task.total or 0) - task.completed), 0)
        minutes, seconds = divmod(left, 60)
        hours, minutes = divmod(minutes, 60)
        shown = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        return Text(f"{shown} left", style="progress.remaining")


class Silent:
    """Says nothing."""

    def stage(self, label: str, seconds: float) -> None:
        pass

    def advance(self, label: str, seconds: float) -> None:
        pass


class Bar:
    """A bar over all stages. Its own thread draws it seldom: the machine has better things to do."""

    def __init__(self, total_seconds: float, console: Screen) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _TimeLeft(),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._progress.add_task("starting", total=total_seconds)
        self._before = 0.0
        self._stage = 0.0
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, label: str, seconds: float) -> None:
        self._before += self._stage
        self._stage = seconds
        self._show(label, 0.0, force=True)

    def advance(self, label: str, seconds: float) -> None:
        self._show(label, min(seconds, self._stage))

    def _show(self, label: str, done: float, *, force: bool = False) -> None:
        now = time.monotonic()
        if not force and now - self._drawn < 0.45:
            return
        self._drawn = now
        self._progress.update(self._task, description=label, completed=self._before + done)
        self._progress.refresh()


def reporter(total_seconds: float, *, wanted: bool) -> Bar | None:
    """A bar if somebody watches standard error and has not asked for quiet (`-q`), else None."""
    if not wanted or not sys.stderr.isatty() or not logging.getLogger(__name__).isEnabledFor(logging.WARNING):
        return None
    return Bar(total_seconds, Screen(stderr=True))
