"""Whether this machine has a clock to measure latency with: a time stamp counter that is invariant.

Only such a counter (CPUID 80000007h, EDX bit 8) ticks at one rate in every state of frequency and sleep. Linux reports
that bit as two flags: constant_tsc, at one rate, and nonstop_tsc, in sleep too. The tester asks the processor itself.
"""

from __future__ import annotations

from tailrace.errors import Mistake
from tailrace.kernel.tree import Tree

LIVE = Tree()
"""This machine."""
NEEDED = {"constant_tsc": "it changes its rate with the core's frequency", "nonstop_tsc": "it stops in deep sleep"}
"""The flags of /proc/cpuinfo, and what a counter without it does."""


def clock_refusal(tree: Tree = LIVE) -> str | None:
    """Why latency cannot be measured on this machine, and what to do; None if it can."""
    text = tree.text("/proc/cpuinfo") or ""
    processors = [block for block in text.split("\n\n") if block.strip()]
    for block in processors:
        fields = {key.strip(): value for key, _, value in (line.partition(":") for line in block.splitlines())}
        if "flags" not in fields:
            return "this is no x86 processor, and latency needs the time stamp counter of one; use such a machine"
        flags = fields["flags"].split()
        for flag, without in NEEDED.items():
            if flag not in flags:
                advice = (
                    "give this virtual machine the host's (libvirt: <feature policy='require' name='invtsc'/>)"
                    if "hypervisor" in flags
                    else "measure on another processor"
                )
                number = fields.get("processor", "0").strip()
                return (
                    f"CPU {number}'s time stamp counter is not invariant ({without}: /proc/cpuinfo lacks {flag}), so "
                    f"latency cannot be measured here; {advice}"
                )
    return None if processors else "/proc/cpuinfo cannot be read, so the clock is unknown; mount /proc"


def check_clock(tree: Tree = LIVE) -> None:
    """Raises Mistake, with what to do, if latency cannot be measured on this machine."""
    refusal = clock_refusal(tree)
    if refusal is not None:
        raise Mistake(refusal)
