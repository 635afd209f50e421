"""TCP between two Linux network stacks, as in `bench tcp`: after a bulk transfer many small requests and answers, over
connections that last (in the way of netperf's TCP_RR) and with a connection for each (TCP_CRR).

Cycles are those of a packet of the small requests over connections that last.
"""

from __future__ import annotations

import json
import time

from tailrace.bench import tcp
from tailrace.bench.compare import Plan, Step
from tailrace.bench.model import OVS_DPDK, TAILRACE, Figures, Ratio, Sample, Window
from tailrace.bench.setting import Setting
from tailrace.bench.table import Column
from tailrace.bench.window import counters_of
from tailrace.errors import Fault
from tailrace.measure.stacks import ADDRESSES
from tailrace.measure.tcp import START_SECONDS, TAP_GUEST, Stacks, ask, transfer
from tailrace.process.programs import own_program

REQUESTS = "tailrace-requests"
PROGRAMS = (TAP_GUEST, REQUESTS)
PORT = 5202
COLUMNS = (
    Column("gbps", "bulk\nGbit/s", 2),
    Column("requests_kps", "requests\n1000/s", 2),
    Column("connections_kps", "connections\n1000/s", 2),
)
RATIOS = (
    Ratio("gbps", "gbps", TAILRACE, OVS_DPDK),
    Ratio("requests", "requests_kps", TAILRACE, OVS_DPDK),
    Ratio("connections", "connections_kps", TAILRACE, OVS_DPDK),
)
"""Above 1 they favour Tailrace."""


def side_seconds(seconds: float) -> float:
    """How long a side takes in all."""
    return 3 * seconds + START_SECONDS


def measure(plan: Plan, name: str, setting: Setting, step: Step) -> list[Sample]:
    """One side: bulk, requests, connections, for so many seconds each, which are whole ones."""
    seconds = int(plan.seconds)
    with tcp.through(setting, name) as (switch, stacks):
        step(START_SECONDS / 2)

        def figures() -> Figures:
            bulk = transfer(stacks, seconds)
            first, began = counters_of(switch), time.monotonic()
            requests = _requests(stacks, seconds)
            window = Window(first, counters_of(switch), time.monotonic() - began)
            connections = _requests(stacks, seconds, "--connect")
            cycles = window.figures()["cycles_per_packet"]
            return {"cycles_per_packet": cycles, **bulk, "requests_kps": requests, "connections_kps": connections}

        return setting.samples(stacks.needed, figures)


def _requests(stacks: Stacks, seconds: int, *how: str) -> float:
    """Requests that were answered, 1000 a second."""
    program = str(own_program(REQUESTS))
    server = [program, "--server", *how]
    client = [program, "--client", ADDRESSES[1], "--seconds", str(seconds), *how]
    said = ask(stacks, server, client, PORT, seconds)
    return rate(said)


def rate(text: str) -> float:
    """1000 requests a second, from the client's JSON. Raises Fault if it failed, or none was answered."""
    try:
        found: dict[str, float] = json.loads(text)
        answered = found["requests"] / found["seconds"]
    except (ValueError, KeyError, ZeroDivisionError):
        answered = 0
    if answered == 0:
        raise Fault("the small requests were not answered")
    return round(answered / 1e3, 3)
