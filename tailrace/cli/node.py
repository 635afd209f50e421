"""`tailrace node`: what the node has of the machine."""

from __future__ import annotations

from typing import Any

import typer

from tailrace.cli.options import JsonOption
from tailrace.cli.output import print_json, print_line, run_command
from tailrace.cli.table import PlainTable, print_table
from tailrace.node.resources import resources as found_resources
from tailrace.resources.hugepages import size_words

app = typer.Typer(help="Show what is held of this machine, and by whom.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def node() -> None:
    """Keeps `resources` a command of its own while it is the only one."""


@app.command()
def resources(as_json: JsonOption = False) -> None:
    """Show who holds what: CPUs with their roles, memory and huge pages by node, network cards, ports.

    \b
    sudo tailrace node resources
    sudo tailrace node resources --json | jq '.cpus[] | select(.use == "exclusive")'

    A CPU is exclusive where something polls on it, and shared where control threads run or what sleeps until it is
    notified. Memory is held as far as limits let it be used. It needs no service. What only root may read is shown to
    root alone.
    """
    raise typer.Exit(run_command(lambda: _show(as_json=as_json)))


def _show(*, as_json: bool) -> int:
    found = found_resources()
    if as_json:
        print_json(found)
        return 0
    cpus = PlainTable("CPU", "node", "core", "role", "isolated", "use", "owner")
    for cpu in found["cpus"]:
        use = (cpu["use"] or "free") if cpu["online"] else "offline"
        isolated = "yes" if cpu["isolated"] else "no"
        cells = (cpu["cpu"], cpu["node"], cpu["core"], cpu["role"], isolated, use, ", ".join(cpu["owners"]))
        cpus.add_row(*map(_cell, cells))
    print_table(cpus)
    memory = PlainTable("node", "memory", "for the system", "held", "left", "owner")
    pools = PlainTable("node", "pages of", "total", "free", "ours", "owner")
    for each in found["nodes"]:
        sizes = [f"{each[key]} MiB" for key in ("memory_mib", "reserve_mib", "held_mib", "left_mib")]
        memory.add_row(*map(_cell, (each["node"], *sizes, ", ".join(each["owners"]))))
        for pool in each["pages"]:
            pages = size_words(pool["kib"]), pool["total"], pool["free"], pool["ours"], ", ".join(pool["owners"])
            pools.add_row(*map(_cell, (each["node"], *pages)))
    print_table(memory)
    nics = PlainTable("NIC", "address", "node", "driver", "owner")
    for nic in found["nics"]:
        nics.add_row(
            *map(_cell, (*(nic[key] for key in ("nic", "address", "node", "driver")), ", ".join(nic["owners"])))
        )
    ports = PlainTable("port", "owner")
    for port in found["ports"]:
        ports.add_row(port["port"], port["owner"])
    for table in (pools, nics, ports):
        if table.rows:
            print_table(table)
    for note in found["notes"]:
        print_line(f"note: {note}")
    return 0


def _cell(value: Any) -> str:
    return "–" if value in (None, "") else str(value)
