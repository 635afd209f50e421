"""All figures of runs as one table of comma-separated values (RFC 4180): a line for each direction of each trial; and
for what methods found, a line for each figure, and for each trial of a search; and one for each trial of the host.

Names that come from a spec or a host may be anybody's. A cell of text that a spreadsheet would take for a formula has
an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from tailrace.results.host import HostTrial
from tailrace.results.index import host_name
from tailrace.results.model import Direction, Finding, Floor, Run, Trial
from tailrace.results.pooled import Pooled, over_rounds
from tailrace.results.record import Sent
from tailrace.results.table_findings import lines

_RUN = ("run", "started", "method", "spec", "host", "fabric", "run_valid")
_TRIAL = (
    "trial", "profile", "flows", "capture", "functions", "offered_pps", "no_loss_pps", "searched_pps", "rate_fraction",
    "attempt", "duration_s", "trial_valid", "reason",
)  # fmt: skip
_COUNTS = (
    "offered", "sent", "unsent", "refused", "received", "lost", "duplicate", "out_of_sequence", "beyond_window",
    "foreign", "mean_frame", "mpps", "gbps_l1", "gbps_l2",
)  # fmt: skip
_LATENCY = {
    name: f"latency_{name.replace('p99_', 'p99.')}_us"
    for name in ("min", "average", "p50", "p90", "p99", "p99_9", "p99_99", "max")
}
_SHARE = ("average", "p50", "p99", "max")
_HOST = ("test", "load", "host_profile", "cpu", "role", "samples", "missed")
COLUMNS = (
    *_RUN,
    *_TRIAL,
    "direction",
    "worse",
    *_COUNTS,
    *_LATENCY.values(),
    *(f"share_{name}_us" for name in _SHARE),
    "floor_ratio",
    "near_floor",
    "finding",
    "figure",
    "value",
    "low",
    "high",
    "over",
    "values",
    "level",
    "bound",
    "fell_short",
    *_HOST,
)
"""Units are in the names; no unit is frames. `worse` marks the direction that reports show, which has the share and how
its median stands to the tester's own floor. `finding` is the method of a line that is no trial's, whose name is in
`trial`; `floor` of a line of that floor itself, with the kind of port in `trial`. `over` (rounds, pairs) says what
`value` is the median of, `low` and `high` the extremes and `values` the number; where there is a `level`, `low` and
`high` are the ends of an interval that contains the true median so often (0: of a single pair there is none). Such a
line of a trial, which has a line for itself too, has no `finding`. `bound` marks no-loss rates, and ratios of such,
that stand for more (at_least), less (at_most) or nothing (unknown), as the tester was the limit. `fell_short` marks
figures of which a trial sent so much less than was offered that they are of a lower rate. What begins with `test` is of
lines of `measure host`, whose latencies are how late a CPU woke up, or for how long it was taken."""


def csv_text(runs: Iterable[Run]) -> str:
    """The table of `runs` with a heading line; empty cells where a run does not say."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for run in runs:
        for trial in run.trials:
            writer.writerows(_row(run, trial, way) for way in trial.directions)
        writer.writerows(_floor(run, floor) for floor in run.floors)
        for finding in run.findings:
            writer.writerows(_found(run, finding, line) for line in lines(finding))
        writer.writerows(_pooled(run, each) for each in over_rounds(run.trials, run.findings))
        writer.writerows(_host(run, trial) for trial in run.host_trials)
    return text.getvalue()


def _of(run: Run) -> dict[str, Any]:
    return {
        "run": run.id,
        "started": run.started.isoformat(),
        "method": run.method,
        "spec": run.spec,
        "host": host_name(run.host),
        "fabric": run.fabric,
        "run_valid": run.valid,
    }


def _floor(run: Run, floor: Floor) -> list[Any]:
    cells = {
        **_of(run),
        "trial": floor.ports,
        **floor.traffic_kind._asdict(),
        "offered_pps": floor.offered_pps,
        "finding": "floor",
        **{column: getattr(floor.latency_us, name) for name, column in _LATENCY.items()},
    }
    return [_cell(cells.get(column)) for column in COLUMNS]


def _found(run: Run, finding: Finding, line: dict[str, Any]) -> list[Any]:
    cells = {
        **_of(run),
        "trial": finding.name,
        **finding.traffic_kind._asdict(),
        "functions": finding.functions,
        "trial_valid": finding.valid,
        "reason": finding.reason,
        "finding": finding.method,
        **line,
    }
    return [_cell(cells.get(column)) for column in COLUMNS]


def _pooled(run: Run, each: Pooled) -> list[Any]:
    cells = {**_of(run), **each.model_dump(), "trial": each.name, "value": each.median}
    return [_cell(cells.get(column)) for column in COLUMNS]


def _host(run: Run, trial: HostTrial) -> list[Any]:
    cells = {
        **_of(run),
        "trial": trial.name,
        "duration_s": trial.duration_s,
        **{name: getattr(trial, name) for name in _HOST},
    }
    if trial.latency_us is not None:
        cells |= {column: getattr(trial.latency_us, name) for name, column in _LATENCY.items()}
    return [_cell(cells.get(column)) for column in COLUMNS]


def _row(run: Run, trial: Trial, way: Direction) -> list[Any]:
    worse = way is trial.worse
    share = trial.share_us if worse else None
    sent = trial.sent_ratio_of(way)
    cells = [
        *_of(run).values(),
        trial.name, *trial.traffic_kind, trial.functions, trial.offered_pps, trial.no_loss_pps,
        trial.searched.pps if trial.searched else None, trial.rate_fraction, trial.attempt,
        trial.duration_s, trial.valid, trial.reason,
        way.name, worse,
        *(getattr(way, name) for name in _COUNTS),
        *(getattr(way.latency_us, name) if way.latency_us else None for name in _LATENCY),
        *(getattr(share, name) if share else None for name in _SHARE),
        *((trial.floor_ratio, trial.near_floor) if worse and trial.floor_ratio is not None else (None, None)),
        *(None,) * 8,
        trial.searched.bound if trial.searched else None,
        Sent(() if sent is None else (sent,)).fell_short,
        *(None,) * len(_HOST),
    ]  # fmt: skip
    return [_cell(cell) for cell in cells]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
