"""The README's picture: of results, and of nothing that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from run_folders import run_folder

from tailrace.report.picture import draw, hop_of
from tailrace.results.stored import read_run


def bench_of(frame: int, ours: list[float], peers: list[float], ratio: float) -> dict[str, Any]:
    pairs = [
        {"tailrace": {"cycles_per_packet": one}, "ovs-dpdk": {"cycles_per_packet": other}}
        for one, other in zip(ours, peers, strict=True)
    ]
    return {"frame": frame, "ratios": {"cycles": ratio}, "pairs": pairs}


def test_it_shows_what_was_measured(tmp_path: Path) -> None:
    hops = [hop_of(bench_of(64, [33, 31, 32], [220, 230, 225], 7.04)), hop_of(bench_of(512, [75], [300], 4))]
    found = draw(read_run(run_folder(tmp_path).path), hops)
    svg = ElementTree.fromstring(found)
    words = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"32.0  (7.0 times fewer)", "225", "75.0  (4.0 times fewer)", "300", "64 B", "512 B"} <= set(words)
    assert {"no function", "1 VNF", "2 VNFs"} <= set(words)
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}path"))) == 3


def test_a_run_without_its_frames_has_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no latency of 64 B frames"):
        draw(read_run(run_folder(tmp_path, profiles=("imix",)).path), [hop_of(bench_of(64, [1], [2], 2))])
