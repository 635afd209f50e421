"""Cores that a worker of another switch has, as its name in the kernel's space of sockets says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tailrace.resources.claims import Worker, holder, taken, workers

CORE = 1_000_000 + 2 * os.getpid()
"""No machine has it, or the one after it; and no other process that runs these tests, whose pid may be the next."""


@pytest.fixture
def claim() -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
        held.bind(f"\0tailrace-worker-on-core-{CORE}")
        held.listen(socket.SOMAXCONN)
        yield


def test_a_core_that_nobody_has_is_free() -> None:
    assert holder(CORE) is None
    assert taken([CORE, CORE + 1]) is None


@pytest.mark.usefixtures("claim")
def test_who_has_a_core_is_reported_however_often_it_is_asked() -> None:
    for _ in range(200):
        assert holder(CORE) == os.getpid()
    said = taken([CORE + 1, CORE])
    assert said is not None
    assert said.startswith(f"core {CORE} is taken by a worker of another switch (process {os.getpid()})")


@pytest.mark.usefixtures("claim")
def test_ones_own_workers_are_no_others() -> None:
    assert workers([CORE, CORE + 1]) == {CORE: Worker(os.getpid())}
    assert workers([CORE, CORE + 1], own={CORE}) == {}


@pytest.mark.requires_root
def test_somebody_elses_word_does_not_count() -> None:
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('\\0tailrace-worker-on-core-' + sys.argv[1]); "
        "s.listen(); print('taken', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(CORE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=65534
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
        assert holder(CORE) is None
        other.communicate(b"\n", timeout=60)
