"""Watching single frames while a trial runs: the switch's hop trace is turned on, and read in time.

The trace costs the switch something (frames are looked at on their way), so it is on for the search of the rate too,
and figures with it are not to be set beside figures without.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailrace.measure.frame_causes import FrameCauses
from tailrace.measure.hops import Sighting, Slowest, join, sample_every
from tailrace.observe.hop_trace import HopTrace
from tailrace.process.control import Control
from tailrace.results.hops import Joined
from tailrace.switch.config import function_name

#: Records of all frames that each worker keeps: a fraction of a second at millions of frames a second, in 24 MiB.
RECENT = 1 << 20
#: Seconds between two looks at whether slow frames are to be looked up, well within what the switch remembers.
LOOK = 0.05
#: They are when this part of what any ring remembers has been written anew: looking up takes processor time, which on a
#: machine without a core to spare is taken from those who are measured.
_FILLED = 1 / 3
#: Frames a second, where a trial sends as many as it can.
_MANY = 10e6


class HopMeter:
    """The hop trace of one switch, for one trial after the other."""

    def __init__(self, switch: Control, causes: FrameCauses | None = None) -> None:
        self._switch = switch
        self._causes = causes
        config = switch.call("config.get")["config"]
        self._before = config.get("trace")
        self._owners = {
            function_name(replica): function
            for function, model in config.get("functions", {}).items()
            for replica in model["replicas"]
        }
        self._every = 0
        self._trace: HopTrace | None = None
        self._slowest: Slowest | None = None
        self._looked: list[int] = []

    def begin(self, streams: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Makes ready for a trial; returns what else trial.start has to be given."""
        every = sample_every(sum(each["rate"] or _MANY for each in streams) * seconds)
        if every != self._every:
            self._close()
            self._switch.call("config.apply", patch={"trace": {"every": every, "recent": RECENT}})
            self._every = every
        key = secrets.randbits(32)
        path = self._switch.call("trace.key", key=key)["path"]
        if self._trace is None:
            self._trace = HopTrace(Path(path))
        self._trace.restart()
        self._slowest = Slowest(self._trace)
        if self._causes is not None:
            self._causes.begin()
        self._looked = [head for head, _ in self._heads()]
        return {"key": key, "sample": every}

    def look(self, tester: Control) -> None:
        """While the trial runs: looks up the slowest frames so far before what is known of them is forgotten."""
        filled = ((head - before) / length for (head, length), before in zip(self._heads(), self._looked, strict=True))
        if max(filled, default=0.0) > _FILLED:
            self._look_up(tester)

    def _heads(self) -> list[tuple[int, int]]:
        """Of each ring: how much was ever written, and how much it holds."""
        if self._trace is None:
            return []
        return self._trace.heads() + (self._causes.heads() if self._causes is not None else [])

    def _look_up(self, tester: Control) -> None:
        self._looked = [head for head, _ in self._heads()]
        if self._slowest is not None:
            frames = _sightings(tester.call("trial.worst")["frames"])
            self._slowest.look_up(frames)
            if self._causes is not None:
                self._causes.look(frames)

    def end(self, tester: Control, result: dict[str, Any]) -> dict[str, Joined]:
        """After the trial: what is known of each direction, by its name."""
        if self._trace is None or self._slowest is None:
            return {}
        self._look_up(tester)
        # The stamps are of one counter, and the tester has measured how fast it ticks.
        tsc_hz = int(result["tsc_hz"])
        slowest = _sightings(tester.call("trial.worst")["frames"])
        if self._causes is not None:
            self._causes.last_look(slowest)
        samples = _sightings(tester.call("trial.samples")["frames"])
        records, _ = self._trace.sampled()
        found: dict[str, Joined] = {}
        ways: dict[str, set[int]] = {}
        for number, stream in enumerate(result["streams"]):
            ways.setdefault(f"{stream['from']}-to-{stream['to']}", set()).add(number)
        for name, numbers in ways.items():
            joined = join(
                [each for each in samples if each.stream in numbers],
                [each for each in records if each.frame >> 48 in numbers],
                [each for each in slowest if each.stream in numbers],
                self._slowest.records,
                tsc_hz,
                self._owners,
            )
            if joined is not None and self._causes is not None:
                own = [each for each in slowest if each.stream in numbers]
                causes = self._causes.explain(own, self._slowest.records, self._trace.port_names(), tsc_hz)
                joined = replace(joined, hops=joined.hops.model_copy(update={"causes": causes}))
            if joined is not None:
                found[name] = joined
        return found

    def close(self) -> None:
        """Leaves the switch's trace as it was."""
        self._close()
        if self._causes is not None:
            self._causes.close()
        self._switch.call("config.apply", patch={"trace": self._before})

    def _close(self) -> None:
        if self._trace is not None:
            self._trace.close()
            self._trace = None


def _sightings(frames: list[list[int]]) -> list[Sighting]:
    return [Sighting(*frame) for frame in frames]
