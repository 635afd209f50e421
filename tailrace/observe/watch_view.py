"""What the views of `tailrace watch` have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

from rich.console import RenderableType
from rich.text import Text

from tailrace.process.plain import plain
from tailrace.results.model import ClockStep, Gap
from tailrace.spec.units import show_span

State = Literal["running", "done", "broken off", "cut off"]
"""done: its time is up; broken off: it ended in order before that; cut off: it was killed or crashed."""


class Watched(Protocol):
    """A measurement as it stands."""

    @property
    def state(self) -> State: ...

    def look(self) -> Watched:
        """Takes in what has been added; returns what is to be shown from now on. Raises ResultError if it has gone."""
        ...

    def as_data(self) -> dict[str, Any]:
        """For --json: times in seconds, latencies in µs."""
        ...

    def draw(self, width: int, /) -> RenderableType:
        """The whole picture, for a terminal so wide."""
        ...


def heading(folder: Path, what: str) -> Text:
    """The first line."""
    return Text.assemble(("tailrace watch", "bold"), f"  {plain(folder.name)}: {plain(what)}")


def events(gaps: Iterable[Gap], steps: Iterable[ClockStep]) -> Iterator[Text]:
    """The last breaks, and the last times that the clock was set."""
    for gap in list(gaps)[-3:]:
        span, start = show_span(gap.end_s - gap.start_s), show_span(gap.start_s)
        yield Text(f"gap: {span} from {start} on ({plain(gap.reason)})", style="yellow")
    for step in list(steps)[-3:]:
        yield Text(f"the clock was set by {step.step_s:+.3f} s at {show_span(step.at_s)}", style="yellow")
