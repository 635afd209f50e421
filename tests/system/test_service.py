"""`tailraced`: what it watches it starts again, and its own death, at any moment, ends nothing and loses nothing."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clean_machine import PLAIN, things
from dying_service import answers, dying_service
from front_end import RECEIVES, RING_AT, SENDS, FrontEnd
from pydantic import BaseModel
from running_node import Command, kill_all, needs_a_node, next_event, wait_until
from test_apply import BASE, HEAVIER, MORE, Traffic, planned
from test_up_resumes import configuration, kill_switch, process

from tailrace.errors import ExitCode
from tailrace.node.api import Status, StatusChain, StatusFunction, StatusPort, StatusProcess, StatusReplica
from tailrace.node.client import Client
from tailrace.process.control import Control
from tailrace.state.record import holding, peek
from tailrace.switch.config import function_name

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

#: A chain of a function whose end is not waited for, between two ports of the test's own.
LEFT = """\
ports: {{c: , d: }}
functions: {{first: {{kind: skeleton, restart: never, on_failure: {policy}}}}}
chains: {{v: [c, first, d]}}
"""


@contextmanager
def listening(command: Command) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Gives who waits for the next event of a kind."""
    client = Client(command.state, look=True)
    client.subscribe()

    try:
        yield partial(next_event, client)
    finally:
        client.close()


def events(command: Command) -> list[dict[str, Any]]:
    """All that there were."""
    client = Client(command.state, look=True)
    found: list[dict[str, Any]] = []
    try:
        following = client.subscribe(since=1)
        while len(found) < following - 1:
            event = client.next_event(60)
            assert event is not None, f"{following - 1} events were announced; {found}"
            found.append(event)
    finally:
        client.close()
    return found


def kill(command: Command, name: str) -> int:
    """Kills a function in its sandbox; returns its process."""
    found = process(command, name)
    inner = found.inner()
    os.kill(inner[-1].pid, signal.SIGKILL)
    wait_until(lambda: not found.id.alive())
    return found.pid


def kill_service(command: Command) -> None:
    pid = command.service()
    handle = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: select.select([handle], [], [], 0)[0])
    os.close(handle)


def test_status_names_the_service_and_its_death_ends_nothing(command: Command) -> None:
    spec = command.spec(PLAIN)
    command("up", spec)
    service = command.status()["service"]
    assert service["pid"] == command.service() and service["version"] in command("--version").stdout
    before = [(each["name"], each["pid"]) for each in command.status()["processes"]]
    kill_service(command)
    found = command.status()
    assert found["service"] is None and found["state"] == "up"
    assert [(each["name"], each["pid"]) for each in found["processes"]] == before
    assert "no service watches it; `tailrace up" in command("status").stdout
    assert "already up" in command("up", spec).stdout
    found = command.status()
    assert found["service"]["pid"] == command.service() != service["pid"]
    assert [(each["name"], each["pid"]) for each in found["processes"]] == before


def test_a_function_that_was_killed_forwards_again(command: Command, binaries: Path, tmp_path: Path) -> None:
    command("up", command.spec(MORE))
    with Traffic(binaries, command, tmp_path) as traffic, listening(command) as event:
        pid = kill(command, "second")
        died = event("function.died")
        assert died["about"] == "second" and died["details"]["again_in"] == 0
        again = event("function.restarted")
        assert again["about"] == "second"
        assert process(command, "second@2").pid != pid
        traffic.more()
        before = traffic.tester.call("trial.status")["streams"]
        wait_until(
            lambda: all(
                now["received"] > then["received"] + 100
                for now, then in zip(traffic.tester.call("trial.status")["streams"], before, strict=True)
            )
        )
    assert [each["lost"] for each in traffic.account("ab", "ba")] == [0, 0]  # a chain that it is not in
    found = command.status()
    assert found["state"] == "up" and found["unlike"] == []
    assert {each["name"]: each["restarts"] for each in found["processes"]} == {"switch": 0, "first": 0, "second@2": 1}


def test_a_switch_that_was_killed_is_there_again_and_functions_were_never_stopped(command: Command) -> None:
    command("up", command.spec(PLAIN))
    before, first = command.status(), process(command, "first")
    with listening(command) as event:
        kill_switch(command)
        event("switch.died")
        event("switch.restarted")
    found = command.status()
    assert found["state"] == "up" and found["version"] == before["version"]
    assert process(command, "first") == first and first.id.alive()


def test_what_ends_again_and_again_is_started_after_pauses(command: Command) -> None:
    command("up", command.spec(PLAIN))
    with listening(command) as event:
        pauses = []
        for name in ("first", "first@2", "first@3"):
            kill(command, name)
            pauses.append(event("function.died")["details"]["again_in"])
            found = next(each for each in command.status()["processes"] if each["name"] == name or each["alive"])
            assert found is not None
            event("function.restarted")
    assert pauses == sorted(pauses) and pauses[0] == 0 and pauses[2] > pauses[1] > 0


def test_what_ends_well_is_not_started_again_unless_always(command: Command) -> None:
    functions = "first: skeleton, second: {kind: skeleton, restart: always}"
    command("up", command.spec(f"functions: {{{functions}}}\nchains: {{v: [tester.a, first, second, tester.b]}}\n"))
    with listening(command) as event:
        for name, again in (("first", None), ("second", 0)):
            os.kill(process(command, name).inner()[-1].pid, signal.SIGTERM)
            died = event("function.died")
            assert (died["about"], died["details"]["again_in"]) == (name, again)
        assert event("function.restarted")["about"] == "second"
    assert "first has ended" in command("status", status=1).stdout
    assert {each["name"] for each in command.status()["processes"] if each["alive"]} == {"switch", "second@2"}


def guests(command: Command) -> tuple[FrontEnd, FrontEnd]:
    """One at each end of the chain."""
    ends = (FrontEnd(), FrontEnd())
    for guest, name in zip(ends, "cd", strict=True):
        guest.start(command.state / f"sockets/{name}.sock")
    wait_until(lambda: port_state(command, "c") == port_state(command, "d") == "up")
    ends[1].offer_buffers(ends[1].room(RECEIVES))
    return ends


def through(left: FrontEnd, right: FrontEnd, text: bytes, *, arrives: bool = True) -> None:
    """Sends a frame, and waits until it has arrived."""
    left.send(text)
    if arrives:
        wait_until(lambda: text in list(right.received()))


def test_a_chain_leads_past_a_function_that_has_ended(command: Command) -> None:
    spec = command.spec(LEFT.format(policy="bypass"))
    command("up", spec)
    left, right = guests(command)
    through(left, right, b"a" * 60)
    with listening(command) as event:
        kill(command, "first")
        bypassed = event("chain.bypassed")
        assert bypassed["about"] == "v" and bypassed["details"]["functions"] == ["first"]
        through(left, right, b"b" * 60)
        found = command.status()
        assert found["state"] == "broken" and found["unlike"] == []
        counts = {"bypass": 1, "block": 0, "drop": 0}
        assert found["functions"][0]["outages"].items() >= counts.items()
        assert "up again (first had ended)" in command("up", spec).stdout
        event("chain.restored")
    assert command.status()["state"] == "up"
    assert command.status()["functions"][0]["outages"].items() >= counts.items()
    assert "out 1 time (bypassed 1)" in command("function", "show", "first").stdout
    through(left, right, b"c" * 60)
    for guest in (left, right):
        guest.end()


def test_one_that_does_not_come_back_keeps_nobody_from_leading_past_another(command: Command) -> None:
    functions = "first: skeleton, second: {kind: skeleton, restart: never, on_failure: bypass}"
    text = f"ports: {{a: , b: , c: , d: }}\nfunctions: {{{functions}}}\n"
    spec = command.spec(text + "chains: {v: [a, first, b], w: [c, second, d]}\n")
    command("up", spec)
    for _ in range(5):  # whoever is too late to hold the new one back tries it once more
        with listening(command) as event:
            hold_back(command, kill_instance(command, "first"))
            kill_instance(command, "second")
            bypassed = event("chain.bypassed")
            assert bypassed["about"] == "w"
            restarted = event("function.restarted") if not came_before(command, bypassed) else None
            if restarted is not None:
                assert restarted["about"] == "first"
                break
        command("up", spec)
    else:
        pytest.fail("it was never held back")
    assert "function.failed" not in [each["kind"] for each in events(command)], "it was given up, not waited for"
    assert command.status()["broken"] == ["second has ended"]


def kill_instance(command: Command, name: str) -> int:
    """Kills the instance of a function that runs; returns its number."""
    number = peek(command.state).instances.get(name, 1)
    kill(command, name if number == 1 else f"{name}@{number}")
    return number


def hold_back(command: Command, before: int) -> None:
    """Sees to it that the switch, which owns the folder, cannot reach the next instance's socket in it."""
    folder = command.state / f"sockets/first@{before + 1}.0"
    wait_until(folder.exists)
    while folder.stat().st_mode & 0o777 == 0o700:  # it is being made
        pass
    folder.chmod(0o070)


def came_before(command: Command, event: dict[str, Any]) -> bool:
    """Whether the function was there again already."""
    seen = [each for each in events(command) if each["number"] < event["number"]]
    ends = [each for each in seen if each["kind"] == "function.died" and function_name(each["about"]) == "first"]
    died = max(each["number"] for each in ends)
    return any(each["kind"] == "function.restarted" and each["number"] > died for each in seen)


def test_frames_wait_for_a_function_that_has_ended(command: Command) -> None:
    spec = command.spec(LEFT.format(policy="block"))
    command("up", spec)
    left, right = guests(command)
    through(left, right, b"a" * 60)
    kill(command, "first")
    wait_until(lambda: port_state(command, "first.0") != "up")
    for number in range(20):
        through(left, right, bytes([number]) * 60, arrives=False)
    assert "up again" in command("up", spec).stdout
    arrived: list[bytes] = []

    def all_there() -> bool:
        arrived.extend(right.received())
        return len(arrived) >= 20

    wait_until(all_there)
    assert arrived == [bytes([number]) * 60 for number in range(20)]
    assert not any(port["drops"] for port in command.status()["ports"])
    for guest in (left, right):
        guest.end()


def port_state(command: Command, name: str) -> str:
    return next(str(port["state"]) for port in command.status()["ports"] if port["name"] == name)


def test_other_replicas_take_the_flows_of_one_that_has_ended(command: Command) -> None:
    text = "functions: {fw: {kind: skeleton, replicas: 2, restart: never}}\nchains: {v: [tester.a, fw, tester.b]}\n"
    spec = command.spec(text)
    command("up", spec)
    kill(command, "fw-2")
    wait_until(lambda: peek(command.state).around == ["fw-2"])
    found = command.status()
    assert found["unlike"] == [] and "fw-2 has ended" in found["broken"]
    assert planned(command, spec, 3)["start"] == ["fw-2"]
    command("apply", spec)
    assert command.status()["state"] == "up" and peek(command.state).around == []


def test_the_last_replica_leaves_the_others_out(command: Command) -> None:
    """It comes back alone, and the one that stays away gets no flows."""
    text = "functions: {{fw: {{kind: skeleton, replicas: 2, restart: {restart}}}}}\n"
    text += "chains: {{v: [tester.a, fw, tester.b]}}\n"
    command("up", command.spec(text.format(restart="never")))
    for name, around in (("fw-2", ["fw-2"]), ("fw", ["fw-2"])):
        with listening(command) as event:
            kill(command, name)
            event("function.died")
        wait_until(lambda around=around: peek(command.state).around == around)
    running = configuration(command)["config"]["functions"]["fw"]["replicas"]
    assert set(running) == {"fw"}
    command("apply", command.spec(text.format(restart="on-failure"), "again.yaml"))
    assert command.status()["state"] == "up" and peek(command.state).around == []


def test_a_client_that_has_said_all_is_answered(command: Command) -> None:
    command("up", command.spec(PLAIN))
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(command.state / "look.socket"))
        client.sendall(b'{"jsonrpc":"2.0","id":1,"method":"node.status"}\n')
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            assert json.loads(stream.readline())["result"]["state"] == "up"
            assert stream.read() == b""


def test_two_commands_at_once_share_a_service(command: Command) -> None:
    spec = command.spec(PLAIN)
    both = [command.begin("up", spec) for _ in range(2)]
    for each in both:
        out, error = each.communicate(timeout=60)
        assert each.returncode == 0, (out, error)
    assert command.status()["state"] == "up"


def test_what_is_changed_while_it_is_measured_is_no_result(command: Command) -> None:
    base = command.spec(PLAIN)
    command("up", base)
    measuring = command.begin("measure", "latency", base, "--frames", "64", "--rate", "1kpps", "--duration", "60s")
    wait_until(lambda: port_state(command, "tester.a") == "up")
    longer = PLAIN.replace("first: skeleton", "first: skeleton, second: skeleton").replace(
        "first, t", "first, second, t"
    )
    command("apply", command.spec(longer, "longer.yaml"))
    _, error = measuring.communicate(timeout=60)
    assert measuring.returncode == 1 and "what is up was changed while it was measured" in error, error
    through = configuration(command)["config"]["chains"]["voice"]["through"]
    assert through == ["first", "second"], "the measurement does not undo the change"


# --- its own death -------------------------------------------------------------------------------------------------

FIREWALL = MORE.replace("second: skeleton", "second: {kind: firewall, firewall: {rules: [{action: allow}]}}")
CUT_SHORT = {
    "added": (BASE, MORE),
    "removed": (MORE, BASE),
    "replaced": (MORE, HEAVIER),
    "handed-over": (FIREWALL, FIREWALL.replace("kind: firewall,", "kind: firewall, memory: 300MiB,")),
    "told": (FIREWALL, FIREWALL.replace("action: allow", "action: deny, protocol: udp")),
}
"""What is up, and what it is changed into."""


@pytest.mark.parametrize(
    ("change", "when", "every"),
    [
        pytest.param("replaced", "after", 3, id="replaced-after-a-third"),
        *(
            pytest.param(change, when, 1, id=f"{change}-{when}", marks=pytest.mark.whole)
            for change in CUT_SHORT
            for when in ("before", "after")
        ),
    ],
)
def test_a_service_that_is_killed_at_any_step_of_a_change_loses_nothing(
    command: Command, change: str, when: str, every: int
) -> None:
    """The change has an instance of its own at each step: what is left of one that was cut short is not in the way."""
    texts = CUT_SHORT[change]
    base, more = (command.spec(text, f"{index}.yaml") for index, text in enumerate(texts))

    def only(spec: str) -> None:
        assert command.status()["state"] == "up"
        assert planned(command, spec, 0)["changes"] == []
        second = ["second"] if "c, second, d" in texts[spec == more] else []
        assert sorted(function_name(each["name"]) for each in things(command)) == ["first", *second, "switch"]

    command("up", base)
    step = 1
    while True:
        with dying_service(command, step, when) as service:
            done = command("apply", more, status=None)
            if done.returncode == 0:
                os.kill(service.pid, signal.SIGTERM)  # it had more steps to go
                break
        assert done.returncode == 1 and "the service has ended in the middle of node.apply" in done.stderr, done.stderr
        assert process(command, "first").id.alive()
        command("apply", more)
        only(more)
        command("apply", base)
        only(base)
        step += every
    assert step > 2
    only(more)
    command("down")


def test_what_was_up_is_up_again_after_a_boot(command: Command, tmp_path: Path) -> None:
    """Until it is taken down."""
    environment = {**command.environment, "STATE_DIRECTORY": str(tmp_path)}
    program = [sys.executable, "-m", "tailrace.node.service", command.state]

    @contextmanager
    def boot() -> Iterator[None]:
        with subprocess.Popen(program, env=environment, stderr=subprocess.DEVNULL) as started:
            wait_until(lambda: answers(command, started.pid))
            try:
                yield
            finally:
                started.terminate()

    spec = command.spec(MORE)
    with boot():
        command("up", spec)
        before = command.status()
    kill_all(command)
    kept = (tmp_path / "node.json").read_text()
    command("down")  # as a boot does with what is in memory
    assert not (tmp_path / "node.json").exists(), "it is not brought back, whoever has taken it down"
    (tmp_path / "node.json").write_text(kept)
    with boot():
        wait_until(lambda: command.status()["state"] == "up")
        found = command.status()
        assert (found["spec"], found["plan"]) == (before["spec"], before["plan"])
        assert planned(command, spec, 0)["changes"] == []
        command("down")
        assert command.status()["state"] == "down" and command.status()["service"] is not None
    with boot():
        assert command.status()["state"] == "down"


def test_a_service_that_is_to_stay_relieves_one_that_a_command_has_started(command: Command) -> None:
    command("up", command.spec(PLAIN))
    before = [(each["name"], each["pid"]) for each in command.status()["processes"]]
    program = [sys.executable, "-m", "tailrace.node.service", command.state]
    with subprocess.Popen(program, env=command.environment, stderr=subprocess.DEVNULL) as started:
        wait_until(lambda: answers(command, started.pid))
        found = command.status()
        assert [(each["name"], each["pid"]) for each in found["processes"]] == before and found["state"] == "up"
        command("down")
        assert command.service() == started.pid
        started.terminate()


def test_a_second_service_of_a_folder_is_refused(command: Command) -> None:
    command("up", command.spec(PLAIN))
    program = [sys.executable, "-c", "from tailrace.node import service; service._PATIENCE = 0; exit(service.main())"]
    argv = [*program, command.state, "--while-up"]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 2
    assert f"in use: process {command.service()} (`tailraced {command.state}" in second.stderr
    assert command.status()["state"] == "up"


@pytest.mark.parametrize("lost", [False, True], ids=["damaged", "lost"])
def test_a_record_that_cannot_be_read_is_named_and_the_service_stays(command: Command, lost: bool) -> None:
    """What runs goes on, also by a record that is put back; and what cannot be put back is taken down."""
    command("up", command.spec(PLAIN))
    before, service, record = command.status()["processes"], command.service(), command.state / "state.json"
    kept = record.read_bytes()
    damage = record.unlink if lost else lambda: record.write_text("{")
    with listening(command) as event:
        damage()
        spec, what = (
            command.spec(PLAIN),
            "up is lost, and some of it runs" if lost else "damaged, so what is up is not known",
        )
        for words in (("status",), ("up", spec), ("plan", spec), ("apply", spec), ("rollback",)):
            said = command(*words, status=1).stderr
            assert what in said and "`tailrace down` ends what can be found of it" in said
        assert f"{command.state}" in event("node.unreadable")["details"]["why"]
        record.write_bytes(kept)
        command("apply", command.spec(PLAIN))
        event("node.readable")
        assert command.status()["processes"] == before and command.service() == service
        damage()
        command("down")
        event("node.down")
    assert not command.leftovers()


@pytest.mark.unsanitized
def test_what_tells_why_a_command_failed_stays(command: Command) -> None:
    """Nothing runs, and the record is damaged: the service that was started for the command ends with it."""
    with holding(command.state) as held:
        held.take()
        (command.state / "state.json").write_text("{")
        (command.state / "service.log").write_text("before\n")
    spec = command.spec(PLAIN)
    for words in (["rollback"], ["up", "--dry-run", spec], ["plan", spec], ["status"]):
        assert "damaged" in command(*words, status=1).stderr
    assert (command.state / "service.log").read_text().startswith("before\n")
    command("down")
    assert not command.state.exists()


@pytest.mark.unsanitized
def test_down_and_up_leave_a_folder_of_somebodys_as_it_is(command: Command) -> None:
    """Who names the state folder may have named another."""
    spec = command.spec(PLAIN)
    command.state.touch()
    for words in (["status"], ["plan", spec], ["up", "--dry-run", spec], ["up", spec], ["down"]):
        said = command(*words, status=2).stderr
        assert f"{command.state}: a file is in its place; set TAILRACE_STATE" in said, words
    command.state.unlink()
    (command.state / "logs").mkdir(parents=True)
    mine = [command.state / name for name in ("logs/my.log", "service.log")]
    for each in mine:
        each.write_text("mine")
    assert "Nothing was up" in command("down").stdout
    for words in (["up", spec], ["up", "--dry-run", spec], ["plan", spec]):
        said = command(*words, status=2).stderr
        assert f"{command.state}/logs: is there, and nothing says that it is Tailrace's; move it away" in said
    assert [each.read_text() for each in mine] == ["mine", "mine"]
    assert sorted(each.name for each in command.state.iterdir()) == ["logs", "service.log"]
    shutil.rmtree(command.state)


def test_who_may_not_is_told_so(command: Command) -> None:
    command("up", command.spec(PLAIN))
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", command.program]
    for words, name in ((["status"], "look.socket"), (["rollback"], "operate.socket"), (["down"], "operate.socket")):
        done = subprocess.run(
            [*nobody, *words], capture_output=True, text=True, timeout=60, check=False, env=command.environment
        )
        assert done.returncode == 2, done
        assert f"{name}: you may not use it; run it with sudo" in done.stderr
    assert command.status()["state"] == "up"


@pytest.mark.unsanitized
def test_who_may_look_may_plan(command: Command) -> None:
    command("up", command.spec(PLAIN))
    spec = command.folder_for_sockets() / "other.yaml"  # where others may read
    spec.write_text(PLAIN.replace("first", "other"))
    spec.chmod(0o644)
    (command.state / "look.socket").chmod(0o660)
    os.chown(command.state / "look.socket", -1, 65534)
    look = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", command.program, "plan", spec]
    done = subprocess.run(look, capture_output=True, text=True, timeout=60, check=False, env=command.environment)
    assert done.returncode == ExitCode.DIFFERENT, done
    assert "function other" in done.stdout


@pytest.mark.unsanitized
def test_the_status_has_what_the_schema_says(command: Command) -> None:
    def named(model: type[BaseModel]) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    assert set(command.status()) <= named(Status)
    command("up", command.spec(PLAIN))
    found = command.status()
    assert set(found) == named(Status)
    Status.model_validate(found)
    (function,) = found["functions"]
    rows: list[tuple[type[BaseModel], list[dict[str, Any]]]] = [
        (StatusProcess, found["processes"]),
        (StatusPort, found["ports"]),
        (StatusChain, found["chains"]),
        (StatusFunction, [function]),
        (StatusReplica, function["replicas"]),
    ]
    for model, entries in rows:
        assert entries and all(set(each) == named(model) for each in entries), model


def test_a_client_that_hangs_up_does_not_cut_a_change_short(command: Command) -> None:
    running = command.begin("up", command.spec(PLAIN))
    wait_until(lambda: any(thing["name"] == "switch" for thing in things(command)))
    running.kill()
    running.communicate(timeout=60)
    wait_until(lambda: command.status()["state"] == "up")


def test_all_of_it_killed_at_once_is_up_again_by_one_command(command: Command) -> None:
    spec = command.spec(PLAIN)
    command("up", spec)
    kill_all(command)
    assert "resumed" in command("up", spec).stdout
    assert command.status()["state"] == "up"


def test_what_is_being_done_is_said_to_who_asks(command: Command) -> None:
    done = command("-v", "up", command.spec(PLAIN))
    assert "started tailrace-switch, pid " in done.stderr and "config.apply" not in done.stderr
    assert "switch.control: config.apply" in command("-vv", "apply", command.spec(MORE)).stderr


def test_a_switch_that_somebody_else_has_changed_is_reported(command: Command) -> None:
    command("up", command.spec(PLAIN))
    control = Control(command.state / "sockets/switch.control")
    with listening(command) as event:
        control.call("config.apply", patch={"chains": {"voice": {"priority": 7}}})
        assert event("node.drifted")["details"] == {"unlike": ["chain voice"]}
        assert command.status()["unlike"][0]["name"] == "voice"
        control.call("config.rollback")
        event("node.as_planned")
    control.close()


def test_events_are_written_as_they_are_described(command: Command) -> None:
    command("up", command.spec(PLAIN))
    wanted = {("switch.up", "switch"), ("function.up", "first"), ("port.up", "first.0"), ("node.up", "")}
    wait_until(lambda: wanted <= {(each["kind"], each["about"]) for each in events(command)})


def test_a_guest_that_breaks_a_rule_and_a_change_are_told_as_they_happen(command: Command) -> None:
    text = LEFT.format(policy="drop")
    command("up", command.spec(text))
    left, right = guests(command)
    with ExitStack() as stack:
        for guest in (left, right):
            stack.callback(guest.end)
        event = stack.enter_context(listening(command))
        # Its index runs away.
        struct.pack_into("<H", left.memory, RING_AT[SENDS] + 0x4000 + 2, 5000)
        left.kicks(SENDS)
        found = event("port.quarantined")
        why = next(each["reason"] for each in command.status()["ports"] if each["name"] == "c")
        assert (found["about"], found["level"], found["details"]["why"]) == ("c", "alarm", why)
        other = command.spec(text.replace("d: }", "d: , e: }"), "other.yaml")
        command("apply", other)
        found = event("version.applied")
        assert found["details"]["version"] == command.status()["version"]
        assert found["details"]["spec"].endswith("other.yaml")
