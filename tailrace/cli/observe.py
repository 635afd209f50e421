"""`tailrace capture` and `tailrace trace`: their options and what they say; the work is done elsewhere."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tailrace.cli.output import error_line, outlives_terminal, print_json, print_line
from tailrace.errors import ExitCode, Mistake
from tailrace.observe.capture import capture as run_capture
from tailrace.observe.following import follow, lines
from tailrace.observe.pcap import Bounds, Writer, check_target
from tailrace.process.control import Control, ControlError, ControlLost
from tailrace.spec.match import NAMES, Match
from tailrace.spec.units import parse_duration, parse_size
from tailrace.state.folder import default_folder, folder_in_use
from tailrace.state.record import State, peek

FIELDS = tuple(Match.model_fields)
_SNAPLEN = 262144


def parse_match(text: str) -> dict[str, Any]:
    """A match as on the command line ("protocol=udp,destination_port=53-60") as the switch takes it. Raises Mistake."""
    match: dict[str, Any] = {}
    for part in text.split(","):
        name, separator, value = part.strip().partition("=")
        if not separator or name not in FIELDS or name in match:
            raise Mistake(
                f"--match {text!r}: {part.strip()!r} is not NAME=VALUE of a field; "
                f"expected {', '.join(FIELDS)}, each once"
            )
        words = NAMES.get(name, {})
        if name in ("source", "destination"):
            match[name] = value
            continue
        numbers = [words.get(each, each) for each in ([value] if name in NAMES else value.split("-"))]
        try:
            read = [each if isinstance(each, int) else int(each, 0) for each in numbers]
        except ValueError:
            raise Mistake(f"--match {text!r}: {value!r} is no {name}; expected a number or, of a range, two") from None
        match[name] = read[0] if len(read) == 1 else read
    return match


def _refused(error: ControlError, match: Sequence[str]) -> Mistake:
    """What the switch says of the match: it counts the alternatives (`match[0].vlan: why`), which the user wrote."""
    said = str(error)
    found = re.match(r"match(?:\[(\d+)\])?(?:\.|: )", said)
    if found is None:
        return Mistake(said)
    which = f" {match[int(found[1])]!r}" if found[1] else ""
    return Mistake(f"--match{which}: {said[found.end() :]}")


def _connect(control: Path | None) -> Control:
    """The switch that is up, or the one with this socket."""
    if control is None:
        folder = folder_in_use(default_folder())
        record = peek(folder)
        if not any(process.name == "switch" and process.id.alive() for process in State(folder, record).processes()):
            raise Mistake("no switch is up; start one with `tailrace up SPEC`, or name one with --control")
        control = State(folder, record).control
    try:
        return Control(control)
    except ControlLost as error:
        raise Mistake(f"{error}; is this a switch's control socket?") from None


@contextmanager
def _ending() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for an end in order, which the block finds by the function that it gets."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    numbers = [signal.SIGINT, signal.SIGTERM, *([] if outlives_terminal() else [signal.SIGHUP])]
    old = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield asked.is_set
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class CaptureOptions:
    """What the command line says about a capture."""

    port: str | None
    chain: str | None
    direction: str
    match: tuple[str, ...]
    snaplen: int
    size: str
    files: int | None
    rotate_frames: int | None
    rotate_time: str | None
    count: int | None
    duration: str | None
    buffer: str
    control: Path | None
    as_json: bool


def _size(option: str, text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def _seconds(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def _bounds(options: CaptureOptions) -> Bounds:
    bounds = Bounds(
        size=_size("--size", options.size),
        frames=options.rotate_frames,
        seconds=_seconds("--rotate-time", options.rotate_time),
        files=options.files,
    )
    if bounds.files is None and (bounds.frames is not None or bounds.seconds is not None):
        raise Mistake("--rotate-frames and --rotate-time need --files: how many files are kept")
    if bounds.size < 1024 * 1024:
        raise Mistake(f"--size {options.size}: expected 1MiB or more")
    return bounds


def capture(path: Path, options: CaptureOptions) -> int:
    if (options.port is None) == (options.chain is None):
        raise Mistake("what to capture is not clear; expected --port NAME or --chain NAME")
    if options.direction not in ("in", "out", "both"):
        raise Mistake(f"--direction {options.direction}: expected in, out or both")
    buffer = _size("--buffer", options.buffer)
    asked: dict[str, Any] = {
        "direction": options.direction,
        "snaplen": options.snaplen,
        "buffer": 1 << max(buffer - 1, 1).bit_length(),
        **({"port": options.port} if options.port is not None else {"chain": options.chain}),
    }
    if options.match:
        asked["match"] = [parse_match(text) for text in options.match]
    bounds, seconds = _bounds(options), _seconds("--duration", options.duration)
    check_target(path)
    control = _connect(options.control)
    shown = sys.stderr.isatty()

    def progress(frames: int, dropped: int) -> None:
        sys.stderr.write(f"\r{frames:,} frames captured" + (f", {dropped:,} dropped" if dropped else ""))

    try:
        with _ending() as stop:
            done = run_capture(
                control,
                asked,
                lambda: Writer(path, bounds, options.snaplen, options.count),
                stop=stop,
                seconds=seconds,
                **({"progress": progress} if shown else {}),
            )
    except ControlError as error:
        raise _refused(error, options.match) from None
    finally:
        if shown:
            sys.stderr.write("\r")
        control.close()
    if options.as_json:
        print_json(
            {
                "frames": done.frames,
                "kept": done.kept,
                "dropped": done.dropped,
                "files": [str(each) for each in done.paths],
                "ended": str(done.error) if done.error else done.ended,
            }
        )
    elif done.paths:
        names = str(done.paths[0]) if len(done.paths) == 1 else f"{done.paths[0]} to {done.paths[-1].name}"
        lost = (
            f"; {done.dropped:,} more were dropped, because they came faster than they could be written"
            if done.dropped
            else ""
        )
        where = f"in {names}"
        if done.kept < done.frames:
            where = f"the last {done.kept:,} of them {where}; older files were deleted"
        print_line(f"{done.frames:,} frames captured, {where}{lost} ({done.ended or 'ended by a failure'}).")
    if done.error is not None:
        error_line(str(done.error))
        return ExitCode.FAILED
    return ExitCode.DONE


@dataclass(frozen=True)
class TraceOptions:
    """What the command line says about following frames."""

    match: tuple[str, ...]
    count: int
    duration: str | None
    control: Path | None
    as_json: bool


def trace(options: TraceOptions) -> int:
    matches = [parse_match(text) for text in options.match]
    seconds = _seconds("--duration", options.duration)
    control = _connect(options.control)
    try:
        with _ending() as stop:
            frames, lost, hz = follow(control, matches, options.count, seconds=seconds, stop=stop)
    except ControlError as error:
        raise _refused(error, options.match) from None
    finally:
        control.close()
    if options.as_json:
        print_json(
            [
                {
                    "length": frame.length,
                    "mark": frame.mark,
                    "steps": [
                        {"us": (note.time - frame.began) / hz * 1e6, "text": note.text}
                        for sighting in frame.sightings
                        for note in sighting.notes
                    ],
                }
                for frame in frames
            ]
        )
    else:
        for number, frame in enumerate(frames, 1):
            print_line("\n".join(lines(number, frame, hz)))
        if not frames:
            print_line("No matching frame came.")
    if lost:
        error_line(f"{lost} steps came faster than they could be read; ask for fewer frames with --count")
    return 0
