"""Verifying again and again: what is lost since the last look, and what is right again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tailrace.host.tuner import Checked
from tailrace.host.writers import Writers


@dataclass(frozen=True)
class Change:
    """A place that has drifted or has gone with a reboot, or has come right again."""

    what: str
    checked: Checked


def changes(
    check: Callable[[], Sequence[Checked]], writers: Writers | None, every: float, count: int | None
) -> Iterator[Change]:
    """Looks `count` times, or without end: every so many seconds, and at once where writes are heard of."""
    lost: dict[str, Checked] = {}
    looks = 0
    while count is None or looks < count:
        if looks and writers is not None:
            writers.wait(every)
        elif looks:
            time.sleep(every)
        looks += 1
        found = check()
        if writers is not None and writers.heard():  # while it looked: who it was is known now
            found = check()
        if writers is not None:
            writers.watch([each.step.setting.target for each in found if each.step.setting.in_file])
        now = {each.step.setting.place: each for each in found if each.state.lost}
        yield from (Change(each.state.value, each) for place, each in now.items() if place not in lost)
        yield from (Change("right again", each) for place, each in lost.items() if place not in now)
        lost = now
