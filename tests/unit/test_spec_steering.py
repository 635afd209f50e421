"""The words for steering: matches, replicas, ports, bridges, mirrors, workers; and what cannot stand together."""

from __future__ import annotations

import json

import pytest
import yaml

from tailrace.spec import units
from tailrace.spec.load import parse_spec
from tailrace.spec.port import members_of
from tailrace.spec.position import parse_document
from tailrace.spec.source import SpecError

EVERYTHING = """\
fabric: {kind: tailrace, idle: sleep, workers: 2, user: nobody, pins: {wan/1: 1}}
ports:
  wan: {if: veth0, queues: 2, rate: {max: 1Gbps, packets: 500kpps, share: 3}}
  lan: {memif: "/run/memif.sock,role=client", rate: 100Mbps}
  vm2: {rate: {max: 2Gbps, to: 500Mbps}}
  vm3: {rate: {to: {max: 500Mbps, packets: 100kpps, latency: 2ms}}}
  vm1: {path: /run/vm1.sock, mode: client, socket: {mode: "0660", group: daemon}}
  link: {vhost: /run/other.sock, queues: 2}
  probe:
  fw.0: {queues: 4, offloads: false}
functions:
  fw: {kind: skeleton, replicas: 3, pin: addresses, ageing: 90s}
  ids: {kind: skeleton, replicas: {1: active, 2: draining}}
  box: guest
  router: skeleton
chains:
  voice:
    path: [tester.a, fw, ids, tester.b]
    match:
      - {vlan: 10, inner_vlan: [1, 4], protocol: udp, source_port: [5060, 5061]}
      - {source: 10.1.0.0/16, destination: 10.2.0.0/16}
    priority: 7
  web: {path: [tester.a, fw, wan], match: {ethertype: ipv6, destination_port: 443}}
  rest: [tester.a, box, {tap: tr0, queues: 2}]
bridges:
  home: [vm1, router.0]
  work: {ports: {router.1: {access: 10}, lan: {trunk: [10, 20], native: 20}}, ageing: 60s, macs: 100, flood: 1kpps}
mirrors:
  tapped: {chain: voice, direction: in, to: probe}
trace: 512
"""


def test_a_bond_names_its_members_as_the_switch_does() -> None:
    both = "{bond: {members: [eth1, {if: eth2}]}, rate: 1Gbps, queues: 2}"
    port = parse_spec(f"ports: {{wan: {both}}}\nchains: {{v: [tester.a, wan]}}\n", "s").ports["wan"]
    assert port.device is not None
    assert port.device.uri == "bond:active-backup,if:eth1,if:eth2"
    assert members_of(port.device.uri) == port.device.identities == ("if:eth1", "if:eth2")
    assert members_of("pcap:in,out") == ("pcap:in,out",)


def test_every_word_reads_back_the_same() -> None:
    spec = parse_spec(EVERYTHING, "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec
    voice = spec.chains["voice"]
    assert [match.as_rule() for match in voice.match] == [
        {"vlan": 10, "inner_vlan": [1, 4], "protocol": 17, "source_port": [5060, 5061]},
        {"source": "10.1.0.0/16", "destination": "10.2.0.0/16"},
    ]
    assert spec.chains["web"].match[0].as_rule() == {"ethertype": 0x86DD, "destination_port": 443}
    assert spec.functions["fw"].replicas == {1: "active", 2: "active", 3: "active"}
    assert spec.ports["wan"].device is not None
    assert spec.ports["wan"].device.uri == "if:veth0"
    assert spec.ports["link"].device is not None
    assert spec.ports["link"].device.uri == "vhost:/run/other.sock"
    assert spec.ports["lan"].rate.max == 100_000_000
    assert (spec.ports["vm2"].rate.max, spec.ports["vm2"].rate.to.max) == (2 * 10**9, 500_000_000)
    assert (spec.ports["vm3"].rate.max, spec.ports["vm3"].rate.to.packets) == (None, 100_000)
    assert spec.ports["vm3"].rate.to.latency == 0.002
    assert (spec.functions["fw"].ageing, spec.functions["ids"].ageing) == (90, 300)
    assert spec.bridges["home"].flood == 10_000
    assert spec.trace is not None
    assert spec.trace.every == 512


def test_the_schema_takes_every_word() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from tailrace.spec.schema import schema_text

    document = yaml.safe_load(EVERYTHING)
    document["functions"]["ids"]["replicas"] = {"1": "active", "2": "draining"}
    jsonschema.validate(document, json.loads(schema_text()))
    document["chains"]["web"]["match"] = {"vlan": 10, "vlam": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads(schema_text()))


TWO = "functions: {a: skeleton, b: skeleton}\n"
CHAIN = "chains: {v: [tester.a, tester.b]}\n"

WRONG = {
    "two chains for every frame of an end": (
        "chains:\n  v: [tester.a, tester.b]\n  w: [tester.a, {if: x}]\n",
        "s.yaml:3:7: chains.w[0]: 'tester.a' is used twice (first in the chain 'v')",
        "a `match:` for 'w'",
    ),
    "two chains for every frame of a function": (
        TWO + "chains:\n  v: [tester.a, a, tester.b]\n  w: {path: [{if: x}, a, {if: y}]}\n",
        "s.yaml:4:23: chains.w.path[1]: 'a' is used twice (first in the chain 'v')",
        "a `match:` for 'w'",
    ),
    "a function in a bridge and a chain": (
        TWO + "chains: {v: [tester.a, a, tester.b]}\nbridges:\n  l: [a.0, b.0]\n",
        "s.yaml:4:7: bridges.l[0]: 'a' is in the chain 'v' and cannot be in a bridge too",
        "expected a chain or a bridge",
    ),
    "a port in a bridge and a chain": (
        CHAIN + "ports: {p: }\nbridges:\n  l: {ports: {tester.a: {access: 3}, p: }}\n",
        "s.yaml:4:15: bridges.l.ports.tester.a: 'tester.a' is in the chain 'v'",
        "expected a chain or a bridge",
    ),
    "a port in two bridges": (
        "ports: {p: , q: , r: }\nbridges:\n  l: [p, q]\n  m: [r, q]\n",
        "s.yaml:4:10: bridges.m[1]: 'q' is in the bridge 'l'",
        "each port in one bridge",
    ),
    "a bridge of one": (
        "ports: {p: }\nbridges: {l: [p]}\n",
        "s.yaml:2:14: bridges.l: a bridge joins ports",
        "at least two",
    ),
    "a zone in a match": (
        "ports: {a: , b: , c: }\nchains:\n  v: {path: [a, b], match: {source: fe80::1%eth0}}\n  w: [a, c]\n",
        "s.yaml:3:37: chains.v.match.source: 'fe80::1%eth0' names a zone",
        "expected fe80::1",
    ),
    "two mirrors to one port": (
        "ports: {p: }\n" + CHAIN + "mirrors:\n  m: {port: tester.a, to: p}\n  n: {port: tester.b, to: p}\n",
        "s.yaml:5:27: mirrors.n.to: 'p' is where the mirror 'm' leads",
        "expected a port that carries nothing but the copies",
    ),
    "a mirror of a function that is not started": (
        "functions: {f: guest}\nports: {p: }\n" + CHAIN + "mirrors:\n  m: {port: f.0, to: p}\n",
        "s.yaml:5:13: mirrors.m.port: 'f.0' is in no chain and no bridge",
        "expected one of tester.a, tester.b, p",
    ),
    "a PCI address in two ways of writing": (
        "ports:\n  p: {pci: 0000:3B:00.0}\n  q: {pci: 0000:3b:00.0}\n" + CHAIN,
        "s.yaml:3:3: ports.q: pci:0000:3b:00.0 is the port 'p' already",
        "expected each device once",
    ),
    "a member of a bond at a chain's end": (
        "functions: {f: skeleton}\nports: {w: {bond: {members: [eth1, eth2]}}}\nchains: {c: [w, f, {if: eth2}]}\n",
        "s.yaml:3:20: chains.c[2]: if:eth2 belongs to 'w' already",
        "expected each device once",
    ),
    "an interface in two ways at the ends of chains": (
        "functions: {f: skeleton}\nchains: {c: [{xdp: eth2}, f, {if: eth2}]}\n",
        "s.yaml:2:30: chains.c[2]: if:eth2 belongs to 'xdp:eth2' already",
        "expected each device once",
    ),
    "a device at a chain's end that a machine has": (
        "functions: {vm: {runs: machine, image: /a.qcow2, interface: [vhost-user, {passthrough: '0000:3b:00.0'}]}, "
        "f: skeleton}\n"
        "chains: {c: [tester.a, f, {pci: '0000:3b:00.0'}]}\n",
        "s.yaml:2:27: chains.c[2]: pci:0000:3b:00.0 belongs to 'vm' already",
        "expected each device once",
    ),
    "a TAP with a colon": (
        "ports: {p: {tap: 'a:b'}}\n" + CHAIN,
        "s.yaml:1:18: ports.p.tap: 'a:b' is no interface's name",
        "without '/', ':'",
    ),
    "a TAP that Linux would number": (
        "ports: {p: {tap: 'tr%d'}}\n" + CHAIN,
        "s.yaml:1:18: ports.p.tap: 'tr%d' has a '%'",
        "expected a name without it",
    ),
    "an unknown port in a bridge": (
        "ports: {wan: }\nbridges:\n  l: [wam, tester.a]\n",
        "s.yaml:3:7: bridges.l[0]: 'wam' is no port",
        "did you mean wan?",
    ),
    "replicas on a bridge": (
        "functions: {a: {kind: skeleton, replicas: 2}}\nbridges: {l: [a.0, tester.a]}\n",
        "s.yaml:2:15: bridges.l[0]: 'a' has several replicas",
        "expected one",
    ),
    "a function named as a replica": (
        "functions:\n  a: {kind: skeleton, replicas: 2}\n  a-2: skeleton\nchains: {v: [tester.a, a, a-2, tester.b]}\n",
        "s.yaml:3:3: functions.a-2: the name 'a-2' is used twice (a replica of a has it)",
        "each name once",
    ),
    "a port named as a function": (
        TWO + "ports:\n  a: \n" + CHAIN,
        "s.yaml:3:3: ports.a: the name 'a' is used twice (a function has it)",
        "each name once",
    ),
    "a port named as the tester": (
        "ports: {tester: }\n" + CHAIN,
        "s.yaml:1:9: ports.tester: the name 'tester'",
        "for the port",
    ),
    "no replica": (
        "functions: {a: {kind: skeleton, replicas: 0}}\n" + CHAIN,
        "s.yaml:1:43: functions.a.replicas: 0 is no number of replicas",
        "from 1 to 64",
    ),
    "all replicas draining": (
        "functions: {a: {kind: skeleton, replicas: {1: draining}}}\n" + CHAIN,
        "s.yaml:1:43: functions.a.replicas: no replica is active",
        "at least one",
    ),
    "an unknown state": (
        "functions: {a: {kind: skeleton, replicas: {1: active, 2: gone}}}\n" + CHAIN,
        "s.yaml:1:43: functions.a.replicas: 'gone' is no replica's state",
        "active, draining or standby",
    ),
    "an unknown field of a match": (
        "chains:\n  v: {path: [tester.a, tester.b], match: [{vlam: 3}]}\n",
        "s.yaml:2:44: unknown key 'vlam' in chains.v.match[0]",
        "did you mean vlan?",
    ),
    "an unknown field of the only match": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {vlam: 3}}\n",
        "s.yaml:2:43: unknown key 'vlam' in chains.v.match",
        "did you mean vlan?",
    ),
    "a prefix with bits beyond it": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {source: 10.1.2.3/8}}\n",
        "s.yaml:2:51: chains.v.match.source: '10.1.2.3/8' has bits set beyond its length",
        "expected 10.0.0.0/8",
    ),
    "no prefix": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {source: ten}}\n",
        "s.yaml:2:51: chains.v.match.source: 'ten' is no prefix",
        "10.1.0.0/16",
    ),
    "addresses of two families": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {source: 10.0.0.0/8, destination: '::/0'}}\n",
        "s.yaml:2:42: chains.v.match: source and destination are of IPv4 and IPv6",
        "of one of them",
    ),
    "a range the wrong way round": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {vlan: [20, 10]}}\n",
        "s.yaml:2:49: chains.v.match.vlan: [20, 10] is empty",
        "the first VLAN",
    ),
    "a port number beyond the last": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {destination_port: 70000}}\n",
        "s.yaml:2:61: chains.v.match.destination_port: 70000 is no port number",
        "from 0 to 65535",
    ),
    "ports of ICMP": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {protocol: icmp, source_port: 1}}\n",
        "s.yaml:2:42: chains.v.match: protocol 1 has no port numbers",
        "tcp, udp or sctp",
    ),
    "a protocol of what is no IP": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {ethertype: arp, protocol: udp}}\n",
        "s.yaml:2:42: chains.v.match: a frame of Ethertype 0x0806 has no IP protocol",
        "leave one of them out",
    ),
    "an unknown protocol": (
        "chains:\n  v: {path: [tester.a, tester.b], match: {protocol: ucp}}\n",
        "s.yaml:2:53: chains.v.match.protocol: 'ucp' is no protocol",
        "udp",
    ),
    "a rate of packets for one of bits": (
        "ports: {p: {rate: 5kpps}}\n" + CHAIN,
        "s.yaml:1:19: ports.p.rate: '5kpps' is not a bit rate",
        "such as 1Gbps",
    ),
    "a rate without a unit": (
        "ports: {p: {rate: {max: 5}}}\n" + CHAIN,
        "s.yaml:1:25: ports.p.rate.max: 5 has no unit",
        "such as 1Gbps",
    ),
    "a share of what a port is sent": (
        "ports: {p: {rate: {to: {share: 2}}}}\n" + CHAIN,
        "s.yaml:1:25: unknown key 'share' in ports.p.rate.to",
        "expected one of max, packets",
    ),
    "flows that are never forgotten": (
        "functions: {a: {kind: skeleton, ageing: 2h}}\n" + CHAIN,
        "s.yaml:1:41: functions.a.ageing: 7200s is out of range",
        "expected whole seconds from 1s to 1h",
    ),
    "a bridge that forgets at once": (
        "ports: {p: , q: }\nbridges: {l: {ports: [p, q], ageing: 1500ms}}\n",
        "s.yaml:2:38: bridges.l.ageing: 1.5s is out of range",
        "expected whole seconds from 1s to 24h",
    ),
    "a path too long": (
        f"ports: {{p: {{path: /{'x' * 107}}}}}\n" + CHAIN,
        "s.yaml:1:19: ports.p.path: 108 bytes are too long for a socket's path",
        "at most 107",
    ),
    "a back end that is no whole path": (
        "ports: {p: {vhost: other.sock}}\n" + CHAIN,
        "s.yaml:1:20: ports.p.vhost: 'other.sock' is no whole path",
        "from the root",
    ),
    "a path twice": (
        "ports:\n  p: {path: /x}\n  q: {path: /x}\n" + CHAIN,
        "s.yaml:3:13: ports.q.path: /x is the socket of 'p'",
        "each path once",
    ),
    "a device twice": (
        "ports:\n  p: {if: x}\n  q: {device: {if: x}}\n" + CHAIN,
        "s.yaml:3:3: ports.q: if:x is the port 'p' already",
        "each device once",
    ),
    "an interface twice, in two ways": (
        "ports:\n  p: {if: x}\n  q: {xdp: x}\n" + CHAIN,
        "s.yaml:3:3: ports.q: xdp:x is the port 'p' already",
        "each device once",
    ),
    "a member of a bond that is a port": (
        "ports:\n  p: {if: x}\n  q: {bond: {members: [y, x]}}\n" + CHAIN,
        "s.yaml:3:3: ports.q: if:x is the port 'p' already",
        "each device once",
    ),
    "a member twice": (
        "ports: {q: {bond: {members: [x, {if: x}]}}}\n" + CHAIN,
        "s.yaml:1:29: ports.q.bond.members: if:x is a member twice",
        "each device once",
    ),
    "a bond of one": (
        "ports: {q: {bond: {members: [x]}}}\n" + CHAIN,
        "s.yaml:1:29: ports.q.bond.members: a bond joins devices",
        "from 2 to 8 members",
    ),
    "a bond without members": (
        "ports: {q: {bond: {mode: active-backup}}}\n" + CHAIN,
        "s.yaml:1:13: ports.q.bond lacks 'members'",
        "expected the key `members:`",
    ),
    "a bond of another mode": (
        "ports: {q: {bond: {members: [x, y], mode: balance-rr}}}\n" + CHAIN,
        "s.yaml:1:43: 'balance-rr' is unknown in ports.q.bond.mode",
        "active-backup",
    ),
    "a member that is none": (
        "ports: {q: {bond: {members: [x, {tap: y}]}}}\n" + CHAIN,
        "s.yaml:1:33: ports.q.bond.members[1]: a group of keys is no member",
        "an interface's name",
    ),
    "a bond in a chain": (
        "chains: {v: [tester.a, {bond: {members: [x, y]}}]}\n",
        "s.yaml:1:24: chains.v[1]: a bond is a port of its own",
        "its name here",
    ),
    "a device with a socket": (
        "ports: {p: {if: x, mode: client}}\n" + CHAIN,
        "s.yaml:1:12: ports.p: a port on a device has no mode",
        "queues or rate",
    ),
    "no memory to speak of": (
        "ports: {p: {memory: 4KiB}}\n" + CHAIN,
        "s.yaml:1:21: ports.p.memory: 4KiB is out of range",
        "from 1MiB to 2TiB",
    ),
    "a device with memory": (
        "ports: {p: {if: x, memory: 1GiB}}\n" + CHAIN,
        "s.yaml:1:12: ports.p: a port on a device has no memory",
        "queues or rate",
    ),
    "too many queues": (
        "ports: {p: {queues: 17}}\n" + CHAIN,
        "s.yaml:1:21: 17 in ports.p.queues",
        "expected 1 to 16",
    ),
    "ports of a function that is missing": (
        TWO + "ports:\n  c.0: {queues: 2}\nchains: {v: [tester.a, a, b, tester.b]}\n",
        "s.yaml:3:3: ports.c.0: 'c.0' is a port of a function that is missing",
        "expected one of",
    ),
    "a path for what Tailrace starts": (
        TWO + "ports:\n  a.0: {path: /x}\nchains: {v: [tester.a, a, b, tester.b]}\n",
        "s.yaml:3:3: ports.a.0: 'a.0' is a function's that Tailrace starts",
        "expected queues",
    ),
    "a bad port name": ("ports: {a.16: }\n" + CHAIN, "s.yaml:1:9: ports.a.16: 'a.16' cannot be a port", "FUNCTION.0"),
    "a VLAN that is none": (
        "ports: {p: , q: }\nbridges: {l: {ports: {p: {access: 4095}, q: }}}\n",
        "s.yaml:2:35: bridges.l.ports.p.access: 4095 is no VLAN",
        "from 1 to 4094",
    ),
    "access and trunk": (
        "ports: {p: , q: }\nbridges: {l: {ports: {p: {access: 1, trunk: [2]}, q: }}}\n",
        "s.yaml:2:26: bridges.l.ports.p: a port is in one VLAN or carries several",
        "expected access, or trunk",
    ),
    "a mirror into a chain": (
        CHAIN + "mirrors: {m: {chain: v, to: tester.b}}\n",
        "s.yaml:2:29: mirrors.m.to: 'tester.b' is in the chain 'v'",
        "nothing but the copies",
    ),
    "a mirror of nothing": (
        CHAIN + "mirrors: {m: {to: tester.b}}\n",
        "s.yaml:2:14: mirrors.m: a mirror copies one",
        "port or chain",
    ),
    "a mirror of an unknown chain": (
        CHAIN + "ports: {p: }\nmirrors: {m: {chain: w, to: p}}\n",
        "s.yaml:3:22: mirrors.m.chain: 'w' is no chain",
        "expected one of v",
    ),
    "workers and cores": (
        "fabric: {workers: 2, cores: [0, 1]}\n" + CHAIN,
        "s.yaml:1:9: fabric: workers and cores both say",
        "one of them",
    ),
    "a core twice": (
        "fabric: {cores: [1, 1]}\n" + CHAIN,
        "s.yaml:1:17: fabric.cores: 1 is listed twice",
        "each core once",
    ),
    "a pin to no worker": (
        "fabric:\n  pins: {tester.a/0: 1}\n" + CHAIN,
        "s.yaml:2:22: fabric.pins.tester.a/0: 1 is no worker",
        "from 0 to 0",
    ),
    "a pin of no queue": (
        "fabric:\n  pins: {tester.a/1: 0}\n" + CHAIN,
        "s.yaml:2:10: fabric.pins.tester.a/1: 'tester.a' has 1 queue(s)",
        "from tester.a/0",
    ),
    "a pin of a number that is none": (
        "fabric:\n  pins: {tester.a/\u00b2: 0}\n" + CHAIN,
        "s.yaml:2:10: fabric.pins.tester.a/\u00b2: 'tester.a' has 1 queue(s)",
        "from tester.a/0",
    ),
    "a pin of a function in no chain": (
        "fabric:\n  pins: {spare.0/0: 0}\nfunctions: {spare: skeleton}\nports: {wan: {if: veth0}}\n" + CHAIN,
        "s.yaml:2:10: fabric.pins.spare.0/0: 'spare.0' is in no chain and no bridge",
        "expected one of tester.a, tester.b, wan",
    ),
    "a pin of an end in no chain": (
        "fabric:\n  pins: {tester.b/0: 0}\nfunctions: {f: skeleton}\nchains: {v: [tester.a, f, {if: veth0}]}\n",
        "s.yaml:2:10: fabric.pins.tester.b/0: 'tester.b' is in no chain and no bridge",
        "expected one of tester.a, f.0, f.1",
    ),
    "a latency without a rate": (
        "ports:\n  p: {rate: {to: {latency: 2ms}}}\n" + CHAIN,
        "s.yaml:2:18: ports.p.rate.to: latency says how long a frame may wait for a rate",
        "expected max or packets beside it",
    ),
    "a latency that is too long": (
        "ports:\n  p: {rate: {to: {max: 1Mbps, latency: 11s}}}\n" + CHAIN,
        "s.yaml:2:40: ports.p.rate.to.latency: 11s is out of range",
        "expected from 100us to 10s",
    ),
    "a rate that is too little for the switch": (
        "ports:\n  p: {rate: 999bps}\n" + CHAIN,
        "s.yaml:2:13: ports.p.rate: 999bps is too little for a port",
        "expected from 1kbps to 1600Gbps",
    ),
    "a rate to a port that is too little for the switch": (
        "ports:\n  p: {rate: {to: {max: 1bps}}}\n" + CHAIN,
        "s.yaml:2:24: ports.p.rate.to.max: 1bps is too little for a port",
        "expected from 1kbps to 1600Gbps",
    ),
    "a replica of a number that is none": (
        "functions:\n  f: {kind: skeleton, replicas: {\u00b2: active}}\n" + CHAIN,
        "s.yaml:2:",
        "is no replica's number; expected a number from 1 to 64",
    ),
    "permissions that are none": (
        "ports: {p: {path: /run/p.sock, socket: {mode: '0999'}}}\n" + CHAIN,
        "s.yaml:1:47: '0999' in ports.p.socket.mode",
        "expected file permissions in octal, such as '0660'",
    ),
    "a trace of no power of two": (
        "trace: 1000\n" + CHAIN,
        "s.yaml:1:8: trace: 1000 is no power of two",
        "512 or 1024",
    ),
    "an unknown idle policy of one worker": (
        "fabric: {idle: [poll, nap], workers: 2}\n" + CHAIN,
        "s.yaml:1:23: 'nap' is unknown in fabric.idle[1]",
        "'sleep'",
    ),
    "idle policies for other workers": (
        "fabric: {idle: [poll, sleep], workers: 3}\n" + CHAIN,
        "s.yaml:1:9: fabric: idle lists 2 for 3 workers",
        "expected one for each, or one for all",
    ),
    "an unknown idle policy": (
        "fabric: {idle: nap}\n" + CHAIN,
        "s.yaml:1:16: 'nap' is unknown in fabric.idle",
        "'sleep'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_its_place(case: str) -> None:
    text, start, expected = WRONG[case]
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "s.yaml")
    said = str(caught.value)
    assert said.startswith(start)
    assert expected in said
    assert "\n" not in said


def test_chains_with_matches_share_ends_and_functions() -> None:
    spec = parse_spec(
        TWO + "chains:\n  v: {path: [tester.a, a, tester.b], match: {vlan: 1}}\n"
        "  w: {path: [tester.a, a, b, tester.b], match: {vlan: 2}}\n  rest: [tester.a, b, tester.b]\n",
        "s",
    )
    assert list(spec.chains) == ["v", "w", "rest"]


def test_pins_of_ports_that_are_in_use() -> None:
    text = (
        "fabric: {pins: {fw.1/0: 0, wan/0: 0, tester.a/0: 0, tester.b/0: 0}}\n"
        "functions: {fw: skeleton}\nports: {wan: {if: veth0}}\n"
        "bridges: {lan: [tester.a, fw.1]}\nmirrors: {m: {port: fw.1, to: tester.b}}\n"
    )
    assert len(parse_spec(text, "s").fabric.pins) == 4


@pytest.mark.parametrize("rate", ["1kbps", "1000bps"])
def test_the_least_rate_of_a_port(rate: str) -> None:
    spec = parse_spec(f"ports: {{p: {{rate: {{max: {rate}, to: {rate}}}}}}}\n" + CHAIN, "s")
    assert (spec.ports["p"].rate.max, spec.ports["p"].rate.to.max) == (1000, 1000)


def test_what_the_switch_says_of_pins_is_reported_where_a_spec_has_them() -> None:
    document = parse_document("fabric:\n  pins: {tester.a/0: 0}\n" + CHAIN, "s.yaml")
    said = document.refused("workers.pins.tester.a/0: no such queue")
    assert str(said) == "s.yaml:2:10: fabric.pins.tester.a/0: no such queue"


@pytest.mark.parametrize(("text", "bits"), [("1Gbps", 10**9), ("1.5Mbps", 1_500_000), ("64kbps", 64_000), ("7bps", 7)])
def test_bit_rates(text: str, bits: int) -> None:
    assert units.parse_bit_rate(text) == bits
    assert units.parse_bit_rate(units.show_bit_rate(bits)) == bits


@pytest.mark.parametrize("text", ["0bps", "1601Gbps", "1", "1Gpps", None, True])
def test_no_bit_rates(text: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        units.parse_bit_rate(text)
