"""The results of `tailrace bench` for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tailrace.bench.model import OVS_DPDK, TAILRACE, Distance, HopResult, SwitchResult, TesterResult


def hop_table(result: HopResult) -> Group:
    """One row a pair, the medians of the ratios last."""
    names = [name for name in (TAILRACE, OVS_DPDK) if result.pairs and name in result.pairs[0].sides]
    compared = len(names) == 2
    title = f"One hop between two VNFs, {result.frame} B frames, saturated, both directions"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("pair", justify="right", no_wrap=True)
    for unit in ("cycles", "Mpps"):
        for name in names:
            table.add_column(f"{name}\n{unit}", justify="right", no_wrap=True)
        if compared:
            table.add_column("\nratio", justify="right", style="bold", no_wrap=True)
    table.add_column("core to\ncore ns", justify="right", no_wrap=True)
    table.add_column("\ncores", no_wrap=True)
    for number, pair in enumerate(result.pairs, 1):
        row = [str(number)]
        row += [f"{pair.sides[name].cycles_per_packet:.1f}" for name in names]
        row += [_times(pair.ratio_cycles)] if compared else []
        row += [f"{pair.sides[name].mpps:.3f}" for name in names]
        row += [_times(pair.ratio_mpps)] if compared else []
        row += [f"{pair.core_to_core_ns:.0f}", _distance(pair)]
        table.add_row(*row)
    if compared:
        table.add_section()
        blank = [""] * len(names)
        table.add_row(
            "median", *blank, _times(result.ratio_cycles_median), *blank, _times(result.ratio_mpps_median), "", ""
        )
    notes = [
        "cycles: TSC cycles a packet, of the switch's polls that found packets.",
        "Mpps: both directions together. core to core: a cache line's round trip before the pair.",
    ]
    notes += _moved_notes(result.pairs, result.moved)
    if compared:
        notes.append("ratio: ovs-dpdk ÷ tailrace for cycles, tailrace ÷ ovs-dpdk for Mpps; above 1 favours Tailrace.")
    notes.append(_machine_note(result.machine))
    return Group(table, *(Text(note, style="dim") for note in notes))


def tester_table(result: TesterResult) -> Group:
    """One row a pair, the median of the ratios last."""
    flows = f"{result.flows} flows each way" if result.flows > 1 else "1 flow each way"
    title = f"The tester beside testpmd, {result.frame} B frames, {flows}, as fast as each can, one core"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    headings = ("pair", "tester\nMpps", "its own\ncount", "\nlost", "testpmd\nMpps", "\nratio", "core to\ncore ns")
    for heading in headings:
        style = "bold" if heading.endswith("ratio") else None
        table.add_column(heading, justify="right", style=style, no_wrap=True)
    table.add_column("\ncores", no_wrap=True)
    for number, pair in enumerate(result.pairs, 1):
        row = [str(number), f"{pair.tester.mpps:.3f}", f"{pair.own.mpps:.3f}", str(pair.own.lost)]
        row += [f"{pair.testpmd.mpps:.3f}", _times(pair.ratio), f"{pair.core_to_core_ns:.0f}", _distance(pair)]
        table.add_row(*row)
    table.add_section()
    table.add_row("median", "", "", "", "", _times(result.ratio_median), "", "")
    notes = [
        "Mpps: frames received, both directions together, as the switch counted them for both.",
        "own count: by the tester, whole trial; lost: sent by the tester, never received. ratio: tester ÷ testpmd.",
    ]
    notes += _moved_notes(result.pairs, result.moved)
    notes.append(_machine_note(result.machine))
    return Group(table, *(Text(note, style="dim") for note in notes))


def switch_table(result: SwitchResult) -> Group:
    """One row a thing that is timed, then memory and the chain beside."""
    title = "What tailrace-switch costs to start and to change"
    table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("times", "min ms", "median ms", "max ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, spread in {"start to ready": result.ready_ms, **result.change_ms}.items():
        row = [str(spread.count), f"{spread.least:.2f}", f"{spread.median:.2f}", f"{spread.most:.2f}"]
        table.add_row(name, *row)
    memory = ", ".join(f"{mib:.1f} MiB with {guests} guests" for guests, mib in result.memory_mib.items())
    beside = result.beside
    traffic = (
        f"Beside the changes {beside.sent} frames were sent on another chain ({beside.rate_pps:g} a second each way): "
        f"{beside.lost} lost, {beside.duplicate} duplicated, {beside.out_of_sequence} out of sequence."
    )
    notes = [
        "Peak resident memory without the guests' own, which is in huge pages.",
        "A change lasts from the call to its answer; the ports that come and go have guests attached.",
        _machine_note(result.machine),
    ]
    return Group(table, Text(f"Memory: {memory}."), Text(traffic), *(Text(note, style="dim") for note in notes))


def _moved_notes(pairs: Sequence[Distance], moved: Sequence[Distance]) -> list[str]:
    if moved:
        return [f"Set aside: {len(moved)} more, during which the cores moved nearer or farther; --json has them."]
    if not all(pair.steady for pair in pairs):
        return ["* the cores moved nearer or farther during the pair: its sides met different machines."]
    return []


def _machine_note(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['cpu']}, switch on core {machine['switch_core']}, load on core {machine['load_core']}; {versions}."
    )


def _distance(pair: Distance) -> str:
    """Near or far, and a mark where that changed during the pair."""
    return ("near" if pair.near else "far") + ("" if pair.steady else "*")


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×"
