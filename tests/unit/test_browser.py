"""The browser that tests drive: what it may take, and what it leaves behind."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.bench.browser import Browser, browser
from tailrace.process.process import descendants, identify


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """Theirs to read, ours to write, ours to read, theirs to write."""
    made = (*os.pipe(), *os.pipe())
    yield made
    for each in made:
        os.close(each)


def test_a_browser_that_does_not_answer(pipes: tuple[int, int, int, int]) -> None:
    _, to, out, _ = pipes
    with pytest.raises(TimeoutError, match=r"Target\.createTarget within 0\.1 s"):
        Browser(to, out, limit=0.1)


def test_a_browser_that_takes_nothing(pipes: tuple[int, int, int, int]) -> None:
    _, to, out, _ = pipes
    while select.select([], [to], [], 0)[1]:
        os.write(to, bytes(1 << 12))
    with pytest.raises(TimeoutError, match=r"Target\.createTarget within 0\.1 s"):
        Browser(to, out, limit=0.1)


def test_an_answer_in_pieces_and_two_at_once(pipes: tuple[int, int, int, int]) -> None:
    _, to, out, theirs = pipes
    os.write(
        theirs, b'{"id":1,"result":{"targetId":"t"}}\0{"id":2,"result":{"sessionId":"s"}}\0{"method":"Log.entryAdded",'
    )
    os.write(
        theirs, b'"params":{"entry":{"text":"oh"}}}\0' + b"".join(b'{"id":%d,"result":{}}\0' % n for n in (3, 4, 5))
    )
    assert Browser(to, out, limit=1.0).complaints == ["oh"]


@pytest.mark.requires_program("chromium")
@pytest.mark.unsanitized
def test_none_of_its_processes_outlives_it(tmp_path: Path) -> None:
    """One that did wrote to the profile again while that was removed."""
    others = descendants(os.getpid())
    with browser(tmp_path / "profile"):
        its = [found for pid in descendants(os.getpid()) if pid not in others and (found := identify(pid))]
    assert len(its) > 1
    assert [each for each in its if each.alive()] == []
