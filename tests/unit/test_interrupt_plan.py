"""What `measure interrupts` was asked for is read as it was written, or refused."""

from __future__ import annotations

import pytest

from tailrace.errors import Mistake
from tailrace.functions.runtime import PriorityRange
from tailrace.measure.beside import Guest, Neighbour
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.interrupt_plan import InterruptPlan, read_interrupt_plan
from tailrace.measure.interrupts import Side


def asked() -> InterruptPlan:
    sides = [
        Side("native", 1000_000, None, 50_000, "tai", ("msix", "ipi")),
        Side("ue", 1000_000, Guest("high", 1 << 29, "x", PriorityRange(0, 40, ("a",))), 50_000, "tai", ("vring",)),
    ]
    tools = [tool for side in sides for tool in side.tools()]
    host = HostPlan(tools, ["none", "machines"], {1: "receiver", 0: "sender"}, (0, 2), 7200.0)
    return InterruptPlan(host, sides, [Neighbour("office", Guest("normal"))], "tailrace", True)


def test_it_is_read_as_it_was_written() -> None:
    text = asked().text()
    found = read_interrupt_plan(f"# a comment\n{text}", "here")
    assert found.text() == text
    assert [tool.name for tool in found.host.tools] == ["interrupt-native", "ipi-native", "vring-ue"]
    assert found.sides[1].guest == asked().sides[1].guest and found.beside == asked().beside
    assert list(found.host.cpus) == [1, 0] and found.host.all_slices == asked().host.all_slices


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("period_ns: 1000000", "period_ns: often"),
        ("interrupts:", "others:"),
        ("latency: normal", "latency: none"),
        ("interrupt-native", "interrupt-foreign"),
        ("machines", "foreign"),
        ("tools: [", "tools: ]"),
        ("period_ns: 1000000", "period_ns: 2026-99-99"),
        ("interrupts:", "interrupts: " + "[" * 5000),
    ],
)
def test_what_cannot_be_is_refused(old: str, new: str) -> None:
    text = asked().text()
    assert old in text
    with pytest.raises(Mistake, match=r"^here: not what `measure interrupts` .*begin a new run"):
        read_interrupt_plan(text.replace(old, new, 1), "here")
