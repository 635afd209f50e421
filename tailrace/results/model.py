"""results.json: what one run measured, as frozen models.

Every field says what it holds and in which unit; docs/results.schema.json is generated from here (see schema.py). Names
are those of the spec, the command line and the report. Percentiles are nearest-rank (RFC 2330, section 11.3): the
smallest latency that at least that share of the frames did not exceed.

Nothing here touches a file; run.py does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, JsonValue, ValidationError, computed_field, model_validator

from tailrace.errors import Mistake
from tailrace.results.causes import Causes
from tailrace.results.comparison import ComparisonFinding, MatrixCell, Place, places
from tailrace.results.findings import (
    BurstFinding,
    ExitsFinding,
    LossFinding,
    ReorderFinding,
    StacksFinding,
    ThroughputFinding,
)
from tailrace.results.host import HostSoak, HostTrial
from tailrace.results.migrate import migrate
from tailrace.results.migration import MigrationFinding
from tailrace.results.no_loss import NoLossRate
from tailrace.results.pooled import Pooled, pooled_of
from tailrace.results.record import FAULTS, Sent, name_in_round
from tailrace.results.record import Amount as Amount
from tailrace.results.record import ClockStep as ClockStep
from tailrace.results.record import Count as Count
from tailrace.results.record import Gap as Gap
from tailrace.results.record import HistogramReference as HistogramReference
from tailrace.results.record import Latency as Latency
from tailrace.results.record import Measurement as Measurement
from tailrace.results.record import OfTraffic as OfTraffic
from tailrace.results.record import Record as Record
from tailrace.results.record import ResultError as ResultError
from tailrace.results.share import ShareFinding

FORMAT = 7
"""The version of results.json that this Tailrace writes, and the newest that it reads; older ones are migrated."""


class Unreadable(ResultError, Mistake):
    """What the user named is no run, or none that this Tailrace can read."""


class Interval(Record):
    """What one direction received in one interval of a trial."""

    start_s: Amount = Field(description="Start of the interval, in seconds after the start of the trial.")
    sent: Count = Field(description="Frames sent in the interval.")
    received: Count = Field(description="Frames received in the interval, all copies.")
    min_us: Amount | None = Field(description="Smallest latency in µs; null if nothing was received.")
    avg_us: Amount | None = Field(description="Mean latency in µs; null if nothing was received.")
    max_us: Amount | None = Field(description="Largest latency in µs; null if nothing was received.")
    length_s: Amount | None = Field(
        default=None, description="How long it was, in seconds; null where all but the last are equally long."
    )
    lost: int | None = Field(
        default=None,
        description="Frames sent by its end and not received, less those before; negative where more came late than "
        "were lost. Null outside a soak, like the two below.",
    )
    duplicate: Count | None = Field(default=None, description="Copies of a frame after its first.")
    out_of_sequence: Count | None = Field(default=None, description="Frames reordered by RFC 4737, section 3.")


class HopPart(Record):
    """One part of the way that frames take: from where it changes hands to where it does so next."""

    kind: Literal["ring", "switch", "function"] = Field(
        description="ring: waiting in a ring at either end; switch: being copied; function: with a function, from its "
        "receive ring to its transmit ring."
    )
    name: str = Field(min_length=1, description="The function's name, or from where to where.")
    share: Amount = Field(description="Its part of the mean latency; all parts add up to 1.")
    latency_us: Latency = Field(description="Time spent in it in µs, over the sampled frames.")
    histogram: HistogramReference | None = Field(description="The whole distribution.")


class SlowFrame(Record):
    """Where one slow frame's time went."""

    sequence: Count = Field(description="Its sequence number in its stream.")
    latency_us: Amount = Field(description="Its latency in µs.")
    parts: tuple[str, ...] = Field(description="Names of the parts of its way.")
    parts_us: tuple[Amount, ...] = Field(description="Time in each part in µs; they add up to its latency.")


class Hops(Record):
    """Latency taken apart by hop and function, from the tester's records and the switch's hop trace."""

    frames: Count = Field(description="Frames in the sample: every n-th of the direction's streams.")
    left_out: Count = Field(description="Sampled frames that were not traced whole, or took another way than most.")
    average_us: Amount = Field(description="Mean latency of the sample in µs; the means of the parts add up to it.")
    parts: tuple[HopPart, ...] = Field(description="The parts of the way in their order.")
    slowest: tuple[SlowFrame, ...] = Field(
        description="The slowest frames of the trial, the slowest first; one of those that were under way together."
    )
    slowest_untraced: Count = Field(
        description="Frames among the trial's slowest whose records the switch had overwritten before they were read."
    )
    causes: Causes | None = Field(default=None, description="Why they were slow; null unless it was asked for.")


class Extents(Record):
    """How far frames were reordered (RFC 4737, section 4.2), in frames.

    The extent of one is how many others arrived from the one that overtook it first until it came: so many places of a
    buffer put it back in order.
    """

    frames: Count = Field(description="Reordered frames whose extent is known.")
    unknown: Count = Field(description="Reordered frames whose extent is not known: too many gaps came between.")
    average: Amount = Field(description="Mean extent, exact.")
    p50: Count = Field(description="Median; like every percentile at most 1 % above the exact one.")
    p99: Count = Field(description="99th percentile.")
    max: Count = Field(description="Largest extent, exact.")


class Clock(Record):
    """What latency was measured with: the processor's time stamp counter (TSC), held against the kernel's clock."""

    source: Literal["tsc"] = Field(description="tsc: invariant, at one rate whatever the core's frequency and sleep.")
    hz: Count = Field(description="Cycles a second.")
    error_ppm: Amount = Field(
        description="The most that a duration can be wrong by, in millionths of it, against CLOCK_MONOTONIC_RAW."
    )
    checked_s: Amount = Field(description="Over how many seconds the two were compared.")


class Traffic(Record):
    """Counts, rates and latency of frames that went one way."""

    name: str = Field(min_length=1, description="Name of the stream or direction, such as a-to-b.")
    from_: str = Field(
        validation_alias="from", serialization_alias="from", min_length=1, description="The tester's port that sent."
    )
    to: str = Field(min_length=1, description="The tester's port that received.")
    offered: Count = Field(description="Frames that the trial meant to send.")
    sent: Count = Field(description="Frames that the device under test took.")
    unsent: Count = Field(description="Frames that the tester could not send; never counted as lost.")
    refused: Count = Field(
        default=0,
        description="Of the unsent, those that the device under test did not take in time (back pressure); the others "
        "are the tester's own failing.",
    )
    received: Count = Field(description="Frames received, all copies, without foreign ones.")
    lost: Count = Field(description="Frames sent and never received within the wait.")
    duplicate: Count = Field(description="Copies of a frame after its first.")
    out_of_sequence: Count = Field(description="Frames reordered by RFC 4737, section 3 (first copies only).")
    beyond_window: Count = Field(
        description="Frames so late that the analyser's window could not tell a duplicate from a first copy."
    )
    window: Count | None = Field(
        default=None, description="Frames that the analyser looked back over; null where it did not say."
    )
    latest: Count = Field(
        default=0, description="How many frames behind the latest frame beyond the window was; 0 if there was none."
    )
    extents: Extents | None = Field(default=None, description="How far frames were reordered; null if none was.")
    foreign: Count = Field(description="Frames received that this trial did not send.")
    mean_frame: Amount = Field(description="Mean size of the received frames in bytes, with the FCS.")
    mpps: Amount = Field(description="Rate received, without duplicates, in millions of frames a second.")
    gbps_l1: Amount = Field(
        description="The same rate in Gbit/s at layer 1: frame with FCS, plus 20 bytes of preamble and gap."
    )
    gbps_l2: Amount = Field(description="The same rate in Gbit/s at layer 2: frame with FCS.")
    latency_us: Latency | None = Field(description="Latency in µs; null if no frame was received.")
    histogram: HistogramReference | None = Field(description="The whole distribution; null if no frame was received.")

    @property
    def loss_ratio(self) -> float:
        """Lost ÷ sent; 1 where frames were offered and none was sent, so that a dead port is never the better one."""
        if self.sent:
            return self.lost / self.sent
        return 1.0 if self.offered else 0.0


class Direction(Traffic):
    """All traffic from one port of the tester to another."""

    intervals: tuple[Interval, ...] = Field(description="The trial by interval, in order of time.")
    streams: tuple[Traffic, ...] = Field(
        default=(), description="The streams this direction is the sum of; empty where it is a single stream."
    )
    hops: Hops | None = Field(default=None, description="Latency by hop and function; null unless it was asked for.")


class Floor(OfTraffic):
    """What the tester measured of itself beforehand, over two ports of one kind joined with each other."""

    ports: str = Field(min_length=1, description="Kind of the two ports, such as vhost-user.")
    offered_pps: Amount = Field(description="Rate of each direction in frames a second.")
    latency_us: Latency = Field(description="Latency of the worse direction in µs.")


class Share(Record):
    """The functions' own share of the latency: the chain less the floor, same profile, same direction.

    A difference of percentiles, which is not a percentile of differences; it may be negative where the two are closer
    than the noise.
    """

    floor: str = Field(description="Name of the trial that measured the floor.")
    average: float = Field(description="Difference of the means, in µs.")
    p50: float = Field(description="Difference of the medians, in µs.")
    p99: float = Field(description="Difference of the 99th percentiles, in µs.")
    max: float = Field(description="Difference of the largest latencies, in µs.")


class Alone(Record):
    """What the tester measured of itself, over two of its ports joined with each other, before it soaked a device."""

    seconds: Amount = Field(description="For how long.")
    ports: str = Field(min_length=1, description="What joined the ports, such as vhost-user.")
    offered_pps: Amount = Field(description="Rate of each direction in frames a second.")
    sent: Count = Field(description="Frames sent, of both directions.")
    unsent: Count = Field(description="Frames that it could not send.")
    lost: Count = Field(description="Frames lost, which would be the tester's own.")
    duplicate: Count = Field(description="Copies of a frame after its first.")
    out_of_sequence: Count = Field(description="Frames reordered.")
    latency_us: Latency = Field(description="Latency of the worse direction in µs: nothing measured can be below it.")


class Soak(Record):
    """What a soak has beyond other trials."""

    asked_s: Amount = Field(description="How long it was to measure, in seconds, gaps not counted.")
    interval_s: Amount = Field(description="Length of an interval in seconds.")
    intervals: Count = Field(description="Intervals in the log.")
    alone: Alone | None = Field(default=None, description="The tester by itself; null where its ports take a cable.")
    parts: Count = Field(description="Stretches without a break: one more than there are gaps.")
    gaps: tuple[Gap, ...] = Field(default=(), description="Breaks, in order of time.")
    clock_steps: tuple[ClockStep, ...] = Field(default=(), description="When the machine's clock was set.")
    damaged: Count = Field(default=0, description="Intervals of the log that were damaged on disk, and are left out.")
    log: str = Field(description="The interval log: every interval with its whole distribution; in the run folder.")


class Trial(Measurement):
    """One profile through one chain, at one rate."""

    offered_pps: Amount = Field(
        description="Intended rate of each direction in frames a second; 0 is as fast as possible."
    )
    no_loss_pps: Amount | None = Field(
        description="The rate of `searched`, where this trial confirmed it: at rate_fraction of it, over its full "
        "length, every frame was sent and came back, once and in order. Null where it did not, or none was looked for."
    )
    searched: NoLossRate | None = Field(
        default=None,
        description="The no-loss rate that the trial is at a part of: as short trials found it, or lowered since, "
        "because an earlier attempt did not confirm it. Null if none was looked for.",
    )
    rate_fraction: Amount | None = Field(
        description="offered_pps as a fraction of a no-loss rate: of `searched`, or in pairs of that which was looked "
        "for beforehand; null if the rate was given outright."
    )
    attempt: int | None = Field(
        default=None,
        ge=1,
        description="Which attempt it was at a trial that was made again, because this one did not confirm the rate; "
        "null of the one that stands.",
    )
    duration_s: Amount = Field(description="How long the trial sent, in seconds.")
    started: AwareDatetime = Field(description="When the trial started sending.")
    directions: tuple[Direction, ...] = Field(min_length=1, description="Every direction that carried traffic.")
    headline: Count = Field(
        description="Index of the worse direction: the greater loss ratio, then the larger p99, then the larger max."
    )
    clock: Clock | None = Field(default=None, description="The clock of the latencies; null where it is not known.")
    floor_ratio: Amount | None = Field(
        default=None,
        description="Median latency of the headline as a multiple of the tester's own for the profile; null if that "
        "was not measured.",
    )
    near_floor: bool = Field(
        default=False,
        description="True if floor_ratio is below 3: the figure is the tester's as much as anybody's.",
    )
    share_us: Share | None = Field(
        default=None, description="The functions' own share of the headline's latency; null without a floor."
    )
    soak: Soak | None = Field(default=None, description="Gaps and the log of a soak; null for other trials.")

    @model_validator(mode="after")
    def _check(self) -> Trial:
        if self.headline >= len(self.directions):
            raise ValueError(f"headline is {self.headline}, but there are {len(self.directions)} directions")
        return self

    @property
    def stands_as(self) -> str:
        """The name of the trial that stands: of an attempt, of the last one."""
        if self.attempt is None:
            return self.name
        return name_in_round(self.case.removesuffix(f"-attempt-{self.attempt}"), self.round)

    @property
    def whole(self) -> bool:
        """Whether every frame that was sent came back, once and in order, and nothing else came."""
        return not any(self.total(fault) for fault in FAULTS)

    @property
    def fell_short(self) -> Literal["tester", "refused"] | None:
        """Whose doing it was that much less was sent than offered: the tester's, or the device's, that did not take it;
        None if it was sent."""
        if not sent_of([self]).fell_short:
            return None
        return "refused" if 2 * self.total("refused") >= self.total("unsent") else "tester"

    @property
    def worse(self) -> Direction:
        """The headline's direction."""
        return self.directions[self.headline]

    def floor_ratio_of(self, way: Direction) -> float | None:
        """floor_ratio of any direction: its median as a multiple of the tester's own."""
        headline = self.worse.latency_us
        if self.floor_ratio is None or way.latency_us is None or headline is None or not headline.p50:
            return None
        return self.floor_ratio * way.latency_us.p50 / headline.p50

    @property
    def sent_ratio(self) -> float | None:
        """Sent ÷ offered in the direction where it is least; None where as much was offered as could be sent."""
        known = [ratio for way in self.directions if (ratio := self.sent_ratio_of(way)) is not None]
        return min(known, default=None)

    def sent_ratio_of(self, way: Traffic) -> float | None:
        """Sent ÷ offered of a direction or stream; None where as much was offered as could be sent."""
        return way.sent / way.offered if way.offered and self.offered_pps else None

    def fell_short_in(self, way: Traffic) -> bool:
        """Whether so much less was sent than offered in a direction or stream that its figures are of a lower rate."""
        ratio = self.sent_ratio_of(way)
        return bool(Sent(() if ratio is None else (ratio,)).fell_short)

    def total(self, field: str) -> int:
        """The sum of a count (such as "lost") over all directions."""
        return sum(int(getattr(direction, field)) for direction in self.directions)


def sent_of(trials: Iterable[Trial]) -> Sent:
    """What was sent of what was offered, in all of them."""
    return Sent(tuple(ratio for trial in trials if (ratio := trial.sent_ratio) is not None))


Finding = Annotated[
    ThroughputFinding
    | LossFinding
    | BurstFinding
    | ExitsFinding
    | MigrationFinding
    | ReorderFinding
    | ComparisonFinding
    | MatrixCell
    | ShareFinding
    | StacksFinding,
    Field(discriminator="method"),
]
"""What a method found beside, or instead of, measured trials; to add a method's, a model in findings.py."""


class Run(Record):
    """results.json."""

    format: int = Field(default=FORMAT, ge=FORMAT, le=FORMAT, description="Version of this format.")
    id: str = Field(min_length=1, description="Name of the run folder.")
    name: str = Field(min_length=1, description="What was run, such as demo or latency-chain.")
    method: str = Field(min_length=1, description="How was measured, such as latency or throughput.")
    spec: str | None = Field(
        description="Name of the spec: its file's without .yaml, or the two ports of a device; null if it had none."
    )
    fabric: str | None = Field(
        default=None, description="What carried packets between the functions, such as tailrace."
    )
    started: AwareDatetime = Field(description="When the run started.")
    finished: AwareDatetime | None = Field(description="When the run ended; null while it runs or if it was cut off.")
    valid: bool = Field(description="False if the run did not end as it should; what was measured is kept.")
    reason: str | None = Field(description="Why the run is not valid; null if it is.")
    command: tuple[str, ...] = Field(description="The command that made this run, as a list of arguments.")
    versions: dict[str, str] = Field(description="Versions of Tailrace and of what it stood on, by name.")
    host: dict[str, JsonValue] = Field(description="The host's facts.")
    oversubscribed: bool = Field(description="True if polling threads outnumbered the cores.")
    notes: tuple[str, ...] = Field(description="What a reader must know to judge the figures, one sentence each.")
    repeat: int = Field(default=1, ge=1, description="How often everything was to be measured (--repeat).")
    floors: tuple[Floor, ...] = Field(
        default=(),
        description="What the tester measured of itself beforehand, for each kind of port and of traffic. A trial "
        "stands on the last one before it.",
    )
    trials: tuple[Trial, ...] = Field(description="The trials in the order in which they were measured.")
    findings: tuple[Finding, ...] = Field(default=(), description="What methods found, in order.")
    host_trials: tuple[HostTrial, ...] = Field(
        default=(), description="What `measure host` found of each CPU; empty where traffic was measured."
    )
    host_soak: HostSoak | None = Field(
        default=None, description="How far `measure host` is, and its gaps; null where traffic was measured."
    )

    @model_validator(mode="after")
    def _check(self) -> Run:
        if self.valid != (self.reason is None):
            raise ValueError("a reason is given exactly where valid is false")
        if len({trial.name for trial in self.trials}) != len(self.trials):
            raise ValueError("two trials have the same name")
        if len({(each.method, each.name) for each in self.findings}) != len(self.findings):
            raise ValueError("two findings of a method have the same name")
        return self

    @model_validator(mode="before")
    @classmethod
    def _reckon_anew(cls, document: Any) -> Any:
        """What is pooled is reckoned from the rest, also of a run that is read."""
        if isinstance(document, dict):
            return {name: value for name, value in document.items() if name != "pooled"}
        return document

    @computed_field(  # type: ignore[prop-decorator]
        description="Of what was measured several times, in rounds or pairs: each figure's median, lowest and highest."
    )
    @property
    def pooled(self) -> tuple[Pooled, ...]:
        return tuple(pooled_of(self.standing, self.findings))

    @property
    def standing(self) -> tuple[Trial, ...]:
        """The trials without attempts that were followed by another."""
        return tuple(trial for trial in self.trials if trial.attempt is None)

    @property
    def places(self) -> dict[str, Place]:
        """By the name of a trial that a matrix or pairs are made of: which cell, side or part it is of."""
        known = places(self.findings)
        return {trial.name: known[trial.stands_as] for trial in self.trials if trial.stands_as in known}

    def to_json(self) -> str:
        """The text of results.json. By pydantic, because Python's own encoder takes ten times as long where it indents,
        and a run is written anew with each trial."""
        return self.model_dump_json(indent=1) + "\n"


def parse_run(text: str | bytes, source: str = "results.json") -> Run:
    """Return the run in the text of a results.json.

    Of an older format it is migrated. Raises Unreadable, naming `source`, if the text is no JSON (a file that was cut
    short), breaks the schema, or is of a newer format.
    """
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{source}: not JSON ({error}); was the file cut short?") from error
    version = document.get("format") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Unreadable(f"{source}: no format version; is this a Tailrace results.json?")
    if version > FORMAT:
        raise Unreadable(
            f"{source}: written in format {version}, but this Tailrace reads up to format {FORMAT}; upgrade Tailrace"
        )
    try:
        document = migrate(document, version, FORMAT)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{source}: breaks the format {version} that it says it has ({error})") from error
    try:
        return Run.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the document"
        raise Unreadable(f"{source}: {where}: {first['msg']}") from error


def timestamp(seconds: float) -> datetime:
    """The time `seconds` after the epoch, in UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC)
