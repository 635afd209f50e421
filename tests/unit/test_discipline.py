"""What is said of who disciplines the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from tailrace.measure.discipline import STA_UNSYNC, Discipline, Source, Watched, discipline
from tailrace.measure.ptp import Ptp, parse, programs, settings_of

PTP = Discipline(synchronised=True, error_us=3, tai_s=37)
NOBODY = Discipline(synchronised=False, error_us=16_000_000, tai_s=0)


def said(*readings: Discipline) -> list[list[str]]:
    left: Iterator[Discipline] = iter(readings)
    watched = Watched(lambda: next(left))
    return [list(watched.look(10.0 * number)) for number in range(len(readings))]


def test_the_kernel_is_asked() -> None:
    found = discipline()
    assert found.error_us >= 0 and -1000 < found.tai_s < 1000
    # Of the same call: TAI is so far ahead of UTC by clock_gettime() too.
    assert round(time.clock_gettime(time.CLOCK_TAI) - time.time()) == found.tai_s
    assert STA_UNSYNC == 64


def test_a_clock_that_is_disciplined_is_said_once() -> None:
    assert said(PTP, PTP) == [["the clock is disciplined, and at most 3 µs off"], []]


def test_a_clock_of_its_own_is_said_once() -> None:
    (first,), second = said(NOBODY, NOBODY)
    assert first.startswith("nothing disciplines the clock (PTP, NTP)") and "so it is UTC" in first
    assert second == []


def test_a_loss_and_its_end_are_said() -> None:
    late = Discipline(synchronised=True, error_us=150_000, tai_s=37)
    _, lost, still, again = said(PTP, late, NOBODY, PTP)
    assert lost == [
        "10 s after the start the clock may have been 150 ms off: PTP or NTP was lost, or corrects it rarely"
    ]
    assert still == []
    assert again == ["30 s after the start the clock was disciplined again"]


FOLLOWS = Source(("ptp4l", "phc2sys"), Ptp("ce8592.fffe.ae0411", -231))
ALONE = Source(("ptp4l", "phc2sys"), Ptp())
PMC = """\
sending: GET TIME_STATUS_NP
sending: GET PORT_DATA_SET
\tea4e04.fffe.583ce2-0 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
\t\tmaster_offset              -231
\t\tgmPresent                  true
\t\tgmIdentity                 ce8592.fffe.ae0411
\tea4e04.fffe.583ce2-1 seq 1 RESPONSE MANAGEMENT PORT_DATA_SET
\t\tportState               SLAVE
"""


def told(*who: Source, clock: Discipline = PTP) -> list[list[str]]:
    left = iter(who)
    watched = Watched(lambda: clock, lambda: next(left))
    return [list(watched.look(10.0 * number)) for number in range(len(who))]


def test_who_disciplines_it_is_said_with_the_offset() -> None:
    ((first,), second) = told(FOLLOWS, FOLLOWS)
    by = "by PTP (ptp4l, phc2sys: master ce8592.fffe.ae0411, offset -231 ns)"
    assert first == f"the clock is disciplined {by}, and at most 3 µs off"
    assert second == []
    assert told(Source(("chronyd",))) == [["the clock is disciplined by chronyd, and at most 3 µs off"]]


def test_a_ptp4l_that_follows_nobody_is_named() -> None:
    ((first,),) = told(ALONE, clock=NOBODY)
    assert first.startswith("nothing disciplines the clock") and "; ptp4l, phc2sys runs, and does not yet" in first


def test_a_master_that_is_lost_and_its_return_are_said() -> None:
    _, lost, gone, still, again = told(FOLLOWS, ALONE, Source(), ALONE, FOLLOWS)
    assert len(lost) == 1 and lost[0].startswith("10 s after the start PTP was lost: ptp4l follows no master any more")
    assert gone == still == []
    assert again[0].startswith("40 s after the start the clock was disciplined by PTP (ptp4l, phc2sys: master ce8592")


def test_what_ptp4l_says_is_read() -> None:
    assert parse(PMC) == Ptp("ce8592.fffe.ae0411", -231)
    assert parse(PMC.replace("SLAVE", "UNCALIBRATED")) == Ptp()
    assert parse(PMC.replace("-231", "9" * 40)) == Ptp("ce8592.fffe.ae0411", 0)
    assert parse("") == Ptp()


def test_the_socket_of_a_ptp4l_is_found_by_its_command_line(tmp_path: Path) -> None:
    usual = {"uds_address": "/var/run/ptp4l", "domainNumber": "0"}
    assert settings_of(["-i", "eth0"], tmp_path) == usual
    (tmp_path / "own.cfg").write_text("[global]\ndomainNumber\t24\nuds_address /run/own\n")
    own = {"uds_address": "/run/own", "domainNumber": "24"}
    assert settings_of(["-f", "own.cfg"], tmp_path) == settings_of(["-fown.cfg", "-m"], tmp_path) == own
    assert settings_of(["-f", "own.cfg", "--uds_address=/run/b"], tmp_path)["uds_address"] == "/run/b"
    assert settings_of(["-f", "own.cfg", "--domainNumber", "3"], tmp_path)["domainNumber"] == "3"
    assert settings_of(["-f", "missing.cfg"], tmp_path) == settings_of(["-f"], tmp_path) == usual


def test_programs_are_found_by_name(tmp_path: Path) -> None:
    for pid, name in ((7, "bash"), (12, "ptp4l"), (9, "chronyd")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "13").mkdir()  # it has ended
    assert programs(tmp_path) == {9: "chronyd", 12: "ptp4l"}
