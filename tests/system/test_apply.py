"""`tailrace plan`, `apply`, `rollback` and `drain` under traffic: a change is made whole or not at all, what it does
not name loses nothing, and every frame is accounted for."""

from __future__ import annotations

import grp
import json
import os
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from running_node import Command, needs_a_node, wait_until
from running_tester import Trial, beside_a_node, stream

from tailrace.process.control import Control
from tailrace.process.process import descendants
from tailrace.state.record import Process, State, peek

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

CHANGES = 3
#: One chain that nobody touches, and one that is changed; each has two ports that the tester attaches to.
BASE = """\
ports: {c: , d: }
functions: {first: skeleton, second: skeleton}
chains:
  kept: [tester.a, first, tester.b]
  changed: [c, d]
"""
MORE = BASE.replace("[c, d]", "[c, second, d]")
HEAVIER = MORE.replace("second: skeleton", "second: {kind: skeleton, memory: 300MiB}")
ENDS = {"a": "tester.a", "b": "tester.b", "c": "c", "d": "d"}


class Traffic:
    """Frames on both chains both ways until the block ends; then each stream's account."""

    def __init__(self, binaries: Path, command: Command, folder: Path) -> None:
        ports = {name: f"vhost:{command.state / 'sockets' / port}.sock" for name, port in ENDS.items()}
        self.tester = beside_a_node(binaries, folder, ports, "--memory", "256")
        self.result: Trial = {}

    def __enter__(self) -> Traffic:
        # Another size for the other chain: the tester has buffers for one transmit ring of each size and direction.
        streams = [
            stream(f"{source}{target}", source, target, 2000, frames=[64 if target in "ab" else 128])
            for source, target in ("ab", "ba", "cd", "dc")
        ]
        self.tester.start(streams, 3600, wait=1.0)
        self.tester.wait_sent(500)
        return self

    def __exit__(self, *_: object) -> None:
        self.tester.call("trial.stop")
        self.result = self.tester.wait_end()
        assert self.tester.end() == 0

    def more(self) -> None:
        """Returns when each stream has sent frames that it had not sent before."""
        status = self.tester.call("trial.status")
        self.tester.wait_sent(max(each["sent"] for each in status["streams"]) + 500)

    def account(self, *names: str) -> list[dict[str, Any]]:
        found = [each for each in self.result["streams"] if each["name"] in names]
        assert len(found) == len(names)
        for each in found:
            assert each["sent"] > 100
            assert each["received"] + each["lost"] == each["sent"], each
            assert each["duplicate"] == each["foreign"] == each["out_of_sequence"] == 0, each
        return found


def version(command: Command) -> int:
    return int(command.status()["version"])


def processes(command: Command) -> set[str]:
    return {process["name"] for process in command.status()["processes"] if process["alive"]}


def started(command: Command) -> list[Process]:
    """The processes on record, without the time that `tailrace status` takes."""
    return State(command.state, peek(command.state)).processes()


def planned(command: Command, spec: Path, status: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(command("plan", spec, "--json", status=status).stdout)
    return document


def test_plan_apply_and_rollback_say_what_they_do(command: Command) -> None:
    base, more = command.spec(BASE, "base.yaml"), command.spec(MORE, "more.yaml")
    nothing_up = command("plan", base, status=CHANGES)
    assert "+ chain changed  c d" in nothing_up.stdout
    assert "Nothing is up" in nothing_up.stdout
    assert "nothing is up" in command("apply", base, status=2).stderr
    assert not command.state.exists()

    command("up", base)
    assert planned(command, base, 0)["changes"] == []
    assert "nothing has been applied" in command("rollback", status=2).stderr
    proposal = planned(command, more, CHANGES)
    assert [(each["change"], each["what"], each["name"]) for each in proposal["changes"]] == [
        ("add", "process", "second"),
        ("add", "function", "second"),
        ("change", "chain", "changed"),
    ]
    shown = command("plan", more, status=CHANGES).stdout
    assert "+ process second" in shown
    assert "~ chain changed  through: none → second" in shown
    assert "2 to add, 1 to change, 0 to remove." in shown
    assert proposal["version"] == version(command)
    assert shown.splitlines()[-1].endswith(f"`tailrace apply {more} --base {version(command)}`.")
    assert processes(command) == {"switch", "first"}, "a plan changes nothing"

    before = version(command)
    applied = command("apply", more)
    assert "+ process second" in applied.stdout
    assert "tailrace rollback" in applied.stdout
    assert processes(command) == {"switch", "first", "second"}
    assert version(command) > before
    assert planned(command, more, 0)["changes"] == []
    assert "nothing to change" in command("apply", more).stdout
    assert "already up" in command("up", more).stdout

    back = json.loads(command("rollback", "--json").stdout)
    assert back["stop"] == ["second"]
    assert processes(command) == {"switch", "first"}
    assert planned(command, base, 0)["changes"] == []
    command("rollback")


def test_what_is_most_likely_not_meant_is_said_before_and_after(command: Command) -> None:
    rules = "{kind: firewall, firewall: {rules: [{action: allow}, {name: late, action: deny, protocol: udp}]}}"
    base = command.spec(BASE, "base.yaml")
    more = command.spec(MORE.replace("second: skeleton", f"second: {rules}"), "more.yaml")
    said = "second: the rule 'late' never counts"
    command("up", base)
    assert said in command("plan", more, status=CHANGES).stdout
    assert any(said in note for note in planned(command, more, CHANGES)["notes"])
    assert said in command("apply", more).stdout
    assert any(said in note for note in planned(command, more, 0)["notes"])
    assert said not in command("rollback").stdout
    assert processes(command) == {"switch", "first"}


def test_what_a_change_does_not_name_loses_nothing(command: Command, binaries: Path, tmp_path: Path) -> None:
    specs = {name: command.spec(text, f"{name}.yaml") for name, text in
             (("base", BASE), ("more", MORE), ("heavier", HEAVIER))}  # fmt: skip
    command("up", specs["base"])
    with Traffic(binaries, command, tmp_path) as traffic:
        for arguments in (
            ("apply", specs["more"]),  # a function more
            ("apply", specs["heavier"]),  # the function replaced by a new one
            ("rollback",),  # and that undone
            ("apply", specs["base"]),  # the function gone
        ):
            command(*arguments)
            traffic.more()
        assert processes(command) == {"switch", "first"}
    for each in traffic.account("ab", "ba"):
        assert each["lost"] == 0, each
    # Of the chain that changed: what was in a function when it was left, a few rings at the most.
    for each in traffic.account("cd", "dc"):
        assert each["lost"] <= 3 * 512, each
    assert not [port for port in command.status()["ports"] if port["name"].startswith("second")]


def test_a_function_that_has_ended_is_replaced(command: Command) -> None:
    more, less = (text.replace(": skeleton", ": {kind: skeleton, restart: never}") for text in (MORE, BASE))
    spec = command.spec(more)
    command("up", spec)
    second = command.process("second")
    assert second is not None
    os.kill(second["pid"], signal.SIGKILL)
    wait_until(lambda: command.process("second") is None)
    assert "~ process second  it has ended" in command("plan", spec, status=CHANGES).stdout
    said = command("apply", spec).stdout
    assert said.endswith("is up: the same as before, with what had ended.\n"), "there is nothing to go back to"
    status = command.status()
    assert status["state"] == "up"
    assert {each["function"] for each in status["processes"]} == {None, "first", "second"}
    assert planned(command, spec, 0)["changes"] == []

    base = command.spec(less, "base.yaml")
    command("apply", base)
    first = command.process("first")
    assert first is not None
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: command.process("first") is None)
    said = command("apply", base).stdout
    assert said.endswith(f"; `tailrace rollback` goes back to what was up before it, of {spec}.\n")
    command("rollback")
    assert planned(command, spec, 0)["changes"] == []


def test_two_writers_cannot_interleave(command: Command) -> None:
    base, more = command.spec(BASE, "base.yaml"), command.spec(MORE, "more.yaml")
    command("up", base)
    seen = planned(command, more, CHANGES)["version"]
    control = Control(State(command.state, peek(command.state)).control)
    won = control.call("config.apply", patch={"ports": {"tester.a": {"rate": {"max": 10**9}}}})["version"]
    refused = command("apply", more, "--base", str(seen), status=2)
    assert f"version {won} won" in refused.stderr
    assert f"process {os.getpid()} of user {os.getuid()}" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert processes(command) == {"switch", "first"}
    assert control.call("config.get")["version"] == won
    control.close()
    # Looked at again, the other's change shows, and is undone by who asks for the spec alone.
    assert "~ port tester.a  rate.max: 1000000000 → none" in command("plan", more, status=CHANGES).stdout
    command("apply", more, "--base", str(won))
    assert planned(command, more, 0)["changes"] == []


def test_refused_whole(command: Command, binaries: Path, tmp_path: Path) -> None:
    base = command.spec(BASE, "base.yaml")
    command("up", base)
    before = command.status()
    taken = command.spec(
        MORE.replace("ports: {c: , d: }", "ports: {c: , d: , e: {path: /no/such/folder/e.sock}}"), "taken.yaml"
    )
    wrong = command.spec(MORE.replace("[c, second, d]", "[c, secnd, d]"), "wrong.yaml")
    other = command.spec("fabric: {backpressure: 1ms}\n" + BASE, "other.yaml")
    with Traffic(binaries, command, tmp_path) as traffic:
        refused = command("apply", taken, status=2)
        assert refused.stderr.count("\n") == 1
        assert "e.sock" in refused.stderr
        assert f"{wrong}:5:16: " in command("apply", wrong, status=2).stderr
        assert "the running switch cannot change fabric.backpressure" in command("apply", other, status=2).stderr
        traffic.more()
        after = command.status()
    assert [each["pid"] for each in after["processes"] if each["name"] != "tester"] == [
        each["pid"] for each in before["processes"]
    ]
    assert [port["name"] for port in after["ports"]] == [port["name"] for port in before["ports"]]
    assert planned(command, base, 0)["changes"] == []
    for each in traffic.account("ab", "ba", "cd", "dc"):
        assert each["lost"] == 0, each


def test_a_change_killed_in_the_middle_is_ended_by_the_next_command(command: Command) -> None:
    base, more = command.spec(BASE, "base.yaml"), command.spec(MORE, "more.yaml")
    command("up", base)
    running = command.begin("apply", more)
    wait_until(lambda: "second" in processes(command) or running.poll() is not None)
    os.kill(command.service(), signal.SIGKILL)
    running.communicate(timeout=60)
    command("apply", more)
    assert command.status()["state"] == "up"
    assert planned(command, more, 0)["changes"] == []
    command("apply", base)
    assert processes(command) == {"switch", "first"}
    assert planned(command, base, 0)["changes"] == []


@pytest.mark.parametrize("output", [">/dev/full", "| true", ">&-", ">&- 2>&-"])
def test_what_is_done_does_not_depend_on_who_reads_of_it(command: Command, output: str) -> None:
    base, more = command.spec(BASE, "base.yaml"), command.spec(MORE, "more.yaml")

    def run(words: str) -> str:
        # The command's own status, of a pipe too, and an open file that is not to become its standard output.
        line = f"{{ {command.program} {words}; echo status $? >{command.folder}/status; }} {output}"
        done = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, timeout=60, env=command.environment, check=False
        )
        assert (command.folder / "status").read_text() == "status 0\n", done.stderr
        return done.stderr

    run(f"up {base}")
    said = run(f"apply {more}")
    assert processes(command) == {"switch", "first", "second"}
    if output in (">/dev/full", "| true"):
        assert f"; version {version(command)} is up all the same\n" in said
    else:
        assert said == ""
    run("down")
    assert not command.leftovers()


@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGINT, "interrupted by Ctrl-C"), pytest.param(signal.SIGTERM, "SIGTERM", marks=pytest.mark.whole)],
)
def test_a_change_that_is_interrupted_says_so_and_which_version_is_up(
    command: Command, number: signal.Signals, told: str
) -> None:
    base, more = command.spec(BASE, "base.yaml"), command.spec(MORE, "more.yaml")
    command("up", base)
    running = command.begin("apply", more)
    second = wait_until(lambda: next((each for each in started(command) if each.name == "second"), None))
    held: set[int] = set()
    while found := {second.pid, *descendants(second.pid)} - held:  # it is waited for until the end
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        held |= found
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    match = re.fullmatch(rf"tailrace: .*{told}; nothing was changed, and that is version (\d+) now\n", said)
    assert match is not None, said
    assert int(match[1]) == version(command)
    assert processes(command) == {"switch", "first"}
    command("apply", more, "--base", match[1])


def test_replicas_come_are_drained_and_go(command: Command) -> None:
    one = "functions: {fw: skeleton}\nchains: {voice: [tester.a, fw, tester.b]}\n"
    two = one.replace("fw: skeleton", "fw: {kind: skeleton, replicas: 2}")
    command("up", command.spec(one))
    pid = command.process("fw")
    command("apply", command.spec(two))
    assert command.process("fw") == pid, "a second replica is no reason to start the first anew"
    assert "no replica" in command("drain", "fw-3", status=2).stderr
    command("drain", "fw-2")
    (function,) = command.status()["functions"]
    assert [(each["name"], each["state"]) for each in function["replicas"]] == [("fw", "active"), ("fw-2", "draining")]
    assert "fw-2 (draining" in command("status").stdout
    assert "last active replica of 'fw'; `tailrace scale fw 2`" in command("drain", "fw", status=2).stderr
    command("rollback")
    assert {each["state"] for each in command.status()["functions"][0]["replicas"]} == {"active"}
    command("drain", "fw-2")
    command("drain", "fw-2", "--active")
    command("apply", command.spec(one))
    assert processes(command) == {"switch", "fw"}
    assert command.process("fw") == pid


def test_a_function_is_scaled_and_whoever_is_there_stays(command: Command) -> None:
    spec = command.spec("functions: {fw: skeleton}\nchains: {voice: [tester.a, fw, tester.b]}\n")
    command("up", spec)
    pid = command.process("fw")
    command("scale", "fw", "3")
    assert processes(command) == {"switch", "fw", "fw-2", "fw-3"}
    assert {each["state"] for each in command.status()["functions"][0]["replicas"]} == {"active"}
    assert "fw has 3 already" in command("scale", "fw", "3").stdout
    command("scale", "fw", "1")
    assert processes(command) == {"switch", "fw"}
    assert command.process("fw") == pid
    assert "No changes" in command("plan", spec).stdout
    assert "'nat' is no function that is up" in command("scale", "nat", "2", status=2).stderr
    assert "--wait" in command("scale", "fw", "2", "--wait", "soon", status=2).stderr


def test_a_function_that_is_stopped_stays_so_until_it_is_started(command: Command) -> None:
    """Its chain leads past it meanwhile, and another change leaves it as it is."""
    functions = "functions: {fw: {kind: skeleton, on_failure: bypass}, nat: skeleton}\n"
    text = functions + "chains: {voice: [tester.a, fw, nat, tester.b]}\n"
    command("up", command.spec(text))
    command("function", "stop", "fw")
    assert processes(command) == {"switch", "nat"}
    status = command.status()
    assert status["state"] == "up" and status["unlike"] == []
    assert {each["name"]: each["replicas"][0]["state"] for each in status["functions"]} == {
        "fw": "stopped",
        "nat": "active",
    }
    assert "fw (stopped" in command("status").stdout
    command("apply", command.spec(text + "trace: 1024\n"))
    assert processes(command) == {"switch", "nat"}
    larger = command.spec(text.replace("kind: skeleton", "kind: skeleton, memory: 512MiB"))
    assert "memory: 256MiB → 512MiB; it stays stopped" in command("apply", larger).stdout
    assert processes(command) == {"switch", "nat"} and command.status()["unlike"] == []
    assert "No changes" in command("plan", larger).stdout
    assert ": the same as before, with a new instance of nat" in command("function", "restart", "nat").stdout
    assert "was not stopped" in command("function", "start", "nat").stdout
    command("function", "start", "fw")
    assert command.process("fw@3") and command.status()["functions"][0]["replicas"][0]["state"] == "active"
    assert "no function that Tailrace has started" in command("function", "stop", "none", status=2).stderr


def test_flows_are_known_for_as_long_as_the_spec_says(command: Command, binaries: Path, tmp_path: Path) -> None:
    words = "ports: {c: , d: }\nfunctions: {fw: {kind: skeleton, replicas: 2%s}}\nchains: {voice: [c, fw, d]}\n"
    command("up", command.spec(words % ""))
    ports = {name: f"vhost:{command.state / 'sockets' / name}.sock" for name in "cd"}
    tester = beside_a_node(binaries, tmp_path, ports, "--memory", "256")
    tester.trial([stream("cd", "c", "d", 2000, flows=64)], 0.5, wait=5.0)
    assert tester.end() == 0

    def flows() -> int:
        return sum(each["flows"] for each in command.status()["functions"][0]["replicas"])

    assert flows() == 64
    short = command.spec(words % ", ageing: 1s")
    assert "~ function fw  ageing: 300 → 1" in command("plan", short, status=CHANGES).stdout
    command("apply", short)
    wait_until(lambda: flows() == 0)


def test_guests_of_ones_own_find_their_sockets(command: Command) -> None:
    spec = command.spec(
        "ports: {vm: {socket: {mode: '0660', group: daemon}}, wan: {queues: 2}}\n"
        "functions: {box: guest}\nchains: {v: [vm, box, wan]}\n"
    )
    path = command.state / "sockets/vm.sock"
    command("up", spec)
    status = command.status()
    assert [process["name"] for process in status["processes"]] == ["switch"]
    assert {port["name"]: port["state"] for port in status["ports"]} == dict.fromkeys(
        ("vm", "box.0", "box.1", "wan"), "waiting"
    )
    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), grp.getgrgid(found.st_gid).gr_name) == (0o660, "daemon")
    other = command.spec(spec.read_text().replace("daemon", "games"), "other.yaml")
    assert "a socket of the group games" in command("apply", other, status=2).stderr
    command("down")
    assert not path.exists()


def test_the_way_back_is_open(command: Command) -> None:
    """To what the switch was started for, though it is not in use; past a spec that says the same in another way."""
    whole = "ports: {vm: {socket: {group: daemon}}, wan: {}}\nchains: {v: [vm, wan]}\n"
    first = command.spec(whole, "first.yaml")
    second = command.spec("ports: {vm: {}, wan: {}}\nchains: {v: [vm, wan]}\n", "second.yaml")
    again = command.spec("ports: {wan: {}, vm: {}}\nchains: {v: [vm, wan]}\n", "again.yaml")
    command("up", first)
    command("apply", second)
    assert planned(command, again, 0)["changes"] == []
    assert "nothing to change" in command("apply", again).stdout
    assert "already up" in command("up", second).stdout
    command("rollback")
    assert grp.getgrgid((command.state / "sockets/vm.sock").stat().st_gid).gr_name == "daemon"
    assert planned(command, first, 0)["changes"] == []


def test_a_plan_is_not_of_what_cannot_be_had(command: Command) -> None:
    wrong = command.spec("ports: {vm: {path: /nowhere/vm.sock}, wan: {}}\nchains: {v: [vm, wan]}\n", "wrong.yaml")
    told = "wrong.yaml:1:9: ports.vm: /nowhere/vm.sock: there is no folder /nowhere"
    assert told in command("plan", wrong, status=2).stderr
    command("up", command.spec("ports: {wan: {}, lan: {}}\nchains: {v: [lan, wan]}\n", "right.yaml"))
    assert told in command("plan", wrong, status=2).stderr


def test_a_socket_elsewhere_is_not_for_everybody(command: Command) -> None:
    folder = command.folder_for_sockets()
    paths = {name: folder / f"{name}.sock" for name in ("closed", "open")}
    ports = f"{{closed: {{path: {paths['closed']}}}, open: {{path: {paths['open']}, socket: {{mode: '0666'}}}}}}"
    command("up", command.spec(f"ports: {ports}\nchains: {{v: [closed, open]}}\n"))
    assert {name: stat.S_IMODE(path.stat().st_mode) for name, path in paths.items()} == {"closed": 0o660, "open": 0o666}


@pytest.mark.parametrize(
    "example", ["matches", "replicas", "bridge", "rates", "sleep", "workers", "guests", "chain-of-two"]
)
def test_examples_come_up_as_they_stand(command: Command, repository: Path, example: str) -> None:
    path = repository / f"examples/{example}.yaml"
    command("up", path)
    assert command.status()["state"] == "up"
    assert "No changes" in command("plan", path).stdout


def devices(count: int, queues: int = 1, fabric: str = "") -> str:
    """Ports on devices of DPDK's that nothing comes from, and one chain."""
    ports = "".join(f"  n{number}: {{vdev: net_null{number}, queues: {queues}}}\n" for number in range(count))
    return f"{fabric}ports:\n  a:\n{ports}chains: {{c: [a, n0]}}\n"


def test_devices_have_memory_for_their_queues(command: Command) -> None:
    """All queues that a spec may name, and a few devices that come later; what has no room is refused by `plan`."""
    command("up", command.spec(devices(2, queues=16)))
    command("down")
    command("up", command.spec(devices(1)))
    command("plan", command.spec(devices(8)), status=3)
    command("apply", command.spec(devices(8)))
    for verb in ("plan", "apply"):
        refused = command(verb, command.spec(devices(60)), status=2).stderr
        assert "spec.yaml:" in refused and "packet buffers take" in refused and "fabric: {memory: ...}" in refused
    assert version(command) == 2
    command("down")
    command("up", command.spec(devices(1, fabric="fabric: {memory: 1GiB}\n")))
    command("apply", command.spec(devices(32, fabric="fabric: {memory: 1GiB}\n")))
    refused = command("apply", command.spec(devices(33, fabric="fabric: {memory: 1GiB}\n")), status=2).stderr
    assert "room for 32 devices" in refused
    command("apply", command.spec(devices(1, fabric="fabric: {memory: 2GiB}\n")), status=2)
