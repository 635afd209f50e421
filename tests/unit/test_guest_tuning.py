"""Tuning inside a machine: the host's knobs, on what a guest says of itself."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import pytest

from tailrace.functions import agent, guest_tuning
from tailrace.host.tuner import State

PACKAGE = "linux-image-6.1.0-56-rt-amd64_6.1.192-2_amd64"
GUEST = {
    "/proc/cpuinfo": "vendor_id\t: AuthenticAMD\nflags\t\t: svm",
    "/proc/cmdline": "console=ttyS0 isolcpus=domain,managed_irq,1 tailrace.profile=latency",
    "/proc/sys/kernel/osrelease": "6.1.0-56-rt-amd64",
    "/proc/sys/kernel/version": "#1 SMP PREEMPT_RT",
    "/proc/sys/kernel/random/boot_id": "one",
    "/proc/sys/vm/stat_interval": "1",
    "/proc/sys/kernel/hung_task_timeout_secs": "600",
    "/proc/irq/30/smp_affinity_list": "0-1",
    "/proc/17/comm": "ktimers/1",
    "/proc/17/stat": "17 (ktimers/1) S " + " ".join(["0"] * 50),
    "/proc/17/status": "Name:\tktimers/1\nCpus_allowed_list:\t1",
    "/proc/1/comm": "init",
    "/proc/1/cmdline": "/init",
    "/sys/devices/system/cpu/online": "0-1",
    "/sys/devices/system/node/node0/cpulist": "0-1",
    **{f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": str(cpu) for cpu in (0, 1)},
    **{f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id": "0" for cpu in (0, 1)},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A guest that says so; what it was asked for."""
    asked: list[str] = []

    def ask(path: Path, command: str, seconds: float = 30.0) -> bytes:
        del path, seconds
        asked.append(command)
        return gzip.compress((said(GUEST) + "/proc/../../escape:x\n").encode())

    monkeypatch.setattr(agent, "ask_bytes", ask)
    return asked


def said(files: Mapping[str, str]) -> str:
    return "".join(f"{path}:{line}\n" for path, text in files.items() for line in text.splitlines())


def test_the_kernel_is_told_by_the_number_of_cpus() -> None:
    four = guest_tuning.kernel_arguments("latency", PACKAGE, 4)
    assert {"isolcpus=domain,managed_irq,1-3", "nohz_full=1-3", "rcu_nocbs=1-3", "irqaffinity=0"} <= set(four)
    assert not any(each.startswith(("iommu", "intel_", "kvm")) for each in four)
    one = guest_tuning.kernel_arguments("latency", PACKAGE, 1)
    assert not any(each.startswith(("isolcpus", "nohz_full")) for each in one)


def test_what_is_not_as_it_is_wanted_is_set_by_the_agent(asked: list[str]) -> None:
    places = {step.setting.place for step in guest_tuning.tune(Path("/agent"), "latency")}
    assert "file:/proc/sys/vm/stat_interval" in places and "priority:ktimers/1" in places
    assert "file:/proc/sys/kernel/hung_task_timeout_secs" not in places
    _, done = asked
    assert "echo 120 2>/dev/null >/proc/sys/vm/stat_interval" in done
    assert "chrt -f -p 2 17" in done and "echo 0 2>/dev/null >/proc/irq/30/smp_affinity_list" in done


def test_it_is_verified_place_by_place(asked: list[str]) -> None:
    found = {each.step.setting.place: each.state for each in guest_tuning.verify(Path("/agent"), "latency")}
    assert found["argument:isolcpus"] is State.RIGHT and found["argument:nohz_full"] is State.WRONG
    assert found["file:/proc/sys/vm/stat_interval"] is State.WRONG
    assert found["file:/proc/sys/kernel/hung_task_timeout_secs"] is State.RIGHT
    assert guest_tuning.lost(guest_tuning.verify(Path("/agent"), "latency")) and len(asked) == 2
