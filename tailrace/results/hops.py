"""What a join of the tester's records with the switch's hop trace gives to the results (measure/hops.py makes it)."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.results.histogram import Histogram
from tailrace.results.model import Hops


@dataclass(frozen=True)
class Joined:
    """One direction's latency taken apart, and the histogram of each part in its order."""

    hops: Hops
    histograms: tuple[Histogram, ...]
