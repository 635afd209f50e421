#!/usr/bin/python3 -IS
"""Stands in for QEMU, so that what `tailrace up` and libvirt do for a machine can be timed without one.

It is run by libvirt under QEMU's command line. What QEMU can do is asked of QEMU itself. As a machine it answers the
monitor (QMP), is the vhost-user front end of its ports, and says on its console that it forwards; it moves no frame.

Sources: QEMU, docs/interop/qmp-spec.txt, docs/interop/vhost-user.rst.
"""

from __future__ import annotations

import array
import json
import os
import re
import socket
import struct
import sys
import threading

QEMU = "/usr/bin/qemu-system-x86_64"
GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 8, 9, 10, 12, 13
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, SET_VRING_ENABLE = 15, 16, 18
VERSION_1 = 1 << 32
PROTOCOL = 1 << 30
SIZE, RING, DESCRIPTORS = 4 << 20, 1 << 16, 256
CPU = {"props": {"core-id": 0, "thread-id": 0, "socket-id": 0}, "qom-path": "/machine/unattached/device[0]"}
GUEST, USER = 0x1000_0000, 0x7F00_0000_0000


class Port:
    """A port, with rings that nobody uses."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)

    def attach(self) -> None:
        self.switch, _ = self.listener.accept()
        memory = os.memfd_create("guest")
        os.ftruncate(memory, SIZE)
        self.kept = [memory, *(os.eventfd(0) for _ in range(4))]
        offered = self.ask(GET_FEATURES)
        self.ask(GET_PROTOCOL_FEATURES)
        self.say(SET_PROTOCOL_FEATURES, struct.pack("<Q", 0))
        self.say(SET_OWNER)
        self.say(SET_FEATURES, struct.pack("<Q", offered & (VERSION_1 | PROTOCOL)))
        self.say(SET_MEM_TABLE, struct.pack("<IIQQQQ", 1, 0, GUEST, SIZE, USER, 0), [memory])
        for ring in (0, 1):
            at = USER + ring * RING
            self.say(SET_VRING_NUM, struct.pack("<II", ring, DESCRIPTORS))
            self.say(SET_VRING_BASE, struct.pack("<II", ring, 0))
            self.say(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 0, at, at + 0x8000, at + 0x4000, 0))
            self.say(SET_VRING_CALL, struct.pack("<Q", ring), [self.kept[1 + ring]])
            self.say(SET_VRING_KICK, struct.pack("<Q", ring), [self.kept[3 + ring]])
        for ring in (0, 1):
            self.say(SET_VRING_ENABLE, struct.pack("<II", ring, 1))

    def say(self, request: int, payload: bytes = b"", files: list[int] | None = None) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        self.switch.sendmsg([struct.pack("<III", request, 1, len(payload)) + payload], rights)

    def ask(self, request: int) -> int:
        self.say(request)
        answer: int = struct.unpack("<IIIQ", self.switch.recv(20, socket.MSG_WAITALL))[3]
        return answer


class Monitor:
    """QMP, as far as libvirt asks about a machine that starts, runs and ends."""

    def __init__(self, listener: int, consoles: dict[str, str], log: int | None) -> None:
        self.consoles = consoles
        self.log = log
        self.thread = 0
        self.running = False
        threading.Thread(target=self._be_a_cpu, daemon=True).start()
        self.stream = socket.socket(fileno=listener).accept()[0].makefile("rwb")

    def _be_a_cpu(self) -> None:
        """libvirt gives a CPU's thread its place."""
        self.thread = threading.get_native_id()
        threading.Event().wait()

    def send(self, message: dict[str, object]) -> None:
        self.stream.write(json.dumps(message).encode() + b"\r\n")
        self.stream.flush()

    def serve(self) -> None:
        """Until libvirt tells it to end, or has gone itself."""
        version = {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}
        self.send({"QMP": {"version": version, "capabilities": []}})
        for line in self.stream:
            asked = json.loads(line)
            name = asked["execute"]
            self.send({"return": self.answer(name, asked.get("arguments", {})), "id": asked.get("id")})
            if name == "quit":
                return
            if name == "cont" and not self.running:
                self.running = True
                self.send({"event": "RESUME", "timestamp": {"seconds": 0, "microseconds": 0}})
                if self.log is not None:
                    os.write(self.log, b"forwarding\r\n")

    def answer(self, name: str, arguments: dict[str, str]) -> object:
        if name == "query-status":
            state = "running" if self.running else "prelaunch"
            return {"status": state, "running": self.running, "singlestep": False}
        if name == "query-cpus-fast":
            return [{**CPU, "thread-id": self.thread, "cpu-index": 0, "target": "x86_64"}]
        if name == "query-hotpluggable-cpus":
            return [{**CPU, "vcpus-count": 1, "type": "max-x86_64-cpu"}]
        if name == "query-chardev":
            return [{"label": label, "filename": path, "frontend-open": True} for label, path in self.consoles.items()]
        if name == "qom-get":
            return [] if "feature" in arguments["property"] else False
        return [] if name.startswith(("query-", "qom-list")) and name != "query-migrate-parameters" else {}


def machine(words: list[str]) -> None:
    """Is the machine of a command line of QEMU's."""
    line = "\n".join(words)
    ports = [Port(path) for path in re.findall(r"path=([^,\n]*),server=on", line)]
    for port in ports:
        port.attach()
    consoles = {}
    for label in re.findall(r"^pty,id=([^,\n]*)", line, re.MULTILINE):
        _, terminal = os.openpty()
        consoles[label] = f"pty:{os.ttyname(terminal)}"
    listener = re.search(r"id=charmonitor,fd=(\d+)", line)
    log = re.search(r"fd=(\d+),opaque=\S*log", line)
    assert listener is not None
    Monitor(int(listener[1]), consoles, int(log[1]) if log else None).serve()


if __name__ == "__main__":
    if not any("guest=" in word for word in sys.argv):
        # libvirt asks anew for each machine where QEMU has KVM and this user cannot open it, or the other way round.
        kvm = "kvm:tcg" if os.access("/dev/kvm", os.R_OK | os.W_OK) else "tcg"
        os.execv(QEMU, [QEMU, *(word.replace("accel=kvm:tcg", f"accel={kvm}") for word in sys.argv[1:])])
    machine(sys.argv[1:])
