"""What is known of a machine's process."""

from __future__ import annotations

import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tailrace.errors import Failure
from tailrace.process.hypervisor import vcpu_thread


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
