"""CPUs as placement and tuning read them: by one reader."""

from __future__ import annotations

from pathlib import Path

from machines import machine, make

from tailrace.resources.topology import read_topology


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
