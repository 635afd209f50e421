"""`bench function firewall`, `nat` and `balancer`: what is made of what the program prints, and what is refused."""

from __future__ import annotations

import pytest

from tailrace.bench.following import KINDS, FollowingPlan, figures, rates, ratios
from tailrace.errors import Failure, Mistake

PRINTED: dict[str, object] = {
    "tsc_hz": 2_000_000_000,
    "skeleton": {"few": 100.0, "many": 100.0, "answers": 0.0, "begin": 0.0},
    "firewall, 1 rule": {"few": 125.0, "many": 200.0, "answers": 160.0, "begin": 400.0},
    "firewall, 10000 rules": {"few": 125.0, "many": 204.0, "answers": 160.0, "begin": 1000.0},
}

ON_CORES: dict[str, dict[str, object]] = {
    "skeleton_on_1": {"mpps": 30.0, "mpps_few": 30.0},
    "skeleton_on_2": {"mpps": 60.0, "mpps_few": 60.0},
    "firewall_on_1": {"mpps": 10.0, "mpps_few": 20.0},
    "firewall_on_1_queues_2": {"mpps": 9.0, "mpps_few": 18.0, "mpps_handed_on": 8.0},
    "firewall_on_2": {"mpps": 19.0, "mpps_few": 39.0, "mpps_handed_on": 12.0},
}


def test_rates_are_beside_the_skeletons_and_rules_beside_one() -> None:
    skeleton = figures(PRINTED, "skeleton")
    assert skeleton["mpps"] == skeleton["mpps_answers"] == 20.0 and "connections_per_second" not in skeleton
    sides = {"skeleton": skeleton} | {name: figures(PRINTED, text) for name, text in KINDS["firewall"].items()}
    assert sides["firewall"]["connections_per_second"] == 5e6
    sides |= {name: rates(found, "firewall") for name, found in ON_CORES.items()}
    found = {each.name: each.of(sides) for each in ratios("firewall")}
    cores = {"cores": 1.9, "cores_few": 1.95, "cores_handed_on": 1.2, "cores_skeleton": 2.0, "queues": 0.9}
    assert found == {"mpps": 0.5, "mpps_few": 0.8, "mpps_answers": 0.625, **cores, "rules": 1.02}
    assert [each.name for each in FollowingPlan(kind="firewall").sides] == list(sides)
    assert [each.name for each in ratios("nat")] == ["mpps", "mpps_few", "mpps_answers", *cores]


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(Mistake, match=r"--seconds 0.5: expected a whole number"):
        FollowingPlan(seconds=0.5, kind="nat")
    with pytest.raises(Failure, match="printed nothing about nat"):
        figures(PRINTED, "nat")
    with pytest.raises(Failure, match="printed no rate of nat"):
        rates({"mpps": 0.0}, "nat")
