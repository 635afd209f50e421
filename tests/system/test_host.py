"""`tailrace host` on the machine itself: what is applied is verified, and undone to the byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import ready_command
from running_node import ONE, Command, pages, wait_until

from tailrace.host.knobs import KNOBS
from tailrace.host.setting import Setting
from tailrace.host.tuner import Checked, State
from tailrace.host.tuning import Step
from tailrace.host.watching import changes
from tailrace.host.writers import Writers, read_writers
from tailrace.process.process import descendants, identify

pytestmark = pytest.mark.requires_root


class Host:
    def __init__(self, tailrace: Path, folder: Path) -> None:
        self._tailrace = tailrace
        places = {"TAILRACE_HOST_STATE": folder / "host", "TAILRACE_STATE": folder / "state"}
        self._environment = {**os.environ, **{name: str(path) for name, path in places.items()}}

    def __call__(self, *words: str, status: int = 0) -> str:
        """What `tailrace host` prints."""
        return self.run("host", *words, status=status)

    def run(self, *words: str, status: int = 0) -> str:
        """What any command prints."""
        done = ready_command.run(self._tailrace, words, environment=self._environment, folder=Path.cwd(), timeout=60)
        assert done.returncode == status, done.stderr
        return done.stdout

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command that goes on; its input and output are ours."""
        return subprocess.Popen(
            [self._tailrace, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )

    def places(self) -> dict[str, str]:
        """Every place that the profile has, as it stands."""
        plan = json.loads(self("plan", "--json"))
        return {place["place"]: place["now"] for knob in plan["knobs"] for place in knob["places"]}


def test_apply_verify_and_undo_leave_everything_as_it_was(tailrace: Path, tmp_path: Path) -> None:
    host = Host(tailrace, tmp_path)
    before = host.places()
    try:
        applied = json.loads(host("apply", "--run-time", "--yes", "--json"))
        assert applied["changed"]
        assert "file:/proc/sys/vm/stat_interval" in applied["changed"]
        assert Path("/proc/sys/vm/stat_interval").read_text() == "120\n"
        checked = json.loads(host("verify", "--json"))
        assert not checked["drifted"]
        Path("/proc/sys/vm/stat_interval").write_text("7")
        assert json.loads(host("verify", "--json", status=1))["counts"]["drifted"] == 1
        events = host("watch", "--count", "1", "--json", status=1)
        assert json.loads(events)["place"] == "file:/proc/sys/vm/stat_interval"
    finally:
        host("undo", "--yes")
    assert host.places() == before
    assert not (tmp_path / "host/journal").exists()


def test_huge_pages_of_tuning_and_of_a_node_are_given_back_by_whom_they_are(tailrace: Path, tmp_path: Path) -> None:
    """Whoever ends first."""
    host, own, spec, before = Host(tailrace, tmp_path), tmp_path / "own.yaml", tmp_path / "chain.yaml", pages()
    spec.write_text(ONE)
    own.write_text(f"inherits: vanilla\nknobs: {{huge_pages_2mib: {{0: {before + 64}}}}}\n")
    apply = ("apply", "--profile", str(own), "--run-time", "--yes")
    for first in ("host", "node"):
        try:
            host(*apply)
            tuned = pages()
            assert tuned >= before + 64
            host.run("up", str(spec))
            assert pages() >= tuned
            assert json.loads(host("verify", "--json"))["counts"]["right"] == 1
            if first == "node":
                host.run("down")
                assert pages() == tuned
        finally:
            host("undo", "--yes")
            host.run("down")
        assert pages() == before


def content(path: Path) -> str:
    """Of a file that may be gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def hears_of_writes(process: int) -> bool:
    """Whether it has marked what it watches (proc(5), fdinfo of a fanotify descriptor)."""
    return any("fanotify ino:" in content(file) for file in Path(f"/proc/{process}/fdinfo").iterdir())


def test_who_changes_a_place_is_named_at_once_and_afterwards(tailrace: Path, tmp_path: Path) -> None:
    host, own = Host(tailrace, tmp_path), tmp_path / "own.yaml"
    own.write_text("inherits: vanilla\nknobs: {vm.stat_interval: 33}\n")
    host("apply", "--profile", str(own), "--run-time", "--yes")
    watching = host.begin("host", "watch", "--every", "60s", "--json")
    try:
        assert watching.stdout is not None
        wait_until(lambda: hears_of_writes(watching.pid))
        words = ["sh", "-c", "echo $1 >/proc/sys/vm/stat_interval; read -r line", "sh"]
        for value, what in ((7, "drifted"), (33, "right again")):
            with subprocess.Popen([*words, str(value)], stdin=subprocess.PIPE) as changing:
                event = json.loads(watching.stdout.readline())
                assert (event["event"], event["place"]) == (what, "file:/proc/sys/vm/stat_interval")
                if value == 7:
                    assert event["by"] == f"sh (process {changing.pid})"
                    (place,) = json.loads(host("verify", "--json", status=1))["places"]
                    assert place["by"] == event["by"]
                changing.communicate()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        watching.kill()
        watching.communicate()
        host("undo", "--yes")
    assert not (tmp_path / "host/writers").exists()


def test_who_writes_while_a_look_is_taken_is_named_too(tmp_path: Path) -> None:
    place = tmp_path / "value"
    place.write_text("33\n")
    setting, looks = Setting(f"file:{place}", "33"), 0
    words = ["sh", "-c", "read -r go; echo 7 >$1; echo written; read -r line", "sh", str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as changing:
        assert changing.stdin is not None and changing.stdout is not None
        go, written = changing.stdin, changing.stdout

        def look() -> list[Checked]:
            nonlocal looks
            looks += 1
            known = read_writers(tmp_path, "boot").get(str(place))
            if looks == 2:
                go.write(b"go\n")
                go.flush()
                assert written.readline() == b"written\n"
            now = place.read_text().strip()
            state = State.RIGHT if setting.satisfied(now) else State.DRIFTED
            return [Checked(Step(KNOBS["vm.stat_interval"], setting, now), state, known)]

        writers = Writers.start(tmp_path, "boot")
        try:
            found = [(change.what, change.checked.by) for change in changes(look, writers, 0, 2)]
        finally:
            writers.close()
            changing.communicate()
    assert found == [("drifted", f"sh (process {changing.pid})")]


@pytest.mark.requires_first_pid_namespace
def test_priorities_of_kernel_threads_are_set_and_put_back(tailrace: Path, tmp_path: Path) -> None:
    host, own = Host(tailrace, tmp_path), tmp_path / "own.yaml"
    own.write_text("inherits: vanilla\nknobs: {softirq_priority: 2}\n")
    before = json.loads(host("plan", "--profile", str(own), "--json"))["knobs"][0]["places"]
    assert {place["now"] for place in before} == {"0"}
    try:
        host("apply", "--profile", str(own), "--run-time", "--yes")
        assert json.loads(host("verify", "--json"))["counts"] == {
            "right": len(before),
            "drifted": 0,
            "gone with the reboot": 0,
            "cannot be set here": 0,
            "waits for a reboot": 0,
            "wrong": 0,
        }
    finally:
        host("undo", "--yes")
    assert json.loads(host("plan", "--profile", str(own), "--json"))["knobs"][0]["places"] == before


def test_inspecting_needs_no_root_and_shows_every_capability(tailrace: Path, tmp_path: Path) -> None:
    host = Host(tailrace, tmp_path)
    found = json.loads(host("inspect", "--json", "--svg", str(tmp_path / "machine.svg")))
    assert len(found["cpus"]) >= 1
    assert all(each["evidence"] for each in found["capabilities"])
    assert (tmp_path / "machine.svg").read_text().startswith("<svg")
    assert "capabilities" in host("inspect")
    assert "isolcpus" in host("knobs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "--profile", "fast"), "no profile 'fast'"),
        (("plan", "--nic", "nic9"), "no network card 'nic9'"),
        (("plan", "--root", "/proc/self/fdinfo"), "no CPU in sys/devices/system/cpu"),
        (("verify",), "no profile is applied"),
        (("switch-mode", "fast"), "expected latency or throughput"),
        (("inspect", "--copy", "/proc"), "is there already"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(tailrace: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    environment = {**os.environ, "TAILRACE_HOST_STATE": str(tmp_path / "host")}
    done = ready_command.run(tailrace, ("host", *words), environment=environment, folder=Path.cwd(), timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.requires_program("cyclictest", "oslat", "stress-ng")
def test_measuring_and_comparing_the_host_leave_it_as_it_was(tailrace: Path, tmp_path: Path) -> None:
    host = Host(tailrace, tmp_path)
    before = host.places()
    measured = json.loads(
        host.run(
            "measure", "host", "--duration", "4s", "--load", "none,memory", "--runs", str(tmp_path / "a"), "--json"
        )
    )
    assert measured["valid"]
    found = {(trial["test"], trial["load"]) for trial in measured["host_trials"] if trial["samples"]}
    assert found >= {("cyclictest", "none"), ("cyclictest", "memory"), ("oslat", "none"), ("oslat", "memory")}
    assert (Path(measured["folder"]) / "report.html").exists()
    compared = json.loads(
        host.run("compare", "host", "--pairs", "2", "--duration", "4s", "--runs", str(tmp_path / "b"), "--json")
    )
    assert {trial["host_profile"] for trial in compared["host_trials"]} == {"vanilla", "latency"}
    assert all(len(trial["intervals"]) == 2 for trial in compared["host_trials"])
    assert host.places() == before
    assert not (tmp_path / "host/journal").exists()


def test_the_commands_are_timed_and_the_host_is_as_it_was(tailrace: Path, tmp_path: Path) -> None:
    host = Host(tailrace, tmp_path)
    before = host.places()
    timed = json.loads(host.run("bench", "host", "--times", "1", "--json"))
    assert set(timed["seconds"]) == {"inspect", "plan", "apply", "verify", "undo"}
    assert all(0 < spread["min"] <= spread["max"] for spread in timed["seconds"].values())
    host("inspect", "--copy", str(tmp_path / "copy"))
    looked = json.loads(host.run("bench", "host", "--times", "1", "--root", str(tmp_path / "copy"), "--json"))
    assert set(looked["seconds"]) == {"inspect", "plan", "verify"} and looked["cpus"] == timed["cpus"]
    assert host.places() == before


@pytest.mark.whole
@pytest.mark.requires_program("cyclictest", "stress-ng")
def test_a_run_that_was_killed_is_gone_on_with(tailrace: Path, tmp_path: Path) -> None:
    host, runs = Host(tailrace, tmp_path), tmp_path / "runs"
    options = ("--tools", "cyclictest", "--load", "none,cpu", "--runs", str(runs))
    running = host.begin("measure", "host", "--duration", "6s", *options, "--json")

    def soak() -> dict[str, Any]:
        (folder,) = runs.iterdir()
        found: dict[str, Any] = json.loads((folder / "results.json").read_text())["host_soak"] or {"done": 0}
        return found

    wait_until(lambda: runs.exists() and any(runs.glob("*/results.json")) and soak()["done"] == 1, 40)
    wait_until(lambda: any("stress-ng" in content(Path(f"/proc/{pid}/comm")) for pid in descendants(running.pid)))
    started = list(filter(None, map(identify, descendants(running.pid))))
    running.kill()
    running.communicate()
    wait_until(lambda: not any(process.alive() for process in started))
    (folder,) = runs.iterdir()
    assert not json.loads((folder / "results.json").read_text())["valid"]

    refused = host.begin("measure", "host", "--resume", str(folder), "--load", "cpu")
    assert "expected no other settings" in refused.communicate()[1] and refused.returncode == 2
    resumed = json.loads(host.run("measure", "host", "--resume", str(folder), "--json"))
    assert resumed["valid"] and Path(resumed["folder"]) == folder
    assert resumed["host_soak"]["done"] == resumed["host_soak"]["slices"] == 2
    (gap,) = resumed["host_soak"]["gaps"]
    assert gap["end_s"] > gap["start_s"] and "killed or crashed" in gap["reason"]
    assert {(trial["load"], trial["duration_s"]) for trial in resumed["host_trials"]} == {("cpu", 3.0), ("none", 3.0)}
    assert "Nothing was measured for" in (folder / "report.html").read_text()
    again = host.begin("measure", "host", "--resume", str(folder))
    assert "2 slices are all measured" in again.communicate()[1] and again.returncode == 2


@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "tailrace-tester", "bwrap")
def test_the_mode_is_switched_and_functions_run_on(tailrace: Path, tmp_path: Path) -> None:
    host, command = Host(tailrace, tmp_path), Command(tailrace, tmp_path)
    before = host.places()
    spec = command.spec(ONE)
    try:
        command("up", spec)
        processes = {each["name"]: each["pid"] for each in command.status()["processes"] if each["alive"]}
        measuring = command.begin("measure", "latency", spec, "--duration", "8s", "--runs", command.runs, "--json")
        wait_until(command.trial_is_running)
        for mode in ("latency", "throughput", "latency"):
            assert json.loads(host("switch-mode", mode, "--json"))["profile"] == mode
        assert json.loads(host("verify", "--json"))["counts"]["drifted"] == 0
        out, error = measuring.communicate(timeout=60)
        assert measuring.returncode == 0, error
        (trial,) = json.loads(out)["trials"]
        assert all(way["received"] and not way["duplicate"] for way in trial["directions"])
        assert {each["name"]: each["pid"] for each in command.status()["processes"] if each["alive"]} == processes
    finally:
        host("undo", "--yes")
        command("down")
    assert host.places() == before
