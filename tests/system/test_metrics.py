"""`tailrace metrics` scraped while frames move: the counters are those of the page, under Prometheus's conventions."""

from __future__ import annotations

import re
import signal
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from running_node import ONE, Command, needs_a_node, wait_until
from running_tester import beside_a_node, both_ways, stream

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.status == 200
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.mark.parametrize("listen", ["::1:0", "[::1]:0", "127.0.0.1:0", "localhost:0"])
def test_the_address_that_is_printed_can_be_scraped(command: Command, listen: str) -> None:
    serving = command.begin("metrics", "--listen", listen)
    try:
        assert serving.stdout is not None
        url = serving.stdout.readline().split()[-1]
        assert scrape(url)["tailrace_up", ()] == 0
    finally:
        serving.terminate()
        serving.wait(60)


def test_a_scrape_says_every_counter(command: Command, binaries: Path) -> None:
    assert "expected an address and a port" in command("metrics", "--listen", "9752", status=2).stderr
    serving = command.begin("metrics", "--listen", "127.0.0.1:0")
    try:
        assert serving.stdout is not None
        match = re.search(r"http://127\.0\.0\.1:[0-9]+/metrics", serving.stdout.readline())
        assert match is not None
        url = match[0]
        assert scrape(url)["tailrace_up", ()] == 0, "nothing is up"

        command("up", command.spec(ONE))
        ports = {name: f"vhost:{command.state / 'sockets' / f'tester.{name}'}.sock" for name in "ab"}
        tester = beside_a_node(binaries, command.folder, ports)
        result = tester.trial(both_ways(2000), 1.0, wait=2.0)
        assert tester.end() == 0
        sent = {each["name"]: each["sent"] for each in result["streams"]}

        samples = scrape(url)
        assert value(samples, "tailrace_up") == 1
        assert value(samples, "tailrace_port_received_packets_total", port="tester.a", queue="0") == sent["there"]
        assert value(samples, "tailrace_port_sent_packets_total", port="tester.b", queue="0") == sent["there"]
        assert (
            value(samples, "tailrace_hop_packets_total", chain="voice", hop="1", direction="forward") == sent["there"]
        )
        assert value(samples, "tailrace_hop_packets_total", chain="voice", hop="0", direction="back") == sent["back"]
        assert value(samples, "tailrace_chain_delivered_packets_total", chain="voice", direction="back") == sent["back"]
        full = {"port": "tester.b", "queue": "0", "reason": "receiver_full"}
        assert value(samples, "tailrace_port_dropped_packets_total", **full) == 0
        assert value(samples, "tailrace_worker_packets_total", worker="worker-0") >= 2 * sum(sent.values())
        assert value(samples, "tailrace_worker_busy_cycles_total", worker="worker-0") > 0
        assert value(samples, "tailrace_configuration_version") == command.status()["version"]
        again = scrape(url)
        assert value(again, "tailrace_worker_idle_cycles_total", worker="worker-0") > value(
            samples, "tailrace_worker_idle_cycles_total", worker="worker-0"
        )

        command("down")
        assert scrape(url) == {("tailrace_up", ()): 0}
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=60)
    assert serving.returncode == 130


SHARED = """\
functions: {fw: {kind: skeleton, replicas: 2}}
chains: {voice: [tester.a, fw, tester.b]}
"""


def test_flows_that_found_no_slot_are_reported(command: Command, binaries: Path) -> None:
    """A million flows in a table for two million: hardly any is lost, but the fullest places are too small for some."""
    command("up", command.spec(SHARED))
    ports = {name: f"vhost:{command.state / 'sockets' / f'tester.{name}'}.sock" for name in "ab"}
    tester = beside_a_node(binaries, command.folder, ports)
    try:
        tester.start([stream("there", "a", "b", 300_000, flows=1_000_000)], 3600)
        wait_until(lambda: command.status()["functions"][0]["crowded"] > 0, 180)
        tester.call("trial.stop")
        tester.wait_end()
    finally:
        assert tester.end() == 0
    (function,) = command.status()["functions"]
    shown = command("status").stdout
    assert f"{function['crowded']} times the flow table was full" in shown
    assert "function fw: " in command("top", "--once").stdout
    serving = command.begin("metrics", "--listen", "127.0.0.1:0")
    assert serving.stdout is not None
    samples = scrape(serving.stdout.readline().split()[-1])
    assert value(samples, "tailrace_function_crowded_flows_total", function="fw") == function["crowded"]
    command("down")
