"""Functions in containers that break: their checks, what becomes of their chains, their logs, and images that are no
good."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from containers import containers, podman
from front_end import SENDS
from running_node import Command, needs_a_node, open_folder, wait_until
from test_service import guests, listening, through

from tailrace.functions.images import by_name, write_layer
from tailrace.functions.names import outer_name
from tailrace.functions.program import libraries
from tailrace.state.launch import LOG_BYTES
from tailrace.state.record import Process, peek

pytestmark = [*needs_a_node, pytest.mark.requires_program("podman"), pytest.mark.timeout(600)]

#: Between two ports of the test's own.
ONE = """\
ports: {{c: , d: }}
functions: {{first: {{{function}}}}}
chains: {{v: [c, first, d]}}
"""


@pytest.fixture
def command(tailrace: Path) -> Iterator[Command]:
    with open_folder() as folder:
        made = Command(tailrace, folder)
        yield made
        made.end_begun()
        made("down", status=None)
    assert containers() == []


def running(command: Command) -> Process:
    """The container that runs."""
    things = [each for each in peek(command.state).things if isinstance(each, Process) and each.runtime]
    return things[-1]


def test_a_chain_leads_past_a_container_that_was_killed(command: Command) -> None:
    command("up", command.spec(ONE.format(function="kind: skeleton, runs: container, on_failure: bypass")))
    left, right = guests(command)
    with listening(command) as event:
        os.kill(running(command).pid, signal.SIGKILL)
        bypassed = event("chain.bypassed")
        assert bypassed["details"]["functions"] == ["first"]
        print(f"bypassed after {bypassed['details']['milliseconds']} ms")
        through(left, right, b"a" * 60)
        event("function.restarted")
        event("chain.restored")
    through(left, right, b"b" * 60)
    for guest in (left, right):
        guest.end()


def test_frames_wait_for_a_container_that_was_killed(command: Command) -> None:
    command("up", command.spec(ONE.format(function="kind: skeleton, runs: container, on_failure: block")))
    left, right = guests(command)
    with listening(command) as event:
        os.kill(running(command).pid, signal.SIGKILL)
        event("function.died")
        # What the switch gives it before it hears of that is lost.
        wait_until(
            lambda: not any(port["name"] == "first.0" and port["state"] == "up" for port in command.status()["ports"])
        )
        through(left, right, b"a" * 60, arrives=False)
        event("function.restarted")
    wait_until(lambda: b"a" * 60 in right.received())
    for guest in (left, right):
        guest.end()


@pytest.mark.whole
def test_a_container_is_started_again_of_whose_end_podman_hears_late(command: Command) -> None:
    """Until its monitor (conmon) has noted it, podman says of it that it runs, with status 0."""
    command("up", command.spec(ONE.format(function="kind: skeleton, runs: container")))
    killed = running(command)
    monitor = int(podman("container", "inspect", "--format", "{{.State.ConmonPid}}", killed.outside))
    with listening(command) as event:
        os.kill(monitor, signal.SIGSTOP)
        try:
            os.kill(killed.pid, signal.SIGKILL)
            assert event("function.died")["details"]["again_in"] == 0
        finally:
            os.kill(monitor, signal.SIGCONT)
        event("function.restarted")


def test_a_container_that_takes_no_frames_is_killed_and_started_again(command: Command) -> None:
    health = "health: {every: 500ms, failures: 2}"
    command("up", command.spec(ONE.format(function=f"kind: skeleton, runs: container, {health}")))
    left, right = guests(command)
    stopped = running(command)
    with listening(command) as event:
        stopped.id.signal(signal.SIGSTOP)

        def ended() -> bool:
            while left.room(SENDS):
                left.send(b"a" * 60)
            return not stopped.id.alive()

        wait_until(ended, 60)
        ill = event("function.unhealthy")
        assert ill["about"] == "first" and "frames wait for first.0" in ill["details"]["why"]
        event("function.restarted")
    for guest in (left, right):
        guest.end()


def test_a_container_is_killed_whose_command_says_that_it_is_not_well(command: Command) -> None:
    health = "health: {command: [/tailrace-vnf, --version], every: 500ms, failures: 1}"
    spec = command.spec(ONE.format(function=f"kind: skeleton, runs: container, {health}"))
    command("up", spec)
    well = running(command)
    time.sleep(2)  # nothing is to happen
    assert well.id.alive()
    spec.write_text(spec.read_text().replace("--version", "--nonsense").replace("500ms", "5s"))  # for a look before it
    with listening(command) as event:
        command("apply", spec)
        assert running(command) == well  # who is looked after otherwise is not replaced
        ill = event("function.unhealthy")
        assert "its check ended with status" in ill["details"]["why"]
        event("function.restarted")


CHATTER = """\
#!/bin/dash
while :; do echo "a line of words that mean nothing, so that the log is full before long, and has to begin anew"; done
"""


@pytest.fixture
def chatter(command: Command) -> Iterator[str]:
    """An image of a root filesystem whose program prints, and never comes to its sockets."""
    entry, layer = command.folder / "entry", command.folder / "root.tar"
    entry.write_text(CHATTER)
    dash = Path("/bin/dash")
    write_layer(layer, {"/entry": entry, "/bin/dash": dash, **by_name(libraries(dash))})
    name = "localhost/tailrace-test-chatter:1"
    said = command("image", "import", layer, name, "--entry", "/entry", "--json").stdout
    assert json.loads(said) == {"image": name}
    yield name
    podman("rmi", "--force", name)


@pytest.mark.whole
def test_a_container_that_prints_and_comes_to_no_socket(command: Command, chatter: str) -> None:
    """Its log is bounded, it is named, and nothing is left of it."""
    spec = command.spec(ONE.format(function=f"runs: container, image: {chatter!r}"))
    up = command.begin("up", spec)
    log = command.state / "logs/first.log"

    def size() -> int:
        with suppress(OSError):
            return log.stat().st_size
        return 0

    largest = 0
    wait_until(lambda: size() > LOG_BYTES / 2, 60)
    while up.poll() is None and (now := size()) >= largest:
        largest = max(largest, now)
        time.sleep(0.01)
    _, said = up.communicate(timeout=120)
    assert LOG_BYTES / 2 < largest <= LOG_BYTES * 1.1
    assert up.returncode != 0 and "first did not attach to first.0 within 30 s" in said
    assert containers() == [] and not (command.state / "state.json").exists()


def test_an_image_of_another_architecture_is_refused(command: Command) -> None:
    layer, name = command.folder / "root.tar", "localhost/tailrace-test-foreign:1"
    write_layer(layer, {"/link": "/nowhere"})
    podman("import", "--quiet", "--arch", "arm64", str(layer), name)
    try:
        done = command("up", command.spec(ONE.format(function=f"runs: container, image: {name!r}")), status=2)
        assert f"functions.first.image: {name} is for arm64, and this host is amd64" in done.stderr
    finally:
        podman("rmi", "--force", name)


def test_podman_killed_while_it_starts_a_container(command: Command) -> None:
    up = command.begin("up", command.spec(ONE.format(function="kind: skeleton, runs: container")))
    name = outer_name(command.state, "first")

    def killed() -> bool:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if words[0].endswith("podman") and words[1:2] == ["run"] and name in words:
                    os.kill(int(entry.name), signal.SIGKILL)
                    return True
        return False

    wait_until(killed, 60)
    _, said = up.communicate(timeout=120)
    assert up.returncode == 1 and "first: podman does not start it" in said, said
    assert containers() == [] and not (command.state / "state.json").exists()


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.whole)])
def test_a_chain_of_containers_loses_no_frame_while_one_is_replaced_by_apply(command: Command, count: int) -> None:
    names = [f"f{number}" for number in range(1, count + 1)]
    functions = ", ".join(f"{name}: {{kind: skeleton, runs: container}}" for name in names)
    spec = command.spec(
        f"functions: {{{functions}}}\nchains: {{voice: [tester.a, {', '.join(names)}, tester.b]}}\n"
        "tests: [latency: {frames: 64, rate: 5kpps, duration: 20s}]\n"
    )
    command("up", spec)
    before = set(containers())
    measuring = command.begin("measure", "latency", spec)
    wait_until(command.trial_is_running, 120)
    other = command.spec(spec.read_text().replace("f1: {", "f1: {memory: 300MiB, "), "other.yaml")
    assert "f1" in command("apply", other).stdout
    _, said = measuring.communicate(timeout=120)
    assert "what is up was changed while it was measured" in said
    frames = [way for trial in command.results()["trials"] for way in trial["directions"]]
    assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100
    assert len(containers()) == count and len(before - set(containers())) == 1
