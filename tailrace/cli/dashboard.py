"""`tailrace dashboard`: where it listens, and the link to it."""

from __future__ import annotations

import gc
import json
import socket
import sys
from dataclasses import dataclass
from getpass import getpass
from ipaddress import ip_address
from pathlib import Path

from tailrace.cli.counters import parse_listen, sampler_in_use
from tailrace.cli.options import DEFAULT_DASHBOARD, DEFAULT_RUNS
from tailrace.cli.output import note, print_line
from tailrace.dashboard.access import token_of
from tailrace.dashboard.api import Places
from tailrace.dashboard.events import Events
from tailrace.dashboard.nodes import read_nodes
from tailrace.dashboard.passwords import Passwords, set_password
from tailrace.dashboard.record import Record, Recorder
from tailrace.dashboard.rules import EVERYTHING, read_rules
from tailrace.dashboard.server import Certificate, Shown, listen_on, server
from tailrace.errors import Mistake
from tailrace.observe.metrics import authority
from tailrace.spec.units import parse_size
from tailrace.state.folder import default_folder


@dataclass(frozen=True)
class DashboardOptions:
    """What the command line says about `tailrace dashboard`."""

    listen: str
    token_file: Path | None
    certificate: Path | None = None
    key: Path | None = None
    runs: Path = DEFAULT_RUNS
    control: bool = False
    alarms: Path | None = None
    record: Path | None = None
    record_size: str = "64MiB"
    replay: Path | None = None
    password_file: Path | None = None
    set_password: str | None = None
    nodes: Path | None = None
    as_json: bool = False


def dashboard(options: DashboardOptions) -> int:
    if options.set_password is not None:
        return _set_password(options, options.set_password)
    host, port = parse_listen(options.listen, DEFAULT_DASHBOARD)
    passwords = Passwords(options.password_file) if options.password_file else None
    certificate = _certificate(options)
    sampler = sampler_in_use(facts_every=0.5)
    remotes = read_nodes(options.nodes) if options.nodes else ()
    rules = read_rules(options.alarms) if options.alarms else EVERYTHING
    token = token_of(options.token_file)
    with listen_on(host, port) as listening:
        address, port = listening.getsockname()[:2]
        recorder, record = _record(options)
        if certificate is None and not ip_address(address.partition("%")[0]).is_loopback:
            note("the link and all that is shown cross the network unencrypted; use --certificate, or `ssh -L`")
        url = f"{'https' if certificate else 'http'}://{authority(_named(host, address), port)}/"
        said = {"link": f"{url}?token={token}", "url": url, "token": token, "port": port}
        print_line(json.dumps(said) if options.as_json else f"Dashboard at {said['link']}")
        sys.stdout.flush()
        folder = default_folder()
        places = Places(folder, options.runs, record)
        # Pictures have no cycles. To look for some among a thousand chains costs more than to make a picture of them.
        gc.set_threshold(100_000)
        shown = Shown(sampler, Events(folder), places, rules, options.control, recorder, passwords, remotes)
        server(shown, token, host, certificate).run(sockets=[listening])
    return 0


def _named(host: str, address: str) -> str:
    """What a link has: of all addresses together none leads here from elsewhere, but this machine's name does."""
    return socket.gethostname() if ip_address(address.partition("%")[0]).is_unspecified else host


def _certificate(options: DashboardOptions) -> Certificate | None:
    if options.certificate is None or options.key is None:
        if options.certificate is not options.key:
            raise Mistake("expected both --certificate and --key, or neither")
        return None
    found = Certificate(options.certificate, options.key)
    found.check()
    return found


def _record(options: DashboardOptions) -> tuple[Recorder | None, Record | None]:
    """What is written, and what can be replayed. Raises Mistake, Failure."""
    if options.record and options.replay:
        raise Mistake("--record and --replay are of two files, and the page replays one; expected one of them")
    if options.record:
        try:
            limit = parse_size(options.record_size)
        except ValueError as error:
            raise Mistake(f"--record-size: {error}") from None
        return Recorder(options.record, limit), Record(options.record, recording=True)
    if options.replay:
        record = Record(options.replay, recording=False)
        if not record.document()["parts"]:
            raise Mistake(f"{options.replay}: nothing was recorded in it, or it was cut short before its first picture")
        return None, record
    return None, None


def _set_password(options: DashboardOptions, name: str) -> int:
    file = options.password_file
    if file is None:
        raise Mistake("--set-password needs --password-file")
    set_password(
        file, name, getpass(f"Password of {name}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    )
    told = f"{name} may look by that password, once `tailrace dashboard` is started with {file}."
    print_line(json.dumps({"name": name, "file": str(file)}) if options.as_json else told)
    return 0
