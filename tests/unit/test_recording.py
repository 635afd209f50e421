"""The recorder's file as a reader finds it: events by their time, and whether some of them were written over."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.observe.recording import Event, Recording

LENGTH, OVERWRITTEN = 8192, 4096
LINES, SERIES, RECORDS = 4096, 8192, 16384
RECORD, ONE, NOTES = struct.Struct("<QQII"), struct.Struct("<HHI40sQQQQ"), RECORDS + LENGTH * 24


class Recorder:
    """One that records a single CPU."""

    def __init__(self, path: Path) -> None:
        ring = {"head": LINES + 64, "until": LINES + 72, "lost": LINES + 80, "records": RECORDS, "length": LENGTH}
        notes = {"head": LINES + 128, "until": LINES + 136, "lost": LINES + 144, "records": NOTES, "length": LENGTH}
        schema = {
            "record": {"format": RECORD.format},
            "series": {"offset": SERIES, "count": 4, "used": LINES, "format": ONE.format},
            "kinds": ["task"],
            "clock_error": LINES + 8,
            "part": LINES + 48,
            "wall": LINES + 16,
            "cpus": [{"cpu": 3, **ring}],
            "notes": {"cpu": -1, **notes},
            "sources": [],
        }
        text = json.dumps(schema).encode()
        content = bytearray(NOTES + LENGTH * 24)
        struct.pack_into("<8sII", content, 0, b"TAILNOTE", 2, len(text))
        content[64 : 64 + len(text)] = text
        struct.pack_into("<Q", content, LINES, 1)
        ONE.pack_into(content, SERIES, 0, 3, 77, b"cc1", 9, 900, 300, 0)
        path.write_bytes(content)
        self.path = path

    def ran(self, times: range) -> None:
        """The task ran for 400 cycles from each of these times on, and has not run before."""
        with self.path.open("r+b") as file:
            for number, time in enumerate(times):
                file.seek(RECORDS + number % LENGTH * RECORD.size)
                file.write(RECORD.pack(time, time + 400, 0, 120))
            file.seek(LINES + 64)
            file.write(struct.pack("<Q", len(times)))


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    return Recorder(tmp_path / "file")


def ran(time: int) -> Event:
    return Event(time, time + 400, 3, "task", 77, "cc1", 120)


def test_events_are_found_by_their_time(recorder: Recorder) -> None:
    recorder.ran(range(0, 100_000, 1000))
    recording = Recording(recorder.path)
    assert recording.between(5300, 7100, 1000) == ([ran(5000), ran(6000), ran(7000)], True)
    # One that ends long after the time asked for is left out.
    assert recording.between(5300, 7100, 100) == ([ran(5000), ran(6000)], True)
    assert recording.between(5500, 5900, 1000) == ([], True)
    recording.close()


def test_the_longest_is_of_the_part_that_was_begun(recorder: Recorder) -> None:
    recording = Recording(recorder.path)
    assert [(each.count, each.longest) for each in recording.series()] == [(9, 300)]
    recording.begin_part()
    assert [(each.count, each.longest) for each in recording.series()] == [(9, 0)]
    # As the recorder does when one more ends, shorter than those before.
    with recorder.path.open("r+b") as file:
        file.seek(SERIES)
        file.write(ONE.pack(0, 3, 77, b"cc1", 10, 1000, 100, 1))
    assert [(each.count, each.longest) for each in recording.series()] == [(10, 100)]
    recording.close()


def test_a_reader_that_comes_too_late_is_reported(recorder: Recorder) -> None:
    recorder.ran(range(0, 1000 * 3 * LENGTH, 1000))
    recording = Recording(recorder.path)
    oldest = 1000 * (3 * LENGTH - LENGTH + OVERWRITTEN)
    assert recording.between(oldest + 1000, oldest + 1100, 1000) == ([ran(oldest + 1000)], True)
    assert recording.between(oldest, oldest + 100, 1000) == ([ran(oldest)], False)
    assert recording.between(0, 100, 1000) == ([], False)
    recording.close()
