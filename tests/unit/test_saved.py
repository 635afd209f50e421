"""Machines in files: libvirt's format, read and written; what is taken from a file, and what is not; the agent."""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_machines import SETTING

from tailrace.errors import Failure, Mistake
from tailrace.functions import agent, saved
from tailrace.functions.domain import Disks, domain_xml
from tailrace.process import hypervisor

RUN = replace(SETTING, command_line="console=ttyS0 tailrace.run=tailrace-vnf,skeleton tailrace.pages=36")
STREAM = b"QEVM" + bytes(100_000)


def live(xml: str) -> str:
    """As libvirt has a domain that runs: with a version of its kind, and its buses."""
    domain = ElementTree.fromstring(xml)
    domain.find("os/type").set("machine", "pc-q35-7.2")  # type: ignore[union-attr]
    devices = domain.find("devices")
    assert devices is not None
    ElementTree.SubElement(devices, "controller", type="pci", index="1", model="pcie-root-port")
    return ElementTree.tostring(domain, encoding="unicode")


def write(path: Path, domain: str, cookie: bytes = b"<cookie/>", *, magic: bytes = b"LibvirtQemudSave") -> Path:
    text = domain.encode() + b"\0"
    length = len(text) + len(cookie) + 1
    header = struct.pack("<16sIIIII56x", magic, 2, length, 1, 0, len(text))
    path.write_bytes(header + text + cookie + b"\0" + STREAM)
    return path


def test_a_machine_is_written_as_another_with_the_same_stream(tmp_path: Path) -> None:
    found = saved.read(write(tmp_path / "a", live(domain_xml(RUN))))
    saved.write_as(found, "<domain/>", tmp_path / "b")
    again = saved.read(tmp_path / "b")
    assert again.domain == "<domain/>" and again.cookie == found.cookie == b"<cookie/>"
    assert (tmp_path / "b").read_bytes()[again.begins :] == STREAM
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600


def with_disk(path: Path, image: Path, written: bytes) -> Path:
    """The file of a machine that has written this to its disk."""
    start, about = path.stat().st_size, image.stat()
    trailer = struct.pack(
        "<16s4Q", b"TailraceDisk\0\0\0\1", start, start + len(written), about.st_size, about.st_mtime_ns
    )
    path.write_bytes(path.read_bytes() + written + trailer)
    return path


def test_what_a_machine_has_written_to_its_disk_follows_and_needs_the_same_image(tmp_path: Path) -> None:
    image, written = tmp_path / "image.raw", os.urandom(70_000)
    image.write_bytes(b"an image")
    found = saved.read(with_disk(write(tmp_path / "a", "<domain/>"), image, written))
    saved.take_disk(found, image, tmp_path / "overlay")
    assert (tmp_path / "overlay").read_bytes() == written
    assert (tmp_path / "overlay").stat().st_mode & 0o777 == 0o600
    saved.write_as(found, "<domain/>", tmp_path / "b")
    again = saved.read(tmp_path / "b")
    assert (tmp_path / "b").read_bytes()[again.begins :] == STREAM
    image.write_bytes(b"another image")
    with pytest.raises(Mistake, match=r"image.raw: is not as it was"):
        saved.take_disk(found, image, tmp_path / "other")
    for lacks in (again, saved.read(cut(tmp_path / "a"))):
        with pytest.raises(Mistake, match="holds no disk; it is cut short"):
            saved.take_disk(lacks, image, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_is_written_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `save`, with libvirt's part of it in place of libvirt."""
    image, overlay, file = tmp_path / "image.raw", tmp_path / "overlay", tmp_path / "a"
    image.write_bytes(b"an image")
    overlay.write_bytes(os.urandom(70_000))
    devices = f"<disk><source file='{overlay}'/><backingStore><source file='{image}'/></backingStore></disk><disk/>"

    def libvirts(name: str, path: Path, beside: Callable[[], None]) -> None:
        del name
        write(path, "<domain/>")
        beside()

    monkeypatch.setattr(hypervisor, "machine_xml", lambda _: f"<domain><devices>{devices}</devices></domain>")
    monkeypatch.setattr(hypervisor, "save", libvirts)
    assert saved.save("fw", file) == file.stat().st_size
    saved.take_disk(saved.read(file), image, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == overlay.read_bytes()
    with pytest.raises(Mistake, match=r"image\.raw: the machine runs from this disk"):
        saved.save("fw", image)
    assert image.read_bytes() == b"an image"
    monkeypatch.setattr(hypervisor, "machine_xml", lambda _: "<domain><devices><hostdev/></devices></domain>")
    with pytest.raises(Mistake, match="fw has a device of its own"):
        saved.save("fw", file)


def test_a_state_replaces_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link stays, and what it leads to is replaced; a device, a pipe or a folder stays what it is."""
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    file.write_bytes(b"before")
    link.symlink_to(file)
    monkeypatch.setattr(hypervisor, "machine_xml", lambda _: "<domain><devices/></domain>")
    monkeypatch.setattr(hypervisor, "save", lambda _, path, __: path.write_bytes(b"state"))
    for place, kind in ((pipe, "device"), (tmp_path, "folder")):
        with pytest.raises(Mistake, match=f"there is a {kind}; expected a file"):
            saved.save("fw", place)
    assert saved.save("fw", link) == 5
    assert link.is_symlink() and file.read_bytes() == b"state" and pipe.is_fifo()
    with pytest.raises(Mistake, match="pipe: is no file"):  # and nobody waits for who writes to it
        saved.read(pipe)


def cut(path: Path) -> Path:
    os.truncate(path, path.stat().st_size - 1)
    return path


def test_the_disk_of_a_machine_is_where_it_was(tmp_path: Path) -> None:
    own = Disks(Path("/i/own.raw"), "raw", Path("/d/fw.qcow2"), Path("/d/fw.seed"))
    here = replace(RUN, kernel=None, initramfs=None, disks=own)
    was = live(domain_xml(here)).replace("</disk>", "<address type='pci' bus='0x03'/></disk>", 1)
    domain = ElementTree.fromstring(saved.domain_of(saved.read(write(tmp_path / "a", was)), here, copy=False))
    assert [each.get("bus") for each in domain.iterfind("devices/disk/address")] == ["0x03"]
    with pytest.raises(Mistake, match=r"another number of disks \(2\) than this one \(0\)"):
        saved.domain_of(saved.read(write(tmp_path / "b", live(domain_xml(replace(RUN, disks=own))))), RUN, copy=False)


def test_what_is_no_saved_machine_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole", "<domain/>")
    for name, content, said in (
        ("text", b"hello", "is no machine that was saved"),
        ("partial", b"LibvirtQemudPart" + whole.read_bytes()[16:], "not saved to its end"),
        ("short", whole.read_bytes()[:100], "cut short"),
        ("no-stream", whole.read_bytes()[: -len(STREAM)], "cut short"),
        ("damaged", whole.read_bytes().replace(b"<domain/>", b"<domain>>"), "is damaged"),
        ("newer", whole.read_bytes()[:16] + b"\3" + whole.read_bytes()[17:], "of version 3"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Mistake, match=f"{name}: .*{said}"):
            saved.read(tmp_path / name)
    with pytest.raises(Mistake, match="No such file"):
        saved.read(tmp_path / "none")


def test_a_machine_becomes_what_it_is_to_be_here(tmp_path: Path) -> None:
    found = saved.read(write(tmp_path / "a", live(domain_xml(RUN))))
    nics = tuple(replace(each, mac=f"52:54:01:00:00:0{n}", at=f"/t/{n}") for n, each in enumerate(RUN.nics))
    here = replace(RUN, name="tailrace-fw.2", nics=nics, pins=((7,), (8,)), console=Path("/logs/fw.2.log"))
    for copy in (False, True):
        domain = ElementTree.fromstring(saved.domain_of(found, here, copy=copy))
        assert domain.findtext("name") == "tailrace-fw.2"
        assert domain.find("os/type").get("machine") == "pc-q35-7.2"  # type: ignore[union-attr]
        assert [each.get("path") for each in domain.iterfind("devices/interface/source")] == ["/t/0", "/t/1"]
        slots = [each.get("slot") for each in domain.iterfind("devices/interface/address")]
        assert slots == ["0x08", "0x09"]
        assert {pin.get("cpuset") for pin in domain.iter("vcpupin")} == {"7", "8"}
        assert domain.find("devices/controller[@model='pcie-root-port']") is not None
        addresses = [each.get("address") for each in domain.iterfind("devices/interface/mac")]
        assert addresses == [each.mac for each in (nics if copy else RUN.nics)]


def test_nothing_else_is_taken_from_a_file(tmp_path: Path) -> None:
    domain = live(domain_xml(RUN)).replace(
        "</devices>", "<filesystem><source dir='/etc'/><target dir='etc'/></filesystem></devices>"
    )
    found = saved.read(write(tmp_path / "a", domain))
    assert "/etc" not in saved.domain_of(found, RUN, copy=False)
    strange = saved.read(write(tmp_path / "b", domain.replace("pc-q35-7.2", "xenfv")))
    with pytest.raises(Mistake, match="no machine of Tailrace's"):
        saved.domain_of(strange, RUN, copy=False)


def test_another_machine_is_named_by_what_differs(tmp_path: Path) -> None:
    found = saved.read(write(tmp_path / "a", live(domain_xml(RUN))))
    for other, said in (
        (replace(RUN, memory_bytes=1 << 30), "another memory"),
        (replace(RUN, pins=((1,),)), "number of CPUs"),
        (replace(RUN, nics=RUN.nics[:1]), "other ports"),
        (replace(RUN, nics=tuple(replace(each, interface="e1000e") for each in RUN.nics)), "other ports .*e1000e"),
        (replace(RUN, acceleration="tcg"), "another acceleration"),
        (replace(RUN, command_line="tailrace.run=tailrace-vnf,impair"), "another function .*skeleton.*impair"),
    ):
        with pytest.raises(Mistake, match=said):
            saved.domain_of(found, other, copy=False)


def answering(path: Path, status: bytes, printed: bytes, before: bytes = b"", after: bytes = b"\n") -> list[str]:
    """A machine that answers so, once; what was asked."""
    asked: list[str] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            first, _, command = base64.b64decode(connection.makefile("rb").readline()).partition(b"\n")
            asked.append(command.decode())
            said = base64.b64encode(first.removeprefix(b"echo ") + b"\n" + printed)
            connection.sendall(before + (status + b" " + said + after if status else b""))

    threading.Thread(target=serve, daemon=True).start()
    return asked


def test_the_agent_says_what_a_command_printed_or_that_it_failed(tmp_path: Path) -> None:
    asked = answering(tmp_path / "a", b"0", b"6.1\n")
    assert agent.ask(tmp_path / "a", "uname -r") == "6.1\n" and asked == ["uname -r"]
    answering(tmp_path / "b", b"1", b"no such file\n")
    with pytest.raises(Failure, match="`cat x` has failed: no such file"):
        agent.ask(tmp_path / "b", "cat x")
    stale = b"0 " + base64.b64encode(b"0123456789abcdef\nof another request\n")
    answering(tmp_path / "c", b"0", b"ok\n", before=b"dHJ1ZQ==\r\n" + stale + b"\r\n", after=b"\r\n")
    assert agent.ask(tmp_path / "c", "true") == "ok\n"
    answering(tmp_path / "d", b"", b"")
    with pytest.raises(Failure, match="the machine has ended"):
        agent.ask(tmp_path / "d", "true")
    with pytest.raises(Failure, match="cannot be reached"):
        agent.ask(tmp_path / "none", "true")


def test_a_machine_that_never_ends_its_answer_is_not_waited_for(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "a"))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection, suppress(OSError):
            while True:
                connection.sendall(b"0 ")
                time.sleep(0.05)

    threading.Thread(target=serve, daemon=True).start()
    with pytest.raises(Failure, match=r"within 0\.5 s"):
        agent.ask(tmp_path / "a", "true", 0.5)


def test_a_copys_function_is_told_its_addresses_or_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo = tmp_path / "commands"
    os.mkfifo(fifo)
    monkeypatch.setattr(agent, "COMMANDS", str(fifo))
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        *_, told = agent.identity("copy", "0" * 32, ["52:54:00:00:00:00", "52:54:00:00:00:01"])
        subprocess.run(["sh", "-c", told], check=True, timeout=60)
        assert os.read(reader, 4096) == b"address 0 52:54:00:00:00:00\naddress 1 52:54:00:00:00:01\n"
    finally:
        os.close(reader)
    monkeypatch.setattr(agent, "_TOLD_SECONDS", 0.1)
    *_, told = agent.identity("copy", "0" * 32, ["52:54:00:00:00:00"])
    done = subprocess.run(["sh", "-c", told], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "its function takes no addresses; build its image again\n")
