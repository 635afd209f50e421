"""`tailrace up` after the switch was killed: it is what it was, and guests and functions go on without a restart."""

from __future__ import annotations

import os
import shutil
import signal
import time
from typing import Any

import pytest
from clean_machine import PLAIN, things
from front_end import FrontEnd, PackedFrontEnd
from lasting_guests import BURST, Pair, Traffic
from running_node import Command, needs_a_node, wait_until

from tailrace.observe.page import Page
from tailrace.process.control import Control
from tailrace.state.record import Process, peek

pytestmark = needs_a_node

#: So that it is `up` that resumes the switch, and not the service before it.
LEFT = "fabric: {restart: never}\n"
HOPS = 2
KILLS = 2


def configuration(command: Command) -> dict[str, Any]:
    """What the switch is asked to be, with its version."""
    control = Control(command.state / "sockets/switch.control", timeout=60)
    try:
        answer: dict[str, Any] = control.call("config.get")
    finally:
        control.close()
    return answer


def process(command: Command, name: str) -> Process:
    """As it stands on record."""
    return next(each for each in peek(command.state).things if isinstance(each, Process) and each.name == name)


def kill_switch(command: Command) -> None:
    switch = process(command, "switch")
    os.kill(switch.pid, signal.SIGKILL)
    wait_until(lambda: not switch.id.alive())


def drops(page: Page) -> int:
    """What a switch has counted as dropped, until its end."""
    counters = page.ports().values()
    return sum(count for port in counters for name, count in port.items() if name.startswith("drop_"))


@pytest.mark.sanitized
@pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])
def test_up_resumes_a_switch_that_was_killed_under_load(command: Command, kind: type[FrontEnd]) -> None:
    """Two guests that listen, and a function between them."""
    folder = command.folder_for_sockets()
    spec = command.spec(
        LEFT + "functions: {first: skeleton}\n"
        f"ports: {{left: {{path: {folder}/left.sock, mode: client}}, "
        f"right: {{path: {folder}/right.sock, mode: client}}}}\n"
        "chains: {voice: [left, first, right]}\n"
    )
    pair = Pair(folder, (kind, kind), ("left", "right"))
    command("up", spec)
    for name in ("right", "left"):
        pair.serve(name)
    before, first = configuration(command), process(command, "first")
    traffic = Traffic(pair.guests["left"], pair.guests["right"])
    dropped = 0
    took = []
    try:
        for _ in range(KILLS):
            traffic.wait_more(500, "frames arrive")
            page = Page(command.state / "sockets/switch.page")
            kill_switch(command)
            dropped += drops(page)
            page.close()
            running = command.begin("up", spec)
            for name in ("right", "left"):
                pair.serve(name)
            traffic.wait_more(0, "the guests and the function resume")
            resumed = time.clock_gettime(time.CLOCK_BOOTTIME)
            said, error = running.communicate(timeout=60)
            assert running.returncode == 0, error
            assert f"resumed: the switch had ended and goes on with version {before['version']}" in said
            assert "never stopped: first." in said
            took.append(resumed - process(command, "switch").start / os.sysconf("SC_CLK_TCK"))
            assert configuration(command) == before
            assert process(command, "first") == first and first.id.alive()
        traffic.pause()
        page = Page(command.state / "sockets/switch.page")
        dropped += drops(page)
        page.close()
        assert command.status()["state"] == "up"
    finally:
        traffic.end()
    assert all(later > earlier for earlier, later in zip(traffic.received, traffic.received[1:], strict=False))
    lost = traffic.sent - len(traffic.received)
    print(f"{traffic.sent} sent, {lost} lost, {dropped} of them counted as dropped; seconds until frames moved: {took}")
    assert min(took) < 1, took
    assert lost <= dropped + KILLS * HOPS * BURST, (lost, dropped)
    pair.end()


def test_what_ended_with_the_switch_is_started_anew(command: Command) -> None:
    spec = command.spec(
        LEFT
        + "functions: {first: {kind: skeleton, restart: never}, second: skeleton}\n"
        + "chains: {v: [tester.a, first, second, tester.b]}\n"
    )
    command("up", spec)
    second = process(command, "second")
    os.kill(process(command, "first").pid, signal.SIGKILL)
    kill_switch(command)
    said = command("up", spec).stdout
    assert "resumed: the switch had ended" in said
    assert "never stopped: second" in said
    assert "up again (first had ended)" in said
    assert command.status()["state"] == "up"
    assert process(command, "second") == second and second.id.alive()
    assert "already up" in command("up", spec).stdout


def test_a_switch_that_cannot_be_what_it_was(command: Command) -> None:
    """Says so, leaves the functions alone, and is brought back once it can."""
    folder = command.folder_for_sockets()
    spec = command.spec(
        f"{LEFT}functions: {{first: skeleton}}\nports: {{vm: {{path: {folder}/vm.sock}}}}\n"
        "chains: {v: [vm, first, tester.b]}\n"
    )
    command("up", spec)
    first, before = process(command, "first"), configuration(command)
    kill_switch(command)
    shutil.rmtree(folder)
    refused = command("up", spec, status=1)
    assert f"{folder}/vm.sock" in refused.stderr
    assert "could not be brought back" in refused.stderr
    assert first.id.alive()
    folder.mkdir()
    folder.chmod(0o777)
    assert "resumed" in command("up", spec).stdout
    assert configuration(command) == before
    assert process(command, "first") == first and first.id.alive()


def test_down_after_the_switch_was_killed(command: Command) -> None:
    command("up", command.spec(LEFT + "functions: {first: skeleton}\nchains: {v: [tester.a, first, tester.b]}\n"))
    kill_switch(command)
    assert f"`tailrace up {command.folder}/spec.yaml` brings it back" in command("status", status=1).stdout
    command("down")
    assert not command.leftovers()


@pytest.mark.unsanitized
def test_a_way_forward_whatever_was_changed_before_the_crash(command: Command) -> None:
    """A drained replica, an edited spec, another spec: no command that is named leads to one that is refused."""
    text = LEFT + "functions: {fw: {kind: skeleton, replicas: 2}}\nchains: {v: [tester.a, fw, tester.b]}\n"
    spec = command.spec(text)
    command("up", spec)
    first = process(command, "fw")

    def states() -> list[str]:
        (function,) = command.status()["functions"]
        return [each["state"] for each in function["replicas"]]

    command("drain", "fw-2")
    kill_switch(command)
    resumed = command("up", spec).stdout
    assert "resumed: the switch had ended" in resumed
    assert f"what is up is not what {spec} says now: `tailrace plan {spec}` shows" in resumed
    assert states() == ["active", "draining"]
    assert f"what is up is not what {spec} says now" in command("up", spec, status=2).stderr

    kill_switch(command)
    assert "note: resumed: the switch had ended" in command("drain", "fw-2", "--active").stdout
    assert states() == ["active", "active"]

    spec.write_text(text.replace("v:", "w:"))
    kill_switch(command)
    assert f"the switch has ended; resume it with `tailrace up {spec}`" in command("plan", spec, status=1).stderr
    assert "note: resumed: the switch had ended" in command("apply", spec).stdout
    assert [chain["name"] for chain in command.status()["chains"]] == ["w"]
    kill_switch(command)
    assert "note: resumed: the switch had ended" in command("rollback").stdout
    assert [chain["name"] for chain in command.status()["chains"]] == ["v"]

    other = command.spec(text.replace("replicas: 2", "replicas: 1"), "other.yaml")
    kill_switch(command)
    assert f"its switch has ended: `tailrace up {spec}` resumes it" in command("up", other, status=2).stderr
    assert "resumed" in command("up", spec).stdout
    assert command.status()["state"] == "up"
    assert process(command, "fw") == first and first.id.alive()


def test_a_change_that_the_switch_did_not_live_to_see_is_undone(command: Command) -> None:
    text = LEFT + "functions: {first: skeleton%s}\nchains: {v: [tester.a, first%s, tester.b]}\n"
    base = command.spec(text % ("", ""), "base.yaml")
    more = command.spec(text % (", second: skeleton", ", second"), "more.yaml")
    command("up", base)
    first, before = process(command, "first"), configuration(command)
    running = command.begin("apply", more)
    wait_until(lambda: any(each["name"] == "second" for each in things(command)))
    kill_switch(command)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "the change was cut short" in error
    assert f"`tailrace up {base}` ends it" in error
    said = command("up", base).stdout
    assert "resumed" in said and f"a change to {more} that was cut short is undone" in said
    assert configuration(command)["config"] == before["config"]
    assert "No changes" in command("plan", base).stdout
    assert [each["name"] for each in things(command)] == ["switch", "first"]
    assert process(command, "first") == first and first.id.alive()
    command("apply", more)
    assert command.status()["state"] == "up"


@pytest.mark.unsanitized
def test_what_the_switch_had_kept_is_made_anew_where_it_is_lost(command: Command) -> None:
    spec = command.spec(LEFT + PLAIN)
    command("up", spec)
    first, before = process(command, "first"), configuration(command)
    kill_switch(command)
    (command.state / "sockets/switch.config").unlink()
    said = command("up", spec).stdout
    assert "as what it had kept is lost; never stopped: first" in said
    assert "chain voice was missing" in said
    assert configuration(command)["config"] == before["config"]
    assert command.status()["state"] == "up"
    assert process(command, "first") == first and first.id.alive()
    assert "already up" in command("up", spec).stdout


@pytest.mark.unsanitized
def test_what_the_switch_lacks_is_reported_and_brought_back(command: Command) -> None:
    """What somebody has changed otherwise is told, and left as it is."""
    spec = command.spec(LEFT + PLAIN)
    command("up", spec)
    control = Control(command.state / "sockets/switch.control")
    control.call("config.apply", patch={"ports": {"tester.a": {"rate": {"max": 10**9}}}})
    assert "note: port tester.a is not as planned" in command("status").stdout
    up = command("up", spec).stdout
    assert "already up" in up and "note: port tester.a is not as planned" in up
    control.call("config.apply", patch={"chains": {"voice": None}})
    assert command("status", status=1).stdout.startswith("BROKEN: chain voice is missing (")
    assert "up again (chain voice was missing)" in command("up", spec).stdout
    assert command("status").stdout.startswith("Up: ")
    control.close()


@pytest.mark.unsanitized
def test_a_switch_that_stands_still_is_reported_at_once(command: Command) -> None:
    spec = command.spec(LEFT + PLAIN)
    command("up", spec)
    switch = process(command, "switch")
    os.kill(switch.pid, signal.SIGSTOP)
    wait_until(switch.id.stopped)
    try:
        for verb in ("up", "plan", "apply"):
            refused = command(verb, spec, status=1).stderr
            assert f"the switch (process {switch.pid}) is stopped; let it go on with `kill -CONT" in refused
        assert command("status", status=1).stdout.startswith("BROKEN: the switch does not answer (")
    finally:
        os.kill(switch.pid, signal.SIGCONT)
    assert "already up" in command("up", spec).stdout
