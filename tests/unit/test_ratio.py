"""Ratios of pairs and their bootstrap interval, against cases that can be reckoned out."""

from __future__ import annotations

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
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([3.0, 1.0, 2.0], level=0.4) == (2.0, 2.0)


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
    assert (found.median, found.low, found.high, found.pairs) == (2.5, None, None, 1)
    assert str(found) == "2.5 [one pair]"
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
