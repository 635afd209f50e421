"""Why a frame was slow: its way, part by part, held against what happened on the CPUs of those who had it.

Pure: intervals in, shares out. All times are TSC cycles. For each moment of a part's time it is asked what kept the
poller that had the frame from it; each moment goes to one cause at most, so overlapping events are not counted twice,
and shares, the unexplained rest and the usual time add up to the frame's latency, exactly.

The order in which a moment is given away:

1. the poller was stopped by a signal, or waited in the kernel;
2. its CPU was in an interrupt, or a softirq;
3. its CPU ran another task;
4. it was in a page fault;
5. it was asleep: nothing had woken it yet, or its CPU was at something else, which is then the cause; where another
   poller of that CPU has a gap meanwhile that none of this explains, the CPU was gone for both: unexplained;
6. it noted a gap, and nothing of the above is known: unexplained. Firmware or a hypervisor may be behind it; no more
   than that can be said;
7. the switch had the frame to give, and the next one's ring had no room: what is known of that one (1 to 4, and its
   gaps), and of those after it as far as their rings were full too; where nothing is, that there was no room;
8. of an interrupt to a machine, whose CPU is the poller on this host: where none of 1 to 4 kept that one, that it had
   been left for this host (an exit) while it was not asleep; then what is known of the receiver inside (1 to 4, and
   what its CPU did while it slept); then 5 of the one, and of the other: it was not waked yet;
9. otherwise it was at work: the usual time, waiting behind other frames included.

A part may lie with two pollers: a frame waits in a ring until the switch comes, but it may also be the sender who was
held up before it had shown the frame. What is known of the second one (1 to 4, within its own gaps) goes before 5: who
sleeps may not have been woken because the other was held up.

What held up several pollers of one CPU is one cause, which ranks by all that it took.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from tailrace.measure.hops import Part, Way
from tailrace.observe.gaps import Gap, Rest, Wait
from tailrace.observe.recording import Event

#: A round that moved frames may take so long for each of them, in seconds, before it is a gap.
WORK_PER_FRAME = 0.5e-6
#: From a page fault to waiting for the page it takes no longer, in seconds.
_FAULT_TO_WAIT = 1e-3
#: Causes in the order in which they take a moment: what is known of the first poller, then of the second, then ...
_ORDER = ("stopped", "blocked", "fault-wait", "nmi", "interrupt", "softirq", "task", "fault")
#: ... the CPU taken from others while the first one slept, what happened on it meanwhile, and at last the gaps that
#: nothing explains.
_CPU_GONE = 2 * len(_ORDER)
_WHILE_ASLEEP = _CPU_GONE + 1
#: A machine's CPU, which the first one is, was left for this host, and none of the above is known of that time.
_EXIT = _WHILE_ASLEEP + len(_ORDER)
#: The same of the one inside a machine, whose CPU the first one is: what kept it, what happened while it slept.
_INSIDE = _EXIT + 1
_ASLEEP = _INSIDE + 2 * len(_ORDER)
_ASLEEP_INSIDE = _ASLEEP + 1
_GAP = _ASLEEP_INSIDE + 1
#: After those come the receivers that had no room, each with the same causes and its gaps.
_RECEIVERS, _EACH_RECEIVER = _GAP + 1, len(_ORDER) + 1


@dataclass(frozen=True)
class Poller:
    """A polling thread."""

    name: str
    """`worker-0`, `tester`, or the function's name."""
    thread: int
    cpu: int
    inside: str = ""
    """The machine whose thread and CPU these are; empty: this host's."""


@dataclass(frozen=True)
class Cause:
    """What kept pollers from their work: one, however many pollers of its CPU it kept."""

    kind: str
    """stopped, blocked, nmi, interrupt, softirq, task, exit, asleep, fault, full, or unexplained."""
    name: str
    """Whose interrupt, which task, why a machine was left, which port had no room, ..."""
    cpu: int
    id: int
    """An interrupt's line, or a task's thread; else the thread of the poller whom it is about (of full: the worker)."""
    inside: str = ""
    """The machine whose CPU and thread these are; empty: this host's."""


@dataclass(frozen=True)
class Share:
    """What one cause took of a frame's way."""

    cause: Cause
    part: Part
    """The part that it took most of."""
    cycles: int
    events: int
    """Events that it consists of."""
    held: tuple[tuple[str, int], ...]
    """The pollers that it kept, and the cycles that it took of each, the most first."""

    @property
    def pollers(self) -> tuple[str, ...]:
        """The names of the pollers that it kept, the one that it kept longest first."""
        return tuple(name for name, _ in self.held)


@dataclass(frozen=True)
class Account:
    """Where one frame's latency went: shares, unexplained and usual add up to it."""

    shares: tuple[Share, ...]
    """The greatest first."""
    unexplained: int
    unexplained_most: Share | None
    """What most of the unexplained time is of: one poller in one part."""
    usual: int

    @property
    def first(self) -> Share | None:
        """What ranks first: the greatest share, or where more is unexplained, what most of that is of."""
        greatest = self.shares[0] if self.shares else None
        return greatest if greatest is not None and greatest.cycles >= self.unexplained else self.unexplained_most

    @property
    def total(self) -> int:
        return sum(share.cycles for share in self.shares) + self.unexplained + self.usual


@dataclass(frozen=True)
class Evidence:
    """All that is known of a span of time."""

    events: Sequence[Event] = ()
    gaps: Mapping[int, Sequence[Gap]] = field(default_factory=dict)
    """By thread."""
    waits: Mapping[int, Sequence[Wait]] = field(default_factory=dict)
    """The same, of the switch's workers."""
    pollers: Sequence[Poller] = ()
    """All who note their gaps."""

    def of(self, begin: int, end: int) -> Evidence:
        """What of it lies in or reaches into that time."""
        return Evidence(
            [event for event in self.events if event.end >= begin and event.begin <= end],
            {
                thread: [gap for gap in gaps if gap.end > begin and gap.begin < end]
                for thread, gaps in self.gaps.items()
            },
            {
                thread: [wait for wait in waits if wait.end > begin and wait.begin < end]
                for thread, waits in self.waits.items()
            },
            self.pollers,
        )


@dataclass(frozen=True)
class Hop:
    """Where a worker gives frames from one port to the next."""

    worker: Poller | None
    source: int
    """The switch's number of the port."""
    target: int
    name: str
    """The target's."""
    receiver: Poller | None
    """Who takes frames from the target, and so makes room; None: nobody that we watch."""


@dataclass(frozen=True)
class Holders:
    """Who had the frame in one part of its way."""

    first: Poller | None
    second: Poller | None = None
    onward: tuple[Hop, ...] = ()
    """The hops that still lay before it, where it waited for the next of them."""
    inside: Poller | None = None
    """Who had it in the machine whose CPU the first one is."""


@dataclass(frozen=True)
class _Span:
    begin: int
    end: int
    rank: int
    cause: Cause
    poller: str
    """Whom it kept."""
    event: int
    """Which event it is of, to count them."""


def real_gaps(gaps: Iterable[Gap], hz: int) -> list[Gap]:
    """Those that are more than the work of the frames that they moved."""
    return [gap for gap in gaps if gap.end - gap.begin > gap.frames * WORK_PER_FRAME * hz]


def late_wakes(rests: Iterable[Rest], thread: int, events: Iterable[Event], limit: int) -> Iterator[Gap]:
    """Where a poller that had slept was longer than `limit` on its way back to work.

    That is no round of its own, which it would note. It had its CPU again, as the kernel says, and yet did not come:
    where there is a hypervisor, an interrupt that wakes somebody is what often lets it in.
    """
    woken = sorted(event.end for event in events if event.kind == "asleep" and event.id == thread)
    for rest in rests:
        number = bisect_right(woken, rest.end)
        if number and woken[number - 1] >= rest.begin and rest.end - woken[number - 1] > limit:
            yield Gap(woken[number - 1], rest.end, 0)


def _spans_of(poller: Poller, evidence: Evidence, hz: int) -> list[_Span]:
    """All that is known to have kept a poller, in no order, with their ranks."""
    spans: list[_Span] = []
    gaps = real_gaps(evidence.gaps.get(poller.thread, ()), hz)
    events = [event for event in evidence.events if event.inside == poller.inside]
    own = [event for event in events if event.id == poller.thread]
    faults = sorted(event.begin for event in own if event.kind == "fault")
    off = [event.begin for event in own if event.kind in ("ready", "asleep", "stopped")]
    left = sorted([*off, *(event.begin for event in own if event.kind == "blocked")])
    itself = ("task", poller.thread)
    asleep = sorted((event.begin, event.end) for event in own if event.kind == "asleep")

    def add(begin: int, end: int, rank: int, kind: str, number: int, name: str = "", id_: int = poller.thread) -> None:
        if begin < end:
            cause = Cause(kind, name, poller.cpu, id_, poller.inside)
            spans.append(_Span(begin, end, rank, cause, poller.name, number))

    for number, event in enumerate(events):
        begin, end, cpu, kind, id_, name, *_ = event
        if kind in ("stopped", "blocked", "asleep") and id_ == poller.thread:
            # What is waited for in the kernel after a page fault is the page.
            if kind == "blocked" and _fault_before(begin, faults, left, hz) is not None:
                add(begin, end, _ORDER.index("fault-wait"), "fault", number)
            else:
                add(begin, end, _ASLEEP if kind == "asleep" else _ORDER.index(kind), kind, number)
        elif kind == "exit" and id_ == poller.thread:
            for low, high, slept in _cut(begin, end, asleep):
                if not slept:
                    add(low, high, _EXIT, kind, number, name)
        elif cpu == poller.cpu and kind in ("nmi", "interrupt", "softirq", "task") and (kind, id_) != itself:
            rank = _ORDER.index(kind)
            for low, high, slept in _cut(begin, end, asleep):
                add(low, high, rank + (_WHILE_ASLEEP if slept else 0), kind, number, name, id_)
    for number, event in enumerate(own):
        # A fault is over in no time, or lasts until the thread waits for the page, or ends with a gap, as below.
        fault = _fault_before(event.begin, faults, left, hz) if event.kind == "blocked" else None
        if fault is not None:
            add(fault, event.begin, _ORDER.index("fault"), "fault", -1 - 2 * len(gaps) - number)
    for number, gap in enumerate(gaps):
        within = [at for at in faults if gap.begin <= at < gap.end]
        if within:
            until = min([gap.end, *(at for at in off if at > min(within))])
            add(min(within), until, _ORDER.index("fault"), "fault", -1 - len(gaps) - number)
        add(gap.begin, gap.end, _GAP, "unexplained", -1 - number)
    return spans


def _first(poller: Poller, evidence: Evidence, hz: int) -> Iterator[_Span]:
    """All that is known to have kept the one who has the frame.

    Who sleeps notes no gaps, so while it does, those of the others on its CPU show that nobody could have woken it.
    """
    spans = _spans_of(poller, evidence, hz)
    yield from spans
    asleep = sorted((span.begin, span.end) for span in spans if span.rank == _ASLEEP)
    others = [each for each in evidence.pollers if each.cpu == poller.cpu and each.thread != poller.thread]
    for other in others if asleep else ():
        for begin, end, span in _moments(asleep[0][0], max(end for _, end in asleep), _spans_of(other, evidence, hz)):
            if span.rank == _GAP:
                for low, high, slept in _cut(begin, end, asleep):
                    if slept:
                        yield replace(span, begin=low, end=high, rank=_CPU_GONE)


def _cut(begin: int, end: int, asleep: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int, bool]]:
    """The time from `begin` to `end` in pieces, each with whether it lies in one of the other times, which are in
    order."""
    for one, other in asleep:
        if one >= end:
            break
        low, high = max(one, begin), min(other, end)
        if low >= high:
            continue
        if begin < low:
            yield begin, low, False
        yield low, high, True
        begin = high
    if begin < end:
        yield begin, end, False


def _fault_before(blocked: int, faults: Sequence[int], left: Sequence[int], hz: int) -> int | None:
    """The page fault that a thread was in when it came to wait in the kernel, or None.

    `left` are the times at which it left its CPU; both are in order.
    """
    number = bisect_right(faults, blocked)
    if number == 0 or blocked - faults[number - 1] >= _FAULT_TO_WAIT * hz:
        return None
    last = faults[number - 1]
    at = bisect_left(left, last)
    return None if at < len(left) and left[at] < blocked else last


def _within(times: Sequence[tuple[int, int]], poller: Poller, evidence: Evidence, hz: int) -> Iterator[_Span]:
    """What is known to have kept a poller in these times that was not sleep."""
    times = sorted(times)
    # The last end up to each of them: some may overlap.
    ends = list(accumulate((high for _, high in times), max))
    for span in _spans_of(poller, evidence, hz):
        if span.rank >= len(_ORDER) and span.rank != _GAP:
            continue
        number = bisect_right(ends, span.begin)
        while number < len(times) and times[number][0] < span.end:
            begin, end = max(span.begin, times[number][0]), min(span.end, times[number][1])
            if begin < end:
                yield replace(span, begin=begin, end=end)
            number += 1


def _second(poller: Poller, evidence: Evidence, hz: int) -> Iterator[_Span]:
    """The same for a poller who counts only within its gaps, after all that is known of the first one."""
    gaps = [(gap.begin, gap.end) for gap in real_gaps(evidence.gaps.get(poller.thread, ()), hz)]
    for span in _within(gaps, poller, evidence, hz):
        yield span if span.rank == _GAP else replace(span, rank=span.rank + len(_ORDER))


def _inside(poller: Poller, evidence: Evidence, hz: int) -> Iterator[_Span]:
    """All that is known to have kept the one inside a machine: it counts where nothing kept the machine's CPU. While
    that CPU sleeps on this host, nothing happens inside but what is to be waked for."""
    for span in _spans_of(poller, evidence, hz):
        if span.rank == _ASLEEP:
            yield replace(span, rank=_ASLEEP_INSIDE)
        else:
            asleep = span.rank >= _WHILE_ASLEEP
            yield replace(span, rank=_INSIDE + (span.rank - _WHILE_ASLEEP + len(_ORDER) if asleep else span.rank))


def _receivers(onward: Sequence[Hop], evidence: Evidence, hz: int) -> Iterator[_Span]:
    """The same for those who took no frames: of each the time in which all up to it had no room."""
    times = [(0, 1 << 64)]
    last = _RECEIVERS + len(onward) * (_EACH_RECEIVER + 1)
    for number, hop in enumerate(onward):
        waits = evidence.waits.get(hop.worker.thread, ()) if hop.worker is not None else ()
        full = [(wait.begin, wait.end) for wait in waits if (wait.source, wait.target) == (hop.source, hop.target)]
        times = [
            (max(low, begin), min(high, end))
            for low, high in times
            for begin, end in full
            if begin < high and end > low
        ]
        if not times or hop.worker is None:
            return
        if hop.receiver is not None:
            for span in _within(times, hop.receiver, evidence, hz):
                rank = span.rank if span.rank != _GAP else len(_ORDER)
                yield replace(span, rank=_RECEIVERS + number * _EACH_RECEIVER + rank)
        # Of several that had no room, the last one is the reason for the others.
        cause = Cause("full", hop.name, hop.worker.cpu, hop.worker.thread)
        for low, high in times:
            yield _Span(low, high, last - number, cause, hop.worker.name, -1 - low)


def _moments(begin: int, end: int, spans: Iterable[_Span]) -> Iterator[tuple[int, int, _Span]]:
    """The time from `begin` to `end` in pieces, each with the span that it goes to; what goes to none is left out."""
    coming = sorted((span for span in spans if span.begin < end and span.end > begin), key=lambda span: -span.begin)
    edges = sorted({begin, end, *(min(max(at, begin), end) for span in coming for at in (span.begin, span.end))})
    there: list[_Span] = []
    for low, high in pairwise(edges):
        there = [span for span in there if span.end > low]
        while coming and coming[-1].begin <= low:
            there.append(coming.pop())
        if there:
            yield low, high, min(there, key=lambda span: (span.rank, span.begin, span.event))


@dataclass
class _Taken:
    """What a cause has taken so far."""

    by_part: dict[Part, int] = field(default_factory=dict)
    by_poller: dict[str, int] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)

    def add(self, part: Part, span: _Span, cycles: int) -> None:
        self.by_part[part] = self.by_part.get(part, 0) + cycles
        self.by_poller[span.poller] = self.by_poller.get(span.poller, 0) + cycles
        self.events.add(span.event)

    def share(self, cause: Cause) -> Share:
        held = sorted(self.by_poller.items(), key=lambda each: -each[1])
        most = max(self.by_part, key=self.by_part.__getitem__)
        return Share(cause, most, sum(self.by_part.values()), len(self.events), tuple(held))


def account(way: Way, times: Sequence[int], holders: Sequence[Holders], evidence: Evidence, hz: int) -> Account:
    """Where the latency of one frame went.

    `times` are the ends of the parts of its `way`: one more than there are parts, never going back. `holders` says for
    each part who had it.
    """
    taken: dict[Cause, _Taken] = {}
    unexplained: dict[tuple[Part, Cause], _Taken] = {}
    usual = times[-1] - times[0]
    known: dict[Holders, list[_Span]] = {}
    for part, (begin, end), who in zip(way, pairwise(times), holders, strict=True):
        if who not in known:
            known[who] = []
            if who.first is not None:
                known[who] += _first(who.first, evidence, hz)
            if who.second is not None and who.second != who.first:
                known[who] += _second(who.second, evidence, hz)
            if who.inside is not None:
                known[who] += _inside(who.inside, evidence, hz)
            known[who] += _receivers(who.onward, evidence, hz)
        for low, high, span in _moments(begin, end, known[who]):
            usual -= high - low
            if span.cause.kind == "unexplained":
                unexplained.setdefault((part, span.cause), _Taken()).add(part, span, high - low)
            else:
                taken.setdefault(span.cause, _Taken()).add(part, span, high - low)
    shares = [each.share(cause) for cause, each in taken.items()]
    gone = [each.share(cause) for (_, cause), each in unexplained.items()]
    return Account(
        shares=tuple(sorted(shares, key=lambda each: -each.cycles)),
        unexplained=sum(each.cycles for each in gone),
        unexplained_most=max(gone, key=lambda each: each.cycles, default=None),
        usual=usual,
    )
