"""The console of tables and colours: the only one, so that no word of another's is taken for a command.

A module of its own: what needs no table starts faster without Rich.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tailrace.process.plain import plain_lines


class Screen(Console):
    """Rich's console, but for what is printed: neither `[bold]` nor `:name:` means anything in it, and a terminal obeys
    nothing of it. A reader that has gone is an error like any other: `run_command` knows what to do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(plain_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        raise
