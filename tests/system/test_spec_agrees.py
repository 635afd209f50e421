"""What a dry run accepts, `up` accepts: both ask the switch's own reader, and a spec's own checks leave it little."""

from __future__ import annotations

import copy
import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from running_node import Command

from tailrace.plan.make import make_plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError
from tailrace.switch.config import configuration

#: What only the switch knows of a spec, and where that stands in it.
REFUSED = {
    "many matches": (
        "ports: {a: , b: , c: }\nchains:\n  x:\n    path: [a, b]\n    match: ["
        + ", ".join(f"{{vlan: {number}}}" for number in range(65))
        + "]\n  rest: [a, c]\n",
        "5:5: chains.x.match: more than 64 alternatives",
    ),
    "many bridges": (
        "ports:\n" + "".join(f"  p{number}:\n" for number in range(130)) + "bridges:\n"
        + "".join(f"  b{number}: [p{2 * number}, p{2 * number + 1}]\n" for number in range(65)),
        "bridges: 65 of them; the most is 64",
    ),
    "a memif that is no path": (
        "ports:\n  a: {memif: x}\n  b:\nchains: {v: [a, b]}\n",
        "2:3: ports.a.device: memif:x: ",
    ),
    "a memif with an unknown word": (
        "ports: {b: }\nchains:\n  v: [{memif: '/run/m,rule=server'}, b]\n",
        "memif:/run/m,rule=server: 'rule=server' is unknown",
    ),
    "a back end with a comma in its path": (
        "ports:\n  a: {vhost: '/run/a,b'}\n  b:\nchains: {v: [a, b]}\n",
        "2:3: ports.a.device: vhost:/run/a,b: the path must not contain a comma",
    ),
    "three capture files": (
        "ports:\n  a: {pcap: 'a,b,c'}\n  b:\nchains: {v: [a, b]}\n",
        "2:3: ports.a.device: pcap:a,b,c",
    ),
    "a virtual device with a long name": (
        f"ports:\n  a: {{vdev: '{'n' * 64}'}}\n  b:\nchains: {{v: [a, b]}}\n",
        "2:3: ports.a.device: vdev:nnn",
    ),
    "too little memory": (
        "fabric: {memory: 64MiB}\nports:\n  a: {if: lo, queues: 16}\n  b:\nchains: {v: [a, b]}\n",
        "3:3: ports.a: packet buffers take",
    ),
    # And what a spec's own checks know.
    "a zone": (
        "ports: {a: , b: , c: }\nchains:\n  x: {path: [a, b], match: {source: fe80::1%eth0}}\n  rest: [a, c]\n",
        "3:37: chains.x.match.source: 'fe80::1%eth0' names a zone",
    ),
}  # fmt: skip


@pytest.mark.unsanitized
@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.requires_root
@pytest.mark.requires_program("tailrace-switch")
def test_a_dry_run_and_up_refuse_the_same_in_the_same_words(command: Command, case: str) -> None:
    text, said = REFUSED[case]
    spec = command.spec(text)
    words = [command(*options, spec, status=2).stderr for options in (("up", "--dry-run"), ("up",), ("plan",))]
    assert words[0].startswith(f"tailrace: {spec}:"), words[0]
    assert said in words[0]
    assert words[1] == words[2] == words[0]
    assert command.status()["state"] == "down"


BASE = {
    "fabric": {"workers": 2, "pins": {"wan/1": 1, "fw.0/0": 0}},
    "ports": {
        "wan": {"if": "veth0", "queues": 2, "rate": {"max": "1Gbps", "packets": "1Mpps", "share": 2, "to": "1Mbps"}},
        "lan": {"path": "/run/lan.sock", "socket": {"mode": "0660"}, "memory": "1GiB", "offloads": False},
        "vm": {"path": "/run/vm.sock", "mode": "client"},
        "probe": None,
        "spare": None,
        "fw.0": {"queues": 2},
    },
    "functions": {
        "fw": {"kind": "skeleton", "replicas": {"1": "active", "2": "draining"}, "pin": "flow", "ageing": "90s"},
        "nat": "skeleton",
        "box": "guest",
        "idle": "guest",
    },
    "chains": {
        "v": {"path": ["tester.a", "fw", "wan"], "match": [{"vlan": 10}, {"source": "10.0.0.0/8"}], "priority": 3},
        "w": {"path": ["tester.a", "fw", "nat", "tester.b"], "match": {"protocol": "udp", "source_port": [1, 9]}},
        "rest": ["tester.a", "nat", {"tap": "tr0"}],
    },
    "bridges": {"lan-1": {"ports": {"lan": {"access": 10}, "vm": {"trunk": [10, 20], "native": 5}, "box.0": None}}},
    "mirrors": {"m": {"chain": "v", "direction": "in", "to": "probe"}},
    "trace": 512,
}
NAMES = ["lan", "vm", "probe", "spare", "wan", "tester.a", "tester.b", "fw.0", "nat.1", "box.1", "idle.0", "fw-2.0"]
PREFIXES = [
    "10.0.0.1", "0.0.0.0/0", "10.0.0.0/255.0.0.0", "10.0.0.0/0.255.255.255", "::/0", "2001:db8::/32",
    "::ffff:1.2.3.4", "fe80::1%eth0", "fe80::%1/64", "1:2:3:4:5:6:7.8.9.10", "010.1.1.1", "10.1", "::1/129",
]  # fmt: skip
NUMBERS = [-1, 0, 1, 2, 4094, 4095, 0x5FF, 0x600, 65535, 65536, [1, 4094], [2, 1], [0, 65535]]
DEVICES = [{"if": "lo"}, {"pci": "0000:3B:00.0"}, {"tap": "tr0"}, {"tap": "a:b"}, {"tap": "t%d"}, {"vdev": "net_null0"}]
#: What may stand somewhere instead, right or wrong.
CHOICES: dict[tuple[str | int, ...], list[Any]] = {
    ("fabric", "pins"): [{f"{name}/{queue}": 0} for name in NAMES for queue in ("0", "1", "00", "x")],
    ("fabric", "workers"): [1, 2, 3],
    ("ports", "wan"): [*DEVICES, {"pci": "0000:3b:00.0", "queues": 16}, {"queues": 17}],
    ("ports", "wan", "rate"): ["999bps", "1kbps", "1600Gbps", {"packets": "1Gpps"}, {"to": {"packets": "1pps"}}],
    ("ports", "lan", "path"): ["/run/vm.sock", "/run//vm.sock", "x.sock", "/", "/" + 107 * "x", "/" + 106 * "x"],
    ("ports", "lan", "mode"): ["server", "client"],
    ("ports", "lan", "socket"): [{"mode": "777"}, {"mode": "0000"}, {"mode": "0888"}, {"mode": "60"}],
    ("ports", "lan", "memory"): ["1MiB", "1023KiB", "2048GiB", "2049GiB"],
    ("ports", "tester.a"): [{"queues": 16}, {"rate": {"share": 1000}}, {"offloads": False}],
    ("ports", "spare"): [{"if": "veth0"}, {"tap": "tr0"}, {"pci": "0000:3b:00.0"}],
    ("functions", "fw", "replicas"): [
        1,
        2,
        64,
        65,
        {"2": "active"},
        {"1": "draining", "3": "active"},
        {"1": "draining"},
    ],
    ("functions", "fw", "ageing"): ["1s", "1h", "1.5s", "2h"],
    ("functions", "fw", "kind"): ["guest", "impair"],
    ("chains", "v", "path", 2): [*NAMES, *DEVICES, "fw", "nat"],
    ("chains", "v", "path", 1): NAMES,
    ("chains", "rest", 0): [*NAMES, *DEVICES],
    ("chains", "v", "match"): [[], [{}], {"inner_vlan": 4094}],
    ("chains", "v", "priority"): [-1, 0, 65535, 65536],
    **{("chains", "v", "match", 0, key): NUMBERS for key in ("vlan", "inner_vlan", "ethertype", "protocol")},
    **{("chains", "w", "match", key): NUMBERS for key in ("source_port", "destination_port")},
    **{("chains", "v", "match", 1, key): PREFIXES for key in ("source", "destination")},
    ("bridges", "lan-1", "ports", "lan"): [{"access": 4094}, {"access": 4095}, {"native": 3}, {"trunk": [1, 1]}],
    **{("bridges", "lan-1", "ports", name): [None] for name in NAMES},
    ("bridges", "lan-1", "ageing"): ["1s", "24h", "25h"],
    ("bridges", "lan-1", "flood"): ["1pps", "1Gpps", "0pps"],
    ("bridges", "lan-1", "macs"): [0, 1, 1 << 20],
    ("mirrors", "m"): [{"port": name, "to": "probe"} for name in NAMES],
    ("mirrors", "n"): [{"port": "wan", "to": name} for name in NAMES],
    ("trace",): [1, 3, 1 << 30],
}
OTHERS = st.sampled_from([(place, value) for place, values in CHOICES.items() for value in values])


@pytest.mark.unsanitized
@pytest.mark.requires_program("tailrace-switch")
@settings(max_examples=400, deadline=None)
@given(others=st.lists(OTHERS, max_size=3))
def test_what_a_spec_may_say_the_switch_takes(binaries: Path, others: list[tuple[tuple[Any, ...], Any]]) -> None:
    data = copy.deepcopy(BASE)
    for place, value in others:
        around: Any = data
        with suppress(LookupError, TypeError):  # where another one has taken the place away
            for step in place[:-1]:
                around = around[step]
            around[place[-1]] = value
    try:
        spec = parse_spec(yaml.safe_dump(data), "s")
    except SpecError:
        assert others
        return
    plan = make_plan(spec, cpus=[Cpu(0, 0, 0), Cpu(1, 0, 1), Cpu(2, 0, 2)], real_time=None)
    line = [binaries / "switch/tailrace-switch", "--check", "--memory", "4096"]
    line += ["--cores", ",".join(str(core) for core in range(spec.fabric.number))]
    config = json.dumps(configuration(plan, Path("/run/s"), {}))
    done = subprocess.run(line, input=config, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
