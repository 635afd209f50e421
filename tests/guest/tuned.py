"""A virtual machine that is tuned: it has a boot loader's configuration and keeps its files over a reboot.

Its disk is its initramfs, so what it has written is carried from one boot to the next by the test; GRUB is a shell that
reads the same files as update-grub, and the test boots the kernel with the line that it makes.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import Hardware, Machine

#: What grub-mkconfig does with them: the file first, then each of the folder in its order.
UPDATE_GRUB = """\
#!/bin/sh
. /etc/default/grub
for file in /etc/default/grub.d/*.cfg; do [ ! -e "$file" ] || . "$file"; done
line="$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
mkdir -p /boot/grub
echo "linux /vmlinuz $line" >/boot/grub/grub.cfg
echo "$line" >/boot/line
"""
SETUP = f"""\
mkdir -p /etc/default/grub.d /boot /var/lib /usr/sbin
[ -e /etc/default/grub ] || echo 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"' >/etc/default/grub
echo {base64.b64encode(UPDATE_GRUB.encode()).decode()} | base64 -d >/usr/sbin/update-grub
chmod 755 /usr/sbin/update-grub
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null || true
update-grub
"""
KEPT = "etc/default var/lib/tailrace boot/line"


@dataclass(frozen=True)
class Answer:
    """Of a command."""

    status: int
    out: str
    error: str

    def document(self) -> Any:
        assert self.out.startswith(("{", "[")), f"status {self.status}: {self.out}{self.error}"
        return json.loads(self.out)


def machine(folder: Path, name: str, kernel: str, accelerator: str, line: str) -> Machine:
    """Four CPUs on two nodes, booted with this kernel line."""
    hardware = Hardware(
        kernel=kernel,
        layers=("base", "python", "tailrace", "load"),
        cpus=4,
        memory=1536,
        numa=(("0-1",), ("2-3",)),
        command_line=line,
    )
    return Machine(folder, name, hardware, accelerator=accelerator)


def restore(machine: Machine, kept: str) -> None:
    """What a machine kept at its last shutdown, or nothing, and what every boot sets up."""
    if kept:
        machine.run(f"cd / && echo {kept} | base64 -d | tar -xf -")
    machine.run(SETUP)


def shut_down(machine: Machine) -> str:
    """What it keeps."""
    return machine.run(f"cd / && tar -cf - $(ls -d {KEPT} 2>/dev/null) | base64 -w 0").strip()


def tailrace(machine: Machine, *commands: tuple[str, ...], seconds: float = 300) -> list[Answer]:
    """What several commands say, run one after the other."""
    text = json.dumps(commands).replace("'", "'\\''")
    within = "PYTHONPATH=/opt/tailrace TAILRACE_BINARIES=/usr/bin"  # also of the service
    command = f"{within} /usr/bin/python3 /usr/bin/tailrace-commands '{text}'"
    lines = machine.run(command, seconds).splitlines()
    return [Answer(**json.loads(line)) for line in lines]


def line(machine: Machine) -> str:
    """The kernel line that the boot loader would boot with."""
    return machine.run("cat /boot/line").strip()


def places(plan: dict[str, Any], when: str) -> dict[str, str]:
    """Every place of a plan's knobs, and what stands there."""
    return {place["place"]: place["now"] for knob in plan["knobs"] if knob["when"] == when for place in knob["places"]}
