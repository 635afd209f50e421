"""What the other benchmarks are made of, without any switch: joints, chains, figures."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from tailrace.bench import apply, chain, dashboard, interrupts, latency, priority, recorder, scale, setting, tcp
from tailrace.bench.guests import check_all_there, latency_figures
from tailrace.bench.idle import cpu_seconds
from tailrace.bench.setting import Cores
from tailrace.errors import Fault, Mistake
from tailrace.measure import tcp as measured_tcp
from tailrace.measure.tcp import figures, round_trips
from tailrace.resources.claim import Claim
from tailrace.results.histogram import Histogram, index_of
from tailrace.spec.load import load_spec
from tailrace.state.record import Process


@pytest.mark.parametrize("functions", range(1, chain.MOST_FUNCTIONS + 1))
def test_a_chain_joins_every_port_once_and_no_function_with_itself_but_a_lone_one(functions: int) -> None:
    joints = chain.ChainPlan(functions=functions).joints
    assert sorted(end for joint in joints for end in joint) == list(range(2 * functions))
    for one, other in joints:
        assert functions == 1 or one // 2 != other // 2


def test_every_one_of_a_thousand_chains_has_its_own_match() -> None:
    for chains in ([apply.chain(n) for n in range(1001)], [scale.flow_chain(n, 1000) for n in range(1000)]):
        said = [(each["from"], json.dumps(each["match"], sort_keys=True)) for each in chains]
        assert len(set(said)) == len(said)


def test_flow_chains_match_the_testers_flows() -> None:
    assert scale.flow_chain(513, 1000)["match"] == [
        {"protocol": 17, "source": "198.18.1.1/32", "source_port": 1026},
    ]
    assert scale.flow_chain(0, 1)["match"] == [{"protocol": 17}]


def test_scale_compares_the_largest_with_the_smallest() -> None:
    plan = scale.ScalePlan(of="guests")
    assert [side.name for side in plan.sides] == ["2-guests", "64-guests"]
    (ratio,) = plan.ratios
    sides = {"2-guests": {"hop_cycles": 40.0}, "64-guests": {"hop_cycles": 44.0}}
    assert ratio.of(sides) == pytest.approx(1.1)


def test_interrupts_are_compared_with_themselves_and_their_timer_with_cyclictest() -> None:
    sides = {
        interrupts.OFF: {"p50_us": 10.0, "timer_p50_us": 30.0},
        interrupts.ON: {"p50_us": 11.0, "timer_p50_us": 31.0},
        interrupts.CYCLICTEST: {"timer_p50_us": 20.0},
    }
    found = {ratio.name: ratio.of(sides) for ratio in interrupts.RATIOS}
    assert (found["recorder_p50"], found["timer_p50"], found["timer_p99"]) == (1.1, 1.5, None)
    plan = interrupts.InterruptsPlan(seconds=1.6)
    assert (plan.slice_seconds, plan.subject, list(plan.named)) == (2, {"period_us": 500}, [])
    with pytest.raises(Fault, match="nothing was measured"):
        interrupts.figures(Histogram(), "")


def test_a_task_in_a_machine_is_compared_with_itself() -> None:
    sides = {
        priority.WITHOUT: {"p99.9_us": 20000.0, priority.LOAD_FIGURE: 80.0},
        priority.WITH: {"p99.9_us": 2000.0, priority.LOAD_FIGURE: 60.0},
    }
    found = {ratio.name: ratio.of(sides) for ratio in priority.RATIOS}
    assert (found["p99_9"], found["load"], found["p50"]) == (pytest.approx(0.1), pytest.approx(0.75), None)
    assert priority.BOUNDS.most > priority.LOAD_PRIORITY
    assert all(len(task) <= 15 for task in priority.BOUNDS.tasks)


def test_latency_below_one_favours_tailrace() -> None:
    ratio = latency.RATIOS[0]
    sides = {"tailrace": {"single_p50_us": 2.0}, "ovs-dpdk": {"single_p50_us": 4.0}}
    assert (ratio.name, ratio.of(sides)) == ("single_p50", 0.5)


def test_functions_poll_where_there_is_a_core_for_each_and_else_share_the_loads() -> None:
    def cores(number: int) -> Cores:
        return Cores(number - 1, number - 2, 0, tuple(range(1, number - 2)))

    for number, functions, polls in ((2, 0, True), (2, 1, False), (4, 1, True), (4, 2, False), (8, 5, True)):
        names = [function.name for function in recorder.RecorderPlan(functions=functions).scene.functions]
        where = cores(number).placement(names)
        assert where.tester is not None
        assert list(where.functions) == names
        assert {each.mode for each in where.functions.values()} <= {"poll" if polls else "interrupt"}
        assert where.oversubscribed == (not polls)
        taken = [where.switch.core, where.tester.core, *(each.core for each in where.functions.values())]
        assert len(set(taken)) == (len(taken) if polls else 2)
        assert where.switch.core not in taken[1:]


def test_cpus_that_another_folders_node_polls_on_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = Claim("/run/other", "voice.yaml", "", exclusive=(3,))

    def held(own: Collection[Path]) -> dict[int, Claim]:
        assert set(own) == {tmp_path, tmp_path / "run"}
        return {3: other}

    monkeypatch.setattr(setting, "exclusive_of_others", held)
    setting.check_unpolled(tmp_path, Cores(1, 2, 3))
    for cores in (Cores(3, 1, 0), Cores(1, 3, 0)):
        with pytest.raises(Mistake, match=r"CPU 3 is polled on by /run/other \(voice.yaml\); end that node first"):
            setting.check_unpolled(tmp_path, cores)


def stream(**values: Any) -> dict[str, Any]:
    counts = [[index_of(2_000), 999], [index_of(9_000), 1]]
    found = {"count": 1000, "min_ns": 2_000, "max_ns": 9_000, "sum_ns": 2_007_000, "counts": counts}
    known = {"sent": 1000, "received": 1000, "lost": 0, "duplicate": 0, "out_of_sequence": 0, "latency": found}
    return known | values


def test_latency_figures_are_in_microseconds() -> None:
    figures = latency_figures(stream(), "single_")
    assert figures["single_p50_us"] == pytest.approx(2.0, rel=0.01)
    assert figures["single_p99.9_us"] == pytest.approx(2.0, rel=0.01)
    assert figures["single_max_us"] == 9.0


@pytest.mark.parametrize("values", [{"lost": 1}, {"duplicate": 1}, {"out_of_sequence": 1}, {"received": 0}])
def test_a_frame_that_is_not_there_once_and_in_order_is_a_fault(values: dict[str, Any]) -> None:
    check_all_there(stream())
    with pytest.raises(Fault):
        check_all_there(stream(**values))


def test_what_iperf3_found() -> None:
    found = {"end": {"sum_received": {"bits_per_second": 5.5e9}, "sum_sent": {"retransmits": 3}}}
    assert figures(json.dumps(found)) == {"gbps": 5.5, "retransmits": 3}


def test_what_ping_found() -> None:
    text = (
        "1000 packets transmitted, 998 received, 0.2% packet loss\nrtt min/avg/max/mdev = 0.021/0.045/1.203/0.012 ms\n"
    )
    found = {"ping_min_us": 21, "ping_avg_us": 45, "ping_max_us": 1203, "ping_mdev_us": 12, "ping_lost": 2}
    assert round_trips(text) == found
    with pytest.raises(Fault, match="no answer"):
        round_trips("1000 packets transmitted, 0 received, 100% packet loss, time 1001ms\n")


NO_ANSWER = "1 packets transmitted, 0 received, +1 errors, 100% packet loss, time 0ms\n"


def test_stacks_that_do_not_reach_each_other_at_first_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """ping gives up sooner than told where nobody answers for the address, as while a link comes up."""
    answer = "1 packets transmitted, 1 received, 0% packet loss, time 0ms\n"
    found = "1000 packets transmitted, 999 received, 0.1% packet loss\nrtt min/avg/max/mdev = 0.01/0.02/0.03/0.01 ms\n"
    said = iter([NO_ANSWER, "", NO_ANSWER, answer, found])
    monkeypatch.setattr(measured_tcp, "_run_ping", lambda *_: next(said))
    monkeypatch.setattr(measured_tcp, "_AGAIN_SECONDS", 0.0)
    stacks = measured_tcp.Stacks(launcher=None, place=None)  # type: ignore[arg-type]
    assert measured_tcp.ping(stacks)["ping_lost"] == 1


@pytest.mark.parametrize("card", [True, False])
def test_stacks_that_never_reach_each_other_are_a_fault(monkeypatch: pytest.MonkeyPatch, card: bool) -> None:
    monkeypatch.setattr(measured_tcp, "_run_ping", lambda *_: NO_ANSWER)
    monkeypatch.setattr(measured_tcp, "READY_SECONDS", 0.0)
    stacks = measured_tcp.Stacks(launcher=None, place=None, card=card)  # type: ignore[arg-type]
    with pytest.raises(Fault) as said:
        measured_tcp.ping(stacks)
    assert str(said.value) == "one stack did not reach the other in 0 s" + "; `dmesg` says which has no link" * card


def test_stacks_are_compared_with_several_ways() -> None:
    plan = tcp.TcpPlan(against="linux-bridge,passthrough", card="ens1f0", messages=(64,))
    assert [side.name for side in plan.sides] == ["tailrace", "linux-bridge", "passthrough"]
    assert [(each.name, each.side, each.by) for each in plan.ratios] == [
        ("gbps_64_linux-bridge", "tailrace", "linux-bridge"),
        ("round_trip_linux-bridge", "linux-bridge", "tailrace"),
        ("gbps_64_passthrough", "tailrace", "passthrough"),
        ("round_trip_passthrough", "passthrough", "tailrace"),
    ]
    assert [each.name for each in tcp.TcpPlan(against="veth").ratios] == ["gbps", "round_trip"]
    assert tcp.TcpPlan(against="none").ratios == []


@pytest.mark.parametrize(("text", "words"), [("", "that could be read"), ('{"error": "refused"}', "refused")])
def test_iperf3_without_a_connection_is_a_fault(text: str, words: str) -> None:
    with pytest.raises(Fault, match=words):
        figures(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: chain.ChainPlan(functions=0),
        lambda: chain.ChainPlan(functions=9),
        lambda: chain.ChainPlan(against="vpp"),
        lambda: scale.ScalePlan(of="ports"),
        lambda: latency.LatencyPlan(against="vpp"),
        lambda: apply.ApplyPlan(chains=0),
        lambda: apply.ApplyPlan(times=0),
        lambda: tcp.TcpPlan(seconds=0.5),
        lambda: tcp.TcpPlan(messages=(64, 0)),
        lambda: tcp.TcpPlan(messages=(64, 64)),
        lambda: tcp.TcpPlan(against="vpp"),
        lambda: tcp.TcpPlan(against="veth,none"),
        lambda: tcp.TcpPlan(against="veth,veth"),
        lambda: tcp.TcpPlan(against="passthrough"),
        lambda: tcp.TcpPlan(card="ens1f0"),
        lambda: recorder.RecorderPlan(functions=-1),
        lambda: recorder.RecorderPlan(functions=9),
    ],
)
def test_a_plan_that_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(Mistake, match="expected"):
        make()


@pytest.mark.parametrize(("chains", "ports"), [(1, 2), (1000, 64)])
def test_the_dashboards_node_has_a_chain_for_each_flow(chains: int, ports: int, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(dashboard.spec(chains, ports))
    found = load_spec(path)
    assert (len(found.chains), len(found.ports)) == (chains, ports - 2)
    assert chains == 1 or "198.18.1.231/32" in str(found.chains["chain-999"])
    path.write_text(dashboard.spec(chains, ports, "dies"))
    found = load_spec(path)
    assert (len(found.chains), list(found.functions)) == (chains + 1, ["dies"])


def test_what_the_dashboards_benchmark_cannot_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "CHROMIUM", "/usr/bin/chromium")
    with pytest.raises(Mistake, match="--ports 1: expected 2 to 256"):
        dashboard.DashboardPlan(ports=1)
    monkeypatch.setattr(dashboard, "CHROMIUM", None)
    with pytest.raises(Mistake, match="Chromium"):
        dashboard.DashboardPlan()
    assert [dashboard.quantile([1, 2, 3, 4], share) for share in (0.5, 0.99)] == [2, 4]


def test_the_page_is_small() -> None:
    assert 10_000 < dashboard.page_bytes() < 500 << 10


def test_a_machine_without_taps_says_so_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measured_tcp, "own_program", lambda _: tmp_path)
    monkeypatch.setattr(measured_tcp, "_TUN", tmp_path / "tun")
    with pytest.raises(Mistake, match=r"has no .*tun, .*run `sudo modprobe tun`"):
        measured_tcp.check_guests()
    (tmp_path / "tun").touch()
    measured_tcp.check_guests()


def test_cpu_time_of_threads_is_by_their_names() -> None:
    own = Process("own", os.getpid(), 0)
    name = Path("/proc/self/comm").read_text().strip()
    assert 0 < cpu_seconds(own, name) <= cpu_seconds(own)
    assert cpu_seconds(own, "nobody's") == 0
