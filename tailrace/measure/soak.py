"""`tailrace measure soak`: minutes to days at a steady rate, kept interval by interval while they pass.

The method is RFC 8204's (section 4.2, long duration), with the tester soaked alone first: over two of its ports joined
with each other, so that its own floor, and the slowest it ever was by itself, are known. How an interval gets into the
log is `soaking.py`; what the log is, and why a crash cannot spoil it, `tailrace.results.interval_log`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.measure.alone import soak_alone
from tailrace.measure.chain import SEARCH, Timing
from tailrace.measure.latency import TRIAL_WAIT, Case, find_no_loss_rate, kept
from tailrace.measure.method import Method, Place, Step, profiles_of
from tailrace.measure.profile import Profile, capture
from tailrace.measure.session import Session, Tracing
from tailrace.measure.soaking import SHORTEST, Soaking
from tailrace.measure.space import free_bytes, mib
from tailrace.measure.tester import Stopped
from tailrace.process.process import undisturbed
from tailrace.results import ResultError, RunFolder, load_run
from tailrace.results.interval_log import SUFFIX, IntervalLog, LogReader
from tailrace.results.intervals import Header
from tailrace.results.lock import alone_in
from tailrace.results.model import timestamp
from tailrace.results.no_loss import NoLossRate
from tailrace.results.reserve import REPORT_BYTES
from tailrace.results.soak import Totals, find_log, is_unkept, read_totals, trial_result
from tailrace.spec.tests import Soak
from tailrace.spec.units import Rate, show_span

#: Bytes of an interval of a direction in results.json.
_RESULT = 400
#: What the size of a log is reckoned with before the rate is known, in frames a second.
FASTEST_PPS = 1e8


@dataclass(frozen=True)
class Space:
    """What a soak takes on disk, and what there is."""

    intervals: int
    most: int
    usual: int
    free: int

    def __str__(self) -> str:
        return (
            f"{self.intervals:,} intervals; on disk at most {mib(self.most)}, as a rule about {mib(self.usual)}; "
            f"{mib(self.free)} are free"
        )


def space_for(header: Header, folder: Path, seconds: float) -> Space:
    """What `seconds` more of a soak take in `folder`. Raises Mistake if there is not so much."""
    intervals = header.intervals(seconds)
    after = intervals * len(header.streams) * _RESULT + REPORT_BYTES
    space = Space(
        intervals, header.most_bytes(intervals) + after, header.usual_bytes(intervals) + after, free_bytes(folder)
    )
    if space.free < space.most:
        raise Mistake(
            f"{folder}: {space.intervals:,} intervals may take {mib(space.most)}, and {mib(space.free)} are free; "
            "make room, choose another place with --runs FOLDER, or a longer --interval"
        )
    return space


def profile_of(header: Header) -> Profile:
    """The traffic of a soak that was begun; both directions have the same."""
    own = ("name", "from", "to", "rate")
    traffic = {key: value for stream in header.streams[:1] for key, value in stream.items() if key not in own}
    path = traffic.get("pcap")
    # The log of an older Tailrace has its path alone.
    return Profile(header.profile, traffic, capture=header.capture or (Path(path).name if path else None))


def _check_capture(header: Header) -> None:
    """Raises Mistake where the capture file that a soak was begun with is not there any more as it was."""
    path = profile_of(header).traffic.get("pcap")
    now = None if path is None else capture(Path(path)).capture
    if header.capture is not None and now != header.capture:
        raise Mistake(
            f"{path}: the soak began with {header.capture}, and this is {now}; restore that file, or begin a new soak"
        )


@dataclass(frozen=True)
class SoakMethod(Method[Soak]):
    """`tailrace measure soak`."""

    runs: Path = Path("runs")
    tell: Callable[[str], None] = lambda _: None
    """Told, in a sentence, what whoever watches should know."""
    resume: Path | None = None
    """The run folder of a soak that was broken off, to be gone on with."""
    tracing: Tracing = field(default_factory=Tracing)

    name = "soak"
    one_test = True

    def steps(self, tests: Sequence[Soak], place: Place) -> list[Step]:
        if self.resume is not None:
            return [self._again(self.resume, place)]
        (test,) = tests
        (profile,) = profiles_of(test)
        name = f"soak-{profile.name}"
        pps = test.rate.pps or FASTEST_PPS
        header = Header(
            name, profile.name, place.functions, test.duration, test.interval, pps, None, test.rate.fraction,
            tuple(profile.streams(pps)), time.time(), capture=profile.capture, ports=place.ports,
            hops=self.tracing.hops, causes=self.tracing.causes, gap_limit_s=self.tracing.gap_limit,
        )  # fmt: skip
        self.tell(str(space_for(header, self.runs, test.duration)))
        seconds = test.alone + test.duration + 2 * TRIAL_WAIT
        if test.rate.fraction is not None:
            seconds += Timing(0.0, 0.0, SEARCH).search
        return [Step(name, seconds, partial(self._begin, test=test, profile=profile, place=place, header=header))]

    def profiles(self, tests: Sequence[Soak]) -> list[Profile]:
        if self.resume is None:
            return super().profiles(tests)
        return [profile_of(LogReader(find_log(self.resume)).header)]  # the spec need not say it

    def begin(self, session: Session) -> None:
        tracing = self.tracing
        if self.resume is not None:  # as it was begun: figures with a trace are not those without
            header = LogReader(find_log(self.resume)).header
            tracing = Tracing(header.hops, header.causes, header.gap_limit_s)
        tracing.begin(session)

    def end(self, session: Session) -> None:
        self.tracing.end(session)

    def _again(self, folder: Path, place: Place) -> Step:
        try:
            totals, reader = read_totals(find_log(folder))
        except ResultError as error:
            raise Mistake(str(error)) from None
        left = reader.header.duration_s - totals.measured_s
        if left < SHORTEST:
            there = "are there" if recover(folder) else "could not be written there (`tailrace watch` shows its log)"
            raise Mistake(
                f"{folder}: the soak in it is complete ({show_span(reader.header.duration_s)}), and its results "
                f"{there}; begin a new one"
            )
        _check_capture(reader.header)
        self.tell(
            f"{show_span(totals.measured_s)} are measured; for the rest: {space_for(reader.header, folder, left)}"
        )
        return Step(reader.header.name, left, partial(self._go_on, reader=reader, totals=totals, place=place))

    def _begin(self, session: Session, *, test: Soak, profile: Profile, place: Place, header: Header) -> None:
        place.lead(session, place.functions)
        searched, pps = None, test.rate.pps
        if pps is None:
            case = Case(header.name, profile, place.functions, test.rate, test.duration)
            searched = find_no_loss_rate(session.measure, case, SEARCH)
            pps = case.pps(searched)
        alone = soak_alone(session, profile, pps, test.alone)
        header = replace(
            header,
            offered_pps=pps,
            no_loss_pps=searched.pps if searched else None,
            no_loss_limit=searched.limit if searched else None,
            streams=tuple(profile.streams(pps)),
            started_at=time.time(),
            alone=alone.model_dump(mode="json") if alone else None,
        )
        log = IntervalLog.create(session.folder.path / "histograms" / f"{header.name}{SUFFIX}", header)
        self._measure(session, log, Totals(header))

    def _go_on(self, session: Session, *, reader: LogReader, totals: Totals, place: Place) -> None:
        place.lead(session, place.functions)
        log, torn = IntervalLog.reopen(reader)
        if torn:
            session.folder.note(f"the end of the interval log was torn: {torn:,} bytes of it were dropped")
        self._measure(session, log, totals)

    def _measure(self, session: Session, log: IntervalLog, totals: Totals) -> None:
        header = log.header
        before, done = session.stage_seconds, totals.measured_s
        soaking = Soaking(
            session.tester,
            log,
            totals,
            check=session.check,
            progress=lambda seconds: session.report.advance(f"{header.name}: soaking", before + seconds - done),
            tell=self.tell,
            hops=session.hops,
        )
        room = header.intervals(header.duration_s) * len(header.streams) * _RESULT + REPORT_BYTES
        try:
            session.folder.reserve.hold(room)
            try:
                soaking.run()
            finally:
                session.folder.reserve.spend()
        except Stopped as stopped:
            error = session.explained(stopped)
            with undisturbed():
                soaking.last_words(str(error))  # a full disk has room again for what it had none
                session.folder.invalidate(str(error))
                with suppress(ResultError, Failure):  # nothing was measured yet
                    _keep_all(session, log.path, totals, stopped=True)
            raise Stopped(error, None) from stopped
        finally:
            log.close()
        with undisturbed():
            _keep_all(session, log.path, totals, stopped=False)


def _keep_all(session: Session, path: Path, totals: Totals, *, stopped: bool) -> None:
    """Keeps what is in the log and what the tester has of its last part."""
    more = _last(session)
    if "hops" in more and totals.parts > 1:
        session.folder.note("hops and causes are of the last part of the soak alone, because it was interrupted before")
    _keep(session.folder, path, totals, stopped=stopped, more=more)


def recover(folder: Path) -> bool:
    """Makes the results of a soak whose command was killed from its log, and ends its run.

    Returns whether its results are there. So it is after a crash or a power cut as after Ctrl-C, and it can be gone on
    with no less. Raises Unreadable if there is no run.
    """
    run = load_run(folder)
    if not is_unkept(run):
        return True
    # A folder that is being measured into, or is not ours to write, stays as it is.
    with suppress(OSError, ResultError, Mistake, Failure), alone_in(folder):
        totals, reader = read_totals(find_log(folder))
        if totals.last is None:
            return False
        whole = totals.ended is not None and totals.ended.reason is None
        made = RunFolder.reopen(folder)
        try:
            if not whole:
                why = totals.ended.reason if totals.ended else run.reason if run.finished else None
                made.invalidate(
                    why or "the soak was killed or crashed; `tailrace measure soak --resume RUN` continues it"
                )
            _keep(made, reader.path, totals, stopped=not whole)
            made.finish(timestamp(totals.last.real_time))
            return True
        finally:
            made.reserve.spend()
    return False


def _last(session: Session) -> dict[str, Any]:
    """What the log does not have, of the last part: what the tester timed by, and single frames where they were
    followed; nothing where the tester is gone."""
    last = session.tester.cut_short(TRIAL_WAIT)  # it has ended
    if last is None:
        return {}
    more = {"clock": last["clock"]}
    if session.hops is not None:
        with suppress(Failure):  # the switch may be what broke
            more["hops"] = session.hops.end(session.tester.control, last)
    return more


def _keep(
    folder: RunFolder, path: Path, totals: Totals, *, stopped: bool, more: Mapping[str, Any] | None = None
) -> None:
    header = totals.header
    result = trial_result(path, totals, stopped=stopped) | dict(more or {})
    searched = None
    if header.no_loss_pps is not None:
        searched = NoLossRate(pps=header.no_loss_pps, limit=header.no_loss_limit)
    rate = Rate(pps=header.offered_pps, fraction=header.rate_fraction)
    case = Case(header.name, profile_of(header), header.functions, rate, totals.measured_s)
    kept(folder, case, result, header.offered_pps, searched)
