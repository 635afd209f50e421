"""`tailrace watch`: which run, how often, and on what; what is shown is made elsewhere."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.live import Live

from tailrace.cli.output import print_line
from tailrace.errors import Mistake
from tailrace.observe.watch import newest, watched
from tailrace.observe.watch_view import Watched
from tailrace.report.screen import Screen
from tailrace.results import ResultError
from tailrace.results.run import find_folder
from tailrace.spec.units import parse_duration


@dataclass(frozen=True)
class WatchOptions:
    """What the command line says about `tailrace watch`."""

    runs: Path
    once: bool
    every: str
    as_json: bool


def watch(folder: Path | None, options: WatchOptions) -> int:
    try:
        every = parse_duration(options.every)
    except ValueError as error:
        raise Mistake(f"--every: {error}") from None
    try:
        view = watched(find_folder(folder, options.runs) if folder is not None else newest(options.runs)).look()
        if options.as_json:
            return _documents(view, every, once=options.once)
        if options.once or not sys.stdout.isatty():
            return _pictures(view, every, once=options.once)
        return _live(view, every)
    except ResultError as error:
        raise Mistake(str(error)) from None


def _documents(view: Watched, every: float, *, once: bool) -> int:
    """One JSON document a line."""
    while True:
        print_line(json.dumps(view.as_data()))
        sys.stdout.flush()
        if once or view.state != "running":
            return 0
        view = _wait(view, every)


def _pictures(view: Watched, every: float, *, once: bool) -> int:
    console = Screen(width=None if sys.stdout.isatty() else 160)
    while True:
        console.print(view.draw(console.width))
        if once or view.state != "running":
            return 0
        view = _wait(view, every)


def _live(view: Watched, every: float) -> int:
    console = Screen()
    with Live(view.draw(console.width), console=console, auto_refresh=False) as live:
        while view.state == "running":
            view = _wait(view, every)
            live.update(view.draw(console.width), refresh=True)
    return 0


def _wait(view: Watched, every: float) -> Watched:
    time.sleep(every)
    return view.look()
