"""A copy of what is read of this machine, as a folder that `--root` takes: so that somebody else can look at it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.host.boot import LOADER_VARIABLE
from tailrace.host.boot_files import (
    GRUB_DEFAULTS,
    GRUB_FILE,
    GRUB_FOLDER,
    GRUB_MENU,
    INSTALL_FILE,
    INSTALL_SETTINGS,
    LINE_FILES,
)
from tailrace.host.capabilities import find_capabilities
from tailrace.host.knobs import FAMILIES, Context, Knob
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.values import Values
from tailrace.kernel.tree import Tree
from tailrace.resources.cards import read_cards
from tailrace.resources.roles import deal_roles

_COMMAND = re.compile(r"/proc/\d+/cmdline")


@dataclass(frozen=True)
class Recording(Tree):
    """A machine's files, which remembers what was asked for."""

    texts: dict[str, str] = field(default_factory=dict, compare=False)
    packed: dict[str, bytes] = field(default_factory=dict, compare=False)
    links: dict[str, str] = field(default_factory=dict, compare=False)
    there: set[str] = field(default_factory=set, compare=False)

    def text(self, path: str) -> str | None:
        text = super().text(path)
        if text is not None:
            # Of a command line it only counts whether there is one, and its words may be secret.
            self.texts[path] = "program" if _COMMAND.fullmatch(path) and text else text
        return text

    def gzipped(self, path: str) -> str | None:
        text = super().gzipped(path)
        if text is not None:
            self.packed[path] = self.at(path).read_bytes()
        return text

    def raw(self, path: str, most: int) -> bytes | None:
        content = super().raw(path, most)
        if content is not None:
            self.packed[path] = content
        return content

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if found:
            self.there.add(path)
        return found

    def names(self, folder: str) -> list[str]:
        found = super().names(folder)
        if folder != "/proc":  # processes that were not looked at are nobody's business
            self.there.update(f"{folder}/{name}" for name in found)
        return found

    def target(self, path: str) -> str | None:
        found = super().target(path)
        if found is not None:
            self.links[path] = str(self.at(path).readlink())
        return found


def copy_machine(folder: Path, tree: Tree | None = None) -> int:
    """Writes all that inspecting and planning read into a new folder; returns how many files.

    Raises Mistake if the folder is there, OSError if it cannot be written.
    """
    if folder.exists():
        raise Mistake(f"{folder}: is there already; name a new folder")
    recording = Recording((tree or Tree()).root)
    _read_all(recording)
    folder.mkdir(parents=True)
    for path in sorted(recording.links):
        at = _through(recording, folder, path)
        at.parent.mkdir(parents=True, exist_ok=True)
        # A link on the way to this one is a folder here, so its own words would lead elsewhere.
        at.symlink_to(os.path.relpath(folder / _real(recording, path), at.parent))
    for path in sorted(recording.there - recording.texts.keys() - recording.links.keys() - recording.packed.keys()):
        _through(recording, folder, path).mkdir(parents=True, exist_ok=True)
    for path, text in sorted(recording.texts.items()):
        at = _through(recording, folder, path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text + "\n")
    for path, content in sorted(recording.packed.items()):
        at = _through(recording, folder, path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content)
    return len(recording.texts) + len(recording.packed)


def _read_all(tree: Recording) -> None:
    machine = read_machine(tree)
    find_capabilities(machine)
    read_cards(tree, machine.nics)
    values = Values(tree)
    for name in profile_names():
        profile = load_profile(name)
        with suppress(Mistake):  # a machine that cannot be planned for is the one that somebody else should look at
            context = Context(machine, deal_roles(machine, profile.roles))
            for family in FAMILIES:
                for knob in family.knobs:
                    _read_knob(context, knob, _some_value(knob.name, profile.knobs), values)
    drop_ins = [f"{GRUB_FOLDER}/{name}" for name in tree.names(GRUB_FOLDER) if name.endswith(".cfg")]
    for path in (GRUB_DEFAULTS, *drop_ins, GRUB_FILE, INSTALL_FILE, *INSTALL_SETTINGS, *LINE_FILES, LOADER_VARIABLE):
        tree.text(path)
    tree.exists(GRUB_MENU)


def _read_knob(context: Context, knob: Knob, value: object, values: Values) -> None:
    with suppress(Mistake):
        for setting in knob.settings(context, value):
            values.read(setting)


def _some_value(name: str, knobs: object) -> object:
    """A value of the profile's, or one that makes the knob look at all its places."""
    known = knobs if isinstance(knobs, dict) else {}
    return known.get(name, 50 if name == "cache_share" else 1)


def _through(tree: Recording, folder: Path, path: str) -> Path:
    """Where a path lies once links on its way are followed; links lead to where they do on the machine."""
    for link in _parents(path):
        if link in tree.links:
            return folder / _real(tree, link) / path[len(link) :].lstrip("/")
    return folder / path.lstrip("/")


def _real(tree: Recording, link: str) -> Path:
    """Where a link leads to, from the root of the machine's files."""
    return tree.at(link).resolve().relative_to(tree.root.resolve())


def _parents(path: str) -> Iterator[str]:
    parts = path.strip("/").split("/")
    for count in range(len(parts) - 1, 0, -1):
        yield "/" + "/".join(parts[:count])
