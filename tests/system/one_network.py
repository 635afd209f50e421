"""Network namespaces with real TCP/IP stacks in one network, with a function in the wire between them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from routed_hosts import run
from running_node import Command, wait_until

from tailrace.functions.show import Shown, ask
from tailrace.state.record import Process, State, peek
from tailrace.switch.config import function_name


@dataclass
class Host:
    """A network namespace with one interface, eth0, in the network that both hosts are in."""

    namespace: str
    number: int

    @property
    def addresses(self) -> dict[int, str]:
        return {4: f"198.18.80.{self.number}", 6: f"2001:db8:80::{self.number}"}

    def run(self, *arguments: str, timeout: float = 60, status: int | None = 0) -> str:
        return run("ip", "netns", "exec", self.namespace, *arguments, timeout=timeout, status=status)

    def make(self) -> None:
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.namespace, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        self.run("ip", "address", "add", f"{self.addresses[4]}/24", "dev", "eth0")
        self.run("ip", "address", "add", f"{self.addresses[6]}/64", "dev", "eth0", "nodad")
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "link", "set", self.namespace, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.namespace], check=False, capture_output=True)

    def reaches(self, to: str, *options: str) -> bool:
        return "1 received" in self.run("ping", "-n", "-W", "5", "-c", "1", *options, to, status=None)

    @contextmanager
    def serves(self, port: int, *program: str) -> Iterator[None]:
        """A program that listens at this port."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: f":{port} " in self.run("ss", "-ltn"))
            yield
        finally:
            process.terminate()
            process.wait(60)


def shown(command: Command, name: str) -> Shown:
    """What `tailrace function show` prints, without starting the command each time."""
    record = peek(command.state)
    processes = [each for each in record.things if isinstance(each, Process) and function_name(each.name) == name]
    return ask(State(command.state, record), processes[-1], 10_000)
