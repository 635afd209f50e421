"""How a spec is read as YAML: by the core schema of YAML 1.2 (docs/spec.md), and everything wrong with it at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tailrace.cli.main import app
from tailrace.spec.load import parse_spec
from tailrace.spec.position import parse_document
from tailrace.spec.source import SpecError
from tailrace.spec.tests import METHODS

CHAIN = "chains: {v: [tester.a, tester.b]}\n"


def wrong(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, "s.yaml")
    return list(caught.value.lines)


def scalar(text: str) -> Any:
    document = parse_document(f"a: {text}\n", "s.yaml")
    assert not document.problems
    return document.data["a"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Of the core schema.
        ("10", 10), ("-3", -3), ("+12", 12), ("0", 0), ("0o10", 8), ("0x10", 16), ("0x1F", 31), ("1.5", 1.5),
        (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-3", -0.0015), (".inf", float("inf")),
        ("-.INF", float("-inf")), ("true", True), ("False", False), ("TRUE", True), ("null", None), ("~", None),
        ("", None), ("Null", None),
        # Numbers with a leading zero, of which YAML 1.1 and 1.2 make different ones.
        ("010", "010"), ("08", "08"), ("00", "00"), ("-010", "-010"), ("0660", "0660"), ("007.5", "007.5"),
        # What YAML 1.1 takes for numbers, dates, true and false.
        ("0b11", "0b11"), ("1_000", "1_000"), ("0x_1F", "0x_1F"), ("1:30", "1:30"), ("190:20:30.15", "190:20:30.15"),
        ("990:50", "990:50"), ("0000:01:00.0", "0000:01:00.0"), ("2026-01-02", "2026-01-02"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"), ("yes", "yes"), ("No", "No"), ("on", "on"), ("OFF", "OFF"),
        ("y", "y"), ("=", "="), ("tRue", "tRue"), ("0O10", "0O10"), ("-0x10", "-0x10"), ("inf", "inf"),
        # Quoted, or said to be a text.
        ("'10'", "10"), ('"true"', "true"), ("!!str 10", "10"), ("! 10", "10"), ('!!int "10"', 10), ("!!float 1", 1.0),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    assert repr(scalar(text)) == repr(value)


BRIDGE = "ports: {a: , b: }\nbridges: {lan: {ports: {a: {access: %s}, b: {access: 10}}}}\n"
MATCH = "ports: {a: , b: , c: }\nchains: {x: {path: [a, b], match: {vlan: %s}}, y: [a, c]}\n"


@pytest.mark.parametrize(
    ("text", "written", "instead"),
    [
        (BRIDGE, "010", "write 10, or 0o10 for octal"),
        (BRIDGE, "012", "write 12, or 0o12 for octal"),
        (BRIDGE, "0100", "write 100, or 0o100 for octal"),
        (BRIDGE, "08", "so 08 is a text here; write 8)"),
        (BRIDGE, "1_0", "1_0 is a text in YAML 1.2; write 10)"),
        (BRIDGE, "0b11", "write 3)"),
        (MATCH, "[010, 020]", "a leading zero means octal in YAML 1.1 only, so 010 is a text here; write 10, or"),
        (CHAIN + "tests: [latency: {frames: %s}]\n", "0100", "write 100, or 0o100 for octal"),
        (CHAIN + "tests: [latency: {flows: %s}]\n", "1_000", "write 1000"),
        (CHAIN + "trace: %s\n", "0512", "write 512"),
        (CHAIN + "fabric: {cores: [%s]}\n", "01", "write 1,"),
        (CHAIN + "fabric: {pins: {tester.a/0: %s}}\n", "00", "write 0,"),
        (CHAIN + "ports: {p: {offloads: %s}}\n", "no", "no is a text in YAML 1.2; write false)"),
        (CHAIN + "ports: {p: {offloads: %s}}\n", "On", "write true)"),
    ],
)
def test_a_number_or_truth_of_yaml_1_1_is_refused_with_what_to_write(text: str, written: str, instead: str) -> None:
    (said,) = wrong(text % written)
    assert "expected" in said
    assert instead in said


@pytest.mark.parametrize("written", ["'10'", "10.0", "1e1", "true", "~", "ten", "1:30", ".inf", ".nan", "2026-01-02"])
def test_what_is_no_whole_number_is_not_made_one(written: str) -> None:
    (said,) = wrong(CHAIN + f"ports: {{p: {{queues: {written}}}}}\n")
    assert said.startswith("s.yaml:2:")
    assert said.endswith("in ports.p.queues; expected a whole number")


def test_a_text_that_looks_like_a_number_of_yaml_1_1_is_a_text() -> None:
    spec = parse_spec(
        "fabric: {user: 990:50}\nports: {p: {path: /s, socket: {mode: 0660, group: no}}, q: {if: 0100}}\n"
        "chains: {on: [{pci: 0000:01:00.0}, tester.b], no: [p, q]}\n",
        "s",
    )
    assert spec.fabric.user == "990:50"
    assert list(spec.chains) == ["on", "no"]
    assert spec.chains["on"].ends == ("pci:0000:01:00.0", "tester.b")
    assert (spec.ports["p"].socket.mode, spec.ports["p"].socket.group) == ("0660", "no")
    assert spec.ports["q"].device is not None
    assert spec.ports["q"].device.interface == "0100"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("%YAML 1.1\n---\n" + CHAIN, "s.yaml:1:1: the directive %YAML 1.1 asks for other rules; expected YAML 1.2"),
        (CHAIN + "---\n" + CHAIN, "s.yaml:2:1: a second document begins here"),
        (
            "functions: {a: &b {kind: skeleton}, c: {<<: *b, kind: guest}}\n" + CHAIN,
            "s.yaml:1:41: functions.c.<<: YAML 1.2 has no merge keys; expected the keys themselves, or an alias",
        ),
        ("functions: !!set {a, b}\n" + CHAIN, "s.yaml:1:12: functions: the tag !!set is not known here; expected"),
        ("functions: !!omap [a: skeleton]\n" + CHAIN, "s.yaml:1:12: functions: the tag !!omap is not known here"),
        ("fabric: !mine {}\n" + CHAIN, "s.yaml:1:9: fabric: the tag !mine is not known here"),
        ("fabric: !!timestamp 2026-02-30\n" + CHAIN, "s.yaml:1:9: fabric: the tag !!timestamp is not known here"),
        ("!!binary fabric: {}\n" + CHAIN, "s.yaml:1:1: fabric: the tag !!binary is not known here"),
        ("? [a, b]\n: c\n" + CHAIN, "s.yaml:1:3: a key made of several values; expected a word"),
    ],
)
def test_what_yaml_has_besides_the_core_schema_is_refused(text: str, said: str) -> None:
    (told,) = wrong(text)
    assert said in told


def test_yaml_1_2_may_be_asked_for_and_aliases_stand_for_values() -> None:
    spec = parse_spec("%YAML 1.2\n---\nfunctions: {a: &f {kind: skeleton}, b: *f}\n" + CHAIN, "s")
    assert spec.functions["a"] == spec.functions["b"]


@pytest.mark.parametrize(
    "value",
    ['!!int ""', '!!float ""', "!!bool foo", "!!int 010", "!!int 1_000", "!!bool yes"],
)
def test_a_value_that_is_not_of_its_tag_is_reported_with_its_place(value: str) -> None:
    (said,) = wrong(f"fabric: {value}\n" + CHAIN)
    assert said.startswith("s.yaml:1:9: fabric: ")
    assert "cannot be read; expected a word, a number or a quantity" in said


@given(
    st.sampled_from(["int", "float", "bool", "timestamp", "binary", "null", "set", "omap", "pairs", "nosuch"]),
    st.text(st.sampled_from("0123456789-+.:eExXobTZ_ aN²"), max_size=12),
)
def test_no_tag_and_text_is_an_internal_error(tag: str, text: str) -> None:
    with suppress(SpecError):
        parse_document(f'fabric: !!{tag} "{text}"\n', "s.yaml")


MANY = """\
fabric: {workers: 2, pins: {tester.a/0: 1, wan/1: 0}}
ports:
  wan: {if: veth0, queues: 2}
  lan: {path: /run/lan.sock}
  probe:
  fw.0: {queues: 2}
functions:
  fw: {kind: skeleton, replicas: 2}
  nat: skeleton
  ids: guest
chains:
  voice: {path: [tester.a, fw, nat, tester.b], match: {vlan: 10}}
  web: {path: [tester.a, fw, wan], priority: 7, match: {vlan: 20}}
bridges:
  home: {ports: {lan: {access: 10}, ids.0: }, ageing: 60s}
mirrors:
  tap: {chain: voice, to: probe}
trace: 512
tests:
  - latency: {frames: [64, 512], rate: 1Mpps}
  - loss: {frames: 64}
"""
#: What makes one mistake each of what stands there, and on which line.
FAULTS = [
    ("workers: 2", "workers: two", 1),
    ("tester.a/0: 1", "tester.a/0: -1", 1),
    ("wan/1", "wan/x", 1),
    ("if: veth0", "if: a/b", 3),
    ("if: veth0, queues: 2", "if: veth0, queues: 20", 3),
    ("/run/lan.sock", "lan.sock", 4),
    ("probe:", "probe: {path: x}", 5),
    ("fw.0: {", "fv.0: {", 6),
    ("fw.0: {queues: 2", "fw.0: {queues: '2'", 6),
    ("replicas: 2", "replicas: 0", 8),
    ("replicas: 2", "replicas: 2, memory: 1KiB", 8),
    ("nat: skeleton", "nat: bones", 9),
    ("nat: skeleton", "nat: {knd: skeleton}", 9),
    ("ids: guest", "ids: !!foo guest", 10),
    ("fw, nat, tester.b", "fw, net, tester.b", 12),
    ("match: {vlan: 10}", "match: {vlan: 010}", 12),
    ("priority: 7", "priority: 70000", 13),
    ("web: {path", "Web: {path", 13),
    ("tester.a, fw, wan]", "tester.a, fw, van]", 13),
    ("access: 10", "access: 4095", 15),
    ("ids.0", "isd.0", 15),
    ("ageing: 60s", "ageing: 60", 15),
    ("chain: voice", "chain: vioce", 17),
    ("to: probe", "to: prob", 17),
    ("tap: {chain", "tap: {port: lan, chain", 17),
    ("trace: 512", "trace: 500", 18),
    ("frames: [64, 512]", "frames: [64, 13]", 20),
    ("rate: 1Mpps", "rate: 1Mpps, rate: 2Mpps", 20),
    ("loss: {frames: 64}", "loss: {frames: 64, frames: 64}", 21),
    ("loss: {", "los: {", 21),
]


def faulty(faults: list[tuple[str, str, int]]) -> str:
    text = MANY
    for sound, fault, line in faults:
        assert sound in text.splitlines()[line - 1]
        text = text.replace(sound, fault, 1)
    return text


def test_many_is_sound() -> None:
    parse_spec(MANY, "s.yaml")


@pytest.mark.parametrize("fault", FAULTS, ids=[fault for _, fault, _ in FAULTS])
def test_one_mistake_is_reported_once(fault: tuple[str, str, int]) -> None:
    """And nothing of what follows from it: of a function that is not taken, that a chain goes through a missing one."""
    (said,) = wrong(faulty([fault]))
    assert said.startswith(f"s.yaml:{fault[2]}:")


@given(st.lists(st.sampled_from(FAULTS), min_size=2, max_size=8, unique_by=lambda fault: fault[2]))
@example([fault for number, fault in enumerate(FAULTS) if fault[2] not in {each[2] for each in FAULTS[:number]}])
def test_several_mistakes_are_reported_at_once_in_the_order_of_the_file(faults: list[tuple[str, str, int]]) -> None:
    said = wrong(faulty(faults))
    assert [int(line.split(":")[1]) for line in said] == sorted(fault[2] for fault in faults)
    assert all("expected" in line for line in said)


def test_mistakes_as_yaml_in_values_and_between_parts_are_reported_at_once() -> None:
    text = (
        "functions:\n  first: skeleton\n  first: guest\nchains:\n  v: [tester.a, frist, tester.b]\n"
        "tests:\n  - latency: {duration: 60kg, rate: 1}\nfabrc: tailrace\n"
    )
    said = wrong(text)
    places = [line.partition(": ")[0].removeprefix("s.yaml:") for line in said]
    assert places == ["3:3", "5:17", "7:25", "7:37", "8:1"]


def test_a_misspelt_section_is_one_mistake() -> None:
    (said,) = wrong("functoins: {f: skeleton}\nchains: {v: [tester.a, f, tester.b]}\n")
    assert "did you mean functions?" in said
    text = "chanis: {v: [tester.a, tester.b]}\ntests: [latency]\nmirrors: {m: {chain: v, to: p}}\nports: {p: }\n"
    (said,) = wrong(text)
    assert "did you mean chains?" in said


def test_so_many_mistakes_that_nobody_reads_them_are_counted() -> None:
    said = wrong(CHAIN + "ports:\n" + "".join(f"  P{number}:\n" for number in range(250)))
    assert len(said) == 101
    assert said[100] == "150 more mistakes are not shown; mend these first"


COMMANDS = [
    ["up", "--dry-run"],
    ["up"],
    ["plan"],
    ["apply"],
    ["compare"],
    *(["measure", method] for method in METHODS),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_that_reads_a_spec_tells_all_of_it(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("functions:\n  a: bones\nchains:\n  v: [tester.a, b, tester.b]\n")
    done = CliRunner().invoke(app, [*command, str(path)])
    places = [line.partition(": ")[2].partition(": ")[0] for line in done.stderr.splitlines()]
    assert places == [f"{path}:2:6", f"{path}:4:17"]
    assert done.exit_code == 2
