"""What each command does: reads its options, calls one thing, shows what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tailrace.cli.output import note, print_json, print_line, show_finished
from tailrace.errors import Mistake
from tailrace.fabric.kinds import KINDS
from tailrace.measure import demo as the_demo
from tailrace.measure.facts import tool_versions
from tailrace.measure.fit import Carries, beyond, carries, check_fit
from tailrace.measure.method import Method, Place, Step, run_steps
from tailrace.measure.profile import capture, parse_frames, profile
from tailrace.measure.progress import Bar, reporter
from tailrace.measure.session import Finished, Request, Session, plan_beside, run_between, run_on_node
from tailrace.measure.tester import absolute_uri
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.plan.usable import usable_cpus
from tailrace.process.plain import plain_lines
from tailrace.resources.place import place_tester
from tailrace.spec.check import rates_beyond
from tailrace.spec.load import load_located
from tailrace.spec.model import Spec
from tailrace.spec.position import Document, raise_any
from tailrace.spec.tests import METHODS
from tailrace.spec.traffic import Traffic
from tailrace.state.folder import default_folder


@dataclass(frozen=True)
class MeasureOptions:
    """What the command line says about a measurement; what it does not say is as the spec has it."""

    changes: Mapping[str, str | None]
    """What is put in the place of a test's own words, by their key, as text."""
    repeat: int
    runs: Path
    huge: bool
    as_json: bool
    resume: Path | None = None
    """The run folder of a run that is gone on with."""


def version(*, as_json: bool) -> int:
    versions = tool_versions()
    if as_json:
        print_json(versions)
    else:
        print_line("\n".join(f"{name} {text}" for name, text in versions.items()))
    return 0


def demo(*, runs: Path, huge: bool, as_json: bool) -> int:
    spec = the_demo.demo_spec()
    plan = plan_beside(default_folder(), lambda own: make_plan(spec, huge=huge, own=own))
    floor = tuple(profile(frames) for frames in the_demo.PROFILES)
    request = Request("demo", runs, default_folder(), tuple(command_line()), the_demo.SPEC, "the demo", floor=floor)
    _headline(plan, as_json)
    return run_with_bar(
        lambda bar: run_on_node(request, plan, the_demo.run_demo, bar), the_demo.seconds(), as_json=as_json
    )


def measure(
    method: Method[Any], spec_path: Path | None, between: tuple[str, str] | None, options: MeasureOptions
) -> int:
    """`tailrace measure NAME`: a chain of a spec, or what lies between two ports."""
    if (spec_path is None) == (between is None):
        raise Mistake("nothing to measure was named; expected either a SPEC or --between PORT PORT")
    if spec_path is not None:
        return _measure_spec(method, spec_path, options)
    return _measure_between(method, between or ("", ""), options)


def _measure_spec(method: Method[Any], path: Path, options: MeasureOptions) -> int:
    spec, document = load_located(path)
    if spec.tester_chain() is None:
        raise document.mistake(("chains",), "no chain runs from tester.a to tester.b; expected one to measure")
    numbers = [number for number, test in enumerate(spec.tests) if test.kind == method.name]
    if method.one_test and len(numbers) > 1:
        raise document.mistake(("tests", numbers[1]), f"a second test of {method.name}; expected one in a spec")
    ports = [Carries("tester.a and tester.b", KINDS["tailrace"].mtu("vhost-user"))]
    if options.resume is None:  # else what is sent was decided when it was begun
        check_captures(spec, document, method.name, options.changes, ports)
    tests = [spec.tests[number].settings for number in numbers]
    tests = [override(test, options.changes) for test in tests or [METHODS[method.name]()]]
    for test in tests if options.resume is None else ():
        check_fit(test, ports)
        if (why := next(rates_beyond(spec, test), None)) is not None:
            raise Mistake(f"--rate: {why}")
    plan = plan_beside(default_folder(), lambda own: make_plan(spec, huge=options.huge, document=document, own=own))
    with document.locating():
        method.check(plan)
    steps = method.steps(tests, Place(next(each for each in plan.chains if each.tested)))
    text = path.read_text(encoding="utf-8-sig")
    request = _request(method, path.stem, options, text, str(path.absolute()), "tailrace", tests)
    _headline(plan, options.as_json)
    with document.locating():
        return run_with_bar(
            lambda bar: run_on_node(request, plan, _work(method, steps, options.repeat), bar),
            _seconds(steps, options),
            as_json=options.as_json,
        )


def check_captures(
    spec: Spec, document: Document, method: str, changes: Mapping[str, str | None], ports: Sequence[Carries] = ()
) -> None:
    """Raises Mistake for the capture files in a method's tests that cannot be sent by these ports, each with its place;
    not for those that the command line puts something else in the place of."""
    if changes.get("frames") is not None or changes.get("pcap") is not None:
        return
    problems = []
    for number, test in enumerate(spec.tests):
        if test.kind == method and test.settings.pcap is not None:
            try:
                why = beyond(capture(Path(test.settings.pcap)), ports)
            except Mistake as mistake:
                why = str(mistake)
            if why is not None:
                problems.append(document.mistake(("tests", number, method, "pcap"), why))
    raise_any(problems)


def _measure_between(method: Method[Any], between: tuple[str, str], options: MeasureOptions) -> int:
    uris = [absolute_uri(uri) for uri in between]
    if uris[0] == uris[1]:
        raise Mistake(f"{uris[0]} is named twice; expected two ports")
    model = METHODS[method.name]
    brief = {"duration": "10s"} if "duration" in model.model_fields else {}
    test = override(model.model_validate(brief), options.changes)
    if options.resume is None:
        check_fit(test, [carries(uri) for uri in uris])
    steps = method.steps([test], Place(ports=(uris[0], uris[1])))
    where = place_tester(usable_cpus().cpus)
    text = f"# measured between {between[0]} and {between[1]}, which Tailrace does not manage\n"
    request = _request(method, "between", options, text, f"{between[0]} {between[1]}", None, [test])
    ports = list(zip(("a", "b"), uris, strict=True))
    work = _work(method, steps, options.repeat)
    return run_with_bar(
        lambda bar: run_between(request, ports, where, work, huge=options.huge, report=bar),
        _seconds(steps, options),
        as_json=options.as_json,
    )


def _work(method: Method[Any], steps: list[Step], repeat: int) -> Callable[[Session], None]:
    def work(session: Session) -> None:
        method.begin(session)
        try:
            run_steps(session, steps, repeat)
        finally:
            method.end(session)

    return work


def _seconds(steps: list[Step], options: MeasureOptions) -> float:
    return options.repeat * sum(step.seconds for step in steps)


def override(test: Traffic, changes: Mapping[str, str | None]) -> Traffic:
    """The test with what the command line says put in its place. Raises Mistake, naming the option."""
    given = {key: text for key, text in changes.items() if text is not None}
    if "frames" in given and "pcap" in given:
        raise Mistake("--frames and --pcap both say what to send; expected one of them")
    words: dict[str, Any] = {**test.model_dump(exclude_unset=True), **given}
    if "frames" in given:
        words["frames"] = parse_frames(given["frames"])
        words.pop("pcap", None)
    if "pcap" in given:
        words.pop("frames", None)
    for key, listed in given.items():
        if key not in ("frames", "pcap") and "," in listed:
            words[key] = listed.split(",")
    try:
        return type(test).model_validate(words, strict=False)  # numbers come as text
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
        given_words = first["input"]
        shown = ",".join(map(str, given_words)) if isinstance(given_words, list) else repr(given_words)
        expected = first["msg"].removeprefix("Input should be ")
        if first["type"] == "too_long":
            expected = f"at most {first['ctx']['max_length']}"
        what = f"{shown} is not possible; expected {expected}"
        if first["type"] == "value_error":
            what = str(first["ctx"]["error"])
        raise Mistake(f"--{key.replace('_', '-')}: {what}" if key else what) from None


def _request(
    method: Method[Any],
    of: str,
    options: MeasureOptions,
    text: str,
    spec: str,
    fabric: str | None,
    tests: Sequence[Traffic],
) -> Request:
    return Request(
        f"{method.name}-{of}",
        options.runs,
        default_folder(),
        tuple(command_line()),
        text,
        spec,
        fabric,
        options.repeat,
        method.name,
        options.resume,
        tuple(method.profiles(tests)),
    )


def command_line() -> list[str]:
    """This command, as results know it."""
    return ["tailrace", *sys.argv[1:]]


def say(lines: Sequence[str], *, as_json: bool) -> None:
    """Lines before anything is measured; beside the JSON where that is wanted."""
    print(plain_lines("\n".join(lines)), file=sys.stderr if as_json else sys.stdout, flush=True)


def needs_root(what: str, why: str = "network namespaces and huge pages") -> None:
    """Raises Mistake if this is not root."""
    if os.geteuid() != 0:
        raise Mistake(f"{what} needs root, for {why}; start it with sudo")


def _headline(plan: Plan, as_json: bool) -> None:
    """The first line of output: how pollers share cores."""
    say([plan.placement.headline], as_json=as_json)
    for each in plan.notes:
        note(each)


def run_with_bar(start: Callable[[Bar | None], Finished], seconds: float, *, as_json: bool) -> int:
    bar = reporter(seconds + 3, wanted=not as_json)
    with bar or nullcontext():
        finished = start(bar)
    return show_finished(finished, as_json=as_json)
