"""The searches against a simulated device whose capacity and loss are known: the self-test of the methods."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from simulated_device import SimulatedDevice

from tailrace.errors import Failure
from tailrace.measure.chain import SEARCH as LATENCY
from tailrace.measure.multiple_loss_ratio import _bounds
from tailrace.measure.profile import profile
from tailrace.measure.search import Bounds, Range, SearchOptions, Tried, bracket, no_loss_rate
from tailrace.measure.throughput import find_throughput
from tailrace.measure.trials import SHORT_REPEATS, Settle, Trials, whole
from tailrace.results.findings import SearchTrial
from tailrace.spec.tests import Throughput

# Tests may share their cores with a polling switch.
QUICK = settings(max_examples=40)

SEARCHES = ("mlrsearch", "tst009", "rfc2544")
MOST_TRIALS = 45


def trials_of(device: SimulatedDevice, most: int = 1000) -> Trials:
    return Trials(device, profile(64), "simulated", most=most, pause=lambda _: None)


def found(device: SimulatedDevice, most: int = 1000, **words: Any) -> tuple[list[Bounds], Trials]:
    trials = trials_of(device, most)
    test = Throughput.model_validate({"trial": "500ms", "duration": "5s", **words})
    return find_throughput(trials, test), trials


capacities = st.floats(min_value=1e4, max_value=2e7)


@pytest.mark.parametrize("search", SEARCHES)
@QUICK
@given(
    capacity=capacities,
    overloaded=st.floats(min_value=0.2, max_value=1.0),
    buffer_seconds=st.sampled_from([0.0, 1e-4, 1e-3]),
)
def test_the_throughput_of_a_known_device_is_found_within_1_percent_in_at_most_40_trials(
    search: str, capacity: float, overloaded: float, buffer_seconds: float
) -> None:
    buffer = int(capacity * buffer_seconds)
    device = SimulatedDevice(capacity, overloaded=overloaded, buffer=buffer)
    (bounds,), trials = found(device, search=search, loss="0%")
    # In the trials that decide, a buffer hides that part of a rate that is above the capacity.
    hidden = buffer / 5 + 1
    assert 0.99 * capacity <= bounds.low <= capacity + hidden
    assert bounds.low < bounds.high <= (capacity + hidden) * 1.011
    assert bounds.limit == "loss"
    assert len(trials.made) == len(device.trials) <= MOST_TRIALS


@pytest.mark.parametrize("search", SEARCHES)
@QUICK
@given(capacity=capacities, loss=st.floats(min_value=1e-3, max_value=4e-3))
@example(capacity=2e7, loss=1e-3)  # the longest way down
@example(capacity=1e5, loss=1e-3)
@example(capacity=11974.0, loss=1e-3)  # the most trials that were seen: 41
def test_a_device_with_a_known_loss_has_no_rate_without_and_its_capacity_with_it(
    search: str, capacity: float, loss: float
) -> None:
    (without, partial), trials = found(SimulatedDevice(capacity, loss=loss), search=search)
    # In 5 s some ten thousand frames are sent, of which some are lost, unless a few frames a second are sent.
    assert without.low <= 0.01 * capacity + 2000
    assert 0.99 * capacity <= partial.low <= capacity * 1.006
    assert len(trials.made) <= MOST_TRIALS


@pytest.mark.parametrize("search", SEARCHES)
@QUICK
@given(capacity=capacities)
def test_a_device_that_holds_the_sender_back_loses_nothing_and_the_limit_is_said(search: str, capacity: float) -> None:
    (bounds,), trials = found(SimulatedDevice(capacity, holds_back=True), search=search, loss="0%")
    assert 0.99 * capacity <= bounds.low <= capacity
    assert bounds.limit == "refused"
    assert len(trials.made) <= MOST_TRIALS
    assert sum(trial.lost for trial in trials.made) == 0


@pytest.mark.parametrize("search", SEARCHES)
@QUICK
@given(sender=capacities)
def test_a_tester_that_can_send_no_more_is_the_limit_and_not_the_device(search: str, sender: float) -> None:
    (bounds,), trials = found(SimulatedDevice(1e9, sender=sender), search=search, loss="0%")
    assert 0.99 * sender <= bounds.low <= sender
    assert bounds.limit == "tester"
    assert any(trial.unsent for trial in trials.made)


@pytest.mark.parametrize("search", SEARCHES)
@QUICK
@given(capacity=capacities, seed=st.integers(0, 1000))
def test_a_tester_that_is_held_up_now_and_then_does_not_count_against_the_device(
    search: str, capacity: float, seed: int
) -> None:
    device = SimulatedDevice(capacity, stalls=0.1, seed=seed)
    (bounds,), _ = found(device, search=search, loss="0%")
    assert bounds.low <= capacity
    # A rate at which the tester was held up each time is told as what was sent; that is rare.
    assert bounds.low >= 0.99 * capacity or bounds.limit == "tester"


def test_a_pause_is_before_trials_of_the_length_that_it_is_for() -> None:
    pauses: list[float] = []
    trials = trials_of(SimulatedDevice(1e6))
    trials.settle, trials.pause = Settle.asked(None, 60.0), pauses.append
    for seconds in (1.0, 59.0, 60.0 - 1e-9, 60.0):
        trials.run(1e5, seconds)
    assert pauses == [5.0, 5.0]


def test_a_trial_in_which_the_tester_fell_short_is_repeated_and_kept() -> None:
    device = SimulatedDevice(1e6, stalls=1.0)
    trials = trials_of(device)
    trial = trials.run(1e5, 1.0)
    assert trial.fell_short == "tester"
    assert (trial.sent, trial.unsent, trial.lost) == (100_000, 100_000, 0)
    assert trial.sent_pps == 5e4
    assert len(trials.made) == 1 + SHORT_REPEATS


def test_unsent_frames_are_never_lost() -> None:
    trial = trials_of(SimulatedDevice(1e6, holds_back=True)).run(4e6, 1.0)
    assert (trial.sent, trial.unsent, trial.refused, trial.lost) == (2_000_000, 6_000_000, 6_000_000, 0)
    assert trial.fell_short == "refused"
    assert trial.loss_ratio == 0


@QUICK
@given(capacity=capacities, seed=st.integers(0, 1000))
def test_loss_verification_is_not_misled_by_a_single_stumble(capacity: float, seed: int) -> None:
    strict = SimulatedDevice(capacity, stumbles=0.2, seed=seed)
    patient = SimulatedDevice(capacity, stumbles=0.2, seed=seed)
    (first,), _ = found(strict, search="rfc2544", loss="0%")
    (second,), _ = found(patient, search="tst009", loss="0%", repeats=10)
    assert first.low <= capacity
    assert 0.99 * capacity <= second.low <= capacity


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("most", [1, 2, 5, 12])
def test_when_the_trials_run_out_the_bounds_so_far_stand(search: str, most: int) -> None:
    bounds, trials = found(SimulatedDevice(1234567.0, overloaded=0.2), most, search=search)
    assert len(trials.made) == most
    assert len(bounds) == 2
    assert all(each.low <= 1234567 * 1.006 for each in bounds)
    assert "trials" in {each.limit for each in bounds}


@QUICK
@given(capacity=capacities)
def test_a_given_rate_is_not_exceeded(capacity: float) -> None:
    for search in SEARCHES:
        device = SimulatedDevice(capacity)
        (bounds,), _ = found(device, search=search, loss="0%", rate="5kpps")
        assert max(rate for rate, _ in device.trials) <= 5000
        assert bounds.low == pytest.approx(5000, rel=0.01)
        assert bounds.limit == "rate"


def trial(offered: float, sent: float, lost: float, short: Literal["tester", "refused"] = "tester") -> SearchTrial:
    return SearchTrial(
        offered_pps=offered, duration_s=1.0, sent=round(sent), unsent=round(offered - sent), refused=0,
        lost=round(lost * sent), duplicate=0, out_of_sequence=0, beyond_window=0, foreign=0, sent_pps=sent,
        forwarded_pps=sent * (1 - lost), loss_ratio=lost, fell_short=short if sent < offered else None,
    )  # fmt: skip


def test_what_passed_by_chance_above_the_upper_bound_is_no_lower_bound() -> None:
    made = [trial(9e6, 5e6, 0.0), trial(4e6, 4e6, 0.01), trial(4e6, 4e6, 0.01), trial(3.98e6, 3.98e6, 0.0)]
    assert _bounds(made, 0.0, 3.98e6, 4e6, 1.0) == Bounds(3.98e6, 4e6, "loss")


def test_the_limit_is_what_the_trial_that_counted_says() -> None:
    """One in which the tester fell short is repeated: it says nothing of the device that refuses the frames."""
    passed = trial(5e5, 5e5, 0.0)
    made = [passed, trial(5.2e5, 3e5, 0.0), trial(5.2e5, 5e5, 0.0, "refused"), trial(5.2e5, 5e5, 0.0, "refused")]
    assert _bounds(made, 0.0, 5e5, 5.2e5, 1.0) == Bounds(5e5, 5.2e5, "refused")


def test_a_device_that_holds_back_is_the_limit_also_where_the_tester_is_held_up_now_and_then() -> None:
    for seed in range(20):
        device = SimulatedDevice(5e5, holds_back=True, stalls=0.3, seed=seed)
        (bounds,), trials = found(device, search="mlrsearch", loss="0%")
        at_bound = [each.fell_short for each in trials.made if each.offered_pps == pytest.approx(bounds.high)]
        assert bounds.limit == at_bound[-1], seed


def test_a_pass_overrules_a_failure_that_was_known_beforehand() -> None:
    known = Bounds(0.0, 900.0, "tester")
    bounds = bracket(lambda rate: Tried(rate <= 1000, rate, "loss"), Range(950, 10, 5000), known)
    assert 990 <= bounds.low <= 1000 < bounds.high
    assert bounds.limit == "loss"


def test_whole_numbers_are_bracketed_to_the_next_one() -> None:
    bounds = bracket(lambda length: Tried(round(length) <= 7, round(length), "loss"), Range(1, 1, 1000, 0.01, step=1))
    assert bounds.low == 7
    assert bounds.high < 9
    none = bracket(lambda length: Tried(False, length, "loss"), Range(100, 1, 1000, 0.01, step=1))
    assert none.low == 0


@pytest.mark.parametrize("options", [SearchOptions(), LATENCY], ids=["between fabrics", "latency and soak"])
@QUICK
@given(st.floats(min_value=2e4, max_value=4e7), st.floats(min_value=0.3, max_value=1.0), st.booleans())
def test_the_quick_search_finds_a_rate_that_passes_and_is_as_near_as_it_says(
    options: SearchOptions, capacity: float, overloaded: float, holds_back: bool
) -> None:
    device = SimulatedDevice(capacity, overloaded=overloaded, holds_back=holds_back)
    bounds = no_loss_rate(trials_of(device), whole, options)
    assert bounds.limit == ("refused" if holds_back else "loss")
    assert capacity / (1 + options.precision) - 1000 <= bounds.low <= capacity + 1 / options.trial_seconds
    assert bounds.high <= bounds.low * (1 + options.precision)
    assert len(device.trials) <= options.most_trials


def test_a_quick_search_whose_trials_ran_out_says_between_what() -> None:
    bounds = no_loss_rate(trials_of(SimulatedDevice(1e6, overloaded=0.2)), whole, SearchOptions(most_trials=6))
    assert bounds.limit == "trials"
    assert 0 < bounds.low <= 1e6 + 5 <= bounds.high
    # None passed before they ran out: a last word at falling rates.
    bounds = no_loss_rate(trials_of(SimulatedDevice(1e6, loss=1e-5)), whole, SearchOptions(most_trials=2))
    assert bounds.limit == "trials"
    assert 0 < bounds.low < bounds.high <= 2.1 * bounds.low


@QUICK
@given(st.floats(min_value=1e4, max_value=4e7), st.integers(0, 1000))
def test_a_device_that_stumbles_is_still_measured_within_the_trials(capacity: float, seed: int) -> None:
    device = SimulatedDevice(capacity, stumbles=0.1, seed=seed)
    options = SearchOptions(most_trials=14)
    assert 0 < no_loss_rate(trials_of(device), whole, options).low <= capacity + 1 / options.trial_seconds
    assert len(device.trials) <= options.most_trials + 20


def test_a_device_that_loses_at_any_rate_is_reported() -> None:
    with pytest.raises(Failure, match="lost even at 1000"):
        no_loss_rate(trials_of(SimulatedDevice(1e6, loss=0.5)), whole)


def test_a_device_that_forwards_nothing_is_reported() -> None:
    with pytest.raises(Failure, match="lost even at"):
        no_loss_rate(trials_of(SimulatedDevice(0.0)), whole)


def test_a_device_that_takes_nothing_is_reported() -> None:
    with pytest.raises(Failure, match="no frame could be sent"):
        no_loss_rate(trials_of(SimulatedDevice(0.0, holds_back=True)), whole)
