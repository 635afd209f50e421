"""Functions in machines and containers, as data: the domain, the images, the names."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tailrace.bench import start
from tailrace.errors import Mistake
from tailrace.functions import images
from tailrace.functions.acceleration import Answer
from tailrace.functions.domain import MachineSetting, Nic, differing, domain_xml, mac_address
from tailrace.functions.levels import Point, explained
from tailrace.functions.machine import machine_setting
from tailrace.functions.names import outer_name
from tailrace.functions.runtime import Instance
from tailrace.node.plan import make_plan
from tailrace.node.planned import PlannedFunction
from tailrace.process import reaper
from tailrace.resources.place import Place
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec

SETTING = MachineSetting(
    name="tailrace-fw",
    title="Tailrace: fw",
    memory_bytes=256 << 20,
    pins=((3,), (4,)),
    others=(0, 1),
    huge=True,
    nics=(Nic("52:54:00:00:00:00", Path("/s/0")), Nic("52:54:00:00:00:01", Path("/s/1"))),
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


def test_the_machine_is_pinned_and_its_memory_shared_and_in_huge_pages() -> None:
    found = domain(SETTING)
    assert found.get("type") == "kvm" and found.findtext("memory") == str(256 << 10)
    pins = {pin.get("vcpu"): pin.get("cpuset") for pin in found.iter("vcpupin")}
    assert pins == {"0": "3", "1": "4"} and found.findtext("vcpu") == "2"
    assert found.find("cputune/emulatorpin").get("cpuset") == "0,1"  # type: ignore[union-attr]
    assert found.find("memoryBacking/hugepages/page") is not None
    assert found.find("memoryBacking/access").get("mode") == "shared"  # type: ignore[union-attr]
    assert [each.get("path") for each in found.iterfind("devices/interface/source")] == ["/s/0", "/s/1"]
    assert domain(replace(SETTING, huge=False)).find("memoryBacking/hugepages") is None


def test_an_emulated_machine_has_no_msix() -> None:
    assert "override" not in domain_xml(SETTING)
    found = domain(replace(SETTING, acceleration="tcg"))
    assert found.get("type") == "qemu" and found.find("cpu").get("mode") == "maximum"  # type: ignore[union-attr]
    assert [each.get("value") for each in found.iter() if each.tag.endswith("property")] == ["0", "0"]


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


def test_an_image_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = image(tmp_path, monkeypatch)
    assert images.machine_image("own").kernel == "linux-image-6.1"
    assert [each.folder.name for each in images.machine_images()] == ["own"]
    (made / "initramfs").write_bytes(b"file")
    with pytest.raises(Mistake, match=r"initramfs: is not what was built .*tailrace image build own"):
        images.machine_image("own")
    assert images.machine_images() == []
    (made / "image.json").write_text("{")
    with pytest.raises(Mistake, match=r"image.json: damaged"):
        images.machine_image("own")
    with pytest.raises(Mistake, match=r"no image 'other'"):
        images.machine_image("other")


def test_the_reaper_ends_its_helpers_when_the_daemon_and_what_it_left_are_gone(tmp_path: Path) -> None:
    """The daemon leaves a process that outlives it."""
    mark = tmp_path / "mark"
    left = f"(sleep 0.3; echo left >{mark}) & exit 0"
    words = ["--", "sleep", "600", "--", "sh", "-c", left]
    done = subprocess.run([sys.executable, reaper.__file__, *words], timeout=60, check=False)
    assert done.returncode == 0 and mark.read_text() == "left\n"


def planned(**changes: Any) -> PlannedFunction:
    return replace(PlannedFunction("fw", "skeleton", "machine", "fw", ("fw.0", "fw.1"), 256 << 20), **changes)


def points(function: PlannedFunction, place: Place, *, isolated: bool = False, kvm: bool = True) -> dict[str, Point]:
    cpu = Cpu(3, core=3, isolated=isolated)
    answer = Answer("kvm") if kvm else Answer("tcg", "no /dev/kvm")
    return {each.what: each for each in explained(function, place, huge=True, cpus=[cpu], acceleration=answer)}


def test_a_high_level_is_explained_with_what_the_host_lacks() -> None:
    own = Place(3, (0, 3))
    found = points(planned(latency="high"), own, isolated=True)
    assert found["CPU"].is_set == "core 3, its own" and found["idle"].is_set.endswith("(cpu-pm)")
    assert not any(each.lacking for each in found.values())
    found = points(planned(latency="high"), own, kvm=False)
    assert "not isolated" in str(found["isolation"].lacking)
    assert found["acceleration"].lacking == "KVM: no /dev/kvm" and found["idle"].lacking == "cpu-pm, which is KVM's"


def test_a_normal_level_shares_and_a_medium_one_says_when_it_must() -> None:
    shared = Place(0, (0, 1), "interrupt", nice=0)
    assert points(planned(latency="normal"), shared)["CPU"].is_set == "any of 0, 1"
    assert "too few" in str(points(planned(), Place(0, (0,), "interrupt", 10))["CPU"].lacking)


def test_the_level_decides_what_the_machine_is() -> None:
    def setting(latency: Any, place: Place, *, huge: bool = True, kind: str = "kvm") -> MachineSetting:
        instance = Instance("fw", "skeleton", ("vhost-server:/s/0", "vhost-server:/s/1"), place, 256 << 20, huge)
        made = images.Image(Path("/i"), "linux", "0")
        return machine_setting("tailrace-fw", replace(instance, latency=latency), made, Path("/log"), kind)

    own, shared = Place(3, (0, 3)), Place(0, (0, 1), "interrupt", nice=0)
    assert setting("medium", own).pins == ((3,),) and not setting("medium", own).keeps_cpus
    assert setting("high", own).keeps_cpus and not setting("high", own, kind="tcg").keeps_cpus
    assert setting("high", own, huge=False).locked and not setting("high", own).locked
    assert setting("normal", shared).pins == ((0, 1),) and setting("normal", shared).others == (0, 1)
    assert "cpu-pm=on" in domain_xml(setting("high", own))


def test_what_is_other_in_a_domain_is_named_by_its_place() -> None:
    xml = domain_xml(SETTING)
    assert differing(xml, xml) == []
    assert differing(xml, xml.replace('cpuset="3"', 'cpuset="5"')) == ["cputune/vcpupin"]
    assert differing(xml, xml.replace("</devices>", "<rng model='virtio'/></devices>")) == ["devices/rng"]


@pytest.mark.parametrize("place", ["process", "container", "machine"])
def test_the_chains_of_bench_start_are_sound_and_forward_through_all(place: str) -> None:
    plan = make_plan(parse_spec(start.spec_of(place, 3), "s"), cpus=[Cpu(n, core=n) for n in range(8)], real_time=None)
    assert {each.runs for each in plan.started} == {place}
    assert plan.chains[0].through == ("f1", "f2", "f3")


def test_what_bench_start_cannot_start_is_refused() -> None:
    assert [start.words("process", 8), start.words("machine", 1)] == ["8 processes", "1 machine"]
    for counts, said in (({"guest": 1}, "--of guest: no such place"), ({"process": 65}, "--of process=65: expected")):
        with pytest.raises(Mistake, match=said):
            start.StartPlan(1, counts)
