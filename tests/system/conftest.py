"""The command of a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_machine import clean
from running_node import Command


@pytest.fixture
def command(tailrace: Path, tmp_path: Path) -> Iterator[Command]:
    """The command in a folder of the test's own; the machine must be as it was when the test is over."""
    with clean(tailrace, tmp_path) as command:
        yield command
