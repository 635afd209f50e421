"""What ip(8) is asked for a function's network namespace: all neighbours and routes of the spec at once, by a stand-in
that notes it. With the real one: tests/system/test_router.py."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.errors import Failure, Mistake
from tailrace.functions import agent, namespace
from tailrace.functions.machine import _give_network
from tailrace.functions.namespace import network_commands, prepare_namespace, with_failed_line
from tailrace.spec.kind import Network, Route
from tailrace.state.launch import Launcher
from tailrace.state.record import State

ROUTES = tuple(Route(f"10.{number >> 8}.{number & 255}.0/24", (("192.0.2.2", 0),)) for number in range(300))
NETWORK = Network(
    (("192.0.2.1/24",), ()),
    (*ROUTES, Route("::/0", (("2001:db8::2", 1), ("2001:db8::3", 1)))),
    neighbours=(("192.0.2.2", "02:00:00:00:00:0b", 0),),
)
STAND_IN = """#!/bin/sh
echo "$*" >>{folder}/runs
case "$*" in
*-batch*) cat >{folder}/batch; [ ! -e {folder}/refused ] || {{ cat {folder}/refused >&2; exit 1; }} ;;
*'-j neighbour'*) echo '[{{"dst": "192.0.2.9", "dev": "port0"}}, {{"dst": "192.0.2.2", "dev": "port0"}}]' ;;
*'-j -4 route'*) echo '[{{"dst": "10.0.7.0/24"}}, {{"dst": "default"}}, {{"dst": "203.0.113.9"}}]' ;;
*'-j -6 route'*) echo '[{{"dst": "default"}}]' ;;
*-j*) echo '[]' ;;
esac
"""


@pytest.fixture(autouse=True)
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ip"
    program.write_text(STAND_IN.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def test_all_routes_are_told_to_one_program(state: State, tmp_path: Path) -> None:
    prepare_namespace(state, "edge", NETWORK, 0)
    runs = (tmp_path / "runs").read_text().splitlines()
    assert len(runs) < 20 and sum("-batch" in each for each in runs) == 1
    lines = (tmp_path / "batch").read_text().splitlines()
    assert lines[0] == "neighbour replace 192.0.2.2 lladdr 02:00:00:00:00:0b dev port0 nud permanent protocol 116"
    assert lines[1:301] == [f"route replace {each.prefix} proto 116 nexthop via 192.0.2.2 dev port0" for each in ROUTES]
    assert lines[301:] == [
        "route replace ::/0 proto 116 nexthop via 2001:db8::2 dev port1 nexthop via 2001:db8::3 dev port1",
        "neighbour delete 192.0.2.9 dev port0",
        "route delete 0.0.0.0/0 proto 116",
        "route delete 203.0.113.9/32 proto 116",
    ]


def test_a_host_without_ipv6_has_a_router_of_ipv4(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "_IPV6", tmp_path / "ipv6")
    with pytest.raises(Mistake, match=r"^edge: ::/0 is of IPv6, which this host's kernel has not; boot it without"):
        prepare_namespace(state, "edge", NETWORK, 0)
    assert not (tmp_path / "runs").exists()
    prepare_namespace(state, "edge", replace(NETWORK, routes=ROUTES), 0)
    runs = (tmp_path / "runs").read_text()
    assert "ip_forward" in runs and "ipv6" not in runs and "-6" not in runs


def test_a_route_that_is_refused_is_named(state: State, tmp_path: Path) -> None:
    (tmp_path / "refused").write_text("Error: Nexthop has invalid gateway.\nCommand failed -:9\n")
    with pytest.raises(Failure, match=r"`ip route replace 10.0.7.0/24 .*`: Error: Nexthop has invalid gateway.$"):
        prepare_namespace(state, "edge", NETWORK, 0)


def test_what_names_no_line_is_said_as_it_is() -> None:
    for said in ("Cannot open network namespace", "Command failed -:3", "Command failed -:0"):
        assert with_failed_line(said, ["a", "b"]) == said
    inside = "inside the machine, `: its network` has failed: Error: no. Command failed -:2"
    assert with_failed_line(inside, ["a", "b"]) == "`ip b`: inside the machine, `: its network` has failed: Error: no."


def test_a_route_that_a_machines_kernel_refuses_is_named(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told in parts, and says the number of a line in one."""
    lines = network_commands(NETWORK, ["52:54:00:00:00:00", "52:54:00:00:00:01"])
    (tmp_path / "edge.network").write_text("".join(f"{line}\n" for line in lines))
    asked: list[str] = []

    def refuse(path: Path, command: str) -> str:
        del path
        asked.append(command)
        if len(asked) == 2:
            raise Failure("inside the machine, `: its network` has failed: Error: no. Command failed -:7")
        return ""

    monkeypatch.setattr(agent, "ask", refuse)
    with pytest.raises(Failure, match=f"^`ip {re.escape(lines[206])}`: inside the machine"):
        _give_network(Launcher(state, tmp_path, tied=False), "edge")
