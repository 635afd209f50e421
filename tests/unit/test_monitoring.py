"""What is shipped for Prometheus and Grafana: rules and a dashboard, of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from served_dashboard import FACTS, MadeUp

from tailrace.observe.metrics import PageCollector, host_metrics

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus/tailrace.rules.yml"
GRAFANA = PACKAGING / "grafana/tailrace.json"


def exposition() -> str:
    outages = {"nat": {"bypass": 2, "block": 0, "drop": 0, "lost": 5}}
    sampler = MadeUp(facts=replace(FACTS, crowded={"nat": 3}, restarts={"nat": 1}, outages=outages))
    registry = CollectorRegistry(auto_describe=False)
    verified = {"profile": "latency", "drifted": True, "counts": {"right": 40, "drifted": 2}}
    registry.register(PageCollector(sampler, lambda: verified))  # type: ignore[arg-type]
    text: str = generate_latest(registry).decode()
    return text


def expressions() -> list[str]:
    """Every expression that is shipped, with Grafana's variables filled in."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(GRAFANA.read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    return rules + [re.sub(r"\$(instance|chain)", ".*", each.replace("$__rate_interval", "1m")) for each in shown]


def test_the_exposition_is_openmetrics() -> None:
    families = {family.name: family for family in text_string_to_metric_families(exposition())}
    assert families["tailrace_up"].samples[0].value == 1.0
    states = {sample.labels["port"]: sample.value for sample in families["tailrace_port_up"].samples}
    assert (states["nat.0"], states["wan"]) == (1.0, 0.0)
    assert families["tailrace_function_restarts"].type == "counter"
    outages = {sample.labels["chains"]: sample.value for sample in families["tailrace_function_outages"].samples}
    assert outages == {"bypass": 2.0, "block": 0.0, "drop": 0.0}
    assert families["tailrace_function_lost_packets"].samples[0].value == 5.0
    places = {sample.labels["state"]: sample.value for sample in families["tailrace_host_places"].samples}
    assert places == {"right": 40.0, "drifted": 2.0}
    assert families["tailrace_host_drifted"].samples[0].value == 1.0
    assert not list(host_metrics({"why": "no profile is applied"}))


def test_every_metric_that_is_asked_for_is_there() -> None:
    names = {sample.name for family in text_string_to_metric_families(exposition()) for sample in family.samples}
    asked = {name for each in expressions() for name in re.findall(r"tailrace_\w+", each)}
    assert asked <= names


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    made: dict[str, Any] = json.loads(GRAFANA.read_text())
    panels = made["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= made.keys()
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        assert panel["datasource"]["uid"] == "${source}"


@pytest.mark.requires_program("promtool")
def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)
    queries = [{"record": f"shown:{number}", "expr": each} for number, each in enumerate(expressions())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": queries}]}))
    subprocess.run(["promtool", "check", "rules", file], check=True, capture_output=True)


@pytest.mark.requires_program("promtool")
def test_prometheus_has_nothing_against_the_metrics() -> None:
    text = exposition().replace("# EOF\n", "")
    found = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert "error while linting" not in found.stderr
