"""How busy a guest is that polls, from the switch's counters of its ports."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from tailrace.errors import Failure
from tailrace.observe import unread
from tailrace.observe.page import Slot
from tailrace.observe.unread import Unread


class Counters:
    """The page of a switch, as this test has it counted."""

    def __init__(self, path: Path) -> None:
        self.counted: dict[str, tuple[int, int]] = {}
        self.closed = False
        pages.append(self)
        assert path.exists()

    def slots(self, kind: str, owners: Collection[str]) -> list[Slot]:
        assert kind == "queue"
        return [
            Slot(kind, name, 1, {"looks": looks, "looks_unread": found})
            for name, (looks, found) in self.counted.items()
            if name.rpartition("/")[0] in owners
        ]

    def close(self) -> None:
        self.closed = True


pages: list[Counters] = []
now = 0.0


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Unread:
    pages.clear()
    monkeypatch.setattr(unread, "Page", Counters)
    monkeypatch.setattr("tailrace.observe.unread.time.monotonic", lambda: now)
    (tmp_path / "page").touch()
    return Unread(tmp_path / "page", ("first.0", "first.1"))


def after(guest: Unread, **queues: tuple[int, int]) -> float:
    """The load in the second that ends with these counters."""
    global now
    pages[-1].counted = {name.replace("_", ".").replace("q", "/"): value for name, value in queues.items()}
    before = guest.seconds
    pages[-1].counted = {
        name: (looks + 100, found + share)
        for name, (looks, found), share in (
            (name, *(pages[-1].counted[name], shares[name])) for name in pages[-1].counted
        )
    }
    now += 1
    return guest.seconds - before


shares: dict[str, int] = {}


def test_its_threads_have_something_to_do_while_frames_wait_at_any_port(guest: Unread) -> None:
    shares.update({"first.0/0": 50, "first.1/0": 50, "other.0/0": 100})
    assert after(guest, first_0q0=(0, 0), first_1q0=(7, 3), other_0q0=(0, 0)) == pytest.approx(0.75)
    shares.update({"first.0/0": 100, "first.1/0": 20})
    assert after(guest, first_0q0=(100, 50), first_1q0=(107, 53)) == pytest.approx(1.0)
    shares.update({"first.0/0": 0, "first.1/0": 0})
    assert after(guest, first_0q0=(200, 150), first_1q0=(207, 73)) == 0.0


def test_each_queue_has_a_thread(guest: Unread) -> None:
    shares.update({"first.0/0": 100, "first.1/0": 0, "first.0/1": 30, "first.1/1": 0})
    found = after(guest, first_0q0=(0, 0), first_1q0=(0, 0), first_0q1=(0, 0), first_1q1=(0, 0))
    assert found == pytest.approx(1.3)


def test_it_goes_on_as_it_was_while_there_is_no_switch(guest: Unread, tmp_path: Path) -> None:
    global now
    shares.update({"first.0/0": 40})
    assert after(guest, first_0q0=(0, 0)) == pytest.approx(0.4)
    (tmp_path / "new").touch()  # while the old one is there, and so another file
    (tmp_path / "page").unlink()
    before = guest.seconds
    now += 1
    assert guest.seconds - before == pytest.approx(0.4)
    (tmp_path / "new").rename(tmp_path / "page")
    shares.update({"first.0/0": 90})
    assert guest.seconds > 0 and len(pages) == 2 and pages[0].closed
    assert after(guest, first_0q0=(0, 0)) == pytest.approx(0.9)
    guest.close()
    assert pages[1].closed


def test_it_is_idle_while_there_is_nothing_to_look_at(guest: Unread) -> None:
    global now
    shares.update({"first.0/0": 90})
    assert after(guest, first_0q0=(0, 0)) == pytest.approx(0.9)
    before = guest.seconds
    now += 1
    assert guest.seconds == before, "its rings have gone, and the switch goes on"
    assert after(guest, first_0q0=(100, 90)) == pytest.approx(0.9)


def test_without_counters_it_is_not_known(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is the switch running"):
        Unread(tmp_path / "none", ("first.0",))
