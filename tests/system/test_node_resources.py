"""What is up, and what is measured, has claimed what it uses; `tailrace node resources` shows it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running_node import ONE, Command, needs_a_node, wait_until

pytestmark = [*needs_a_node, pytest.mark.unsanitized]


def held(command: Command) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("node", "resources", "--json").stdout)
    return found


def specs(command: Command) -> dict[str, str]:
    """The owners with folders of the test's own, and what they are of."""
    mine = {str(command.state), str(command.run)}
    return {each["folder"]: each["spec"] for each in held(command)["owners"] if each["folder"] in mine}


def test_what_is_up_is_claimed_until_it_is_down(command: Command) -> None:
    spec = command.spec(ONE)
    assert specs(command) == {}
    command("up", spec)
    placement = command.status()["placement"]
    found = held(command)
    owner = f"{command.state} ({spec})"
    whose = {cpu["cpu"]: who for cpu in found["cpus"] for who in cpu["owners"] if who.endswith(f" of {owner}")}
    uses = {cpu["cpu"]: cpu["use"] for cpu in found["cpus"]}
    assert "exclusive" == uses[placement["tester"]["core"]] == uses[placement["workers"][0]]
    assert whose[placement["workers"][0]].startswith("switch")
    assert "tester" in whose[placement["tester"]["core"]]
    assert "first" in whose[placement["functions"]["first"]["core"]]
    memory = [who for node in found["nodes"] for who in node["owners"] if who.endswith(f" of {owner}")]
    pages = [who for node in found["nodes"] for pool in node["pages"] for who in pool["owners"] if owner in who]
    assert memory == [f"switch up to 48, first up to 256 of {owner}"]
    assert pages and pages[0].startswith("tester 128, first ")
    assert [each["port"] for each in found["ports"]] == ["tester.a", "first.0", "first.1", "tester.b"]
    assert specs(command) == {str(command.state): str(spec)}
    assert f"exclusive  {whose[placement['workers'][0]]}" in command("node", "resources").stdout

    more = command.spec(
        ONE.replace("first: skeleton", "first: skeleton, second: skeleton").replace("first,", "first, second,")
    )
    command("apply", more, "--yes")
    assert "second.0" in [each["port"] for each in held(command)["ports"]]
    command("rollback")
    assert "second.0" not in [each["port"] for each in held(command)["ports"]]
    command("down")
    assert specs(command) == {}


def test_a_measurement_has_claimed_its_cpus_as_long_as_it_runs(command: Command) -> None:
    running = command.begin("measure", "latency", command.spec(ONE))
    wait_until(command.trial_is_running)
    found = held(command)
    (owner,) = (each for each in found["owners"] if each["folder"] == str(command.run))
    assert owner["measurement"] == running.pid
    assert any(str(command.run) in each for cpu in found["cpus"] for each in cpu["owners"])
    running.kill()
    running.communicate(timeout=60)
    assert specs(command) == {}, "also before anything has been cleaned up"
    command("down")
