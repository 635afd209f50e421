"""A machine of files (machines.py) that is tuned, with its journal in a folder of its own."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path

from machines import machine

from tailrace.host import tuner
from tailrace.host.journal import hold_journal, read_journal
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuner import State
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.kernel.tree import Tree

Write = Callable[[Tree, str, str], None]


class Host:
    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        self.folder, self.state = folder, folder / "state"
        machine(folder, threads=threads)

    @property
    def machine(self) -> Machine:
        return read_machine(Tree(self.folder))

    def own(self, knobs: str) -> str:
        """A profile of these knobs alone, in a file."""
        folder = self.folder / "profiles"
        folder.mkdir(exist_ok=True)
        path = folder / f"{len(list(folder.iterdir()))}.yaml"
        path.write_text(f"inherits: vanilla\nknobs: {knobs}\n")
        return str(path)

    def plan(self, profile: str = "latency") -> TuningPlan:
        return make_tuning_plan(self.machine, load_profile(profile), kept=read_journal(self.state).applied)

    def apply(self, profile: str = "latency", *, boot: bool = True) -> tuner.Outcome:
        with hold_journal(self.state) as journal:
            return tuner.apply(self.plan(profile), self.machine, journal, boot=boot)

    def undo(self) -> list[str]:
        with hold_journal(self.state) as journal:
            return tuner.undo(self.machine, journal)

    def states(self, profile: str = "latency") -> dict[str, State]:
        found = tuner.verify(self.plan(profile), self.machine, read_journal(self.state))
        return {each.step.setting.place: each.state for each in found}


def contents(folder: Path) -> dict[str, str]:
    """Every file, but the journal and profiles."""
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not {"state", "profiles"} & set(path.parts)
    }


def meanings(files: dict[str, str]) -> dict[str, str]:
    """The kernel shows its choices again with brackets around the one that was written; a plain file does not."""
    return {
        path: text.split("[")[1].split("]")[0] + "\n" if "[" in text and "hugepage" in path else text
        for path, text in files.items()
    }


def with_preference(write: Write) -> Write:
    """Writing as with intel_pstate: under the governor performance it takes no other energy preference."""

    def refusing(tree: Tree, path: str, value: str) -> None:
        if path.endswith("energy_performance_preference") and value != "performance":
            governor = path.replace("energy_performance_preference", "scaling_governor")
            if tree.text(governor) == "performance":
                raise OSError(errno.EBUSY, "Device or resource busy")
        write(tree, path, value)

    return refusing


UPDATE_GRUB = """\
. "$0/etc/default/grub"
for file in "$0"/etc/default/grub.d/*.cfg; do [ ! -e "$file" ] || . "$file"; done
mkdir -p "$0/boot/grub"
echo "linux $GRUB_CMDLINE_LINUX_DEFAULT" >"$0/boot/grub/grub.cfg"
"""


def update_grub(folder: Path) -> None:
    """What update-grub(8) does with these files, on a machine in a folder."""
    subprocess.run(["sh", "-c", UPDATE_GRUB, folder], check=True)
