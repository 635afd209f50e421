"""How often guests are left: what counts, and how it is shown."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.errors import Failure
from tailrace.functions import exits
from tailrace.measure.exits import with_interface
from tailrace.report.findings import sections
from tailrace.results import RunFolder, load_run
from tailrace.results.findings import ExitsFinding
from tailrace.results.table import csv_text
from tailrace.spec.load import parse_spec

LOG = """\
7@1764280240.123455:memory_region_ops_write cpu 0 mr 0x55d0 addr 0xfebc0018 value 0x7 size 4 name 'e1000e-mmio'
memory_region_ops_read cpu 0 mr 0x55d0 addr 0xfebc0008 value 0x80080783 size 4 name 'e1000e-mmio'
memory_region_ops_write cpu -1 mr 0x55d1 addr 0xfee00000 value 0x21 size 4 name 'apic-msi'
memory_region_ops_write cpu 0 mr 0x55d1 addr 0xfee000b0 value 0x0 size 4 name 'apic-msi'
7@1764280240.123456:virtio_queue_notify vdev 0x55d2 n 1 vq 0x55d3
something else
memory_region_ops_write cpu 1 mr 0x55d0 addr 0xfebc0018 value 0x8 size 4 name 'e1000e-mmio'
"""


def test_accesses_of_the_guests_are_counted_by_device_and_not_those_of_qemu() -> None:
    found = Counter(exits.accesses(iter(LOG.splitlines(keepends=True))))
    assert found == {"e1000e-mmio write": 2, "e1000e-mmio read": 1, "virtio notification": 1}


def test_kvm_has_a_counter_for_each_reason_and_one_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exits, "_KVM", tmp_path)
    with pytest.raises(Failure, match="counters of process 7 cannot be read; `mount -t debugfs"):
        exits.kvm_exits(7)
    folder = tmp_path / "7-12"
    folder.mkdir()
    for name, value in {"exits": 100, "io_exits": 30, "halt_exits": 20, "tlb_flush": 999}.items():
        (folder / name).write_text(f"{value}\n")
    assert exits.kvm_exits(7) == {"io": 30, "halt": 20, "other": 50}


def test_each_kind_takes_the_place_of_what_machines_have() -> None:
    text = (
        "functions: {a: {kind: skeleton, runs: machine, interface: virtio}, b: skeleton}\n"
        "chains: {v: [tester.a, a, b, tester.b]}\n"
    )
    spec = with_interface(parse_spec(text, "s"), "e1000e")
    assert spec.functions["a"].interfaces == ["e1000e", "e1000e"]
    assert spec.functions["b"].interfaces == ["vhost-user", "vhost-user"]


def test_a_chain_without_a_machine_has_no_exits(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    spec.write_text("functions: {a: skeleton}\nchains: {v: [tester.a, a, tester.b]}\n")
    done = CliRunner().invoke(main.app, ["measure", "exits", str(spec), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 2 and "no function of the chain runs in a machine" in done.stderr


def finding(interface: str, reasons: dict[str, int], **more: Any) -> ExitsFinding:
    return ExitsFinding(
        name=f"{interface}-64", profile="64", functions=1, valid=True, reason=None, interface=interface,
        drivers=("dpdk",), source="emulated", machines=1, seconds=2.0, packets=100, reasons=reasons, **more,
    )  # fmt: skip


def test_the_table_shows_how_many_fewer_and_says_what_was_counted(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "exits", spec="", host={}, command=(), versions={}) as folder:
        folder.add_finding(finding("virtio", {"virtio-pci-notify-virtio-net write": 6}))
        folder.add_finding(finding("e1000e", {"e1000e-mmio write": 150, "e1000e-mmio read": 50}))
    run = load_run(folder.path)
    (section,) = sections(run)
    assert section.heading == "Register accesses by interface, in place of exits"
    virtio, e1000e = section.rows
    assert virtio[2:8] == ("virtio", "dpdk", "100", "3", "0.06", "97 %")
    assert e1000e[5:7] == ("100", "2") and "e1000e-mmio write 150" in e1000e[8]
    table = csv.DictReader(io.StringIO(csv_text([run]), newline=""))
    lines = {(line["trial"], line["figure"]): line["value"] for line in table}
    assert float(lines["virtio-64", "exits_per_packet"]) == 0.06
    assert lines["e1000e-64", "exits e1000e-mmio read"] == "50"
