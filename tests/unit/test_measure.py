"""The order of a latency measurement, against simulated devices: no process, no packet."""

# ruff: noqa: ARG001 (a simulated device takes what a real one takes)

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from captures import TAG, pcap_of, pcapng_of

from tailrace.errors import Mistake
from tailrace.measure.latency import Case, measure_case
from tailrace.measure.profile import Contents, capture, parse_frames, profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.tester import Stopped, absolute_uri
from tailrace.measure.trials import is_whole, judge, kept_up
from tailrace.spec import Rate


def result(rate: float, seconds: float, *, lost: int = 0, unsent: float = 0.0, most: float = 1e7) -> dict[str, Any]:
    """What a tester answers for two directions at a rate."""
    offered = round((rate or most) * seconds)
    sent = round(offered * (1 - unsent))
    stream = {
        "offered": offered,
        "sent": sent,
        "unsent": offered - sent,
        "received": sent - lost,
        "lost": lost,
        "duplicate": 0,
        "out_of_sequence": 0,
        "beyond_window": 0,
        "foreign": 0,
    }
    return {"streams": [dict(stream), dict(stream)], "duration": seconds}


def test_what_counts_as_whole_and_kept() -> None:
    assert is_whole(result(1e6, 1.0))
    assert not is_whole(result(1e6, 1.0, lost=1))
    for fault in ("duplicate", "out_of_sequence", "beyond_window", "foreign"):
        faulty = result(1e6, 1.0)
        faulty["streams"][1][fault] = 1
        assert not is_whole(faulty), fault
    assert kept_up(result(1e6, 1.0, unsent=0.01), 1e6, 1.0)
    assert not kept_up(result(1e6, 1.0, unsent=0.1), 1e6, 1.0)
    assert not kept_up(result(1e5, 1.0), 1e6, 1.0)
    assert judge(result(0, 2.0, most=3e6), 0, 2.0).forwarded_pps == pytest.approx(3e6)


@dataclass
class Kept:
    """A run folder that only remembers."""

    trials: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_trial(self, result: dict[str, Any], **about: Any) -> Any:
        self.trials.append({"result": result, **about})
        return about["name"]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def invalidate(self, reason: str) -> None:
        self.notes.append(reason)


def case(rate: Rate) -> Case:
    return Case("one-function-64", profile(64), 1, rate, 10.0)


def test_a_fraction_is_searched_for_and_the_trial_runs_at_it() -> None:
    limit = 2e6

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate = streams[0]["rate"]
        assert [stream["from"] + stream["to"] for stream in streams] == ["ab", "ba"]
        return result(rate, seconds, lost=0 if rate <= limit else 5, most=limit * 1.2)

    kept = Kept()
    floors: list[float] = []
    measure_case(measure, kept, case(Rate(fraction=0.9)), SearchOptions(), measure_floor=floors.append)
    (trial,) = kept.trials
    assert trial["offered_pps"] == pytest.approx(trial["no_loss_pps"] * 0.9)
    assert limit * 0.9 <= trial["no_loss_pps"] <= limit
    assert floors == [trial["offered_pps"]]
    assert kept.notes == []


def test_a_search_that_ran_out_of_trials_is_noted() -> None:
    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate = streams[0]["rate"]
        return result(rate, seconds, lost=0 if 0 < rate <= 1.5e6 else 5, most=2e6)

    kept = Kept()
    measure_case(measure, kept, case(Rate(fraction=0.5)), SearchOptions(most_trials=5))
    (note,) = kept.notes
    assert " short trials that there are for it did not bring it to within 5%" in note
    assert "between 0.9048 and 1.81 Mpps" in note
    (trial,) = kept.trials
    assert 0 < trial["no_loss_pps"] <= 1.5e6


def test_a_rate_given_outright_is_not_searched_for_and_not_repeated() -> None:
    calls: list[float] = []

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        calls.append(streams[0]["rate"])
        return result(streams[0]["rate"], seconds, lost=7)

    kept = Kept()
    measure_case(measure, kept, case(Rate(pps=1e6)), SearchOptions())
    assert calls == [1e6]
    assert kept.trials[0]["no_loss_pps"] is None
    assert kept.trials[0]["result"]["streams"][0]["lost"] == 7


def test_a_no_loss_rate_that_is_the_testers_is_noted() -> None:
    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        return result(streams[0]["rate"], seconds, most=2e6)

    kept = Kept()
    measure_case(measure, kept, case(Rate(fraction=0.5)), SearchOptions())
    (note,) = kept.notes
    assert "as fast as the tester itself could send" in note
    assert kept.trials[0]["no_loss_pps"] == pytest.approx(2e6, rel=0.05)


def test_a_trial_that_does_not_bear_out_its_search_is_repeated_lower_and_noted() -> None:
    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate = streams[0]["rate"]
        # A buffer hides the overload from a short trial.
        return result(rate, seconds, lost=0 if seconds < 1 or rate < 1e6 else 3, most=2e6)

    kept = Kept()
    measure_case(measure, kept, case(Rate(fraction=0.9)), SearchOptions())
    (trial,) = kept.trials
    assert trial["result"]["streams"][0]["lost"] == 0
    assert trial["offered_pps"] < 1e6
    first, *others = kept.notes
    assert "as fast as the tester itself could send" in first
    assert others
    assert all("repeated" in note for note in others)


def test_a_trial_in_which_the_tester_fell_short_is_repeated_at_its_rate_first() -> None:
    rates: list[float] = []

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate = streams[0]["rate"]
        if seconds < 1:
            return result(rate, seconds, lost=0 if rate <= 1e6 else 1, most=1.1e6)
        rates.append(rate)
        return result(rate, seconds, unsent=0.1 if len(rates) in wrong else 0.0)

    kept, wrong = Kept(), {1}
    measure_case(measure, kept, case(Rate(fraction=0.9)), SearchOptions())
    assert len(rates) == 2
    assert rates[0] == rates[1] == kept.trials[0]["offered_pps"]
    (note,) = kept.notes
    assert "the tester itself could not send" in note
    assert note.endswith("so the trial was repeated")

    rates.clear()
    kept, wrong = Kept(), {1, 2}
    measure_case(measure, kept, case(Rate(fraction=0.9)), SearchOptions())
    assert rates == pytest.approx([rates[0], rates[0], rates[0] * 0.75])
    assert "lower by 25%" in kept.notes[1]


def test_without_patience_the_loss_stands() -> None:
    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        return result(streams[0]["rate"], seconds, lost=0 if seconds < 1 else 3, most=2e6)

    kept = Kept()
    measure_case(measure, kept, case(Rate(fraction=0.9)), SearchOptions(), patient=lambda: False)
    assert kept.trials[0]["result"]["streams"][0]["lost"] == 3


def test_a_trial_that_is_cut_short_is_kept_before_the_cause_goes_on() -> None:
    cut = result(1e6, 0.5)

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        raise Stopped(KeyboardInterrupt("ended by SIGTERM"), cut)

    kept = Kept()
    with pytest.raises(Stopped):
        measure_case(measure, kept, case(Rate(pps=1e6)), SearchOptions())
    assert kept.trials[0]["result"] == {**cut, "stopped": True}
    assert kept.notes == ["ended by SIGTERM"]


def test_profiles() -> None:
    assert parse_frames("64,imix, 1518") == [64, "imix", 1518]
    for wrong in ("63", "1519", "x", "", "64,64", "64,,imix"):
        with pytest.raises(Mistake, match="expected"):
            parse_frames(wrong)
    imix = profile("imix", 10).streams(5.0)
    sizes, weights = imix[0]["frames"], imix[0]["weights"]
    assert sum(size * weight for size, weight in zip(sizes, weights, strict=True)) / sum(weights) == pytest.approx(
        353.83, abs=0.01
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_capture_file_is_known_by_its_beginning(tmp_path: Path, order: str) -> None:
    path = tmp_path / "t.pcap"

    def pcap(link: int) -> bytes:
        return struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)

    def pcapng(link: int) -> bytes:
        section = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        return section + struct.pack(f"{order}IIHHII", 1, 20, link, 0, 0, 20)

    for form in (pcap, pcapng):
        path.write_bytes(form(1))
        with pytest.raises(Mistake, match="there is no frame in it"):
            capture(path)
        path.write_bytes(form(113))
        with pytest.raises(Mistake, match="a capture of link type 113"):
            capture(path)
        path.write_bytes(form(1)[:-12])
        with pytest.raises(Mistake, match="this is no capture file"):
            capture(path)
    for content in (b"", b"frames\n", b"\x0a\x0d\x0d\x0a"):
        path.write_bytes(content)
        with pytest.raises(Mistake, match="this is no capture file"):
            capture(path)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["pcap", "pcapng"])
def test_a_capture_that_was_cut_off_is_refused_with_the_place(tmp_path: Path, form: str, order: str) -> None:
    path = tmp_path / "t.pcap"
    if form == "pcap":
        start = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        frame = struct.pack(f"{order}IIII", 0, 0, 60, 60) + bytes(60)
    else:
        start = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        start += struct.pack(f"{order}IIHHII", 1, 20, 1, 0, 0, 20)
        frame = struct.pack(f"{order}IIIIIII", 6, 92, 0, 0, 0, 60, 60) + bytes(60) + struct.pack(f"{order}I", 92)
    whole = start + 3 * frame
    path.write_bytes(whole)
    found = capture(path)
    assert (found.name, found.traffic, found.note) == ("pcap", {"pcap": str(path)}, None)
    for missing in (1, 50, len(frame) - 1):
        path.write_bytes(whole[:-missing])
        with pytest.raises(Mistake, match=r"ends within frame 3: it was cut off.*editcap -r .*t.pcap OUT 1-2`"):
            capture(path)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["pcap", "pcapng", "old", "simple"])
def test_the_longest_payload_of_a_capture_is_known(tmp_path: Path, form: str, order: str) -> None:
    """A VLAN tag is no part of it (IEEE 802.3); the mean is of the frames as they are sent, padded, with the FCS."""
    kinds = {"pcapng": 6, "old": 2, "simple": 3}
    path = tmp_path / "t.pcap"
    for tag, payload in ((b"\x08\x00", 1486), (TAG, 1482)):
        frames = ((40, 40), (1500, 1500), (1499, 1499))
        made = (
            pcapng_of(*frames, order=order, kind=kinds[form], type_of=tag)
            if form in kinds
            else pcap_of(*frames, order=order, kind=tag)
        )
        path.write_bytes(made)
        assert capture(path).contents == Contents((64 + 1504 + 1503) / 3, 2, 1500, payload)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["pcap", "pcapng", "old", "simple"])
def test_short_frames_of_a_capture_are_noted_and_cut_ones_refused(tmp_path: Path, form: str, order: str) -> None:
    def made(*frames: tuple[int, int]) -> bytes:
        kinds = {"pcapng": 6, "old": 2, "simple": 3}
        return pcapng_of(*frames, order=order, kind=kinds[form]) if form in kinds else pcap_of(*frames, order=order)

    path = tmp_path / "t.pcap"
    path.write_bytes(made((60, 60), (61, 61), (1514, 1514)))
    assert capture(path).note is None
    path.write_bytes(made((14, 14), (60, 60), (59, 59)))
    assert capture(path).note == (
        "2 of the 3 frames of t.pcap are shorter than 60 bytes: they are sent padded with zeros to 60, the shortest "
        "that Ethernet has (without the FCS)"
    )
    path.write_bytes(made((60, 60), (64, 1500)))
    with pytest.raises(Mistake, match="frame 2 was cut to 64 of 1500 bytes when it was captured"):
        capture(path)


NO_PORTS = [
    "", "vhost", "vhost:", "tcp:1", "/a.sock", "vhost:/nowhere.sock",
    "if:no-such", "if:a,b", "if:a/b", "pci:zz", "pci:1", "pci:ffff:ff:1f.7", "pci:../0000:00:00.0",
]  # fmt: skip


@pytest.mark.parametrize("uri", NO_PORTS)
def test_ports_that_are_none(uri: str) -> None:
    with pytest.raises(Mistake):
        absolute_uri(uri)
