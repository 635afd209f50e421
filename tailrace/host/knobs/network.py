"""Network cards that Linux itself uses: where their softirqs run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, Value, file_setting, is_number
from tailrace.host.setting import Form, Setting
from tailrace.kernel.cpus import show_mask


def _receive_steering(context: Context, value: Value) -> list[Setting]:
    if not value:
        return []
    masks = {nic: show_mask(context.system_near(nic.node)) for nic in context.machine.nics if nic.interface}
    return [
        setting
        for nic, mask in masks.items()
        for queue, _ in context.machine.tree.find(f"/sys/class/net/{nic.name}/queues", "rx-*")
        for setting in file_setting(context, f"{queue}/rps_cpus", mask, Form.CPU_MASK)
    ]


def _cards(what: str) -> Callable[[Context, Any], Iterable[Setting]]:
    """The same of every physical card that Linux drives."""

    def settings(context: Context, value: Any) -> list[Setting]:
        if value is False:
            return []
        wanted = "off" if value is True else str(value)
        cards = [nic.name for nic in context.machine.nics if nic.interface and not nic.virtual_function]
        return [Setting(f"nic:{name}/{what}", wanted, optional=True) for name in cards]

    return settings


class Network(Family):
    name = "network"
    title = "Network cards"
    text = "Cards that Linux drives must not do their work on isolated CPUs."
    knobs = (
        Knob(
            "receive_steering",
            "handles received packets on all of the system's CPUs of the card's node, by flow (RPS)",
            "even an interrupt that cannot be moved hands its packets to these CPUs",
            "an interrupt between CPUs for each batch",
            "Linux, Documentation/networking/scaling.rst, RPS: Receive Packet Steering; OpenShift node tuning operator",
            "run",
            "true or false",
            _receive_steering,
            needs="a physical network card that Linux drives",
        ),
        Knob(
            "card_queues",
            "how many queues each card that Linux drives has",
            "each queue has an interrupt; one queue for each of the system's CPUs is enough",
            "less throughput of Linux's own network",
            "ethtool(8), --set-channels; TuneD realtime; OpenShift node tuning operator",
            "run",
            "a number",
            _cards("queues"),
            lambda value: is_number(value) and value >= 1,
            needs="a physical network card that Linux drives",
        ),
        Knob(
            "adaptive_coalescing_off",
            "stops a card from adapting how long it gathers packets before an interrupt",
            "the time changes with the load, and so does latency",
            "more interrupts",
            "ethtool(8), --coalesce",
            "run",
            "true or false",
            _cards("adaptive-rx"),
            needs="a physical network card that Linux drives",
        ),
        Knob(
            "coalescing_us",
            "µs for which a card gathers packets before an interrupt",
            "with 0 it interrupts at once",
            "more interrupts",
            "ethtool(8), --coalesce",
            "run",
            "µs",
            _cards("rx-usecs"),
            lambda value: is_number(value) and value >= 0,
            needs="a physical network card that Linux drives",
        ),
    )
