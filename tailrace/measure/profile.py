"""What a trial sends: a profile as the user names it, and as the tester is given it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.process.programs import own_program
from tailrace.results.record import CAPTURE_SUM, TrafficKind
from tailrace.spec.traffic import IMIX_FRAMES, IMIX_WEIGHTS, LARGEST_FRAME, SMALLEST_FRAME

#: Hexadecimal digits of a file's check sum that results have.
_DIGITS = 16
#: Exit status of `tailrace-tester --describe-capture` where it says why a file cannot be sent.
_REFUSED = 3


@dataclass(frozen=True)
class Contents:
    """What a capture file holds."""

    mean: float
    """Bytes of a frame as it is sent, with the FCS."""
    number: int
    """The frame with the longest payload, the first of which is 1."""
    length: int
    """Bytes of that frame as it is sent, without the FCS."""
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
    """What results call the capture file by, whose name alone would not distinguish it from another."""

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
    """The frames of a capture file, as the tester will send them. Raises Mistake if it cannot."""
    try:
        stat = path.stat()
        return _capture(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}; expected a capture file (pcap or pcapng)") from None


@lru_cache(maxsize=8)
def _capture(path: Path, _modified: int, _size: int) -> Profile:
    """The same of a file as it is now: it is asked for more than once, and may be large. Raises OSError too."""
    command = [str(own_program("tailrace-tester")), "--describe-capture", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == _REFUSED:
        raise Mistake(done.stdout.strip())
    if done.returncode != 0:
        raise Failure(f"{path}: the tester could not read it: {done.stderr.strip() or f'status {done.returncode}'}")
    said = json.loads(done.stdout)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    contents = Contents(said["bytes"] / said["frames"], said["number"], said["length"], said["payload"])
    name = f"{path.name}{CAPTURE_SUM}{digest[:_DIGITS]}"
    return Profile("pcap", {"pcap": str(path.absolute())}, _changes(path, said), contents, name)


def _changes(path: Path, said: dict[str, int]) -> str | None:
    """What is not sent as it was captured."""
    what = {
        "padded": "are shorter than 60 bytes: they are sent padded with zeros to 60, the shortest that Ethernet has "
        "(without the FCS)",
        "grown": "have less than 18 bytes behind their headers: they are sent with up to 18 bytes more, in which the "
        "tester's signature stands",
        "cut": "have bytes behind their IP datagram, such as padding: these are not sent, as no router sends them on",
    }
    found = [
        f"{said[key]:,} of the {said['frames']:,} frames of {path.name} {text}"
        for key, text in what.items()
        if said[key]
    ]
    return "; ".join(found) or None


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
