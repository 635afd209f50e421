"""What a trial sends: a profile as the user names it, and as the tester is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Mistake
from tailrace.spec.model import IMIX_FRAMES, IMIX_WEIGHTS, LARGEST_FRAME, SMALLEST_FRAME


@dataclass(frozen=True)
class Profile:
    """One kind of traffic; the same in both directions."""

    name: str
    """A frame size in bytes, `imix` or `pcap`."""
    traffic: dict[str, Any]

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
    """The frames of a capture file. Raises Mistake if it cannot be read."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}; expected a capture file (pcap)") from None
    return Profile("pcap", {"pcap": str(path.absolute())})


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
