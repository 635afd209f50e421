"""docs/knobs.md: a page of every knob, made from its declaration. `python -m tailrace.host.pages` writes it."""

from __future__ import annotations

from pathlib import Path

from tailrace.host.knobs import FAMILIES, Knob

PATH = Path(__file__).parents[2] / "docs/knobs.md"
_HEAD = """\
# Knobs

All that `tailrace host` can tune. A profile gives some knobs values, and `tailrace host plan` shows what that means on
a machine. [host.md](host.md) has the commands, and [glossary.md](glossary.md) explains the terms.

This page is generated from `tailrace/host/knobs/` by `python -m tailrace.host.pages`.
"""
_LEFT_OUT = """
## Left out, and why

- irqbalance's list of CPUs to leave alone. Only the daemon holds it, so a restart loses it. Its moves between the
  system's CPUs, every ten seconds, look like drift. `apply` refuses while irqbalance runs; `irq_affinity` replaces it.
- `/dev/cpu_dma_latency`: see [idle states](#idle-states).

## On AMD

| Intel's | AMD's |
| --- | --- |
| `energy_bias` (EPB) | none; `energy_preference` with amd_pstate in active mode |
| `uncore_frequency` | none in sysfs; the data fabric's P-state is set in the firmware, or by the amd_hsmp driver |
| `kvm_pause_exits` by ple_gap | the same knob, by pause_filter_count |
| APICv, on by default | `kvm_avic` |
| `kvm_nx_huge_pages` | none needed: no processor has the bug |
| the VMX preemption timer | none: a guest's timer is a timer of the host |
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for family in FAMILIES:
        parts.append(f"\n## {family.title}\n\n{family.text}\n")
        parts += [_knob(knob) for knob in family.knobs]
    return "".join([*parts, _LEFT_OUT])


def _knob(knob: Knob) -> str:
    when = "at boot, by a kernel argument" if knob.when == "boot" else "at run time"
    rows = [
        ("what", knob.what),
        ("why", knob.why),
        ("cost", knob.cost),
        ("takes", knob.takes),
        ("needs", knob.needs),
        ("kernels", knob.kernels),
        ("set", when),
        ("verified", knob.verified),
        ("source", knob.source),
    ]
    table = "".join(f"| {name} | {text.replace('|', chr(92) + '|')} |\n" for name, text in rows)
    return f"\n### {knob.name}\n\n| | |\n| --- | --- |\n{table}"


if __name__ == "__main__":
    PATH.write_text(page())
