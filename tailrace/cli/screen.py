"""The console of tables and colours, apart from `output`: a command that needs none starts faster without Rich."""

from __future__ import annotations

from rich.console import Console


class Screen(Console):
    """Rich's console, where a reader that has gone is an error like any other: `run_command` knows what to do."""

    def on_broken_pipe(self) -> None:
        raise
