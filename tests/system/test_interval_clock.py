"""The clock of transmission time intervals, disciplined by PTP: a ptp4l that follows another over a veth pair.

Both have this host's clock, so the offset that is measured is nearly none; the servo may change its rate by a millionth
and never steps it. What the kernel knew of it before is there again afterwards.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGKILL

import pytest
from private_network import Network
from running_node import Command, needs_a_node, wait_until

from tailrace.measure.discipline import _Timex, discipline, source

pytestmark = [*needs_a_node, pytest.mark.unsanitized, pytest.mark.requires_program("ptp4l", "pmc", "setpriv")]

CONFIGURATION = """\
[global]
network_transport L2
time_stamping software
logAnnounceInterval -2
announceReceiptTimeout 3
logSyncInterval -3
logMinDelayReqInterval -3
first_step_threshold 0
step_threshold 0
max_frequency 1000
pi_proportional_const 0.1
pi_integral_const 0.05
uds_address {socket}
{more}
"""
FREQUENCY, ERRORS, STATUS = 0x0002, 0x000C, 0x0010  # <linux/timex.h>


@pytest.fixture(autouse=True)
def clock() -> Iterator[None]:
    """What the kernel knows of who disciplines it is the same afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = _Timex(modes=0)
    assert libc.adjtimex(ctypes.byref(before)) >= 0
    before.modes = FREQUENCY | ERRORS | STATUS
    if libc.adjtimex(ctypes.byref(before)) < 0:
        pytest.skip("the clock of this machine cannot be disciplined from here")
    yield
    before.modes = FREQUENCY | ERRORS | STATUS
    assert libc.adjtimex(ctypes.byref(before)) >= 0


@contextmanager
def ptp4l(network: Network, folder: Path, interface: str, more: str) -> Iterator[subprocess.Popen[bytes]]:
    file = folder / f"{interface}.cfg"
    file.write_text(CONFIGURATION.format(socket=folder / f"{interface}.sock", more=more))
    with (folder / f"{interface}.log").open("wb") as log:
        argv = [*network.within, "setpriv", "--pdeathsig", "KILL", "ptp4l", "-f", file, "-i", interface, "-m"]
        running = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def test_who_disciplines_the_clock_is_said_and_its_loss_marked(
    command: Command, network: Network, tmp_path: Path
) -> None:
    network.pair("ptp-master", "ptp-slave")
    with ExitStack() as both:
        master = both.enter_context(ptp4l(network, tmp_path, "ptp-master", "priority1 10\nfree_running 1"))
        both.enter_context(ptp4l(network, tmp_path, "ptp-slave", "slaveOnly 1"))
        wait_until(lambda: source().follows and discipline().holds, 60)
        running = command.begin("measure", "interrupts", "--tti", "--sides", "native", "--duration", "6s", "--json")
        results = command.folder / "runs"

        def notes() -> list[str]:
            for file in results.glob("*/results.json"):
                return list(json.loads(file.read_text())["notes"])
            return []

        wait_until(lambda: any("disciplined by PTP" in note for note in notes()), 60)
        master.send_signal(SIGKILL)
        said = running.communicate(timeout=120)[0]
    run = json.loads(said)
    assert run["valid"], run["reason"]
    first = next(note for note in run["notes"] if "disciplined by PTP" in note)
    assert re.search(r"by PTP \(ptp4l: master [0-9a-f.]+, offset [+-]\d+ ns\), and at most \d+ µs off", first)
    lost = [note for note in run["notes"] if "PTP was lost: ptp4l follows no master any more" in note]
    assert len(lost) == 1 and 0 < int(lost[0].split()[0]) < 60
    (native,) = [trial for trial in run["host_trials"] if trial["test"] == "interrupt-native"]
    assert native["samples"] + native["budget"]["missed"] == 6000, "what was measured is kept"
