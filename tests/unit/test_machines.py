"""Functions in machines and containers, as data: the domain, the images, the names."""

from __future__ import annotations

import io
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from machines import machine, make

from tailrace.bench import start
from tailrace.cli import image as image_commands
from tailrace.errors import Failure, Mistake
from tailrace.functions import acceleration, images
from tailrace.functions.acceleration import Answer, closed_to_qemu
from tailrace.functions.domain import MachineSetting, Nic, differing, domain_xml, inner_address, mac_address
from tailrace.functions.machine import machine_setting, partition
from tailrace.functions.names import outer_name
from tailrace.functions.program import libraries
from tailrace.functions.runtime import Instance
from tailrace.functions.traits import Traits, read_traits
from tailrace.kernel.tree import Tree
from tailrace.node import running
from tailrace.plan.levels import Machine, Point, explained
from tailrace.plan.make import make_plan
from tailrace.plan.planned import PlannedFunction
from tailrace.process import reaper, units
from tailrace.resources import pci
from tailrace.resources.place import Place
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_located, parse_spec
from tailrace.spec.source import SpecError
from tailrace.switch.config import configuration, uri_of

SETTING = MachineSetting(
    name="tailrace-fw",
    title="Tailrace: fw",
    memory_bytes=256 << 20,
    pins=((3,), (4,)),
    others=(0, 1),
    huge=True,
    nics=(Nic("52:54:00:00:00:00", "/s/0"), Nic("52:54:00:00:00:01", "/s/1")),
    kernel=Path("/i/vmlinuz"),
    initramfs=Path("/i/initramfs"),
    command_line="console=ttyS0",
    console=Path("/logs/fw.log"),
    agent=Path("/logs/fw.agent"),
    user="+64055:+61234",
    acceleration="kvm",
)


def domain(setting: MachineSetting) -> ElementTree.Element:
    return ElementTree.fromstring(domain_xml(setting))


def test_a_machine_is_in_our_slice_where_libvirt_can_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert domain(SETTING).find("resource") is None
    assert domain(replace(SETTING, partition="/tailrace")).findtext("resource/partition") == "/tailrace"
    monkeypatch.setattr(units, "slice_name", lambda: "tailrace.slice")
    assert partition(Tree(tmp_path)) is None
    unit = tmp_path / "lib/systemd/system/systemd-machined.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    assert partition(Tree(tmp_path)) == "/tailrace"
    monkeypatch.setattr(units, "slice_name", lambda: None)
    assert partition(Tree(tmp_path)) is None


def test_the_machine_is_pinned_and_its_memory_shared_and_in_huge_pages() -> None:
    found = domain(SETTING)
    assert found.get("type") == "kvm" and found.findtext("memory") == str(256 << 10)
    pins = {pin.get("vcpu"): pin.get("cpuset") for pin in found.iter("vcpupin")}
    assert pins == {"0": "3", "1": "4"} and found.findtext("vcpu") == "2"
    assert found.find("vcpu").get("current") is None  # type: ignore[union-attr]
    assert domain(replace(SETTING, plugged=1)).find("vcpu").get("current") == "1"  # type: ignore[union-attr]
    assert found.find("cputune/emulatorpin").get("cpuset") == "0,1"  # type: ignore[union-attr]
    assert found.find("memoryBacking/hugepages/page") is not None
    (page,) = domain(replace(SETTING, page_kib=1 << 20)).iterfind("memoryBacking/hugepages/page")
    assert page.attrib == {"size": "1024", "unit": "M"}
    assert found.find("memoryBacking/access").get("mode") == "shared"  # type: ignore[union-attr]
    assert [each.get("path") for each in found.iterfind("devices/interface/source")] == ["/s/0", "/s/1"]
    assert domain(replace(SETTING, huge=False)).find("memoryBacking/hugepages") is None


def test_a_machine_is_on_one_node_and_is_shown_one() -> None:
    (cell,) = domain(SETTING).iterfind("cpu/numa/cell")
    assert (cell.get("cpus"), cell.get("memory")) == ("0-1", str(256 << 10))
    assert domain(SETTING).find("numatune") is None
    found = domain(replace(SETTING, node=1))
    assert {each.get("nodeset") for each in found.iterfind("numatune/*")} == {"1"}


def test_the_cpu_of_a_machine() -> None:
    def cpu(**changes: Any) -> ElementTree.Element:
        found = domain(replace(SETTING, **changes)).find("cpu")
        assert found is not None
        return found

    assert cpu().get("mode") == "host-passthrough" and cpu().find("feature") is None
    assert cpu(invariant_tsc=True).find("feature").get("name") == "invtsc"  # type: ignore[union-attr]
    assert cpu(passes_cpu=False).get("mode") == "host-model"
    (scheduled,) = domain(replace(SETTING, priority=1)).iterfind("cputune/vcpusched")
    assert scheduled.attrib == {"vcpus": "0-1", "scheduler": "fifo", "priority": "1"}


def test_what_a_host_allows_its_machines_is_read(tmp_path: Path) -> None:
    found = read_traits(machine(tmp_path, nodes=2, cores=2))
    assert found.several_nodes and found.node(3) == 1 and found.invariant_tsc
    assert "sched_rt_runtime_us is not -1" in str(found.real_time)
    make(tmp_path, {"/proc/sys/kernel/sched_rt_runtime_us": "-1", "/proc/cpuinfo": "flags\t: constant_tsc"})
    found = read_traits(Tree(tmp_path))
    assert found.real_time is None and not found.invariant_tsc
    make(tmp_path, {"/sys/fs/cgroup/cpu/cpu.rt_runtime_us": "0"})
    assert "CONFIG_RT_GROUP_SCHED" in str(read_traits(Tree(tmp_path)).real_time)


FRAGMENT = """\
<iothreads>1</iothreads>
<features><pmu state='off'/></features>
<cpu><feature policy='disable' name='avx512f'/></cpu>
<clock><timer name='hpet' present='no'/></clock>
<devices><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>
<qemu:commandline><qemu:arg value='-name'/><qemu:arg value='x'/></qemu:commandline>
"""


def test_a_fragment_is_merged_into_the_domain() -> None:
    setting = replace(SETTING, fragment=FRAGMENT, keeps_cpus=True, invariant_tsc=True)
    found = domain(setting)
    assert [each.tag for each in found.iterfind("features/*")] == ["acpi", "apic", "pmu"]
    assert {each.get("name") for each in found.iterfind("cpu/feature")} == {"invtsc", "avx512f"}
    assert found.find("cpu").get("mode") == "host-passthrough"  # type: ignore[union-attr]
    assert len(found.findall("clock")) == len(found.findall("devices")) == len(found.findall("features")) == 1
    assert found.find("clock").get("offset") == "utc"  # type: ignore[union-attr]
    assert len(found.findall("devices/interface")) == 2 and found.find("devices/rng") is not None
    words = [each.get("value") for each in found.iter() if each.tag.endswith("}arg")]
    assert words == ["-overcommit", "cpu-pm=on", "-name", "x"]
    # Where I/O threads run: with QEMU's other threads.
    assert found.find("vcpu").get("cpuset") == "0,1"  # type: ignore[union-attr]


@pytest.mark.requires_program("virt-xml-validate", "xmllint")
@pytest.mark.parametrize("kvm", [True, False])
@pytest.mark.parametrize("changes", [{}, {"keeps_cpus": True, "invariant_tsc": True, "priority": 1, "node": 0}])
def test_the_domain_is_of_libvirts_schema(tmp_path: Path, changes: dict[str, Any], kvm: bool) -> None:
    setting = replace(SETTING, **changes, fragment=FRAGMENT, acceleration="kvm" if kvm else "tcg")
    file = tmp_path / "domain.xml"
    file.write_text(domain_xml(setting))
    done = subprocess.run(
        ["virt-xml-validate", str(file), "domain"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def spec_with(fragment: str) -> str:
    indented = "".join(f"      {line}\n" for line in fragment.splitlines())
    return (
        "functions:\n  fw:\n    kind: skeleton\n    runs: machine\n    domain: |\n"
        + indented
        + "chains: {voice: [tester.a, fw, tester.b]}\n"
    )


def test_a_fragment_of_the_spec_reaches_the_plan_and_is_fixed() -> None:
    cpus = [Cpu(n, core=n) for n in range(4)]
    plan, other = (make_plan(parse_spec(spec_with(each), "s"), cpus=cpus, real_time=None) for each in ("<a/>", "<b/>"))
    assert plan.functions[0].domain == "<a/>\n" and plan.functions[0].fixed != other.functions[0].fixed


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("<cpu>\n<feature name='x'>\n</cpu>", "s:5:13: functions.fw.domain: line 3: mismatched tag"),
        ("<cpu", "line 1: not well-formed (invalid token)"),
        ("<cpu/> text", "text outside an element"),
        ("<name>x</name>", "name is Tailrace's own, which is made for each instance"),
        ("<memoryBacking/>", "memoryBacking is Tailrace's own, which the switch shares"),
        ("<cpu><numa/></cpu>", "cpu/numa is Tailrace's own"),
        ("<devices><interface type='vhostuser'/></devices>", "devices/interface of type vhostuser is Tailrace's own"),
        ("<!DOCTYPE d [<!ENTITY e 'e'>]>", "line 1: not well-formed (invalid token)"),
    ],
)
def test_a_fragment_that_cannot_be_merged_is_named(fragment: str, said: str) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        parse_spec(spec_with(fragment), "s")


def test_only_a_machine_has_a_domain() -> None:
    with pytest.raises(Mistake, match="domain: a container has none; expected none, or `runs: machine`"):
        parse_spec(spec_with("<cpu/>").replace("runs: machine", "runs: container"), "s")


def test_an_emulated_machine_has_no_msix() -> None:
    assert "override" not in domain_xml(SETTING)
    found = domain(replace(SETTING, acceleration="tcg"))
    assert found.get("type") == "qemu" and found.find("cpu").get("mode") == "maximum"  # type: ignore[union-attr]
    assert [each.get("value") for each in found.iter() if each.tag.endswith("property")] == ["0", "0"]


@pytest.mark.parametrize("kind", ["virtio", "e1000e", "vmxnet3"])
def test_an_emulated_device_has_the_tap_that_is_there(kind: str) -> None:
    nics = (Nic("52:54:00:00:00:00", "tap0", kind), SETTING.nics[1])
    xml = domain_xml(replace(SETTING, nics=nics, acceleration="tcg"))
    first, second = ElementTree.fromstring(xml).iterfind("devices/interface")
    assert first.get("type") == "ethernet" and second.get("type") == "vhostuser"
    assert first.find("target").attrib == {"dev": "tap0", "managed": "no"}  # type: ignore[union-attr]
    assert first.find("model").get("type") == kind  # type: ignore[union-attr]
    # Only what the switch serves has no MSI-X under emulation.
    assert 'alias="ua-port1"' in xml and 'alias="ua-port0"' not in xml
    slots = [each.get("slot") for each in (first.find("address"), second.find("address")) if each is not None]
    assert slots == ["0x08", "0x09"] and inner_address(1) == "0000:00:09.0"


def test_a_device_of_the_hosts_is_given_to_the_machine() -> None:
    xml = domain_xml(replace(SETTING, nics=(SETTING.nics[0], Nic("", "0000:3b:02.1", "pci:0000:3b:02.1"))))
    device = ElementTree.fromstring(xml).find("devices/hostdev")
    assert device is not None and device.get("managed") == "yes"
    assert device.find("driver").get("name") == "vfio"  # type: ignore[union-attr]
    source = device.find("source/address")
    assert source is not None
    assert source.attrib == {"domain": "0x0000", "bus": "0x3b", "slot": "0x02", "function": "0x1"}
    assert len(ElementTree.fromstring(xml).findall("devices/interface")) == 1


def test_a_device_behind_no_iommu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pci, "_DEVICES", tmp_path)
    text = (
        "functions: {fw: {kind: skeleton, runs: machine, interface: [virtio, {passthrough: '0000:3b:00.0'}]}}\n"
        "chains: {v: [tester.a, fw.0]}\n"
    )
    spec, document = parse_located(text, "s.yaml")
    cpus = [Cpu(number, core=number) for number in range(4)]
    with pytest.raises(SpecError, match=r"s.yaml:1:\d+: functions.fw.interface: there is no PCI device 0000:3b:00.0"):
        make_plan(spec, cpus=cpus, real_time=None, document=document)
    (tmp_path / "0000:3b:00.0").mkdir()
    with pytest.raises(SpecError, match=r"is behind no IOMMU.*switch VT-d or AMD-Vi on.*intel_iommu=on"):
        make_plan(spec, cpus=cpus, real_time=None, document=document)
    (tmp_path / "0000:3b:00.0/iommu_group").mkdir()
    plan = make_plan(spec, cpus=cpus, real_time=None, document=document)
    (function,) = plan.started
    assert function.ports == ("fw.0",) and function.interfaces == ("virtio", "pci:0000:3b:00.0")


def test_each_instance_of_an_emulated_port_has_an_interface_of_its_own(tmp_path: Path) -> None:
    text = "functions: {fw: {kind: skeleton, runs: machine, interface: [vhost-user, e1000e]}}\n" + (
        "chains: {v: [tester.a, fw, tester.b]}\n"
    )
    plan = make_plan(parse_spec(text, "s"), cpus=[Cpu(n, core=n) for n in range(4)], real_time=None)
    ports = {each.name: each for each in plan.ports}
    assert [port.name for port in plan.guests(plan.function("fw"))] == ["fw.0"]
    assert ports["fw.0"].memory_bytes and ports["fw.1"].memory_bytes is None
    assert plan.capabilities == ("net_admin", "net_raw")
    uris = {uri_of(ports["fw.1"], tmp_path, {"fw": instance}) for instance in (1, 2)}
    assert len(uris) == 2 and all(re.fullmatch("if:tap[0-9a-f]{8}", uri) for uri in uris)
    assert uri_of(ports["fw.0"], tmp_path, {"fw": 2}) == f"vhost-server:{tmp_path}/fw@2.0/sock"
    config = configuration(plan, tmp_path, {"fw": 2})["ports"]
    assert config["fw@2.0"]["kind"] == "guest"
    assert config["fw@2.1"] == {"kind": "device", "device": uri_of(ports["fw.1"], tmp_path, {"fw": 2})}


def test_a_machines_address_is_its_own_and_stays() -> None:
    assert mac_address("tailrace-fw", 1) == mac_address("tailrace-fw", 1)
    assert len({mac_address(name, port) for name in ("a", "b") for port in (0, 1)}) == 4
    assert int(mac_address("a", 0)[:2], 16) & 3 == 2  # locally administered, and no group


def test_names_outside_tell_nodes_and_instances_apart(tmp_path: Path) -> None:
    assert outer_name(Path("/run/tailrace"), "fw") == "tailrace-fw"
    assert outer_name(Path("/run/tailrace"), "fw@2") == "tailrace-fw.2"
    assert outer_name(tmp_path / "a", "fw") != outer_name(tmp_path / "b", "fw")


def test_an_initramfs_holds_files_links_and_folders() -> None:
    files: dict[str, bytes | str] = {"/usr/lib/a.so.1": b"library", "/lib/a.so": "/usr/lib/a.so.1", "/init": b"#!"}
    archive = images.cpio(files)
    assert archive == images.cpio(dict(reversed(files.items())))
    read = entries(archive)
    assert read["usr/lib/a.so.1"] == (0o100755, b"library") and read["init"] == (0o100755, b"#!")
    assert read["lib/a.so"] == (0o120777, b"/usr/lib/a.so.1")
    assert read["usr/lib"] == (0o040755, b"") and list(read)[-1] == "TRAILER!!!"


def entries(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """The entries of a newc archive, read as its specification says."""
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        size, length = fields[6], fields[11]
        name = archive[at + 110 : at + 110 + length - 1].decode()
        begin = -(-(at + 110 + length) // 4) * 4
        found[name] = (fields[1], archive[begin : begin + size])
        at = -(-(begin + size) // 4) * 4
    return found


def test_a_containers_layer_is_the_same_for_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "program").write_bytes(b"program")
    files: dict[str, Path | str] = {"/program": tmp_path / "program", "/link": "/program"}
    layers = []
    for name in ("a", "b"):
        images.write_layer(tmp_path / name, files)
        layers.append((tmp_path / name).read_bytes())
    assert layers[0] == layers[1]
    with tarfile.open(fileobj=io.BytesIO(layers[0])) as archive:
        assert {each.name: each.linkname for each in archive} == {"program": "", "link": "/program"}


def image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image that is whole, though no kernel would boot from it."""
    monkeypatch.setenv("TAILRACE_IMAGES", str(folder))
    made = folder / "own"
    made.mkdir()
    images.store(made, "linux-image-6.1", {"vmlinuz": b"kernel", "initramfs": b"files"})
    return made


def test_an_image_that_was_changed_is_refused_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = image(tmp_path, monkeypatch)
    assert images.machine_image("own").kernel == "linux-image-6.1"
    assert [each.folder.name for each in images.machine_images()] == ["own"]
    (made / "initramfs").write_bytes(b"file")
    with pytest.raises(Mistake, match=r"initramfs: is not what was built .*tailrace image build own"):
        images.machine_image("own")
    assert images.machine_images() == []
    assert "initramfs: is not what was built" in images.unusable_images()["own"]
    assert image_commands._list(as_json=False) == 0
    assert "own cannot be used: " in capsys.readouterr().out
    assert image_commands._list(as_json=True) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert shown["name"] == "own" and "is not what was built" in shown["problem"] and shown["kernel"] is None
    about = (made / "image.json").read_text()
    for number, version in ((1, "an earlier"), (99, "a later")):
        (made / "image.json").write_text(re.sub(r'"format": \d+', f'"format": {number}', about))
        with pytest.raises(Mistake, match=f"{version} version of Tailrace has built this image; .*image build own"):
            images.machine_image("own")
    about = (made / "image.json").read_text()
    for number, version in ((1, "an earlier"), (99, "a later")):
        (made / "image.json").write_text(re.sub(r'"format": \d+', f'"format": {number}', about))
        with pytest.raises(Mistake, match=f"{version} version of Tailrace has built this image; .*image build own"):
            images.machine_image("own")
    (made / "image.json").write_text("{")
    with pytest.raises(Mistake, match=r"image.json: damaged"):
        images.machine_image("own")
    with pytest.raises(Mistake, match=r"no image 'other'"):
        images.machine_image("other")


def test_an_image_of_somebody_else_is_not_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said before all is unpacked."""
    image(tmp_path, monkeypatch)
    monkeypatch.setattr(images, "portable_program", lambda _: Path(sys.executable))
    monkeypatch.setattr(images, "_PROGRAMS", ())
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path / "own", os.W_OK))
    monkeypatch.setattr(images, "_package", lambda name: pytest.fail(f"{name} is fetched"))
    with pytest.raises(Mistake, match="own: Permission denied; run as root, or set TAILRACE_IMAGES"):
        images.build_machine_image("own")


def test_what_is_no_program_is_not_put_into_an_image(tmp_path: Path) -> None:
    for name, why in (("/etc/passwd", "there is no program"), ("ldd", "is a script"), ("no-such", "apt-get install")):
        with pytest.raises(Mistake, match=why):
            images._program(name)
    code, static = tmp_path / "static.c", tmp_path / "static"
    code.write_text("void _start(void) { for (;;) { } }\n")
    subprocess.run(["cc", "-static", "-nostdlib", "-o", str(static), str(code)], check=True)
    assert libraries(images._program(str(static))) == []


def test_an_image_says_which_drivers_its_kernel_has() -> None:
    """As modules that it was built with, or in the kernel itself."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        text = b"kernel/drivers/net/virtio_net.ko\nkernel/drivers/net/ethernet/intel/e1000/e1000.ko\n"
        entry = tarfile.TarInfo("./lib/modules/6.1.0/modules.builtin")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    data.seek(0)
    with tarfile.open(fileobj=data) as archive:
        assert images._drivers(archive, ["vmxnet3", "uio", "uio_pci_generic"]) == [
            "uio_pci_generic",
            "virtio_net",
            "vmxnet3",
        ]


@pytest.mark.parametrize("name", ["../own", "a/b", ".own", "", "disks", "packages", "own.qcow2", "x" * 65])
def test_what_is_no_images_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Before anything is made by it, beside the images or elsewhere."""
    image(tmp_path, monkeypatch)
    for refuse in (images.machine_image, images.build_machine_image):
        with pytest.raises(Mistake, match=r"is no image's name; expected letters"):
            refuse(name)
    assert images.is_image_name("my_image-2.v1")


def test_the_reaper_ends_its_helpers_when_the_daemon_and_what_it_left_are_gone(tmp_path: Path) -> None:
    """The daemon leaves a process that outlives it."""
    mark = tmp_path / "mark"
    left = f"(sleep 0.3; echo left >{mark}) & exit 0"
    words = ["--", "sleep", "600", "--", "sh", "-c", left]
    done = subprocess.run([sys.executable, reaper.__file__, *words], timeout=60, check=False)
    assert done.returncode == 0 and mark.read_text() == "left\n"


def test_the_reaper_starts_a_daemon_again_beside_what_it_left(tmp_path: Path) -> None:
    """Each run of the daemon leaves a process that ends when it is told to; the helper is there all the while."""
    runs, helpers, go = (tmp_path / name for name in ("runs", "helpers", "go"))
    for each in (runs, helpers):
        each.mkdir()
    left = f"touch {runs}/$$; (until [ -e {go} ]; do sleep 0.02; done) & exit 0"
    words = ["--", "sh", "-c", f"touch {helpers}/$$; exec sleep 600", "--", "sh", "-c", left]
    running = subprocess.Popen([sys.executable, reaper.__file__, *words])
    deadline = time.monotonic() + 60
    try:
        while len(list(runs.iterdir())) < 2:
            assert running.poll() is None and time.monotonic() < deadline
            if any(not Path("/proc", each.name).exists() for each in runs.iterdir()):  # the first has been reaped
                running.send_signal(signal.SIGUSR1)
            time.sleep(0.02)
        assert len(list(helpers.iterdir())) == 1
        go.touch()
        assert running.wait(60) == 0
    finally:
        go.touch()
        running.kill()
        running.wait()


def planned(**changes: Any) -> PlannedFunction:
    return replace(PlannedFunction("fw", "skeleton", "machine", "fw", ("fw.0", "fw.1"), 256 << 20), **changes)


def points(
    function: PlannedFunction, place: Place, *, isolated: bool = False, kvm: bool = True, traits: Traits | None = None
) -> dict[str, Point]:
    cpu = Cpu(3, core=3, isolated=isolated)
    machine = Machine(Answer("kvm") if kvm else Answer("tcg", "no /dev/kvm"), traits or Traits())
    return {each.what: each for each in explained(function, place, huge=True, cpus=[cpu], machine=machine)}


def test_a_high_level_is_explained_with_what_the_host_lacks() -> None:
    own = Place(3, (0, 3))
    found = points(planned(latency="high"), own, isolated=True)
    assert found["CPU"].is_set == "core 3, its own" and found["idle"].is_set.endswith("(cpu-pm)")
    assert not any(each.lacking for each in found.values())
    assert found["scheduling"].is_set == "virtual CPUs at real-time priority 1"
    assert found["TSC"].is_set == "invariant (invtsc)" and found["CPU model"].is_set.endswith("(host-passthrough)")
    assert found["memory"].is_set.endswith("huge pages, locked")
    found = points(planned(latency="high"), own, traits=Traits(invariant_tsc=False, real_time="it may not"))
    assert found["scheduling"].lacking == "a real-time priority: it may not" and "invtsc" in str(found["TSC"].lacking)
    found = points(planned(latency="high"), own, kvm=False)
    assert "not isolated" in str(found["isolation"].lacking)
    refused = points(planned(latency="high"), own, traits=Traits(memory_lock="it may not"))["memory"]
    assert refused.lacking == "memory that is locked: it may not" and "locked" not in refused.is_set
    assert found["acceleration"].lacking == "KVM: no /dev/kvm" and found["idle"].lacking == "cpu-pm, which is KVM's"


@pytest.mark.parametrize(
    ("guest", "interrupts"),
    [
        ({"driver": "linux"}, "those of its ports, none coalesced"),
        ({"kind": None, "image": "fw.qcow2"}, "as the system on its disk has set them"),
    ],
)
def test_what_does_not_poll_is_not_said_to_poll(guest: dict[str, Any], interrupts: str) -> None:
    for kvm in (True, False):
        found = points(planned(latency="high", **guest), Place(3, (0, 3)), kvm=kvm)
        assert found["interrupts"].is_set == interrupts
        assert not any("polls" in f"{each.is_set} {each.why}" for each in found.values())
    assert (found["idle"].is_set, found["idle"].lacking) == (
        "a halt gives the CPU to the host",
        "cpu-pm, which is KVM's",
    )
    assert points(planned(latency="high"), Place(3, (0, 3)), kvm=False)["idle"].is_set.startswith("its function polls")


def test_interrupts_that_are_waited_for_are_not_coalesced_at_level_high() -> None:
    linux = planned(driver="linux", interfaces=("e1000e", "vhost-user", "pci:0000:3b:00.0"))
    why = points(replace(linux, latency="high"), Place(3, (0, 3)))["interrupts"].why
    assert "e1000e: set inside at its start" in why and "vhost-user: its device offers" in why and "passthrough:" in why
    assert "NOTF_COAL" in points(planned(driver="linux", latency="high"), Place(3, (0, 3)))["interrupts"].why
    assert points(linux, Place(3, (0, 3)))["interrupts"].is_set == "those of its ports"
    own = points(planned(kind=None, image="fw.qcow2", latency="high"), Place(3, (0, 3)))["interrupts"]
    assert "ethtool -C PORT rx-usecs 0" in str(own.lacking)
    assert points(planned(kind=None, image="fw.qcow2"), Place(3, (0, 3)))["interrupts"].lacking is None


def test_a_normal_level_shares_and_a_medium_one_says_when_it_must() -> None:
    shared = Place(0, (0, 1), "interrupt", nice=0)
    found = points(planned(latency="normal"), shared)
    assert found["CPU"].is_set == "any of 0, 1" and found["CPU model"].is_set.endswith("(host-model)")
    assert found["scheduling"].is_set == "ordinary" and "TSC" not in found
    assert "too few" in str(points(planned(), Place(0, (0,), "interrupt", 10))["CPU"].lacking)


def test_the_level_decides_what_the_machine_is() -> None:
    def setting(
        latency: Any, place: Place, *, huge: bool = True, kind: str = "kvm", traits: Traits | None = None
    ) -> MachineSetting:
        instance = Instance("fw", "skeleton", ("vhost-server:/s/0", "vhost-server:/s/1"), place, 256 << 20, huge)
        made = images.Image(Path("/i"), "linux", "0")
        instance = replace(instance, latency=latency)
        return machine_setting("tailrace-fw", instance, made, Path("/log"), kind, traits or Traits())

    own, shared = Place(3, (0, 3)), Place(0, (0, 1), "interrupt", nice=0)
    assert setting("medium", own).pins == ((3,),) and not setting("medium", own).keeps_cpus
    assert setting("high", own).keeps_cpus and not setting("high", own, kind="tcg").keeps_cpus
    assert setting("high", own, huge=False).locked and setting("high", own).locked and not setting("medium", own).locked
    assert setting("high", own).invariant_tsc and not setting("medium", own).invariant_tsc
    assert setting("medium", own).passes_cpu and not setting("normal", shared).passes_cpu
    assert (setting("high", own).priority, setting("medium", own).priority) == (1, None)
    lacking = Traits({0: 0, 3: 1}, invariant_tsc=False, real_time="it may not", memory_lock="it may not")
    found = setting("high", own, traits=lacking)
    assert (found.priority, found.invariant_tsc, found.node, found.locked) == (None, False, 1, False)
    assert setting("normal", shared).pins == ((0, 1),) and setting("normal", shared).others == (0, 1)
    assert "cpu-pm=on" in domain_xml(setting("high", own))


def test_linux_forwards_where_its_drivers_keep_the_ports() -> None:
    own = Instance("fw", "skeleton", ("if:tap0", "if:tap1"), Place(3, (0, 3)), 256 << 20, True, ("a=1",))
    own = replace(own, interfaces=("e1000e", "virtio"))
    made = images.Image(Path("/i"), "linux", "0")

    def words(driver: Any) -> list[str]:
        return machine_setting(
            "fw", replace(own, driver=driver), made, Path("/log"), "tcg", Traits()
        ).command_line.split()

    assert "tailrace.ports=0000:00:08.0,0000:00:09.0" in words("linux")
    assert "tailrace.run=bridge" in words("linux") and not any("pages" in each for each in words("linux"))
    assert any(each.startswith("tailrace.run=tailrace-vnf,skeleton,") for each in words("dpdk"))
    assert "tailrace.coalescing=off" not in words("linux")
    own = replace(own, latency="high")
    assert "tailrace.coalescing=off" in words("linux") and "tailrace.coalescing=off" not in words("dpdk")


def test_what_is_other_in_a_domain_is_named_by_its_place() -> None:
    xml = domain_xml(SETTING)
    assert differing(xml, xml) == []
    assert differing(xml, xml.replace('cpuset="3"', 'cpuset="5"')) == ["cputune/vcpupin"]
    assert differing(xml, xml.replace("ua-port0", "ua-port2")) != []
    controller = '<controller type="usb" model="none" />'
    assert controller in xml
    named = xml.replace(controller, '<controller type="usb" model="none"><alias name="usb"/></controller>')
    assert differing(named, xml) == [], "libvirt forgets such a name when it starts anew"
    assert differing(xml, xml.replace("</devices>", "<rng model='virtio'/></devices>")) == ["devices/rng"]


@pytest.mark.parametrize("place", ["process", "container", "machine"])
def test_the_chains_of_bench_start_are_sound_and_forward_through_all(place: str) -> None:
    plan = make_plan(parse_spec(start.spec_of(place, 3), "s"), cpus=[Cpu(n, core=n) for n in range(8)], real_time=None)
    assert {each.runs for each in plan.started} == {place}
    assert plan.chains[0].through == ("f1", "f2", "f3")


def test_images_of_earlier_builds_that_no_container_has_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now, gone = time.time(), []
    of = {
        name: f"localhost/tailrace-vnf:{number:016x}" for number, name in enumerate(("new", "old", "used", "younger"))
    }
    ages = {of["new"]: 0, of["old"]: 7200, of["used"]: 7200, of["younger"]: 60, "localhost/tailrace-vnf:mine": 7200}
    known: list[dict[str, object]] = [{"Names": [name], "Created": int(now - age)} for name, age in ages.items()]
    known += [{"Names": None, "Created": 0}, {"Names": ["localhost/other:1"], "Created": 0}]
    known += [{"Names": [f"localhost/tailrace-vnf:{9:016x}"], "Created": "2026-11-30"}]
    known += [{"Names": [f"localhost/tailrace-vnf:{8:016x}"]}]

    def podman(*words: str) -> str:
        if words[0] == "images":
            return json.dumps(known)
        assert words[:2] == ("image", "rm"), words
        if words[2] == of["used"]:
            raise Failure("image is in use by a container")
        gone.append(words[2])
        return ""

    monkeypatch.setattr(images, "podman", podman)
    images._remove_older(of["new"])
    assert gone == [of["old"]]


def test_a_stand_in_is_the_emulator_of_machines() -> None:
    plan = make_plan(
        parse_spec(start.spec_of("machine", 2, Path("/b/qemu")), "s"), cpus=[Cpu(0), Cpu(1, core=1)], real_time=None
    )
    assert {each.domain for each in plan.started} == {"<devices><emulator>/b/qemu</emulator></devices>"}
    assert domain(replace(SETTING, fragment=plan.started[0].domain)).findtext("devices/emulator") == "/b/qemu"


def test_what_bench_start_cannot_start_is_refused() -> None:
    assert [start.words("process", 8), start.words("machine", 1)] == ["8 processes", "1 machine"]
    for counts, said in (({"guest": 1}, "--of guest: no such place"), ({"process": 65}, "--of process=65: expected")):
        with pytest.raises(Mistake, match=said):
            start.StartPlan(1, counts)
    with pytest.raises(Mistake, match="--warm: a stand-in has no state"):
        start.StartPlan(stand_in=True, warm=True)
    with pytest.raises(Mistake, match="--stand-in: only machines have one, and not container; expected"):
        start.StartPlan(counts={"machine": 2, "container": 1}, stand_in=True)
    assert start.StartPlan(stand_in=True).chains == {"machine": 1}


def test_how_long_a_kernel_took_to_boot_is_what_it_says_itself() -> None:
    said = "[    0.000000] Linux version 6.1\n[    4.125000] Run /init as init process\n[    9.5] later: Run /init\n"
    assert start.kernel_boot_ms(said) == 4125.0
    with pytest.raises(Failure, match="build its image again: tailrace image build"):
        start.kernel_boot_ms("[    0.000000] Linux version 6.1\n")


@pytest.mark.parametrize(
    ("mode", "member", "opens"),
    [(0o600, True, False), (0o660, False, False), (0o660, True, True), (0o666, False, True)],
)
def test_whether_qemus_user_may_open_kvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, mode: int, member: bool, opens: bool
) -> None:
    kvm = tmp_path / "kvm"
    assert closed_to_qemu(kvm) is None
    kvm.touch()
    kvm.chmod(mode)
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setattr(acceleration, "qemu_user", lambda: nobody.pw_uid)
    monkeypatch.setattr(acceleration.os, "getgrouplist", lambda *_: [kvm.stat().st_gid] if member else [])
    why = closed_to_qemu(kvm)
    assert why is None if opens else why is not None and f"sudo chgrp kvm {kvm}" in why
    monkeypatch.setattr(acceleration, "_group", lambda _: "kvm")
    if mode == 0o660 and not member:
        assert "`sudo usermod -aG kvm nobody`" in (closed_to_qemu(kvm) or "")


@pytest.mark.parametrize("port", ["f1.0", "f1@4.0"])
def test_another_instance_of_a_machine_is_waited_for_as_long_as_the_first(
    monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    """It boots for minutes where it is emulated and the host is busy."""
    plan = make_plan(parse_spec(start.spec_of("machine", 1), "s"), cpus=[Cpu(0), Cpu(1, core=1)], real_time=None)
    clock = count(step=5.0)
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _seconds: None))
    asked = count()
    fabric = SimpleNamespace(ports=lambda: [SimpleNamespace(name=port, state="up" if next(asked) > 20 else "waiting")])
    node: Any = SimpleNamespace(plan=plan, fabric=fabric, check_alive=lambda _processes: None, launcher=None)
    running.Node.wait_for(node, [port], [])
    assert next(asked) == 22
