"""The command of a test's own, and which tests run with the sanitizers' programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_machine import clean
from running_node import Command


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes `binaries` is sanitized: it can take either build, and the sanitizers see more."""
    for each in items:
        takes = set(getattr(each, "fixturenames", ()))
        if (
            Path(__file__).parent in each.path.parents
            and "binaries" in takes
            and not takes & {"asan_binaries", "command"}
            and not each.get_closest_marker("unsanitized")
        ):
            each.add_marker("sanitized")


@pytest.fixture
def command(tailrace: Path, tmp_path: Path) -> Iterator[Command]:
    """The command in a folder of the test's own; the machine must be as it was when the test is over."""
    with clean(tailrace, tmp_path) as command:
        yield command
