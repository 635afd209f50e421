"""`tailrace dashboard`: where it listens, and the link to it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from tailrace.cli.counters import parse_listen, sampler_in_use
from tailrace.cli.output import note, print_line
from tailrace.dashboard.access import token_of
from tailrace.dashboard.events import Events
from tailrace.dashboard.server import listen_on, server
from tailrace.node.folder import default_folder
from tailrace.observe.metrics import authority


@dataclass(frozen=True)
class DashboardOptions:
    """What the command line says about `tailrace dashboard`."""

    listen: str
    token_file: Path | None


def dashboard(options: DashboardOptions) -> int:
    host, port = parse_listen(options.listen)
    sampler = sampler_in_use(facts_every=0.5)
    token = token_of(options.token_file)
    with listen_on(host, port) as listening:
        address, port = listening.getsockname()[:2]
        if not ip_address(address.partition("%")[0]).is_loopback:
            note("the link and all that is shown cross the network unencrypted; `ssh -L` is the safer way")
        print_line(f"Dashboard at http://{authority(host, port)}/?token={token}")
        sys.stdout.flush()
        server(sampler, Events(default_folder()), token, host).run(sockets=[listening])
    return 0
