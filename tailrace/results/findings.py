"""What methods find beside measured trials: throughput, a curve of loss, the longest burst.

Each finding keeps every trial that it rests on, those that went wrong too, so that a reader can judge it.
"""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Literal

from pydantic import Field

from tailrace.results.no_loss import Bound, Limit, bound_of
from tailrace.results.record import Amount, Count, Measurement, Record

Ratio = Amount

LEAST_SEEN = 0.5
"""The part of the frames of slower replicas that is seen out of sequence at least, where order is looked at rightly."""


class SearchTrial(Record):
    """One trial on the way to a finding. Counts are of both directions, rates and ratios of the worse one."""

    offered_pps: Amount = Field(
        description="Intended rate of each direction in frames a second; 0 is as fast as possible."
    )
    duration_s: Amount = Field(description="How long it was to send, in seconds.")
    sent: Count = Field(description="Frames that the device under test took.")
    unsent: Count = Field(description="Frames that could not be sent; never counted as lost.")
    refused: Count = Field(description="Of the unsent, those that the device did not take in time (back pressure).")
    lost: Count = Field(description="Frames sent and never received within the wait.")
    duplicate: Count = Field(description="Copies of a frame after its first.")
    out_of_sequence: Count = Field(description="Frames reordered by RFC 4737, section 3.")
    beyond_window: Count = Field(description="Frames too late for the analyser to tell a duplicate from a first copy.")
    foreign: Count = Field(description="Frames received that the trial did not send.")
    sent_pps: Amount = Field(description="Rate really sent, in frames a second: what the trial is evidence for.")
    forwarded_pps: Amount = Field(description="Rate received without duplicates, in frames a second.")
    loss_ratio: Ratio = Field(le=1, description="Lost by sent.")
    fell_short: Literal["tester", "refused"] | None = Field(
        description="Why less was sent than intended: tester: it could not keep the rate, which does not count against "
        "the device; refused: the device did not take the frames; null: it was sent."
    )


class Goal(Record):
    """The highest rate with at most one loss ratio."""

    loss_ratio: Ratio = Field(le=1, description="The most that may be lost: 0 for the no-drop rate (NDR).")
    pps: Amount = Field(
        description="The highest rate of each direction that passed, as really sent, in frames a second; 0 if none did."
    )
    upper_pps: Amount | None = Field(description="The lowest rate that failed; null if none did.")
    gbps_l1: Amount = Field(description="The rate in Gbit/s at layer 1: frame with FCS, 20 bytes of preamble and gap.")
    gbps_l2: Amount = Field(description="The rate in Gbit/s at layer 2: frame with FCS.")
    limit: Limit = Field(
        description="What kept it from being higher: loss; refused: the device took no more; tester: the tester could "
        "send no more; rate: no more was asked for; trials: their number ran out."
    )

    @property
    def bound(self) -> Bound | None:
        """That the device's rate may be higher, where the limit was not the device's; None else."""
        return bound_of(self.limit)


class ThroughputFinding(Measurement):
    """The throughput of one profile (RFC 2544, section 26.1; ETSI GS NFV-TST 009, 12.3; RFC 9971)."""

    method: Literal["throughput"] = Field(default="throughput", description="What kind of finding it is.")
    search: Literal["mlrsearch", "tst009", "rfc2544"] = Field(description="How it was searched for.")
    precision: Ratio = Field(description="How close the bounds were to be, as a ratio.")
    goals: tuple[Goal, ...] = Field(description="One for each loss ratio that was asked for.")
    trials: tuple[SearchTrial, ...] = Field(description="Every trial, in order.")


class LossFinding(Measurement):
    """Frame loss rate by offered rate (RFC 2544, section 26.3)."""

    method: Literal["loss"] = Field(default="loss", description="What kind of finding it is.")
    full_pps: Amount = Field(description="The rate that is 100 %, in frames a second.")
    trials: tuple[SearchTrial, ...] = Field(
        description="From the full rate down; where the tester fell short, the same rate follows again."
    )

    @property
    def points(self) -> dict[float, SearchTrial]:
        """The last trial at each rate, by the rate's part of the full one."""
        return {round(trial.offered_pps / self.full_pps, 6): trial for trial in self.trials}


class BurstFinding(Measurement):
    """The longest burst without loss (RFC 9004), found several times."""

    method: Literal["burst"] = Field(default="burst", description="What kind of finding it is.")
    frames: tuple[Count, ...] = Field(description="The longest burst of each direction in frames, of each repetition.")
    longest: Count = Field(description="The longest that was tried.")
    step: Count = Field(description="The smallest step between two lengths in frames.")
    rate_pps: Amount = Field(description="How fast a burst was sent, in frames a second: the most that could be.")
    throughput_pps: Amount = Field(
        description="The rate without loss, in frames a second, found beforehand; 0 if it was not."
    )
    limit: Literal["loss", "refused", "longest"] | None = Field(
        description="loss: longer bursts lost frames; longest: none did, up to the longest tried; refused: the "
        "device held the sender back, so that its buffer cannot be filled, and the length says nothing of it; null if "
        "no length was found."
    )
    trials: Count = Field(description="How many bursts were sent.")
    beforehand: tuple[SearchTrial, ...] = Field(
        default=(), description="The trials of the search for the rate without loss beforehand, in order."
    )

    @property
    def average(self) -> float:
        """The benchmark, in frames (section 6.3)."""
        return fmean(self.frames) if self.frames else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation in frames."""
        return stdev(self.frames) if len(self.frames) > 1 else 0.0

    @property
    def implied_buffer_s(self) -> float:
        """Implied DUT buffer time in seconds (section 6.4)."""
        return self.average / self.rate_pps if self.rate_pps else 0.0

    @property
    def corrected_buffer_s(self) -> float:
        """Corrected DUT buffer time in seconds (section 6.4): less what left the buffer while the burst came in."""
        return self.implied_buffer_s * max(0.0, 1 - self.throughput_pps / self.rate_pps) if self.rate_pps else 0.0


class ExitsFinding(Measurement):
    """How often the guests of machines were left while frames passed, with one kind of interface."""

    method: Literal["exits"] = Field(default="exits", description="What kind of finding it is.")
    interface: str = Field(description="What the guests see as their ports: vhost-user, virtio, e1000e or vmxnet3.")
    drivers: tuple[str, ...] = Field(description="Whose drivers the ports have inside: dpdk, linux.")
    source: Literal["kvm", "emulated"] = Field(
        description="kvm: the exits that KVM counted; emulated: accesses of the guests to device registers, which "
        "QEMU emulated. They stand in for exits: with KVM each would be one."
    )
    machines: Count = Field(description="How many machines the chain leads through.")
    seconds: Amount = Field(description="How long was counted, in seconds.")
    packets: Count = Field(description="Frames that passed meanwhile, in both directions.")
    reasons: dict[str, Count] = Field(description="How often, by reason: of all machines together.")

    @property
    def total(self) -> int:
        return sum(self.reasons.values())

    @property
    def each_second(self) -> float:
        return self.total / self.seconds if self.seconds else 0.0

    @property
    def each_packet(self) -> float | None:
        """None where none passed."""
        return self.total / self.packets if self.packets else None


class RoundTrips(Record):
    """Round trips of pings, one each millisecond."""

    min_us: Amount = Field(description="Shortest, in µs.")
    average_us: Amount = Field(description="Mean, in µs.")
    max_us: Amount = Field(description="Longest, in µs.")
    mdev_us: Amount = Field(description="Their standard deviation in µs, as ping(8) says it: the jitter.")
    lost: Count = Field(description="Pings without an answer.")


class StacksFinding(Measurement):
    """TCP between two network stacks of Linux's that are joined in one way, and the round trip between them."""

    method: Literal["stacks"] = Field(default="stacks", description="What kind of finding it is.")
    profile: str = Field(default="tcp", min_length=1, description="Kind of traffic: tcp.")
    functions: Count | None = Field(default=None, description="Null: there is no chain between them.")
    way: str = Field(description="What joins them: tailrace, ovs-dpdk, veth, linux-bridge or passthrough.")
    not_here: str | None = Field(default=None, description="Why it cannot be measured on this machine; null if it was.")
    gbps: dict[str, Amount] = Field(
        default_factory=dict,
        description="Payload received in Gbit/s, by one connection; by the bytes of each write.",
    )
    retransmits: Count | None = Field(default=None, description="Segments sent again, in all transfers.")
    ping: RoundTrips | None = Field(default=None, description="Round trips beside no other traffic.")


class Order(Record):
    """What a trial says of order, over both directions."""

    sent: Count = Field(description="Frames that the device under test took.")
    received: Count = Field(description="Frames received, without duplicates.")
    out_of_sequence: Count = Field(description="Frames reordered by RFC 4737, section 3.")
    beyond_window: Count = Field(description="Frames too late for the analyser to tell a duplicate from a first copy.")
    extent_average: Amount = Field(description="Mean extent of the reordered frames (RFC 4737, section 4.2).")
    extent_max: Count = Field(description="Largest extent, in frames.")
    extent_unknown: Count = Field(description="Reordered frames whose extent is not known.")

    @property
    def ratio(self) -> float:
        """The reordered ratio (RFC 4737, section 4.1): reordered by received without duplicates."""
        return self.out_of_sequence / self.received if self.received else 0.0


class ReorderFinding(Measurement):
    """Whether disturbed order is seen, and pinned flows keep theirs."""

    method: Literal["reorder"] = Field(default="reorder", description="What kind of finding it is.")
    flows: Count = Field(description="Flows in each direction.")
    delays_us: dict[str, Amount] = Field(description="How long each replica delays frames, in µs, by its name.")
    slower: Count = Field(
        description="Frames of the flows together that took a replica slower than the fastest, and so are overtaken."
    )
    together: Order = Field(description="All flows of a direction as one stream.")
    apart: Order = Field(description="Each flow as a stream of its own.")

    @property
    def seen(self) -> float:
        """Of the frames that took a slower replica, the part that was seen out of sequence."""
        return self.together.out_of_sequence / self.slower if self.slower else 0.0

    @property
    def as_planned(self) -> bool:
        """Whether the frames of the flows together that took a slower replica were out of sequence, and no more than
        those, but for 1 %: a fast one that the machine holds up is overtaken too."""
        return self.unseen is None and self.together.out_of_sequence <= 1.01 * self.slower

    @property
    def unseen(self) -> str | None:
        """Why the disturbed order was not seen, so that the finding says nothing of order; None if it was."""
        if not self.slower:
            return "no frame took a slower replica, so no order was disturbed"
        if self.seen < LEAST_SEEN:
            return (
                f"of {self.slower:,} frames that took a slower replica only {self.together.out_of_sequence:,} were "
                "seen out of sequence, so the order of the others is not known either"
            )
        return None
