"""What methods found, as tables and charts: the same rows in the terminal and in the HTML report.

Where a run was repeated, a row is of all its rounds: the median, with the lowest and the highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace.process.plain import plain
from tailrace.report.comparisons import cells_table, comparisons, heats
from tailrace.report.figures import (
    FAULTS,
    MISSING,
    chain_name,
    chains,
    count,
    in_order,
    mega,
    microseconds,
    percent,
    profile_name,
    rates,
)
from tailrace.report.lines import Chart, Line
from tailrace.report.marks import bound_remark, by_bound, by_floor, by_sent, short_remark
from tailrace.report.migration import moves
from tailrace.report.rounds import figure, remark
from tailrace.report.section import Section as Section
from tailrace.report.share import shares
from tailrace.report.stacks import stacks
from tailrace.results.findings import (
    BurstFinding,
    ExitsFinding,
    Goal,
    LossFinding,
    ReorderFinding,
    StacksFinding,
    ThroughputFinding,
)
from tailrace.results.migration import MigrationFinding
from tailrace.results.model import Run, Trial, sent_of
from tailrace.results.no_loss import Bound
from tailrace.results.pooled import COMPARING
from tailrace.results.record import Measurement, Sent
from tailrace.results.spread import by_case, spread

LIMITS = {
    "loss": "loss",
    "refused": "back pressure",
    "tester": "the tester",
    "rate": "no more was tried",
    "trials": "the trials ran out",
    "longest": "no longer one was tried",
}
MOST_REASONS = 3
"""That a row names; all are in results.json."""
SEARCHES = {"mlrsearch": "MLRsearch", "tst009": "TST 009", "rfc2544": "RFC 2544"}


def sections(run: Run) -> Iterator[Section]:
    """The sections of a run: what it found, by method, and its trials by case if it was repeated."""
    throughput = [each for each in run.findings if isinstance(each, ThroughputFinding)]
    for search, title in SEARCHES.items():
        if found := [each for each in throughput if each.search == search]:
            yield _throughput(found, title)
    curves = [each for each in run.findings if isinstance(each, LossFinding)]
    if curves:
        yield _loss(curves)
    bursts = [each for each in run.findings if isinstance(each, BurstFinding)]
    if bursts:
        yield _burst(bursts)
    exits = [each for each in run.findings if isinstance(each, ExitsFinding)]
    if exits:
        yield _exits(exits)
    if moved := [each for each in run.findings if isinstance(each, MigrationFinding)]:
        yield moves(moved)
    orders = [each for each in run.findings if isinstance(each, ReorderFinding)]
    if orders:
        yield _reorder(orders)
    yield from comparisons(run.findings)
    yield from heats(run.findings)
    yield from shares(run.findings)
    yield from cells_table(run.findings)
    yield from stacks(run.findings)
    if (
        run.repeat > 1
        and run.trials
        and not any(isinstance(each, (*COMPARING, MigrationFinding, StacksFinding)) for each in run.findings)
    ):
        standing = [trial for trial in in_order(run) if trial.attempt is None]
        yield from _repeated(standing, rates(run), chains(run))


def _named(measured: Measurement) -> tuple[str, str]:
    return profile_name(measured.profile) + ("" if measured.valid else " !"), chain_name(measured.functions)


def goal_name(loss_ratio: float) -> str:
    """The no-drop rate, or a partial one by its loss."""
    return "NDR" if loss_ratio == 0 else f"PDR {percent(loss_ratio)}"


def _throughput(found: list[ThroughputFinding], search: str) -> Section:
    rows: list[tuple[str, ...]] = []
    lines: dict[str, list[tuple[str, float]]] = {}
    bounds: list[Bound | None] = []
    for rounds in by_case(found):
        first = rounds[0]
        for index, asked in enumerate(first.goals):
            goals: list[Goal] = [each.goals[index] for each in rounds if index < len(each.goals)]
            trials = [trial for each in rounds for trial in each.trials]
            upper = [goal.upper_pps / 1e6 for goal in goals if goal.upper_pps is not None]
            rate = [goal.pps / 1e6 for goal in goals]
            bound = next((goal.bound for goal in goals if goal.bound), None)
            bounds.append(bound)
            median = spread(rate)
            rows.append(
                (
                    *_named(first),
                    goal_name(asked.loss_ratio),
                    by_bound(figure(rate, mega), bound),
                    figure(upper, mega),
                    by_bound(figure([goal.gbps_l1 for goal in goals], mega), bound) if asked.gbps_l1 else MISSING,
                    ", ".join(dict.fromkeys(LIMITS[goal.limit] for goal in goals)),
                    count(len(trials)),
                    count(sum(trial.fell_short == "tester" for trial in trials)),
                )
            )
            label = f"{chain_name(first.functions)}, {goal_name(asked.loss_ratio)}"
            lines.setdefault(label, []).append((profile_name(first.profile), median.median if median else 0.0))
        if not first.goals:
            rows.append((*_named(first), *[MISSING] * 5, count(len(first.trials)), MISSING))
    chart = Chart(
        "Throughput by frame size",
        "frame size",
        "Mpps, each direction",
        tuple(Line(label, tuple(points)) for label, points in lines.items()),
    )
    return Section(
        f"Throughput by {search}",
        ("frames", "VNFs", "rate", "Mpps", "fails at", "Gbps, layer 1", "limit", "trials", "tester short"),
        tuple(rows),
        (
            "The highest rate in each direction that passed, as it was sent, and the lowest that failed. NDR: "
            "nothing lost. PDR: at most the named part lost. Frames that could not be sent are never lost.",
            "Limit: what kept the rate from being higher. Back pressure: the device took no more frames and lost "
            "none. Tester short: trials in which the tester itself sent less; they were repeated and do not count "
            "against the device.",
            *filter(None, [bound_remark(bounds)]),
            *remark(max(each.round for each in found)),
            *_disorder(found),
        ),
        (chart,) if len(rows) > 1 else (),
        naming=3,
    )


def _disorder(found: list[ThroughputFinding]) -> Iterator[str]:
    for each in found:
        copies = sum(trial.duplicate for trial in each.trials)
        disorder = sum(trial.out_of_sequence for trial in each.trials)
        foreign = sum(trial.foreign for trial in each.trials)
        if copies or disorder or foreign:
            yield (
                f"{plain(each.name)}: in the search's trials {count(copies)} frames were duplicated, {count(disorder)} "
                f"out of sequence, {count(foreign)} not the tester's. Only loss decides a search."
            )


def _loss(found: list[LossFinding]) -> Section:
    rows: list[tuple[str, ...]] = []
    lines = []
    for rounds in by_case(found):
        first = rounds[0]
        points: list[tuple[float, float]] = []
        for part in sorted({part for each in rounds for part in each.points}, reverse=True):
            same = [each.points[part] for each in rounds if part in each.points]
            ratio = spread([one.loss_ratio for one in same])
            sent = spread([one.sent_pps / 1e6 for one in same])
            rows.append(
                (
                    *_named(first),
                    f"{part * 100:.4g}%",
                    figure([one.offered_pps / 1e6 for one in same], mega),
                    figure([one.sent_pps / 1e6 for one in same], mega),
                    figure([one.loss_ratio for one in same], percent),
                    count(sum(one.lost for one in same)),
                    count(sum(one.unsent for one in same)),
                    ", ".join(dict.fromkeys(_short(one.fell_short) for one in same if one.fell_short)) or MISSING,
                )
            )
            points.append((sent.median if sent else 0.0, 100 * (ratio.median if ratio else 0.0)))
        lines.append(Line(f"{profile_name(first.profile)}, {chain_name(first.functions)}", tuple(sorted(points))))
    return Section(
        "Loss by offered rate",
        ("frames", "VNFs", "of full rate", "offered Mpps", "sent Mpps", "loss", "lost", "unsent", "fell short"),
        tuple(rows),
        (
            "RFC 2544, section 26.3: from the full rate down until two rates in a row lose nothing; rates that fell "
            "short do not count. Loss is the part of the frames sent, in the worse direction; lost and unsent are "
            "of both.",
            *remark(max(each.round for each in found)),
        ),
        (Chart("Loss by rate", "Mpps sent, each direction", "loss in %", tuple(lines)),),
        naming=3,
    )


def _short(why: str) -> str:
    return "back pressure" if why == "refused" else "the tester"


def _burst(found: list[BurstFinding]) -> Section:
    rows: list[tuple[str, ...]] = []
    for rounds in by_case(found):
        first = rounds[0]
        if not any(each.frames for each in rounds):
            rows.append((*_named(first), *[MISSING] * 9))
            continue
        buffered = all(each.limit == "loss" for each in rounds)
        rows.append(
            (
                *_named(first),
                figure([each.average for each in rounds], lambda number: count(round(number))),
                count(min(min(each.frames, default=0) for each in rounds)),
                count(max(max(each.frames, default=0) for each in rounds)),
                figure([each.deviation for each in rounds], lambda number: count(round(number))),
                count(sum(len(each.frames) for each in rounds)),
                count(first.step),
                figure([each.rate_pps / 1e6 for each in rounds], mega),
                figure([each.corrected_buffer_s * 1e6 for each in rounds], microseconds) if buffered else MISSING,
                ", ".join(dict.fromkeys(LIMITS[each.limit] for each in rounds if each.limit)),
            )
        )
    return Section(
        "Longest burst without loss",
        (
            "frames",
            "VNFs",
            "average",
            "min",
            "max",
            "std. dev.",
            "found",
            "step",
            "sent at Mpps",
            "buffer µs",
            "limit",
        ),
        tuple(rows),
        (
            "RFC 9004: bursts of frames back to back, as fast as the tester sends. Lengths are in frames, of the worse "
            "direction. Buffer: the corrected buffer time of section 6.4. If the limit is not loss, the length says "
            "nothing of the device's buffer.",
            *remark(max(each.round for each in found)),
        ),
        naming=2,
    )


def _exits(found: list[ExitsFinding]) -> Section:
    rows = []
    for each in found:
        most = max(other.each_packet or 0.0 for other in found if other.profile == each.profile)
        fewer = MISSING if each.each_packet in (None, most) else percent(1 - (each.each_packet or 0.0) / most)
        reasons = sorted(each.reasons.items(), key=lambda reason: -reason[1])[:MOST_REASONS]
        rows.append(
            (
                *_named(each),
                each.interface,
                ", ".join(each.drivers),
                count(each.packets),
                count(round(each.each_second)),
                MISSING if each.each_packet is None else f"{each.each_packet:.3g}",
                fewer,
                ", ".join(f"{plain(reason)} {count(number)}" for reason, number in reasons) or MISSING,
            )
        )
    emulated = any(each.source == "emulated" for each in found)
    said = (
        "Machines are emulated here. Accesses of the guests to device registers stand in for exits: with KVM each "
        "would be one. Notifications of vhost-user rings are not seen."
        if emulated
        else "Exits as KVM counts them, by reason."
    )
    return Section(
        "Register accesses by interface, in place of exits" if emulated else "Exits by interface",
        ("frames", "VNFs", "interface", "driver", "packets", "a second", "a packet", "fewer", "most often"),
        tuple(rows),
        (f"{said} Fewer: for each packet, than with the interface that has the most.",),
        naming=4,
    )


def _reorder(found: list[ReorderFinding]) -> Section:
    rows = []
    for rounds in by_case(found):
        first = rounds[0]
        for streams, orders in (
            (1, [each.together for each in rounds]),
            (first.flows, [each.apart for each in rounds]),
        ):
            together = streams == 1
            disturbed = [order for order in orders if order.out_of_sequence]
            rows.append(
                (
                    *_named(first),
                    f"{first.flows} as {streams}",
                    count(sum(order.received for order in orders)),
                    count(sum(each.slower for each in rounds)) if together else MISSING,
                    count(sum(order.out_of_sequence for order in orders)),
                    figure([order.ratio for order in orders], percent),
                    figure([each.seen for each in rounds], percent) if together else MISSING,
                    figure([order.extent_average for order in disturbed], lambda extent: f"{extent:.1f}"),
                    count(max(order.extent_max for order in disturbed)) if disturbed else MISSING,
                )
            )
    delays = ", ".join(f"{plain(name)} {microseconds(delay)}" for name, delay in found[0].delays_us.items())
    return Section(
        "Order",
        (
            "frames",
            "VNFs",
            "flows as streams",
            "received",
            "by slower replica",
            "out of seq.",
            "ratio",
            "of the slower",
            "extent, mean",
            "max",
        ),
        tuple(rows),
        (
            f"Delay of the replicas in µs: {delays}. As one stream: frames that took a slower replica are overtaken, "
            "and must be out of sequence (RFC 4737, section 3). As a stream each: a flow is pinned to one replica, "
            "and no frame may be out of sequence.",
            "Extent: the frames that arrived from the first that overtook a frame until that frame came (RFC 4737, "
            "section 4.2).",
            *remark(max(each.round for each in found)),
        ),
        naming=3,
    )


def _repeated(trials: list[Trial], rate: Mapping[str, str], through: Mapping[str, str]) -> Iterator[Section]:
    traffic: list[tuple[str, ...]] = []
    latency: list[tuple[str, ...]] = []
    sent: dict[str, Sent] = {}
    for rounds in by_case(trials):
        first = rounds[0]
        frames, _ = _named(first)
        name = (frames, through[first.name], *([rate.get(first.name, "")] if rate else []))
        offered = figure([each.offered_pps / 1e6 for each in rounds], mega)
        heard = [each.worse.latency_us for each in rounds if each.worse.latency_us is not None]
        floor = spread([each.floor_ratio for each in rounds if each.floor_ratio is not None])
        shown = {
            field: figure([getattr(each, field) for each in heard], microseconds)
            for field in ("average", "p50", "p99", "p99_9", "max")
        }
        shown["p50"] = by_floor(shown["p50"], floor.median if floor else None)
        name_sent = sent_of(rounds)
        sent[", ".join(name)] = name_sent
        traffic.append(
            (
                *name,
                offered,
                by_sent(figure([each.worse.mpps for each in rounds], mega), short=name_sent.fell_short),
                *(count(sum(each.total(fault) for each in rounds)) for fault in FAULTS),
                str(len(rounds)),
            )
        )
        latency.append(
            (
                *name,
                offered,
                *(by_sent(text, short=name_sent.fell_short) for text in shown.values()),
            )
        )
    naming = ("frames", "VNFs", *(["rate"] if rate else []))
    yield Section(
        "All rounds together: traffic",
        (*naming, "offered Mpps", "received Mpps", "lost", "duplicate", "out of seq.", "rounds"),
        tuple(traffic),
        naming=len(naming),
    )
    yield Section(
        "All rounds together: latency",
        (*naming, "offered Mpps", "avg µs", "p50 µs", "p99 µs", "p99.9 µs", "max µs"),
        tuple(latency),
        (
            "Medians of the rounds, with the lowest and the highest in brackets; lost, duplicate and out of sequence "
            "are summed. A median of maxima is not the maximum: results.json and report.html have each round.",
            *filter(None, [short_remark(sent)]),
        ),
        naming=len(naming),
    )
