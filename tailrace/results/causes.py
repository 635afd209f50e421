"""Why the slowest were slow: frames, or interrupts, where a "frame" is an interrupt and "sent" is raised."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import AwareDatetime, Field

from tailrace.results.record import Amount, Count, Record

KEPT = 100
"""Of interrupts so many of the slowest are explained."""


class Cause(Record):
    """What took a part of one frame's latency."""

    kind: str = Field(
        description="stopped, blocked, nmi, interrupt, softirq, task, exit (of a machine, to this host), asleep or "
        "fault (a page fault): what kept a polling thread from its work; or full: a port had no room, and nothing is "
        "known of who should have made some."
    )
    text: str = Field(description="The cause in words.")
    part: str = Field(description="The part of the frame's way that it took most of.")
    thread: str = Field(description="The polling thread that it held up most: worker-N, tester, or a function's name.")
    held_up_us: dict[str, Amount] = Field(
        default_factory=dict,
        description="What it took from each polling thread that it held up, in µs; they add up to what it took of the "
        "frame. Empty in older runs.",
    )
    cpu: Count = Field(description="The CPU that it was on.")
    inside: str = Field(
        default="", description="The machine whose CPU that is, by its receiver's name; empty: this host's."
    )
    us: Amount = Field(description="What it took of the frame's latency, in µs.")
    share: Amount = Field(description="The same as a part of the latency.")
    events: Count = Field(description="Events that it consists of.")
    knobs: tuple[str, ...] = Field(description="Knobs of `tailrace host apply` that act on it.")


class CausedFrame(Record):
    """Why one frame was slow: causes, unexplained and usual add up to its latency."""

    sequence: Count = Field(description="Its sequence number in its stream.")
    latency_us: Amount = Field(description="Its latency in µs.")
    sent: AwareDatetime = Field(description="When it was sent, by the wall clock.")
    sent_tsc: Count = Field(description="The same by the time stamp counter.")
    part: str | None = Field(description="Where it was held up: a part of its way; null if it was not.")
    cpu: Count | None = Field(description="On which CPU; null if it was not.")
    inside: str = Field(default="", description="The machine whose CPU that is; empty: this host's.")
    causes: tuple[Cause, ...] = Field(
        description="Causes, the greatest first; one that held up several polling threads of its CPU is one."
    )
    unexplained_us: Amount = Field(
        description="Time in µs in which a polling thread was held up and nothing shows why: firmware or a hypervisor "
        "may be behind it."
    )
    usual_us: Amount = Field(description="Time in µs in which nobody was held up: at work, or behind other frames.")
    evidence: tuple[str, ...] = Field(description="What was seen meanwhile and has no length of its own.")


class Recurrence(Record):
    """How often a cause came in the whole trial, whether or not it hit a frame."""

    text: str = Field(description="The cause in words.")
    cpu: Count = Field(description="The CPU.")
    first_of: Count = Field(description="Among the frames that were explained, those that it ranks first of.")
    count: Count = Field(description="How often it came in the trial.")
    total_us: Amount = Field(description="What it took of the CPU in all, in µs.")
    longest_us: Amount = Field(description="The longest that came in the trial, in µs.")
    knobs: tuple[str, ...] = Field(description="Knobs of `tailrace host apply` that act on it.")


class Causes(Record):
    """Why the slowest frames were slow, from what a recorder noted of the CPUs and the polling threads."""

    frames: tuple[CausedFrame, ...] = Field(
        description="The slowest frames that could be explained, the slowest first."
    )
    unexamined: Count = Field(description="Slowest frames whose events were gone before they were read.")
    unexamined_inside: Count = Field(
        default=0,
        description="Of interrupts to a machine, those whose events there were gone before they were read, or not to "
        "be had: what the guest did is in their usual time.",
    )
    recurrences: tuple[Recurrence, ...] = Field(description="Causes of these frames, over the whole trial.")
    gaps: dict[str, Count] = Field(
        description="How often each polling thread was held up longer than the limit; empty of interrupts, whose "
        "receivers do not poll."
    )
    limit_us: Amount = Field(description="A round of a polling loop longer than this is a gap, in µs; 0 of interrupts.")
    clock_error_us: Amount = Field(
        description="How exactly the kernel's times are known on the tester's clock, or the sender's, in µs."
    )
    lost: Count = Field(description="Events that the kernel could not deliver.")
    recorded: dict[str, str] = Field(description="What was recorded, and from where.")
    missing: dict[str, str] = Field(description="What could not be recorded on this machine, and why.")

    def and_later(self, later: Self) -> Self:
        """Those of one slice and a later one, maybe of another recorder; `frames` are the slowest of both."""
        slowest = sorted((*self.frames, *later.frames), key=lambda each: -each.latency_us)[:KEPT]
        return later.model_copy(
            update={
                "frames": tuple(slowest),
                "unexamined": self.unexamined + later.unexamined,
                "unexamined_inside": self.unexamined_inside + later.unexamined_inside,
                "recurrences": _sums((*self.recurrences, *later.recurrences)),
                "gaps": {
                    name: self.gaps.get(name, 0) + later.gaps.get(name, 0) for name in {**self.gaps, **later.gaps}
                },
                "clock_error_us": max(self.clock_error_us, later.clock_error_us),
                "lost": self.lost + later.lost,
                "recorded": self.recorded | later.recorded,
                "missing": self.missing | later.missing,
            }
        )


def _sums(recurrences: Iterable[Recurrence]) -> tuple[Recurrence, ...]:
    """One of each cause, those that rank first most often in front."""
    found: dict[tuple[str, int], Recurrence] = {}
    for each in recurrences:
        before = found.get((each.text, each.cpu))
        if before is not None:
            each = each.model_copy(
                update={
                    "first_of": before.first_of + each.first_of,
                    "count": before.count + each.count,
                    "total_us": before.total_us + each.total_us,
                    "longest_us": max(before.longest_us, each.longest_us),
                }
            )
        found[each.text, each.cpu] = each
    return tuple(sorted(found.values(), key=lambda each: (-each.first_of, -each.total_us)))
