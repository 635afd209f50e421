"""What methods found, as lines of the table of comma-separated values: of the columns, those that are not empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tailrace.results.comparison import CellFigures, ComparedRatio, ComparisonFinding, MatrixCell
from tailrace.results.findings import (
    BurstFinding,
    ExitsFinding,
    LossFinding,
    ReorderFinding,
    SearchTrial,
    StacksFinding,
    ThroughputFinding,
)
from tailrace.results.migration import MigrationFinding
from tailrace.results.record import Measurement, is_near_floor
from tailrace.results.share import Contribution, ShareFinding
from tailrace.results.share import Side as ShareSide
from tailrace.results.spread import spread

Line = dict[str, Any]


def lines(finding: Measurement) -> Iterator[Line]:
    """A line for each figure of a finding, and for each trial of a search."""
    yield from figures(finding)
    if isinstance(finding, ThroughputFinding | LossFinding):
        yield from map(_trial, finding.trials)
    elif isinstance(finding, BurstFinding):
        yield from map(_trial, finding.beforehand)


def figures(finding: Measurement) -> Iterator[Line]:
    """A line for each figure of a finding; `over` says of what several values are the median, low and high, the latter
    two being the ends of an interval where there is a `level`."""
    if isinstance(finding, ThroughputFinding):
        yield from _throughput(finding)
    elif isinstance(finding, LossFinding):
        yield from _loss(finding)
    elif isinstance(finding, BurstFinding):
        yield from _burst(finding)
    elif isinstance(finding, ExitsFinding):
        yield from _exits(finding)
    elif isinstance(finding, MigrationFinding):
        yield from _migration(finding)
    elif isinstance(finding, ReorderFinding):
        yield from _reorder(finding)
    elif isinstance(finding, ComparisonFinding):
        yield from _comparison(finding)
    elif isinstance(finding, MatrixCell):
        yield from _cell(finding)
    elif isinstance(finding, ShareFinding):
        yield from _share(finding)
    elif isinstance(finding, StacksFinding):
        yield from _stacks(finding)


def _trial(trial: SearchTrial) -> Line:
    """A trial of a search; counts are of both directions, rates and the loss ratio of the worse one."""
    counts = ("sent", "unsent", "refused", "lost", "duplicate", "out_of_sequence", "beyond_window", "foreign")
    return {
        "offered_pps": trial.offered_pps,
        "duration_s": trial.duration_s,
        **{name: getattr(trial, name) for name in counts},
        "offered": trial.sent + trial.unsent,
        "mpps": trial.forwarded_pps / 1e6,
        "figure": "loss_ratio",
        "value": trial.loss_ratio,
        "fell_short": _fell_short(trial),
    }


def _fell_short(trial: SearchTrial) -> bool | None:
    """Whether less was sent than offered; None where as much was offered as could be sent."""
    return trial.fell_short is not None if trial.offered_pps else None


def _throughput(finding: ThroughputFinding) -> Iterator[Line]:
    for goal in finding.goals:
        name = "ndr" if goal.loss_ratio == 0 else f"pdr_{goal.loss_ratio:g}"
        yield {
            "figure": f"{name}_pps",
            "value": goal.pps,
            "low": goal.pps,
            "high": goal.upper_pps,
            "bound": goal.bound,
        }
        yield {"figure": f"{name}_gbps_l1", "value": goal.gbps_l1}
        yield {"figure": f"{name}_gbps_l2", "value": goal.gbps_l2}
        yield {"figure": f"{name}_limit", "value": goal.limit}


def _loss(finding: LossFinding) -> Iterator[Line]:
    yield {"figure": "full_pps", "value": finding.full_pps}
    for part, trial in finding.points.items():
        yield {
            "figure": f"loss_ratio at {100 * part:g}% of full_pps",
            "value": trial.loss_ratio,
            "fell_short": _fell_short(trial),
        }


def _burst(finding: BurstFinding) -> Iterator[Line]:
    if not finding.frames:
        return
    ends = {"low": min(finding.frames), "high": max(finding.frames)}
    yield {"figure": "burst_average", "value": finding.average, **ends}
    yield {"figure": "burst_deviation", "value": finding.deviation}
    yield {"figure": "burst_rate_pps", "value": finding.rate_pps}
    yield {"figure": "throughput_pps", "value": finding.throughput_pps}
    if finding.limit == "loss":  # else no buffer was filled
        yield {"figure": "corrected_buffer_s", "value": finding.corrected_buffer_s}
    yield {"figure": "limit", "value": finding.limit}


def _exits(finding: ExitsFinding) -> Iterator[Line]:
    yield {"figure": "exits_per_second", "value": finding.each_second}
    yield {"figure": "exits_per_packet", "value": finding.each_packet}
    for reason, number in finding.reasons.items():
        yield {"figure": f"exits {reason}", "value": number}


def _stacks(finding: StacksFinding) -> Iterator[Line]:
    of = {"fabric": finding.way}
    if not finding.gbps:
        yield {**of, "figure": "not_here", "reason": finding.not_here or finding.reason}
    for size, value in finding.gbps.items():
        yield {**of, "figure": f"gbps {size}", "value": value}
    if finding.retransmits is not None:
        yield {**of, "figure": "retransmits", "value": finding.retransmits}
    if finding.ping is not None:
        for name, value in finding.ping.model_dump().items():
            yield {**of, "figure": f"ping_{name}", "value": value}


def _migration(finding: MigrationFinding) -> Iterator[Line]:
    for name in ("outage_ms", "pause_ms", "switch_ms", "total_ms", "forwarded", "parked", "rounds"):
        yield {"figure": name, "value": getattr(finding, name)}
    for stream, value in finding.outages_ms.items():
        yield {"figure": f"outage_ms {stream}", "value": value}


def _reorder(finding: ReorderFinding) -> Iterator[Line]:
    for name, order in (("together", finding.together), ("apart", finding.apart)):
        counts = ("sent", "received", "out_of_sequence", "beyond_window")
        yield {
            **{column: getattr(order, column) for column in counts},
            "figure": f"{name}_reordered_ratio",
            "value": order.ratio,
        }
        yield {"figure": f"{name}_extent_average", "value": order.extent_average}
        yield {"figure": f"{name}_extent_max", "value": order.extent_max}
    yield {"figure": "slower", "value": finding.slower}


def _comparison(finding: ComparisonFinding) -> Iterator[Line]:
    for ratio in finding.ratios:
        yield {
            "offered_pps": finding.offered_pps,
            "figure": f"{ratio.side}/{finding.baseline} {ratio.figure}",
            "value": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
            **_level(ratio),
            "bound": ratio.bound,
            "fell_short": finding.sent(ratio.side, finding.baseline).marks(ratio.figure),
        }
    for side in finding.sides:
        names = dict.fromkeys(name for pair in finding.pairs for name in pair.sides.get(side, ()))
        for name in names:
            short = {
                "offered_pps": finding.offered_pps,
                "bound": finding.bound(side, name),
                "fell_short": finding.sent(side).marks(name),
            }
            yield {**short, **_over_pairs(f"{side} {name}", finding.values(side, name))}
    for side, reason in finding.left_out.items():
        yield {"figure": f"{side}/{finding.baseline}", "reason": reason}


def _share(finding: ShareFinding) -> Iterator[Line]:
    for part in finding.contributions:
        yield {
            "direction": part.direction,
            "offered_pps": finding.offered_pps,
            "figure": f"{finding.function} {part.figure}",
            "value": part.difference_us,
            "low": part.low_us,
            "high": part.high_us,
            **_level(part),
            "fell_short": finding.sent(part.direction, "function", "skeleton").fell_short,
        }
        if part.ratio is not None:
            yield {
                "direction": part.direction,
                "offered_pps": finding.offered_pps,
                "figure": f"with {finding.function}/with skeleton {part.figure}",
                "value": part.ratio,
                "low": part.ratio_low,
                "high": part.ratio_high,
                **_level(part),
                "fell_short": finding.sent(part.direction, "function", "skeleton").fell_short,
            }
    sides: dict[ShareSide, str] = {"function": finding.function, "skeleton": "skeleton"}
    for direction in dict.fromkeys(name for pair in finding.pairs for name in (*pair.function, *pair.skeleton)):
        for side, said in sides.items():
            of = {"direction": direction, "offered_pps": finding.offered_pps}
            short = {"fell_short": finding.sent(direction, side).fell_short}
            known = [getattr(pair, side).get(direction, {}) for pair in finding.pairs]
            for name in dict.fromkeys(name for each in known for name in each):
                values = finding.values(side, direction, name)
                yield {**of, **short, **_over_pairs(f"with {said} {name}", values)}


def _cell(cell: MatrixCell) -> Iterator[Line]:
    of = {"fabric": cell.fabric, "offered_pps": cell.offered_pps}
    if cell.trial is None:
        yield {**of, "figure": "not_here", "reason": cell.not_here or cell.reason}
    for name in CellFigures.model_fields:
        value = getattr(cell, name)
        if name == "offered_pps" or value is None:
            continue
        near: Line = {"near_floor": is_near_floor(value)} if name == "floor_ratio" else {}
        if name == "no_loss_pps":
            near = {"bound": cell.bound}
        figure = {"figure": name.replace("p99_9", "p99.9"), "value": value, "fell_short": cell.sent.marks(name)}
        yield {**of, **figure, **near, **_range(cell, name)}


def _range(cell: MatrixCell, figure: str) -> Line:
    """The lowest and the highest of several rounds."""
    found = cell.spread_of(figure)
    if found is None or len(cell.rounds) < 2:
        return {}
    return {"low": found.low, "high": found.high, "over": "rounds", "values": found.count}


def _level(found: ComparedRatio | Contribution) -> Line:
    """Of how many pairs a figure is the median, and how often such an interval contains the true one."""
    return {"over": "pairs", "values": found.pairs, "level": found.level}


def _over_pairs(figure: str, values: list[float]) -> Line:
    """A figure of one side over pairs; of how its median stands to the tester's own floor, whether that is near."""
    found = spread(values)
    assert found is not None, "a figure is named because a pair has it"
    near = {"near_floor": is_near_floor(found.median)} if figure.endswith(" floor_ratio") else {}
    several = {"low": found.low, "high": found.high, "over": "pairs", "values": found.count} if found.count > 1 else {}
    return {"figure": figure, "value": found.median, **several, **near}
