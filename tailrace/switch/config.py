"""From a plan to the switch's configuration: one JSON object that says everything the switch is to be.

Pure functions. What the switch knows of a function is an *instance*: when a function is replaced while its chain
runs, the new process gets ports of its own beside the old one's (fw@2.0 beside fw.0), and the chain changes over in one
step. So a configuration depends on the plan and on which instance of each function is meant.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tailrace.plan.planned import Plan, PlannedBridge, PlannedChain, PlannedFunction, PlannedMirror, PlannedPort
from tailrace.spec.model import FLOW_AGEING

Config = dict[str, Any]
SWITCH = "switch"
"""Its process, on record."""
SECTIONS = ("ports", "functions", "chains", "bridges", "mirrors")


def instance_name(function: str, instance: int) -> str:
    """fw, and fw@2, fw@3 for those that came in its place."""
    return function if instance == 1 else f"{function}@{instance}"


def function_name(process: str) -> str:
    """The function (or replica) that a process or port prefix is an instance of."""
    return process.partition("@")[0]


def planned_port(name: str) -> str:
    """A port as the plan has it, whichever instance of its function it belongs to: wan.1 of wan@4.1."""
    owner, dot, side = name.rpartition(".")
    return f"{function_name(owner)}.{side}" if dot else name


def port_name(port: str, functions: Mapping[str, int]) -> str:
    """The port's name in the configuration: that of the instance of the function it belongs to."""
    owner, dot, side = port.rpartition(".")
    return f"{instance_name(owner, functions[owner])}.{side}" if dot and owner in functions else port


def socket_of(port: PlannedPort, sockets: Path, which: Mapping[str, int]) -> Path:
    """Where the switch listens for the guest of a port, or the guest for the switch."""
    if port.path is not None:
        return Path(port.path)
    name = port_name(port.name, which)
    # A function that listens makes the socket itself, in a folder of its own.
    return sockets / name / "sock" if port.mode == "client" else sockets / f"{name}.sock"


def interface_of(port: PlannedPort, sockets: Path, which: Mapping[str, int]) -> str:
    """The name of the interface that is made for a port: Linux's have 15 letters at most, and are the whole machine's,
    where nodes have a folder of sockets each."""
    return f"tap{zlib.crc32(f'{sockets}/{port_name(port.name, which)}'.encode()):08x}"


def uri_of(port: PlannedPort, sockets: Path, which: Mapping[str, int]) -> str:
    """What a function's port leads to: the socket where it listens for the switch, or the interface made for both."""
    if port.behind == "interface":
        return f"if:{interface_of(port, sockets, which)}"
    return f"vhost-server:{socket_of(port, sockets, which)}"


def configuration(plan: Plan, sockets: Path, instances: Mapping[str, int], around: Collection[str] = ()) -> Config:
    """What the switch is to be, with the sockets of guests in the folder `sockets`.

    `instances` has the instance of each function that is not the first; `around` names those that have ended, of which
    the switch is to use none: other replicas have their flows, or the chain leads past them.
    """
    which = {function.name: instances.get(function.name, 1) for function in plan.functions}
    groups: Config = {}
    in_chains = {name for chain in plan.chains for name in chain.through}
    for function in plan.functions:
        if function.function not in in_chains:  # to the switch it is its ports
            continue
        group = groups.setdefault(function.function, _group(function.function, plan))
        if function.name not in around:
            group["replicas"][function.name] = _replica(function, which)
    past = {name for name, group in groups.items() if not group["replicas"]}
    met = Counter(place for chain in plan.chains for place in _places(chain))
    config: Config = {
        "ports": {port_name(port.name, which): _port(port, sockets, which) for port in plan.ports},
        "functions": {name: group for name, group in groups.items() if name not in past},
        "chains": {
            chain.name: _chain(chain, which, past, shared=any(met[place] > 1 for place in _places(chain)))
            for chain in plan.chains
        },
    }
    if plan.bridges:
        config["bridges"] = {bridge.name: _bridge(bridge, which) for bridge in plan.bridges}
    if plan.mirrors:
        config["mirrors"] = {mirror.name: _mirror(mirror, which) for mirror in plan.mirrors}
    if plan.trace_every is not None:
        config["trace"] = {"every": plan.trace_every}
    if plan.pins:
        pins = {}
        for queue, worker in plan.pins.items():
            port, _, number = queue.partition("/")
            pins[f"{port_name(port, which)}/{number}"] = worker
        config["workers"] = {"pins": pins}
    return config


def ports_of(config: Config, names: set[str]) -> Config:
    """The part of a configuration that has only these ports."""
    return {"ports": {name: port for name, port in config["ports"].items() if name in names}}


def _group(function: str, plan: Plan) -> Config:
    pin, ageing = plan.pinned_by.get(function), plan.ageing.get(function, FLOW_AGEING)
    said: Config = {"pin": pin} if pin is not None else {}
    return {**said, "replicas": {}} if ageing == FLOW_AGEING else {**said, "replicas": {}, "ageing": ageing}


def _replica(function: PlannedFunction, which: Mapping[str, int]) -> Config:
    left, right = (port_name(port, which) for port in function.ports[:2])
    # To the switch one in standby is one that gets no new flows, and has none.
    state = "draining" if function.state == "standby" else function.state
    return {"left": left, "right": right, "state": state}


def _port(port: PlannedPort, sockets: Path, which: Mapping[str, int]) -> Config:
    if not port.guest:
        said: Config = {"kind": "device", "device": port.device or uri_of(port, sockets, which)}
    else:
        said = {"kind": "guest", "path": str(socket_of(port, sockets, which)), "mode": port.mode}
        access = {"mode": port.socket_mode, "group": port.socket_group}
        if any(access.values()) and port.mode == "server":
            said["socket"] = {key: value for key, value in access.items() if value is not None}
        if not port.offloads:
            said["offloads"] = False
        if port.memory_bytes is not None:
            said["memory"] = port.memory_bytes
        if port.waits:
            said["absent"] = "wait"
        if port.unread:
            said["unread"] = True
    if port.queues > 1:
        said["queues"] = port.queues
    if port.spread:
        said["spread"] = True
    rate = _most(port.max_bps, port.max_pps)
    to = _most(port.to_bps, port.to_pps)
    if to:
        if port.to_latency is not None:
            to["latency"] = round(port.to_latency * 1e6)
        rate["to"] = to
    if port.share > 1:
        rate["share"] = port.share
    if rate:
        said["rate"] = rate
    return said


def _most(bits: int | None, packets: int | None) -> Config:
    """What may pass in a second."""
    return {key: value for key, value in (("max", bits), ("packets", packets)) if value is not None}


def _places(chain: PlannedChain) -> set[str]:
    return {chain.start, *chain.through, chain.end}


def _chain(chain: PlannedChain, which: Mapping[str, int], past: Collection[str], *, shared: bool) -> Config:
    through = [name for name in chain.through if name not in past]
    said: Config = {"from": port_name(chain.start, which), "through": through, "to": port_name(chain.end, which)}
    if chain.match:
        said["match"] = [dict(match) for match in chain.match]
    elif shared:
        said["match"] = [{}]  # every frame that no chain before it takes
    if chain.priority:
        said["priority"] = chain.priority
    return said


def _bridge(bridge: PlannedBridge, which: Mapping[str, int]) -> Config:
    members: Config = {}
    for member in bridge.members:
        said: Config = {}
        if member.access is not None:
            said["access"] = member.access
        if member.trunk is not None:
            said["trunk"] = list(member.trunk)
        if member.native is not None:
            said["native"] = member.native
        members[port_name(member.port, which)] = said
    return {"ports": members, "ageing": round(bridge.ageing), "macs": bridge.macs, "flood": bridge.flood}


def _mirror(mirror: PlannedMirror, which: Mapping[str, int]) -> Config:
    source = {"port": port_name(mirror.port, which)} if mirror.port is not None else {"chain": mirror.chain}
    return {**source, "direction": mirror.direction, "to": port_name(mirror.to, which)}
