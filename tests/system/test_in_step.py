"""A firewall, a NAT or a balancer is killed while another one stands by, or the service in the middle of a change:
connections that were established live on, with the same addresses and ports outside, between two real TCP/IP stacks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dying_service import dying_service
from one_network import Host
from running_node import Command, needs_a_node, open_folder, wait_until

from tailrace.node.client import Client
from tailrace.state.record import Process, State, peek

pytestmark = [*needs_a_node, pytest.mark.unsanitized, pytest.mark.requires_program("ip", "ping", "ss")]

PORT, FLOWS = 7000, 400
POOL, VIRTUAL = "203.0.113.0/30", "198.18.80.100"
KINDS = {
    "firewall": "rules: [{action: allow, port: port0}]",
    "nat": f"pool: {POOL}\n      inside: [198.18.80.1/32]",
    "balancer": f"source: 198.18.80.9\n      services: {{web: {{address: {VIRTUAL}, port: {PORT}, "
    "back_ends: [198.18.80.2]}}",
}
#: Echoes whatever comes.
SERVER = f"""
import asyncio
async def answer(reader, writer):
    while data := await reader.read(4096):
        writer.write(data)
async def main():
    await (await asyncio.start_server(answer, "", {PORT}, backlog=4096)).serve_forever()
asyncio.run(main())
"""
#: Has so many connections, and more of them on demand; says how many of them answer to what it is told.
CLIENT = f"""
import asyncio, sys
async def main():
    loop, flows = asyncio.get_running_loop(), []
    async def asks(reader, writer, word):
        try:
            writer.write(word)
            return await asyncio.wait_for(reader.readexactly(len(word)), 40) == word
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return False
    async def opens(each):
        return await asyncio.open_connection(sys.argv[1], {PORT})
    async def open_all(number):
        for at in range(0, number, 50):
            flows.extend(await asyncio.gather(*map(opens, range(min(50, number - at)))))
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if line[0] == "open":
            await open_all(int(line[1]))
            print(len(flows), flush=True)
        else:
            print(sum(await asyncio.gather(*(asks(*each, line[0].encode()) for each in flows))), flush=True)
asyncio.run(main())
"""


@dataclass
class Flows:
    client: subprocess.Popen[str]
    opened_at: float = field(default_factory=time.monotonic)

    def _says(self, line: str) -> int:
        assert self.client.stdin is not None and self.client.stdout is not None
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()
        return int(self.client.stdout.readline())

    def open(self, number: int) -> int:
        """Opens so many more; returns how many there are."""
        found = self._says(f"open {number}")
        self.opened_at = time.monotonic()
        return found

    def answer(self, word: str) -> int:
        """How many answer."""
        return self._says(word)


@dataclass
class Scene:
    left: Host
    right: Host
    command: Command
    virtual: str | None = None
    """The address that clients ask for the server, where it is not its own."""

    def spec(self, function: str) -> Path:
        return self.command.spec(
            f"functions:\n  gate:\n    {function}"
            f"chains: {{wan: [{{if: {self.left.namespace}}}, gate, {{if: {self.right.namespace}}}]}}\n"
        )

    def in_step(self, name: str) -> dict[str, Any]:
        """What the service says of a replica; nothing where that is not in standby."""
        replicas = self.command.status()["functions"][0]["replicas"]
        found = next(each["in_step"] for each in replicas if each["name"] == name)
        return dict(found[0]) if found else {}

    def knows(self, name: str, since: float) -> bool:
        """Whether a replica in standby knows all that there was then."""
        said = self.in_step(name)
        behind = said.get("behind_ms")
        return behind is not None and not said["why"] and time.monotonic() - behind / 1e3 > since

    def outside_ends(self) -> set[str]:
        """Who the host on the right sees at the other ends."""
        said = self.right.run("ss", "-Htn", "state", "established", f"( sport = :{PORT} )")
        return set(re.findall(r"(\S+) *$", said, re.M))

    def take_over(self, name: str, by: str) -> None:
        """One is killed: the other has its place, and it is started again and kept in step."""
        process = next(
            each for each in State(self.command.state, peek(self.command.state)).processes() if each.name == name
        )
        assert isinstance(process, Process)
        with closing(Client(self.command.state, look=True)) as client:
            client.subscribe()
            os.kill(process.inner()[-1].pid, signal.SIGKILL)
            wanted = ["function.took_over", "function.in_step"]
            while wanted:
                event = client.next_event(60)
                assert event is not None, wanted
                assert event["kind"] != "function.behind", event
                if event["kind"] != wanted[0]:
                    continue
                assert event["about"] == (by if len(wanted) == 2 else name.partition("@")[0])
                print(event["kind"], event["details"])
                del wanted[0]


@contextmanager
def joined(tailrace: Path, tmp_path: Path, function: str) -> Iterator[Scene]:
    """Two hosts with a function between them."""
    mark = os.getpid() % 100_000
    hosts = (Host(f"tsl{mark}", 1), Host(f"tsr{mark}", 2))
    with open_folder() as folder:
        command = Command(tailrace, tmp_path, folder / "state")
        try:
            for host in hosts:
                host.make()
            hosts[1].run("ip", "route", "add", POOL, "via", hosts[0].addresses[4])
            scene = Scene(*hosts, command)
            command("up", scene.spec(function))
            wait_until(partial(hosts[0].reaches, hosts[1].addresses[4]))
            yield scene
        finally:
            command("down")
            for host in hosts:
                host.remove()
        assert not command.leftovers()


@pytest.fixture(name="scene", params=KINDS)
def fixture_scene(request: pytest.FixtureRequest, tailrace: Path, tmp_path: Path) -> Iterator[Scene]:
    kind = request.param
    settings = f"    {kind}:\n      {KINDS[kind]}\n"
    with joined(tailrace, tmp_path, f"kind: {kind}\n    replicas: {{1: active, 2: standby}}\n{settings}") as scene:
        scene.virtual = VIRTUAL if kind == "balancer" else None
        yield scene


@contextmanager
def flows(scene: Scene) -> Iterator[Flows]:
    words = [
        "ip",
        "netns",
        "exec",
        scene.left.namespace,
        "python3",
        "-c",
        CLIENT,
        scene.virtual or scene.right.addresses[4],
    ]
    with (
        scene.right.serves(PORT, "python3", "-c", SERVER),
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client,
    ):
        try:
            yield Flows(client)
        finally:
            client.kill()


def test_established_connections_outlive_the_active_one(scene: Scene) -> None:
    with flows(scene) as found:
        assert found.open(FLOWS) == found.answer("before") == FLOWS
        wait_until(lambda: scene.knows("gate-2", found.opened_at))
        ends = scene.outside_ends()
        assert len(ends) == FLOWS
        said = scene.command("status").stdout
        assert re.search(r"gate-2 \(standby.*, \d+\.\d s behind of gate\)", said), said
        assert "in standby: " in scene.command("function", "show", "gate-2").stdout

        scene.take_over("gate", by="gate-2")
        left = found.answer("after")
        print(f"{left} of {FLOWS} connections live on")
        assert left >= 0.99 * FLOWS
        assert len(scene.outside_ends() & ends) >= 0.99 * FLOWS, "at the same ends"
        assert not scene.in_step("gate-2") and not scene.in_step("gate")["not_taken"]

        more = found.open(FLOWS // 4)  # by the one that has taken over
        wait_until(lambda: scene.knows("gate", found.opened_at))
        scene.take_over("gate-2", by="gate")
        left = found.answer("at last")
        print(f"{left} of {more} connections live on")
        assert left >= 0.99 * more


@pytest.mark.whole
@pytest.mark.parametrize("when", ["before", "after"])
def test_they_outlive_a_service_that_is_killed_at_any_step_of_a_change(
    tailrace: Path, tmp_path: Path, when: str
) -> None:
    """The change replaces the instance, at each step by another one."""

    def function(connections: int) -> str:
        return f"kind: firewall\n    firewall: {{connections: {connections}, {KINDS['firewall']}}}\n"

    with joined(tailrace, tmp_path, function(1000)) as scene, flows(scene) as found:
        assert found.open(FLOWS) == FLOWS
        step, done = 0, 1
        while done:
            step += 1
            spec = scene.spec(function(1000 + step))
            with dying_service(scene.command, step, when) as service:
                done = scene.command("apply", spec, status=None).returncode
                if done == 0:
                    os.kill(service.pid, signal.SIGTERM)  # it had more steps to go
            if done:
                assert found.answer("meanwhile") == FLOWS, step
                scene.command("apply", spec)
            assert found.answer("after") == FLOWS, step
        print(f"{step - 1} steps")
        assert step > 2
