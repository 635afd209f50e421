"""The answer in a few lines: what was measured and what came out, before any table.

For the terminal's summary and the top of the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tailrace.process.plain import plain
from tailrace.report.figures import (
    MISSING,
    chains,
    count,
    disturbed,
    in_order,
    is_fault,
    mega,
    microseconds,
    percent,
    profile_name,
    rates,
)
from tailrace.report.marks import by_bound, by_sent
from tailrace.report.migration import within
from tailrace.results.comparison import ComparisonFinding
from tailrace.results.findings import BurstFinding, ThroughputFinding
from tailrace.results.migration import PUBLISHED_MS, MigrationFinding
from tailrace.results.model import Run, Trial, sent_of
from tailrace.results.pooled import COMPARING
from tailrace.results.share import ShareFinding
from tailrace.results.spread import by_case, spread

MOST = 3
"""Lines: of the first frame size, and of what comes next."""


def headline(run: Run) -> list[str]:
    """At most MOST lines, the most telling first; none where nothing was measured.

    "1 VNF, 64 B at 2.03 Mpps each way: p50 28.3 µs, p99 132 µs, max 5.95 ms"
    """
    if any(isinstance(each, COMPARING) for each in run.findings):
        found = _of_pairs(run)
    elif run.findings:
        found = _of_findings(run)
    elif run.host_trials:
        found = _of_budgets(run)
    else:
        found = _of_trials(run)
    return [text for text, _ in zip(found, range(MOST), strict=False)]


def duration(us: float) -> str:
    """A time in the unit that keeps it short: 28.3 µs, 5.95 ms, 1.20 s."""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if abs(us) >= size:
            return f"{us / size:.3g} {unit}"
    return f"{microseconds(us)} µs"


def of_rounds(values: Sequence[float]) -> str:
    """A time, or of several rounds the median, with the least and the most: 28.3 µs (27.1 µs–31.0 µs)."""
    found = spread(values)
    if found is None:
        return MISSING
    if found.count == 1:
        return duration(found.median)
    return f"{duration(found.median)} ({duration(found.low)}–{duration(found.high)})"


# ------- trials -------


def standing(run: Run) -> list[Trial]:
    """The trials that the answer is about: no floor where there is a chain, and no attempt that was made again."""
    found = [trial for trial in in_order(run) if trial.attempt is None]
    return [trial for trial in found if not trial.is_floor] or found


def _of_trials(run: Run) -> Iterator[str]:
    through, rate = chains(run), rates(run)
    for _, found in groupby(standing(run), key=lambda trial: trial.profile):
        for rounds in by_case(found):
            first = rounds[0]
            latency = [each.worse.latency_us for each in rounds if each.worse.latency_us is not None]
            mpps = spread([each.worse.mpps for each in rounds])
            part = f" ({rate[first.name]})" if rate.get(first.name, "").endswith("%") else ""
            at = by_sent(f"{mega(mpps.median)} Mpps{part}", short=sent_of(rounds).fell_short) if mpps else MISSING
            figures = [
                f"{name} {of_rounds([getattr(each, field) for each in latency])}"
                for name, field in (("p50", "p50"), ("p99", "p99"), ("max", "max"))
                if latency
            ]
            said = ", ".join(figures) or "no frame arrived"
            yield f"{through[first.name]}, {profile_name(first.profile)} at {at} each way: {said}; {_lost(run, rounds)}"


def _lost(run: Run, rounds: Sequence[Trial]) -> str:
    planned = disturbed(run)
    faults = [
        f"{count(number)} {words}"
        for name, words in (("lost", "lost"), ("duplicate", "duplicated"), ("out_of_sequence", "out of sequence"))
        if (number := sum(trial.total(name) for trial in rounds if is_fault(name, trial, planned)))
    ]
    return ", ".join(faults) or "nothing lost"


# ------- interrupts with a budget -------


def _of_budgets(run: Run) -> Iterator[str]:
    for trial in run.host_trials:
        if (budget := trial.budget) is not None:
            # What was not raised is among the missed, and not among the values.
            kept = "kept" if budget.kept() else f"not kept: {count(budget.late)} late, {count(budget.missed)} missed"
            within = count(trial.samples - budget.late)
            yield (
                f"{plain(trial.test)}, load {trial.load}: {within} interrupts arrived within {duration(budget.us)}; "
                f"the budget is {kept}"
            )


# ------- findings -------


def _of_findings(run: Run) -> Iterator[str]:
    for rounds in by_case(each for each in run.findings if isinstance(each, ThroughputFinding)):
        goals = [each.goals[0] for each in rounds if each.goals]
        rate = spread([goal.pps / 1e6 for goal in goals])
        if rate is not None:
            bound = next((goal.bound for goal in goals if goal.bound), None)
            loss = goals[0].loss_ratio
            with_loss = f"at most {percent(loss)} lost" if loss else "nothing lost"
            yield f"{_name(rounds[0])}: {by_bound(f'{mega(rate.median)} Mpps', bound)} each way with {with_loss}"
    for bursts in by_case(each for each in run.findings if isinstance(each, BurstFinding)):
        longest = spread([each.average for each in bursts if each.frames])
        if longest is not None:
            yield f"{_name(bursts[0])}: bursts of {count(round(longest.median))} frames without loss"
    if moved := [each for each in run.findings if isinstance(each, MigrationFinding)]:
        yield from _of_moves(run, moved)
    elif run.trials:
        yield from _of_trials(run)


def _of_moves(run: Run, found: list[MigrationFinding]) -> Iterator[str]:
    for rounds in by_case(found):
        names = [each.trial for each in rounds]
        lost = _lost(run, [trial for trial in run.trials if trial.name in names])
        outage = of_rounds([1e3 * each.outage_ms for each in rounds])
        yield (
            f"{_name(rounds[0])}: outage {outage}, at most {PUBLISHED_MS:g} ms in {within(rounds)} of {len(rounds)} "
            f"moves; {lost}"
        )


def _of_pairs(run: Run) -> Iterator[str]:
    for finding in run.findings:
        if isinstance(finding, ComparisonFinding):
            for side in finding.sides:
                ratio = finding.ratio(side, "p99_us")
                if ratio is not None:
                    extent = "" if ratio.low is None or ratio.high is None else f" ({ratio.low:.2f}–{ratio.high:.2f})"
                    yield (
                        f"{_name(finding)}: p99 of {plain(side)} is {ratio.median:.2f}{extent} times that of "
                        f"{plain(finding.baseline)}"
                    )
        elif isinstance(finding, ShareFinding):
            for part in finding.contributions:
                if part.figure == "average_us":
                    adds = duration(part.difference_us)
                    yield f"{_name(finding)}, {plain(part.direction)}: {plain(finding.function)} adds {adds} on average"


def _name(found: ThroughputFinding | BurstFinding | ComparisonFinding | MigrationFinding | ShareFinding) -> str:
    functions = found.functions
    chain = "device" if functions is None else f"{functions} VNF{'' if functions == 1 else 's'}"
    return f"{chain}, {profile_name(found.profile)}"
