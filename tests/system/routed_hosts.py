"""Network namespaces with real TCP/IP stacks on both sides of a router, and what stands in its spec."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from running_node import Command, open_folder, wait_until

from tailrace.functions.names import outer_name


def run(*arguments: str, timeout: float = 60, status: int | None = 0) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    assert status is None or done.returncode == status, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@dataclass
class Host:
    """A network namespace with one interface, eth0, and a default route by the router."""

    namespace: str
    network: int

    @property
    def interface(self) -> str:
        """The end in the root namespace, which is the device port."""
        return self.namespace

    @property
    def addresses(self) -> dict[int, str]:
        return {4: f"198.18.{self.network}.2", 6: f"2001:db8:{self.network}::2"}

    @property
    def routers(self) -> dict[int, str]:
        return {4: f"198.18.{self.network}.1", 6: f"2001:db8:{self.network}::1"}

    def run(self, *arguments: str, timeout: float = 60, status: int | None = 0) -> str:
        return run("ip", "netns", "exec", self.namespace, *arguments, timeout=timeout, status=status)

    def make(self) -> None:
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.interface, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        self.run("ip", "link", "set", "lo", "up")
        # Linux sends a host six errors at once. With flows in several queues, probes that go further may use them up.
        self.run("sysctl", "-qw", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0")
        for version, length in ((4, 24), (6, 64)):
            self.run(
                "ip", "address", "add", f"{self.addresses[version]}/{length}", "dev", "eth0", *["nodad"][: version // 6]
            )
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "link", "set", self.interface, "up")
        for version in (4, 6):
            self.run("ip", f"-{version}", "route", "add", "default", "via", self.routers[version])

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.interface], check=False, capture_output=True)

    def ping(self, to: str, *options: str, status: int | None = 0) -> str:
        """What ping says that sends one packet."""
        return self.run("ping", "-n", "-W", "5", "-c", "1", *options, to, status=status)

    def says(self, to: str, words: str, *options: str) -> bool:
        """Whether ping says that."""
        return words in self.ping(to, *options, status=None)

    def reaches(self, to: str, *options: str) -> bool:
        """Whether it is answered from there."""
        return self.says(to, "1 received", *options)

    def introduces_itself(self, version: int) -> bool:
        """Asks for the router's address anew, by which its own is heard of, and says whether it is answered from there.

        A kernel ignores a new address of a neighbour that it has heard from within the last second (locktime).
        It hears of the source alone, and Linux takes the newest of several IPv6 addresses unless told.
        """
        self.run("ip", "neighbour", "flush", "dev", "eth0")
        return self.reaches(self.routers[version], "-I", self.addresses[version])

    def ping_all(self, to: str, count: int = 10) -> str:
        """What ping says whose first packets are all answered. It waits for the last answers only with a deadline."""
        said = self.run("ping", "-n", "-i", "0.01", "-w", "30", "-c", str(count), to)
        answered = sorted(map(int, re.findall("icmp_seq=([0-9]+) ttl", said)))
        # It goes on sending until so many are answered.
        assert len(answered) >= count and answered == list(range(1, len(answered) + 1)), said
        return said


@dataclass
class Scene:
    left: Host
    right: Host
    command: Command
    namespace: str

    def within(self, *arguments: str) -> str:
        """Run in the router's own network namespace."""
        return run("ip", "netns", "exec", self.namespace, *arguments)

    def by_kernel(self) -> int:
        """Bytes that the router has handed to its namespace's kernel."""
        links = json.loads(self.within("ip", "-j", "-s", "link"))
        return sum(int(each["stats64"]["rx"]["bytes"]) for each in links if each["ifname"].startswith("port"))


def spec_of(left: Host, right: Host, routes: str, runs: str = "process", cpus: int = 1) -> str:
    ports = "".join(
        f"      port{number}: [{host.routers[4]}/24, '{host.routers[6]}/64']\n"
        for number, host in enumerate((left, right))
    )
    return (
        f"functions:\n  edge:\n    kind: router\n    runs: {runs}\n    cpus: {cpus}\n"
        f"    router:\n{ports}      routes: {routes}\n"
        f"chains: {{wan: [{{if: {left.interface}}}, edge, {{if: {right.interface}}}]}}\n"
    )


@contextmanager
def joined(tailrace: Path, runs: Path, hosts: tuple[Host, Host], spec: str) -> Iterator[Scene]:
    """Two hosts that reach each other by this spec, in which the router is `edge`."""
    with open_folder() as folder:
        command = Command(tailrace, runs, folder / "state")
        namespace = outer_name(command.state, "edge")
        try:
            for host in hosts:
                host.make()
            command("up", command.spec(spec))
            for to in hosts[1].addresses.values():  # addresses are tried first (RFC 4862, 5.4)
                wait_until(partial(hosts[0].reaches, to))
            yield Scene(*hosts, command, namespace)
        finally:
            command("down")
            for host in hosts:
                host.remove()
        assert not Path("/run/netns", namespace).exists()
        assert not command.leftovers()


def routed(tailrace: Path, runs: Path, hosts: tuple[Host, Host], routes: str) -> AbstractContextManager[Scene]:
    """A router between two hosts that reach each other."""
    return joined(tailrace, runs, hosts, spec_of(*hosts, routes))
