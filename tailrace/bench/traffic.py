"""The kinds of traffic of `tailrace bench hop`: one declaration each.

It says what the guests send, how either switch is configured for it, and what a run must have shown: a figure is of its
kind, or there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tailrace.bench import circulate, requests, scale, testpmd
from tailrace.bench.circulate import Guests, Run, Shown, Wiring
from tailrace.bench.compare import Plan, Step, after
from tailrace.bench.model import OVS_DPDK, TAILRACE, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import joined, running
from tailrace.bench.table import CYCLES, MPPS, Column
from tailrace.bench.window import saturate, side_seconds
from tailrace.fabric.ovs_dpdk import Rules
from tailrace.process.programs import system_program
from tailrace.spec.traffic import IMIX_MEAN
from tailrace.switch.config import Config

START_SECONDS = 4.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""
RATIOS = (
    Ratio("cycles", "cycles_per_packet", OVS_DPDK, TAILRACE),
    Ratio("mpps", "mpps", TAILRACE, OVS_DPDK),
)
"""Above 1 both favour Tailrace."""
PLAIN = "plain"
REWRITE = "rewrite"
RULES = 1000
MANY = 64
SHORT = 256
VLAN = 100


@dataclass(frozen=True)
class Kind:
    """A kind of traffic."""

    about: str
    measure: Callable[[Plan, str, Setting, Step], list[Sample]]
    """One side, by its name, of a plan: up, measured, held to account, down."""
    programs: Sequence[str] = ()
    """Ours that it takes besides the switch."""
    installed: Sequence[Callable[[], object]] = ()
    """Each raises Mistake, naming what to install, if it cannot be had."""
    columns: Sequence[Column] = (CYCLES, MPPS)
    ratios: Sequence[Ratio] = RATIOS
    own_frames: bool = False
    """No frame size is asked for: the kind has its own."""
    whole_seconds: bool = False
    """It is measured for whole seconds only."""
    side_seconds: Callable[[float], float] = lambda seconds: side_seconds(seconds) + circulate.START_SECONDS
    """How long a side takes in all that is measured for so many seconds."""

    def check_installed(self) -> None:
        for check in self.installed:
            check()


def _saturate(plan: Plan, name: str, setting: Setting, step: Step) -> list[Sample]:
    with running(setting, name, what=f"{plan.frame} B") as (switch, sockets):
        step(START_SECONDS / 2)
        return saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2))


def _circulating(about: str, wiring: Wiring, own_frames: bool = False) -> Kind:
    measure = partial(circulate.measure, wiring)
    return Kind(about, measure, programs=(circulate.PROGRAM,), own_frames=own_frames)


# ------- what each switch does -------


def _pairs(guests: int) -> tuple[Config, Rules]:
    """Guests joined in pairs, both ways."""
    chains = {f"hop{n}": joined(f"p{n}", f"p{n + 1}") for n in range(0, guests, 2)}
    return {"chains": chains}, Rules([f"in_port={n + 1},actions=output:{(n ^ 1) + 1}" for n in range(guests)])


def _bridge(guests: int) -> tuple[Config, Rules]:
    return {"bridges": {"lan": {"ports": {f"p{n}": {} for n in range(guests)}}}}, Rules(["actions=NORMAL"])


def _matches(rules: int) -> tuple[Config, Rules]:
    """For each flow between two guests a rule of its own, and for its answers."""
    chains, flows = {}, []
    for number in range(rules):
        chain = scale.flow_chain(number, rules) | {"from": "p0", "to": "p1"}
        (match,) = chain["match"]
        chains[f"chain{number}"] = chain
        flows += [
            f"in_port=1,udp,nw_src={match['source']},tp_src={match['source_port']},actions=output:2",
            f"in_port=2,udp,nw_dst={match['source']},tp_dst={match['source_port']},actions=output:1",
        ]
    return {"chains": chains}, Rules(flows)


def _replicas() -> tuple[Config, Rules]:
    """A function between p0 and p5 with two replicas, p1 and p3, p2 and p4."""
    replicas = {"r0": {"left": "p1", "right": "p3"}, "r1": {"left": "p2", "right": "p4"}}
    chain = {"from": "p0", "through": ["group"], "to": "p5"}
    flows = ["in_port=1,actions=group:1", "in_port=6,actions=group:2"]
    groups = [
        "group_id=1,type=select,bucket=output:2,bucket=output:3",
        "group_id=2,type=select,bucket=output:4,bucket=output:5",
    ]
    return {"functions": {"group": {"replicas": replicas}}, "chains": {"pinned": chain}}, Rules(flows, groups)


def _vlan() -> tuple[Config, Rules]:
    """An access port, and a trunk of which the same VLAN is one of two."""
    ports = {"p0": {"access": VLAN}, "p1": {"trunk": [VLAN, VLAN + 1]}}
    records = {"p0": [f"tag={VLAN}"], "p1": ["vlan_mode=trunk", f"trunks={VLAN},{VLAN + 1}"]}
    return {"bridges": {"lan": {"ports": ports}}}, Rules(["actions=NORMAL"], ports=records)


# ------- what a run must have shown -------


def _share(counted: str, of: str, share: float) -> Shown:
    """So large a share of the frames was of a kind: with all exactly so, else nearly."""

    def shown(run: Run) -> str | None:
        one, all_of_them = getattr(run.account, counted), getattr(run.account, of)
        if abs(one - share * all_of_them) <= 0.1 * share * (1 - share) * all_of_them:
            return None
        return f"{one} of {all_of_them} frames {of} were {counted}, expected {share:.1%}"

    return shown


def _imix(run: Run) -> str | None:
    mean = run.account.bytes / max(run.account.received, 1) + testpmd.FCS
    right = abs(mean - IMIX_MEAN) < 0.02 * IMIX_MEAN
    return None if right else f"frames had {mean:.1f} B on average, expected {IMIX_MEAN:.1f}"


def _packed(run: Run) -> str | None:
    layouts, guests = run.layouts, len(run.account.ports)
    return None if layouts == ["packed"] * guests else f"the rings of {guests} guests are {', '.join(layouts)}"


def _evenly(counts: Sequence[int], what: str) -> str | None:
    least, most = min(counts, default=0), max(counts, default=0)
    return None if 0 < most <= 2 * least else f"{what} had {least} to {most} frames"


def _all_rules(run: Run) -> str | None:
    counts = run.switch.rule_packets()
    return _evenly(counts, "the rules") if len(counts) >= RULES else f"there are {len(counts)} rules"


def _ports(*groups: Sequence[int]) -> Shown:
    """The guests of each group received evenly."""

    def shown(run: Run) -> str | None:
        found = (_evenly([run.account.ports[n] for n in group], f"the guests {list(group)}") for group in groups)
        return next(filter(None, found), None)

    return shown


PAIR = Guests((1, 0))
KINDS: Mapping[str, Kind] = {
    PLAIN: Kind(
        "testpmd's frames, as they are",
        _saturate,
        installed=(testpmd.program,),
        side_seconds=lambda seconds: side_seconds(seconds) + START_SECONDS,
    ),
    "checksum": _circulating(
        "every frame leaves its checksum to its receiver",
        Wiring(replace(PAIR, unfinished=1), *_pairs(2), shows=(_share("unfinished", "received", 1.0),), offloads=True),
    ),
    "mixed": _circulating(
        "IMIX; one frame in 8 leaves its checksum to its receiver, one in 8 is in two pieces",
        Wiring(
            replace(PAIR, frame="imix", unfinished=8, chained=8),
            *_pairs(2),
            shows=(_share("unfinished", "received", 1 / 8), _share("chained", "sent", 1 / 8), _imix),
            offloads=True,
        ),
        own_frames=True,
    ),
    "packed": _circulating(
        "packed rings",
        Wiring(replace(PAIR, rings=f"{PAIR.rings},packed_vq=1"), *_pairs(2), shows=(_packed,)),
    ),
    "short-rings": _circulating(
        f"rings of {SHORT} descriptors, whose buffers fit a core's second cache",
        Wiring(replace(PAIR, frames=SHORT // 2, rings=f"queue_size={SHORT}"), *_pairs(2)),
    ),
    REWRITE: _circulating(
        "guests that read and write every byte",
        Wiring(replace(PAIR, rewrite=True), *_pairs(2)),
    ),
    "bridge": _circulating(
        "a bridge that learns, of four guests with 16 stations each",
        Wiring(Guests((1, 0, 3, 2)), *_bridge(4), shows=(_ports(range(4)),)),
    ),
    "match": _circulating(
        f"{RULES} rules, each for a flow of its own",
        Wiring(replace(PAIR, frames=RULES, flows=RULES), *_matches(RULES), shows=(_all_rules,)),
    ),
    "pin": _circulating(
        "flows to two replicas of a function",
        Wiring(Guests((None, 0, 0, 5, 5, None), flows=1000), *_replicas(), shows=(_ports((1, 2), (3, 4)),)),
    ),
    "vlan": _circulating(
        "an access port and a trunk",
        Wiring(replace(PAIR, tags=(0, VLAN)), *_vlan()),
    ),
    "device": _circulating(
        "a guest and a network interface of Linux's, by AF_PACKET",
        Wiring(replace(PAIR, frames=128, last="veth"), *_pairs(2)),
    ),
    "tap": _circulating(
        "a guest and a TAP that another program holds, by AF_PACKET",
        Wiring(replace(PAIR, frames=128, last="tap"), *_pairs(2)),
    ),
    "many": _circulating(
        f"{MANY} guests, joined in pairs",
        Wiring(
            Guests(tuple(n ^ 1 for n in range(MANY)), frames=scale.FRAMES, rings=scale.RINGS, interface="vhost-user"),
            *_pairs(MANY),
            shows=(_ports(range(MANY)),),
        ),
    ),
    "iperf": Kind(
        "TCP between two network stacks: bulk, small requests, and each with a connection of its own",
        requests.measure,
        programs=requests.PROGRAMS,
        installed=(partial(system_program, "iperf3"), partial(system_program, "ip")),
        columns=(CYCLES, *requests.COLUMNS),
        ratios=(RATIOS[0], *requests.RATIOS),
        own_frames=True,
        whole_seconds=True,
        side_seconds=requests.side_seconds,
    ),
}
