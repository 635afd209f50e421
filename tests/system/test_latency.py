"""`tailrace measure latency` with the real switch, tester and functions: shape and counts, no figures to reach."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from running_node import ONE, REPOSITORY, Command, needs_a_node, wait_until

from tailrace.process.control import connect_when_ready

pytestmark = needs_a_node


def check_trial(trial: dict[str, Any]) -> None:
    assert len(trial["directions"]) == 2
    for direction in trial["directions"]:
        assert direction["received"] > 0
        assert direction["offered"] == direction["sent"] + direction["unsent"]
        latency = direction["latency_us"]
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]


def test_a_spec_is_measured_and_all_is_kept(command: Command) -> None:
    text = f"fabric: {{backpressure: 10s}}\n{ONE}"  # so that who waits for its core for long costs no frame
    spec = command.spec(text)
    options = ("--frames", "64,imix", "--rate", "20kpps", "--duration", "1s", "--floor", "--runs", command.runs)
    done = command("measure", "latency", spec, *options, "--json")
    document = json.loads(done.stdout)
    folder = Path(document["folder"])
    assert {path.name for path in folder.iterdir()} >= {
        "spec.yaml", "host.json", "results.json", "report.html", "histograms", "logs",
    }  # fmt: skip
    assert (folder / "spec.yaml").read_text() == text
    results = json.loads((folder / "results.json").read_text())
    assert results["valid"]
    names = [trial["name"] for trial in results["trials"]]
    assert names == [
        "floor-for-one-function-64", "one-function-64", "floor-for-one-function-imix", "one-function-imix",
    ]  # fmt: skip
    for trial in results["trials"]:
        check_trial(trial)
        assert trial["offered_pps"] == 20_000
        for direction in trial["directions"]:
            assert direction["duplicate"] == 0 and direction["lost"] < 0.05 * direction["sent"]
    assert results["trials"][1]["share_us"]["floor"] == "floor-for-one-function-64"
    check_what_it_stands_on(results)
    assert list((folder / "histograms").glob("*.hlog"))
    assert {"switch.log", "first.log", "tester.log"} <= {path.name for path in (folder / "logs").iterdir()}
    assert not command.leftovers()


def test_frames_longer_than_a_buffer_go_through_a_chain(command: Command) -> None:
    """As far as its ports take them; the tester's own floor, whose ports do not, is left out with a note."""
    long = command.folder / "long.pcap"
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    long.write_bytes(header + struct.pack("<IIII", 0, 0, 3000, 3000) + bytes(12) + b"\x08\x00" + bytes(2986))
    options = ("--pcap", long, "--rate", "5kpps", "--duration", "500ms", "--runs", command.runs)
    command("measure", "latency", command.spec(ONE), *options)
    results = command.results()
    assert results["valid"]
    (trial,) = results["trials"]
    check_trial(trial)
    assert sum(direction["lost"] + direction["foreign"] for direction in trial["directions"]) == 0
    assert results["floors"] == []
    assert any("frame 1 has 3000 bytes, and the ports take at most 1518" in note for note in results["notes"])


def check_what_it_stands_on(results: dict[str, Any]) -> None:
    """The tester's own floor of each profile, its clock, and the versions of what ran."""
    assert results["versions"].keys() >= {"tailrace", "tailrace-switch", "tailrace-tester", "dpdk"}
    floors = {each["profile"]: each["latency_us"]["p50"] for each in results["floors"]}
    assert list(floors) == ["64", "imix"]
    for trial in results["trials"]:
        median = trial["directions"][trial["headline"]]["latency_us"]["p50"]
        assert trial["floor_ratio"] == pytest.approx(median / floors[trial["profile"]])
        assert trial["near_floor"] == (trial["floor_ratio"] < 3)
        assert 0 < trial["clock"]["error_ppm"] < 1000
        assert trial["clock"]["checked_s"] > 0.1


def test_a_machine_without_an_invariant_counter_is_refused(command: Command) -> None:
    """This machine but for one flag: another file lies over /proc/cpuinfo, in a mount namespace of its own."""
    cpuinfo = command.folder / "cpuinfo"
    cpuinfo.write_text(Path("/proc/cpuinfo").read_text().replace(" nonstop_tsc", ""))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /proc/cpuinfo && shift && exec "$@"', "sh", cpuinfo,
         command.program, "measure", "latency", command.spec(ONE), "--runs", command.runs],
        capture_output=True, text=True, timeout=60, check=False, env=command.environment,
    )  # fmt: skip
    assert done.returncode == 2
    assert "time stamp counter is not invariant" in done.stderr
    assert "lacks nonstop_tsc" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not command.leftovers()
    assert not command.runs.exists()


def test_a_bad_line_is_found_to_be_as_bad_as_it_is(command: Command) -> None:
    """The function that errs as planned, in a sandbox, by the words of a spec."""
    spec = command.spec(
        "functions: {wan: {kind: impair, impair: {seed: 7, drop: 10%, duplicate: 20%, reorder: 5%, delay: 1ms}}}\n"
        "chains: {office: [tester.a, wan, tester.b]}\n"
    )
    options = ("--frames", "64", "--rate", "10kpps", "--duration", "2s", "--runs", command.runs)
    command("measure", "latency", spec, *options)
    (trial,) = command.results()["trials"]
    for way in trial["directions"]:
        assert way["lost"] == pytest.approx(0.10 * way["sent"], rel=0.2)
        assert way["duplicate"] == pytest.approx(0.18 * way["sent"], rel=0.2)
        assert way["out_of_sequence"] == pytest.approx(0.9 * 0.8 * 0.05 * way["sent"], rel=0.3)
        assert 1 <= way["extents"]["max"] < 200
        assert way["latency_us"]["min"] >= 1000


def test_what_is_up_is_measured_and_left_up(command: Command) -> None:
    spec = command.spec(ONE)
    command("up", spec)
    processes = command.status()["processes"]
    command("measure", "latency", spec, "--rate", "10kpps", "--duration", "500ms", "--runs", command.runs)
    assert command.results()["valid"]
    wait_until(
        lambda: all(port["state"] == "waiting" for port in command.status()["ports"] if "tester" in port["name"])
    )
    assert command.status()["processes"] == processes
    assert command.status()["state"] == "up"


def test_the_no_loss_rate_is_found(command: Command) -> None:
    command(
        "measure", "latency", REPOSITORY / "examples/floor.yaml", "--frames", "256", "--rate", "50%",
        "--duration", "500ms", "--runs", command.runs,
    )  # fmt: skip
    # Somebody else's work on the machine may cost a frame: then another trial follows, and each is kept.
    *attempts, trial = command.results()["trials"]
    assert [each["attempt"] for each in attempts] == list(range(1, len(attempts) + 1))
    check_trial(trial)
    for each in (*attempts, trial):
        searched = each["searched"]["pps"]
        assert searched > 0
        assert each["offered_pps"] == pytest.approx(searched / 2)
    assert all(each["no_loss_pps"] is None for each in attempts)
    assert trial["no_loss_pps"] in (trial["searched"]["pps"], None)
    assert trial["attempt"] is None


def test_a_device_that_is_not_ours_is_measured_between_two_sockets(command: Command, binaries: Path) -> None:
    folder = command.folder
    control, page = folder / "c", folder / "p"
    switch = subprocess.Popen(
        [binaries / "switch/tailrace-switch", "--control", control, "--page", page, "--share-cores"],
        stderr=subprocess.DEVNULL,
    )
    try:
        client = connect_when_ready(control, lambda: switch.poll() is None, 60)
        for name in ("a", "b"):
            client.call(
                "config.apply", patch={"ports": {name: {"kind": "guest", "path": str(folder / f"{name}.sock")}}}
            )
        client.call("config.apply", patch={"chains": {"x": {"from": "a", "to": "b"}}})
        # A capture file as traffic: one frame of 100 bytes, little-endian, Ethernet.
        frame = bytes.fromhex("020000000002020000000001") + b"\x08\x00" + bytes(86)
        header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
        (folder / "t.pcap").write_bytes(header + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
        ends = ("--between", "vhost:a.sock", "vhost:b.sock")
        runs = ("--runs", command.runs, "--json")
        done = command(
            "measure", "latency", *ends, "--frames", "64,imix", "--rate", "10kpps", "--duration", "500ms",
            "--flows", "100", *runs,
        )  # fmt: skip
        document = json.loads(done.stdout)
        assert [trial["profile"] for trial in document["trials"]] == ["64", "imix"]
        for trial in document["trials"]:
            check_trial(trial)
        assert document["valid"]
        done = command("measure", "latency", *ends, "--pcap", "t.pcap", "--rate", "1kpps", "--duration", "1s", *runs)
        (trial,) = json.loads(done.stdout)["trials"]
        assert trial["profile"] == "pcap"
        check_trial(trial)
        client.close()
    finally:
        switch.terminate()
        switch.wait(60)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "expected either a SPEC or --between"),
        (("--between", "vhost:none.sock", "vhost:other.sock"), "there is no socket at"),
        (("--between", "nonsense", "if:lo"), "'nonsense' is no port"),
        (("--between", "if:lo", "if:lo"), "named twice"),
        (("--between", "if:nosuch", "if:lo"), "there is no interface nosuch"),
        (("--between", "if:lo,x=1", "if:lo"), "is no interface's name"),
        (("--between", "pci:zz", "if:lo"), "'zz' is no PCI address"),
        (("--between", "if:lo", "pci:ffff:ff:1f.7"), "there is no PCI device ffff:ff:1f.7"),
        (("--between", "if:lo", "vdev:net_null0", "--pcap", REPOSITORY / "Makefile"), "is no capture file"),
        (("x.yaml",), "there is no such file"),
        ((REPOSITORY / "examples/tcp.yaml",), "no chain runs from tester.a to tester.b"),
        ((REPOSITORY / "examples/floor.yaml", "--frames", "63"), "is no profile"),
        ((REPOSITORY / "examples/floor.yaml", "--rate", "1Mbps"), "--rate: '1Mbps' is not a rate"),
        ((REPOSITORY / "examples/floor.yaml", "--duration", "10"), "10 has no unit"),
        ((REPOSITORY / "examples/floor.yaml", "--pcap", "none.pcap"), "No such file"),
        ((REPOSITORY / "examples/floor.yaml", "--pcap", REPOSITORY / "Makefile"), "is no capture file"),
        ((REPOSITORY / "examples/floor.yaml", "--rate", "2Gpps"), "--rate: 2Gpps is more than any line carries"),
        ((REPOSITORY / "examples/floor.yaml", "--nonsense"), "No such option"),
    ],
)
def test_mistakes_are_one_line_and_status_2(command: Command, options: tuple[str | Path, ...], expected: str) -> None:
    refused = command("measure", "latency", *options, status=2)
    assert expected in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not command.leftovers()
    assert not command.runs.exists()
