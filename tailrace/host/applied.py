"""The profile that is applied, held against the machine as it is now."""

from __future__ import annotations

from tailrace.errors import Mistake
from tailrace.host import tuner
from tailrace.host.journal import read_journal, state_folder
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.host.writers import read_writers
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree

LATENCY = "latency"
"""The profile that is meant where none is named or applied."""


def machine_of(tree: Tree) -> Machine:
    """Raises Mistake where these are not the files of a machine."""
    machine = read_machine(tree)
    if not machine.cpus:
        raise Mistake(f"{tree.root}: no CPU in sys/devices/system/cpu; expected the files of a machine")
    return machine


def check(tree: Tree, profile: str | None = None, nic: str | None = None) -> tuple[TuningPlan, list[tuner.Checked]]:
    """The plan of a profile, of the applied one unless it is named, and every place of it, read again. Raises Mistake,
    Failure."""
    folder = state_folder(tree)
    journal = read_journal(folder)
    applied = journal.applied
    if profile is None and applied is None:
        raise Mistake(
            "no profile is applied; `tailrace host apply` applies one, `host verify --profile NAME` checks one"
        )
    keeps = load_profile(applied.roles) if applied and applied.roles else None
    name = profile or (applied.profile if applied else LATENCY)
    machine = machine_of(tree)
    made = make_tuning_plan(machine, load_profile(name), nic, roles_of=keeps, kept=applied)
    return made, tuner.verify(made, machine, journal, read_writers(folder, boot_id(machine.tree)))
