"""A balancer between a client and back ends with real TCP/IP stacks (`examples/balancer.yaml`): who answers, what goes
on while back ends are drained, end and come back, and that answers of mode direct arrive."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from iperf import iperf
from one_network import Host, shown
from running_node import Command, needs_a_node, open_folder, wait_until

from tailrace.errors import TailraceError

pytestmark = [*needs_a_node, pytest.mark.requires_program("ip", "iperf3")]
EXAMPLE = Path(__file__).parents[2] / "examples" / "balancer.yaml"
VIRTUAL = {4: "198.18.80.100", 6: "2001:db8:80::100"}
DIRECT = "198.18.80.101"
ENDS = {"one": ("198.18.80.2", "2001:db8:80::2"), "two": ("198.18.80.3", "2001:db8:80::3")}
WEB, PERF, DNS = 80, 5201, 53
MORE = f"""
      secret: so-that-it-outlives-a-crash
      services:
        perf:
          address: {VIRTUAL[4]}
          port: {PERF}
          health: {{by: echo, interval: 500ms, timeout: 250ms}}
          back_ends: [{ENDS["one"][0]}]
        direct:
          address: {DIRECT}
          port: 81
          mode: direct
          health: {{by: neighbour, interval: 500ms, timeout: 250ms}}
          back_ends: [{ENDS["one"][0]}]
"""
#: Each address answers each line and datagram with itself and who has sent that.
SERVER = f"""
import socket, sys, threading
def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET
def talk(address, connection, peer):
    for _ in connection.makefile("rb"):
        connection.sendall(f"{{address}} {{peer[0]}}\\n".encode())
    connection.close()
def accept(address, server):
    while True:
        connection, peer = server.accept()
        threading.Thread(target=talk, args=[address, connection, peer]).start()
def answer(address, server):
    while True:
        _, peer = server.recvfrom(2048)
        server.sendto(f"{{address}} {{peer[0]}}\\n".encode(), peer)
for address in sys.argv[1:]:
    datagrams = socket.socket(family(address), socket.SOCK_DGRAM)
    datagrams.bind((address, {DNS}))
    threading.Thread(target=answer, args=[address, datagrams], daemon=True).start()
    stream = socket.create_server((address, 81 if address == "{DIRECT}" else 8080), family=family(address))
    threading.Thread(target=accept, args=[address, stream], daemon=True).start()
print("ready", flush=True)
threading.Event().wait()
"""
#: Asks so many times, each from a new port.
ASK = """
import socket, sys
kind, address, port, times = getattr(socket, sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for _ in range(times):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as client:
        client.settimeout(60)
        client.connect((address, port))
        client.sendall(b"who\\n")
        print(client.recv(100).decode().strip())
"""
#: One connection: a line for each line.
TALK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 40) as client:
    answers = client.makefile("r")
    for line in sys.stdin:
        client.sendall(line.encode())
        print(answers.readline().strip(), flush=True)
"""


@dataclass
class Scene:
    left: Host
    right: Host
    command: Command

    def spec(
        self, drained: str | None = None, connections: int = 65536, queues: int = 1, runs: str = "process"
    ) -> Path:
        text = EXAMPLE.read_text().replace("tr-left", self.left.namespace).replace("tr-right", self.right.namespace)
        text = text.replace("kind: balancer\n", f"kind: balancer\n    runs: {runs}\n    cpus: {{most: {queues}}}\n")
        text = text.replace("\n      services:\n", MORE)
        text = text.replace("      secret:", f"      connections: {connections}\n      secret:")
        if drained is not None:
            text = text.replace(f"{{name: {drained}, ", f"{{name: {drained}, drain: true, ")
        return self.command.spec(text)

    def states(self, service: str = "web") -> dict[str, str]:
        """Of its back ends."""
        rows = shown(self.command, "lb").tables["back_ends"].rows
        return {str(each["back_end"]): str(each["state"]) for each in rows if each["service"] == service}

    def all_up(self) -> bool:
        try:
            rows = shown(self.command, "lb").tables["back_ends"].rows
        except TailraceError:  # it is being started
            return False
        return {str(each["state"]) for each in rows} == {"up"}

    def who_answers(self, address: str, port: int = WEB, kind: str = "SOCK_STREAM", times: int = 24) -> set[str]:
        """By which addresses; that the client was seen as itself is checked."""
        said = self.left.run("python3", "-c", ASK, kind, address, str(port), str(times))
        answers = [line.split() for line in said.splitlines()]
        assert len(answers) == times and {peer for _, peer in answers} <= set(self.left.addresses.values()), said
        return {end for end, _ in answers}

    @contextmanager
    def serves(self, *addresses: str) -> Iterator[None]:
        """Programs that answer at these."""
        words = ["ip", "netns", "exec", self.right.namespace, "python3", "-c", SERVER, *addresses]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()
            process.communicate(timeout=60)

    @contextmanager
    def talks(self, address: str, port: int = WEB) -> Iterator[Talk]:
        words = ["ip", "netns", "exec", self.left.namespace, "python3", "-c", TALK, address, str(port)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield Talk(process)
        finally:
            process.kill()
            process.communicate(timeout=60)


@dataclass
class Talk:
    """A connection that lasts."""

    process: subprocess.Popen[str]

    def end(self) -> str:
        """Who answers at its other end."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("who\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        assert words, "the connection has ended"
        return words[0]


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark = os.getpid() % 100_000
    hosts = (Host(f"tbl{mark}", 1), Host(f"tbr{mark}", 2))
    with open_folder() as folder, ExitStack() as servers:
        command = Command(tailrace, tmp_path_factory.mktemp("balancer"), folder / "state")
        scene = Scene(*hosts, command)
        try:
            for host in hosts:
                host.make()
            hosts[1].run("ip", "address", "add", f"{ENDS['two'][0]}/24", "dev", "eth0")
            hosts[1].run("ip", "address", "add", f"{ENDS['two'][1]}/64", "dev", "eth0", "nodad")
            hosts[1].run("sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=1")
            hosts[1].run("ip", "address", "add", f"{DIRECT}/32", "dev", "lo")
            servers.enter_context(scene.serves(*ENDS["one"], DIRECT))
            command("up", scene.spec())
            yield scene
        finally:
            command("down")
            for host in hosts:
                host.remove()
        assert not command.leftovers()


@pytest.fixture(name="second")
def fixture_second(scene: Scene) -> Iterator[None]:
    """The second back end serves, and all are up.  That it was up before it ended must have been forgotten."""
    wait_until(lambda: scene.states()["two"] != "up")
    with scene.serves(*ENDS["two"]):
        wait_until(scene.all_up)
        yield


@pytest.mark.usefixtures("second")
def test_all_back_ends_answer_for_the_virtual_address(scene: Scene) -> None:
    for place, version in enumerate((4, 6)):
        assert scene.who_answers(VIRTUAL[version]) == {each[place] for each in ENDS.values()}
    assert scene.who_answers(VIRTUAL[4], DNS, "SOCK_DGRAM") == {each[0] for each in ENDS.values()}
    said = scene.command("function", "show", "lb").stdout
    said = scene.command("function", "show", "lb").stdout
    assert re.search(rf"web +one +{ENDS['one'][0]}:8080 +up", said), said


@pytest.mark.usefixtures("second")
def test_tcp_at_full_speed(scene: Scene) -> None:
    with scene.right.serves(PERF, "iperf3", "--server"):
        for options in ((), ("--reverse",)):
            assert iperf(scene.left.run, VIRTUAL[4], 1, *options)["sum_received"]["bytes"] > 1e6
    assert all(port["drop_checksum"] == port["drop_length"] == 0 for port in balanced(scene))


def balanced(scene: Scene) -> list[dict[str, int | str]]:
    ports = shown(scene.command, "lb").counters["balanced"]
    assert isinstance(ports, list)
    return ports


@pytest.mark.usefixtures("second")
def test_connections_go_on_at_a_back_end_in_drain(scene: Scene) -> None:
    before = scene.command.process("lb")
    with scene.talks(VIRTUAL[4]) as talk:
        address = talk.end()
        name, other = sorted(ENDS, key=lambda each: ENDS[each][0] != address)
        scene.command("apply", scene.spec(drained=name))
        assert scene.who_answers(VIRTUAL[4]) == {ENDS[other][0]}
        assert talk.end() == address
        scene.command("rollback")
        assert scene.who_answers(VIRTUAL[4]) == {each[0] for each in ENDS.values()}
        assert talk.end() == address
    assert scene.command.process("lb") == before


def test_a_back_end_that_has_ended_gets_nothing_until_it_is_back(scene: Scene) -> None:
    with scene.serves(*ENDS["two"]):
        wait_until(lambda: scene.states() == {"one": "up", "two": "up"})
    wait_until(lambda: scene.states() == {"one": "up", "two": "down"})
    assert scene.who_answers(VIRTUAL[4]) == {ENDS["one"][0]}
    with scene.serves(*ENDS["two"]):
        wait_until(lambda: scene.states() == {"one": "up", "two": "up"})
        assert scene.who_answers(VIRTUAL[4]) == {each[0] for each in ENDS.values()}
    rows = shown(scene.command, "lb").tables["events"].rows
    assert any(
        {"service": "web", "back_end": "two", "event": "down", "why": "it refuses connections"}.items() <= each.items()
        for each in rows
    )


def test_back_ends_of_mode_direct_answer_themselves(scene: Scene) -> None:
    assert scene.who_answers(DIRECT, 81, times=4) == {DIRECT}


@pytest.mark.usefixtures("second")
def test_connections_outlive_a_crash(scene: Scene) -> None:
    with scene.talks(VIRTUAL[4]) as talk:
        address = talk.end()
        process = scene.command.process("lb")
        assert process is not None
        os.kill(process["pid"], 9)
        wait_until(lambda: scene.command.process("lb@2"))
        wait_until(scene.all_up)
        assert talk.end() == address


@pytest.mark.usefixtures("second")
def test_connections_go_on_in_an_instance_that_replaces_the_balancer(scene: Scene) -> None:
    """It has other queues, and is led frames before it could probe anybody: so it has to be told who is up, too."""
    with scene.talks(VIRTUAL[4]) as talk, scene.talks(VIRTUAL[6]) as six, scene.talks(DIRECT, 81) as direct:
        ends = talk.end(), six.end(), direct.end()
        said = scene.command("apply", scene.spec(connections=1000, queues=3)).stdout
        assert re.search("lb: [1-9][0-9]* connections handed over$", said, re.M), said
        assert (talk.end(), six.end(), direct.end()) == ends
        handed = shown(scene.command, "lb").counters["handed_over"]
        assert isinstance(handed, dict)
        assert handed["taken"] >= 3 and handed["unfit"] == handed["malformed"] == handed["no_room"] == 0
        assert [port["unkept"] for port in balanced(scene)] == [0, 0]
        scene.command("rollback")
        assert (talk.end(), six.end(), direct.end()) == ends


@pytest.mark.usefixtures("second")
@pytest.mark.requires_program("podman")
def test_it_lives_in_a_container(scene: Scene) -> None:
    scene.command("apply", scene.spec(runs="container"))
    (function,) = json.loads(scene.command("status", "--json").stdout)["functions"]
    assert function["runs"] == "container"
    for place, version in enumerate((4, 6)):
        assert scene.who_answers(VIRTUAL[version]) == {each[place] for each in ENDS.values()}
    assert scene.states() == {"one": "up", "two": "up"}
