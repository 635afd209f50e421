"""Programs as transient services of systemd's, where that is the first process: in our slice, each with its limits, and
with its output in the journal as well as in its log.

systemd sets the limits, keeps the unit for as long as a process of it runs, and forgets it then (--collect). It starts
none again: that is the node's. What it starts is the log's writer (`tailrace.process.log_writer`), which becomes the
program.
Sources: systemd-run(1), systemd.exec(5), systemd.kill(5), systemd.resource-control(5).
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process import log_writer
from tailrace.process.plain import plain
from tailrace.process.process import Limits, ProcessId, identify
from tailrace.process.programs import system_program
from tailrace.process.systemd import CGROUP, OWN, run_systemctl, systemd_run

_PATIENCE = 30.0
"""Seconds in which systemd has started a unit."""
_STOP_SECONDS = 10.0
"""In which a unit has ended that is told to: more than TimeoutStopSec below."""
_WRITER_BYTES = 16 << 20
"""Room in a unit's memory for the log's writer."""
_PLACES = ("root", "ns/mnt", "ns/net", "ns/pid")
"""What a process of systemd's has of systemd, below /proc/PID."""
_ALWAYS = {
    "Type": "exec",  # what cannot be started is reported at once
    "Before": "tailraced.service",  # at a shutdown the service ends first, and so starts nothing again
    "OOMPolicy": "continue",  # what ends is for the service to look after
    "TimeoutStopSec": "5s",
    "LimitCORE": "0",
}


def available() -> bool:
    """Whether programs can be units: systemd can be asked, and what it starts is where this process is."""
    if systemd_run() is None:
        return False
    try:
        return all(Path(f"/proc/self/{each}").samefile(f"/proc/1/{each}") for each in _PLACES)
    except OSError:
        return False


def slice_name() -> str | None:
    """The slice that all of ours is in, also what podman and libvirt start; None where programs cannot be units."""
    return OWN if available() else None


def unit_name(of: str) -> str:
    """The name of a new unit; none is used twice, since one that has just ended may still be there."""
    return f"tailrace-{re.sub('[^A-Za-z0-9_.-]', '_', of)}-{secrets.token_hex(4)}.service"


def start(
    unit: str, name: str, argv: Sequence[str], *, log: Path, limit: int, limits: Limits, keep: Iterable[int]
) -> ProcessId | None:
    """Starts a program as this unit; returns its name, or None if it has ended already.

    Its output is written to `log`, which is bounded by `limit`. `keep` are descriptors of files, which it has open by
    the same numbers. Raises Failure.
    """
    program = systemd_run()
    if program is None:
        raise Failure(f"{name}: systemd cannot be asked any more to start it; see `systemctl status`")
    words = [program, "--quiet", "--collect", f"--slice={OWN}", f"--unit={unit}", f"--description=Tailrace: {name}"]
    properties = {**_ALWAYS, "SyslogIdentifier": f"tailrace-{name}", **dict(_properties(limits))}
    words += [f"--property={key}={value}" for key, value in properties.items()]
    words += [f"--setenv={key}={value}" for key, value in limits.environment.items()]
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    words += ["--", sys.executable, "-I", "-S", log_writer.__file__, str(log), str(limit), cpus, *map(_kept, keep)]
    if limits.groups:  # by number, which systemd (SupplementaryGroups=) takes of groups with a name only
        groups = sorted({*os.getgroups(), *limits.groups})
        argv = [system_program("setpriv"), "--groups", ",".join(map(str, groups)), "--", *argv]
    # systemd puts values of the environment in the place of $NAME.
    words += ["--", *(word.replace("$", "$$") for word in argv)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            raise OSError(plain(said[0]) if said else f"systemd-run ended with status {done.returncode}")
        pid = int(run_systemctl("show", "--property=MainPID", "--value", unit))
    except subprocess.TimeoutExpired:
        late = f"systemd has not started {unit} within {_PATIENCE:g} s"
        raise Failure(f"{name}: {late}; see `systemctl list-jobs`") from None
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise Failure(f"{name}: systemd does not start it: {why}; see `journalctl --unit={unit}`") from None
    return identify(pid) if pid else None


def _properties(limits: Limits) -> Iterator[tuple[str, str]]:
    if limits.cpus:
        yield "CPUAffinity", ",".join(map(str, limits.cpus))
    if limits.nice:
        yield "Nice", str(limits.nice)
    if limits.memory_bytes is not None:
        yield "MemoryMax", str(limits.memory_bytes + _WRITER_BYTES)
        yield "MemorySwapMax", "0"
    if limits.data_bytes is not None:
        yield "LimitDATA", str(limits.data_bytes)
    if limits.locked_bytes is not None:
        yield "LimitMEMLOCK", str(limits.locked_bytes)
    if limits.umask is not None:
        yield "UMask", f"{limits.umask:04o}"
    if limits.network is not None:
        yield "NetworkNamespacePath", f"/run/netns/{limits.network}"


def _kept(descriptor: int) -> str:
    """How the file of a descriptor is opened again: its number, flags and path."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND)
    return f"{descriptor}:{flags}:{Path(f'/proc/self/fd/{descriptor}').readlink()}"


def stop(unit: str) -> str | None:
    """Ends what is left of a unit; doing so again is harmless. Returns why it could not, or None."""
    try:
        # Not waiting for the job: while the service itself is being stopped, that waits for its end (Before=).
        run_systemctl("stop", "--no-block", unit)
    except OSError as error:
        said = error.strerror or ""
        return None if "not loaded" in said or "not found" in said else said
    return None if wait_until_empty(unit, _STOP_SECONDS) else "it does not end"


def wait_until_empty(unit: str, seconds: float) -> bool:
    """Returns when no process of a unit is left, or after so many seconds; whether none is."""
    group = Path(f"{CGROUP}/{OWN}/{unit}")
    deadline = time.monotonic() + seconds
    while group.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not group.exists()
