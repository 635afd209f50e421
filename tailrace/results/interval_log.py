"""The interval log of a soak: one append-only file that a crash, a power cut or a full disk cannot spoil.

It is an HDR V2 histogram log, so that Python's hdrhistogram opens it, also while it grows. Each interval has a line for
each direction that received frames, and then a comment that commits them, with the counts and the CRC-32 of the block:

    #[Soak {...}]           what was asked (`Header`)
    #[Part CRC {...}]       the tester begins, or begins again after a gap
    Tag=a-to-b,...          the distribution of an interval
    #[Interval CRC {...}]
    #[End CRC {...}]        the part has ended in order, and why

A block is written with one call and is on disk before the next one is measured. What follows the last whole block is
what a crash has torn: it is dropped, and reported.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tailrace.results.histogram import Histogram, decode, log_head, log_line
from tailrace.results.intervals import FORMAT, End, Entry, Header, Interval, Part, Way
from tailrace.results.model import Alone, ResultError

SUFFIX = ".intervals.hlog"
_HEADER = TypeAdapter(Header)
_ENTRIES: dict[bytes, TypeAdapter[Entry]] = {
    b"Part": TypeAdapter(Part), b"Interval": TypeAdapter(Interval), b"End": TypeAdapter(End),
}  # fmt: skip


class IntervalLog:
    """The log being written, by one thread of the one process that has the run folder (results/lock.py)."""

    def __init__(self, path: Path, header: Header, descriptor: int, size: int) -> None:
        self.path = path
        self.header = header
        self._descriptor = descriptor
        self._size = size

    @classmethod
    def create(cls, path: Path, header: Header) -> IntervalLog:
        """A new log. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        log = cls(path, header, descriptor, 0)
        log._write(log_head(header.started_at, f"#[Soak {_json(asdict(header))}]"))
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return log

    @classmethod
    def reopen(cls, reader: LogReader) -> tuple[IntervalLog, int]:
        """The log that `reader` has read to its end, to be gone on with, and the bytes of a torn end that were dropped.

        Raises OSError.
        """
        descriptor = os.open(reader.path, os.O_RDWR | os.O_CLOEXEC)
        torn = os.fstat(descriptor).st_size - reader.offset
        if torn:
            os.ftruncate(descriptor, reader.offset)
            os.fsync(descriptor)
        return cls(reader.path, reader.header, descriptor, reader.offset), torn

    def begin(self, part: Part) -> None:
        """A part begins. Raises OSError, as the others do, with the log as it was before."""
        self._write(_block("Part", asdict(part)))

    def add(self, interval: Interval) -> None:
        """Put an interval, with its histograms, on disk."""
        lines = "".join(
            log_line(way.name, interval.start_s, interval.end_s - interval.start_s, histogram)
            for way, histogram in zip(interval.ways, interval.histograms, strict=True)
            if histogram.counts
        )
        document = {name: value for name, value in vars(interval).items() if name not in ("ways", "histograms")}
        self._write(_block("Interval", {**document, "ways": [asdict(way) for way in interval.ways]}, lines))

    def end(self, end: End) -> None:
        """The part has ended in order."""
        self._write(_block("End", asdict(end)))

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode())
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], self._size + done)
            os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += done


class LogReader:
    """Reads a log; asked again, what has been added since. It holds one block at a time."""

    def __init__(self, path: Path, *, histograms: bool = False) -> None:
        """Raises ResultError if there is no log, or one of another kind or of a newer format."""
        self.path = path
        self.offset = 0
        """Where the first block begins that is not there whole."""
        self.damaged = 0
        """Blocks before it that were not what had been written; they are left out."""
        self._histograms = histograms
        self.header = self._read_header()

    def entries(self) -> Iterator[Entry]:
        """What is there whole and has not been given yet, in order. Raises ResultError if the log cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                place, suspects = self.offset, 0
                lines: list[bytes] = []
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    place += len(line)
                    if not line.startswith(b"#["):
                        lines.append(line)
                        continue
                    entry = self._parse(lines, line)
                    lines = []
                    if entry is None:
                        suspects += 1  # torn, unless something whole follows
                        continue
                    self.offset = place
                    self.damaged += suspects
                    suspects = 0
                    yield entry
        except OSError as error:
            raise ResultError(f"{self.path}: {error.strerror}") from error

    def _read_header(self) -> Header:
        text: bytes | None = None
        try:
            with self.path.open("rb") as file:
                for line in file:
                    self.offset += len(line)
                    if line.startswith(b"#[Soak ") and line.endswith(b"]\n"):
                        text = line[7:-2]
                    if not line.startswith(b"#"):
                        break
            if text is None:
                raise ResultError(f"{self.path}: this is not the log of a soak")
            written = json.loads(text).get("format", 0)
            if written > FORMAT:
                raise ResultError(
                    f"{self.path}: written in format {written}, but this Tailrace reads up to format {FORMAT}; "
                    "upgrade Tailrace"
                )
            header = _HEADER.validate_json(text, strict=True)
            if header.alone is not None:
                Alone.model_validate(header.alone)
            return header
        except OSError as error:
            raise ResultError(f"{self.path}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ResultError(f"{self.path}: its first lines are damaged: {_what(error)}") from error

    def _parse(self, lines: list[bytes], comment: bytes) -> Entry | None:
        """The entry that a comment commits; None if it is not what was written.

        Raises ResultError if it is, and yet no entry of this soak: no crash and no disk leaves that.
        """
        try:
            kind, check, text = comment[2:-2].split(b" ", 2)
            if int(check, 16) != zlib.crc32(b"".join([*lines, text])):
                return None
        except ValueError:
            return None
        try:
            if kind not in _ENTRIES:
                raise ValueError(f"a block of the unknown kind {kind[:20]!r}")
            entry = _ENTRIES[kind].validate_json(text, strict=True)
            if not isinstance(entry, Interval):
                return entry
            if sorted(way.name for way in entry.ways) != sorted(stream["name"] for stream in self.header.streams):
                raise ValueError("an interval of other directions than its header's")
            return replace(entry, histograms=self._decode(lines, entry.ways) if self._histograms else ())
        except (ValueError, ResultError) as error:
            raise ResultError(
                f"{self.path}: after its first {self.offset:,} bytes it is not the log of a soak, though its check sum "
                f"is right ({_what(error)}); it was not written by Tailrace, or changed since"
            ) from error

    def _decode(self, lines: list[bytes], ways: tuple[Way, ...]) -> tuple[Histogram, ...]:
        """The histograms of an interval, with their exact extremes and sums."""
        payloads = {}
        for line in lines:
            tag, _, _, _, payload = line.decode("ascii").rstrip("\n").split(",", 4)
            payloads[tag.removeprefix("Tag=")] = payload
        found = []
        for way in ways:
            counts = decode(payloads[way.name]).counts if way.name in payloads else ()
            found.append(Histogram(counts, way.min_ns, way.max_ns, way.sum_ns))
        return tuple(found)


def _what(error: Exception) -> str:
    """What is wrong, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _block(kind: str, document: dict[str, Any], before: str = "") -> str:
    text = _json(document)
    return f"{before}#[{kind} {zlib.crc32((before + text).encode()):08x} {text}]\n"
