"""The recorder inside a machine: what its kernel did around the slowest interrupts, fetched through its agent.

It is tailrace-recorder as it runs on this host, with the guest's own tracepoints and BPF; its file stays inside, and
what it knows of some spans of time comes as lines of text (dataplane/recorder/record_show.h). Nothing of it is
believed beyond its bounds: who lies in it spoils the causes of its own interrupts.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import Failure
from tailrace.functions import agent
from tailrace.functions.program import INTERRUPT_RECEIVER, RECORDER_PROGRAM
from tailrace.measure.causes import Poller
from tailrace.observe.recording import Event
from tailrace.process.plain import plain

KINDS = frozenset({"interrupt", "nmi", "softirq", "task", "ready", "asleep", "blocked", "stopped", "fault"})
"""Of events that have a place in a CPU's time."""
MOST_SPANS = 50
"""In one question: an answer's length is bounded too."""
MOST_EVENTS = 5000
"""Of one answer; tailrace-recorder shows fewer."""
MOST_OF_SPAN = 500
"""Of one span, which is not known if it has more: what explaining it takes is bounded, too."""
_FILE = "/run/recorder"
_START_SECONDS, _ASK_SECONDS = 60.0, 30.0
"""Of an emulated machine on a busy host."""
_TRIES, _AGAIN_SECONDS = 3, 0.02
_TSC = 1 << 64
_EARLY, _LATE = 1 << 31, 1 << 22
"""Cycles before and after a span into which an event may reach; dataplane/recorder/record_show.c has the latter too."""
_HEAD = re.compile(r"until (\d{1,20}) oldest (\d{1,20}) lost (\d{1,15}) clock (\d{1,15})")
_LACKS = re.compile(r"lacks ([^:]{1,80}): (.{0,120})")
_EVENT = re.compile(r"event (\d{1,20}) (\d{1,20}) (\d{1,5}) ([a-z]{1,10}) (\d{1,10}) (\d{1,10}) (.{0,40})")
_SPAN = re.compile(r"span (\d{1,20}) (\d{1,20})")
_STATES = frozenset({"ready", "asleep", "blocked", "stopped"})
"""Of a thread."""
_COUNTED = ("system management interrupts", "steal time", "frequency changes", "interrupts that ask to reschedule")
"""What has no place in a CPU's time."""
_THREAD = re.compile(r"\d{1,7}")
_MOST_LACKS = 20

Span = tuple[int, int]
"""By this host's TSC."""


@dataclass(frozen=True)
class Shown:
    """What the recorder of a machine knows of some spans; times by the TSC of who asks."""

    spans: dict[Span, tuple[Event, ...] | None]
    """None: part of it was overwritten before it was asked for, or it has too many events."""
    lost: int
    """Events that the machine's kernel could not deliver so far."""
    clock_error: int
    """Cycles to which the times are known."""


@dataclass
class GuestRecorder:
    """A recorder that runs in a machine."""

    machine: str
    socket: Path
    """Of the machine's agent."""
    poller: Poller
    """The receiver, by the machine's own thread id and CPU."""
    lacks: dict[str, str] = field(default_factory=dict)
    """What cannot be recorded there, and why."""

    @classmethod
    def start(cls, machine: str, socket: Path, cpu: int = 0, aside: int | None = None) -> GuestRecorder:
        """Starts it, to record the receiver and its CPU, on another CPU of the machine where there is one, `aside`.
        Raises Failure, also where the machine's image has none."""
        none = f"its image has no {RECORDER_PROGRAM}; build it again: `tailrace image build`"
        record = f"{RECORDER_PROGRAM} --file {_FILE} --cpu {cpu} --thread $thread"
        record = record if aside is None else f"taskset -c {aside} {record}"
        ends = f"{{ cat {_FILE}.log; exit 1; }}"
        said = agent.ask(
            socket,
            f"command -v {RECORDER_PROGRAM} >/dev/null || {{ echo {shlex.quote(none)}; exit 1; }}\n"
            f"thread=$(pidof {INTERRUPT_RECEIVER}) || {{ echo 'there is no receiver'; exit 1; }}\n"
            f"[ -e {_FILE} ] || {record} >{_FILE}.log 2>&1 &\n"
            f"recorder=$!\n"
            f"until [ -e {_FILE} ]; do kill -0 $recorder || {ends}; sleep 0.05; done\n"
            f"echo $thread\n",
            _START_SECONDS,
        ).strip()
        if _THREAD.fullmatch(said) is None:
            raise Failure(f"its agent names no thread: {plain(said)[:80]}")
        found = cls(machine, socket, Poller(machine, int(said), cpu, machine))
        found.show([], 0)
        return found

    def show(self, spans: Sequence[Span], offset: int) -> Shown:
        """What it knows of these spans; the machine's TSC is `offset` ahead. Raises Failure."""
        known: dict[Span, tuple[Event, ...] | None] = {}
        left, in_vain = list(spans), 0
        deadline = time.monotonic() + _ASK_SECONDS  # of all answers: the machine is not trusted to hurry
        while True:
            asked = left[:MOST_SPANS]
            there = {((begin + offset) % _TSC, (end + offset) % _TSC): (begin, end) for begin, end in asked}
            words = " ".join(f"--span {begin}-{end}" for begin, end in there if begin <= end)
            text = agent.ask(
                self.socket, f"{RECORDER_PROGRAM} --show {_FILE} {words}", max(deadline - time.monotonic(), 1)
            )
            shown, lost, error = self._read(text, there, offset)
            known |= shown
            left = [each for each in left if each not in known]
            # What ended just now may not be recorded yet; one that has more events than fit never comes.
            in_vain = 0 if shown else in_vain + 1
            if in_vain == _TRIES:
                del left[:1]
                in_vain = 0
            elif in_vain:
                time.sleep(_AGAIN_SECONDS)
            if not left or time.monotonic() > deadline:
                return Shown({span: known.get(span) for span in spans}, lost, error)

    def _read(
        self, text: str, there: dict[Span, Span], offset: int
    ) -> tuple[dict[Span, tuple[Event, ...] | None], int, int]:
        """The spans shown in an answer, events lost, and how exact times are. Raises Failure."""
        head, *lines = text.splitlines() or [""]
        found = _HEAD.fullmatch(head)
        if found is None:
            raise Failure(f"its recorder says what is not understood: {plain(head)[:80]}")
        until, oldest, lost, error = map(int, found.groups())
        known: dict[Span, tuple[Event, ...] | None] = {}
        events: list[Event] = []
        for line in lines[: MOST_EVENTS + MOST_SPANS + _MOST_LACKS]:
            if (read := _EVENT.fullmatch(line)) is not None:
                event = _event(read, self.machine, self.poller.cpu, offset)
                if event is not None:
                    events.append(event)
            elif (read := _SPAN.fullmatch(line)) is not None:
                begin, end = int(read[1]), int(read[2])
                if (begin, end) in there and end < until:
                    span = there[begin, end]
                    fitted = list(_fitted(span, events))
                    whole = oldest < begin and len(fitted) <= MOST_OF_SPAN
                    known[span] = tuple(_in_turn(fitted)) if whole else None
                events = []
            elif (read := _LACKS.fullmatch(line)) is not None and len(self.lacks) < _MOST_LACKS:
                if read[1] in _COUNTED:
                    continue
                self.lacks[plain(read[1])] = plain(read[2])
        return known, lost, error


def _fitted(span: Span, events: Sequence[Event]) -> Iterator[Event]:
    """Those that lie in or reach into the span, and not for ever."""
    for each in events:
        if each.begin <= span[1] and each.end >= span[0]:
            yield each._replace(begin=max(each.begin, span[0] - _EARLY), end=min(each.end, span[1] + _LATE))


def _in_turn(events: Iterable[Event]) -> Iterator[Event]:
    """A CPU does one thing of a kind at a time, and a thread is in one state: of what overlaps nevertheless the later
    one begins with the end of the earlier one. So what each is cut into by the others stays bounded."""
    until: dict[tuple[str, int], int] = {}
    for each in sorted(events, key=lambda event: (event.begin, event.end)):
        if each.kind == "fault":  # it has no length
            yield each
            continue
        track = ("", each.id) if each.kind in _STATES else (each.kind, each.cpu)
        begin = max(each.begin, until.get(track, 0))
        if begin < each.end:
            until[track] = each.end
            yield each._replace(begin=begin)


def _event(read: re.Match[str], machine: str, cpu: int, offset: int) -> Event | None:
    """What a line says; None where that cannot be."""
    begin, end = ((int(time) - offset) % _TSC for time in read.groups()[:2])
    if begin > end or int(read[3]) != cpu or read[4] not in KINDS:
        return None
    return Event(begin, end, cpu, read[4], int(read[5]), plain(read[7]), int(read[6]), machine)
