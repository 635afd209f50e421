"""How warm a field of a map is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence


def by_logarithm(values: Sequence[float]) -> Callable[[float], float]:
    """From the smallest value (0) to the largest (1) by the logarithm: factors look alike wherever they are."""
    logs = [math.log(max(value, 1e-9)) for value in values]
    low, high = min(logs, default=0.0), max(logs, default=0.0)
    return lambda value: (math.log(max(value, 1e-9)) - low) / (high - low) if high > low else 0.0
