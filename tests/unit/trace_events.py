"""A reader of the trace event format that takes nothing on trust: what viewers need to draw it, and what Perfetto's
trace_processor leaves out or draws elsewhere (src/trace_processor/importers/json): a complete event without a duration,
one that reaches out of another on its track by a nanosecond, a thread whose number a process has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Drawn:
    """A slice of a track."""

    process: str
    track: str
    name: str
    ts: float
    end: float
    args: dict[str, Any]


def read_trace(path: Path) -> list[Drawn]:
    """The slices; fails unless each event is whole, its track has a name, and slices of a track lie in or beside each
    other."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(text, str) for text in document["otherData"].values())
    processes: dict[int, str] = {}
    tracks: dict[tuple[int, int], str] = {}
    found: list[Drawn] = []
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int)
        if event["ph"] == "M":
            name = event["args"]["name"]
            if event["name"] == "process_name":
                processes[event["pid"]] = name
            else:
                assert event["name"] == "thread_name"
                tracks[event["pid"], event["tid"]] = name
            continue
        process, track = processes[event["pid"]], tracks[event["pid"], event["tid"]]
        assert event["ts"] >= 0 and event["cat"]
        if event["ph"] == "i":
            assert event["s"] == "t"
            continue
        assert event["ph"] == "X" and event["dur"] >= 0
        assert all(round(event[key] * 1000) / 1000 == event[key] for key in ("ts", "dur"))
        end = round(event["ts"] + event["dur"], 3)
        found.append(Drawn(process, track, event["name"], event["ts"], end, event["args"]))
    assert len(set(processes.values())) == len(processes)
    assert len({tid for _, tid in tracks}) == len(tracks)
    assert processes.keys().isdisjoint(tid for _, tid in tracks)
    for key in {(each.process, each.track) for each in found}:
        around: list[Drawn] = []
        for each in sorted(
            (one for one in found if (one.process, one.track) == key), key=lambda one: (one.ts, -one.end)
        ):
            while around and around[-1].end <= each.ts:
                around.pop()
            assert not around or each.end <= around[-1].end, f"{each} reaches out of {around[-1]}"
            around.append(each)
    return found
