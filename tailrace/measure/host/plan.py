"""What is measured of a host, and in which order: kept as text, so that a run that is broken off can go on with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tailrace.errors import Mistake
from tailrace.measure.host.loads import LOADS
from tailrace.measure.host.tools import Tool
from tailrace.measure.space import free_bytes, mib
from tailrace.results.reserve import REPORT_BYTES
from tailrace.spec.core_schema import read_version_1_1

LONGEST_SLICE = 60
"""Seconds; so a run of hours has an interval record of each tool and load at least every few minutes."""
_OVERHEAD = 1.5
"""Seconds that starting and ending a slice takes, for the progress bar."""
_FIGURES = 2
"""The most that a tool measures: timerlat's interrupt and thread."""
_INTERVAL_BYTES, _HISTOGRAM_BYTES = 320, 16 << 10
"""The most that an interval takes in results.json, and a histogram in its log (twice, while it is replaced)."""


@dataclass(frozen=True)
class Turn:
    """Slices that share a load: some tools, one after the other."""

    number: int
    """Of the round, from 1."""
    profile: str | None
    load: str
    tools: Sequence[Tool]


@dataclass(frozen=True)
class HostPlan:
    """What is measured. Raises Mistake where the time is too short for it."""

    tools: Sequence[Tool]
    loads: Sequence[str]
    cpus: Mapping[int, str]
    """The role of each CPU that is measured."""
    control: tuple[int, ...]
    """The system's CPUs."""
    seconds: float
    """Of the whole run."""
    profiles: Sequence[str | None] = (None,)
    """Tuning profiles that take turns; None: the host as it is."""
    least_rounds: int = 1

    def __post_init__(self) -> None:
        least = self.slices * self.least_rounds
        if self.seconds < least:
            raise Mistake(
                f"--duration {self.seconds:g}s: too short for {least} slices of a second: {len(self.tools)} tools, "
                f"{len(self.loads)} loads, {len(self.profiles)} profiles, {self.least_rounds} rounds"
            )

    @property
    def slices(self) -> int:
        """In one round."""
        return len(self.tools) * len(self.loads) * len(self.profiles)

    @property
    def rounds(self) -> int:
        return max(self.least_rounds, int(-(-self.seconds // (self.slices * LONGEST_SLICE))))

    @property
    def all_slices(self) -> int:
        return self.rounds * self.slices

    @property
    def slice_seconds(self) -> int:
        """Whole seconds, as the tools take them."""
        return max(1, int(self.seconds / self.all_slices))

    @property
    def slice_time(self) -> float:
        """Seconds of a slice with its start and end."""
        return self.slice_seconds + _OVERHEAD

    def time_left(self, done: int = 0) -> float:
        """Seconds that the run takes after so many slices."""
        return (self.all_slices - done) * self.slice_time

    @property
    def most_bytes(self) -> int:
        """The most that the run folder takes on disk."""
        figures = len(self.loads) * len(self.profiles) * len(self.tools) * _FIGURES * len(self.cpus)
        # results.json is there twice while it is replaced, and room for it is kept.
        return figures * (2 * _HISTOGRAM_BYTES + 3 * _INTERVAL_BYTES * self.rounds) + REPORT_BYTES

    def check_space(self, folder: Path) -> None:
        """Raises Mistake if a run in the folder may take more than there is."""
        free = free_bytes(folder)
        if free < self.most_bytes:
            raise Mistake(
                f"{folder}: {self.all_slices:,} slices may take {mib(self.most_bytes)}, and {mib(free)} are free; make "
                "room, choose another place with --runs FOLDER, or measure fewer CPUs, tools or loads"
            )

    def turns(self, done: int = 0) -> Iterator[Turn]:
        """What is to be done, in order, without the slices that are done already."""
        for number in range(self.rounds):
            for profile in self.profiles:
                for kind in self.loads:
                    tools = self.tools[max(done, 0) :]
                    done -= len(self.tools)
                    if tools:
                        yield Turn(number + 1, profile, kind, tools)

    def text(self) -> str:
        """The plan as YAML."""
        document = {
            "tools": [tool.name for tool in self.tools],
            "loads": list(self.loads),
            "cpus": dict(self.cpus),
            "control": list(self.control),
            "seconds": self.seconds,
            "profiles": list(self.profiles),
            "rounds": self.least_rounds,
        }
        return yaml.safe_dump(document, sort_keys=False, default_flow_style=None)


def read_plan(
    text: str,
    where: str,
    tool: Callable[[str], Tool],
    known: Sequence[str] = tuple(LOADS),
    command: str = "measure host",
) -> HostPlan:
    """The plan of a text that a command has written; `tool` gives the one of a name, and its loads are of those known.
    Raises Mistake, saying `where`, if it is none."""
    try:
        document: dict[str, Any] = read_version_1_1(text)
        loads = [str(load) for load in document["loads"]]
        if not set(loads) <= set(known):
            raise ValueError(f"loads {', '.join(loads)}")
        return HostPlan(
            [tool(str(name)) for name in document["tools"]],
            loads,
            {int(cpu): str(role) for cpu, role in document["cpus"].items()},
            tuple(int(cpu) for cpu in document["control"]),
            float(document["seconds"]),
            tuple(document["profiles"]),
            int(document["rounds"]),
        )
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        words = str(error).replace("\n", " ")
        raise Mistake(f"{where}: not what `{command}` was asked for ({words}); begin a new run") from None
