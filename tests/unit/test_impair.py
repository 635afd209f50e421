"""The function that errs as planned, as a spec words it and as its program is told."""

from __future__ import annotations

import json

import pytest
import yaml

from tailrace.plan.make import make_plan
from tailrace.resources.topology import Cpu
from tailrace.spec.impair import Impair
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError

CHAIN = "chains: {office: [tester.a, wan, tester.b]}\n"


def wan(impair: str, more: str = "") -> str:
    return f"functions:\n  wan: {{kind: impair, impair: {impair}{more}}}\n{CHAIN}"


def test_every_word_reaches_the_program() -> None:
    text = wan("{seed: 7, drop: 25%, duplicate: 0.1%, reorder: 100%, depth: 40, delay: 300us}")
    plan = make_plan(parse_spec(text, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")
    (function,) = plan.functions
    assert function.settings == (
        "seed=7", "drop=1073741824", "duplicate=4294967", "reorder=4294967296", "depth=40", "delay-us=300",
    )  # fmt: skip


def test_each_replica_has_a_delay_and_a_plan_of_its_own() -> None:
    spec = parse_spec(wan("{delay: [0s, 2ms]}", ", replicas: 2"), "s")
    plan = make_plan(spec, huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")
    told = {
        each.name: {"seed=1", "seed=2", "delay-us=0", "delay-us=2000"} & {*each.settings} for each in plan.functions
    }
    assert told == {"wan": {"seed=1", "delay-us=0"}, "wan-2": {"seed=2", "delay-us=2000"}}


def test_without_settings_it_does_nothing_and_others_have_none() -> None:
    spec = parse_spec("functions: {wan: impair, fw: skeleton}\nchains: {o: [tester.a, wan, fw, tester.b]}\n", "s")
    plan = make_plan(spec, huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")
    impair, skeleton = plan.functions
    assert impair.settings == ("seed=1", "drop=0", "duplicate=0", "reorder=0", "depth=100", "delay-us=0")
    assert skeleton.settings == ()


def test_a_rare_fate_is_as_rare_as_it_says() -> None:
    settings = Impair.model_validate({"drop": "0.0001%", "reorder": "0.00000002%"}).settings(0)
    assert settings[1:4] == ("drop=4295", "duplicate=0", "reorder=1")


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(wan("{drop: 0.25%, delay: [0s, 1500us]}", ", replicas: 2"), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            wan("{drop: 0.1}"),
            "s:2:38: functions.wan.impair.drop: 0.1 is no share; expected a share of the frames from 0% to 100%",
        ),
        (wan("{drop: 101%}"), "'101%' is no share"),
        (
            wan("{drop: 0.00000001%}"),
            "functions.wan.impair.drop: '0.00000001%' is not one frame of 4,294,967,296; expected 0%, or",
        ),
        (wan("{drpo: 1%}"), "unknown key 'drpo'.*did you mean drop"),
        (wan("{delay: 2s}"), "2s is too long; expected at most 1s"),
        (wan("{delay: 1}"), "1 has no unit"),
        (wan("{delay: []}"), "no delay; expected one, or one for each replica"),
        (wan("{delay: [0s, 1ms]}"), r"2 delays for 1 replica\(s\); expected one for all, or one each"),
        (wan("{reorder: 50%, depth: 100000}"), "about 25000 frames would be late at once; expected at most 2048"),
        (wan("{depth: 0}"), "depth"),
        ("functions: {wan: {kind: skeleton, impair: {drop: 1%}}}\n" + CHAIN, "and this is skeleton; expected one"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")
