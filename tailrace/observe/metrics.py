"""The counter page as Prometheus metrics: read when it is scraped, so that nothing runs in between.

Names follow Prometheus's conventions: tailrace_THING_FIELD_total with the thing's names as labels; drops are one metric
with the reason as a label; what is a level and does not only grow is a gauge, without _total. Fields come from the page
itself, so a counter that is new appears by itself.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.errors import Mistake
from tailrace.observe.page import OtherLayout
from tailrace.observe.scraped import ScrapeServer
from tailrace.observe.snapshot import Sampler, Snapshot

#: How often a worker found a burst of so many packets or more, below the next size.
BURST = re.compile(r"^burst_([0-9]+)$")
_LEVELS = frozenset({"waiting_packets", "port_up"})
"""Fields that say how much there is, and not how often something came."""
_HELP = {
    "received_packets": "Frames taken from the port",
    "received_bytes": "Bytes of frames that were taken from the port and went on, without the FCS",
    "sent_packets": "Frames given to the port",
    "sent_bytes": "Their bytes, without the FCS",
    "waiting_packets": "Frames that waited in the port when it was last looked at, now and then",
    "packets": "Frames",
    "bytes": "Bytes of these frames, without the FCS",
    "crowded_flows": "Times that a new flow found no slot among the flows known of the function, or took another's",
    "port_up": "Whether the port's guest or device is there",
    "restarts": "Times that the function had ended by itself and was started again",
    "outages": "Times that the function had ended with all its replicas, by what its chains did until it was back",
    "lost_packets": "Frames for the function while it had ended, of outages that are over",
    "busy_cycles": "TSC cycles of rounds that moved frames",
    "idle_cycles": "TSC cycles of rounds that found none",
}


class PageCollector(Collector):
    """What a scrape gets. `verify` says how the host's applied profile stands (`tailrace.dashboard.host`)."""

    def __init__(self, sampler: Sampler, verify: Callable[[], Mapping[str, Any]]) -> None:
        self._sampler = sampler
        self._verify = verify
        self._lock = threading.Lock()  # each scrape has a thread of its own

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            try:
                snapshot = self._sampler.snapshot()
            except (Mistake, OtherLayout):  # another user's or version's, which was not up when this began
                snapshot = None
        yield GaugeMetricFamily("tailrace_up", "Whether a switch runs", value=float(snapshot is not None))
        if snapshot is not None:
            yield from metrics(snapshot)
        yield from host_metrics(self._verify())


def host_metrics(verified: Mapping[str, Any]) -> Iterator[Metric]:
    """How many places of the applied profile stand how, and whether any is not as it was set; nothing where none is
    applied."""
    if "counts" not in verified:
        return
    places = GaugeMetricFamily(
        "tailrace_host_places", "Places that the applied profile sets, by how they stand", labels=["profile", "state"]
    )
    for state, count in verified["counts"].items():
        places.add_metric([verified["profile"], state], count)
    yield places
    yield GaugeMetricFamily(
        "tailrace_host_drifted",
        "Whether something has changed a place since it was set",
        value=float(verified["drifted"]),
    )


def metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """Every counter of a snapshot as a metric."""
    families = _Families()
    for (kind, name, _), counters in snapshot.slots.items():
        if kind == "queue":
            port, _, queue = name.rpartition("/")
            _queue(families, port, queue, counters)
        elif kind == "hop":
            chain, _, hop = name.rpartition("/")
            _hop(families, chain, hop, counters)
        elif kind == "worker":
            _worker(families, name, counters)
        else:
            _other(families, kind, name, counters)
    _chains(families, snapshot)
    for function, count in (snapshot.facts.crowded or {}).items():
        families.add("tailrace_function_crowded_flows", "crowded_flows", {"function": function}, count)
    for port, state in snapshot.facts.ports.items():
        families.add("tailrace_port_up", "port_up", {"port": port}, float(state == "up"))
    for function, count in snapshot.facts.restarts.items():
        families.add("tailrace_function_restarts", "restarts", {"function": function}, count)
    for function, counts in snapshot.facts.outages.items():
        for policy in ("bypass", "block", "drop"):
            labels = {"function": function, "chains": policy}
            families.add("tailrace_function_outages", "outages", labels, counts[policy])
        families.add("tailrace_function_lost_packets", "lost_packets", {"function": function}, counts["lost"])
    if snapshot.facts.version is not None:
        yield GaugeMetricFamily(
            "tailrace_configuration_version", "Version of the configuration", value=float(snapshot.facts.version)
        )
    yield from families.found()


class _Families:
    """Metrics as they come together, each with its samples."""

    def __init__(self) -> None:
        self._numbers: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._histograms: dict[str, HistogramMetricFamily] = {}

    def add(self, name: str, field: str, labels: dict[str, str], value: float) -> None:
        family = self._numbers.get(name)
        if family is None:
            text = _HELP.get(field, field.replace("_", " ").capitalize())
            kind = GaugeMetricFamily if field in _LEVELS else CounterMetricFamily
            family = self._numbers[name] = kind(name, text, labels=list(labels))
        family.add_metric(list(labels.values()), value)

    def histogram(self, name: str, text: str, labels: dict[str, str], sizes: dict[int, int], total: float) -> None:
        """From how often a value was in each size, by the size's smallest; `total` is the sum of all values."""
        family = self._histograms.get(name)
        if family is None:
            family = self._histograms[name] = HistogramMetricFamily(name, text, labels=list(labels))
        buckets, count = [], 0
        order = sorted(sizes)
        for size, following in zip(order, [*order[1:], order[-1] + 1], strict=True):
            count += sizes[size]
            buckets.append((str(float(following - 1)), float(count)))
        family.add_metric(list(labels.values()), [*buckets, ("+Inf", float(count))], total)

    def found(self) -> Iterable[Metric]:
        return [*self._numbers.values(), *self._histograms.values()]


def _queue(families: _Families, port: str, queue: str, counters: dict[str, int]) -> None:
    labels = {"port": port, "queue": queue}
    for field, value in counters.items():
        if field.startswith("drop_"):
            families.add(
                "tailrace_port_dropped_packets",
                "frames dropped at the port, by reason",
                {**labels, "reason": field.removeprefix("drop_")},
                value,
            )
        else:
            families.add(f"tailrace_port_{field}", field, labels, value)


def _hop(families: _Families, chain: str, hop: str, counters: dict[str, int]) -> None:
    for field, value in counters.items():
        direction, _, what = field.partition("_")
        labels = {"chain": chain, "hop": hop, "direction": direction}
        if what.startswith("drop_"):
            families.add(
                "tailrace_hop_dropped_packets",
                "frames dropped at the hop, by reason",
                {**labels, "reason": what.removeprefix("drop_")},
                value,
            )
        else:
            families.add(f"tailrace_hop_{what}", what, labels, value)


def _other(families: _Families, kind: str, name: str, counters: dict[str, int]) -> None:
    """Mirrors, and what has only a name."""
    for field, value in counters.items():
        if field.startswith("drop_"):
            families.add(
                f"tailrace_{kind}_dropped_packets",
                f"frames dropped at the {kind}, by reason",
                {"name": name, "reason": field.removeprefix("drop_")},
                value,
            )
        else:
            families.add(f"tailrace_{kind}_{field}", field, {"name": name}, value)


def _chains(families: _Families, snapshot: Snapshot) -> None:
    """What came out of a chain: forward at its last hop, back at its first."""
    hops: dict[str, dict[int, dict[str, int]]] = {}
    for name, counters in snapshot.of("hop").items():
        chain, _, hop = name.rpartition("/")
        hops.setdefault(chain, {})[int(hop)] = counters
    for chain, numbered in hops.items():
        for direction, counters in (("forward", numbered[max(numbered)]), ("back", numbered[min(numbered)])):
            for what in ("packets", "bytes"):
                families.add(
                    f"tailrace_chain_delivered_{what}",
                    f"{what} that left the chain at its end",
                    {"chain": chain, "direction": direction},
                    counters.get(f"{direction}_{what}", 0),
                )


def _worker(families: _Families, name: str, counters: dict[str, int]) -> None:
    labels = {"worker": name}
    sizes: dict[int, int] = {}
    for field, value in counters.items():
        match = BURST.match(field)
        if match:
            sizes[int(match[1])] = value
        else:
            families.add(f"tailrace_worker_{field}", field, labels, value)
    if sizes:
        families.histogram(
            "tailrace_worker_burst_packets", "Packets in a burst", labels, sizes, float(counters.get("packets", 0))
        )


def authority(host: str, port: int) -> str:
    """Host and port as they stand in a URL: an IPv6 address in brackets (RFC 3986, 3.2.2), its zone after %25 (RFC
    6874)."""
    return f"[{host.replace('%', '%25')}]:{port}" if ":" in host else f"{host}:{port}"


def serve(sampler: Sampler, verify: Callable[[], Mapping[str, Any]], host: str, port: int) -> ScrapeServer:
    """Answers scrapes at http://HOST:PORT/metrics from threads of its own; port 0 is any free one. Raises Mistake."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector(sampler, verify))
    try:
        server = ScrapeServer(host, port)
    except (OSError, UnicodeError) as error:  # a name may be none that can be looked up
        why = error.strerror if isinstance(error, OSError) else "no host has such a name"
        raise Mistake(f"{authority(host, port)}: cannot listen there ({why}); choose another with --listen") from None
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
