"""Capture files: whole records whatever ends them, and no more of them than was asked for."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.cli import observe
from tailrace.cli.observe import _refused, parse_match
from tailrace.errors import Failure, Mistake
from tailrace.observe.capture import Captured, Ring, capture, merged
from tailrace.observe.following import Note, Trail, lines
from tailrace.observe.pcap import RECORD, Bounds, Full, Writer, records
from tailrace.process.control import UNKNOWN, Control, ControlError


def record(time: int, length: int = 60) -> bytes:
    return RECORD.pack(time // 10**9, time % 10**9, length, length) + bytes([time % 251]) * length


def written(path: Path) -> list[bytes]:
    """The records of a file, which must be whole."""
    text = path.read_bytes()
    assert struct.unpack("<IHHiIII", text[:24]) == (0xA1B23C4D, 2, 4, 0, 0, 96, 1)
    found = [text[24:][at:end] for at, end in records(text[24:])]
    assert sum(map(len, found)) == len(text) - 24
    return found


def test_one_file_ends_when_it_is_full(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.pcap", Bounds(size=24 + 3 * 76 + 75), 96)
    writer.write(record(1) + record(2))
    with pytest.raises(Full, match="the file is full"):
        writer.write(record(3) + record(4))
    writer.close()
    assert written(tmp_path / "x.pcap") == [record(1), record(2), record(3)]
    assert writer.written == 3


def test_files_follow_each_other_and_the_last_are_kept(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.pcap", Bounds(size=10**6, frames=4, files=2), 96)
    for start in range(0, 18, 3):
        writer.write(b"".join(map(record, range(start, start + 3))))
    writer.close()
    assert [path.name for path in writer.paths] == ["x-00004.pcap", "x-00005.pcap"]
    assert sorted(tmp_path.iterdir()) == writer.paths
    assert [written(path) for path in writer.paths] == [[record(n) for n in range(12, 16)], [record(16), record(17)]]
    assert (writer.written, writer.kept) == (18, 6)


def test_a_file_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next frames that come: a file without any would say nothing."""
    now = 1000.0
    monkeypatch.setattr("tailrace.observe.pcap.time.monotonic", lambda: now)
    writer = Writer(tmp_path / "x.pcap", Bounds(size=10**6, seconds=60, files=3), 96)
    for at, first in ((1059.9, 1), (1060.0, 2), (1100.0, 3), (1119.9, 4), (1500.0, 5)):
        now = at
        writer.write(record(first))
    writer.close()
    kept = [[record(1)], [record(2), record(3), record(4)], [record(5)]]
    assert [written(path) for path in writer.paths] == kept


@pytest.mark.parametrize(
    ("files", "kept", "said"),
    [
        (2, 1_100, "12,000 frames captured, the last 1,100 of them in z-00001.pcap to z-00002.pcap; older files were "
                   "deleted (stopped)."),
        (1, 12_000, "12,000 frames captured, in z-00001.pcap (stopped)."),
    ],
)  # fmt: skip
def test_how_many_frames_are_left_in_the_files_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], files: int, kept: int, said: str
) -> None:
    done = Captured(12_000, kept, 0, [Path(f"z-0000{number + 1}.pcap") for number in range(files)], "stopped")
    monkeypatch.setattr(observe, "_connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(observe, "run_capture", lambda *_, **__: done)
    options = observe.CaptureOptions(
        "a", None, "in", (), 96, "1MiB", files, None, None, None, None, "1MiB", None, as_json=False
    )
    assert observe.capture(Path("z.pcap"), options) == 0
    assert " ".join(capsys.readouterr().out.split()) == said


def test_no_more_frames_than_asked_for(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.pcap", Bounds(size=10**6), 96, most=5)
    with pytest.raises(Full, match="all frames asked for"):
        writer.write(b"".join(map(record, range(9))))
    writer.close()
    assert written(tmp_path / "x.pcap") == [record(n) for n in range(5)]


@pytest.mark.parametrize("room", [0, 10, 76, 100, 200])
def test_a_disk_that_is_full_in_the_middle_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    left = [24 + 76 + room]
    real = os.write

    def write(file: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(28, "No space left on device")
        done = real(file, data[: left[0]])
        left[0] -= done
        return done

    writer = Writer(tmp_path / "x.pcap", Bounds(size=10**6), 96)
    left[0] -= 24
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(Failure, match=r"x\.pcap: No space left on device; what was captured until then is kept"):
        writer.write(b"".join(map(record, range(9))))
    writer.close()
    kept = (76 + room) // 76
    assert written(tmp_path / "x.pcap") == [record(n) for n in range(kept)]
    assert writer.written == kept


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="No such file or directory; choose another file"):
        Writer(tmp_path / "nosuch" / "x.pcap", Bounds(size=10**6), 96)


@pytest.mark.parametrize("path", [".", "/", "..", "/tmp"])
@pytest.mark.parametrize("files", [None, 2])
def test_a_folder_is_no_capture_file_and_the_switch_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, path: str, files: int | None
) -> None:
    def connect(_: object) -> None:
        raise AssertionError("the switch was asked")

    monkeypatch.setattr(observe, "_connect", connect)
    options = observe.CaptureOptions(
        "a", None, "in", (), 96, "1MiB", files, None, None, None, None, "1MiB", None, as_json=False
    )
    with pytest.raises(Mistake, match=rf"^{path}: this is a directory; expected a file, such as .*x\.pcap$"):
        observe.capture(Path(path), options)
    with pytest.raises(Mistake, match="this is a directory"):
        Writer(Path(path), Bounds(size=10**6, files=files), 96)


def test_workers_are_merged_by_time() -> None:
    one, two = [record(n) for n in (1, 5, 6)], [record(n) for n in (2, 3, 9)]
    assert merged([b"".join(one), b"", b"".join(two)]) == b"".join(record(n) for n in (1, 2, 3, 5, 6, 9))
    assert merged([b"", b"".join(one)]) == b"".join(one)
    assert merged([b"", b""]) == b""


def test_a_ring_is_taken_around_its_end(tmp_path: Path) -> None:
    size, file = 4096, bytearray(4096 + 4096)
    struct.pack_into("<8sIIQ", file, 0, b"TAILCAPT", 1, 96, size)
    path = tmp_path / "ring"
    path.write_bytes(file)
    ring, head = Ring(path, os.getuid()), 0
    for number in range(200):
        text = record(number, 60 + number)
        with path.open("r+b") as writer:
            for at, byte in enumerate(text, head):
                writer.seek(4096 + at % size)
                writer.write(bytes([byte]))
            head += len(text)
            writer.seek(64)
            writer.write(struct.pack("<QQQ", head, number + 1, 3))
        assert ring.take() == text
        assert ring.take() == b""
        assert (ring.frames, ring.dropped) == (number + 1, 3)
    assert struct.unpack_from("<Q", path.read_bytes(), 128) == (head,)
    ring.close()


def ring_file(path: Path, size: int = 4096, magic: bytes = b"TAILCAPT", head: int = 0) -> Path:
    file = bytearray(4096 + 4096)
    struct.pack_into("<8sIIQ", file, 0, magic, 1, 96, size)
    struct.pack_into("<Q", file, 64, head)
    path.write_bytes(file)
    return path


@pytest.mark.parametrize("what", ["link", "folder", "pipe", "device", "nothing", "another's"])
def test_only_a_file_of_the_switchs_own_is_taken_for_its_ring(tmp_path: Path, what: str) -> None:
    """Whoever has taken over the switch names any path: of what is not its own nothing is read or written."""
    path, owner = tmp_path / "ring", os.getuid()
    theirs = ring_file(tmp_path / "precious", head=100)
    before = theirs.read_bytes()
    if what == "link":
        path.symlink_to(theirs)
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path = Path("/dev/zero")
    elif what == "another's":
        path, owner = theirs, owner + 1
    with pytest.raises(Failure, match=f"^{path}: .*(left alone|cannot be read)"):
        Ring(path, owner)
    assert theirs.read_bytes() == before


@pytest.mark.parametrize("what", [{"size": 0}, {"size": 1 << 40}, {"magic": b"ELF"}, {"head": 4097}, {"head": 1 << 63}])
def test_a_ring_that_cannot_be_is_a_failure(tmp_path: Path, what: dict[str, Any]) -> None:
    with pytest.raises(Failure, match=r"ring: (not a capture|what the switch wrote)"):
        Ring(ring_file(tmp_path / "ring", **what), os.getuid()).take()


@pytest.mark.parametrize("left", [0, 64, 4096, 4100])
def test_a_ring_that_is_cut_off_while_it_is_read_is_a_failure(tmp_path: Path, left: int) -> None:
    path = ring_file(tmp_path / "ring", head=100)
    ring = Ring(path, os.getuid())
    os.truncate(path, left)
    with pytest.raises(Failure, match="no capture's ring"):
        ring.take()
    ring.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("protocol=udp,destination_port=53-60", {"protocol": 17, "destination_port": [53, 60]}),
        ("source=10.0.0.0/8, vlan=7", {"source": "10.0.0.0/8", "vlan": 7}),
        ("ethertype=arp", {"ethertype": 0x806}),
        ("ethertype=0x88cc", {"ethertype": 0x88CC}),
        ("destination=2001:db8::/32", {"destination": "2001:db8::/32"}),
    ],
)
def test_a_match_on_the_command_line(text: str, expected: dict[str, object]) -> None:
    assert parse_match(text) == expected


@pytest.mark.parametrize(
    "text", ["", "color=red", "vlan", "vlan=1,vlan=2", "vlan=many", "vlan=.inf", "vlan=1.9", "source_port=1-2-x"]
)
def test_a_match_that_is_none(text: str) -> None:
    with pytest.raises(Mistake, match="--match"):
        parse_match(text)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("match[1].vlan: expected a number", "--match 'vlan=99999': vlan: expected a number"),
        ("match[0]: nothing can match this", "--match 'protocol=999': nothing can match this"),
        ("match: its ranges are too many", "--match: its ranges are too many"),
        ("no port 'matching'", "no port 'matching'"),
    ],
)
def test_a_match_that_the_switch_refuses_is_named_as_it_was_written(said: str, expected: str) -> None:
    refused = _refused(ControlError("trace.start", -32602, said), ["protocol=999", "vlan=99999"])
    assert str(refused) == expected


class Switch:
    """Refuses captures, or takes them."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.said: list[str] = []

    def call(self, method: str, **_params: object) -> Any:
        self.said.append(method)
        if self.refuses:
            raise ControlError(method, UNKNOWN, "no port 'nosuch'")
        return {"capture": 1, "rings": []}


def test_a_capture_that_is_refused_leaves_an_older_file_as_it_was(tmp_path: Path) -> None:
    old = tmp_path / "x.pcap"
    old.write_bytes(b"of yesterday")
    with pytest.raises(ControlError, match="no port 'nosuch'"):
        capture(cast(Control, Switch(refuses=True)), {}, lambda: Writer(old, Bounds(size=1000), 96), stop=lambda: True)
    assert old.read_bytes() == b"of yesterday"


def test_a_file_that_cannot_be_made_ends_the_capture(tmp_path: Path) -> None:
    switch = Switch(refuses=False)
    nowhere = tmp_path / "nosuch" / "x.pcap"
    with pytest.raises(Mistake, match="choose another file"):
        capture(cast(Control, switch), {}, lambda: Writer(nowhere, Bounds(size=1000), 96), stop=lambda: True)
    assert switch.said == ["capture.start", "capture.stop"]


def test_frames_are_for_nobody_else_to_read(tmp_path: Path) -> None:
    was_there = tmp_path / "there.pcap"
    was_there.write_bytes(b"x" * 1000)
    was_there.chmod(0o644)
    for path in (tmp_path / "x.pcap", was_there):
        Writer(path, Bounds(size=1000), 96).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size == 24
    Writer(Path("/dev/null"), Bounds(size=1000), 96).close()
    assert stat.S_IMODE(Path("/dev/null").stat().st_mode) == 0o666


def test_sightings_of_a_frame_are_put_together() -> None:
    trail = Trail()
    steps = [
        (100, 1, 7, "enters by port a"), (110, 1, 7, "leaves by port f.0"), (120, 2, 8, "enters by port a"),
        (300, 3, 7, "enters by port f.1"), (310, 3, 7, "leaves by port b"), (400, 4, 7, "enters by port a"),
    ]  # fmt: skip
    trail.add(Note(time, sighting, mark, 60, text) for time, sighting, mark, text in reversed(steps[3:]))
    trail.add(Note(time, sighting, mark, 60, text) for time, sighting, mark, text in steps[:3])
    frames = trail.frames()
    assert [[each.number for each in frame.sightings] for frame in frames] == [[1, 3], [2], [4]]
    said = lines(1, frames[0], 1_000_000)
    assert said[0] == "frame 1: 64 B, mark 00000007"
    assert said[1].split() == ["0.00", "µs", "enters", "by", "port", "a"]
    assert [line.split()[0] for line in said[1:3]] == ["0.00", "10.00"]
    trail.add([Note(500, 5, 9, 0, "enters by port a"), Note(500, 5, 9, 0, "dropped: it is too short")])
    assert lines(4, trail.frames()[-1], 1_000_000)[0] == "frame 4: not read, mark 00000009"
