"""What a trial sends: a profile as the user names it, and as the tester is told."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from tailrace.errors import Mistake
from tailrace.results.record import CAPTURE_SUM, TrafficKind
from tailrace.spec.traffic import IMIX_FRAMES, IMIX_WEIGHTS, LARGEST_FRAME, SMALLEST_FRAME

_ETHERNET = 1
_PCAP_HEADER = 24
#: Time stamps in µs, in ns, and a variant of the first that libpcap reads too.
_PCAP_MAGIC = (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34)
_RECORD_HEADER, _SMALLEST_BLOCK = 16, 12
#: pcapng: the types of blocks that hold a frame with the lengths of it, and of one that has the frame's own alone.
_FRAME_BLOCKS, _SIMPLE_BLOCK = (2, 6), 3
#: So many bytes of a block have all that is asked of it; those of a simple one before its frame, and around it.
_BLOCK_HEAD, _SIMPLE_HEAD, _SIMPLE_AROUND = 28, 12, 16
#: An Ethernet header, and one with a VLAN tag, by the types that say that there is one.
_HEADER, _TAG, _TAGGED = 14, 4, (b"\x81\x00", b"\x88\xa8")
_FCS = 4
#: The shortest frame, without the FCS, which captures leave out.
_SHORTEST = SMALLEST_FRAME - 4
#: Hexadecimal digits of a file's check sum that results have.
_DIGITS = 16
#: Bytes of frames, as they are sent, that the tester reads of a capture (dataplane/tester/capture.h).
_MOST_BYTES = 1 << 30
#: pcapng: the type of the first block, the mark of its byte order, and the type of an interface's block.
_SECTION, _BYTE_ORDER, _INTERFACE = b"\x0a\x0d\x0d\x0a", 0x1A2B3C4D, 1


@dataclass(frozen=True)
class Contents:
    """What a capture file holds."""

    mean: float
    """Bytes of a frame as it is sent, with the FCS."""
    number: int
    """The frame with the longest payload, the first of which is 1."""
    length: int
    """Bytes of that frame, without the FCS, which captures leave out."""
    payload: int
    """Its bytes behind the Ethernet header and a VLAN tag: what an MTU bounds."""


@dataclass(frozen=True)
class Profile:
    """One kind of traffic; the same in both directions."""

    name: str
    """A frame size in bytes, `imix` or `pcap`."""
    traffic: dict[str, Any]
    note: str | None = None
    """What a reader of the results must know of it."""
    contents: Contents | None = None
    """Of a capture."""
    capture: str | None = None
    """What results call the capture file by, whose name alone would not tell it from another."""

    @property
    def kind(self) -> TrafficKind:
        """As results know it."""
        return TrafficKind(self.name, self.traffic.get("flows"), self.capture)

    def streams(self, rate: float, ends: Sequence[str] = ("a", "b")) -> list[dict[str, Any]]:
        """The tester's streams: one in each direction at `rate` frames a second (0: as fast as possible)."""
        first, last = ends
        return [
            {"name": f"{source}-to-{sink}", "from": source, "to": sink, "rate": rate, **self.traffic}
            for source, sink in ((first, last), (last, first))
        ]


def profile(frames: int | str, flows: int = 1) -> Profile:
    """The profile of a frame size or of `imix`."""
    if frames == "imix":
        return Profile("imix", {"frames": list(IMIX_FRAMES), "weights": list(IMIX_WEIGHTS), "flows": flows})
    return Profile(str(frames), {"frames": [int(frames)], "flows": flows})


def capture(path: Path) -> Profile:
    """The frames of a capture file. Raises Mistake if it cannot be read, holds no Ethernet frames, or was cut off."""
    try:
        stat = path.stat()
        return _capture(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}; expected a capture file (pcap)") from None


@lru_cache(maxsize=8)
def _capture(path: Path, _modified: int, _size: int) -> Profile:
    """The same of a file as it is now: it is asked for more than once, and may be large. Raises OSError too."""
    with path.open("rb") as file:
        start = file.read(4096)
        link = _link_type(start)
        if link is None:
            raise Mistake(f"{path}: this is no capture file; expected a pcap or pcapng file, as `tcpdump -w` writes it")
        if link != _ETHERNET:
            raise Mistake(f"{path}: a capture of link type {link}; expected one of Ethernet frames (link type 1)")
        number = short = sent = 0
        largest = (0, 0, 0)
        for number, frame in enumerate(_frames(file, start), 1):
            if frame is None:
                raise Mistake(
                    f"{path}: the file ends within frame {number}: it was cut off, or is still being written; expected "
                    f"a whole one, or what is good of it (`editcap -r {path} OUT 1-{number - 1}`)"
                )
            kept, length, tagged = frame
            if kept < length:
                raise Mistake(
                    f"{path}: frame {number} was cut to {kept} of {length} bytes when it was captured; expected whole "
                    "frames (`tcpdump -s 0`)"
                )
            short += kept < _SHORTEST
            sent += max(kept, _SHORTEST) + _FCS
            payload = kept - _HEADER - _TAG * tagged
            if payload > largest[2] or number == 1:
                largest = (number, kept, payload)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if not number:
        raise Mistake(f"{path}: there is no frame in it; expected at least one")
    if sent - number * _FCS > _MOST_BYTES:
        half = max(number // 2, 1)
        raise Mistake(
            f"{path}: larger than {_MOST_BYTES >> 20} MiB; expected a part of it (`editcap -r {path} OUT 1-{half}`)"
        )
    note = (
        f"{short:,} of the {number:,} frames of {path.name} are shorter than {_SHORTEST} bytes: they are sent padded "
        f"with zeros to {_SHORTEST}, the shortest that Ethernet has (without the FCS)"
    )
    contents = Contents(sent / number, *largest)
    name = f"{path.name}{CAPTURE_SUM}{digest[:_DIGITS]}"
    return Profile("pcap", {"pcap": str(path.absolute())}, note if short else None, contents, name)


def _frames(file: BinaryIO, start: bytes) -> Iterator[tuple[int, int, bool] | None]:
    """Of each frame of a capture file, the bytes that were kept, those that it had, and whether it has a VLAN tag; None
    where the file ends within one. Nothing of what is no capture file."""
    size = file.seek(0, os.SEEK_END)
    pcap = next(
        (o for o in ("<", ">") if len(start) >= _PCAP_HEADER and struct.unpack_from(f"{o}I", start)[0] in _PCAP_MAGIC),
        None,
    )
    order = pcap or next((o for o in ("<", ">") if start[8:12] == struct.pack(f"{o}I", _BYTE_ORDER)), None)
    if order is None or (pcap is None and start[:4] != _SECTION):
        return
    at = _PCAP_HEADER if pcap else 0
    while at < size:
        file.seek(at)
        head = file.read(_BLOCK_HEAD + _HEADER)
        words = struct.unpack_from(f"{order}{len(head) // 4}I", head)
        if pcap:
            length = _RECORD_HEADER + words[2] if len(words) >= _RECORD_HEADER // 4 else 0
        else:
            length = words[1] if len(words) >= 2 else 0
        if length < (_RECORD_HEADER if pcap else _SMALLEST_BLOCK) or at + length > size:
            yield None
            return
        if pcap:
            yield words[2], words[3], _tagged(head, _RECORD_HEADER, words[2])
        elif words[0] == _SIMPLE_BLOCK:
            # It says what the frame had; what was kept of it fills the block.
            kept = min(words[2], length - _SIMPLE_AROUND)
            yield kept, words[2], _tagged(head, _SIMPLE_HEAD, kept)
        elif words[0] in _FRAME_BLOCKS:
            known = len(words) >= _BLOCK_HEAD // 4
            yield (words[5], words[6], _tagged(head, _BLOCK_HEAD, words[5])) if known else (0, 0, False)
        at += length


def _tagged(head: bytes, begin: int, kept: int) -> bool:
    """Whether a frame that begins there has a VLAN tag."""
    return kept >= _HEADER + _TAG and head[begin + _HEADER - 2 : begin + _HEADER] in _TAGGED


def _link_type(start: bytes) -> int | None:
    """The link type that a capture file begins with (IETF draft-ietf-opsawg-pcap and -pcapng); None if it is none."""
    for order in ("<", ">"):
        if len(start) >= _PCAP_HEADER and struct.unpack_from(f"{order}I", start)[0] in _PCAP_MAGIC:
            return int(struct.unpack_from(f"{order}I", start, 20)[0] & 0xFFFF)
        if start[:4] == _SECTION and start[8:12] == struct.pack(f"{order}I", _BYTE_ORDER):
            (section,) = struct.unpack_from(f"{order}I", start, 4)
            if section + 10 > len(start) or struct.unpack_from(f"{order}I", start, section)[0] != _INTERFACE:
                return None
            return int(struct.unpack_from(f"{order}H", start, section + 8)[0])
    return None


def parse_frames(text: str) -> list[int | str]:
    """`64,imix` → [64, "imix"]. Raises Mistake."""
    found: list[int | str] = []
    for part in text.split(","):
        word = part.strip()
        if word == "imix":
            size: int | str = word
        elif word.isdecimal() and SMALLEST_FRAME <= int(word) <= LARGEST_FRAME:
            size = int(word)
        else:
            raise Mistake(
                f"--frames {text}: {word!r} is no profile; "
                f"expected frame sizes from {SMALLEST_FRAME} to {LARGEST_FRAME}, or imix, such as 64,imix"
            )
        if size in found:
            raise Mistake(f"--frames {text}: {word} is listed twice; expected each profile once")
        found.append(size)
    return found
