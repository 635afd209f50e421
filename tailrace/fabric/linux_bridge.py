"""Linux's own bridge as a fabric to compare with: what carries packets where nobody has tuned anything.

Each pair of ports has a bridge of its own, and each guest a TAP (as a virtual machine has by default) or one end of a
veth (as a container has). The kernel moves a frame in the context of whoever sends it, so there is no polling thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.errors import Mistake
from tailrace.fabric.base import Counters, Port, pairs
from tailrace.fabric.network import Network
from tailrace.process.programs import system_program
from tailrace.state.record import Process


class LinuxBridge:
    """Bridges in one network namespace, which is made and removed by its owner."""

    kind = "linux-bridge"

    def __init__(self, network: Network) -> None:
        self._network = network

    @staticmethod
    def installed() -> None:
        """Raises Mistake if it is not."""
        system_program("ip")

    def start(self) -> None:
        self.installed()

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:  # noqa: ARG002 - bridges go by numbers
        uris = {}
        for pair in pairs(ports):
            members = []
            for port in pair:
                member, uris[port.name] = kernel_port(self._network, port)
                members.append(member)
            self._network.bridge(members)
        return uris

    def counters(self) -> Counters | None:
        return None

    def processes(self) -> list[Process]:
        return []

    def version(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        """Its interfaces go with their namespace."""


def kernel_port(network: Network, port: Port) -> tuple[str, str]:
    """A TAP or veth: the interface at the fabric's end, and the URI of the guest's. Raises Mistake for other kinds."""
    if port.interface == "tap":
        name = network.tap()
        return name, f"tap:{name}"
    if port.interface == "veth":
        own, guest = network.veth()
        return own, f"if:{guest}"
    raise Mistake(f"{port.name}: {port.interface} is no interface of Linux's; expected tap or veth")
