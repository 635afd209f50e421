"""What `tailrace status` says of bridges and of functions with replicas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.cli import operate
from tailrace.errors import Refused
from tailrace.node import operations, status
from tailrace.node.client import NoService
from tailrace.spec.source import SpecError
from tailrace.state.record import Record, Unsettled


def status_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **more: Any) -> list[str]:
    found: dict[str, Any] = {
        "state": "up",
        "owner": None,
        "service": {"pid": 1, "version": "1"},
        "spec": "demo.yaml",
        "version": 3,
        "broken": [],
        "unlike": [],
        "processes": [],
        "ports": [],
        "chains": [],
        "functions": [],
        "bridges": [],
        **more,
    }
    monkeypatch.setattr(operate.client, "ask", lambda *_words, **_more: found)
    assert operate.status(as_json=False) == 0
    return capsys.readouterr().out.splitlines()


def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **bridge: Any) -> list[str]:
    whole: dict[str, Any] = {"name": "lan", "macs": [], "flaps": [], "unlearned": 0, **bridge}
    lines = status_lines(monkeypatch, capsys, bridges=[whole])
    return lines[lines.index(f"bridge lan: {len(whole['macs'])} MAC addresses") + 1 :]


def flap(number: int, **more: Any) -> dict[str, Any]:
    where = {"vlan": 0, "from": "p1", "to": "p2", "first": 60.0, "last": float(number), "moves": 10 + number}
    return {"mac": f"02:00:00:00:00:{number:02x}", **where, **more}


def test_a_quiet_bridge_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(monkeypatch, capsys) == []
    macs = [{"mac": "02:00:00:00:00:01", "vlan": 10, "port": "p1", "age": 1.0}]
    assert shown(monkeypatch, capsys, macs=macs) == ["  02:00:00:00:00:01 VLAN 10 at p1"]


def test_a_full_table_and_stations_that_flap_are_mentioned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(monkeypatch, capsys, unlearned=7, flaps=[flap(3), flap(1, vlan=10)]) == [
        "  7 times an address was not learned: the table, or its port's share, was full",
        "  02:00:00:00:00:01 VLAN 10 flaps: 11 moves, the last from p1 to p2 1 s ago",
        "  02:00:00:00:00:03 flaps: 13 moves, the last from p1 to p2 3 s ago",
    ]


def test_of_many_stations_that_flap_the_last_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(monkeypatch, capsys, flaps=[flap(number) for number in range(64, 0, -1)])
    assert [line.split()[0] for line in lines] == [*(f"02:00:00:00:00:{i:02x}" for i in range(1, 6)), "59"]
    assert lines[-1] == "  59 more flapped before"


def test_flows_that_found_no_slot_are_reported_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(*crowded: int | None) -> list[str]:
        replicas = [{"name": "fw", "state": "active", "flows": 3}]
        functions = [{"name": f"fw{i}", "crowded": count, "replicas": replicas} for i, count in enumerate(crowded)]
        shown = status_lines(monkeypatch, capsys, functions=functions)
        return [line for line in shown if "fw" in line or "flow" in line]

    assert lines(None, 0) == []  # one replica, and nothing is amiss
    assert lines(0, 12) == ["function fw1: fw (active, 3 flows)", "  12 times the flow table was full"]


def test_each_port_has_a_line_and_that_of_a_stopped_function_says_how_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"received_packets": 0, "sent_packets": 0, "drops": {}}
    why = "/run/tailrace/sockets/vm/sock: there is no such socket yet; start the guest that listens there"
    ports = [{"name": name, "state": "waiting", "reason": why, **counts} for name in ("vm.0", "fw-2@3.1")]
    replicas = [{"name": "fw-2", "state": "stopped", "flows": None}]
    lines = status_lines(monkeypatch, capsys, ports=ports, functions=[{"name": "fw", "replicas": replicas}])
    assert any("vm.0" in line and why in line for line in lines), lines
    assert any("fw-2@3.1" in line and "(`tailrace function start fw-2` starts it)" in line for line in lines), lines


def test_what_is_refused_before_it_is_agreed_to_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text("chains:\n  v: [tester.a, tester.b]\n")

    def propose(*_: object) -> None:
        raise Refused("chains.v: why")

    def ask(_folder: Path, method: str, **_: object) -> dict[str, Any]:
        if method == "node.plan":
            raise NoService
        return {"notes": []}

    monkeypatch.setattr(operate.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(operate.sys, "stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(operate.client, "ask", ask)
    monkeypatch.setattr(operations, "propose", propose)
    with pytest.raises(SpecError, match=rf"^{spec}:2:3: chains\.v: why$"):
        operate.apply(spec, huge=None, base=None, yes=False, as_json=False)


def test_a_machine_of_which_it_is_not_known_that_it_has_come_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    functions = [{"name": name, "kind": "nat", "runs": "machine"} for name in ("fw", "nat")]
    unsettled = {"fw": Unsettled("far", 32 * "1")}
    record = Record("boot", plan={"functions": functions}, stopped=["fw", "nat"], unsettled=unsettled)
    lines = status_lines(monkeypatch, capsys, functions=status._functions(record, None))
    assert "function fw: fw (stopped, moved to far, which has not said that it has it)" in lines
    assert "function nat: nat (stopped)" in lines


def test_nobody_is_told_to_start_a_machine_that_is_at_another_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    functions: list[dict[str, Any]] = [{"name": name, "kind": "nat", "runs": "machine"} for name in ("fw", "nat", "lb")]
    functions[1]["arrives"] = True
    port = {"state": "waiting", "reason": None, "received_packets": 0, "sent_packets": 0, "drops": {}}
    ports = [{"name": f"{each['name']}.0", **port} for each in functions]
    record = Record("boot", plan={"functions": functions}, stopped=["fw", "nat", "lb"], moved={"fw": "far"})
    lines = status_lines(monkeypatch, capsys, functions=status._functions(record, None), ports=ports)
    assert "function fw: fw (stopped, moved to far)" in lines
    shown = {line.split()[0]: line for line in lines if ".0 " in line}
    assert "waiting (moved to far)" in shown["fw.0"]
    assert "waiting (comes by `tailrace migrate`)" in shown["nat.0"]
    assert "waiting (`tailrace function start lb` starts it)" in shown["lb.0"]
