"""A run folder: everything about one run, complete and portable.

    runs/2026-11-21-143005-demo/
        spec.yaml  host.json  results.json  report.html  histograms/*.hlog  logs/*

results.json is replaced whole after every step and says "not finished" until the end, so that a crash, even a power
cut, leaves what was measured so far, and nobody can take it for a run that ended well.

One thread owns a RunFolder.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue

from tailrace.errors import Mistake
from tailrace.results.histogram import Histogram, log_text, read_log
from tailrace.results.host import HostSoak, HostTrial
from tailrace.results.model import (
    Finding,
    Floor,
    HistogramReference,
    Latency,
    ResultError,
    Run,
    Trial,
    Unreadable,
    parse_run,
)
from tailrace.results.no_loss import NoLossRate
from tailrace.results.record import TrafficKind, name_in_round
from tailrace.results.reserve import REPORT_BYTES, Reserve
from tailrace.results.trial import against_floor, file_name, floor_of, from_trial_result, share_of

RESULTS = "results.json"
SPEC = "spec.yaml"
UNFINISHED = "the run has not finished"


class RunFolder:
    """One run on disk, being written. Use it in a `with` block: leaving the block finishes the run."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        self.run = run
        self.reserve = Reserve(path)
        self._fault: str | None = None
        self._round = 1
        self._ports: str | None = None
        self._growing: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        runs: Path,
        name: str,
        *,
        spec: str,
        host: Mapping[str, JsonValue],
        command: Sequence[str],
        versions: Mapping[str, str],
        method: str | None = None,
        spec_name: str | None = None,
        fabric: str | None = None,
        oversubscribed: bool = False,
        notes: Sequence[str] = (),
        repeat: int = 1,
    ) -> RunFolder:
        """Return a new folder <runs>/<date>-<time>-<name> (UTC) with the spec's text and the host's facts in it.

        `method` is what was measured (the name unless given). Never touches a folder that is there: a number is
        appended to the name. Raises OSError.
        """
        started = datetime.now(UTC)
        path = _new_folder(runs, f"{started:%Y-%m-%d-%H%M%S}-{file_name(name)}")
        (path / "histograms").mkdir()
        (path / "logs").mkdir()
        write_atomically(path / SPEC, spec)
        write_atomically(path / "host.json", json.dumps(host, indent=1, ensure_ascii=False) + "\n")
        run = Run(
            id=path.name,
            name=name,
            method=method or name,
            spec=spec_name,
            fabric=fabric,
            started=started,
            finished=None,
            valid=False,
            reason=UNFINISHED,
            command=tuple(command),
            versions=dict(versions),
            host=dict(host),
            oversubscribed=oversubscribed,
            notes=tuple(notes),
            repeat=repeat,
            trials=(),
        )
        folder = cls(path, run)
        folder._update()
        return folder

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """Return the folder of a run that is gone on with.

        Trials that are not valid are left out, to be made again; so is a soak, to be added anew with what there was.
        Raises ResultError, OSError.
        """
        run = load_run(path)
        again = [trial for trial in run.trials if trial.soak is not None or not trial.valid]
        trials = tuple(trial for trial in run.trials if trial not in again)
        logs = {way.histogram.file for trial in again for way in trial.directions if way.histogram}
        outdated = [_inside(path, log) for log in logs]
        folder = cls(path, run.model_copy(update={"finished": None, "trials": trials}))
        folder._update()
        for log in outdated:
            log.unlink(missing_ok=True)
        return folder

    @property
    def logs(self) -> Path:
        """Where the daemons' own words go."""
        return self.path / "logs"

    def begin_round(self, number: int) -> None:
        """What is added from here on is of this round: its name says so, where it is not the first."""
        self._round = number

    def measure_over(self, ports: str) -> None:
        """Trials that are added from here on are measured over ports of this kind, and stand on its floor."""
        self._ports = ports

    def add_finding(self, finding: Finding) -> None:
        """Keep what a method found, under a name of its round. One that is not valid makes the run invalid too."""
        name = name_in_round(finding.name, self._round)
        if any((other.method, other.name) == (finding.method, name) for other in self.run.findings):
            raise ResultError(f"there is a finding {name} of {finding.method} in {self.run.id} already")
        finding = finding.model_copy(update={"name": name, "round": self._round})
        if finding.reason is not None:
            self._fault = self._fault or f"{name}: {finding.reason}"
        self._update(findings=(*self.run.findings, finding))

    def put_finding(self, finding: Finding, *, of_all_rounds: bool = False) -> None:
        """Keep a finding that grows, or that is made again: it takes the place of the one of its name and round.

        One that is `of_all_rounds` grows with each of them.
        """
        number = 1 if of_all_rounds else self._round
        name = name_in_round(finding.name, number)
        finding = finding.model_copy(update={"name": name, "round": number})
        others = tuple(other for other in self.run.findings if other.name != name)
        at = next((n for n, other in enumerate(self.run.findings) if other.name == name), len(others))
        self._update(findings=(*others[:at], finding, *others[at:]))

    def add_trial(
        self,
        result: Mapping[str, Any],
        *,
        name: str,
        profile: str,
        functions: int | None,
        offered_pps: float,
        searched: NoLossRate | None = None,
        confirmed: bool = False,
        rate_fraction: float | None = None,
        attempt: int | None = None,
        flows: int | None = None,
        capture: str | None = None,
    ) -> Trial:
        """Keep the tester's trial.result and return the trial it makes, with its share if its floor was measured.

        Where the result has "hops", each direction's is kept with it (`Joined` by the direction's name).
        `functions` is None of a device, `attempt` of a trial that stands; `confirmed` says that the trial showed
        `searched` to be a rate without loss. Rates are frames a second in each direction;
        the floor is the last valid trial of the same traffic with no functions.
        Where trials go over several kinds of ports that may be on another fabric, and no share is made of it.
        A trial that is not valid makes the run invalid too. Raises ResultError if the result cannot be understood or
        the name is taken, OSError if it cannot be written; what was kept before stays.
        """
        name = name_in_round(name, self._round)
        if any(trial.name == name for trial in self.run.trials):
            raise ResultError(f"there is a trial {name} in {self.run.id} already")
        measured = from_trial_result(
            result,
            name=name,
            profile=profile,
            flows=flows,
            capture=capture,
            functions=functions,
            offered_pps=offered_pps,
            no_loss_pps=searched.pps if searched is not None and confirmed else None,
            rate_fraction=rate_fraction,
            log=self._new_log(name),
            hops=result.get("hops"),
        )
        more = {"round": self._round, "searched": searched, "attempt": attempt}
        trial = measured.trial.model_copy(update=more)
        floor = self._floor(trial.traffic_kind) if functions and self._ports is None and attempt is None else None
        if floor is not None:
            trial = trial.model_copy(update={"share_us": share_of(trial, floor)})
        trial = against_floor(trial, self._own_floor(trial.traffic_kind))
        for log in {way.histogram.file for way in trial.directions if way.histogram}:
            # The histograms first, so that whatever results.json refers to is there.
            text = log_text(trial.started.timestamp(), trial.duration_s, measured.histograms)
            write_atomically(self.path / log, text)
        if trial.reason is not None:
            self._fault = self._fault or f"{name}: {trial.reason}"
        self._update(trials=(*self.run.trials, trial))
        return trial

    def keep_host_slice(
        self, found: Sequence[tuple[HostTrial, Histogram]], soak: HostSoak, notes: Iterable[str] = ()
    ) -> None:
        """Keep what was measured so far of the CPUs of one slice; it takes the place of earlier trials of these names,
        and `notes` that of those that grow (`note_anew`).

        Raises OSError if it cannot be written; what was kept before stays, whole: a histogram is never written over
        the one that results.json speaks of.
        """
        trials = {trial.name: trial for trial in self.run.host_trials}
        outdated = []
        for trial, histogram in found:
            before = trials[trial.name].histogram if trial.name in trials else None
            log = f"histograms/{file_name(trial.name)}.hlog"
            if before is not None and before.file == log:
                log = f"histograms/{file_name(trial.name)}-more.hlog"
            kept = before
            if histogram.counts:
                text = log_text(trial.started.timestamp(), trial.duration_s, {trial.name: histogram})
                write_atomically(self.path / log, text)
                kept = HistogramReference(file=log, tag=trial.name)
                outdated += [before.file] if before else []
            trials[trial.name] = trial.model_copy(update={"histogram": kept})
        kept_notes, growing = self._anew(notes)
        self._update(host_trials=tuple(trials.values()), host_soak=soak, notes=(*kept_notes, *growing))
        self._growing = growing
        for log in outdated:
            _inside(self.path, log).unlink(missing_ok=True)

    def add_floor(
        self,
        result: Mapping[str, Any],
        *,
        profile: str,
        ports: str,
        offered_pps: float,
        flows: int | None = None,
        capture: str | None = None,
    ) -> None:
        """Keep what the tester measured of itself (a trial.result) for trials of this traffic that follow."""
        kind = TrafficKind(profile, flows, capture)
        floor = floor_of(result, kind, ports=ports, offered_pps=offered_pps)
        if floor is None:
            self.note(f"the tester's own floor of {profile} over {ports} is not known: it lost frames to itself")
        else:
            self._update(floors=(*self.run.floors, floor))

    def ran(self, versions: Mapping[str, str]) -> None:
        """Add the versions of programs that ran, by name; of one that ran in several, all stand side by side."""
        known = dict(self.run.versions)
        for name, version in versions.items():
            before = known.get(name)
            if before is None:
                known[name] = version
            elif version not in before.split(", "):
                known[name] = f"{before}, {version}"
        if known != self.run.versions:
            self._update(versions=known)

    def note(self, text: str) -> None:
        """Add a sentence that a reader must know to judge the figures; one that is there already is not repeated."""
        if text not in self.run.notes:
            self._update(notes=(*self.run.notes, text))

    def note_anew(self, notes: Iterable[str]) -> None:
        """Add sentences that grow with the run: they take the place of those that were given here before."""
        kept, growing = self._anew(notes)
        if growing != self._growing:
            self._update(notes=(*kept, *growing))
            self._growing = growing

    def _anew(self, notes: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The notes that stay as they are, and those that grow."""
        kept = tuple(text for text in self.run.notes if text not in self._growing)
        return kept, tuple(text for text in dict.fromkeys(notes) if text not in kept)

    def invalidate(self, reason: str) -> None:
        """Mark the run invalid. The first reason stands: what comes after is mostly its consequence."""
        self._fault = self._fault or reason
        self._update()

    def finish(self, at: datetime | None = None) -> Run:
        """Write the end of the run (now, unless it ended then) and return it: valid unless something said otherwise or
        nothing was measured.

        Raises OSError if it cannot be written; what was kept before stays.
        """
        self.reserve.spend()
        host = any(trial.samples for trial in self.run.host_trials)
        if not self.run.trials and not self.run.findings and not host:
            self._fault = self._fault or "nothing was measured"
        self._update(finished=at or datetime.now(UTC), valid=self._fault is None, reason=self._fault)
        return self.run

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._fault = self._fault or ("interrupted" if interrupted else str(error) or type(error).__name__)
        self.finish()

    def _update(self, **changes: Any) -> None:
        if self.run.finished is None and "finished" not in changes:
            changes |= {"valid": False, "reason": self._fault or UNFINISHED}
        elif self._fault is not None:
            changes |= {"valid": False, "reason": self._fault}
        run = Run(**{**dict(self.run), **changes})
        text = run.to_json()
        write_atomically(self.path / RESULTS, text)
        self.run = run
        self.reserve.hold(len(text.encode()) + REPORT_BYTES)

    def _floor(self, kind: TrafficKind) -> Trial | None:
        floors = [trial for trial in self.run.standing if trial.traffic_kind == kind and trial.is_floor]
        return next((trial for trial in reversed(floors) if trial.valid), None)

    def _own_floor(self, kind: TrafficKind) -> Floor | None:
        """The tester's own for such traffic, over the ports in use where their kind was said: the last one measured."""
        alike = (each for each in reversed(self.run.floors) if each.traffic_kind == kind)
        return next((each for each in alike if self._ports in (None, each.ports)), None)

    def _new_log(self, name: str) -> str:
        base = f"histograms/{file_name(name)}"
        log, number = f"{base}.hlog", 1
        while (self.path / log).exists():
            number += 1
            log = f"{base}-{number}.hlog"
        return log


def find_folder(run: str | Path, runs: Path) -> Path:
    """The run folder that is meant by a path, or by a name in the folder `runs`. Raises Mistake if there is none."""
    given, named = Path(run), runs / run
    for path in (given, named):
        if path.exists():
            return path
    nor = "" if named == given else f", nor {named}"  # a path from the root is the same in any folder
    raise Mistake(f"there is no run {given}{nor}; `tailrace runs` lists what there is")


def load_run(folder: Path) -> Run:
    """Return the run in `folder` (or in a results.json given outright).

    Raises Unreadable if there is none, or it cannot be read or is of a newer format.
    """
    path = folder / RESULTS if folder.is_dir() else folder
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}; is this a run folder?") from error
    return parse_run(text, str(path))


def _inside(folder: Path, file: str) -> Path:
    """A file of a run folder, as results name it, who may be another's. Raises ResultError if it lies elsewhere."""
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ResultError(f"{file}: outside the run folder")
    return path


def load_histogram(folder: Path, reference: HistogramReference, latency: Latency) -> Histogram:
    """Return the distribution that `reference` names in the run `folder`, with the exact extremes of its `latency`.

    Raises ResultError if it lies outside the folder, is missing, or holds another distribution than `latency`'s.
    """
    found = read_log(_inside(folder, reference.file)).get(reference.tag)
    if found is None:
        raise ResultError(f"{reference.file}: has no histogram with the tag {reference.tag}")
    low, high = round(latency.min * 1e3), round(latency.max * 1e3)
    exact = Histogram(found.counts, low, high, round(latency.average * 1e3 * found.count))
    again = exact.latency()
    if again is None or abs(again.p50 - latency.p50) > 1e-6 * latency.p50:
        raise ResultError(f"{reference.file}: {reference.tag} is not the distribution that results.json speaks of")
    return exact


def write_atomically(path: Path, text: str) -> None:
    """Put `text` at `path` so that a reader, and a crash, sees the old file or the new one whole. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _new_folder(runs: Path, name: str) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    path, number = runs / name, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            path = runs / f"{name}-{number}"
        else:
            return path
