"""A function in an OCI container, which podman starts and an operator's podman sees.

It has no network but the sockets of its ports, no capabilities, a root that it cannot write to, podman's filter of
system calls, and limits for memory, processes and its log. What ends is started again by the node, not by podman.
Sources: podman-run(1), OCI runtime specification 1.0 (config-linux.md).
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.functions.images import architecture, container_image, podman_has
from tailrace.functions.limit import UNGROUPED
from tailrace.functions.names import outer_name
from tailrace.functions.process import TUN, inside
from tailrace.functions.program import BUFFERS_MIB, NAME, function_command, refuses_cpus, wait_until_ready
from tailrace.functions.rootless import limited, rootless_lacks
from tailrace.functions.runtime import Instance, Started, Starter
from tailrace.process import units
from tailrace.process.plain import last_line
from tailrace.process.process import identify, set_real_time
from tailrace.process.programs import own_program, podman, system_program
from tailrace.resources.place import Place
from tailrace.state.keeper import keep
from tailrace.state.launch import LOG_BYTES, Launcher
from tailrace.state.record import Container, Process

_PROCESSES = 64
"""At most, in one container; a function has some ten threads."""
_FILES = 1024
_THREADS = 4096
"""Of all containers together, which are one user's."""
_NOBODY = 65534
_ALL = frozenset({"memory", "pids", "cpuset"})
"""Controllers that a container's limits are of."""
_SECONDS = 60.0
"""In which podman has started a container on a busy machine."""
_NOTED_SECONDS = 5.0
"""In which podman's monitor has noted how a container ended; one of which it has not is taken to have failed."""
_NOTED_EVERY = "20ms"
"""How often podman looks whether it has."""
_HUGE = Path("/sys/kernel/mm/hugepages")
_ITS_SIZE = _HUGE / "hugepages-2048kB"
"""Of other sizes DPDK would take what is free, somebody else's."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Those of images (OCI image specification, config.md) by the kernel's word for this host's."""
_CPU_GROUP = re.compile(r"^\d+:(?:\S+,)?cpu(?:,\S+)?:(/.*)$", re.MULTILINE)


class InContainer(Starter):
    """The runtime of OCI images."""

    name = "container"
    listens = True
    hands_over = True
    threads = True
    buffers_mib = BUFFERS_MIB
    patience = 30.0

    def refuses_cpus(self, kind: str | None, start: int, most: int) -> str | None:
        return super().refuses_cpus(kind, start, most) or refuses_cpus(kind, most)

    def check(self) -> None:
        own_program(NAME)
        system_program("podman")
        lacks = rootless_lacks() if os.geteuid() != 0 else None
        if lacks is not None:
            raise Mistake(f"{lacks}; or run as root, or use `runs: process`")

    def check_image(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        del kind, settings
        _check_image(image)

    def start(self, launcher: Launcher, instance: Instance) -> Started:
        image = _image(instance)
        container = Container(outer_name(launcher.state.folder, instance.name), instance.name)
        launcher.state.add(container)
        container.undo()  # one of that name which a record that was lost has left
        log = launcher.log_begins(instance.name)
        if launcher.tied:
            keep(launcher.state, instance.name, container.removal())
        size = self.ordinary_bytes(instance.memory_bytes, instance.tables_mib, huge=instance.huge)
        pid = _run_from(image, lambda image: _options(container.name, log, instance, image, size), instance)
        process = identify(pid)
        if process is None:
            raise launcher.failure(instance.name, f"{instance.name} has ended at its start")
        recorded = Process(instance.name, process.pid, process.start, NAME, runtime=self.name, outside=container.name)
        launcher.state.add(recorded)
        return Started(recorded, () if "memory" in _limited() else [UNGROUPED])

    def wait(self, launcher: Launcher, process: Process, place: Place, deadline: float, *, says: bool = True) -> None:
        if not says:  # and nobody knows whether it ever sleeps: at a real-time priority it might keep all others out
            return
        wait_until_ready(launcher, process, deadline)
        if place.priority is not None:
            _leave_cpu_group(process.pid)
            set_real_time(process.pid, place.priority)

    def program(self, process: Process) -> int | None:
        return process.pid if process.id.alive() else None

    def beside(self, process: Process, words: Sequence[str]) -> list[str]:
        return [system_program("podman"), "exec", process.outside, *words]

    def ended_well(self, process: Process, logs: Path) -> bool:
        """Its end is known here before podman's monitor (conmon) has noted how it ended. Until then podman says of it
        that it runs, with status 0, so that is waited for."""
        del logs
        try:
            return podman("wait", "--interval", _NOTED_EVERY, process.outside, seconds=_NOTED_SECONDS).strip() == "0"
        except (Failure, Mistake, OSError):
            return False


def _options(name: str, log: Path, instance: Instance, image: str, size: int) -> list[str]:
    """The words of `podman run` that follow its own name, but for where its pid goes; `size`: bytes of memory."""
    words = ["--detach", "--name", name, "--hostname", name, "--label", "tailrace.function=" + instance.name]
    network = ["none"] if instance.network is None else [f"ns:/run/netns/{instance.network}", "--device", TUN]
    words += ["--network", *network, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"]
    words += ["--tmpfs", "/tmp:rw,size=1m,mode=1777", "--tmpfs", "/run:rw,size=1m,mode=755"]
    words += ["--security-opt", "no-new-privileges"]
    if _ITS_SIZE.exists():
        words += ["--mount", f"type=tmpfs,destination={_HUGE},tmpfs-size=1m,notmpcopyup"]
        words += ["--volume", f"{_ITS_SIZE}:{_ITS_SIZE}:ro"]
    words += [*_as_nobody(instance), "--umask", "0000"]
    words += _in_slice()
    words += _limits(size, ",".join(map(str, instance.place.cpus)))
    if not instance.kind:
        words += [f"--env={name}={value}" for name, value in _environment(instance).items()]
    words += ["--log-driver", "k8s-file", "--log-opt", f"path={log}", "--log-opt", f"max-size={LOG_BYTES >> 20}mb"]
    seen = [_mounted(uri, number) for number, uri in enumerate(instance.ports)]
    for _, volume in seen:
        words += volume
    arguments = function_command(NAME, instance, [uri for uri, _ in seen])[1:] if instance.kind else []
    return [*words, image, *arguments]


def _as_nobody(instance: Instance) -> list[str]:
    """The words that have it be nobody inside. Of an ordinary user's container that is this user, in whose folders it
    makes its sockets."""
    if os.geteuid() == 0:
        return ["--user", f"{_NOBODY}:{instance.group}"]
    return ["--userns", f"keep-id:uid={_NOBODY},gid={_NOBODY}", "--user", f"{_NOBODY}:{_NOBODY}"]


def _limits(size: int, cpus: str) -> list[str]:
    """The words that limit it to so much memory and to these CPUs, as far as podman can. A process's own limits
    hold everywhere, and it inherits its CPUs."""
    by, words = _limited(), []
    words += (
        ["--memory", str(size), "--memory-swap", str(size)] if "memory" in by else ["--ulimit", f"data={size}:{size}"]
    )
    words += ["--pids-limit", str(_PROCESSES)] if "pids" in by else []
    words += ["--cpuset-cpus", cpus] if "cpuset" in by else []
    # Podman's own defaults may be above what this process itself may have, and give. Where the user's own processes
    # count too, how many containers have is not known.
    limits = [("nofile", _FILES), ("core", 0), *([("nproc", _THREADS)] if os.geteuid() == 0 else [])]
    for kind, most in limits:
        words += ["--ulimit", f"{kind}={most}:{most}"]
    return words


@cache
def _limited() -> frozenset[str]:
    """The controllers by which podman limits containers here: root's by all that there are."""
    return _ALL if os.geteuid() == 0 else limited()


@cache
def _in_slice() -> list[str]:
    """The words that put a container into our slice, where that is and podman leaves cgroups to systemd."""
    own = units.slice_name()
    if own is None or podman("info", "--format", "{{.Host.CgroupManager}}").strip() != "systemd":
        return []
    return ["--cgroup-parent", own]


def _image(instance: Instance) -> str:
    """The image that an instance starts from. Raises Mistake where podman has it not."""
    if instance.image is None:
        return container_image()
    try:
        _check_image(instance.image)
    except Mistake as mistake:
        raise Mistake(f"functions.{instance.name}.image: {mistake}") from None
    return instance.image


def _check_image(image: str) -> None:
    if not podman_has(image):
        raise Mistake(
            f"podman has no image {image}; `podman pull {image}` gets it, `podman images` shows those that are there"
        )
    its, ours = architecture(image), _ARCHITECTURES.get(platform.machine())
    if ours is not None and its not in ("", ours):
        cure = f"`podman pull --arch {ours} {image}` gets another"
        raise Mistake(f"{image} is for {its}, and this host is {ours}; {cure}")


def _environment(instance: Instance) -> dict[str, str]:
    """What a program of somebody else's is told: where it listens, and how it is to run."""
    told = {f"TAILRACE_PORT_{number}": f"/run/port{number}/sock" for number in range(len(instance.ports))}
    told |= {"TAILRACE_PORTS": str(len(instance.ports)), "TAILRACE_CORE": str(instance.place.core)}
    told["TAILRACE_CORES"] = ",".join(map(str, instance.place.cores))
    return told | {"TAILRACE_MODE": instance.place.mode, "TAILRACE_HUGE": str(int(instance.huge))}


def _mounted(uri: str, number: int) -> tuple[str, list[str]]:
    """A port's URI in the container, and the words that let it see the folder of its socket."""
    within, words = inside(uri, number)
    return within, ["--volume", f"{words[1]}:{words[2]}"] if words else []


def _run_from(image: str, options: Callable[[str], Sequence[str]], instance: Instance) -> int:
    """Starts a container from an image, with the options for one; Tailrace's own is made again where somebody has
    removed it since it was looked for. Returns the pid of its first process. Raises Failure, Mistake."""
    try:
        return _run(options(image), instance)
    except Failure:
        if instance.image is not None or podman_has(image):
            raise
    return _run(options(container_image()), instance)


def _run(options: Sequence[str], instance: Instance) -> int:
    """Starts a container; returns the pid of its first process. Raises Failure.

    Niceness and CPUs are inherited, from before it is in a cgroup.
    """
    cpus = ",".join(map(str, instance.place.cpus))
    before = [system_program("taskset"), "--cpu-list", cpus]
    if instance.place.nice and os.geteuid() == 0:
        before += [system_program("nice"), "-n", str(instance.place.nice)]
    words = [*before, system_program("podman"), "run", *options]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{instance.name}: podman has not started it within {_SECONDS:g} s") from None
    if done.returncode != 0:
        code = done.returncode
        how = f"it was killed by signal {-code}" if code < 0 else f"it ended with status {code}"
        raise Failure(f"{instance.name}: podman does not start it: {last_line(done.stderr, how)}")
    pid = podman("container", "inspect", "--format", "{{.State.Pid}}", done.stdout.strip())
    _share_no_session(int(pid))
    return int(pid)


def _share_no_session(pid: int) -> None:
    """Where the kernel shares time among sessions first (sched_autogroup), only this is heard by the others."""
    with suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text(str(os.getpriority(os.PRIO_PROCESS, pid)))


def _leave_cpu_group(pid: int) -> None:
    """Takes a process to this one's own cgroup of the cpu controller: under cgroup v1 a kernel with
    CONFIG_RT_GROUP_SCHED grants no real-time priority in one that has no share of its own
    (Documentation/scheduler/sched-rt-group.rst)."""
    with suppress(OSError):
        own = _CPU_GROUP.search(Path("/proc/self/cgroup").read_text())
        if own is not None:
            Path(f"/sys/fs/cgroup/cpu{own[1]}/cgroup.procs").write_text(str(pid))
