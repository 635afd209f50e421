"""Beside each throughput of a run: what the model of `tailrace advise` predicts for it, and which limit it names."""

from __future__ import annotations

from pathlib import Path

from tailrace.advise.learn import Measured, read_measured
from tailrace.advise.machine import Machine
from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, mega
from tailrace.report.section import Section

TITLES = ("throughput", "frame", "functions", "measured Mpps", "predicted Mpps", "error", "predicted bottleneck")


def section(folder: Path, machine: Machine) -> Section:
    """Of the run in this folder. Rates are of both directions together; what cannot be compared is a remark, with the
    reason. Raises Mistake where the run cannot be read."""
    found = read_measured([folder])
    remarks = [f"The machine: {plain(machine.name)}. Rates are of both directions together."]
    outside = [word for each in found.measured for word in machine.calibrated.beyond(each.frame, each.chain.functions)]
    remarks += [f"Extrapolated: {word}." for word in dict.fromkeys(outside)]
    remarks += [f"Not compared: {plain(what)} {plain(why)}." for what, why in found.left_out]
    return Section(
        heading="Prediction and measurement",
        titles=TITLES,
        rows=tuple(_row(each, machine) for each in found.measured),
        remarks=tuple(remarks),
    )


def _row(measured: Measured, machine: Machine) -> tuple[str, ...]:
    answer = measured.answer(machine)
    return (
        plain(measured.name),
        f"{measured.frame} B",
        str(measured.chain.functions),
        mega(measured.mpps),
        MISSING if answer is None else mega(answer.mpps),
        MISSING if answer is None else f"{100 * (answer.mpps / measured.mpps - 1):+.1f} %",
        MISSING if answer is None else answer.bottleneck.name,
    )
