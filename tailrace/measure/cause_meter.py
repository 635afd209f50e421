"""Finding out, while a trial runs, why its slowest frames or interrupts are slow: what the recorder and the pollers
noted around each of them is kept before it is overwritten, and explained after the trial (`causes.py`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.errors import Failure
from tailrace.measure.cause_words import knobs, words
from tailrace.measure.causes import Account, Cause, Evidence, Holders, Poller, account, late_wakes
from tailrace.measure.hops import Sighting, Way
from tailrace.measure.recorder import Recorder, Watched
from tailrace.observe.gaps import Gap, Wait
from tailrace.observe.recording import Event, Series
from tailrace.results.causes import Cause as FrameCause
from tailrace.results.causes import CausedFrame, Causes, Recurrence
from tailrace.results.model import timestamp

#: A round longer than so many seconds is a gap, unless another limit is asked for.
GAP_LIMIT = 5e-6
#: Seconds to wait after a trial for the recorder to come round.
_LAST_LOOK = 0.5
#: Causes below this many µs and this share of a frame's latency are not reported one by one.
_LEAST_US, _LEAST_SHARE = 0.5, 0.01
#: A cause that took more than this of some frame is looked for in the whole trial.
_NOTABLE_SHARE = 0.1


NO_PORTS: Mapping[str, int] = {}


@dataclass(frozen=True)
class Passage:
    """One that was slow: what its way was cut into, and who had it in each part, as `account()` takes them."""

    sighting: Sighting
    way: Way
    times: Sequence[int]
    holders: Sequence[Holders]


@dataclass
class CauseMeter:
    """The causes of slow frames or interrupts, for one trial after the other."""

    recorder: Recorder
    watched: Sequence[Watched]
    hz: int
    limit_us: float = GAP_LIMIT * 1e6
    _kept: dict[int, Evidence | None] = field(default_factory=dict)
    """Of each frame that was looked up; None: it was too late."""
    _before: dict[tuple[str, int, int, str], Series] = field(default_factory=dict)
    _gaps_before: dict[str, int] = field(default_factory=dict)
    _limits: dict[int, int] = field(default_factory=dict)
    _began: int = 0
    _lost_before: int = 0

    def __post_init__(self) -> None:
        for number, each in enumerate(self.watched):
            self._limits[number] = each.gaps.limit
            each.gaps.limit = round(self.limit_us * 1e-6 * self.hz)

    @property
    def pollers(self) -> dict[str, Poller]:
        return {each.poller.name: each.poller for each in self.watched}

    @property
    def threads(self) -> dict[int, str]:
        """Our own polling threads, by their ids."""
        return {each.thread: each.name for each in self.pollers.values()}

    # --- while a trial runs ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A trial begins."""
        self._kept.clear()
        self._before = {_key(each): each for each in self.recorder.recording.series()}
        self._gaps_before = {each.poller.name: each.loop.ring.head for each in self.watched}
        self._began = self.recorder.recording.until
        self._lost_before = self.recorder.recording.lost
        self.recorder.recording.begin_part()

    def heads(self) -> list[tuple[int, int]]:
        """Of each ring of evidence: how much was ever written, and how much it holds."""
        loops = [each.loop for each in self.watched]
        rings = [ring for loop in loops for ring in (loop.ring, loop.waits)]
        return [*self.recorder.recording.heads(), *((ring.head, ring.length) for ring in rings)]

    def look(self, frames: Sequence[Sighting]) -> None:
        """Keeps what is known of these frames, the slowest so far; what is not recorded yet waits for the next look."""
        until = self.recorder.recording.until
        wanted = {frame.key for frame in frames}
        self._kept = {key: evidence for key, evidence in self._kept.items() if key in wanted}
        new = sorted(
            (frame for frame in frames if frame.key not in self._kept and frame.received < until),
            key=lambda frame: frame.sent,
        )
        # Frames that were held up together are looked up together.
        while new:
            together = [new.pop(0)]
            end = together[0].received
            while new and new[0].sent <= end:
                together.append(new.pop(0))
                end = max(end, together[-1].received)
            found = self._evidence_between(together[0].sent, end)
            for frame in together:
                self._kept[frame.key] = None if found is None else found.of(frame.sent, frame.received)

    def _evidence_between(self, begin: int, end: int) -> Evidence | None:
        """All that is known of that time; None if part of it has been written over: the rest would mislead."""
        events, whole = self.recorder.recording.between(begin, end, self.hz // 1000)
        gaps: dict[int, list[Gap]] = {}
        waits: dict[int, list[Wait]] = {}
        for each in self.watched:
            thread = each.poller.thread
            found, all_gaps = each.loop.between(begin, end)
            waits[thread], rests, all_waits = each.loop.waits_between(begin, end)
            gaps[thread] = [*found, *late_wakes(rests, thread, events, each.gaps.limit)]
            whole = whole and all_gaps and all_waits
        return Evidence(events, gaps, waits, tuple(self.pollers.values())) if whole else None

    def last_look(self, frames: Sequence[Sighting]) -> None:
        """After the trial: waits until all of it is recorded."""
        last = max((frame.received for frame in frames), default=0)
        deadline = time.monotonic() + _LAST_LOOK
        while self.recorder.recording.until <= last and time.monotonic() < deadline:
            time.sleep(0.005)
        self.look(frames)

    # --- after it ----------------------------------------------------------------------------------------------------

    def explain_passages(
        self, passages: Iterable[Passage | None], hz: int, numbers: Mapping[str, int] = NO_PORTS
    ) -> Causes:
        """The causes of these, the slowest first; of None nothing is known but that it was among them.

        `hz` is how fast the counter of all stamps ticks, as who made them has measured it. Pollers know it no better
        than DPDK, which rounds it to 10 MHz. `numbers` are those of the switch's ports.
        """
        self.hz = hz
        recording = self.recorder.recording
        notes = recording.notes(self._began)
        explained: list[tuple[CausedFrame, Account]] = []
        unexamined = 0
        for each in passages:
            evidence = None if each is None else self._kept.get(each.sighting.key)
            if each is None or evidence is None:
                unexamined += 1
                continue
            accounted = account(each.way, each.times, each.holders, evidence, self.hz)
            explained.append((self._frame(each.sighting, accounted, evidence, notes), accounted))
        return Causes(
            frames=tuple(frame for frame, _ in explained),
            unexamined=unexamined,
            recurrences=self._recurrences([accounted for _, accounted in explained], numbers),
            gaps={
                each.poller.name: each.loop.ring.head - self._gaps_before.get(each.poller.name, 0)
                for each in self.watched
            },
            limit_us=self.limit_us,
            clock_error_us=self._us(recording.clock_error),
            lost=recording.lost - self._lost_before,
            recorded={each.what: each.origin for each in recording.sources if each.origin is not None},
            missing={each.what: each.why or "" for each in recording.sources if each.origin is None},
        )

    def _frame(self, sighting: Sighting, accounted: Account, evidence: Evidence, notes: Sequence[Event]) -> CausedFrame:
        latency = accounted.total
        causes = tuple(
            FrameCause(
                kind=share.cause.kind,
                text=words(share.cause, share.pollers, self.threads),
                part=share.part.name,
                thread=share.pollers[0],
                held_up_us={name: self._us(cycles) for name, cycles in share.held},
                cpu=share.cause.cpu,
                inside=share.cause.inside,
                us=self._us(share.cycles),
                share=share.cycles / latency,
                events=share.events,
                knobs=knobs(share.cause, self.threads),
            )
            for share in accounted.shares
            if self._us(share.cycles) >= _LEAST_US and share.cycles >= _LEAST_SHARE * latency
        )
        first = accounted.first
        rest = latency - accounted.unexplained - accounted.usual
        small = rest - sum(share.cycles for share in accounted.shares[: len(causes)])
        return CausedFrame(
            sequence=sighting.sequence,
            latency_us=self._us(latency),
            sent=timestamp(self.recorder.recording.wall(sighting.sent)),
            sent_tsc=sighting.sent,
            part=first.part.name if first is not None else None,
            cpu=first.cause.cpu if first is not None else None,
            inside=first.cause.inside if first is not None else "",
            causes=causes,
            unexplained_us=self._us(accounted.unexplained),
            usual_us=self._us(accounted.usual + small),
            evidence=tuple(self._evidence(sighting, evidence, notes)),
        )

    def _evidence(self, sighting: Sighting, evidence: Evidence, notes: Sequence[Event]) -> Iterable[str]:
        for each in self.watched:
            gaps = evidence.gaps.get(each.poller.thread, ())
            if gaps:
                longest = max(gaps, key=lambda gap: gap.end - gap.begin)
                yield (
                    f"{each.poller.name} noted {len(gaps)} gap{'s' if len(gaps) > 1 else ''}, "
                    f"the longest {self._us(longest.end - longest.begin):.1f} µs"
                )
            waits = evidence.waits.get(each.poller.thread, ())
            if waits:
                most = self._us(max(wait.end - wait.begin for wait in waits))
                times = f"{len(waits)} time{'s' if len(waits) > 1 else ''}"
                yield f"{each.poller.name} found receivers without room {times}, the longest for {most:.1f} µs"
        for note in notes:
            if note.begin <= sighting.received and note.end >= sighting.sent:
                text = self._note(note)
                if text:
                    yield text

    def _note(self, note: Event) -> str:
        around = f"within the {self._us(note.end - note.begin) / 1e3:.0f} ms around it"
        if note.kind == "migration":
            return f"{self.threads.get(note.id, note.id)} was moved to CPU {note.extra}"
        if note.kind == "frequency":
            return f"CPU {note.cpu} went to {note.extra / 1e6:.2f} GHz"
        if note.kind == "steal":
            return f"the hypervisor took {note.extra / 1e3:g} ms of CPU {note.cpu} {around}"
        if note.kind == "smi":
            return f"{note.extra} system management interrupts on CPU {note.cpu} {around}"
        which = "interrupts that ask to reschedule" if note.name == "reschedule" else "interrupts"
        return f"{note.extra} {which} on CPU {note.cpu} {around}" if note.kind == "counted" else ""

    def _recurrences(self, accounts: Sequence[Account], numbers: Mapping[str, int]) -> tuple[Recurrence, ...]:
        """Causes of these frames over the whole trial, those that rank first most often in front.

        `numbers` are those of the switch's ports.
        """
        first_of: Counter[Cause] = Counter()
        held: dict[Cause, dict[str, None]] = {}
        for accounted in accounts:
            for share in accounted.shares:
                if share is accounted.first or share.cycles > _NOTABLE_SHARE * accounted.total:
                    first_of[share.cause] += share is accounted.first
                    held.setdefault(share.cause, {}).update(dict.fromkeys(share.pollers))
        now = {_key(each): each for each in self.recorder.recording.series()}
        found = []
        for cause, times in first_of.items():
            if cause.inside:  # of all that happened there nobody was told
                continue
            if cause.kind == "full":
                series, before = self._waits_for(cause, numbers), None
            else:
                series, before = now.get(_key(cause)), self._before.get(_key(cause))
            if series is None:
                continue
            found.append(
                Recurrence(
                    text=words(cause, tuple(held[cause]), self.threads),
                    cpu=cause.cpu,
                    first_of=times,
                    count=series.count - (before.count if before else 0),
                    total_us=self._us(series.cycles - (before.cycles if before else 0)),
                    longest_us=self._us(series.longest),
                    knobs=knobs(cause, self.threads),
                )
            )
        return tuple(sorted(found, key=lambda each: (-each.first_of, -each.total_us)))

    def _waits_for(self, cause: Cause, numbers: Mapping[str, int]) -> Series | None:
        """All of the trial's waits for a receiver without room, as its worker noted them; None if some are gone."""
        (worker,) = (each for each in self.watched if each.poller.thread == cause.id)
        waits, _, whole = worker.loop.waits_between(self._began, self.recorder.recording.until)
        took = [wait.end - wait.begin for wait in waits if wait.target == numbers.get(cause.name)]
        if not whole or not took:
            return None
        return Series(cause.cpu, cause.kind, cause.id, cause.name, len(took), sum(took), max(took))

    def _us(self, cycles: int) -> float:
        return cycles / self.hz * 1e6

    def close(self) -> None:
        """Ends the recorder; pollers have their own limits again."""
        for number, each in enumerate(self.watched):
            try:
                each.gaps.limit = self._limits[number]
                each.gaps.close()
            except (Failure, ValueError):
                continue  # two loops of one process share a mapping
        self.recorder.close()


def _key(of: Series | Cause) -> tuple[str, int, int, str]:
    """What a cause and the series of its events have in common."""
    return (of.kind, of.cpu, of.id, of.name)
