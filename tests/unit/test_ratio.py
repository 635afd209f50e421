"""Ratios of pairs and their bootstrap interval, against cases that can be reckoned out."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from math import comb
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.results.ratio import (
    EXACT_MOST,
    Ratio,
    bootstrap,
    coverage,
    drawn_medians,
    exact_medians,
    interval,
    summarise,
)


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 5.0, 7.0], [2.0, 9.0, 4.0, 4.5, 1.0]])
def test_the_exact_medians_are_those_of_every_resample(values: list[float]) -> None:
    every = Counter(median(resample) for resample in product(values, repeat=len(values)))
    assert dict(exact_medians(values)) == dict(every)


@pytest.mark.parametrize("count", [3, 5, 7, 9])
def test_the_exact_medians_follow_efrons_formula(count: int) -> None:
    # Efron 1979, section 3: P(median* > x(k)) = sum over j < (n + 1) / 2 of Binomial(n, k / n) at j.
    values = [float(number) for number in range(1, count + 1)]
    weights = dict(exact_medians(values))
    total = count**count
    assert sum(weights.values()) == total
    for k in range(1, count):
        above = sum(weight for value, weight in weights.items() if value > k)
        formula = sum(
            comb(count, j) * (k / count) ** j * (1 - k / count) ** (count - j) for j in range((count + 1) // 2)
        )
        assert above / total == pytest.approx(formula, rel=1e-12)


def test_the_interval_of_three_is_known() -> None:
    # Of 27 resamples of 1, 2, 3 the median is 1 in 7, 2 in 13, 3 in 7: both tails of 2.5 % lie in the outer ones.
    assert exact_medians([1.0, 2.0, 3.0]) == [(1.0, 7), (2.0, 13), (3.0, 7)]
    assert bootstrap([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert bootstrap([3.0, 1.0, 2.0], level=0.4) == (2.0, 2.0)


@pytest.mark.parametrize("count", range(2, 9))
def test_the_interval_holds_the_true_median_as_often_as_it_says(count: int) -> None:
    # Ratios have a long tail upwards; the true median of these is 1.
    source, draws = random.Random(count), 1000 if count <= 7 else 150
    held = 0
    for _ in range(draws):
        found = summarise([source.lognormvariate(0, 0.5) for _ in range(count)])
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 <= found.high
    level = found.level
    assert level == (1 - 2 ** (1 - count) if count < 6 else 0.95)
    doubt = 4 * (level * (1 - level) / draws) ** 0.5
    assert held / draws >= level - doubt
    assert count >= 6 or held / draws <= level + doubt


@pytest.mark.parametrize(("count", "place"), [(6, 1), (7, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (30, 10)])
def test_the_interval_is_never_narrower_than_that_of_the_ordered_values(count: int, place: int) -> None:
    # The places are those of tables of the sign test's interval for the median.
    assert coverage(count, place) >= 0.95 > coverage(count, place + 1)
    low, high = interval([float(number) for number in range(1, count + 1)])
    assert low <= place
    assert high >= count + 1 - place


def test_so_many_values_hold_the_median_so_often() -> None:
    assert [coverage(count, 1) for count in (1, 2, 3, 4, 5, 6)] == [0, 0.5, 0.75, 0.875, 0.9375, 0.96875]
    assert [coverage(4, place) for place in (2, 3, 9)] == [0.375, 0, 0]


def test_drawn_resamples_agree_with_exact_ones() -> None:
    values = [float(number) for number in range(EXACT_MOST)]
    exact = exact_medians(values)
    drawn = drawn_medians(values)
    for limit in (2.0, 4.0, 6.0):
        share = sum(weight for value, weight in exact if value <= limit) / EXACT_MOST**EXACT_MOST
        assert sum(value <= limit for value, _ in drawn) / len(drawn) == pytest.approx(share, abs=0.02)


def test_the_same_values_give_the_same_interval_again() -> None:
    values = [1.0 + number / 7 for number in range(EXACT_MOST + 4)]
    assert interval(values) == interval(values[::-1])


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=7))
def test_the_interval_lies_around_the_median_and_within_the_values(values: list[float]) -> None:
    found = summarise(values)
    assert found.low is not None
    assert found.high is not None
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_a_single_pair_says_nothing_about_itself() -> None:
    found = summarise([2.5])
    assert (found.median, found.low, found.high, found.level, found.pairs) == (2.5, None, None, 0, 1)
    assert found.document()["level"] == 0
    assert str(found) == "2.5 [one pair]"
    assert str(summarise([2.0, 3.0, 2.5, 2.2, 2.1])) == "2.2 [2–3 with 94 %]"
    with pytest.raises(ValueError, match="no values"):
        summarise([])


def test_a_ratio_is_of_one_pair_and_leaves_out_what_is_missing() -> None:
    ratio = Ratio("p99", "p99_us", "other", "base")
    pairs = [
        {"base": {"p99_us": 10.0}, "other": {"p99_us": 30.0}},
        {"base": {"p99_us": 20.0}, "other": {"p99_us": 40.0}},
        {"base": {"p99_us": 0.0}, "other": {"p99_us": 40.0}},
        {"base": {"p99_us": 5.0}},
        {"base": {"p99_us": 5.0}, "other": {"mpps": 1.0}},
    ]
    summary = ratio.summary(pairs)
    assert summary is not None
    assert (summary.median, summary.pairs) == (2.5, 2)
    assert ratio.summary(pairs[3:]) is None
