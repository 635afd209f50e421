"""The arithmetic and the checks of `tailrace bench hop`, without any switch."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tailrace.bench.hop import RATIOS, HopPlan
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Counters, Pair, Window, steady_pairs
from tailrace.bench.table import Column, comparison_table
from tailrace.bench.testpmd import Traffic, arguments, parse_port_stats
from tailrace.bench.window import SETTLE_SECONDS, check_whole, measure_window
from tailrace.cli.bench import _parse_cores
from tailrace.errors import Fault, Mistake
from tailrace.fabric.ovs_dpdk import PmdStats, parse_datapath_drops, parse_dropped, parse_pmd_stats

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


PAIRS = [
    Pair({TAILRACE: side(20, 20), OVS_DPDK: side(140, 10)}, (82.0, 81.0, 80.0)),
    Pair({TAILRACE: side(50, 8), OVS_DPDK: side(150, 4)}, (82.0, 83.0, 351.0)),
    Pair({TAILRACE: side(60, 6), OVS_DPDK: side(240, 2)}, (351.0, 350.0, 349.0)),
]
MACHINE = {"cpu": "CPU", "switch_core": 1, "load_core": 0, "versions": {"dpdk": "22.11"}}


def hop_result(pairs: list[Pair]) -> Comparison:
    return Comparison("hop", {"frame": 64, "seconds": 3.0}, pairs, [], RATIOS, MACHINE, len(pairs))


def test_ratios_favour_tailrace_above_one_and_the_median_is_of_the_pairs_ratios() -> None:
    cycles, mpps = RATIOS
    assert [cycles.of(pair.sides) for pair in PAIRS] == [7.0, 3.0, 4.0]
    result = hop_result(PAIRS)
    assert (result.median(cycles), result.median(mpps)) == (4.0, 2.0)
    assert [(pair.near, pair.steady) for pair in PAIRS] == [(True, True), (True, False), (False, True)]


def test_document_has_the_promised_shape() -> None:
    document = hop_result(PAIRS).document()
    assert document.keys() >= {"bench", "frame", "pairs", "ratios", "core_to_core_ns", "near", "machine"}
    assert document["ratios"] == {"cycles": 4.0, "mpps": 2.0}
    assert (document["core_to_core_ns"], document["near"]) == (82.0, False)
    assert document["pairs"][0].keys() >= {"tailrace", "ovs-dpdk", "core_to_core_ns", "near"}
    assert document["pairs"][0]["tailrace"] == {"cycles_per_packet": 20, "mpps": 20}


def test_without_a_peer_the_ratios_are_null() -> None:
    document = hop_result([Pair({TAILRACE: side(20, 20)}, (80.0, 80.0))]).document()
    assert document["ratios"] == {"cycles": None, "mpps": None}


def test_table_fits_a_terminal_of_80_columns() -> None:
    console = Console(width=80, file=StringIO())
    columns = [Column("cycles_per_packet", "cycles"), Column("mpps", "Mpps", 3)]
    console.print(comparison_table(hop_result(PAIRS), "One hop", columns, []))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "7.00×" in text
    assert "near*" in text
    assert "…" not in text


@pytest.mark.parametrize(("asked", "fewer"), [(2, False), (3, True)])
def test_fewer_pairs_than_were_asked_for_are_told(asked: int, fewer: bool) -> None:
    console = Console(width=80, file=StringIO())
    result = Comparison("hop", {}, [PAIRS[0], PAIRS[2]], [PAIRS[1]] * 4, RATIOS, MACHINE, asked)
    console.print(comparison_table(result, "One hop", [Column("mpps", "Mpps", 3)], []))
    assert isinstance(console.file, StringIO)
    text = " ".join(console.file.getvalue().split())
    assert "Set aside: 4 more" in text
    assert (f"These are 2 of the {asked} pairs that were asked for: in 6 tries" in text) is fewer
    document = result.document()
    assert (document["asked"], len(document["pairs"]), len(document["moved"])) == (asked, 2, 4)


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


def test_window_starts_after_settling_and_ignores_drops_before_it() -> None:
    clock = Clock(1e6)
    measured = measure_window(2.0, clock.reading, clock.sleep)
    assert clock.now == pytest.approx(SETTLE_SECONDS + 2.0)
    assert measured.figures()["mpps"] == pytest.approx(1.0)
    assert measured.figures()["cycles_per_packet"] == 20.0
    measured.check_lossless()


@pytest.mark.parametrize("stops_at", [0.0, SETTLE_SECONDS, SETTLE_SECONDS + 1.0])
def test_a_stall_is_a_fault(stops_at: float) -> None:
    clock = Clock(1e6, stops_at=stops_at)
    with pytest.raises(Fault, match="stalled"):
        measure_window(3.0, clock.reading, clock.sleep)


def test_a_drop_in_the_window_is_a_fault() -> None:
    clock = Clock(1e6, drops_at=SETTLE_SECONDS + 1.0)
    window = measure_window(3.0, clock.reading, clock.sleep)
    assert window.packets - window.dropped == 3_000_000 - 1
    with pytest.raises(Fault, match="1 packets were dropped"):
        window.check_lossless()


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


def test_pairs_during_which_the_cores_moved_are_set_aside_and_measured_again() -> None:
    looks = iter([(80, 80, 80), (80, 350, 350), (350, 350, 350), (350, 80, 350), (350, 350, 350)])

    numbers = []

    def measure(number: int) -> Pair:
        numbers.append(number)
        return Pair({}, next(looks))

    steady, moved = steady_pairs(measure, 3)
    assert [pair.near for pair in steady] == [True, False, False]
    assert [pair.looks_ns[1] for pair in moved] == [350, 80]
    assert numbers == [0, 1, 1, 2, 2]


def test_where_the_cores_never_rest_what_there_is_is_shown() -> None:
    pairs, moved = steady_pairs(lambda _: Pair({}, (80.0, 350.0)), 2)
    assert len(pairs) == 4 and not moved
    assert not any(pair.document()["steady"] for pair in pairs)
