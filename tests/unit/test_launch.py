"""What is quoted of a program's log."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tailrace.state.launch import Launcher
from tailrace.state.record import State


def test_last_words_come_without_their_time(tmp_path: Path) -> None:
    launcher = Launcher(cast(State, None), tmp_path, True)
    for line, words in (
        ("2026-01-31T12:00:00.000Z tailrace-switch: error: a: 1", "tailrace-switch: error: a: 1"),
        ("tailrace-switch: error: a", "tailrace-switch: error: a"),
        ("2026 is no time", "2026 is no time"),
    ):
        launcher.log("it").write_text(line + "\n\n")
        assert launcher.last_words("it") == words
