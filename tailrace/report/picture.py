"""The README's picture, made from results: a demo's latency by percentile, and the cost of a hop beside its peer's.

sudo tailrace demo
for f in 64 512 1518; do sudo tailrace bench hop --frame $f --pairs 7 --json >hop-$f.json; done
python -m tailrace.report.picture runs/RUN hop-64.json hop-512.json hop-1518.json >docs/picture.svg
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.report import svg
from tailrace.report.curves import by_percentile, grid
from tailrace.report.figures import chain_name, profile_name
from tailrace.results.histogram import Histogram
from tailrace.results.stored import StoredRun, read_run

PROFILE = "64"
WIDTH, HEIGHT, PANEL = 1000, 340, 470
TOP, BOTTOM, LEFT = 64, 60, 58
PEER = "ovs-dpdk"


@dataclass(frozen=True)
class Hop:
    """What one frame size took: cycles a packet of both sides, and the median ratio of the pairs."""

    frame: int
    ours: float
    peers: float
    ratio: float


def hop_of(document: dict[str, Any]) -> Hop:
    """From the JSON of `tailrace bench hop`. Raises KeyError or ValueError if it is none."""
    frame, ratio, sides = int(document["frame"]), document["ratios"]["cycles"], document["pairs"]

    def median_of(side: str) -> float:
        found = sorted(float(pair[side]["cycles_per_packet"]) for pair in sides)
        return found[len(found) // 2]

    return Hop(frame, median_of("tailrace"), median_of(PEER), float(ratio))


def draw(run: StoredRun, hops: Sequence[Hop]) -> str:
    """An SVG document, in the colours that its reader has chosen, light or dark. Raises ValueError if the run has no
    latencies of 64 B frames."""
    parts = [*_latency(run), *_hops(hops)]
    label = "Latency by percentile, and cycles a packet beside Open vSwitch with DPDK"
    return svg.document(WIDTH, HEIGHT, label, parts)


# ------- latency -------


def _known(run: StoredRun) -> dict[int, Histogram]:
    """The frames' latencies by number of functions: of the trial that stands."""
    found: dict[int, Histogram] = {}
    for trial in run.run.trials:
        if trial.profile == PROFILE and trial.attempt is None and trial.name in run.histograms:
            found[trial.functions or 0] = run.histograms[trial.name]
    if not found:
        raise ValueError("the run has no latency of 64 B frames")
    return found


def _latency(run: StoredRun) -> Iterator[str]:
    known = _known(run)
    axis = grid(max(each.count for each in known.values()))
    curves = {count: by_percentile(histogram, axis) for count, histogram in sorted(known.items())}
    values = [value for curve in curves.values() for value in curve if value is not None]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    decades = math.ceil(math.log10(axis[-1]))
    right, bottom = PANEL - 24, HEIGHT - BOTTOM

    def across(x: float) -> float:
        return LEFT + (right - LEFT) * math.log10(x) / decades

    def down(y: float) -> float:
        return bottom - (bottom - TOP) * (math.log10(y) - low) / (high - low)

    yield svg.text(18, 30, f"Latency of every frame, {profile_name(PROFILE)}, one way, µs", "title")
    for power in range(low, high + 1):
        y = down(10.0**power)
        yield svg.line(LEFT, y, right, y)
        yield svg.text(LEFT - 8, y + 4, f"{10.0**power:,g}", "soft end")
    for power in range(0, decades + 1, 2):
        x = across(10.0**power)
        name = f"{100 - 100 / 10.0**power:.{max(power - 2, 0)}f} %" if power else "min"
        yield svg.line(x, TOP, x, bottom)
        yield svg.text(x, bottom + 18, name, "soft mid")
    for number, (count, curve) in enumerate(curves.items()):
        points = [(across(x), down(y)) for x, y in zip(axis, curve, strict=True) if y is not None]
        yield svg.path(points, f"c{count % 3}")
        x = LEFT + 120.0 * number
        yield f'<rect class="bar c{count % 3}" x="{x}" y="{HEIGHT - 24}" width="12" height="12" rx="2"/>'
        yield svg.text(x + 18, HEIGHT - 14, "no function" if count == 0 else chain_name(count), "soft")


# ------- a hop -------


def _hops(hops: Sequence[Hop]) -> Iterator[str]:
    left, right, bar, gap = PANEL + 78.0, WIDTH - 96.0, 24.0, 28.0
    most = max(each.peers for each in hops)
    yield svg.text(PANEL + 18, 30, "One hop between two functions, CPU cycles a packet", "title")
    y = float(TOP)
    for each in hops:
        yield svg.text(left - 10, y + bar + 5, f"{each.frame} B", "end")
        for number, value in ((1, each.ours), (0, each.peers)):
            width = (right - left) * value / most
            yield f'<rect class="bar c{number}" x="{left}" y="{y:.1f}" width="{width:.1f}" height="{bar - 2}" rx="2"/>'
            more = f"  ({each.ratio:.1f} times fewer)" if number else ""
            yield svg.text(left + width + 8, y + bar - 7, f"{value:.{value < 100:d}f}{more}")
            y += bar
        y += gap
    for number, name in ((1, "Tailrace"), (0, "Open vSwitch with DPDK")):
        x = left + 110.0 * (1 - number)
        yield f'<rect class="bar c{number}" x="{x}" y="{HEIGHT - 24}" width="12" height="12" rx="2"/>'
        yield svg.text(x + 18, HEIGHT - 14, name, "soft")


def main() -> None:
    run, *files = sys.argv[1:]
    hops = [hop_of(json.loads(Path(file).read_text())) for file in files]
    sys.stdout.write(draw(read_run(Path(run)), hops))


if __name__ == "__main__":
    main()
