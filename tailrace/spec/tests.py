"""What can be measured, as a spec words it: one model for each method, and `Test`, which is one of them.

A method is `tailrace measure NAME SPEC`, a test of it `- NAME: {...}` under `tests:`. To add one: a model here and a
field of `Test`; the method itself is in tailrace/measure (`method.py` says how).
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from tailrace.spec import units
from tailrace.spec.fields import Duration, Model, OneOrMany, PacketRate, Pause, Rate, Ratio
from tailrace.spec.traffic import Frames, Traffic, differ, differ_or_none, listed

#: Streams of one trial each way.
MOST_STREAMS = 32
#: RFC 2544, section 9.1, for Ethernet.
RFC_2544_FRAMES = (64, 128, 256, 512, 1024, 1280, 1518)
#: RFC 2544, section 23: so long a device is left alone before a trial, in seconds.
RFC_2544_SETTLE = 5.0


def _in_range(least: float, most: float) -> AfterValidator:
    def check(value: float) -> float:
        if not least <= value <= most:
            raise ValueError(
                f"{units.show_duration(value)} is out of range; "
                f"expected from {units.show_duration(least)} to {units.show_duration(most)}"
            )
        return value

    return AfterValidator(check)


Rates = Annotated[list[Rate], listed, AfterValidator(differ), OneOrMany()]
Ratios = Annotated[list[Ratio], listed, AfterValidator(differ), OneOrMany()]
TrialDuration = Annotated[Duration, _in_range(0.1, 14 * 24 * 3600)]
#: A neighbour ends by itself after 4 hours, so that none outlives whoever started it by longer.
NoisyDuration = Annotated[Duration, _in_range(0.1, 3 * 3600)]
SearchDuration = Annotated[Duration, _in_range(0.01, 3600)]


class Latency(Traffic):
    """One-way latency of the chain between tester.a and tester.b, both directions at once, every frame timed."""

    rate: Rates = Field(
        [units.Rate(fraction=0.9)],
        validate_default=False,
        description="in each direction: packets a second, or a part of the no-loss rate, which is then searched for; "
        "several are measured one after the other",
    )
    duration: TrialDuration = Field(60.0, validate_default=False, description="of each measured trial")


class _Searching(Traffic):
    frames: Frames = Field(list(RFC_2544_FRAMES), validate_default=False, description="each is measured on its own")
    wait: Duration = Field(
        2.0, validate_default=False, description="for the last frames of a trial (RFC 2544, section 23)"
    )
    settle: Pause | None = Field(
        None,
        description="pause before every trial, also a short one, so that the device settles; unless given, 5s before "
        "each trial of `duration` (RFC 2544, section 23) and none before the short ones of a search",
    )

    @field_validator("wait", "settle")
    @classmethod
    def _pauses_in_range(cls, value: float | None) -> float | None:
        if value is not None and value > 60:
            raise ValueError(f"{units.show_duration(value)} is too long; expected at most 60s")
        return value


class Throughput(_Searching):
    """The highest rate that is forwarded with at most a stated loss (none: the throughput of RFC 2544)."""

    search: Literal["mlrsearch", "tst009", "rfc2544"] = Field(
        "mlrsearch",
        description="mlrsearch: Multiple Loss Ratio search (RFC 9971); tst009: binary search with loss verification "
        "(ETSI GS NFV-TST 009, 12.3.3); rfc2544: binary search, where the first lossy trial counts",
    )
    loss: Ratios = Field(
        [0.0, 0.005],
        validate_default=False,
        description="the loss ratios to find a rate for: 0% is the no-drop rate (NDR), 0.5% a partial one (PDR)",
    )
    precision: Ratio = Field(
        0.005,
        validate_default=False,
        description="how close the highest rate that passed and the lowest that failed are",
    )
    trial: SearchDuration = Field(1.0, validate_default=False, description="of the search's first trials")
    duration: TrialDuration = Field(
        60.0, validate_default=False, description="of the trials that decide (RFC 2544, section 24: at least 60s)"
    )
    repeats: int = Field(
        2, ge=1, le=100, description="of tst009: how often a rate must lose frames before that counts, max(r)"
    )
    rate: PacketRate | None = Field(
        None,
        description="the highest to try, in packets a second: what the port carries; else what the tester can send",
    )
    trials: int = Field(
        100, ge=10, le=10_000, description="the most trials for each profile; then the bounds so far stand"
    )

    @field_validator("precision")
    @classmethod
    def _precision_in_range(cls, value: float) -> float:
        if not 1e-4 <= value <= 0.5:
            raise ValueError(f"{units.show_ratio(value)} is out of range; expected a precision from 0.01% to 50%")
        return value

    @field_validator("loss")
    @classmethod
    def _some_must_arrive(cls, value: list[float]) -> list[float]:
        for each in value:
            if each >= 1:
                raise ValueError("100% would have nothing arrive; expected a loss ratio below 100%")
        return value

    @model_validator(mode="after")
    def _trials_in_order(self) -> Throughput:
        if self.trial > self.duration:
            raise ValueError(
                f"the search's trials ({units.show_duration(self.trial)}) are longer than those that decide "
                f"({units.show_duration(self.duration)}); expected trial to be at most duration"
            )
        return self


class Loss(_Searching):
    """Frame loss rate by offered rate: from the full rate down, until two in a row lose nothing (RFC 2544, 26.3)."""

    rate: PacketRate | None = Field(
        None, description="the full rate, in packets a second: what the port carries; else what the tester can send"
    )
    step: Ratio = Field(0.1, validate_default=False, description="of the full rate between two points, at most 10%")
    duration: TrialDuration = Field(60.0, validate_default=False, description="of each trial")

    @field_validator("step")
    @classmethod
    def _step_in_range(cls, value: float) -> float:
        if not 0.001 <= value <= 0.1:
            raise ValueError(
                f"{units.show_ratio(value)} is out of range; expected a step from 0.1% to 10% (RFC 2544, section 26.3)"
            )
        return value


class Burst(_Searching):
    """The longest burst of frames back to back of which none is lost (RFC 9004)."""

    times: int = Field(50, ge=1, le=10_000, description="how often it is searched for; the average is the benchmark")
    settle: Pause | None = Field(
        None,
        description="pause before every burst, also before a trial of the search for the throughput; none unless "
        "given: RFC 9004, section 6.2, has `wait` alone",
    )
    longest: SearchDuration = Field(
        2.0, validate_default=False, description="the longest burst to try, by the time that sending it takes"
    )
    precision: Ratio = Field(0.01, validate_default=False, description="how close the longest that passed must be")

    @field_validator("precision")
    @classmethod
    def _precision_in_range(cls, value: float) -> float:
        if not 1e-4 <= value <= 0.5:
            raise ValueError(f"{units.show_ratio(value)} is out of range; expected a precision from 0.01% to 50%")
        return value

    @model_validator(mode="after")
    def _one_size(self) -> Burst:
        if self.pcap is not None or "imix" in self.frames:
            raise ValueError(
                "a burst has frames of one size (RFC 9004, section 3); expected sizes, without imix or pcap"
            )
        return self


class Reorder(Traffic):
    """Whether order that is disturbed is seen, and pinned flows keep theirs, where replicas delay frames unequally."""

    frames: Frames = Field([64], validate_default=False, description="each is measured on its own")
    flows: int = Field(
        16, ge=2, le=MOST_STREAMS, description="UDP flows in each direction, as one stream and then as one stream each"
    )
    rate: PacketRate = Field(
        20_000, validate_default=False, description="in each direction, all flows together, in packets a second"
    )
    duration: TrialDuration = Field(5.0, validate_default=False, description="of each of the two trials")

    @model_validator(mode="after")
    def _made_frames(self) -> Reorder:
        if self.pcap is not None:
            raise ValueError("a capture's flows are not known; expected frames")
        return self


class Soak(Traffic):
    """Minutes to days at a steady rate, kept interval by interval (RFC 8204, section 4.2)."""

    frames: Frames = Field(["imix"], validate_default=False, description="one frame size, or imix")
    rate: Rate = Field(
        units.Rate(fraction=0.5),
        validate_default=False,
        description="in each direction: packets a second, or a part of the no-loss rate, which is then searched for",
    )
    duration: TrialDuration = Field(
        24 * 3600.0, validate_default=False, description="how long to measure: at least 6h (RFC 8204), ideally 24h"
    )
    interval: Annotated[Duration, _in_range(0.01, 300)] = Field(
        10.0, validate_default=False, description="of each record; at most 5min (RFC 8204)"
    )
    alone: Annotated[Duration, _in_range(0.1, 24 * 3600)] = Field(
        60.0, validate_default=False, description="how long the tester is soaked by itself first"
    )

    @model_validator(mode="after")
    def _one_kind_in_intervals(self) -> Soak:
        if self.pcap is None and len(self.frames) != 1:
            raise ValueError(f"{len(self.frames)} kinds of frames; a soak sends one: a frame size, imix or a pcap")
        if self.interval > self.duration:
            raise ValueError(
                f"an interval of {units.show_duration(self.interval)} is longer than the soak of "
                f"{units.show_duration(self.duration)}; expected interval to be at most duration"
            )
        return self


FabricName = Literal["tailrace", "ovs-dpdk", "linux-bridge", "direct", "card"]
InterfaceName = Literal["vhost-user", "memif", "tap", "veth", "passthrough"]
CardName = Annotated[str, Field(min_length=1, max_length=32)]
PatternName = Literal["P2P", "PVP", "PVVP", "VV", "north/south", "east/west"]
FunctionCount = Annotated[int, Field(ge=1, le=8)]


StackWay = Literal["tailrace", "ovs-dpdk", "veth", "linux-bridge", "passthrough"]
MessageSize = Annotated[int, Field(ge=1, le=128 << 10)]


class Matrix(Traffic):
    """Fabrics by kinds of ports, patterns, numbers of functions and frame sizes; each cell is measured on its own."""

    fabrics: Annotated[list[FabricName], listed, AfterValidator(differ), OneOrMany()] = Field(
        ["tailrace", "ovs-dpdk", "linux-bridge", "direct"], validate_default=False, description="what carries packets"
    )
    interfaces: Annotated[list[InterfaceName], listed, AfterValidator(differ), OneOrMany()] = Field(
        ["vhost-user", "memif", "tap"],
        validate_default=False,
        description="what the functions' ports are, as far as a fabric has them",
    )
    patterns: Annotated[list[PatternName], listed, AfterValidator(differ), OneOrMany()] = Field(
        ["P2P", "PVP", "PVVP", "VV"],
        validate_default=False,
        description="as in RFC 8204; north/south and east/west have as many functions as `functions` says",
    )
    functions: Annotated[list[FunctionCount], listed, AfterValidator(differ), OneOrMany()] = Field(
        [1, 2, 3, 4, 5, 6, 7, 8], validate_default=False, description="how many, of north/south and east/west"
    )
    card: Annotated[list[CardName], listed, OneOrMany()] = Field(
        [],
        max_length=2,
        validate_default=False,
        description="the network card of fabric `card`: its Linux interface, or the PCI address of its port; two for "
        "north/south",
    )
    outside: Annotated[list[CardName], listed, AfterValidator(differ_or_none), OneOrMany()] = Field(
        [],
        max_length=2,
        validate_default=False,
        description="the Linux interface at the far end of each one's cable, for north/south",
    )
    runs_in: Literal["process", "machine"] = Field(
        "process", description="where the functions live; machines have vhost-user ports and virtual functions"
    )
    stacks: Annotated[list[StackWay], listed, AfterValidator(differ_or_none), OneOrMany()] = Field(
        [],
        validate_default=False,
        description="what joins two TCP stacks of Linux's, measured beside the cells by iperf3 and ping: a switch, "
        "veth (native), linux-bridge (a host's default), or a virtual function of `card` for each (passthrough)",
    )
    messages: Annotated[list[MessageSize], listed, AfterValidator(differ), OneOrMany()] = Field(
        [64, 256, 1518, 65536],
        min_length=1,
        validate_default=False,
        description="bytes of each write of iperf3's, of `stacks`; each is measured on its own",
    )
    frames: Frames = Field([64, 1518], validate_default=False, description="each is measured on its own")
    rate: Rate = Field(
        units.Rate(fraction=0.9),
        validate_default=False,
        description="in each direction: packets a second, or a part of the cell's own no-loss rate",
    )
    duration: TrialDuration = Field(
        5.0,
        validate_default=False,
        description="of each cell's measured trial; of each transfer between stacks, rounded up to whole seconds",
    )

    @model_validator(mode="after")
    def _outside_of_cards(self) -> Matrix:
        if self.outside and not self.card:
            raise ValueError("outside is the far end of each card's cable; expected card beside it")
        return self


NeighbourName = Literal["cpu", "cache", "memory", "disk", "vnf"]


class Noise(Traffic):
    """The same trial with and without a noisy neighbour, in turn; the ratio of each percentile."""

    neighbours: Annotated[list[NeighbourName], listed, AfterValidator(differ), OneOrMany()] = Field(
        ["cpu", "cache", "memory", "disk", "vnf"],
        validate_default=False,
        description="what they press on, or vnf: another chain on the same switch at full rate",
    )
    pairs: int = Field(5, ge=1, le=1000, description="quiet and noisy trials of each neighbour")
    frames: Frames = Field([64], validate_default=False, description="each is measured on its own")
    rate: Rate = Field(
        units.Rate(fraction=0.5),
        validate_default=False,
        description="in each direction: packets a second, or a part of the quiet no-loss rate",
    )
    duration: NoisyDuration = Field(5.0, validate_default=False, description="of each trial")


class Share(Traffic):
    """One function's own part of the latency: its chain, less the same chain with the skeleton in its place."""

    function: str | None = Field(
        None, min_length=1, description="whose part; unless given, that of each function of the chain in turn"
    )
    pairs: int = Field(5, ge=1, le=1000, description="trials with the function and with the skeleton in its place")
    frames: Frames = Field([64], validate_default=False, description="each is measured on its own")
    rate: Rate = Field(
        units.Rate(fraction=0.5),
        validate_default=False,
        description="in each direction: packets a second, or a part of the chain's no-loss rate with the function",
    )
    duration: TrialDuration = Field(5.0, validate_default=False, description="of each trial")


MachineInterfaceName = Literal["vhost-user", "virtio", "e1000e", "vmxnet3"]


class Exits(Traffic):
    """Why machines leave their guests while frames pass, by the kind of their interfaces."""

    interfaces: Annotated[list[MachineInterfaceName], listed, AfterValidator(differ), OneOrMany()] = Field(
        ["vhost-user", "virtio", "e1000e", "vmxnet3"],
        validate_default=False,
        description="the kinds to compare; each takes the place of what the spec's machines have",
    )
    frames: Frames = Field([64], validate_default=False, description="each is measured on its own")
    rate: PacketRate = Field(5_000, validate_default=False, description="in each direction, in packets a second")
    duration: Annotated[Duration, _in_range(0.1, 600)] = Field(5.0, validate_default=False, description="of each trial")


class Migration(Traffic):
    """How long a machine's traffic stops when it moves to another node while it runs, and what becomes of frames."""

    frames: Frames = Field([64], validate_default=False, description="each is measured on its own")
    flows: int = Field(
        2, ge=1, le=MOST_STREAMS, description="UDP flows in each direction, each a stream whose outage is measured"
    )
    rate: PacketRate = Field(
        200,
        validate_default=False,
        description="in each direction, all flows together, in packets a second; the outage is known to the time "
        "between two packets of a flow",
    )

    @model_validator(mode="after")
    def _flows_are_known(self) -> Migration:
        if self.pcap is not None:
            raise ValueError("a capture's flows are not known; expected frames")
        if self.rate / self.flows < 10:
            raise ValueError(
                f"{self.rate:g} packets a second in {self.flows} flows say little of an outage; expected at least 10 "
                "packets a second of each flow"
            )
        return self


class Test(Model):
    """Something to measure: exactly one of these."""

    __test__ = False  # not one of pytest's
    latency: Latency | None = None
    throughput: Throughput | None = None
    loss: Loss | None = None
    burst: Burst | None = None
    soak: Soak | None = None
    reorder: Reorder | None = None
    matrix: Matrix | None = None
    noise: Noise | None = None
    share: Share | None = None
    exits: Exits | None = None
    migration: Migration | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Test:
        if len(self.model_fields_set) != 1 or getattr(self, next(iter(self.model_fields_set))) is None:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"a test is of one method; expected exactly one of {names}, with `{{}}` for its defaults")
        return self

    @property
    def kind(self) -> str:
        """The method's name."""
        return next(iter(self.model_fields_set))

    @property
    def settings(self) -> Traffic:
        """What the test says, by the method's own model."""
        found: Traffic = getattr(self, self.kind)
        return found


#: The model of each method's tests, by its name.
METHODS: dict[str, type[Traffic]] = {
    name: next(each for each in get_args(field.annotation) if each is not type(None))
    for name, field in Test.model_fields.items()
}
