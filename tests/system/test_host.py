"""`tailrace host` on the machine itself: what is applied is verified, and undone to the byte."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.requires_root


class Host:
    def __init__(self, tailrace: Path, folder: Path) -> None:
        self._tailrace = tailrace
        self._environment = {**os.environ, "TAILRACE_HOST_STATE": str(folder / "host")}

    def __call__(self, *words: str, status: int = 0) -> str:
        done = subprocess.run(
            [self._tailrace, "host", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stderr
        return done.stdout

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
        (("plan", "--root", "/proc/self/fdinfo"), "no CPU is to be seen"),
        (("verify",), "no profile is applied"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(tailrace: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [tailrace, "host", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TAILRACE_HOST_STATE": str(tmp_path / "host")},
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
