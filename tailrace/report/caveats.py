"""What limits the figures: faults, rates that were not kept or that no trial confirmed.

Sentences for terminal and page alike, each of all trials that it holds of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tailrace.process.plain import plain
from tailrace.report.figures import count, in_order, mega, trial_names
from tailrace.report.marks import BOUNDS, MOST_NAMED
from tailrace.results.model import Direction, Run, Trial


def warnings(run: Run) -> list[str]:
    """What is to be known, the most important first; control characters taken out."""
    found = []
    names = trial_names(run)
    if run.oversubscribed:
        found.append("More pollers than cores: latencies include waiting for a core.")
    for trial in run.trials:
        if trial.reason is not None:
            found.append(f"{names[trial.name]} (trial {trial.name}) is not valid: {trial.reason}.")
        found += [f"{names[trial.name]}, {way.name}: {fault}" for way in trial.directions for fault in _faults(way)]
    for words, refused in (("The tester sent", False), ("The device took", True)):
        short = [
            trial
            for trial in in_order(run)
            if trial.total("unsent") and (2 * trial.total("refused") >= trial.total("unsent")) == refused
        ]
        if short:
            each = _named(short, _unsent, lambda trial: f"{names[trial.name]} {_unsent_words(trial)}", "less in")
            found.append(f"{words} less than was offered: {each}.")
    found += _of_no_loss(run)
    return [plain(text) for text in (*found, *run.notes)]


def _named(trials: Sequence[Trial], size: Callable[[Trial], float], words: Callable[[Trial], str], less: str) -> str:
    """The trials with the most of something, in their order, and how many more there are."""
    shown = sorted(sorted(trials, key=size, reverse=True)[:MOST_NAMED], key=trials.index)
    rest = len(trials) - len(shown)
    more = f"; and {less} {rest} more trial{'s' if rest > 1 else ''}" if rest else ""
    return "; ".join(map(words, shown)) + more


def _of_no_loss(run: Run) -> Iterator[str]:
    """What became of the no-loss rates that short trials found."""
    trials, names = in_order(run), trial_names(run)
    attempts: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.attempt is not None:
            attempts.setdefault(trial.stands_as, []).append(trial)
    standing = [trial for trial in trials if trial.attempt is None and trial.searched is not None]
    if again := [trial for trial in standing if trial.name in attempts]:
        each = _named(
            again,
            lambda trial: sum(each.total("lost") for each in attempts[trial.name]),
            lambda trial: f"{names[trial.name]} {_attempts_words(attempts[trial.name])}",
            "so were",
        )
        yield (
            "Repeated, at a lower rate or once at the same where the tester fell short, because the full-length trial "
            f"failed at the rate that the short search trials had passed: {each}."
        )
    if refuted := [trial for trial in standing if trial.no_loss_pps is None and trial.valid]:
        each = _named(
            refuted,
            lambda trial: trial.worse.loss_ratio,
            lambda trial: f"{names[trial.name]}, down to {mega(trial.offered_pps / 1e6)} Mpps",
            "none of",
        )
        yield f"No rate without loss was found, because every full-length trial failed: {each}."
    limited = [trial for trial in standing if trial.searched is not None and trial.searched.bound]
    for limit, words in (
        (
            "tester",
            "nothing was lost at the highest rate that the tester could send",
        ),
        ("rate", "nothing was lost at the highest rate to try"),
        ("trials", "the search ran out of trials"),
    ):
        if found := [trial for trial in limited if trial.searched is not None and trial.searched.limit == limit]:
            each = _named(found, _searched, lambda trial: f"{names[trial.name]} {_searched_words(trial)}", "so in")
            yield f"{BOUNDS['at_least']}: {words}, so the device may do more: {each}."


def _attempts_words(attempts: Sequence[Trial]) -> str:
    """2 times, 35 of 1,000 frames lost"""
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    lost, sent = (sum(trial.total(name) for trial in attempts) for name in ("lost", "sent"))
    return f"{times}, {count(lost)} of {count(sent)} frames lost"


def _searched(trial: Trial) -> float:
    return trial.searched.pps if trial.searched else 0.0


def _searched_words(trial: Trial) -> str:
    """1.20 Mpps, or below 1.81 where that is known to have failed"""
    searched = trial.searched
    if searched is None:
        return ""
    text = f"{mega(searched.pps / 1e6)} Mpps"
    if searched.limit == "trials" and searched.upper_pps is not None:
        text += f", and {mega(searched.upper_pps / 1e6)} failed"
    return text


def _unsent(trial: Trial) -> float:
    """How much a trial could not send: the larger of its directions' shares."""
    return max(way.unsent / way.offered if way.offered else 1.0 for way in trial.directions if way.unsent)


def _unsent_words(trial: Trial) -> str:
    """0.04 %, < 0.01 %"""
    ratio = _unsent(trial)
    return "< 0.01 %" if ratio < 1e-4 else f"{ratio * 100:.2f} %"


def _by_how_much(way: Direction) -> str:
    """How far beyond the window the latest frame was, where the tester said it."""
    if way.window is None or not way.latest:
        return ""
    return f" of {count(way.window)} (the latest was {count(way.latest)} behind)"


def _faults(way: Direction) -> list[str]:
    found = []
    if way.beyond_window:
        found.append(
            f"{count(way.beyond_window)} frames came too late for the analyser's window{_by_how_much(way)}; loss and "
            "duplication are uncertain by as many."
        )
    if way.foreign:
        found.append(f"{count(way.foreign)} frames arrived that this trial did not send.")
    return found
