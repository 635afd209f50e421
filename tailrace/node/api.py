"""The methods of `tailraced`: what each takes and gives. docs/service.schema.json and docs/service.md are made of this
table, and what a client sends is checked by it.

`python -m tailrace.node.api` writes both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.node.client import API, ENDING, FAILED
from tailrace.node.events import KEPT, KINDS
from tailrace.spec import units
from tailrace.spec.model import MOST_CONNECTIONS, MOST_CPUS, MOST_REPLICAS
from tailrace.spec.words import expected

_DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = _DOCS / "service.schema.json"
MOST_SPEC = 1 << 20
_MOST_WRONG = 8
_MOST_SHOWN = 64
"""Characters of a value that is wrong, in a message."""


class Params(BaseModel):
    """What a method takes, by name; what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SpecText(Params):
    """A spec, as a client has read it."""

    text: str = Field(max_length=MOST_SPEC, description="the YAML")
    name: str = Field(max_length=4096, description="what the file is called in messages")
    path: str = Field(max_length=4096, description="its absolute path, which `status` shows")
    folder: str = Field("/", max_length=4096, description="where relative paths in it begin")


class Nothing(Params):
    pass


class Up(Params):
    spec: SpecText
    huge: bool = Field(True, description="2 MiB pages for functions")


class Propose(Params):
    spec: SpecText
    huge: bool | None = Field(None, description="2 MiB pages for new functions; null: as for those that are up")


class Apply(Propose):
    base: int | None = Field(None, description="only if this version is up")


class Rollback(Params):
    base: int | None = Field(None, description="only if this version is up")


class Drain(Params):
    replica: str = Field(max_length=256, description="its name, such as fw-2")
    active: bool = Field(False, description="give it new flows again")


class Scale(Params):
    name: str = Field(max_length=256, description="of a function")
    count: int = Field(ge=1, le=MOST_REPLICAS, description="how many replicas are to be active")
    remove: bool = Field(False, description="end those that drain, whatever flows they still have")


class Named(Params):
    name: str = Field(max_length=256, description="of a function, or of one of its replicas")


class FunctionCpus(Named):
    count: int = Field(ge=1, le=MOST_CPUS, description="how many CPUs it is to have")


class Restore(Named):
    file: str = Field(max_length=4096, description="its absolute path, as `tailrace function save` has written it")


class Clone(Named):
    to: str = Field(max_length=256, description="of the function that becomes its copy")


class MigrateTo(Named):
    host: str = Field(max_length=4096, description="another node: its host's name for ssh, or its state folder")


class Migrate(MigrateTo):
    bandwidth: int | None = Field(None, ge=1 << 20, description="bytes a second at the most; null: all that there is")
    downtime_ms: int = Field(300, ge=1, le=60_000, description="how long it may stand still at the end")
    connections: int | None = Field(
        None, ge=1, le=MOST_CONNECTIONS, description="by which its memory is sent; null: as many as its spec says"
    )


class MigrateReceive(Named):
    domain: str = Field(max_length=MOST_SPEC, description="what it is where it runs, in libvirt's words")
    move: str = Field(min_length=32, max_length=64, description="this move, by a name that no other one has")


class MigratePark(Named):
    side: str = Field(max_length=16, description="which of its ports")
    frames: list[str] = Field(
        max_length=1 << 15, description="that came there, in order, as the switch's `park.take` has them"
    )


class Subscribe(Params):
    since: int | None = Field(None, ge=1, description="the number of the first event wanted; null: from now on")


class Stop(Params):
    when_idle: bool = Field(False, description="once nothing is being done, and nobody waits for it")


class Cancel(Params):
    call: int | str = Field(description="the id of a call on this connection")
    why: str = Field("cancelled", max_length=256, description="what the answer says")


class Result(BaseModel):
    """What a method gives."""


class Version(Result):
    program: str
    version: str
    api: int
    pid: int
    folder: str
    while_up: bool = Field(description="it ends when nothing is up")


class Change(Result):
    what: str = Field(description="function, port, chain, …")
    name: str
    change: str = Field(description="add, change or remove")
    detail: list[str]


class Proposal(Result):
    version: int | None = Field(description="of what is up; null: nothing is")
    common: list[str] = Field(
        description="where nothing is up: the placement, huge pages, the switch and its workers, the tester, in words"
    )
    changes: list[dict[str, Any]] = Field(
        description="each with what, name, change and detail; of a process that starts, why it has its core"
    )
    counts: dict[str, int] = Field(description="of changes, by add, change and remove")
    start: list[str] = Field(description="functions that are started")
    stop: list[str] = Field(description="processes that are ended")
    needs_restart: list[str] = Field(description="what the running switch cannot change")
    nothing: bool = Field(description="there is no difference")
    notes: list[str] = Field(description="what is to be known of it")


class Raised(Result):
    changed: bool
    said: str = Field(description="what came of it, in words")
    notes: list[str]


class Applied(Proposal):
    changed: bool
    notes: list[str]
    back_to: str | None = Field(description="the spec that a rollback goes back to")
    repaired: bool = Field(description="the plan is the one that was up; what had ended is there again")
    resized: dict[str, dict[str, Any]] = Field(
        description="functions whose CPUs are others now: those before and now; how many queues moved, or of a machine "
        "virtual CPUs (else null); after how many ms they were handed over, and the last of the new CPUs had moved its "
        "first frames (null: none came)"
    )


class Resized(Applied):
    milliseconds: float = Field(description="from the call until the CPUs that it has no more were free")


class FunctionStopped(Result):
    stopped: list[str] = Field(description="it, or its replicas")


class MigrateFacts(Result):
    facts: dict[str, Any] = Field(description="as `tailrace.migrate.facts` has them")


class MigratePlan(Result):
    reasons: list[dict[str, str]] = Field(description="why it cannot be, each with kind and text; none: it can")


class Moved(Result):
    host: str
    milliseconds: float = Field(description="in all")
    pause_ms: int = Field(description="for how long it stood still, as QEMU has counted")
    switch_ms: float = Field(description="from its end here until it forwarded there")
    rounds: int = Field(description="in which its memory was sent: what it writes meanwhile is sent again")
    bytes: int = Field(description="of its memory")
    forwarded: int = Field(description="frames that came for it here while it stood still, and were sent on to there")
    parked: int = Field(description="frames that waited for it there, and that it got; with those")


class Parked(Result):
    parked: bool = Field(description="the machine is expected here")


class Cancelled(Result):
    cancelled: bool = Field(description="a move of it was at work")


class Resumed(Result):
    notes: list[str]


class Lowered(Result):
    undone: list[str]
    problems: list[str] = Field(description="what could not be undone, and why")
    notes: list[str]
    service_ends: bool


class Subscribed(Result):
    next: int = Field(description="the number of the next event")


class Stopped(Result):
    service_ends: bool


class StatusProcess(Result):
    name: str
    function: str | None = Field(description="whose it is; null: the switch, or another of the node's own")
    pid: int
    sandbox_pid: int | None = Field(description="of the process that it is in; null: in none")
    alive: bool
    cpus: list[int] | None = Field(description="of each thread, of a function that can have more and fewer CPUs")
    restarts: int = Field(description="how often it was started again after it had ended by itself")
    again_in: float | None = Field(None, description="seconds until it is; null: it is not waited for")


class StatusPort(Result):
    name: str
    state: str = Field(description="up, waiting, down, quarantined or gone")
    reason: str | None = Field(description="why it is not up")
    attached: dict[str, Any] | None = Field(
        description="of a guest that is there: since when, its rings, features and memory, as `port.list` of the "
        "switch has them (control.md)"
    )
    bond: dict[str, Any] | None = Field(description="its members, and which of them carry frames")
    received_packets: int = Field(description="from the guest or device")
    sent_packets: int = Field(description="to it")
    drops: dict[str, int] = Field(description="frames by why they were dropped, only those that are not zero")


class StatusChain(Result):
    name: str
    start: str | None = Field(alias="from", description="the port at one end")
    to: str | None = Field(description="and at the other")
    through: list[str] = Field(description="its functions, in order")
    functions: list[str] = Field(description="the same")
    match: list[dict[str, Any]] = Field(description="which frames it takes; none: all")
    priority: int
    ports: list[str | None] = Field(description="of all these, in order")
    hops: list[dict[str, int]] = Field(description="the counters of each hop, in order")


class StatusReplica(Result):
    name: str
    state: str = Field(description="active, draining, standby or stopped")
    flows: int | None = Field(description="that it has; null: it is the only one")
    failover: list[dict[str, Any]] = Field(
        description="of ports that may have a virtual function in front: which has it; null: the switch"
    )
    in_step: list[dict[str, Any]] = Field(description="of one in standby: how far it knows the connections of others")
    handed_to: str | None = Field(description="the node that it moved to, which has not said that it has it")
    moved_to: str | None = Field(description="the node that it moved to, where that has said so")
    arrives: bool = Field(description="whether it comes from another node, as its spec says")


class StatusFunction(Result):
    name: str
    kind: str
    runs: str = Field(description="where: process, container, machine or guest")
    crowded: int | None = Field(description="how often its table of flows was full")
    outages: dict[str, int] = Field(
        description="how often it was out, by what its chains did (bypass, block, drop), and the frames lost"
    )
    replicas: list[StatusReplica]


class StatusBridge(Result):
    name: str
    macs: list[dict[str, Any]] = Field(description="learned: mac, vlan, port, age in seconds")
    flaps: list[dict[str, Any]] = Field(description="addresses that move between ports")
    unlearned: int = Field(description="how often an address found no room")


class Status(Result):
    """As `tailrace status --json` prints it."""

    state: str = Field(description="down, up, broken or run (a measurement's own)")
    folder: str
    service: dict[str, Any] | None = Field(description="pid and version of the service")
    broken: list[str] = Field(description="what should run and does not")
    unlike: list[dict[str, Any]] = Field(description="what the switch carries otherwise than planned, as of a plan")
    spec: str = Field("", description="that it was made of; this and the next six only where something is up")
    plan: str = Field("", description="the plan, told from every other")
    version: int | None = Field(None, description="of the switch's configuration; null: it does not answer")
    owner: int | None = Field(None, description="the process of the measurement that it belongs to")
    oversubscribed: bool | None = Field(None, description="there are fewer cores than pollers")
    placement: dict[str, Any] = Field({}, description="which CPUs who has")
    workers: list[dict[str, Any]] = Field([], description="of the switch: number, core, load")
    processes: list[StatusProcess]
    ports: list[StatusPort]
    chains: list[StatusChain]
    functions: list[StatusFunction]
    bridges: list[StatusBridge]


@dataclass(frozen=True)
class Method:
    """One method."""

    name: str
    operates: bool
    """It changes something, so it is not for those who may only look."""
    params: type[Params]
    result: type[Result]
    text: str


METHODS = {
    each.name: each
    for each in (
        Method("service.version", False, Nothing, Version, "Which service this is. A client asks this first."),
        Method("service.stop", True, Stop, Stopped, "Ends the service; what is up goes on."),
        Method("node.status", False, Nothing, Status, "What is up: processes, ports, chains, functions, bridges."),
        Method("node.plan", False, Propose, Proposal, "What `node.apply` would change. Changes nothing."),
        Method("node.up", True, Up, Raised, "Starts what a spec asks for; brings back what has ended of it."),
        Method(
            "node.apply", True, Apply, Applied, "Changes what is up into what a spec asks for, whole or not at all."
        ),
        Method("node.rollback", True, Rollback, Applied, "Goes back to what was up before the last change."),
        Method("node.drain", True, Drain, Applied, "Gives a replica no new flows, or some again."),
        Method(
            "function.scale",
            True,
            Scale,
            Applied,
            "Gives a function so many active replicas; those that are too many drain, or are ended.",
        ),
        Method(
            "function.cpus",
            True,
            FunctionCpus,
            Resized,
            "Gives a function in a process or a machine so many CPUs while frames move.",
        ),
        Method(
            "function.restart",
            True,
            Named,
            Applied,
            "Starts a function's new instance, changes over to it when it forwards, and ends the old one.",
        ),
        Method("function.stop", True, Named, FunctionStopped, "Ends a function, which stays so until it is started."),
        Method("function.start", True, Named, Applied, "Starts a function that was stopped."),
        Method(
            "function.restore",
            True,
            Restore,
            Applied,
            "Starts a machine's new instance from a file, changes over to it when it forwards, and ends the old one.",
        ),
        Method(
            "function.clone", True, Clone, Applied, "Has a machine go on as a copy of another, with its own identity."
        ),
        Method(
            "migrate.facts", False, Named, MigrateFacts, "What decides whether a machine can move from here or to here."
        ),
        Method(
            "migrate.plan", True, MigrateTo, MigratePlan, "Why a machine cannot move to another node. Changes nothing."
        ),
        Method("migrate.run", True, Migrate, Moved, "Moves a machine to another node while it runs."),
        Method("migrate.cancel", True, Named, Cancelled, "Ends a move; the machine goes on where it is."),
        Method(
            "migrate.receive",
            True,
            MigrateReceive,
            Applied,
            "For another node's service: prepares the place for its machine, says so (`migrate.ready`), and ends when "
            "that forwards here.",
        ),
        Method(
            "migrate.park",
            True,
            MigratePark,
            Parked,
            "For the same: frames for its machine that it did not get there, and gets here first.",
        ),
        Method("migrate.go", True, Named, Cancelled, "For the same: its machine has ended there, and goes on here."),
        Method("node.resume", True, Nothing, Resumed, "Ends a change that was cut short, and resumes the switch."),
        Method("node.down", True, Nothing, Lowered, "Takes everything down."),
        Method("events.subscribe", False, Subscribe, Subscribed, "Has events sent on this connection."),
        Method(
            "call.cancel",
            False,
            Cancel,
            Result,
            "A notification: a call of this connection is to end. What it has begun is undone, and its answer says so.",
        ),
    )
}


def wrong(method: Method, error: ValidationError) -> list[str]:
    """What is wrong with the params of a call, a line each, with what each is for: a user has given most of them."""
    said = []
    for each in error.errors(include_url=False)[:_MOST_WRONG]:
        where = ".".join(map(str, each["loc"]))
        field = method.params.model_fields.get(where)
        meant = f"{where} ({field.description})" if field is not None and field.description else where
        if each["type"] == "missing":
            said.append(f"{meant}: is missing; expected it")
        elif each["type"] == "extra_forbidden":
            said.append(f"{where}: is unknown; expected {', '.join(method.params.model_fields) or 'none'}")
        else:
            value = units.shown(each["input"])
            value = value if len(value) <= _MOST_SHOWN else f"{value[:_MOST_SHOWN]}…"
            said.append(f"{meant}: {value} is not possible; expected {expected(each, field)}")
    return said


def schema() -> dict[str, Any]:
    """The API as an OpenRPC document (https://spec.open-rpc.org, 1.3)."""

    def described(method: Method) -> dict[str, Any]:
        params = method.params.model_json_schema()
        required = params.get("required", [])
        return {
            "name": method.name,
            "summary": method.text,
            "paramStructure": "by-name",
            "tags": [{"name": "operate" if method.operates else "look"}],
            "params": [
                {"name": name, "required": name in required, "schema": {**each, **_definitions(params, each)}}
                for name, each in params.get("properties", {}).items()
            ],
            "result": {"name": method.result.__name__.lower(), "schema": method.result.model_json_schema()},
        }

    return {
        "openrpc": "1.3.2",
        "info": {"title": "tailraced", "version": str(API), "license": {"name": "Apache-2.0"}},
        "methods": [described(method) for method in METHODS.values()],
        "x-events": {kind: {**each._asdict(), "details": dict(each.details)} for kind, each in KINDS.items()},
    }


def _definitions(params: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The definitions that a part of a schema refers to, so that it stands alone."""
    return {"$defs": params["$defs"]} if "$ref" in json.dumps(part) else {}


_HEAD = f"""\
# The service's API

`tailraced` answers JSON-RPC 2.0 on Unix sockets, one JSON text a line (no batches, params by name), in the state
folder (`/run/tailrace` for root):

- `operate.socket`: all methods. Its group may operate the node.
- `look.socket`: methods that only look. Its group may look.

[service.schema.json](service.schema.json) is the same as an OpenRPC document. In Python, `tailrace.node.client` is a
client. From a shell, with Debian's socat:

```sh
printf '%s\\n' '{{"jsonrpc": "2.0", "id": 1, "method": "node.status"}}' |
  sudo socat - UNIX-CONNECT:/run/tailrace/look.socket
```

A client calls `service.version` first and compares `api`, which is {API}. While a method runs, its caller may be sent
notifications: `progress` (`text`), and `log` (`level`, `text`) if the call has the param `verbose` (1 or 2).

A request without `"jsonrpc": "2.0"`, or whose `id` is neither a number nor a string, is refused. One without `id` is a
notification, which is not answered. An error has a message, and with {FAILED} also `data`, unless too many clients are
connected: `lines` (one for each thing that is wrong), `exit_status` (see [exit-codes.md](exit-codes.md)), and
`service_ends` if a service that was started for what is up ends now.

| code | why | `data` |
| --- | --- | --- |
| -32700 | not JSON | |
| -32600 | no request, or too many calls at once | |
| -32601 | no such method | |
| -32602 | params that it does not take | |
| -32004 | a method that operates, by the socket for looking | |
| {FAILED} | it could not be done | `kind`, `lines`, `exit_status`, `service_ends` |
| {ENDING} | the service is about to end: start another, or try again | |

## Methods

| method | who | params | result |
| --- | --- | --- | --- |
"""
_EVENTS = f"""
## Events

After `events.subscribe`, each event is a notification `event`: `number`, `time` (UTC), `kind`, `level`, `about` (whose
event it is), `details` (explained in the schema, `x-events`). An `alarm` is for an operator to look after.

The last {KEPT} events are kept. Who was away, or reads slowly, goes on with `since`. What is no longer kept is reported
by a notification `events.lost` with `from` and `to`. Numbers begin at 1 each time the service starts.

| kind | level | when | details |
| --- | --- | --- | --- |
"""


def page() -> str:
    """docs/service.md."""
    rows = ""
    for method in METHODS.values():
        who = "operate" if method.operates else "look"
        takes = ", ".join(f"`{name}`" for name in method.params.model_fields)
        gives = ", ".join(f"`{name}`" for name in method.result.model_fields)
        rows += f"| `{method.name}`: {method.text} | {who} | {takes} | {gives} |\n"
    events = "".join(
        f"| `{kind}` | {each.level} | {each.when} | {', '.join(f'`{name}`' for name in each.details)} |\n"
        for kind, each in KINDS.items()
    )
    return f"{_HEAD}{rows}{_EVENTS}{events}"


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(schema(), indent=1) + "\n")
    (_DOCS / "service.md").write_text(page())
