"""Two nodes on one machine, each with a libvirt of its own: what both would share is a folder of its own in each one's
mount namespace, and each has a host name. Their network is one namespace, of which no frame leaves.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure
from tailrace.fabric.network import Network
from tailrace.measure.own_node import OwnNode
from tailrace.process import hypervisor
from tailrace.process.process import ProcessId, identify, undisturbed
from tailrace.process.programs import system_program
from tailrace.state.record import State

_OWN = ("run/libvirt", "var/lib/libvirt", "var/cache/libvirt", "var/log/libvirt")
_SPACE = """\
set -e
for each in {own}; do mkdir -p {folder}/$each /$each; mount --bind {folder}/$each /$each; done
mkdir -p /run/libvirt/common
hostname {host}
echo ready
exec sleep infinity
"""
_END_SECONDS = 60.0


class Space:
    """The namespaces of a node, which end with this process."""

    def __init__(self, folder: Path, host: str, network: str) -> None:
        """In a network namespace that is there. Raises Failure."""
        script = _SPACE.format(own=" ".join(_OWN), folder=folder, host=host)
        words = [system_program("ip"), "netns", "exec", network, "setpriv", "--pdeathsig", "KILL"]
        words += ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
        # In a session of its own: what Ctrl-C at a terminal ends is taken down in these namespaces.
        self._holder = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.communicate()[1].strip()
            raise Failure(f"a node's namespaces cannot be made: {said}")
        self.libvirt = folder / "libvirt"
        """Where its libvirt has its socket."""

    @property
    def within(self) -> list[str]:
        """Put before a command, so that it runs there."""
        return [system_program("nsenter"), "--target", str(self._holder.pid), "--mount", "--uts", "--net"]

    @property
    def environment(self) -> dict[str, str]:
        """What a command there has beside that."""
        return {hypervisor.ENVIRONMENT: str(self.libvirt)}

    def _daemons(self) -> list[ProcessId]:
        """libvirt's that run; one that was killed leaves its file."""
        found = []
        for file in self.libvirt.glob("*.pid"):
            with suppress(OSError, ValueError):
                found.append(identify(int(file.read_text())))
        return [each for each in found if each is not None]

    def end(self) -> None:
        """Once nothing is up there: libvirt's daemons end by themselves. Raises Failure if they do not."""
        try:
            wait_until(lambda: not self._daemons(), _END_SECONDS, "a node's libvirt does not end")
        finally:
            self._holder.kill()
            self._holder.communicate()


Ends = tuple[str, str]
"""Two interfaces: where a chain begins and where it ends."""


@dataclass(frozen=True)
class TwoNodes:
    """Both, up."""

    nodes: Sequence[OwnNode]
    network: Network
    cables: Sequence[Ends]
    """Of each node, what is at the other ends of its chain's two cables."""


@contextmanager
def two_nodes(
    state: State, folder: Path, cores: Sequence[int], spec: Callable[[int, Ends, bool], str]
) -> Iterator[TwoNodes]:
    """Both in the block, in folders there. `spec`: what each has, by the core of its switch, the ends of its chain, and
    whether the machine comes there from the other one. Raises Failure."""
    network = Network(state)
    with ExitStack() as stack:
        network.create()
        stack.callback(network.remove)
        nodes: list[OwnNode] = []
        cables: list[Ends] = []
        for host, core in zip(("one", "two"), cores, strict=True):
            first, last = network.veth(), network.veth()
            own = folder / host
            own.mkdir()
            own.chmod(0o755)
            space = Space(own, f"tailrace-{host}", network.name)
            stack.callback(space.end)
            text = spec(core, (first[0], last[0]), bool(nodes))
            nodes.append(OwnNode(own, text, within=space.within, environment=space.environment))
            cables.append((first[1], last[1]))
        for node in nodes:
            stack.callback(_down, node)
        for node in nodes:
            node.command("up", str(node.spec))
        yield TwoNodes(nodes, network, cables)


def _down(node: OwnNode) -> None:
    with undisturbed():
        node.command("down")


def wait_until(what: Callable[[], bool], seconds: float, why: str) -> None:
    """Raises Failure, which begins with `why`, where it does not come in time."""
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise Failure(f"{why} in {seconds:g} s")
        time.sleep(0.01)
