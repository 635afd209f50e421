"""`tailrace top` and `tailrace metrics`: the terminal, the keys and the address; what they show is made elsewhere."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from tailrace.cli.options import DEFAULT_METRICS
from tailrace.cli.output import print_line
from tailrace.errors import Failure, Mistake
from tailrace.observe.metrics import authority, serve
from tailrace.observe.snapshot import Sampler, Snapshot
from tailrace.observe.top import SORTS, Rows, draw, only, rows
from tailrace.report.screen import Screen
from tailrace.spec.units import parse_duration
from tailrace.state.folder import default_folder, folder_in_use
from tailrace.state.record import check_ours, peek

_LONGEST = 24 * 3600.0
"""Seconds between two pictures at most."""


@dataclass(frozen=True)
class TopOptions:
    """What the command line says about `tailrace top`."""

    as_json: bool
    once: bool
    sort: str
    every: str
    only: str | None


def top(options: TopOptions) -> int:
    if options.sort not in SORTS:
        raise Mistake(f"--sort {options.sort}: expected {', '.join(SORTS)}")
    try:
        every = parse_duration(options.every)
    except ValueError as error:
        raise Mistake(f"--every: {error}") from None
    if every > _LONGEST:
        raise Mistake(f"--every {options.every}: expected at most 24h")
    sampler = sampler_in_use()
    try:
        if options.once:
            return _once(sampler, options, every)
        if options.as_json or not sys.stdout.isatty():
            return _lines(sampler, options, every)
        return _live(sampler, options, every)
    finally:
        sampler.close()


def sampler_in_use(facts_every: float = 0.0) -> Sampler:
    """Of what is up, or will be. Raises Mistake where that is another user's, and Damaged.

    Facts have counts and states in them: they are as old as the counters beside them, so that rates are of one time,
    and what is asked for with a scrape is asked of the switch then, never between. Who looks often lets them be
    `facts_every` seconds old.
    """
    folder = default_folder()
    shown = folder_in_use(folder)
    check_ours(shown)
    peek(shown)
    return Sampler(folder, facts_every)


def _two(sampler: Sampler, every: float) -> tuple[Snapshot, Snapshot]:
    before = sampler.snapshot()
    time.sleep(every)
    now = sampler.snapshot()
    if before is None or now is None:
        raise Failure("no switch is up; start one with `tailrace up SPEC`")
    return before, now


def _once(sampler: Sampler, options: TopOptions, every: float) -> int:
    found = only(rows(*_two(sampler, every), options.sort), options.only)
    if options.as_json:
        print_line(json.dumps(found.as_data(), indent=1))
    else:
        Screen().print(draw(found, sort=options.sort))
    return 0


def _lines(sampler: Sampler, options: TopOptions, every: float) -> int:
    """One picture after another, for who reads a pipe."""
    before = sampler.snapshot()
    while True:
        time.sleep(every)
        now = sampler.snapshot()
        if before is not None and now is not None:
            found = only(rows(before, now, options.sort), options.only)
            if options.as_json:
                print_line(json.dumps(found.as_data()))
            else:
                Screen(width=80).print(draw(found, sort=options.sort))
            sys.stdout.flush()
        before = now


def _live(sampler: Sampler, options: TopOptions, every: float) -> int:
    console = Screen()
    sort = options.sort
    before = sampler.snapshot()
    found: Rows | None = None

    def picture() -> RenderableType:
        if found is None:
            return Text("no switch is up, or it has just started; waiting (q ends)" if before is None else "counting…")
        return draw(found, height=console.height, sort=sort)

    with _keys() as key, Live(picture(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            pressed = key(every)
            if pressed in ("q", "Q", "\x1b"):
                return 0
            if pressed in ("s", "S"):
                sort = SORTS[(SORTS.index(sort) + 1) % len(SORTS)]
            now = sampler.snapshot()
            if before is not None and now is not None and now.time - before.time > every / 2:
                found = only(rows(before, now, sort), options.only)
                before = now
            elif before is None or now is None:
                found, before = None, now
            live.update(picture(), refresh=True)


class _Key:
    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __call__(self, seconds: float) -> str | None:
        """The next key within so many seconds; None if none was pressed."""
        if self._descriptor is None:
            time.sleep(seconds)
            return None
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        return os.read(self._descriptor, 1).decode(errors="replace") if ready else None


@contextmanager
def _keys() -> Iterator[_Key]:
    """Keys as they are pressed, without Enter; the terminal is as it was afterwards."""
    if not sys.stdin.isatty():
        yield _Key(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _Key(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def parse_listen(listen: str, default: str) -> tuple[str, int]:
    """Host and port; `default` is the command's, for an example. Raises Mistake."""
    address, _, port = listen.rpartition(":")
    host = address.removeprefix("[").removesuffix("]")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        usual = f"{default} or [::1]:{default.rpartition(':')[2]}"
        raise Mistake(f"--listen {listen}: expected an address and a port, such as {usual}")
    return host, int(port)


def metrics(listen: str) -> int:
    from tailrace.dashboard.host import Host  # not loaded by `top`

    host, port = parse_listen(listen, DEFAULT_METRICS)
    server = serve(sampler_in_use(), Host().verify, host, port)
    print_line(f"Metrics at http://{authority(host, server.server_port)}/metrics")
    sys.stdout.flush()
    try:
        while True:
            time.sleep(3600)
    finally:
        server.shutdown()
