"""KVM's parameters at run time."""

from __future__ import annotations

from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.setting import Form, Setting

PARAMETERS = "/sys/module/kvm/parameters"


def _halt_poll(context: Context, value: Any) -> list[Setting]:
    return file_setting(context, f"{PARAMETERS}/halt_poll_ns", value, Form.NUMBER)


def _timer_advance(context: Context, value: Any) -> list[Setting]:
    """A number, of which a kernel before 5.2 does not take -1; from 6.10 on a switch that only loading the module sets,
    where a number of ns cannot be had."""
    if context.machine.tree.exists(f"{PARAMETERS}/lapic_timer_advance"):
        wanted = {-1: "Y", 0: "N"}.get(value)
        return file_setting(context, f"{PARAMETERS}/lapic_timer_advance", wanted, optional=True) if wanted else []
    return file_setting(context, f"{PARAMETERS}/lapic_timer_advance_ns", value, Form.NUMBER, optional=True)


class Kvm(Family):
    name = "kvm"
    title = "KVM"
    text = "How KVM waits for a halted guest, and how early it arms its timers."
    knobs = (
        Knob(
            "kvm_halt_poll",
            "ns for which KVM polls after a guest halts, before its thread sleeps",
            "a guest that is woken in this time needs no scheduling. No published profile sets it; 0 suits guests "
            "that poll, because they never halt",
            "CPU time of the host",
            "Linux, Documentation/virt/kvm/halt-polling.rst",
            "run",
            "ns; 0: not at all",
            _halt_poll,
            lambda value: is_number(value) and value >= 0,
            needs="the module kvm, loaded",
        ),
        Knob(
            "kvm_timer_advance",
            "ns by which KVM arms a guest's timer early, to make up for the exit",
            "-1 lets KVM find the value",
            "nothing",
            "Linux, arch/x86/kvm/lapic.c",
            "run",
            "ns; -1: adaptive; from Linux 6.10 on only -1 or 0",
            _timer_advance,
            lambda value: is_number(value) and value >= -1,
            needs="the module kvm, loaded; a number of ns needs Linux before 6.10",
            kernels="any; -1 from 5.2 on. From 6.10 on Tailrace only checks it: loading the module sets it "
            "(kvm.lapic_timer_advance)",
        ),
    )
