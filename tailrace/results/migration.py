"""What `measure migration` found: a machine's moves to another node, as the traffic saw them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tailrace.results.record import Amount, Count, Measurement

PUBLISHED_MS = 500.0
"""The longest outage that others publish for a live migration."""


class MigrationFinding(Measurement):
    """One move, under traffic."""

    method: Literal["migration"] = Field(default="migration", description="What kind of finding it is.")
    trial: str = Field(min_length=1, description="The name of its traffic's trial.")
    acceleration: Literal["kvm", "emulated"] | None = Field(
        description="How the machine runs: an emulator has a part in all times; null where that is not known."
    )
    outages_ms: dict[str, Amount] = Field(
        description="Of each stream, the longest time without any of its frames, in ms; known to the time between two "
        "frames of the stream."
    )
    frame_ms: Amount = Field(description="The time between two frames of a stream, in ms.")
    pause_ms: Amount = Field(description="How long the machine stood still, as QEMU has counted, in ms.")
    switch_ms: Amount = Field(description="From its end at the source until it forwarded at the target, in ms.")
    total_ms: Amount = Field(description="All that the move took, in ms.")
    rounds: Count = Field(description="Rounds in which its memory was sent.")
    bytes: Count = Field(description="Bytes of its memory.")
    forwarded: Count = Field(description="Frames that came to the source meanwhile, and were sent on to the target.")
    parked: Count = Field(description="Frames that waited for it at the target, and that it got there; with those.")
    lost: Count = Field(description="Frames lost, of all streams; so below.")
    duplicate: Count = Field(description="Copies of a frame after its first.")
    out_of_sequence: Count = Field(description="Frames reordered by RFC 4737, section 3.")

    @property
    def outage_ms(self) -> float:
        """Of the stream that was without frames for longest."""
        return max(self.outages_ms.values(), default=0.0)
