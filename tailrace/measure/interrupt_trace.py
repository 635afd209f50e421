"""The slowest interrupts as a trace file: what their receiver and its CPU did from raised to arrived, for a viewer; or
as text. Of a machine there is what this host did with its CPU, and what the guest did, on one clock.

The format is Chrome's trace event format, which Perfetto and chrome://tracing open
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). Each CPU and each receiver is a
"process" there, whose tracks are its "threads". Times are in µs since the earliest that is shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.kernel.plain_file import plain_file
from tailrace.measure.causes import Poller
from tailrace.measure.function_trace import FUNCTION
from tailrace.observe.recording import Event
from tailrace.report.figures import microseconds
from tailrace.results.causes import KEPT, CausedFrame
from tailrace.results.run import write_atomically

MOST_EVENTS = 100_000
"""Of a file: about 15 MB, which the viewers open at once."""
TEXT = ".txt"
"""How the name of a file ends that is to be text."""
MOST_OF_ONE = 5_000
"""Of one interrupt."""
_CPU_TRACKS: Mapping[str, str] = {
    "task": "tasks", "interrupt": "interrupts", "softirq": "softirqs", "nmi": "non-maskable interrupts"
}  # fmt: skip
_STATES = ("ready", "asleep", "blocked", "stopped")
_STATE, _EXITS, _SLOW = "state of the thread", "exits to this host", "the slowest interrupts"


@dataclass(frozen=True)
class Slow:
    """A slow interrupt, and what is known of its time; times in TSC cycles."""

    receiver: Poller
    frame: CausedFrame
    raised: int
    arrived: int
    events: Sequence[Event]
    inside: Poller | None = None
    """The receiver in its machine."""

    def whose(self, event: Event) -> Poller | None:
        """The receiver, on this host or in its machine, whose thread an event is of."""
        receiver = self.inside if event.inside else self.receiver
        return receiver if receiver is not None and event.id == receiver.thread else None


@dataclass
class Trace:
    """The slowest of each receiver in the run."""

    hz: int = 1
    resumed: bool = False
    """It is of the run since it was resumed: what happened before then is gone."""
    _slowest: dict[str, list[Slow]] = field(default_factory=dict)

    def add(self, found: Iterable[Slow]) -> None:
        """Those of a slice; the slowest of all so far are kept."""
        for slow in found:
            kept = self._slowest.setdefault(slow.receiver.name, [])
            kept.append(slow)
            kept.sort(key=lambda each: each.raised - each.arrived)
            del kept[KEPT:]

    def _in_order(self) -> list[Slow]:
        return sorted(
            (slow for kept in self._slowest.values() for slow in kept), key=lambda each: each.raised - each.arrived
        )

    @property
    def _of(self) -> str:
        return "the run since it was resumed" if self.resumed else "the run"

    def document(self) -> dict[str, Any]:
        """All of it as the format has it."""
        slowest = self._in_order()
        tracks, left_out = _Tracks(self.hz), 0
        for slow in slowest:
            tracks.add_slow(slow)
        for slow in slowest:
            room = min(MOST_OF_ONE, MOST_EVENTS - len(tracks.known))
            left_out += max(len(slow.events) - room, 0)
            tracks.add_events(slow, slow.events[:room])
        earliest = min((slow.frame.sent for slow in slowest), default=None)
        return {
            "displayTimeUnit": "ns",
            "otherData": {
                "first interrupt raised": earliest.isoformat() if earliest else "",
                "interrupts": str(len(slowest)),
                "of": self._of,
                "events left out": str(left_out),
            },
            "traceEvents": list(tracks.events()),
        }

    def text(self) -> str:
        """The same as lines: the slowest first, of each what happened in the order of time, in µs since it was
        raised."""
        lines = [f"The slowest of {self._of}"] if self.resumed else []
        for slow in self._in_order():
            lines += ["", *_lines(slow, self.hz)] if lines else _lines(slow, self.hz)
        return "".join(f"{line}\n" for line in lines)

    def write(self, path: Path) -> None:
        """As text where the file's name ends in .txt. Raises Failure, Mistake."""
        try:
            as_text = path.suffix == TEXT
            write_atomically(
                plain_file(path), self.text() if as_text else json.dumps(self.document(), separators=(",", ":"))
            )
        except OSError as error:
            raise Failure(f"{path}: the trace cannot be written: {error.strerror}; is there room?") from None


def check_path(path: Path) -> None:
    """Before anything is measured. Raises Mistake where no file can be written there."""
    if not plain_file(path).parent.is_dir():
        raise Mistake(f"{path}: there is no folder {path.parent}; make it first, or name another file")


@dataclass
class _Slice:
    """What stands on a track."""

    begin: int
    end: int
    name: str
    kind: str
    arguments: Mapping[str, Any]


@dataclass
class _Tracks:
    """By the name of a process and of its track."""

    hz: int
    found: dict[tuple[str, str], list[_Slice]] = field(default_factory=dict)
    marks: list[tuple[tuple[str, str], _Slice]] = field(default_factory=list)
    known: set[Event] = field(default_factory=set)

    def add_slow(self, slow: Slow) -> None:
        frame = slow.frame
        about = {"raised": frame.sent.isoformat()}
        about |= {str(number): f"{_us(cause.us)} {cause.text}" for number, cause in enumerate(frame.causes, 1)}
        about |= {"unexplained": _us(frame.unexplained_us), "usual": _us(frame.usual_us)}
        name = f"interrupt {frame.sequence}: {_us(frame.latency_us)}"
        self._add(_process(slow.receiver), _SLOW, _Slice(slow.raised, slow.arrived, name, "slow", about))

    def add_events(self, slow: Slow, events: Iterable[Event]) -> None:
        for event in events:
            if event in self.known:  # of another interrupt at the same time
                continue
            self.known.add(event)
            begin, end, cpu, kind, id_, name, extra, inside = event
            if kind in _CPU_TRACKS:
                about = {"thread": id_, "priority": extra} if kind == "task" else {"line": id_}
                self._add(_cpu(cpu, inside), _CPU_TRACKS[kind], _Slice(begin, end, name or kind, kind, about))
                continue
            if kind == FUNCTION:
                about = {"depth": extra}
                self._add(_cpu(cpu, inside), f"functions of thread {id_}", _Slice(begin, end, name, kind, about))
                continue
            whose = slow.whose(event)
            if whose is not None and kind in _STATES:
                self._add(_process(whose), _STATE, _Slice(begin, end, kind, kind, {}))
            elif whose is not None and kind == "exit":
                self._add(_process(whose), _EXITS, _Slice(begin, end, name, kind, {"reason": extra}))
            elif whose is not None and kind == "fault":
                self.marks.append(((_process(whose), _STATE), _Slice(begin, begin, "page fault", kind, {})))

    def _add(self, process: str, track: str, slice_: _Slice) -> None:
        self.found.setdefault((process, track), []).append(slice_)

    def events(self) -> Iterator[dict[str, Any]]:
        """The format's events: names first."""
        numbers = {key: number for number, key in enumerate(dict.fromkeys([*sorted(self.found), *self._marked()]), 1)}
        # None is the number of a track, too: Perfetto gives each process a thread of the process's own number.
        names = dict.fromkeys(name for name, _ in numbers)
        processes = {name: number for number, name in enumerate(names, len(numbers) + 1)}
        base = min((slice_.begin for slices in self.found.values() for slice_ in slices), default=0)

        def us(tsc: int) -> float:
            return round((tsc - base) / self.hz * 1e6, 3)

        for name, number in processes.items():
            yield {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for (process, track), number in numbers.items():
            at = {"pid": processes[process], "tid": number}
            yield {"ph": "M", "name": "thread_name", **at, "args": {"name": track}}
        for key, slices in self.found.items():
            at = {"pid": processes[key[0]], "tid": numbers[key]}
            for each in _nested(slices):
                begin = us(each.begin)
                span = {"ts": begin, "dur": round(us(each.end) - begin, 3)}
                yield {"ph": "X", "name": each.name, "cat": each.kind, **at, **span, "args": dict(each.arguments)}
        for key, each in self.marks:
            at = {"pid": processes[key[0]], "tid": numbers[key]}
            yield {"ph": "i", "s": "t", "name": each.name, "cat": each.kind, **at, "ts": us(each.begin)}

    def _marked(self) -> Iterator[tuple[str, str]]:
        return (key for key, _ in self.marks)


def _us(us: float) -> str:
    return f"{microseconds(us)} µs"


def _cpu(cpu: int, inside: str) -> str:
    return f"machine {inside}, CPU {cpu}" if inside else f"CPU {cpu}"


def _process(receiver: Poller) -> str:
    where = "in the machine" if receiver.inside else ""
    return " ".join(filter(None, ("receiver", receiver.name, where))) + f", thread {receiver.thread}"


def _lines(slow: Slow, hz: int) -> Iterator[str]:
    """One interrupt and all that is known of its time, as text."""

    def us(cycles: int) -> str:
        return f"{cycles / hz * 1e6:.3f}"

    frame = slow.frame
    yield f"{slow.receiver.name}, interrupt {frame.sequence}: {_us(frame.latency_us)}, raised {frame.sent.isoformat()}"
    for cause in frame.causes:
        yield f"  {_us(cause.us)} {cause.text}"
    yield f"  {_us(frame.unexplained_us)} unexplained, {_us(frame.usual_us)} usual"
    yield f"  {'from µs':>12} {'to µs':>12}"
    for event in sorted(slow.events, key=lambda each: (each.begin, -each.end))[:MOST_OF_ONE]:
        whose = slow.whose(event)
        if event.kind in _CPU_TRACKS:
            number = f" (thread {event.id})" if event.kind == "task" else f" {event.id}" if event.id else ""
            where, what = _cpu(event.cpu, event.inside), f"{event.kind} {event.name}{number}"
        elif event.kind == FUNCTION:
            where, what = _cpu(event.cpu, event.inside), f"{'  ' * event.extra}{event.name}() of thread {event.id}"
        elif whose is not None:
            where, what = _process(whose), " ".join(filter(None, (event.kind, event.name)))
        else:
            continue
        yield f"  {us(event.begin - slow.raised):>12} {us(event.end - slow.raised):>12}  {where}: {what}"


def _nested(slices: Iterable[_Slice]) -> Iterator[_Slice]:
    """Slices of one track, in order. Where two overlap and neither holds the other, as viewers want it, the later one
    begins with the end of the earlier one: the kernel's times are exact to some tens of nanoseconds only."""
    around: list[int] = []
    least = 0
    for each in sorted(slices, key=lambda one: (one.begin, -one.end)):
        begin = max(each.begin, least)
        while around and (around[-1] <= begin or each.end > around[-1]):
            begin = max(begin, around.pop())
        if begin < each.end or begin == each.begin:
            least = begin
            around.append(each.end)
            yield replace(each, begin=begin)
