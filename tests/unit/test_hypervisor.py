"""What is known of a machine's process."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace.errors import Failure
from tailrace.functions.machine import InMachine
from tailrace.process import hypervisor
from tailrace.process.hypervisor import vcpu_thread
from tailrace.state.record import Process


@pytest.mark.parametrize(("name", "found"), [("CPU 0/KVM", True), ("ALL CPUs/TCG", True), ("CPU 1/KVM", False)])
def test_the_thread_of_a_machines_first_cpu_is_known_by_its_name(name: str, found: bool) -> None:
    ended, named = threading.Event(), threading.Event()

    def run() -> None:
        Path("/proc/thread-self/comm").write_text(name)
        named.set()
        ended.wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        named.wait()
        with nullcontext() if found else pytest.raises(Failure, match="no thread of it"):
            assert vcpu_thread(os.getpid()) == thread.native_id
    finally:
        ended.set()
        thread.join()
    deadline = time.monotonic() + 60
    while Path(f"/proc/self/task/{thread.native_id}").exists():  # for Linux it ends a moment after that
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(Failure, match="no thread of it"):
        vcpu_thread(os.getpid())


def test_a_machine_that_stands_still_is_not_as_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for libvirt, which has numbers for states."""
    numbers = {"VIR_DOMAIN_PAUSED": 3, "VIR_DOMAIN_PAUSED_USER": 1, "VIR_DOMAIN_PAUSED_IOERROR": 5}
    state: list[int] = []
    domain = SimpleNamespace(state=lambda: state, XMLDesc=lambda: "<domain/>")
    monkeypatch.setattr(hypervisor, "library", lambda: SimpleNamespace(libvirtError=OSError, **numbers))
    monkeypatch.setattr(hypervisor, "connect", lambda: SimpleNamespace(lookupByName=lambda _: domain))
    (tmp_path / "fw.xml").write_text("<domain/>")
    process = Process("fw", 1, 1, "qemu", runtime="machine", outside="tailrace-fw")
    for state[:], why in (([1, 1], None), ([3, 1], "suspended"), ([3, 5], "its disk has an error"), ([3, 2], None)):
        said = InMachine().unlike(process, tmp_path)
        assert said == [] if why is None else f"it stands still: {why}" in said[0]


def test_a_machine_that_a_killed_command_has_left_standing_still_goes_on(tmp_path: Path) -> None:
    """When libvirt has saved it, and not before. With a stand-in for virsh, which refuses twice."""
    virsh = tmp_path / "virsh"
    virsh.write_text(
        """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >>said
case "$3" in
domstate) [ -e runs ] && echo running || echo paused ;;
resume) [ "$(grep -c resume said)" -lt 3 ] || : >runs; [ -e runs ] ;;
esac
"""
    )
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    for each in tmp_path.iterdir():
        each.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["/bin/sh", "-c", hypervisor._RESUME, "sh", virsh, "qemu:///system", "a machine"]
    for calls in (6, 7):  # again: it runs
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=60)
        said = (tmp_path / "said").read_text().splitlines()
        assert len(said) == calls and said[-1].endswith("a machine")
