"""The columns of the table of results, and the warnings: the words and numbers that terminal and HTML share.

Whatever comes from a host, a spec or a device is untrusted: plain() makes it fit for a terminal, and escaping for HTML
is the template's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.process.plain import plain
from tailrace.report.marks import NEAR_FLOOR, by_bound, by_floor, by_sent
from tailrace.results.findings import ReorderFinding
from tailrace.results.model import Latency, Run, Share, Trial
from tailrace.results.no_loss import NoLossRate
from tailrace.results.record import FLOOR_TIMES, TrafficKind, is_near_floor, name_in_round

MISSING = "-"


@dataclass(frozen=True)
class Column:
    """A column of the table: two lines of heading, and the text of a trial's cell."""

    group: str
    title: str
    unit: str
    cell: Callable[[Trial], str]
    fault: str = ""
    """The name of a count of which anything but 0 is a fault of the device under test, unless it was planned."""
    matters: bool = False
    """Whether it is in the summary, and in sight on a narrow page."""

    @property
    def short(self) -> str:
        """Its heading on one line."""
        return self.unit if self.group == "traffic" else f"{self.title} {self.unit}".strip().replace("- ", "")


def count(number: int) -> str:
    """12345 as 12,345."""
    return f"{number:,}"


def mega(number: float) -> str:
    """A rate with four significant digits, and at most four decimals."""
    return f"{number:.4f}" if number < 1 else f"{number:.3f}" if number < 100 else f"{number:.1f}"


def no_loss_words(rate: NoLossRate) -> str:
    """1.204 Mpps, ≥1.204 Mpps"""
    return by_bound(f"{mega(rate.pps / 1e6)} Mpps", rate.bound)


def microseconds(number: float) -> str:
    """A time in µs with three significant digits or whole microseconds: 4.21, 35.2, 812, 12,345; -0.40 too."""
    size = abs(number)
    return f"{number:.2f}" if size < 9.995 else f"{number:.1f}" if size < 99.95 else f"{number:,.0f}"


def percent(ratio: float) -> str:
    """0.5 %, 0.0012 %; 0 where nothing was lost."""
    return f"{ratio * 100:.3g} %" if ratio else "0"


def profile_name(profile: str) -> str:
    """A profile as it is read: "64 B", "IMIX", "pcap"."""
    return f"{profile} B" if profile.isdecimal() else "IMIX" if profile == "imix" else plain(profile)


def chain_name(functions: int | None) -> str:
    """A chain by its length: "floor", "1 VNF", "2 VNFs"; "device" where it is none."""
    if functions is None:
        return "device"
    return "floor" if functions == 0 else f"{functions} VNF{'s' if functions > 1 else ''}"


def trial_name(trial: Trial) -> str:
    """Such as "64 B, 2 VNFs"."""
    return f"{profile_name(trial.profile)}, {chain_name(trial.functions)}"


def traced_names(run: Run) -> dict[str, str]:
    """What trials that were traced are called, by their own names, which are shown where several are alike."""
    traced = [trial for trial in run.trials if any(way.hops is not None for way in trial.directions)]
    named = trial_names(run)
    names = [named[trial.name] for trial in traced]
    return {
        trial.name: f"{name} ({plain(trial.name)})" if names.count(name) > 1 else name
        for trial, name in zip(traced, names, strict=True)
    }


def chains(run: Run) -> dict[str, str]:
    """What each trial went through, by its name: "2 VNFs"; where it needs more "tailrace, memif, PVP".

    A floor that was measured for a chain, at its rate: "floor for 2 VNFs".
    """
    places, floors = run.places, _floors_of_chains(run)
    return {
        trial.name: plain(places[trial.name].words)
        if trial.name in places
        else floors.get(trial.name) or chain_name(trial.functions)
        for trial in run.trials
    }


def _floors_of_chains(run: Run) -> dict[str, str]:
    return {trial.share_us.floor: f"floor for {chain_name(trial.functions)}" for trial in run.trials if trial.share_us}


def rates(run: Run) -> dict[str, str]:
    """Of trials that differ from others in their rate alone, by name: "50%", "0.1000 Mpps"."""
    through = chains(run)
    said: dict[str, str] = {}
    alike: dict[tuple[str, str], set[str]] = {}
    for trial in run.trials:
        if not trial.is_floor:
            part = trial.rate_fraction
            said[trial.name] = f"{mega(trial.offered_pps / 1e6)} Mpps" if part is None else f"{100 * part:.4g}%"
            alike.setdefault((trial.profile, through[trial.name]), set()).add(said[trial.name])
    several = {of for of, each in alike.items() if len(each) > 1}
    return {
        trial.name: said[trial.name]
        for trial in run.trials
        if trial.name in said and (trial.profile, through[trial.name]) in several
    }


def trial_names(run: Run) -> dict[str, str]:
    """What distinguishes each trial from the others: "64 B, 2 VNFs at 50%, round 3"."""
    through, rate = chains(run), rates(run)
    return {
        trial.name: f"{profile_name(trial.profile)}, {through[trial.name]}"
        + (f" at {rate[trial.name]}" if trial.name in rate else "")
        + (f", round {trial.round}" if run.repeat > 1 else "")
        + (f", attempt {trial.attempt}" if trial.attempt is not None else "")
        for trial in run.trials
    }


def _latency(field: str) -> Callable[[Trial], str]:
    def cell(trial: Trial) -> str:
        latency: Latency | None = trial.worse.latency_us
        if latency is None:
            return MISSING
        text = microseconds(getattr(latency, field))
        return _by_sent(by_floor(text, trial.floor_ratio) if field == "p50" else text, trial)

    return cell


def _by_sent(text: str, trial: Trial) -> str:
    return by_sent(text, short=trial.fell_short is not None)


def _share(field: str) -> Callable[[Trial], str]:
    def cell(trial: Trial) -> str:
        share: Share | None = trial.share_us
        return MISSING if share is None else microseconds(getattr(share, field))

    return cell


def _total(field: str) -> Callable[[Trial], str]:
    return lambda trial: count(trial.total(field))


def _offered(trial: Trial) -> str:
    return mega(trial.offered_pps / 1e6) if trial.offered_pps else "max"


NAMING = (
    Column("", "frames", "", lambda trial: profile_name(trial.profile) + ("" if trial.valid else " !")),
    Column("", "VNFs", "", lambda trial: str(trial.functions or chain_name(trial.functions))),
)


def naming(runs: Sequence[Run]) -> tuple[Column, ...]:
    """The columns that name a trial: where it is needed, also what it went through and its rate."""
    placed = {name for run in runs for name in run.places}
    through = {name: chain for run in runs if run.places for name, chain in chains(run).items()}
    rate = {name: text for run in runs for name, text in rates(run).items()}
    more = []
    if through:
        more.append(Column("", "of", "", lambda trial: through.get(trial.name, "")))
    if rate:
        more.append(Column("", "rate", "", lambda trial: rate.get(trial.name, "")))
    if any(run.repeat > 1 for run in runs):
        more.append(Column("", "round", "", lambda trial: str(trial.round)))
    if _have_attempts(runs):
        more.append(Column("", "attempt", "", lambda trial: str(trial.attempt or "")))
    frames, vnfs = NAMING
    # A fabric without functions is measured itself; it is nobody's floor.
    bare = Column("", "VNFs", "", lambda trial: "0" if trial.name in placed and trial.is_floor else vnfs.cell(trial))
    return (frames, bare if placed else vnfs, *more)


TRAFFIC = (
    Column("traffic", "offered", "Mpps", _offered),
    Column("traffic", "received", "Mpps", lambda trial: _by_sent(mega(trial.worse.mpps), trial), matters=True),
    Column("traffic", "layer 1", "Gbps", lambda trial: _by_sent(mega(trial.worse.gbps_l1), trial)),
    Column("frames of all directions", "lost", "", _total("lost"), fault="lost", matters=True),
    Column("frames of all directions", "dupli-", "cate", _total("duplicate"), fault="duplicate"),
    Column("frames of all directions", "out of", "seq.", _total("out_of_sequence"), fault="out_of_sequence"),
)
_LATENCY = (
    Column("latency", "min", "µs", _latency("min")),
    Column("latency", "avg", "µs", _latency("average")),
    Column("latency", "p50", "µs", _latency("p50"), matters=True),
    Column("latency", "p99", "µs", _latency("p99"), matters=True),
    Column("latency", "p99.9", "µs", _latency("p99_9")),
    Column("latency", "max", "µs", _latency("max"), matters=True),
)
_SHARES = (
    Column("VNFs' own share", "p50", "share", _share("p50")),
    Column("VNFs' own share", "p99", "share", _share("p99")),
)


def latency_columns(runs: Sequence[Run]) -> tuple[Column, ...]:
    """The columns of latency: with the functions' own share where that is known of any trial."""
    return (*_LATENCY, *_SHARES) if _have_shares(runs) else _LATENCY


def faults_matter(columns: Iterable[Column], is_fault: Callable[[str], bool]) -> list[Column]:
    """The columns, those of counts that are a fault somewhere being in sight everywhere."""
    return [replace(each, matters=True) if each.fault and is_fault(each.fault) else each for each in columns]


def _have_shares(runs: Sequence[Run]) -> bool:
    return any(trial.share_us is not None for run in runs for trial in run.trials)


FAULTS = ("lost", "duplicate", "out_of_sequence")
"""The counts that are 0 where a device under test has done its work."""

_READING = (
    "Rates and latency are those of the worse direction: the one with the greater loss ratio, then the larger p99. "
    "Lost, duplicate and out of sequence are of both directions together.",
    "Latency is one-way, of every frame received. Gbps at layer 1 counts the FCS and 20 bytes of preamble and gap.",
)
_READING_SHARES = (
    "Share: the VNFs' own, in µs: the chain's latency less that of its floor (tester to tester at the chain's rate: "
    "the row before)."
)


_READING_ATTEMPTS = (
    "Attempt: a trial that lost frames or fell short. It was repeated, at a lower rate or, where the tester itself "
    "fell short, once at the same. The row without a number counts."
)


def reading(runs: Sequence[Run]) -> tuple[str, ...]:
    """How the table of trials is to be read."""
    shares = (_READING_SHARES,) if _have_shares(runs) else ()
    return (*_READING, *shares, *((_READING_ATTEMPTS,) if _have_attempts(runs) else ()))


def _have_attempts(runs: Sequence[Run]) -> bool:
    return any(trial.attempt is not None for run in runs for trial in run.trials)


def profile_place(profile: str) -> tuple[bool, int, str]:
    """The place of a profile among others: frame sizes by size, then the others by name."""
    fixed = profile.isdecimal()
    return (not fixed, int(profile) if fixed else 0, profile)


def measured_with(run: Run) -> list[str]:
    """What the figures stand on: the tester's own floor, and its clock."""
    lines = _floors(run)
    clocks = [trial.clock for trial in run.trials if trial.clock is not None]
    if clocks:
        worst = max(clocks, key=lambda clock: clock.error_ppm)
        lines.append(
            f"Clock: invariant TSC of {worst.hz / 1e9:.6f} GHz, durations within {worst.error_ppm:.2g} ppm of "
            f"CLOCK_MONOTONIC_RAW over {worst.checked_s:.3g} s."
        )
    return lines


def _floors(run: Run) -> list[str]:
    """A line for each kind of port; from the lowest to the highest where a floor was measured again."""
    kinds: dict[tuple[str, float], dict[TrafficKind, list[float]]] = {}
    for each in run.floors:
        traffic = kinds.setdefault((each.ports, each.offered_pps), {})
        traffic.setdefault(each.traffic_kind, []).append(each.latency_us.p50)
    lines = []
    for (ports, pps), traffic in kinds.items():
        floors = ", ".join(f"{_traffic_name(kind, traffic)} {_extent(medians)}" for kind, medians in traffic.items())
        where = f"to itself over {plain(ports)}, {mega(pps / 1e6)} Mpps"
        lines.append(f"The tester's own floor ({where}), p50 in µs: {floors}.")
    ratios = (trial.floor_ratio_of(way) for trial in run.trials for way in trial.directions)
    if any(is_near_floor(ratio) for ratio in ratios):
        lines.append(
            f"{NEAR_FLOOR}: less than {FLOOR_TIMES} times that floor, so it says as much of the tester as of the "
            "device."
        )
    return lines


def _traffic_name(kind: TrafficKind, among: Iterable[TrafficKind]) -> str:
    """64 B; with its flows or its capture where others have that profile too."""
    if sum(each.profile == kind.profile for each in among) == 1:
        return profile_name(kind.profile)
    more = plain(kind.capture) if kind.capture else f"{kind.flows or 1:,} flow{'' if kind.flows == 1 else 's'}"
    return f"{profile_name(kind.profile)} ({more})"


def _extent(medians: Sequence[float]) -> str:
    """2.10, or 2.10–2.45 of several."""
    return "–".join(dict.fromkeys(microseconds(each) for each in (min(medians), max(medians))))


def in_order(run: Run) -> list[Trial]:
    """The trials as a table shows them: by frame size, then other profiles by name, then length of chain.

    A floor that was measured for a chain stands right before it.
    """
    chains = {trial.share_us.floor: trial.functions for trial in run.trials if trial.share_us}

    def place(trial: Trial) -> tuple[tuple[bool, int, str], int, int]:
        own = trial.functions or 0
        return (profile_place(trial.profile), chains.get(trial.name) or own, own)

    return sorted(run.trials, key=place)


def disturbed(run: Run) -> frozenset[str]:
    """The names of the trials whose order was disturbed on purpose, and no more than that."""
    return frozenset(
        name_in_round(f"{each.case}-together", each.round)
        for each in run.findings
        if isinstance(each, ReorderFinding) and each.as_planned
    )


def is_fault(count: str, trial: Trial, planned: Collection[str]) -> bool:
    """Whether a count of a trial is a fault of the device; `planned` are the trials whose order was disturbed."""
    return trial.total(count) > 0 and not (count == "out_of_sequence" and trial.name in planned)


def faultless(run: Run) -> bool:
    """Whether no frame of the run was lost, duplicated or out of sequence, but for what was planned."""
    planned = disturbed(run)
    return not any(is_fault(name, trial, planned) for trial in run.trials for name in FAULTS)


def tone(run: Run) -> str:
    """How the verdict is to be seen: bad, good, or neutral where order was disturbed as planned or nothing is said."""
    if not faultless(run) or any(trial.budget is not None and not trial.budget.kept() for trial in run.host_trials):
        return "bad"
    return "good" if run.valid and (run.trials or run.host_trials) and not disturbed(run) else "neutral"


def verdict(run: Run) -> str:
    """One sentence on loss, duplication and order over the whole run."""
    if not run.trials and run.host_trials:
        worst = max((trial.latency_us.max for trial in run.host_trials if trial.latency_us), default=0.0)
        values = sum(trial.samples for trial in run.host_trials)
        return f"Of {count(values)} values the largest is {microseconds(worst)} µs."
    if not run.trials:
        return (
            "The table has what was found; frames lost during a search are part of it."
            if run.findings
            else ("Nothing was measured.")
        )
    sent = sum(trial.total("sent") for trial in run.trials)
    planned = disturbed(run)
    faults = {
        words: sum(trial.total(name) for trial in run.trials if is_fault(name, trial, planned))
        for name, words in (("lost", "lost"), ("duplicate", "duplicated"), ("out_of_sequence", "out of sequence"))
    }
    if planned:
        number = sum(trial.total("out_of_sequence") for trial in run.trials if trial.name in planned)
        faults["out of sequence as planned"] = number
    if not sent:
        return "No frame was sent."
    if planned and faultless(run):
        return (
            f"Of {count(sent)} frames sent, {count(number)} were out of sequence, as planned; no other was "
            "lost, duplicated or out of sequence."
        )
    if not any(faults.values()):
        return f"Of {count(sent)} frames sent, none was lost, duplicated or out of sequence."
    words = ", ".join(f"{count(number)} {name}" for name, number in faults.items() if number)
    return f"Of {count(sent)} frames sent: {words}."
