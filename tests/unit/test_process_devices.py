"""A function in a process with a device to itself: what its sandbox sees and may do, and which devices are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from machines import make
from sriov_kernel import CARD, SriovKernel, function_at
from test_card_functions import Card, planned

from tailrace.errors import Mistake
from tailrace.functions import process as sandbox
from tailrace.functions.runtime import Instance
from tailrace.resources.place import Place
from tailrace.resources.virtual_functions import FunctionRefused, Why, vfio_group
from tailrace.spec.load import parse_spec
from tailrace.state.card_functions import take_functions
from tailrace.state.record import State


def test_a_sandbox_sees_its_devices_and_their_groups(kernel: SriovKernel, state: State) -> None:
    take_functions(state, planned(0) | planned(1), kernel, Card())
    iommu = "/sys/devices/virtual/iommu/dmar0"
    make(kernel.root, {f"{iommu}/intel-iommu/cap": "d2008c40660462"})
    kernel.at(f"/sys/bus/pci/devices/{function_at(0)}/iommu").symlink_to("../../../virtual/iommu/dmar0")
    words = sandbox.devices(kernel, [function_at(0), function_at(1)])
    pairs = list(pairwise(words))
    assert [word for option, word in pairs if option == "--dev-bind"] == [
        "/dev/vfio/vfio", "/dev/vfio/30", "/dev/vfio/31",
    ]  # fmt: skip
    shown = [word for option, word in pairs if option == "--ro-bind"]
    assert [Path(path).name for path in shown] == [function_at(0), "dmar0", function_at(1)]
    assert shown[1] == iommu and shown[0].startswith("/sys/devices/pci")
    assert sandbox.devices(kernel, []) == []


def test_a_device_that_a_program_must_not_have(kernel: SriovKernel, state: State) -> None:
    take_functions(state, planned(0) | planned(1), kernel, Card())
    address = function_at(0)
    assert vfio_group(kernel, address) == "/dev/vfio/30"
    group = kernel.at("/sys/kernel/iommu_groups/30")
    (group / "name").write_text("vfio-noiommu\n")
    with pytest.raises(FunctionRefused, match="no-IOMMU mode, in which it could reach all memory") as raised:
        vfio_group(kernel, address)
    assert raised.value.why is Why.NO_IOMMU
    (group / "name").unlink()
    (group / "devices" / CARD).symlink_to(kernel.at(f"/sys/bus/pci/devices/{CARD}").resolve())
    with pytest.raises(FunctionRefused, match=r"shares IOMMU group 30 with 0000:3b:00.0 \(igb\)"):
        vfio_group(kernel, address)
    with pytest.raises(FunctionRefused, match="is behind no IOMMU"):
        kernel.at(f"/sys/bus/pci/devices/{address}/iommu_group").unlink()
        vfio_group(kernel, address)
    with pytest.raises(FunctionRefused, match="there is no PCI device"):
        vfio_group(kernel, function_at(7))


def test_a_function_on_a_card_has_no_capability_and_may_lock_its_memory(
    monkeypatch: pytest.MonkeyPatch, kernel: SriovKernel, state: State
) -> None:
    take_functions(state, planned(0) | planned(1), kernel, Card())
    monkeypatch.setattr(sandbox, "own_program", lambda name: Path("/bin") / name)
    monkeypatch.setattr(sandbox, "system_program", lambda name: f"/bin/{name}")
    monkeypatch.setattr(sandbox, "visible_libraries", lambda *_: [])
    monkeypatch.setattr(sandbox, "Tree", lambda: kernel)
    ports = (f"pci:{function_at(0)}", "vhost:/s/b")
    instance = Instance("f", "skeleton", ports, Place(0, (0,)), 1 << 20, True)
    words = sandbox.command(instance)
    assert "--cap-add" not in words
    assert {"--unshare-user", "--unshare-net", "--disable-userns"} <= {*words}
    assert words[words.index("--port") + 1] == ports[0]
    assert sandbox.lockable(instance) == (1 << 20) + (64 << 20)
    assert sandbox.lockable(replace(instance, ports=("vhost:/s/a", "vhost:/s/b"))) is None


def test_a_process_may_have_devices_to_itself() -> None:
    text = "functions: {{fw: {{kind: skeleton, interface: [{}]}}}}\nbridges: {{b: [tester.a, fw.0]}}\n"
    fw = parse_spec(text.format("vhost-user, {passthrough: ens1f0/0}"), "s.yaml").functions["fw"]
    assert fw.interfaces == ["vhost-user", "vf:ens1f0/0"]
    with pytest.raises(Mistake, match="a process has vhost-user ports, and devices passed through; expected none"):
        parse_spec(text.format("vhost-user, virtio"), "s.yaml")
