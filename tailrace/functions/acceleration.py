"""Whether KVM runs machines here, found by trying: a machine that does nothing but say so, within a time limit.

That /dev/kvm opens says little: on some hosts, themselves virtual machines, no ordinary kernel boots with it.
The answer is kept until the host, its QEMU or the image changes. Where QEMU's user cannot open it, nothing is tried.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tailrace.functions.disks import qemu_user
from tailrace.functions.images import Image, images_folder, machine_image
from tailrace.kernel.boot import boot_id
from tailrace.process.plain import last_line
from tailrace.process.programs import system_program

BOOT_SECONDS = 10.0
"""In which a machine has booted with KVM, on a busy host too: it takes one."""
KVM = Path("/dev/kvm")
_ACL = "system.posix_acl_access"
_SAYS = b"tailrace: the function has ended"


@dataclass(frozen=True)
class Answer:
    """What runs machines, and why not KVM."""

    kind: Literal["kvm", "tcg"]
    why_not: str = ""

    @property
    def notes(self) -> Sequence[str]:
        """What is to be said of machines that run so."""
        if self.kind == "kvm":
            return ()
        return (f"machines are emulated (tcg), so their times say nothing of a host with KVM: {self.why_not}",)


def acceleration() -> Answer:
    """Raises Mistake where there is no image to try with."""
    image = machine_image()
    closed = closed_to_qemu()
    if closed is not None:
        return Answer("tcg", closed)
    kept = images_folder() / "kvm.json"
    key = f"{boot_id()} {image.made_of} {Path(system_program('qemu-system-x86_64')).stat().st_mtime_ns}"
    with suppress(OSError, ValueError, LookupError, TypeError):
        found = json.loads(kept.read_text())
        if found["key"] == key:
            return Answer("kvm" if not found["why_not"] else "tcg", found["why_not"])
    why_not = _why_not(image)
    answer = Answer("tcg" if why_not else "kvm", why_not)
    with suppress(OSError):  # then it is found out again
        kept.write_text(json.dumps({"key": key, **asdict(answer)}) + "\n")
    return answer


def closed_to_qemu(kvm: Path = KVM) -> str | None:
    """Why the user that QEMU runs as cannot open /dev/kvm, with the cure; None if it can, or there is none.

    Libvirt asks QEMU what it can do with more rights than that user has, finds that they differ, and asks again before
    each machine, for seconds (virQEMUCapsIsValid() in src/qemu/qemu_capabilities.c). Raises Mistake."""
    try:
        found = kvm.stat()
    except OSError:
        return None
    with suppress(OSError):  # a list of who may open it, as systemd-logind makes it; most have none
        os.getxattr(kvm, _ACL)
        return None
    user = pwd.getpwuid(qemu_user())
    may_by_group = found.st_mode >> 3
    if found.st_uid == user.pw_uid:
        may = found.st_mode >> 6
    else:
        may = may_by_group if found.st_gid in os.getgrouplist(user.pw_name, user.pw_gid) else found.st_mode
    if may & 0o6 == 0o6:
        return None
    cure = f"sudo chgrp kvm {kvm} && sudo chmod g+rw {kvm}"
    if may_by_group & 0o6 == 0o6 and _group(found.st_gid) == "kvm":
        cure = f"sudo usermod -aG kvm {user.pw_name}"
    return (
        f"{user.pw_name}, whom QEMU runs as, may not open {kvm}, and each machine starts seconds later for it; `{cure}`"
    )


def _group(number: int) -> str:
    """A group's name; empty if it has none."""
    with suppress(KeyError):
        return grp.getgrgid(number).gr_name
    return ""


def _why_not(image: Image) -> str:
    """Why KVM does not run a machine here; empty if it does."""
    try:
        KVM.open("r+b", buffering=0).close()
    except OSError as error:
        return f"/dev/kvm: {error.strerror}"
    words = [system_program("qemu-system-x86_64"), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    words += ["-accel", "kvm", "-cpu", "host", "-m", "192M", "-serial", "stdio", "-M", "q35"]
    words += ["-kernel", str(image.vmlinuz), "-initrd", str(image.initramfs)]
    words += ["-append", "console=ttyS0 panic=-1 quiet tailrace.run=true"]
    began = time.monotonic()
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOOT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"a machine does not boot with it within {BOOT_SECONDS:g} s"
    if _SAYS in done.stdout:
        return ""
    why = last_line(done.stderr, f"QEMU ended after {time.monotonic() - began:.1f} s")
    return f"a machine does not boot with it ({why})"
