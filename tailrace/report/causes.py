"""Tables of why the slowest frames were slow, for the terminal and the HTML report: the same rows in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tailrace.report.figures import MISSING, count, microseconds, plain, trial_name
from tailrace.results.model import CausedFrame, Causes, Run

INCIDENTS = 10
"""How many are shown; results.json has all frames."""
_CAUSES = 3

FRAME_TITLES = (
    "slow frame",
    "and more",
    "latency µs",
    "held up in",
    "CPU",
    "when (UTC)",
    "why",
    "unexplained µs",
    "usual µs",
)
CAUSE_TITLES = ("cause", "first of", "in the trial", "together µs", "longest µs", "knobs")
KNOBS = CAUSE_TITLES.index("knobs")
"""Columns of words."""


@dataclass(frozen=True)
class Table:
    """One direction of a trial: its slowest incidents, and how often their causes came."""

    heading: str
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...]
    """The rows in words, for where a table is too wide."""
    cause_rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]


def tables(run: Run) -> Iterator[Table]:
    """A table for each direction whose causes were recorded."""
    for trial in run.trials:
        for way in trial.directions:
            if way.hops is not None and way.hops.causes is not None:
                yield table_of(f"{trial_name(trial)}, {plain(way.name)}", way.hops.causes)


def incidents(frames: Sequence[CausedFrame]) -> list[tuple[CausedFrame, int]]:
    """The slowest frame of each incident, and how many others were slow at the same time."""
    found: list[tuple[CausedFrame, int]] = []
    for frame in frames:
        for number, (worst, more) in enumerate(found):
            if frame.sent <= _received(worst) and worst.sent <= _received(frame):
                found[number] = (worst, more + 1)
                break
        else:
            found.append((frame, 0))
    return found


def _received(frame: CausedFrame) -> datetime:
    return frame.sent + timedelta(microseconds=frame.latency_us)


def table_of(heading: str, causes: Causes) -> Table:
    """The table of one direction's causes."""
    shown = incidents(causes.frames)
    return Table(
        heading=heading,
        rows=tuple(_row(frame, more) for frame, more in shown[:INCIDENTS]),
        lines=tuple(line for frame, more in shown[:INCIDENTS] for line in _lines(frame, more)),
        cause_rows=tuple(
            (
                plain(each.text),
                count(each.first_of),
                count(each.count),
                microseconds(each.total_us),
                microseconds(each.longest_us),
                plain(", ".join(each.knobs)) or MISSING,
            )
            for each in causes.recurrences
        ),
        remarks=tuple(_remarks(causes, len(shown))),
    )


def _row(frame: CausedFrame, more: int) -> tuple[str, ...]:
    why = [f"{microseconds(cause.us)} µs ({cause.share:.0%}): {cause.text}" for cause in frame.causes[:_CAUSES]]
    if len(frame.causes) > _CAUSES:
        why.append(f"and {len(frame.causes) - _CAUSES} smaller")
    return (
        count(frame.sequence),
        f"+{more}" if more else "",
        microseconds(frame.latency_us),
        plain(frame.part) if frame.part is not None else MISSING,
        str(frame.cpu) if frame.cpu is not None else MISSING,
        f"{frame.sent:%H:%M:%S.%f}",
        plain("; ".join(why)) or "nothing was seen to hold it up",
        microseconds(frame.unexplained_us),
        microseconds(frame.usual_us),
    )


def _lines(frame: CausedFrame, more: int) -> Iterator[str]:
    others = f" and {more} more" if more else ""
    where = f", held up in {plain(frame.part)}" if frame.part is not None else ""
    cpu = f" on CPU {frame.cpu}" if frame.cpu is not None else ""
    latency = microseconds(frame.latency_us)
    yield f"frame {count(frame.sequence)}{others}: {latency} µs{where}{cpu}, sent {frame.sent:%H:%M:%S.%f} UTC"
    for cause in frame.causes[:_CAUSES]:
        yield f"{microseconds(cause.us):>10} µs {cause.share:4.0%}  {plain(cause.text)}"
    for us, text in ((frame.unexplained_us, "unexplained"), (frame.usual_us, "usual")):
        yield f"{microseconds(us):>10} µs {us / frame.latency_us:4.0%}  {text}"


def _remarks(causes: Causes, number: int) -> Iterator[str]:
    yield (
        f"{count(len(causes.frames))} slow frames in {count(number)} incident{'' if number == 1 else 's'}. Causes, "
        "unexplained and usual time add up to a frame's latency; unexplained means that a polling thread was held up "
        "and the kernel knows of nothing: firmware or a hypervisor may be behind it; usual that none was seen to be: "
        "at work, or behind other frames."
    )
    held = [f"{plain(name)} {count(times)}" for name, times in causes.gaps.items()]
    if held:
        yield f"Held up for more than {causes.limit_us:g} µs in the trial: {', '.join(held)} times."
    if causes.unexamined:
        yield f"Of the slowest frames, {count(causes.unexamined)} were gone from the recording before they were read."
    if causes.lost:
        yield f"The kernel could not deliver {count(causes.lost)} events, so something may be missing above."
    yield f"The kernel's times are known to {causes.clock_error_us:.2f} µs."
