"""KVM's parameters at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.setting import Form, Setting


def _parameter(name: str) -> Callable[[Context, Any], Iterable[Setting]]:
    return lambda context, value: file_setting(context, f"/sys/module/kvm/parameters/{name}", value, Form.NUMBER)


class Kvm(Family):
    name = "kvm"
    title = "KVM"
    text = "How KVM waits for a halted guest and how early it arms its timers."
    knobs = (
        Knob(
            "kvm_halt_poll",
            "ns for which KVM spins when a guest halts, before its thread sleeps",
            "a guest woken within them wakes without the scheduler; no published profile sets it, and 0 is for "
            "guests that poll themselves, which never halt",
            "CPU time of the host",
            "Linux, Documentation/virt/kvm/halt-polling.rst",
            "run",
            "ns; 0: not at all",
            _parameter("halt_poll_ns"),
            lambda value: is_number(value) and value >= 0,
            needs="the module kvm, loaded",
        ),
        Knob(
            "kvm_timer_advance",
            "ns by which a guest's timer is armed too early, to make up for the exit",
            "-1 lets KVM find the value by itself",
            "nothing",
            "Linux, arch/x86/kvm/lapic.c; TuneD realtime-virtual-host",
            "run",
            "ns; -1: adaptive",
            _parameter("lapic_timer_advance_ns"),
            lambda value: is_number(value) and value >= -1,
            needs="the module kvm, loaded",
        ),
    )
