"""TCP between two network stacks, way by way: the table of `measure matrix` with `stacks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, count, microseconds
from tailrace.report.rounds import figure, remark
from tailrace.report.section import Section
from tailrace.results.findings import RoundTrips, StacksFinding
from tailrace.results.record import Measurement
from tailrace.results.spread import by_case

_PINGS: tuple[tuple[str, Callable[[RoundTrips], float]], ...] = (
    ("ping, least µs", lambda ping: ping.min_us),
    ("mean µs", lambda ping: ping.average_us),
    ("most µs", lambda ping: ping.max_us),
    ("mdev µs", lambda ping: ping.mdev_us),
)


def stacks(found: Sequence[Measurement]) -> Iterator[Section]:
    """A row for each way between the stacks; why there is none is said below."""
    ours = [each for each in found if isinstance(each, StacksFinding)]
    if not ours:
        return
    sizes = sorted({int(size) for each in ours for size in each.gbps})
    pings = [each.ping for each in ours if each.ping is not None]
    lost = sum(each.lost for each in pings)
    yield Section(
        "TCP between two network stacks",
        ("way", *(f"{size} B, Gbit/s" for size in sizes), "sent again", *(name for name, _ in _PINGS)),
        tuple(_row(rounds, sizes) for rounds in by_case(ours)),
        (
            "Payload received by one connection (iperf3), by the bytes of each write. ping: one each millisecond "
            "beside no other traffic; mdev is their standard deviation, the jitter.",
            "veth is native, linux-bridge a host's default; passthrough: a virtual function for each stack.",
            *([f"{lost} pings had no answer."] if lost else []),
            *_reasons(ours),
            *remark(max(each.round for each in ours)),
        ),
    )


def _row(rounds: Sequence[StacksFinding], sizes: Sequence[int]) -> tuple[str, ...]:
    measured = [each for each in rounds if each.gbps]
    if not measured:
        said = "not here" if any(each.not_here for each in rounds) else "failed"
        return (plain(rounds[0].way), said, *[MISSING] * (len(sizes) + len(_PINGS)))
    pings = [each.ping for each in measured if each.ping is not None]
    return (
        plain(rounds[0].way),
        *(figure([each.gbps[str(size)] for each in measured if str(size) in each.gbps], _gbps) for size in sizes),
        figure([each.retransmits for each in measured if each.retransmits is not None], _count),
        *(figure([of(ping) for ping in pings], microseconds) for _, of in _PINGS),
    )


def _count(value: float) -> str:
    return count(int(value))


def _gbps(value: float) -> str:
    return f"{value:.3g}"


def _reasons(found: Sequence[StacksFinding]) -> Iterator[str]:
    """Why ways have no figures, each reason once."""
    for each in found:
        if each.not_here is not None or each.reason is not None:
            what, reason = ("Not here", each.not_here) if each.not_here is not None else ("Failed", each.reason)
            yield plain(f"{what}, {reason} ({each.way}).")
