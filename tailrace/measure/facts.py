"""What this machine is: everything that a reader needs to judge a figure measured on it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tailrace import __version__
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree
from tailrace.resources import hugepages
from tailrace.resources.topology import Topology, read_topology


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def _number(path: str | Path) -> int | None:
    text = _read(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _cpu(topology: Topology) -> dict[str, Any]:
    text = _read("/proc/cpuinfo") or ""
    first = text.split("\n\n", 1)[0]
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines()) if value
    }
    flags = set(fields.get("flags", "").split())
    base = Path("/sys/devices/system/cpu")
    online = topology.online
    cores = {cpu.core for cpu in topology.cpus if cpu.online}
    caches = {}
    for index in sorted(base.glob("cpu0/cache/index[0-9]*")):
        level, kind, size = _read(index / "level"), _read(index / "type"), _read(index / "size")
        if kind != "Instruction":
            caches[f"L{level}"] = size
    return {
        "model": fields.get("model name", platform.processor() or "unknown"),
        "vendor": fields.get("vendor_id"),
        "microcode": fields.get("microcode"),
        "online": len(online),
        "allowed": sorted(os.sched_getaffinity(0)),
        "cores": len(cores),
        "threads_per_core": round(len(online) / max(len(cores), 1)),
        "caches": caches,
        "mhz_now": fields.get("cpu MHz"),
        "governor": _read(base / "cpu0/cpufreq/scaling_governor"),
        "driver": _read(base / "cpu0/cpufreq/scaling_driver"),
        "idle_driver": _read(base / "cpuidle/current_driver"),
        "isolated": _read(base / "isolated"),
        "nohz_full": _read(base / "nohz_full"),
        "tsc_constant": "constant_tsc" in flags,
        "tsc_invariant": "nonstop_tsc" in flags,
        "virtualized": "hypervisor" in flags,
        "avx512": "avx512f" in flags,
        "vulnerabilities": {
            path.name: _read(path) for path in sorted((base / "vulnerabilities").glob("*")) if path.is_file()
        },
    }


def _numa(topology: Topology) -> list[dict[str, Any]]:
    return [
        {
            "node": node.number,
            "cpus": show_list(node.cpus),
            "memory_mib": node.memory_mib or None,
            "distances": " ".join(map(str, node.distances)) or None,
        }
        for node in topology.nodes
    ]


def _memory(topology: Topology) -> dict[str, Any]:
    text = _read("/proc/meminfo") or ""
    values = {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in text.splitlines())}
    pool = hugepages.pool()
    return {
        "total_mib": values.get("MemTotal", 0) // 1024,
        "available_mib": values.get("MemAvailable", 0) // 1024,
        "hugepages_2mib": {"total": pool.total, "free": pool.free},
        "hugepages_1gib": sum(pool.total for pool in large) if (large := topology.pools(1 << 20)) else None,
        "transparent": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _kernel() -> dict[str, Any]:
    return {
        "release": platform.release(),
        "version": platform.version(),
        "command_line": _read("/proc/cmdline"),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "preemption": _read("/sys/kernel/debug/sched/preempt")
        or ("rt" if _read("/sys/kernel/realtime") == "1" else None),
        "sched_rt_runtime_us": _number("/proc/sys/kernel/sched_rt_runtime_us"),
        "timer_migration": _number("/proc/sys/kernel/timer_migration"),
        "nmi_watchdog": _number("/proc/sys/kernel/nmi_watchdog"),
        "numa_balancing": _number("/proc/sys/kernel/numa_balancing"),
    }


def _system() -> dict[str, Any]:
    text = _read("/etc/os-release") or ""
    release = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {
        "name": platform.node() or None,
        "distribution": release.get("PRETTY_NAME", "unknown").strip('"'),
        "product": _read("/sys/class/dmi/id/product_name"),
        "vendor": _read("/sys/class/dmi/id/sys_vendor"),
        "firmware": _read("/sys/class/dmi/id/bios_version"),
        "load": [round(value, 2) for value in os.getloadavg()],
        "root": os.geteuid() == 0,
    }


def host_facts() -> dict[str, Any]:
    """The machine as plain data for host.json; a fact that cannot be found is null."""
    machine = read_topology(Tree())
    return {
        "system": _system(),
        "cpu": _cpu(machine),
        "numa": _numa(machine),
        "memory": _memory(machine),
        "kernel": _kernel(),
    }


def tool_versions() -> dict[str, str]:
    """Versions of Tailrace and of the programs that it stands on."""
    versions = {"tailrace": __version__, "python": platform.python_version(), "kernel": platform.release()}
    bwrap = shutil.which("bwrap")
    if bwrap:
        done = subprocess.run([bwrap, "--version"], capture_output=True, text=True, timeout=10, check=False)
        versions["bubblewrap"] = done.stdout.strip().removeprefix("bubblewrap ")
    return versions
