"""Latency histograms against the exact quantiles of the same values, whatever the values are."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tailrace.results.histogram import HIGHEST_NS, Histogram, bounds, from_tester, index_of, merge

VALUES = st.lists(
    st.one_of(
        st.integers(0, 300),
        st.integers(0, HIGHEST_NS),
        st.integers(0, 41).flatmap(lambda bit: st.integers(max((1 << bit) - 2, 0), (1 << bit) + 2)),
        st.just(123_457),
    ),
    min_size=1,
    max_size=300,
)


def histogram(values: list[int]) -> Histogram:
    counts = Counter(map(index_of, values))
    return Histogram(tuple(sorted(counts.items())), min(values), max(values), sum(values))


def error_is_within_bounds(told: int, exact: int) -> bool:
    """Never below the exact value, and at most 1/128 of it above."""
    return exact <= told <= exact + exact // 128


@given(VALUES)
def test_every_rank_is_within_the_stated_error(values: list[int]) -> None:
    ordered = sorted(values)
    told = histogram(values).values_at_ranks(range(1, len(values) + 1))
    assert all(map(error_is_within_bounds, told, ordered))
    assert told[-1] == ordered[-1]


@given(VALUES, st.fractions(0, 1))
def test_every_quantile_is_within_the_stated_error(values: list[int], share: Fraction) -> None:
    exact = next(
        value for rank, value in enumerate(sorted(values), 1) if Fraction(rank, len(values)) >= share
    )  # the smallest that at least `share` of the values do not exceed
    assert error_is_within_bounds(histogram(values).quantile(share), exact)


@given(VALUES)
def test_extremes_and_mean_are_exact(values: list[int]) -> None:
    latency = histogram(values).latency()
    assert latency is not None
    assert (latency.min, latency.max) == (min(values) / 1e3, max(values) / 1e3)
    assert latency.average == sum(values) / len(values) / 1e3


@given(VALUES, VALUES)
def test_merging_loses_nothing(one: list[int], other: list[int]) -> None:
    assert merge([histogram(one), histogram(other)]) == histogram(one + other)


@given(VALUES)
def test_what_the_tester_says_is_what_it_counted(values: list[int]) -> None:
    made = histogram(values)
    said = {
        "count": len(values),
        "min_ns": min(values),
        "max_ns": max(values),
        "sum_ns": sum(values),
        "counts": [list(pair) for pair in made.counts],
    }
    assert from_tester(said) == made


@given(st.integers(0, HIGHEST_NS))
def test_a_value_lies_in_its_bucket(value: int) -> None:
    low, high = bounds(index_of(value))
    assert low <= value <= high
    assert high - low <= low // 128
