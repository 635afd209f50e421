"""No switch at all: each function's port is joined to the next one's memory. The lower bound of what a fabric can cost.

Over vhost-user one end of each link is the front end (DPDK's virtio_user), the other the back end (DPDK's vhost
driver), which a switch usually is; over memif one is the server. That end makes the socket, so who has it must be there
first: the functions start from the last to the first, and the tester, which only connects, after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.fabric.base import KERNEL, Counters, Port, pairs
from tailrace.fabric.network import Network
from tailrace.state.record import Folder, Process, State


class Direct:
    """Links between guests; nothing runs but the guests."""

    kind = "direct"

    def __init__(self, state: State, network: Network) -> None:
        self._state = state
        self._network = network
        self._folders: list[Folder] = []

    def start(self) -> None:
        self._state.sockets.mkdir(exist_ok=True)

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:
        uris: dict[str, str] = {}
        joined = pairs(ports)
        for number, (one, other) in enumerate(joined):
            # The second of a pair is a function's first port, and waits; but the last is the tester's.
            waiting, calling = (other, one) if number < len(joined) - 1 else (one, other)
            uris |= self._link(f"{chain}-{number}", waiting, calling, device=number)
        return uris

    def _link(self, name: str, waiting: Port, calling: Port, device: int) -> dict[str, str]:
        kinds = (waiting.interface, calling.interface)
        interface = next((kind for kind in kinds if kind in KERNEL), waiting.interface)
        if interface == "veth":
            ends = self._network.veth()
            return {waiting.name: f"if:{ends[0]}", calling.name: f"if:{ends[1]}"}
        folder = Folder(str(self._state.sockets / name))
        self._state.add(folder)
        self._folders.append(folder)
        Path(folder.path).mkdir()
        socket = f"{folder.path}/link.sock"
        if interface == "memif":
            return {waiting.name: f"memif:{socket},role=server", calling.name: f"memif:{socket},role=client"}
        if interface == "vhost-user":
            return {waiting.name: f"vdev:net_vhost{device},iface={socket},queues=1", calling.name: f"vhost:{socket}"}
        raise Mistake(f"{waiting.name}: {interface} has a switch at one end; expected vhost-user, memif or veth")

    def counters(self) -> Counters | None:
        return None

    def processes(self) -> list[Process]:
        return []

    def version(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        for folder in reversed(self._folders):
            self._state.undo(folder)
        self._folders = []
