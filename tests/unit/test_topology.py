"""CPUs as placement and tuning read them: by one reader."""

from __future__ import annotations

from pathlib import Path

from machines import machine, make

from tailrace.resources.topology import available_mib, read_topology


def test_cpus_say_where_they_sit_and_what_they_are(tmp_path: Path) -> None:
    tree = machine(tmp_path, nodes=2, cores=2, threads=2)
    speeds = {cpu: 3000 if cpu % 4 < 3 else 2000 for cpu in range(8)}
    make(
        tmp_path,
        {
            "/sys/devices/system/cpu/isolated": "2-3,6-7",
            "/sys/devices/system/cpu/online": "0-6",
            **{f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity": str(speed) for cpu, speed in speeds.items()},
        },
    )
    found = read_topology(tree)
    assert [cpu.core for cpu in found.cpus] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [cpu.node for cpu in found.cpus] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [cpu.number for cpu in found.cpus if cpu.isolated] == [2, 3, 6, 7]
    assert found.online == tuple(range(7))
    assert found.slow == (3,)


def test_what_is_left_of_a_nodes_memory_is_what_is_free_and_what_the_kernel_gives_up(tmp_path: Path) -> None:
    tree = machine(tmp_path, nodes=2)
    for node, free in ((0, 8192), (1, 64)):
        kib = {"MemTotal": 16384, "MemFree": free, "Active": 900, "Inactive": 900, "Active(anon)": 500}
        kib |= {"Inactive(anon)": 300, "Active(file)": 40, "Inactive(file)": 20, "SReclaimable": 4, "SUnreclaim": 80}
        lines = [f"Node {node} {key}:  {mib << 10} kB" for key, mib in kib.items()]
        make(tmp_path, {f"/sys/devices/system/node/node{node}/meminfo": "\n".join(lines)})
    assert available_mib(tree) == {0: 8256, 1: 128}


def test_of_one_node_the_kernel_says_what_is_left(tmp_path: Path) -> None:
    tree = machine(tmp_path)
    make(tmp_path, {"/proc/meminfo": "MemTotal:  16777216 kB\nMemFree:   1048576 kB\nMemAvailable:  4194304 kB"})
    assert available_mib(tree) == {0: 4096}
