"""The fabrics under test with guests that listen, joined in pairs: what every benchmark of switches starts from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tailrace.bench.model import OVS_DPDK, TAILRACE
from tailrace.bench.setting import Setting
from tailrace.errors import Fault, Mistake
from tailrace.fabric.base import Fabric, Port
from tailrace.fabric.network import Network
from tailrace.fabric.ovs_dpdk import OvsDpdk
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.plan.capabilities import capabilities
from tailrace.process.process import undisturbed
from tailrace.resources.place import POLLER_NICE

BACKPRESSURE_US = 20_000

Joints = Sequence[tuple[int, int]]
"""Which guests are joined with which, by their places in the list of sockets."""
ONE_HOP: Joints = ((0, 1),)


def guest_port(path: Path) -> dict[str, object]:
    """A port of the switch's configuration for a guest that listens: then all guests are started with the same words
    whatever the switch is."""
    return {"kind": "guest", "path": str(path), "mode": "client"}


def joined(one: str, other: str) -> dict[str, object]:
    """A chain of the switch's configuration that joins two ports."""
    return {"from": one, "to": other, "through": []}


def fabric_of(
    setting: Setting, name: str, *, idle: str = "poll", offloads: bool = False, network: Network | None = None
) -> OvsDpdk | TailraceFabric:
    """A fabric on the setting's core for the switch, to be started. It can have an interface of Linux's as a port where
    there is a network to make it in."""
    launcher, place = setting.launcher, setting.cores.switch_place
    if name == OVS_DPDK:
        return OvsDpdk(launcher, place, nice=POLLER_NICE, offloads=offloads, network=network)
    options = SwitchOptions(
        place,
        BACKPRESSURE_US,
        idle,
        keep=capabilities(["if:"] if network else []),
        device_queues=int(network is not None),
        offloads=offloads,
    )
    return TailraceFabric(launcher, options, network)


def join_guests(fabric: Fabric, joints: Joints = ONE_HOP) -> list[Path]:
    """Joins guests that listen; returns where they are to do so, in their order."""
    sockets: dict[int, Path] = {}
    for joint in joints:
        uris = fabric.carry(f"hop-{joint[0]}-{joint[1]}", [Port(f"p{end}", "vhost-user-client") for end in joint])
        sockets |= {end: Path(uris[f"p{end}"].removeprefix("vhost-server:")) for end in joint}
    return [sockets[end] for end in sorted(sockets)]


ALONE = "none"


def against_known(against: str) -> tuple[str, ...]:
    """The sides of a comparison with `against`, ours first; ours alone for ALONE. Raises Mistake if it is not known."""
    if against not in (ALONE, OVS_DPDK):
        raise Mistake(f"--against {against}: expected {OVS_DPDK} or {ALONE}")
    return (TAILRACE,) if against == ALONE else (TAILRACE, against)


def check_installed(sides: Sequence[str]) -> None:
    """Raises Mistake, naming the package, if a side is not installed."""
    if OVS_DPDK in sides:
        OvsDpdk.installed()


@contextmanager
def running(
    setting: Setting,
    name: str,
    joints: Joints = ONE_HOP,
    *,
    what: str = "",
    idle: str = "poll",
    offloads: bool = False,
) -> Iterator[tuple[Fabric, list[Path]]]:
    """A fabric that is up, and the sockets where its guests are to listen; ended after the block.

    Guests may ask for checksums and segmentation where `offloads`. A Fault in the block is reported with the side's
    name and `what`.
    """
    with started(fabric_of(setting, name, idle=idle, offloads=offloads), setting, name, what) as fabric:
        yield fabric, join_guests(fabric, joints)


FabricT = TypeVar("FabricT", bound=Fabric)


@contextmanager
def started(fabric: FabricT, setting: Setting, name: str, what: str = "") -> Iterator[FabricT]:
    """A fabric that is up; ended after the block. A Fault in it is reported with the side's name and `what`."""
    try:
        fabric.start()
        setting.versions |= fabric.version()
        yield fabric
    except Fault as error:
        raise Fault(f"{', '.join(filter(None, (name, what)))}: {error}") from None
    finally:
        with undisturbed():
            fabric.stop()
