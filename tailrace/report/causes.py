"""Tables of why the slowest frames were slow, for the terminal and the HTML report: the same rows in both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, count, microseconds, trial_name
from tailrace.results.causes import Cause, CausedFrame, Causes
from tailrace.results.model import Run

INCIDENTS = 10
"""How many are shown; results.json has all frames."""
WORST = 3
"""How many a summary shows: of one receiver so many, of several the worst of each."""
_CAUSES = 3
"""How many of a frame's causes are shown one by one, beside what is unexplained; of the others the sum."""

CAUSE_TITLES = ("cause", "first of", "in the trial", "together µs", "longest µs", "knobs")
KNOBS = CAUSE_TITLES.index("knobs")
"""A column of words."""


@dataclass(frozen=True)
class What:
    """What was slow, in words."""

    name: str
    sent: str
    remark: str


FRAME = What(
    "frame",
    "sent",
    "Unexplained: a polling thread was held up, and nothing recorded shows why; firmware or a hypervisor may be the "
    "cause. Usual: no thread was held up; it worked, or the frame waited behind others.",
)
INTERRUPT = What(
    "interrupt",
    "raised",
    "Usual: nothing that was recorded kept the receiver: it worked, or the interrupt was on its way.",
)


@dataclass(frozen=True)
class Incident:
    """One slow frame or interrupt, and why."""

    heading: str
    parts: tuple[tuple[str, str, str], ...]
    """Time, part of the latency, and whose it is: the greatest first, the usual time last; they add up."""
    evidence: tuple[str, ...]
    """What was seen meanwhile."""


@dataclass(frozen=True)
class Table:
    """One direction of a trial, or one receiver: its slowest incidents, and how often their causes came."""

    heading: str
    incidents: tuple[Incident, ...]
    cause_rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]


def tables(run: Run) -> Iterator[Table]:
    """A table for each direction, and each receiver of interrupts, whose causes were recorded."""
    for trial in run.trials:
        for way in trial.directions:
            if way.hops is not None and way.hops.causes is not None:
                yield table_of(f"{trial_name(trial)}, {plain(way.name)}", way.hops.causes)
    for host_trial in run.host_trials:
        if host_trial.causes is not None:
            yield table_of(plain(host_trial.name), host_trial.causes, INTERRUPT)


def worst(run: Run) -> Iterator[tuple[str, tuple[Incident, ...]]]:
    """For a summary: the worst incidents of each receiver of interrupts, below what they are of."""
    found = [table for table in tables(run) if run.host_trials and table.incidents]
    for table in found:
        yield f"The worst of {table.heading}", table.incidents[: WORST if len(found) == 1 else 1]


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


def table_of(heading: str, causes: Causes, what: What = FRAME) -> Table:
    """The table of one direction's or one receiver's causes."""
    shown = incidents(causes.frames)
    return Table(
        heading=heading,
        incidents=tuple(_incident(frame, more, what) for frame, more in shown[:INCIDENTS]),
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
        remarks=tuple(_remarks(causes, len(shown), what)),
    )


def _incident(frame: CausedFrame, more: int, what: What) -> Incident:
    others = f" and {more} more" if more else ""
    where = f", held up in {plain(frame.part)}" if frame.part is not None else ""
    cpu = f" on CPU {frame.cpu}" if frame.cpu is not None else ""
    cpu += f" of {plain(frame.inside)}" if frame.inside else ""
    latency = microseconds(frame.latency_us)
    when = f"{what.sent} {frame.sent:%H:%M:%S.%f} UTC"
    return Incident(
        f"{what.name} {count(frame.sequence)}{others}: {latency} µs{where}{cpu}, {when}",
        tuple(
            (f"{microseconds(us)} µs", f"{us / frame.latency_us if frame.latency_us else 0:.0%}", plain(text))
            for us, text in _parts(frame)
        ),
        tuple(map(plain, frame.evidence)),
    )


def _parts(frame: CausedFrame) -> Iterator[tuple[float, str]]:
    """What a frame's latency went to, the greatest first: causes and the unexplained, and at last the usual time."""
    unexplained = [(frame.unexplained_us, "unexplained")] if frame.unexplained_us else []
    causes = [(cause.us, _words(cause)) for cause in frame.causes]
    shown = _CAUSES if len(causes) > _CAUSES + 1 else len(causes)
    yield from sorted([*unexplained, *causes[:shown]], key=lambda part: -part[0])
    if rest := causes[shown:]:
        yield sum(us for us, _ in rest), f"{len(rest)} smaller causes"
    yield frame.usual_us, "usual"


def _words(cause: Cause) -> str:
    """A cause, with what it took from each poller where it held up several."""
    if len(cause.held_up_us) < 2:
        return cause.text
    return f"{cause.text}; {', '.join(f'{name} {microseconds(us)} µs' for name, us in cause.held_up_us.items())}"


def _remarks(causes: Causes, number: int, what: What) -> Iterator[str]:
    yield (
        f"{count(len(causes.frames))} slow {what.name}s in {count(number)} incident{'' if number == 1 else 's'}. "
        f"Causes, unexplained and usual time add up to the latency. {what.remark}"
    )
    mostly = sum(frame.unexplained_us > max((each.us for each in frame.causes), default=0) for frame in causes.frames)
    if mostly:
        yield f"In {count(mostly)} of the slow {what.name}s the unexplained time is longer than any cause."
    held = [f"{plain(name)} {count(times)}" for name, times in causes.gaps.items()]
    if held:
        yield f"Held up for more than {causes.limit_us:g} µs in the trial: {', '.join(held)} times."
    if causes.unexamined:
        yield (
            f"Of the slowest {what.name}s, {count(causes.unexamined)} were overwritten in the recording before they "
            "were read."
        )
    if causes.unexamined_inside:
        yield (f"Of {count(causes.unexamined_inside)} it is not known what the guest did; that is in their usual time.")
    if causes.lost:
        yield f"The kernel could not deliver {count(causes.lost)} events, so causes may be missing above."
    yield f"The kernel's times are exact to {causes.clock_error_us:.2f} µs."
