"""What each command does: reads its options, calls one thing, shows what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tailrace.cli.output import print_json, print_line, show_finished
from tailrace.errors import Failure, Mistake
from tailrace.host.facts import tool_versions
from tailrace.host.place import allowed_cpus, place_tester
from tailrace.host.state import default_folder
from tailrace.measure import demo as the_demo
from tailrace.measure.chain import Timing, Wiring, case_name, measure
from tailrace.measure.hop_meter import HopMeter
from tailrace.measure.latency import Case
from tailrace.measure.profile import Profile, capture, parse_frames, profile
from tailrace.measure.progress import Bar, reporter
from tailrace.measure.search import SearchOptions
from tailrace.measure.session import Finished, Request, Session, run_between, run_on_node
from tailrace.measure.tester import absolute_uri
from tailrace.plan import Plan, make_plan
from tailrace.spec import Latency, Rate, load_spec
from tailrace.spec.model import MOST_FLOWS
from tailrace.spec.units import parse_duration, parse_rate

T = TypeVar("T")

#: Longer than the demo's: a rate that a longer trial is to bear out.
SEARCH = SearchOptions(trial_seconds=0.5, precision=0.03, most_trials=14)


@dataclass(frozen=True)
class LatencyOptions:
    """What the command line says about a latency measurement; None is "as the spec has it"."""

    frames: str | None
    pcap: Path | None
    rate: str | None
    duration: str | None
    flows: int | None
    floor: bool
    hops: bool
    runs: Path
    huge: bool
    as_json: bool


def version(*, as_json: bool) -> int:
    versions = tool_versions()
    if as_json:
        print_json(versions)
    else:
        print_line("\n".join(f"{name} {text}" for name, text in versions.items()))
    return 0


def demo(*, runs: Path, huge: bool, as_json: bool) -> int:
    plan = make_plan(the_demo.demo_spec(), huge=huge)
    request = Request("demo", runs, default_folder(), tuple(_command()), the_demo.SPEC, "the demo")
    _headline(plan, as_json)
    return _run(lambda bar: run_on_node(request, plan, the_demo.run_demo, bar), the_demo.seconds(), as_json=as_json)


def latency(spec_path: Path | None, between: tuple[str, str] | None, options: LatencyOptions) -> int:
    if (spec_path is None) == (between is None):
        raise Mistake("what to measure is not clear; expected a SPEC, or --between PORT PORT")
    if spec_path is not None:
        return _latency_of_spec(spec_path, options)
    if options.floor:
        raise Mistake("--floor needs a chain to leave the functions out of; expected a SPEC with it")
    if options.hops:
        raise Mistake("--hops needs the switch's own records; expected a SPEC with it")
    return _latency_between(between or ("", ""), options)


def _latency_of_spec(path: Path, options: LatencyOptions) -> int:
    spec = load_spec(path)
    found = spec.tester_chain()
    tests = [test.latency for test in spec.tests] or [Latency()]
    if found is None:
        raise Mistake(f"{path}: no chain runs from tester.a to tester.b; expected one, to be measured")
    tests = [_override(test, options) for test in tests]
    plan = make_plan(spec, huge=options.huge)
    chain = next(each for each in plan.chains if each.tested)
    cases, timings = _cases(tests, len(chain.functions))
    wiring = Wiring(chain)

    def work(session: Session) -> None:
        if options.hops and session.node is not None:
            session.hops = HopMeter(session.node.fabric.control)
        try:
            for case, timing in zip(cases, timings, strict=True):
                measure(session, wiring, [case], timing, with_floor=options.floor)
        finally:
            if session.hops is not None:
                with suppress(Failure):  # a switch that has gone has no trace either
                    session.hops.close()

    request = _request(path.stem, options, path.read_text(encoding="utf-8-sig"), str(path.absolute()), "tailrace")
    _headline(plan, options.as_json)
    total = sum(
        timing.of(case, with_floor=options.floor and case.functions > 0)
        for case, timing in zip(cases, timings, strict=True)
    )
    return _run(lambda bar: run_on_node(request, plan, work, bar), total, as_json=options.as_json)


def _latency_between(between: tuple[str, str], options: LatencyOptions) -> int:
    uris = [absolute_uri(uri) for uri in between]
    if uris[0] == uris[1]:
        raise Mistake(f"{uris[0]} is named twice; expected two ports")
    test = _override(Latency.model_validate({"duration": "10s"}), options)
    cases, timings = _cases([test], 0, "through")
    where = place_tester(allowed_cpus())

    def work(session: Session) -> None:
        for case, timing in zip(cases, timings, strict=True):
            measure(session, None, [case], timing, with_floor=False)

    text = f"# measured between {between[0]} and {between[1]}, which Tailrace does not manage\n"
    request = _request("between", options, text, f"{between[0]} {between[1]}", None)
    total = sum(timing.of(case, with_floor=False) for case, timing in zip(cases, timings, strict=True))
    ports = list(zip(("a", "b"), uris, strict=True))
    return _run(
        lambda bar: run_between(request, ports, where, work, huge=options.huge, report=bar),
        total,
        as_json=options.as_json,
    )


def _override(test: Latency, options: LatencyOptions) -> Latency:
    """The test with what the command line says put in its place."""
    if options.frames is not None and options.pcap is not None:
        raise Mistake("--frames and --pcap both say what to send; expected one of them")
    if options.flows is not None and not 1 <= options.flows <= MOST_FLOWS:
        raise Mistake(f"--flows {options.flows}: expected from 1 to {MOST_FLOWS}")
    changes: dict[str, object] = {}
    if options.frames is not None:
        changes |= {"frames": parse_frames(options.frames), "pcap": None}
    if options.pcap is not None:
        changes["pcap"] = str(options.pcap)
    if options.rate is not None:
        changes["rate"] = _quantity("--rate", options.rate, parse_rate)
    if options.duration is not None:
        changes["duration"] = _quantity("--duration", options.duration, parse_duration)
    if options.flows is not None:
        changes["flows"] = options.flows
    return test.model_copy(update=changes)


def _quantity(option: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def _cases(tests: list[Latency], functions: int, word: str | None = None) -> tuple[list[Case], list[Timing]]:
    cases: list[Case] = []
    timings: list[Timing] = []
    for test in tests:
        profiles: list[Profile]
        if test.pcap is not None:
            profiles = [capture(Path(test.pcap))]
        else:
            profiles = [profile(frames, test.flows) for frames in test.frames]
        for each in profiles:
            base = f"{word}-{each.name}" if word else case_name(each, functions)
            taken = sum(case.name == base or case.name.startswith(f"{base}-again") for case in cases)
            name = base if not taken else f"{base}-again-{taken}"
            rate = test.rate if isinstance(test.rate, Rate) else parse_rate(test.rate)
            cases.append(Case(name, each, functions, rate, test.duration))
            timings.append(Timing(test.duration, min(test.duration, 10.0), SEARCH))
    return cases, timings


def _request(name: str, options: LatencyOptions, text: str, spec: str, fabric: str | None) -> Request:
    return Request(f"latency-{name}", options.runs, default_folder(), tuple(_command()), text, spec, fabric)


def _command() -> list[str]:
    return ["tailrace", *sys.argv[1:]]


def _headline(plan: Plan, as_json: bool) -> None:
    """The first line of output: how pollers and cores stand to each other."""
    print(plan.placement.headline, file=sys.stderr if as_json else sys.stdout, flush=True)
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr, flush=True)


def _run(start: Callable[[Bar | None], Finished], seconds: float, *, as_json: bool) -> int:
    bar = reporter(seconds + 3, wanted=not as_json)
    with bar or nullcontext():
        finished = start(bar)
    return show_finished(finished, as_json=as_json)
