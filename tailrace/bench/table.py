"""The result of `tailrace bench hop` for a terminal."""

from __future__ import annotations

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tailrace.bench.model import OVS_DPDK, TAILRACE, HopResult, Pair


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
    if not all(pair.steady for pair in result.pairs):
        notes.append("* the cores were moved nearer or farther during the pair: its sides met different machines.")
    if compared:
        notes.append("ratio: ovs-dpdk ÷ tailrace for cycles, tailrace ÷ ovs-dpdk for Mpps; above 1 favours Tailrace.")
    machine = result.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    notes.append(
        f"{machine['cpu']}, switch on core {machine['switch_core']}, load on core {machine['load_core']}; {versions}."
    )
    return Group(table, *(Text(note, style="dim") for note in notes))


def _distance(pair: Pair) -> str:
    """Near or far, and a mark where that changed during the pair."""
    return ("near" if pair.near else "far") + ("" if pair.steady else "*")


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}×"
