"""What the machine can do that a host with low latency needs: each with its reason, whether it is there, whether it
is on, how to turn it on, and how we know.

Sources: the Intel and AMD architecture manuals for the features, Linux's Documentation/arch/x86/cpuinfo.rst for where
the kernel shows them, and Documentation/admin-guide/kernel-parameters.txt for how to turn them on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.host.capabilities import cores, devices, virtualization
from tailrace.host.capabilities.base import Capability, Finding
from tailrace.host.machine import Machine

CAPABILITIES: tuple[Capability, ...] = (*virtualization.CAPABILITIES, *devices.CAPABILITIES, *cores.CAPABILITIES)


@dataclass(frozen=True)
class Found:
    """A capability and what was found of it."""

    capability: Capability
    finding: Finding


def find_capabilities(machine: Machine) -> list[Found]:
    """All capabilities in their order."""
    return [Found(capability, capability.find(machine)) for capability in CAPABILITIES]


__all__ = ["CAPABILITIES", "Capability", "Finding", "Found", "find_capabilities"]
