"""How good a field of a map is beside the others: the stronger its colour, the better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Warmth:
    """The ends of a map's figures. By the logarithm: factors look alike wherever they are."""

    worst: float
    best: float

    def __call__(self, value: float) -> float:
        """From 0, the worst, to 1, the best."""
        worst, best, at = (math.log(max(each, 1e-9)) for each in (self.worst, self.best, value))
        return (at - worst) / (best - worst) if best != worst else 0.0


def warmth(values: Sequence[float], *, more_is_better: bool) -> Warmth:
    """Of all figures of a map: rates are better where they are more, times where they are less."""
    ends = min(values, default=0.0), max(values, default=0.0)
    return Warmth(*ends) if more_is_better else Warmth(*reversed(ends))
