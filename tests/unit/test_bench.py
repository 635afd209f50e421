"""The arithmetic and the checks of `tailrace bench hop`, without any switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from io import StringIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tailrace.bench import compare as bench_compare
from tailrace.bench import window
from tailrace.bench.compare import Plan, Side
from tailrace.bench.hop import HopPlan
from tailrace.bench.model import (
    OVS_DPDK,
    TAILRACE,
    Comparison,
    Counters,
    Pair,
    Sample,
    Window,
    measure_pairs,
    merged,
    pairs_of,
)
from tailrace.bench.setting import Setting
from tailrace.bench.table import Column, _moved_notes, comparison_table
from tailrace.bench.testpmd import Traffic, arguments, parse_port_stats
from tailrace.bench.traffic import RATIOS
from tailrace.bench.window import check_whole, measure_window
from tailrace.cli.bench import _parse_cores
from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric.ovs_dpdk import PmdStats, parse_datapath_drops, parse_dropped, parse_pmd_stats
from tailrace.measure.progress import Silent
from tailrace.measure.tester import Stopped
from tailrace.state.record import Process

PMD_STATS = """\
pmd thread numa_id 0 core_id 1:
  packets received: 28983904
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  simple match hits: 28983840
  miss with success upcall: 2
  avg. packets per output batch: 32.00
  idle cycles: 8042088289 (61.18%)
  processing cycles: 5103239777 (38.82%)
  avg cycles per packet: 453.54 (13145328066/28983904)
  avg processing cycles per packet: 176.07 (5103239777/28983904)
main thread:
  packets received: 7
  packet recirculations: 0
  avg. packets per output batch: 0.00
"""

DPCTL = """\
netdev@ovs-netdev:
  lookups: hit:62 missed:2 lost:64
  port 0: ovs-netdev (tap)
    RX packets:0 errors:0 dropped:0 overruns:0 frame:0
    TX packets:0 errors:0 dropped:3 aborted:0 carrier:0
  port 1: p0 (dpdkvhostuserclient: configured_rx_queues=1)
    RX packets:27356640 errors:0 dropped:0 overruns:? frame:?
    TX packets:27356160 errors:? dropped:512 aborted:? carrier:?
"""

PORT_STATS = """\
testpmd> show port stats all

  ######################## NIC statistics for port 0  ########################
  RX-packets: 35573536   RX-missed: 0          RX-bytes:  2134412160
  RX-errors: 0
  TX-packets: 35574400   TX-errors: 0          TX-bytes:  2134464000
  ############################################################################

  ######################## NIC statistics for port 1  ########################
  RX-packets: 35573376   RX-missed: 0          RX-bytes:  2134402560
  RX-errors: 0
  TX-packets: 35574560   TX-errors: 0          TX-bytes:  2134473600
  ############################################################################
testpmd> """


def test_pmd_stats_leave_the_main_thread_out() -> None:
    assert parse_pmd_stats(PMD_STATS) == PmdStats(28983904, 8042088289, 5103239777)


def test_pmd_stats_add_up_over_threads() -> None:
    other = PMD_STATS.partition("main thread")[0].replace("core_id 1", "core_id 2")
    assert parse_pmd_stats(other + PMD_STATS).packets == 2 * 28983904


@pytest.mark.parametrize("text", ["", "main thread:\n  packets received: 7\n", PMD_STATS.replace("idle cycles", "x")])
def test_pmd_stats_without_numbers_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_pmd_stats(text)


COVERAGE = """\
Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=d33bd5d8:
datapath_drop_upcall_error   0.0/sec     0.000/sec        0.0000/sec   total: 64
datapath_drop_invalid_port   0.0/sec     0.000/sec        0.0000/sec   total: 992
datapath_drop_rx_invalid_packet   0.0/sec     0.000/sec        0.0000/sec   total: 3
netdev_received            0.0/sec     0.000/sec        0.0000/sec   total: 659072
100 events never hit
"""


def test_dropped_of_all_ports_and_directions_and_for_want_of_a_flow() -> None:
    assert parse_dropped(DPCTL) == 515 + 64


def test_dropped_between_ports_and_not_twice() -> None:
    assert parse_datapath_drops(COVERAGE) == 995


def test_port_stats_of_both_ports() -> None:
    assert parse_port_stats(PORT_STATS) == Traffic(sent=71148960, received=71146912)


def test_port_stats_of_one_port_are_refused() -> None:
    with pytest.raises(ValueError, match="1 port"):
        parse_port_stats(PORT_STATS.partition("  ######################## NIC statistics for port 1")[0])


def test_guests_are_started_with_the_same_words_whatever_the_switch_is(tmp_path: Path) -> None:
    line = arguments([tmp_path / "a", tmp_path / "b"], core=3, control=1)
    assert line[:2] == ["--lcores", "0@1,1@3"]
    assert f"net_virtio_user1,path={tmp_path}/b,queue_size=1024,server=1" in line


def test_figures_are_the_difference_of_two_readings() -> None:
    window = Window(Counters(100, 1000, 50, 3), Counters(2_000_100, 61_001_000, 20_000_050, 3), 0.5)
    assert window.figures() == {
        "cycles_per_packet": 30.5,
        "mpps": 4.0,
        "packets": 2_000_000,
        "dropped": 0,
        "busy": pytest.approx(0.7531, abs=1e-4),
    }


def test_dropped_packets_are_not_in_the_rate() -> None:
    window = Window(Counters(100, 1000, 500, 7), Counters(4_000_110, 4000, 1500, 17), 2.0)
    assert (window.figures()["mpps"], window.figures()["dropped"]) == (2.0, 10)


def test_nothing_delivered_is_a_fault() -> None:
    with pytest.raises(Fault, match="no packet passed"):
        Window(Counters(0, 0, 0, 0), Counters(10, 1, 1, 10), 1.0).figures()


def side(cycles: float, mpps: float) -> dict[str, float]:
    return {"cycles_per_packet": cycles, "mpps": mpps}


def pair(ours: dict[str, float], theirs: dict[str, float], *looks_ns: float) -> Pair:
    """A window of each side, with the looks before, between and after."""
    first, between, last = looks_ns
    return Pair({TAILRACE: [Sample(ours, (first, between))], OVS_DPDK: [Sample(theirs, (between, last))]})


NEAR = pair(side(20, 20), side(140, 10), 82.0, 81.0, 80.0)
MOVED = pair(side(50, 8), side(150, 4), 82.0, 83.0, 351.0)
FAR = pair(side(60, 6), side(240, 2), 351.0, 350.0, 349.0)
NEAR_TOO = pair(side(30, 18), side(150, 9), 60.0, 70.0, 80.0)
PAIRS = [NEAR, MOVED, FAR, NEAR_TOO]
MACHINE = {"cpu": "CPU", "switch_core": 1, "load_core": 0, "versions": {"dpdk": "22.11"}}


def hop_result(pairs: list[Pair], asked: int = 2) -> Comparison:
    return Comparison("hop", {"frame": 64, "seconds": 3.0}, pairs, RATIOS, MACHINE, asked)


def test_ratios_favour_tailrace_above_one_and_the_median_is_of_the_pairs_ratios() -> None:
    cycles, mpps = RATIOS
    assert [cycles.of(pair.sides) for pair in PAIRS] == [7.0, 3.0, 4.0, 5.0]
    result = hop_result(PAIRS)
    assert (result.median(cycles), result.median(mpps)) == (6.0, 2.0)
    assert [(pair.near, pair.steady) for pair in PAIRS] == [(True, True), (True, False), (False, True), (True, True)]


def test_the_result_is_of_the_distance_that_was_there_most_often() -> None:
    result = hop_result(PAIRS)
    assert (result.pairs, result.others, result.moved) == ([NEAR, NEAR_TOO], {"far": [FAR]}, [MOVED])
    result = hop_result([NEAR, FAR, FAR])
    assert (result.pairs, result.others, result.moved) == ([FAR, FAR], {"near": [NEAR]}, [])


def test_document_has_the_promised_shape() -> None:
    document = hop_result(PAIRS).document()
    assert document.keys() >= {"bench", "frame", "pairs", "ratios", "core_to_core_ns", "near", "machine"}
    assert document["ratios"] == {"cycles": 6.0, "mpps": 2.0}
    assert (document["core_to_core_ns"], document["near"]) == (75.5, True)
    assert document["pairs"][0].keys() >= {"tailrace", "ovs-dpdk", "core_to_core_ns", "near"}
    assert document["pairs"][0]["tailrace"] == {"cycles_per_packet": 20, "mpps": 20}
    assert document["others"]["far"]["ratios"] == {"cycles": 4.0, "mpps": 3.0}
    assert document["others"]["far"]["near"] is False


def test_without_a_peer_the_ratios_are_null() -> None:
    document = hop_result([Pair({TAILRACE: [Sample(side(20, 20), (80.0, 80.0))]})]).document()
    assert document["ratios"] == {"cycles": None, "mpps": None}


def shown(result: Comparison) -> str:
    console = Console(width=80, file=StringIO())
    columns = [Column("cycles_per_packet", "cycles"), Column("mpps", "Mpps", 3)]
    console.print(comparison_table(result, "One hop", columns, []))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_table_fits_a_terminal_of_80_columns() -> None:
    text = shown(hop_result(PAIRS))
    assert "7.00×" in text
    assert "150.0" in text
    assert "240.0" not in text
    assert "…" not in text
    text = " ".join(text.split())
    assert "With the cores far, 350 ns: 1 more pair; median ratios: cycles 4.00×, Mpps 3.00×." in text
    assert "Set aside: 1 more" in text
    assert "asked for" not in text
    assert "near*" in shown(hop_result([MOVED]))


def test_fewer_pairs_than_were_asked_for_are_reported() -> None:
    result = hop_result([NEAR, MOVED, MOVED, FAR], asked=2)
    text = " ".join(shown(result).split())
    assert "Set aside: 2 more" in text
    assert "These are 1 of the 2 pairs that were asked for" in text
    document = result.document()
    assert (document["asked"], len(document["pairs"]), len(document["moved"])) == (2, 1, 2)


class Clock:
    """Readings of a switch, at the times that sleeping brings."""

    def __init__(self, packets_per_second: float, *, stops_at: float = 1e9, drops_at: float = 1e9) -> None:
        self.now = 0.0
        self.rate, self.stops_at, self.drops_at = packets_per_second, stops_at, drops_at

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def reading(self) -> tuple[float, Counters]:
        packets = int(min(self.now, self.stops_at) * self.rate)
        return self.now, Counters(packets, packets * 20, 0, 5 + int(self.now > self.drops_at))


def test_a_window_is_between_its_readings() -> None:
    clock = Clock(1e6)
    measured = measure_window(2.0, clock.reading, clock.sleep)
    assert clock.now == pytest.approx(2.0)
    assert measured.figures()["mpps"] == pytest.approx(1.0)
    assert measured.figures()["cycles_per_packet"] == 20.0


@pytest.mark.parametrize("stops_at", [0.0, 1.0])
def test_a_stall_is_a_fault(stops_at: float) -> None:
    clock = Clock(1e6, stops_at=stops_at)
    with pytest.raises(Fault, match="stalled"):
        measure_window(3.0, clock.reading, clock.sleep)


class Windows:
    """A setting whose looks at the cores' distance cost no time."""

    def samples(self, processes: object, measure: Callable[[], dict[str, float]], windows: int) -> list[Sample]:
        assert processes
        return [Sample(measure(), (60.0, 60.0)) for _ in range(windows)]


class Switch:
    """A switch that drops a packet in each of some readings."""

    def __init__(self, *drops_in: int) -> None:
        self.drops_in, self.readings = drops_in, 0

    def counters(self) -> Counters:
        self.readings += 1
        dropped = sum(number <= self.readings for number in self.drops_in)
        return Counters(1000 * self.readings, 20_000 * self.readings, 0, dropped)

    def processes(self) -> list[Process]:
        return []


@pytest.mark.parametrize(("drops_in", "lost"), [((), 0), ((1,), 0), ((2,), 1), ((3, 5), 2)])
def test_a_drop_from_the_first_window_to_the_last_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, drops_in: tuple[int, ...], lost: int
) -> None:
    monkeypatch.setattr("tailrace.bench.window.time.sleep", lambda _: None)

    def watch(*, lossless: bool) -> list[Sample]:
        switch, load = Switch(*drops_in), Process("load", 1, 1, "load")
        return window.watch_windows(
            cast(Setting, Windows()),
            0.4,
            switch,
            [load],
            lambda _: None,
            lambda measured: measured().figures(),
            lambda: None,
            lossless=lossless,
        )

    assert len(watch(lossless=False)) == 1
    if not lost:
        watch(lossless=True)
        return
    with pytest.raises(Fault, match=f"{lost} packets were dropped"):
        watch(lossless=True)


def accounts() -> Iterator[tuple[Traffic, Counters]]:
    yield Traffic(1000, 1000), Counters(999, 1, 1, 0)  # counted less than arrived
    yield Traffic(1000, 1000), Counters(1001, 1, 1, 0)  # counted more than was sent
    yield Traffic(1000, 990), Counters(1000, 1, 1, 0)  # lost in silence
    yield Traffic(1000, 990), Counters(1000, 1, 1, 11)  # counted a drop that was none
    yield Traffic(1000, 1001), Counters(1000, 1, 1, 0)  # one came twice


@pytest.mark.parametrize(("traffic", "counters"), list(accounts()))
def test_accounts_that_do_not_agree_are_a_fault(traffic: Traffic, counters: Counters) -> None:
    with pytest.raises(Fault):
        check_whole(traffic, lambda: counters, 0)


def test_accounts_that_agree() -> None:
    check_whole(Traffic(1000, 1000), lambda: Counters(1000, 1, 1, 0), 0)
    check_whole(Traffic(1000, 990), lambda: Counters(1000, 1, 1, 10), 0)
    check_whole(Traffic(1000, 990), lambda: Counters(990, 1, 1, 10), 0)


def test_accounts_that_agree_once_the_last_drops_are_added() -> None:
    readings = iter([Counters(1000, 1, 1, 0), Counters(1000, 1, 1, 3), Counters(1000, 1, 1, 10)])
    check_whole(Traffic(1000, 990), lambda: next(readings), 60)


@pytest.mark.parametrize(
    "values",
    [
        {"frame": 63},
        {"frame": 1519},
        {"frame": 64, "against": "vpp"},
        {"frame": 64, "pairs": 0},
        {"frame": 64, "pairs": 1001},
        {"traffic": "iperf", "seconds": 1.5},
        {"frame": 64, "seconds": 0.0},
    ],
)
def test_a_plan_that_cannot_be_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(Mistake, match="expected"):
        HopPlan(**values)  # type: ignore[arg-type]


def test_cores_are_two_numbers() -> None:
    assert _parse_cores("1,0") == (1, 0)
    with pytest.raises(Mistake, match="such as 1,0"):
        _parse_cores("1")


def windows(*looks_ns: float) -> list[Sample]:
    """Windows between these looks; each has its number as its only figure."""
    between = pairwise(looks_ns)
    return [Sample({"number": number}, looks) for number, looks in enumerate(between)]


def test_windows_are_paired_with_those_of_the_same_distance() -> None:
    near, far = pairs_of({"a": windows(60, 60, 60, 350, 350), "b": windows(340, 340, 70, 70, 27, 27)})
    assert (near.distance, near.sides) == ("near", {"a": {"number": 0.5}, "b": {"number": 2}})
    assert (far.distance, far.sides) == ("far", {"a": {"number": 3}, "b": {"number": 0}})
    assert near.steady
    assert far.steady


def test_a_turn_without_a_distance_in_common_is_one_pair_that_is_not_steady() -> None:
    (pair,) = pairs_of({"a": windows(60, 60, 350), "b": windows(350, 350)})
    assert not pair.steady
    assert pair.document()["windows"] == 1


def test_windows_are_merged_by_what_their_figures_are() -> None:
    figures = [
        {"cycles_per_packet": cycles, "packets": 5, "dropped": 1, "p50_us": cycles, "max_us": cycles}
        for cycles in (3, 9, 4)
    ]
    samples = [Sample(each, (60, 60)) for each in figures]
    assert merged(samples) == {"cycles_per_packet": 4, "packets": 15, "dropped": 3, "p50_us": 4, "max_us": 9}


def test_pairs_are_measured_until_one_distance_has_enough() -> None:
    turns = iter([[NEAR], [MOVED], [NEAR_TOO, FAR], [FAR], [FAR], [NEAR]])
    numbers = []

    def measure(number: int) -> list[Pair]:
        numbers.append(number)
        return next(turns)

    assert list(measure_pairs(measure, 3)) == [NEAR, MOVED, NEAR_TOO, FAR, FAR, FAR]
    assert numbers == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), Failure("the switch dropped 3 packets")])
def test_what_was_measured_before_it_was_cut_short_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: BaseException, stopped: bool
) -> None:
    setting = SimpleNamespace(machine=lambda: MACHINE)
    monkeypatch.setattr(bench_compare, "check_able", lambda *_: None)
    monkeypatch.setattr(bench_compare.Cores, "choose", lambda *_: None)
    monkeypatch.setattr(bench_compare, "prepared", lambda *_: nullcontext(setting))
    turns = 0

    def ours(*_: Any) -> list[Sample]:
        nonlocal turns
        turns += 1
        if turns == broken_at:
            raise Stopped(problem, None) if stopped else problem
        return [Sample(side(20, 20), (60.0, 60.0))]

    sides = [Side(TAILRACE, 1.0, ours), Side(OVS_DPDK, 1.0, lambda *_: [Sample(side(140, 10), (60.0, 60.0))])]

    def measured() -> Comparison:
        return bench_compare.compare(
            "hop", Plan(pairs=5), sides, RATIOS, folder=tmp_path, report=Silent(), pages=0, programs=[]
        )

    broken_at = 3
    result = measured()
    assert (len(result.pairs), result.error) == (2, problem)
    assert result.document()["error"] == (str(problem) or "interrupted by Ctrl-C")
    assert "These are 2 of the 5 pairs that were asked for: then it was cut short." in " ".join(_moved_notes(result))
    turns, broken_at = 0, 1
    with pytest.raises(type(problem)):
        measured()


def test_where_the_cores_never_rest_what_there_is_is_shown() -> None:
    pairs = list(measure_pairs(lambda _: [MOVED], 2))
    assert pairs == [MOVED] * 4
    result = hop_result(pairs)
    assert (result.pairs, result.moved) == (pairs, [])
    assert not any(pair["steady"] for pair in result.document()["pairs"])
