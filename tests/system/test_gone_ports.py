"""Ports that cannot be had for a while: a device that vanishes, and one that a change which failed has left closed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from private_network import Network
from running_node import Command, needs_a_node
from test_service import listening
from test_up_resumes import configuration, kill_switch

pytestmark = [*needs_a_node, pytest.mark.requires_program("ip"), pytest.mark.unsanitized]


@pytest.fixture
def interface() -> Iterator[str]:
    """The name of an interface of this machine, whose other end is to be in a namespace of the test's own."""
    name = f"trg{os.getpid()}"
    yield name
    subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)


@pytest.fixture
def network(interface: str) -> Iterator[Network]:
    """With the other end."""
    network = Network()
    plug(interface, network)
    yield network
    network.end()


def plug(interface: str, network: Network) -> None:
    # Without IPv6 nothing is sent to the other end.
    subprocess.run(
        ["ip", "link", "add", interface, "type", "veth", "peer", "name", "far", "netns", network.name], check=True
    )
    network.run("ip", "link", "set", "far", "up")
    subprocess.run(["ip", "link", "set", interface, "up"], check=True)


def port(command: Command, name: str) -> dict[str, Any]:
    return next(each for each in command.status()["ports"] if each["name"] == name)


def test_a_device_that_is_deleted_and_made_again(command: Command, interface: str, network: Network) -> None:
    """Also while the switch is started again, which is what it was but for that device."""
    spec = command.spec(f"ports: {{wan: {{if: {interface}}}, lan: }}\nchains: {{v: [wan, lan]}}\n")
    command("up", spec)
    before = configuration(command)
    with listening(command) as event:
        subprocess.run(["ip", "link", "delete", interface], check=True)
        assert event("port.removed")["about"] == "wan"
        assert command.status()["broken"] == ["port wan is removed"]
        assert command("status", status=1).stdout.startswith("BROKEN: port wan is removed (")
        plug(interface, network)
        event("port.up")
        assert command.status()["broken"] == []
        subprocess.run(["ip", "link", "delete", interface], check=True)
        event("port.removed")
        kill_switch(command)
        event("switch.restarted")
        event("port.removed")
        assert configuration(command) == before
        plug(interface, network)
        event("port.up")


def test_a_port_that_a_failed_change_has_closed(command: Command) -> None:
    folder = command.folder_for_sockets()
    text = "ports: {{vm: {{path: {}/vm.sock, queues: {}}}, lan: }}\nchains: {{v: [vm, lan]}}\n"
    spec = command.spec(text.format(folder, 1))
    command("up", spec)
    before = configuration(command)
    with listening(command) as event:
        shutil.rmtree(folder)
        refused = command("apply", command.spec(text.format(folder, 2), "more.yaml"), status=None)
        assert refused.returncode != 0 and f"{folder}/vm.sock" in refused.stderr
        gone = event("port.gone")
        assert (gone["about"], gone["level"]) == ("vm", "alarm")
        assert "closed for a change that failed" in gone["details"]["why"]
        assert command.status()["broken"] == ["port vm is gone"]
        assert "vm" in command("plan", spec, status=None).stdout
        again = command("apply", spec, status=None)
        assert again.returncode != 0 and f"{folder}/vm.sock" in again.stderr, "the folder is still missing"
        folder.mkdir()
        folder.chmod(0o777)
        assert "vm" in command("apply", spec).stdout
        assert event("port.waiting")["about"] == "vm"
    assert command.status()["broken"] == []
    assert configuration(command) == before
    assert (folder / "vm.sock").is_socket()
