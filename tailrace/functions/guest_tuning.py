"""Tuning inside a machine, by the same knobs as the host's (`tailrace.host`): what its kernel is told at boot, what is
set once it runs, and whether that stands.

A machine's /sys and /proc come by its agent as text, and are read as those of any other machine that was copied.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Failure
from tailrace.functions import agent
from tailrace.host import tuner
from tailrace.host.journal import read_journal
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import Profile, load_profile
from tailrace.host.tuner import Checked
from tailrace.host.tuning import Step, TuningPlan, make_tuning_plan
from tailrace.host.values import KernelThreads
from tailrace.kernel.cpus import parse_list, show_list, show_mask
from tailrace.kernel.tree import Tree

PROFILES = Path(__file__).parent / "guest"
#: What of /proc and /sys the knobs of those profiles look at.
_READ = (
    "/proc/cmdline /proc/cpuinfo /proc/version /proc/irq /proc/sys/kernel /proc/sys/vm /proc/[0-9]*/comm "
    "/proc/[0-9]*/cmdline /proc/[0-9]*/stat /sys/devices/system/cpu /sys/devices/system/node "
    "/sys/devices/virtual/workqueue /sys/kernel/mm /sys/kernel/rcu_normal /sys/kernel/realtime"
)
_ALLOWED = "grep -s '^Cpus_allowed_list' /proc/[0-9]*/status"
_MOST = 8 << 20
"""Bytes of it."""
_LINE = re.compile(r"(/[^:\n]+):(.*)")
_RELEASE = re.compile(r"linux-image-([^_]+)")


def guest_profile(name: str) -> Profile:
    """A profile for machines by name: `latency`. Raises Mistake."""
    return load_profile(str(PROFILES / f"{name}.yaml"))


def kernel_arguments(profile: str, package: str, cpus: int) -> list[str]:
    """What the kernel of a machine with so many CPUs is told at its boot; `package` is Debian's of that kernel. Raises
    Mistake."""
    found = _RELEASE.match(package)
    every = show_list(range(cpus))
    files = {
        "/proc/cpuinfo": Tree().text("/proc/cpuinfo") or "",
        "/proc/sys/kernel/osrelease": found[1] if found else "",
        "/proc/cmdline": "",
        "/sys/devices/system/cpu/online": every,
        "/sys/devices/system/node/node0/cpulist": every,
    }
    for cpu in range(cpus):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        files |= {f"{topology}/thread_siblings_list": str(cpu), f"{topology}/physical_package_id": "0"}
    with _machine(files) as machine:
        plan = make_tuning_plan(machine, guest_profile(profile))
        return [f"{name}={value}" if value else name for name, value in plan.arguments()]


def tune(socket: Path, profile: str) -> list[Step]:
    """Sets in a machine that runs what its profile wants; returns what it has set. Raises Failure, Mistake."""
    with _inside(socket) as machine:
        todo = [step for step in _plan(machine, profile).steps("run") if not step.done and step.now is not None]
        threads = KernelThreads(machine.tree)
        words = [each for step in todo for each in _commands(step, threads)]
    if words:
        # What the kernel refuses for a reason of its own, `verify` shows.
        agent.ask(socket, "; ".join([*words, "true"]))
    return todo


def verify(socket: Path, profile: str) -> list[Checked]:
    """How every place of a machine stands to what its profile wants. Raises Failure, Mistake."""
    with _inside(socket) as machine:
        return tuner.verify(_plan(machine, profile), machine, read_journal(machine.tree.at("/nothing")))


def _plan(machine: Machine, profile: str) -> TuningPlan:
    return make_tuning_plan(machine, guest_profile(profile))


def _commands(step: Step, threads: KernelThreads) -> Iterator[str]:
    """What sets a place, in words of the shell there."""
    setting = step.setting
    pids = threads.then(setting.target)
    if setting.scheme == "file":
        yield f"echo {shlex.quote(setting.wanted)} 2>/dev/null >{shlex.quote(setting.target)}"
    elif setting.scheme == "thread":
        mask = show_mask(parse_list(setting.wanted)).replace(",", "")
        yield from (f"taskset -p {mask} {pid} >/dev/null 2>&1" for pid in pids)
    elif setting.scheme == "priority":
        yield from (f"chrt -f -p {setting.wanted} {pid} >/dev/null 2>&1" for pid in pids)


@contextmanager
def _inside(socket: Path) -> Iterator[Machine]:
    """A machine that runs, as it is now."""
    files: dict[str, str] = {}
    # Packed, because a serial port is slow.
    packed = agent.ask_bytes(socket, f"{{ grep -rs '' {_READ}; {_ALLOWED}; }} | gzip -c")
    for line in _unpacked(packed).splitlines():
        if found := _LINE.match(line):
            files[found[1]] = f"{files[found[1]]}\n{found[2]}" if found[1] in files else found[2]
    with _machine(files) as machine:
        yield machine


def _unpacked(packed: bytes) -> str:
    """Raises Failure."""
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, _MOST).decode(errors="replace")
    except zlib.error:
        raise Failure("the machine's agent answers with something else") from None


@contextmanager
def _machine(files: Mapping[str, str]) -> Iterator[Machine]:
    """The machine that these files of /proc and /sys are of."""
    with tempfile.TemporaryDirectory(prefix="tailrace-guest-") as folder:
        for path, text in files.items():
            file = Path(folder, path.lstrip("/"))
            if ".." in file.parts:  # a machine's words are not to be trusted
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        yield read_machine(Tree(Path(folder)))


def lost(found: Sequence[Checked]) -> bool:
    """Whether something that can be set is not as it is wanted."""
    return any(each.state is tuner.State.WRONG and not each.step.setting.optional for each in found)
