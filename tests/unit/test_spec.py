"""Specs: short and long forms are one model, and what is wrong is said in one line with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Mistake
from tailrace.spec import units
from tailrace.spec.fields import Model
from tailrace.spec.load import inside, load_spec, parse_spec
from tailrace.spec.model import Spec
from tailrace.spec.position import parse_document
from tailrace.spec.schema import schema_text
from tailrace.spec.source import SpecError
from tailrace.spec.units import Rate

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))

CHAIN = "chains: {v: [tester.a, tester.b]}\n"


def message(text: str) -> str:
    """What is said of a spec with one mistake."""
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "s.yaml")
    assert len(caught.value.lines) == 1, caught.value
    return str(caught.value)


WRONG = {
    "unknown key": ("fabrc: tailrace\n" + CHAIN, "s.yaml:1:1: unknown key 'fabrc'", "did you mean fabric?"),
    "unknown key of a function": (
        "functions:\n  first: {knd: skeleton}\nchains: {v: [tester.a, first, tester.b]}\n",
        "s.yaml:2:11: unknown key 'knd' in functions.first",
        "expected one of kind, runs",
    ),
    "unknown key of a test": (
        CHAIN + "tests:\n  - latency:\n      frames: 64\n      durration: 60s\n",
        "s.yaml:5:7: unknown key 'durration'",
        "did you mean duration?",
    ),
    "unknown key of a device": (
        "chains: {v: [tester.a, {if: veth0, x: 1}]}\n",
        "s.yaml:1:36: unknown key 'x'",
        "expected one of if, pci, vdev",
    ),
    "name used twice": (
        "functions:\n  first: skeleton\n  first: skeleton\n" + CHAIN,
        "s.yaml:3:3: functions.first: the name 'first' is used twice (first on line 2)",
        "expected each name once",
    ),
    "a name with a terminal's escapes": (
        'ports: {"a\\e[31mb": }\n' + CHAIN,
        r"s.yaml:1:9: ports.'a\x1b[31mb': 'a\x1b[31mb' cannot be a port",
        "expected small letters",
    ),
    "one socket in two ways of writing": (
        "ports:\n  c: {path: /s//c.sock}\n  d: {path: /s/t/../c.sock}\n" + CHAIN,
        "s.yaml:3:13: ports.d.path: /s/t/../c.sock is the socket of 'c'",
        "expected each path once",
    ),
    "function and chain of one name": (
        "functions:\n  v: skeleton\nchains:\n  v: [tester.a, v, tester.b]\n",
        "s.yaml:4:3: chains.v: the name 'v' is used twice",
        "expected each name once",
    ),
    "missing function": (
        "functions:\n  first: skeleton\nchains:\n  v:\n    - tester.a\n    - frist\n    - tester.b\n",
        "s.yaml:6:7: chains.v[1]: the chain 'v' goes through 'frist', which is missing",
        "did you mean first?",
    ),
    "missing function in the long form": (
        "chains:\n  v: {path: [tester.a, first, tester.b]}\n",
        "s.yaml:2:24: chains.v.path[1]: the chain 'v' goes through 'first', which is missing",
        "none is defined",
    ),
    "no unit": (
        CHAIN + "tests:\n  - latency: {duration: 60}\n",
        "s.yaml:3:25: tests[0].latency.duration: 60 has no unit",
        "expected a duration such as 60s",
    ),
    "a mode that is a number to YAML": (
        CHAIN + "ports:\n  wan: {socket: {mode: 660}}\n",
        "s.yaml:3:24: 660 in ports.wan.socket.mode is 660 to YAML, and no text",
        "expected it in quotes, as '660'",
    ),
    "no core": (
        "fabric: {cores: []}\n" + CHAIN,
        "s.yaml:1:17: an empty list in fabric.cores",
        "expected at least one item",
    ),
    "no whole number": (
        CHAIN + "ports:\n  wan: {queues: 1.5}\n",
        "s.yaml:3:17: 1.5 in ports.wan.queues",
        "expected a whole number",
    ),
    "no text": (
        CHAIN + "ports:\n  wan: {vdev: ''}\n",
        "s.yaml:3:15: '' in ports.wan.vdev",
        "expected a text that is not empty",
    ),
    "a zero byte in a path": (
        CHAIN + 'ports:\n  wan:\n    path: "/tmp/a\\0b.sock"\n',
        "s.yaml:4:11: ports.wan.path: '/tmp/a\\x00b.sock' has a character that no name and no path can have",
        "expected a text without it",
    ),
    "half a character in a text": (
        CHAIN + 'ports:\n  wan: {vdev: "net_\\ud800"}\n',
        "s.yaml:3:15: ports.wan.vdev: 'net_\\ud800' has a character that no name and no path can have",
        "expected a text without it",
    ),
    "wrong unit": (
        CHAIN + "tests:\n  - latency: {duration: 60kg}\n",
        "s.yaml:3:25: tests[0].latency.duration: '60kg' is not a duration: 'kg' is no such unit",
        "expected a duration such as 60s",
    ),
    "a size for a rate": (
        CHAIN + "tests:\n  - latency: {rate: 2GiB}\n",
        "s.yaml:3:21: tests[0].latency.rate: '2GiB' is not a rate",
        "1Mpps",
    ),
    "more than everything": (
        CHAIN + "tests:\n  - latency: {rate: 120%}\n",
        "s.yaml:3:21: tests[0].latency.rate: 120%",
        "at most 100%",
    ),
    "more than any line": (
        CHAIN + "tests:\n  - latency: {rate: 5Gpps}\n",
        "s.yaml:3:21: tests[0].latency.rate: 5Gpps is more",
        "at most 1Gpps",
    ),
    "more items than there may be": (
        CHAIN + "tests:\n  - matrix: {card: [a, b, c]}\n",
        "s.yaml:3:20: a list in tests[0].matrix.card",
        "expected at most 2 items",
    ),
    "more than any machine": (
        "functions: {a: {kind: skeleton, memory: 1025GiB}}\n" + CHAIN,
        "s.yaml:1:41: functions.a.memory: 1025GiB is more than any machine has",
        "expected at most 1TiB",
    ),
    "a function named as the switch": (
        "functions:\n  switch: skeleton\n" + CHAIN,
        "s.yaml:2:3: functions.switch: the name 'switch' is Tailrace's own",
        "expected another name",
    ),
    "a function named as the tester": (
        "functions: {tester: skeleton}\nchains: {v: [tester.a, tester, tester.b]}\n",
        "s.yaml:1:13: functions.tester: the name 'tester' is Tailrace's own",
        "expected another name",
    ),
    "a kind of interface that there is not": (
        "functions: {a: {kind: skeleton, runs: machine, interface: e1000}}\n" + CHAIN,
        "s.yaml:1:59: functions.a.interface: 'e1000' is no interface",
        "expected vhost-user, virtio, e1000e, vmxnet3, {passthrough: 0000:3b:00.0}, or {passthrough: CARD/NUMBER}",
    ),
    "a device without its address": (
        "functions: {a: {kind: skeleton, runs: machine, interface: [virtio, {passthrough: 3b:00.0}]}}\n" + CHAIN,
        "s.yaml:1:59: functions.a.interface: passthrough: '3b:00.0' is no device",
        "expected 0000:3b:00.0, or ens1f0/0 for a virtual function",
    ),
    "a device that is a list": (
        "functions: {a: {kind: skeleton, runs: machine, interface: {passthrough: [1, 2]}}}\n" + CHAIN,
        "s.yaml:1:59: functions.a.interface: passthrough: a list is no device",
        "expected 0000:3b:00.0, or ens1f0/0 for a virtual function",
    ),
    "an interface by another key": (
        "functions: {a: {kind: skeleton, runs: machine, interface: {pass: 0000:3b:00.0}}}\n" + CHAIN,
        "s.yaml:1:59: functions.a.interface: a group of the keys pass is no interface",
        "expected {passthrough: 0000:3b:00.0, or ens1f0/0 for a virtual function}",
    ),
    "an interface of a process": (
        "functions: {a: {kind: skeleton, interface: virtio}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: interface: a process has vhost-user ports",
        "`runs: machine`",
    ),
    "Linux's drivers in a container": (
        "functions: {a: {kind: skeleton, runs: container, driver: linux}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: driver: Linux forwards as a skeleton in a machine does",
        "expected one, or dpdk",
    ),
    "a kind of function that Linux has not": (
        "functions: {a: {kind: impair, runs: machine, driver: linux}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: driver: Linux forwards as a skeleton",
        "expected one, or dpdk",
    ),
    "three interfaces for two ports": (
        "functions: {a: {kind: skeleton, runs: machine, interface: [virtio, virtio, virtio]}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: interface lists 3 for 2 ports",
        "expected one for each, or one for all",
    ),
    "a machine without a port of the switch's": (
        "functions: {a: {kind: skeleton, runs: machine, interface: {passthrough: 0000:3b:00.0}}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: interface: the switch has none of its ports",
        "expected a list with another kind too",
    ),
    "a chain through a device that is passed through": (
        "functions: {a: {kind: skeleton, runs: machine, interface: [virtio, {passthrough: 0000:3b:00.0}]}}\n"
        "chains: {v: [tester.a, a, tester.b]}\n",
        "s.yaml:2:24: chains.v[1]: 'a' has one port, and the chain 'v' leads through it",
        "expected 2 or more",
    ),
    "frames that are to wait at a TAP": (
        "functions: {a: {kind: skeleton, runs: machine, interface: virtio, on_failure: block}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: on_failure: frames wait at vhost-user ports only",
        "expected drop or bypass",
    ),
    "an interface with a comma": (
        'chains: {v: [tester.a, {if: "veth0,x=1"}]}\n',
        "s.yaml:1:29: chains.v[1].if: 'veth0,x=1' is no interface's name",
        "1 to 15 characters",
    ),
    "an interface that is a path": (
        "chains: {v: [{if: a/b}, tester.a]}\n",
        "s.yaml:1:19: chains.v[0].if: 'a/b' is no",
        "without '/'",
    ),
    "an interface without a name": (
        "chains: {v: [{if: ''}, tester.a]}\n",
        "s.yaml:1:19: chains.v[0].if: '' is no",
        "such as veth0",
    ),
    "an interface of 16 letters": (
        "chains: {v: [{if: abcdefghijklmnop}, tester.a]}\n",
        "s.yaml:1:19: ",
        "15 characters",
    ),
    "a date for a function": (
        "functions: {a: 2026-01-02}\n" + CHAIN,
        "s.yaml:1:16: '2026-01-02' is unknown in functions.a",
        "expected 'skeleton'",
    ),
    "a date for a duration": (
        CHAIN + "tests:\n  - latency: {duration: 2026-01-02}\n",
        "s.yaml:3:25: tests[0].latency.duration: '2026-01-02' is not a duration",
        "expected a duration such as 60s",
    ),
    "a date for a frame": (
        CHAIN + "tests:\n  - latency: {frames: [2026-01-02]}\n",
        "s.yaml:3:24: tests[0].latency.frames[0]: '2026-01-02' is",
        "imix",
    ),
    "nothing for a rate": (
        CHAIN + "tests:\n  - latency: {rate: }\n",
        "s.yaml:3:20: tests[0].latency.rate: nothing is not a rate",
        "1Mpps",
    ),
    "a frame size with a fraction": (
        CHAIN + "tests:\n  - latency: {frames: 64.0}\n",
        "s.yaml:3:23: tests[0].latency.frames: 64.0 is no frame size",
        "expected a frame size from 64 to 1518",
    ),
    "frame too small": (
        CHAIN + "tests:\n  - latency: {frames: [64, 13]}\n",
        "s.yaml:3:28: tests[0].latency.frames[1]: 13 is out of",
        "64 to 1518",
    ),
    "a frame above the MTU": (
        CHAIN + "tests: [{loss: {frames: 1519}}]\n",
        "s.yaml:2:25: tests[0].loss.frames: 1519 is out of",
        "64 to 1518",
    ),
    "a frame below 64": (
        CHAIN + "tests: [{throughput: {frames: 63}}]\n",
        "s.yaml:2:31: tests[0].throughput.frames: 63 is out of",
        "64 to 1518",
    ),
    "two methods in a test": (
        CHAIN + "tests:\n  - {latency: {}, loss: {}}\n",
        "s.yaml:3:5: tests[0]: a test is of one method",
        "exactly one of latency, throughput, loss, burst",
    ),
    "no method in a test": (
        CHAIN + "tests: [{}]\n",
        "s.yaml:2:9: tests[0]: a test is of one method",
        "expected exactly one",
    ),
    "an unknown method": (CHAIN + "tests: [speed]\n", "s.yaml:2:9: unknown key 'speed'", "expected one of latency"),
    "a test twice": (
        CHAIN + "tests:\n  - loss: {frames: 64}\n  - loss: {frames: [64]}\n",
        "s.yaml:4:5: tests[1]: the same test is on line 3",
        "expected each test once",
    ),
    "two kinds of traffic": (
        CHAIN + "tests: [{loss: {frames: 64, pcap: x}}]\n",
        "s.yaml:2:16: tests[0].loss: frames and pcap both say what to send",
        "expected one of them",
    ),
    "a search longer than its end": (
        CHAIN + "tests: [{throughput: {trial: 2s, duration: 1s}}]\n",
        "s.yaml:2:22: tests[0].throughput: the search's trials (2s) are longer",
        "expected trial to be at most duration",
    ),
    "a burst of several sizes": (
        CHAIN + "tests: [{burst: {frames: imix}}]\n",
        "s.yaml:2:17: tests[0].burst: a burst has frames of one size",
        "expected sizes",
    ),
    "a step that is too wide": (
        CHAIN + "tests: [{loss: {step: 20%}}]\n",
        "s.yaml:2:23: tests[0].loss.step: 20% is out",
        "0.1% to 10%",
    ),
    "a ratio without its unit": (
        CHAIN + "tests: [{throughput: {loss: 0.5}}]\n",
        "s.yaml:2:29: tests[0].throughput.loss: 0.5 has no unit",
        "0.5%",
    ),
    "a rate listed twice": (
        CHAIN + "tests: [{latency: {rate: [5%, 5%]}}]\n",
        "s.yaml:2:26: tests[0].latency.rate: 5% is listed",
        "each once",
    ),
    "more packets than the port may carry": (
        "ports: {tester.b: {rate: {packets: 1Mpps}}}\n" + CHAIN + "tests: [{latency: {rate: [500kpps, 2Mpps]}}]\n",
        "s.yaml:3:26: tests[0].latency.rate: 2Mpps of 1518 B frames is more than tester.b may carry",
        "expected at most 1Mpps (ports.tester.b.rate.packets)",
    ),
    "more packets than a function's port may carry": (
        "functions: {f: skeleton}\nports: {f.1: {rate: {packets: 1Mpps}}}\n"
        "chains: {v: [tester.a, f, tester.b]}\ntests: [{loss: {rate: 2Mpps}}]\n",
        "s.yaml:4:23: tests[0].loss.rate: 2Mpps of 1518 B frames is more than f.1 may carry",
        "expected at most 1Mpps (ports.f.1.rate.packets)",
    ),
    "more bits than the port may be sent": (
        "ports: {tester.b: {rate: {to: 1Mbps}}}\n" + CHAIN + "tests: [{loss: {frames: 512, rate: 1Mpps}}]\n",
        "s.yaml:3:36: tests[0].loss.rate: 1Mpps of 512 B frames is more than tester.b may carry",
        "expected at most 1Mbps (ports.tester.b.rate.to.max)",
    ),
    "more bits than the port may carry": (
        "ports: {tester.a: {rate: 1Gbps}}\n" + CHAIN + "tests: [{loss: {frames: [64, 512], rate: 1Mpps}}]\n",
        "s.yaml:3:42: tests[0].loss.rate: 1Mpps of 512 B frames is more than tester.a may carry",
        "expected at most 1Gbps (ports.tester.a.rate.max)",
    ),
    "a user that is none": (
        "fabric: {user: 'a b'}\n" + CHAIN,
        "s.yaml:1:16: 'a b' in fabric.user",
        "expected a user's name, such as nobody, or two numbers, such as 990:990",
    ),
    "unknown kind": (
        "functions: {a: bones}\n" + CHAIN,
        "s.yaml:1:16: 'bones' is unknown in functions.a",
        "expected 'skeleton'",
    ),
    "missing kind": (
        "functions: {a: {}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: lacks 'kind', which says what it does",
        "expected skeleton or impair",
    ),
    "kind of a guest": (
        "functions: {a: {kind: skeleton, runs: guest}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: skeleton is a kind that Tailrace starts",
        "expected no kind",
    ),
    "latency of a guest": (
        "functions: {a: {runs: guest, latency: high}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: latency: a guest has its CPUs from whoever runs it",
        "expected none, or `runs: process` or `container` or `machine`",
    ),
    "memory of a guest": (
        "functions: {a: {runs: guest, memory: 1GiB}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: memory: a guest has its memory from whoever runs it",
        "expected none",
    ),
    "restart of a guest": (
        "functions: {a: {runs: guest, restart: always}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: restart: a guest is started by whoever runs it",
        "expected none",
    ),
    "guest that is led past": (
        "functions: {a: {runs: guest, on_failure: bypass}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: on_failure: a guest is not started here, so when it has ended is not known",
        "expected drop or block",
    ),
    "guest in standby": (
        "functions: {a: {runs: guest, replicas: {1: active, 2: standby}}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: replicas: a guest is not started here, so when it has ended is not known",
        "expected active or draining",
    ),
    "three ports of a skeleton": (
        "functions: {a: {kind: skeleton, ports: 3}}\n" + CHAIN,
        "s.yaml:1:16: functions.a: 3 ports",
        "expected 2",
    ),
    "chain through one port": (
        "functions: {a: {runs: guest, ports: 1}}\nchains: {v: [tester.a, a, tester.b]}\n",
        "s.yaml:2:24: chains.v[1]: 'a' has one port",
        "expected 2 or more",
    ),
    "end at a port that a chain leads through": (
        "functions: {a: {runs: guest, ports: 3}}\nchains: {v: [a.1, tester.b]}\n",
        "s.yaml:2:14: chains.v[0]: 'a.1' cannot be a chain's end",
        "a port (a.2)",
    ),
    "end at a port of replicas": (
        "functions: {a: {runs: guest, ports: 3, replicas: 2}}\nchains: {v: [a.2, tester.b]}\n",
        "s.yaml:2:14: chains.v[0]: 'a' has several replicas",
        "expected one",
    ),
    "function used twice": (
        "functions: {a: skeleton}\nchains:\n  v: [tester.a, a, tester.b]\n  w: [{if: x}, a, {if: y}]\n",
        "s.yaml:4:16: chains.w[1]: 'a' is used twice (first in the chain 'v')",
        "expected each end and function in one place",
    ),
    "end in the middle": (
        "chains: {v: [tester.a, tester.b, {if: x}]}\n",
        "s.yaml:1:24: chains.v[1]: 'tester.b' is an end and stands inside",
        "expected a function here",
    ),
    "function at the end": (
        "functions: {a: skeleton}\nchains: {v: [tester.a, a]}\n",
        "s.yaml:2:24: chains.v[1]: 'a' cannot be a chain's end",
        "expected tester.a, tester.b or a device",
    ),
    "one end only": (
        "chains: {v: [tester.a]}\n",
        "s.yaml:1:13: chains.v: a chain has two ends",
        "at least [tester.a, tester.b]",
    ),
    "no chain": ("functions: {a: skeleton}\n", "s.yaml:1:1: the spec lacks 'chains'", "expected the key `chains:`"),
    "no chains": ("chains: {}\n", "s.yaml:1:1: chains: there is no chain", "expected at least one"),
    "nothing to measure": (
        "chains: {v: [{if: x}, {if: y}]}\ntests: [latency]\n",
        "s.yaml:2:9: tests[0]: nothing to measure",
        "from tester.a to tester.b",
    ),
    "bad name": (
        "chains: {V_: [tester.a, tester.b]}\n",
        "s.yaml:1:10: chains.V_: 'V_' cannot be a name",
        "small letters",
    ),
    "two devices": (
        "chains: {v: [tester.a, {if: x, vdev: y}]}\n",
        "s.yaml:1:24: chains.v[1]: a device end names exactly one device",
        "one of if, pci, vdev",
    ),
    "a list": ("- a\n", "s.yaml:1:1: this is not a spec", "expected the keys"),
    "empty": ("# nothing\n", "s.yaml:1:1: the file is empty", "expected"),
    "not YAML": ("chains: [\n", "s.yaml:2:1: not YAML", "expected"),
    "alias of itself": (
        "chains: {v: &a [tester.a, *a]}\n",
        "s.yaml:1:13: chains.v[1]: this alias contains itself",
        "expected",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(case: str) -> None:
    text, start, expected = WRONG[case]
    said = message(text)
    assert said.startswith(start)
    assert expected in said
    assert "expected" in said
    assert "\n" not in said


NESTED = {
    "seed: {hostnam: x}": ("unknown key 'hostnam' in functions.a.seed", "did you mean hostname?"),
    "seed: {hostname: 'a b'}": ("'a b' in functions.a.seed.hostname", "such as router-1"),
    "seed: 5": ("5 in functions.a.seed", "expected the keys hostname, addresses, user_data"),
    "cpus: {stat: 1}": ("unknown key 'stat' in functions.a.cpus", "did you mean start?"),
    "health: {evry: 1s}": ("unknown key 'evry' in functions.a.health", "did you mean every?"),
    "priority: {leest: 1}": ("unknown key 'leest' in functions.a.priority", "did you mean least?"),
    "priority: {tasks: ['a b']}": ("'a b' in functions.a.priority.tasks[0]", "such as pmd-worker"),
    "failover: {0: {macc: x}}": ("unknown key 'macc' in functions.a.failover.0", "did you mean mac?"),
    "image: my disk.raw": ("'my disk.raw' in functions.a.image", "such as localhost/firewall:1.2"),
    "interface: {passthrough: {card: eth0}}": ("passthrough: unknown key 'card'", "expected one of of, number, mac"),
    "interface: {passthrough: {of: eth0}}": ("passthrough: lacks 'number'", "such as ens1f0/0"),
    "interface: {passthrough: {of: eth0, number: x}}": ("passthrough: number: 'x'", "expected a valid integer"),
}


@pytest.mark.parametrize("said", NESTED)
def test_what_is_wrong_inside_a_function_is_said_in_its_words(said: str) -> None:
    what, expected = NESTED[said]
    found = message(f"functions: {{a: {{runs: machine, {said}}}}}\nchains: {{v: [tester.a, a, tester.b]}}\n")
    assert what in found and expected in found, found


def test_the_keys_of_each_model_are_known_where_it_stands() -> None:
    def below(model: type[Model]) -> Iterator[type[Model]]:
        for each in model.__subclasses__():
            yield from below(each) if each.__subclasses__() else [each]

    def walk(annotation: Any) -> Iterator[type[Model]]:
        if isinstance(annotation, type) and issubclass(annotation, Model):
            yield annotation
            for name in annotation.model_fields:
                yield from walk(inside(annotation, name))
        elif (inner := inside(annotation, 0)) is not None:
            yield from walk(inner)

    of_a_spec = {each for each in below(Model) if each.__module__.startswith("tailrace.spec")}
    assert of_a_spec <= set(walk(Spec))


def test_what_does_not_end_is_no_spec() -> None:
    with pytest.raises(SpecError, match=r"^/dev/zero:1:1: larger than 1 MiB"):
        load_spec(Path("/dev/zero"))


def test_bytes_that_are_no_text_are_reported_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_bytes(b"chains:\n  v: \xff\n")
    with pytest.raises(SpecError, match=r":2:6: not UTF-8"):
        load_spec(path)
    path.write_bytes(b"chains: a\x07b\n")
    with pytest.raises(SpecError, match=r":1:10: a character"):
        load_spec(path)
    with pytest.raises(Mistake, match="there is no such file"):
        load_spec(tmp_path / "none.yaml")
    with pytest.raises(Mistake, match="a directory"):
        load_spec(tmp_path)


def test_short_and_long_form_are_one_model() -> None:
    short = parse_spec(
        "fabric: tailrace\nfunctions: {a: skeleton}\nchains: {v: [tester.a, a, tester.b]}\ntests: [latency]\n", "s"
    )
    long = parse_spec(
        "fabric: {kind: tailrace, backpressure: 20ms}\n"
        "functions: {a: {kind: skeleton, memory: 256MiB}}\n"
        "chains: {v: {path: [tester.a, a, tester.b]}}\n"
        "tests: [latency: {frames: [64, 256, imix, 1518], rate: 90%, duration: 60s}]\n",
        "l",
    )
    assert short == long


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_sound_and_what_is_written_reads_back_the_same(path: Path) -> None:
    spec = load_spec(path)
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


def test_a_test_with_a_capture_reads_back_the_same() -> None:
    spec = parse_spec("chains: {v: [tester.a, tester.b]}\ntests: [{latency: {pcap: x.pcap, rate: 1kpps}}]", "spec")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec and "frames" not in again


def test_the_schema_in_docs_is_current_and_takes_the_examples() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    text = (REPOSITORY / "docs/spec.schema.json").read_text()
    assert text == schema_text(), "run: python -m tailrace.spec.schema > docs/spec.schema.json"
    schema = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    for path in EXAMPLES:
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"chains": {"v": ["tester.a", "tester.b"]}, "fabrc": "tailrace"}, schema)


def test_tests_are_measured_between_the_testers_ends_in_either_order() -> None:
    assert parse_spec("chains: {v: [tester.b, tester.a]}\n", "s").tester_chain() is not None
    assert parse_spec("chains: {v: [tester.b, {if: x}]}\n", "s").tester_chain() is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("20ms", 0.02), ("1.5h", 5400), ("500us", 0.0005), ("2min", 120)]
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "pps"), [("1Mpps", 1e6), ("500kpps", 5e5), ("10pps", 10), ("0.5Gpps", 5e8)])
def test_rates(text: str, pps: float) -> None:
    assert units.parse_rate(text) == Rate(pps=pytest.approx(pps))


@pytest.mark.parametrize("text", ["0%", "101%", "-1pps", "1", "1e6pps", "pps", "1 Mbps", True, None, [1]])
def test_no_rates(text: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        units.parse_rate(text)


@given(st.floats(min_value=1e-6, max_value=1e5))
def test_a_duration_that_is_shown_reads_back(seconds: float) -> None:
    assert units.parse_duration(units.show_duration(seconds)) == pytest.approx(seconds, rel=1e-6)


@given(st.integers(min_value=1, max_value=1 << 40))
def test_a_size_that_is_shown_reads_back(size: int) -> None:
    shown = size << 10
    assert units.parse_size(units.show_size(shown)) == shown


def test_a_size_may_be_in_tebibytes() -> None:
    read = parse_spec("ports: {p: {memory: 2TiB}}\n" + CHAIN, "s.yaml")
    assert read.ports["p"].memory == 2 << 40
    assert units.show_size(3 << 39) == "1536GiB"


def test_a_size_of_less_than_a_byte_is_nothing() -> None:
    with pytest.raises(ValueError, match="is nothing"):
        units.parse_size("0.0001KiB")


@given(st.text(max_size=200))
def test_any_text_is_a_spec_or_one_message(text: str) -> None:
    try:
        assert isinstance(parse_spec(text, "s"), Spec)
    except SpecError as error:
        assert str(error).startswith("s:")


KEYS = st.sampled_from(
    [
        "fabric",
        "functions",
        "chains",
        "tests",
        "latency",
        "kind",
        "frames",
        "rate",
        "path",
        "if",
        "v",
        "ports",
        "bridges",
        "mirrors",
        "trace",
        "match",
        "vlan",
        "source",
        "replicas",
        "pins",
        "cores",
        "to",
        "trunk",
        "fw.0",
        "device",
        "pin",
    ]
)
VALUES = st.recursive(
    st.sampled_from(["tester.a", "tester.b", "skeleton", "60s", "90%", 64, None, True, 1.5, "v"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_structure_is_a_spec_or_one_message_with_a_place_in_the_text(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data)
    try:
        parse_spec(text, "s")
    except SpecError as error:
        lines = text.count("\n") + 1
        for line in error.lines:
            assert 1 <= int(line.split(":")[1]) <= lines
            assert "expected" in line
            assert "\n" not in line
        assert error.position.line == int(error.lines[0].split(":")[1])


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_every_key_has_the_place_it_stands_at(data: dict[str, object]) -> None:
    text = yaml.safe_dump(data)
    lines = text.splitlines()
    for location, position in parse_document(text, "s").keys.items():
        assert lines[position.line - 1][position.column - 1 :].lstrip("'\"").startswith(str(location[-1]))


@pytest.mark.parametrize("digits", [310, 4000, 5000])
@pytest.mark.parametrize(
    ("parse", "unit"),
    [
        (units.parse_size, "GiB"), (units.parse_duration, "h"), (units.parse_rate, "pps"), (units.parse_ratio, "%"),
        (units.parse_bit_rate, "bps"), (units.parse_packet_rate, "Gpps"),
    ],
)  # fmt: skip
def test_a_number_beyond_everything_is_no_quantity(parse: Callable[[str], object], unit: str, digits: int) -> None:
    with pytest.raises(ValueError, match=rf"a number of {digits} digits is out of range; expected") as caught:
        parse("9" * digits + unit)
    assert len(str(caught.value)) < 200
