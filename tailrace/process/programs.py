"""Where the programs are: Tailrace's own, and those of Debian's packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.process.plain import last_line

PATIENCE = 60.0
"""Seconds for a program of the system. A busy machine takes seconds for what takes a moment elsewhere."""
_FOLDERS = {
    "tailrace-switch": "switch",
    "tailrace-vnf": "functions",
    "tailrace-tester": "tester",
    "tailrace-recorder": "recorder",
    "tailrace-interrupts": "interrupts",
    "tailrace-interrupt-receiver": "interrupts",
    "tailrace-priority": "priority",
    "tailrace-priority-agent": "priority",
    "tailrace-core-to-core": "bench",
    "tailrace-floor": "bench",
    "tailrace-function-cost": "bench",
    "tailrace-function-cores": "bench",
    "tailrace-wake": "bench",
    "tailrace-tap-guest": "bench",
    "tailrace-circulate": "bench",
    "tailrace-requests": "bench",
}
_PACKAGES = {
    "bwrap": "bubblewrap",
    "netdata": "--no-install-recommends netdata",
    "ip": "iproute2",
    "ethtool": "ethtool",
    "cyclictest": "rt-tests",
    "pmc": "linuxptp",
    "oslat": "rt-tests",
    "qemu-system-x86_64": "qemu-system-x86",
    "virtlogd": "libvirt-daemon-system",
    "libvirtd": "libvirt-daemon-system",
    "virsh": "libvirt-clients",
    "podman": "podman runc",
    "qemu-img": "qemu-utils",
    "qemu-io": "qemu-utils",
    "mformat": "mtools",
    "mcopy": "mtools",
    "syslinux": "syslinux",
    "chrt": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
}


def own_program(name: str) -> Path:
    """The path of one of Tailrace's own programs.

    Looked for in $TAILRACE_BINARIES, then in the source tree's build/, then beside the installed command.
    """
    folder = _FOLDERS[name]
    chosen = os.environ.get("TAILRACE_BINARIES")
    places: list[Path] = []
    if chosen:
        places += [Path(chosen) / name, Path(chosen) / folder / name]
    else:
        places.append(Path(__file__).resolve().parents[2] / "build" / folder / name)
        places.append(Path(sys.argv[0]).resolve().parent.parent / "libexec" / "tailrace" / name)
        places.append(Path(sys.prefix) / "libexec" / "tailrace" / name)
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place.resolve()
    where = f"in TAILRACE_BINARIES={chosen}" if chosen else f"at {places[0]}"
    raise Mistake(f"{name} is not built ({where} there is none); build it with `make setup`")


def portable_program(name: str) -> Path:
    """The path of one of Tailrace's own programs that runs on any x86-64 with SSE 4.2, as in a machine whose CPU is not
    this one's: from the source tree's build-guest/, or from beside the installed command."""
    places = [
        Path(__file__).resolve().parents[2] / "build-guest" / _FOLDERS[name] / name,
        Path(sys.prefix).parent / "portable" / name,
    ]
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise Mistake(f"{name} is not built for machines (there is none at {places[0]}); run `scripts/setup machines`")


def find_system_program(name: str) -> str | None:
    """The path of a program of the system; None where it is missing."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def system_program(name: str) -> str:
    """The path of a program of the system; where it is missing, the package to install is named."""
    found = find_system_program(name)
    if found is None:
        package = _PACKAGES.get(name, name)
        raise Mistake(f"{name} is missing; install it with `sudo apt-get install {package}`")
    return found


class Late(Failure):
    """A program of the system has not ended in its time."""


def podman(*words: str, seconds: float = PATIENCE) -> str:
    """What podman prints. Raises Failure with its last words, also where it takes longer."""
    return _printed([system_program("podman"), *words], seconds)


def run_system(name: str, *words: str, namespace: str | None = None) -> str:
    """What a program of the system prints, run in a network namespace if one is named. Raises Failure with its last
    words, Late where it takes a minute."""
    prefix = [system_program("ip"), "netns", "exec", namespace] if namespace else []
    return _printed([*prefix, system_program(name), *words], PATIENCE)


def finished(
    command: Sequence[str],
    seconds: float = PATIENCE,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    told: str = "",
) -> subprocess.CompletedProcess[str]:
    """How a program of the system ended that reads what it is `told`, and what it printed: U+FFFD for what is no text.
    Raises Late where it takes longer."""
    try:
        return subprocess.run(
            command,
            input=told,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            cwd=folder,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Late(f"{' '.join(command)}: not done within {seconds:g} s") from None


def _printed(command: Sequence[str], seconds: float) -> str:
    done = finished(command, seconds)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {last_line(done.stderr)}")
    return done.stdout
