"""The boot loader's files: which boot loader it is, that arguments reach the kernel, and that nobody else's change."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from machines import machine, make
from tuned_host import UPDATE_GRUB, Host, contents

from tailrace.errors import Failure, Mistake
from tailrace.host import tuner
from tailrace.host.boot import LOADER_VARIABLE, BootLoader
from tailrace.host.boot_files import GRUB_FILE, GRUB_MENU, INSTALL_FILE
from tailrace.host.command_line import parse_line
from tailrace.host.journal import read_journal
from tailrace.host.shell_settings import ShellSettings
from tailrace.host.tuner import State
from tailrace.kernel.tree import Tree

ENTRIES = {
    "/etc/kernel/install.d/README": "",
    "/etc/kernel/cmdline": "root=/dev/sda1 ro",
    "/boot/loader/entries/tok-6.1.0.conf": "options root=/dev/sda1 ro",
    "/lib/modules/6.1.0/vmlinuz": "",
}
DROP_INS = "/etc/default/grub.d"
OURS = [("isolcpus", "1-3"), ("nosoftlockup", "")]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Host(tmp_path)


def started_by(name: str) -> dict[str, str]:
    """An EFI variable as Linux shows it: attributes, and then UTF-16."""
    return {LOADER_VARIABLE: "\6\0\0\0" + name.encode("utf-16-le").decode() + "\0\0"}


@pytest.mark.parametrize(
    ("files", "without", "kind"),
    [
        ({}, (), "grub"),
        ({}, (GRUB_MENU,), None),  # the package is there, its boot loader is not
        ({}, ("/etc/default/grub",), None),
        (ENTRIES, (GRUB_MENU,), "kernel-install"),
        (ENTRIES, (), "grub"),  # BOOT_IMAGE= is on the running kernel's line
        ({**ENTRIES, "/proc/cmdline": r"initrd=\tok\6.1.0\initrd quiet"}, (), "kernel-install"),
        ({**ENTRIES, "/proc/cmdline": "quiet"}, (), None),
        ({**ENTRIES, **started_by("systemd-boot 252.39")}, (), "kernel-install"),
        ({**ENTRIES, **started_by("GRUB 2.12"), "/proc/cmdline": r"initrd=\x"}, (), "grub"),
        (started_by("systemd-boot 252.39"), (), None),
        (started_by("rEFInd"), (), None),
    ],
)
def test_the_boot_loader_in_use_is_found(
    tmp_path: Path, files: dict[str, str], without: tuple[str, ...], kind: str | None
) -> None:
    machine(tmp_path)
    make(tmp_path, files)
    for path in without:
        (tmp_path / path.lstrip("/")).unlink()
    loader = BootLoader(Tree(tmp_path))
    assert loader.kind() == kind
    if kind is None:
        with pytest.raises(Mistake, match=r"--run-time.*yourself: isolcpus=1-3 nosoftlockup"):
            loader.check(OURS)


def test_a_layout_without_entries_is_refused(tmp_path: Path) -> None:
    machine(tmp_path)
    make(tmp_path, {**ENTRIES, "/proc/cmdline": r"initrd=\x", "/etc/kernel/install.conf": "# own\nlayout=uki"})
    with pytest.raises(Mistake, match=r"/etc/kernel/install.conf makes .*layout=uki"):
        BootLoader(Tree(tmp_path)).check(OURS)


def grub_line(folder: Path, defaults: str) -> str:
    """What update-grub makes of /etc/default/grub and our file."""
    make(folder, {"/etc/default/grub": defaults, GRUB_FILE: BootLoader(Tree(folder)).text(OURS)})
    subprocess.run(["sh", "-eu", "-c", UPDATE_GRUB, folder], check=True)
    return (folder / GRUB_MENU.lstrip("/")).read_text().removeprefix("linux ").rstrip("\n")


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("", "isolcpus=1-3 nosoftlockup"),
        ("quiet splash ", "quiet splash isolcpus=1-3 nosoftlockup"),
        ("quiet -- single", "quiet isolcpus=1-3 nosoftlockup -- single"),
        ("-- single", "isolcpus=1-3 nosoftlockup -- single"),
        ("quiet --", "quiet isolcpus=1-3 nosoftlockup --"),
        ('dyndbg=\\"a -- b\\" quiet', 'dyndbg="a -- b" quiet isolcpus=1-3 nosoftlockup'),
        ("a=* $HOME%s", "a=* /nowhere%s isolcpus=1-3 nosoftlockup"),
    ],
)
def test_grub_gives_the_arguments_to_the_kernel_and_not_to_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, line: str
) -> None:
    monkeypatch.setenv("HOME", "/nowhere")
    machine(tmp_path)
    assert grub_line(tmp_path, f'GRUB_CMDLINE_LINUX_DEFAULT="{before}"') == line


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("zzz-local.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"', True),
        ("zzz-local.cfg", "export GRUB_CMDLINE_LINUX_DEFAULT='console=ttyS0' # ours", True),
        ("zzz-local.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT console=ttyS0"', False),
        ("zzz-local.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="console=ttyS0 ${GRUB_CMDLINE_LINUX_DEFAULT}"', False),
        ("zzz-local.cfg", 'GRUB_CMDLINE_LINUX="console=ttyS0"', False),
        ("zzz-local.cfg", 'GRUB_CMDLINE_LINUX="console=ttyS0 --"', True),
        ("50-cloudimg-settings.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"', False),
        ("50-cloudimg-settings.cfg", 'GRUB_CMDLINE_LINUX="console=ttyS0 -- single"', True),
        ("50-cloudimg-settings.cfg", 'GRUB_CMDLINE_LINUX="dyndbg=\\"open"', True),
        ("zzz-local.conf", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"', False),  # not read by update-grub
        (".zzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"', False),
    ],
)
def test_a_drop_in_that_keeps_our_arguments_from_the_kernel_is_named(
    host: Host, name: str, text: str, told: bool
) -> None:
    path = f"{DROP_INS}/{name}"
    make(host.folder, {path: text})
    warned = [warning for warning in host.plan().warnings if path in warning]
    assert bool(warned) is told
    if told:
        before = contents(host.folder)
        with pytest.raises(Mistake, match=path.replace(".", r"\.")):
            host.apply()
        assert contents(host.folder) == before
        assert host.apply(boot=False).changed
    else:
        assert host.apply().reboot


def test_a_drop_in_that_comes_later_makes_verify_say_so(host: Host) -> None:
    host.apply()
    assert host.states()["argument:nohz_full"] is State.REBOOT
    make(host.folder, {f"{DROP_INS}/zzz.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=quiet"})
    found = tuner.verify(host.plan(), host.machine, read_journal(host.state))
    tickless = next(each for each in found if each.step.setting.target == "nohz_full")
    assert (tickless.state, tickless.by) == (State.WRONG, f"{DROP_INS}/zzz.cfg")


def test_who_gives_the_same_argument_and_wins_is_named(host: Host) -> None:
    make(host.folder, {"/etc/default/grub": 'GRUB_CMDLINE_LINUX="isolcpus=2"'})
    assert any(
        warning.startswith("/etc/default/grub also sets isolcpus=domain,2, which") for warning in host.plan().warnings
    )
    host.apply()
    assert host.states()["argument:isolcpus"] is State.WRONG
    assert host.states()["argument:nohz_full"] is State.REBOOT


def test_what_a_shell_decides_is_not_guessed(host: Host) -> None:
    make(host.folder, {f"{DROP_INS}/zzz.cfg": 'if [ -e /x ]; then GRUB_CMDLINE_LINUX_DEFAULT="quiet"; fi'})
    assert not host.plan().warnings
    host.apply()
    assert host.states()["argument:nohz_full"] is State.REBOOT


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=b\nA='c d' # e\n", {"A": "c d"}),
        ('A="b\nc"', {"A": "b\nc"}),
        ('A=b\nA="$A ${A}c \\"\\$A"', {"A": 'b bc "$A'}),
        ("A=b\\ c\\\nd", {"A": "b cd"}),
        ("A=b; A=c", {"A": "c"}),
        ("A=b command", {}),
        ("A=b\nif true; then A=c; fi", {}),
        ("A=b\n[ -e /x ] && A=c", {}),
        ("A=b\nA=$(date)", {}),
        ("A=b\n. /other", {}),
        ("A=$(date)\nA=b", {"A": "b"}),
        ("A=b\nunset A", {"A": ""}),
        ("f() {\nA=c\n}\n", {}),
        ("case x in x) A=c ;; esac", {}),
    ],
)
def test_settings_are_read_as_a_shell_reads_them(text: str, values: dict[str, str]) -> None:
    settings = ShellSettings()
    settings.read(text)
    assert {name: settings.values[name] for name in settings.values if settings.known([name])} == values


class Entries:
    """Entries of a boot loader, and the plugin that adds arguments to those of one kernel."""

    def __init__(self, folder: Path) -> None:
        machine(folder)
        make(folder, {**ENTRIES, "/proc/cmdline": r"initrd=\x"})
        self.loader = BootLoader(Tree(folder))
        self._plugin, self._boot = folder / "plugin", folder / "boot"
        self._plugin.write_text(self.loader.text(OURS))
        self.folder = self._boot / "loader/entries"
        (self.folder / "tok-6.1.0.conf").unlink()

    def add(self, version: str) -> None:
        environment = {"KERNEL_INSTALL_ENTRY_TOKEN": "tok", "KERNEL_INSTALL_BOOT_ROOT": str(self._boot)}
        environment["PATH"] = os.environ["PATH"]
        subprocess.run(["sh", "-u", self._plugin, "add", version, "/x", "/y"], env=environment, check=True)

    def changed_by(self, version: str, names: list[str], text: str = "options ro\n") -> set[str]:
        for name in names:
            (self.folder / name).write_text(text)
        self.add(version)
        assert sorted(path.name for path in self.folder.iterdir()) == sorted(names)
        return {name for name in names if (self.folder / name).read_text() != text}


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    return Entries(tmp_path)


def test_the_plugin_changes_the_entries_of_its_kernel_alone(entries: Entries) -> None:
    own = ["tok-6.1.conf", "tok-6.1+3.conf", "tok-6.1+2-1.conf", "tok-6.1+0-3.conf"]
    others = [
        "tok-6.12.conf",
        "tok-6.1.0-rc1.conf",
        "tok-6.1-two.conf",
        "tok-6.1+.conf",
        "tok-6.1+3x.conf",
        "a-6.1.conf",
    ]
    assert entries.changed_by("6.1", own + others) == set(own)


def test_an_entry_that_says_another_version_is_another_kernels(entries: Entries) -> None:
    """6.1+3 may be a version, too."""
    assert entries.changed_by("6.1", ["tok-6.1+3.conf"], "version    6.1+3 \noptions ro\n") == set()
    assert entries.changed_by("6.1+3", ["tok-6.1+3.conf"], "version    6.1+3 \noptions ro\n") == {"tok-6.1+3.conf"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("title x\noptions ro\nlinux /l\n", "title x\noptions ro isolcpus=1-3 nosoftlockup\nlinux /l\n"),
        ("options ro\noptions quiet\n", "options ro\noptions quiet isolcpus=1-3 nosoftlockup\n"),
        ("options\tro  \n", "options\tro  isolcpus=1-3 nosoftlockup\n"),
        ("options ro -- single\n", "options ro isolcpus=1-3 nosoftlockup -- single\n"),
        ("options ro --\noptions single\n", "options ro isolcpus=1-3 nosoftlockup --\noptions single\n"),
        ("options ro", "options ro isolcpus=1-3 nosoftlockup\n"),
        ("title x\n", "title x\noptions isolcpus=1-3 nosoftlockup\n"),
        (r"options a=\t&|$x 'q'", "options a=\\t&|$x 'q' isolcpus=1-3 nosoftlockup\n"),
    ],
)
def test_one_options_line_gets_the_arguments_once(entries: Entries, before: str, after: str) -> None:
    path = entries.folder / "tok-6.1.conf"
    path.write_text(before)
    for _ in range(2):
        entries.add("6.1")
        assert path.read_text() == after


def test_undoing_takes_the_arguments_out_of_entries_that_are_not_made_anew(tmp_path: Path, entries: Entries) -> None:
    """Where boots are counted, kernel-install makes TOKEN-VERSION+3.conf beside the entry that has booted."""
    path = entries.folder / "tok-6.1.conf"
    path.write_text("title x\noptions ro\n")
    entries.loader.stage(entries.loader.text(OURS))
    entries.add("6.1")
    assert parse_line(path.read_text().splitlines()[1]).values("isolcpus") == ["1-3"]
    entries.loader.stage(None)
    assert path.read_text() == "title x\noptions ro\n"
    assert not (tmp_path / INSTALL_FILE.lstrip("/")).exists()


def test_what_another_boot_loader_was_given_is_taken_back_from_it(host: Host) -> None:
    """systemd-boot may have come since."""
    host.apply()
    make(host.folder, {**ENTRIES, LOADER_VARIABLE: "systemd-boot 252"})
    (host.folder / GRUB_MENU.lstrip("/")).unlink()
    assert host.undo() == []
    assert not (host.folder / GRUB_FILE.lstrip("/")).exists()


def test_a_boot_loader_that_does_not_give_the_arguments_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of the distribution's may set the line anew, for one."""
    machine(tmp_path)
    monkeypatch.setattr(Tree, "live", True)
    monkeypatch.setattr(BootLoader, "commands", lambda _: [["true"]])
    loader = BootLoader(Tree(tmp_path))
    make(tmp_path, {GRUB_FILE: loader.text(OURS), GRUB_MENU: "\tlinux\t/vmlinuz ro isolcpus=1-3 nosoftlockup quiet"})
    loader.refresh()
    make(tmp_path, {GRUB_MENU: "\tlinux\t/vmlinuz ro quiet -- isolcpus=1-3 nosoftlockup"})
    with pytest.raises(Failure, match=f"does not give the kernel the arguments in {GRUB_FILE};"):
        loader.refresh()
