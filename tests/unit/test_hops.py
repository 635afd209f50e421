"""The join of the tester's records with the hop trace: parts add up, whatever is missing is said."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from tailrace.measure.hops import Sighting, Slowest, cut, function_name, join, sample_every
from tailrace.observe.hop_trace import HopTrace, Record, frame_key

HZ = 2_500_000_000
WAY = [("tester.a", "first.0"), ("first.1", "second.0"), ("second.1", "tester.b")]


def frame(sequence: int, start: int, times: list[int]) -> tuple[Sighting, list[Record]]:
    """A frame sent at `start` whose parts take these cycles: ring, switch, function, switch, function, switch, ring."""
    assert len(times) == 7
    now = start
    records = []
    for (source, target), before, stay in zip(WAY, times[0::2], times[1::2], strict=False):
        now += before
        records.append(Record(frame_key(0, sequence), now, now + stay, source, target))
        now += stay
    return Sighting(0, sequence, start, now + times[6]), records


def test_the_parts_of_a_frame_add_up_to_its_latency() -> None:
    sighting, records = frame(7, 1000, [10, 20, 30, 40, 50, 60, 70])
    found = cut(sighting, reversed(records))
    assert found is not None
    way, cycles = found
    assert cycles == [10, 20, 30, 40, 50, 60, 70]
    assert [part.kind for part in way] == ["ring", "switch", "function", "switch", "function", "switch", "ring"]
    assert [part.name for part in way] == [
        "tester.a to the switch", "tester.a to first.0", "first", "first.1 to second.0", "second",
        "second.1 to tester.b", "the switch to tester.b",
    ]  # fmt: skip


def test_parts_have_the_names_of_the_plan_whichever_process_stands_for_a_function() -> None:
    sighting, records = frame(7, 1000, [10, 20, 30, 40, 50, 60, 70])
    replaced = [
        record._replace(source=record.source.replace("d.", "d@4."), target=record.target.replace("d.", "d@4."))
        for record in records
    ]
    assert {record.target for record in replaced} == {"first.0", "second@4.0", "tester.b"}
    assert cut(sighting, replaced) == cut(sighting, records)


def test_a_function_that_is_faster_than_the_burst_it_came_with() -> None:
    sighting, records = frame(7, 1000, [10, 20, -15, 40, 50, 60, 70])
    found = cut(sighting, records)
    assert found is not None
    assert found[1] == [10, 5, 0, 40, 50, 60, 70]


def test_records_that_cannot_be_a_way_are_refused() -> None:
    sighting, records = frame(7, 1000, [10, 20, 30, 40, 50, 60, 70])
    assert cut(sighting, []) is None
    assert cut(Sighting(0, 7, 1050, sighting.received), records) is None  # sent after it arrived


def test_a_budget_over_many_frames() -> None:
    chance = random.Random(1)
    frames = [frame(i, i * 10_000, [chance.randrange(10, 5000) for _ in range(7)]) for i in range(2000)]
    samples = [sighting for sighting, _ in frames]
    records = [record for number, (_, own) in enumerate(frames) for record in own if number % 100 or record is own[0]]
    chance.shuffle(records)
    slow = sorted(samples, key=lambda each: each.sent - each.received)[:3]
    known = {each.key: own for each, own in frames if each in slow[:2]}
    joined = join(samples, records, slow, known, HZ)
    assert joined is not None
    hops = joined.hops
    assert (hops.frames, hops.left_out) == (1980, 20)
    assert sum(part.share for part in hops.parts) == pytest.approx(1)
    assert sum(part.latency_us.average for part in hops.parts) == pytest.approx(hops.average_us)
    whole = [each.received - each.sent for number, each in enumerate(samples) if number % 100]
    assert hops.average_us == pytest.approx(sum(whole) / len(whole) / HZ * 1e6, rel=1e-3)
    assert [histogram.count for histogram in joined.histograms] == [1980] * 7
    assert [each.sequence for each in hops.slowest] == [each.sequence for each in slow[:2]]
    assert hops.slowest_untraced == 1
    for slowest, sighting in zip(hops.slowest, slow, strict=False):
        assert sum(slowest.parts_us) == pytest.approx(slowest.latency_us)
        assert slowest.latency_us == pytest.approx((sighting.received - sighting.sent) / HZ * 1e6, abs=0.01)


def test_replicas_are_one_part_of_the_budget_and_a_slow_frame_names_its_own() -> None:
    frames = [frame(i, i * 10_000, [10, 20, 30, 40, 50, 60, 70 + i]) for i in range(10)]

    def other(name: str) -> str:
        return name.replace("second.", "second-2@3.")

    for number, (_, own) in enumerate(frames):
        if number % 2:
            own[:] = [record._replace(source=other(record.source), target=other(record.target)) for record in own]
    samples = [sighting for sighting, _ in frames]
    records = [record for _, own in frames for record in own]
    slow, known = samples[-2:], {each.key: own for each, own in frames[-2:]}
    alone = join(samples, records, slow, known, HZ)
    assert alone is not None
    assert (alone.hops.frames, alone.hops.left_out) == (5, 5), "two ways"
    joined = join(samples, records, slow, known, HZ, {"second": "second", "second-2": "second"})
    assert joined is not None
    assert (joined.hops.frames, joined.hops.left_out) == (10, 0)
    assert [part.name for part in joined.hops.parts][4] == "second"
    assert sum(part.latency_us.average for part in joined.hops.parts) == pytest.approx(joined.hops.average_us)
    assert [each.parts[4] for each in joined.hops.slowest] == ["second-2", "second"]


def test_nothing_to_join_is_no_budget() -> None:
    assert join([Sighting(0, 0, 1, 2)], [], [], {}, HZ) is None


def test_how_dense_a_sample_is() -> None:
    assert sample_every(100) == 1
    assert sample_every(60e6, 20_000) == 2048
    assert 20_000 <= 60e6 / sample_every(60e6, 20_000) <= 40_000


def test_what_lies_between_two_ports() -> None:
    assert function_name("first@2.0", "first@2.1") == "first"
    assert function_name("fire.wall.0", "fire.wall.1") == "fire.wall"
    assert function_name("left", "right") == "left to right"


# ------- the file -------

LENGTH, MARGIN = 1024, 64
RECORD = struct.Struct("<QQIHH")


class TraceFile:
    """A trace as the switch writes it: one worker, a ring of samples and one of all frames."""

    def __init__(self, path: Path) -> None:
        schema = {
            "tsc_hz": HZ, "every": 2, "margin": MARGIN,
            "record": {"format": "<QQIHH", "fields": ["frame", "arrived", "stay", "from", "to"]},
            "ports": {"offset": 8192, "size": 48, "count": 4},
            "rings": [
                {"worker": 0, "kind": "sampled", "head": 12288, "records": 16384, "length": LENGTH},
                {"worker": 0, "kind": "recent", "head": 12352, "records": 65536, "length": LENGTH},
            ],
        }  # fmt: skip
        text = json.dumps(schema).encode()
        self.path = path
        self.heads = {12288: 0, 12352: 0}
        content = bytearray(65536 + LENGTH * RECORD.size)
        struct.pack_into("<8sII", content, 0, b"TAILHOPS", 1, len(text))
        content[64 : 64 + len(text)] = text
        for number, name in enumerate(("tester.a", "first.0", "first.1", "tester.b")):
            content[8192 + 48 * number : 8192 + 48 * number + len(name)] = name.encode()
        path.write_bytes(content)

    def note(self, sequences: range) -> None:
        """Frames that arrive 100 cycles times their sequence after the beginning."""
        with self.path.open("r+b") as file:
            for sequence in sequences:
                for head, records in ((12288, 16384), (12352, 65536)):
                    if head == 12288 and sequence % 2:
                        continue
                    file.seek(records + self.heads[head] % LENGTH * RECORD.size)
                    file.write(RECORD.pack(frame_key(3, sequence), 100 * sequence, 5, 0, 1))
                    self.heads[head] += 1
                    file.seek(head)
                    file.write(struct.pack("<Q", self.heads[head]))


def noted(sequence: int) -> Record:
    return Record(frame_key(3, sequence), 100 * sequence, 100 * sequence + 5, "tester.a", "first.0")


def sighted(sequence: int) -> Sighting:
    return Sighting(3, sequence, 100 * sequence - 10, 100 * sequence + 10)


@pytest.fixture
def file(tmp_path: Path) -> TraceFile:
    return TraceFile(tmp_path / "trace")


def test_samples_are_read_since_the_restart(file: TraceFile) -> None:
    trace = HopTrace(file.path)
    file.note(range(4))
    trace.restart()
    file.note(range(4, 44))
    records, whole = trace.sampled()
    assert whole
    assert records == [noted(sequence) for sequence in range(4, 44, 2)]
    trace.close()


def test_what_was_overwritten_is_left_out_and_said(file: TraceFile) -> None:
    trace = HopTrace(file.path)
    file.note(range(0, 4 * LENGTH, 2))
    records, whole = trace.sampled()
    assert not whole
    assert len(records) == LENGTH - MARGIN
    assert records[-1] == noted(4 * LENGTH - 2)
    trace.close()


def test_recent_frames_are_found_by_their_time(file: TraceFile) -> None:
    trace = HopTrace(file.path)
    file.note(range(3 * LENGTH))
    there, gone, never = 3 * LENGTH - 10, 5, 3 * LENGTH + 5
    wanted = {each.key: (each.sent, each.received) for each in map(sighted, (there, gone, never))}
    assert trace.recent_of(wanted) == {frame_key(3, there): [noted(there)]}
    trace.close()


def test_the_slowest_are_looked_up_once_and_forgotten_when_they_are_not(file: TraceFile) -> None:
    slowest = Slowest(HopTrace(file.path))
    file.note(range(10))
    first = [sighted(1), sighted(2)]
    slowest.look_up(first)
    assert set(slowest.records) == {each.key for each in first}
    file.note(range(10, 4 * LENGTH))
    later = sighted(4 * LENGTH - 5)
    slowest.look_up([first[0], later])
    assert slowest.records == {first[0].key: [noted(1)], later.key: [noted(4 * LENGTH - 5)]}
    slowest.trace.close()
