"""The tester as both guests of a switch, on the load's core: it listens where a switch connects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tailrace.bench.setting import Setting
from tailrace.errors import Failure, Fault
from tailrace.measure.tester import Tester
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.process.process import undisturbed
from tailrace.resources.place import Place
from tailrace.results.histogram import from_tester

WAIT_SECONDS = 2.0
"""How long the tester waits for the last frames."""


@contextmanager
def tester_at(
    setting: Setting,
    sockets: Sequence[Path],
    *,
    listen: bool = True,
    names: Sequence[str] = "ab",
    place: Place | None = None,
) -> Iterator[Tester]:
    """A tester whose ports of these names are the guests at the sockets, in the load's place unless said otherwise;
    ended after the block."""
    place = place or setting.cores.load_place
    scheme = "vhost-server" if listen else "vhost"
    ports = [(name, f"{scheme}:{path}") for name, path in zip(names, sockets, strict=True)]
    tester = Tester.start(setting.launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=True)
    try:
        setting.versions |= tester.version()
        yield tester
    finally:
        with undisturbed():
            tester.stop()


def ended(tester: Tester) -> dict[str, Any]:
    """Ends the trial that runs and returns its result. Raises Failure if it does not end."""
    result = tester.cut_short(WAIT_SECONDS)
    if result is None:
        raise Failure("the tester did not come to an end")
    return result


def check_all_there(stream: dict[str, Any]) -> None:
    """Raises Fault unless every frame of the stream came back once and in order."""
    wrong = {key: stream[key] for key in ("lost", "duplicate", "out_of_sequence") if stream[key]}
    if wrong or not stream["received"]:
        said = ", ".join(f"{count} {key.replace('_', ' ')}" for key, count in wrong.items()) or "none received"
        raise Fault(f"of {stream['sent']} frames: {said}")


def latency_figures(stream: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """One-way latency of a stream in µs: p50, p99, p99.9 and the maximum. Raises Fault if nothing was received."""
    latency = from_tester(stream["latency"]).latency()
    if latency is None:
        raise Fault("no frame came back")
    shown = {"p50_us": latency.p50, "p99_us": latency.p99, "p99.9_us": latency.p99_9, "max_us": latency.max}
    return {f"{prefix}{name}": round(value, 3) for name, value in shown.items()}
