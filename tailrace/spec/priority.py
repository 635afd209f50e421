"""Bounds for the priority of a machine's virtual CPUs, where it follows what the guest runs (docs/priority.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from tailrace.spec.fields import Duration, Model

PRIORITY_CPUS = 63
"""Of a machine, that the page of its words has room for (dataplane/priority/page.h)."""
MOST_PRIORITY = 49
"""Linux's threads of interrupts have 50."""
_TASKS = 8
TASK = r"^[A-Za-z0-9_./@+#-]{1,15}$"
"""A thread's name, of which Linux keeps 15 letters."""


def _within(value: float) -> float:
    if not 200e-6 <= value <= 0.1:
        raise ValueError(f"{value * 1e3:g}ms: expected 200us to 100ms")
    return value


class Priority(Model):
    """Bounds for the real-time priority of a machine's virtual CPUs, which follows what its guest runs."""

    least: int = Field(
        0,
        ge=0,
        le=MOST_PRIORITY,
        description="SCHED_FIFO priority of a virtual CPU that runs nothing real-time; 0: that of an ordinary thread",
    )
    most: int = Field(
        40,
        ge=1,
        le=MOST_PRIORITY,
        description="the highest that one has, whatever its guest says; one has it also while it is idle, and takes no "
        "time then. Linux's threads of interrupts have 50",
    )
    tasks: list[Annotated[str, Field(pattern=TASK)]] = Field(
        default_factory=list,
        max_length=_TASKS,
        description="the names of the guest's real-time threads that count (/proc/PID/comm); all unless said",
    )
    within: Annotated[Duration, AfterValidator(_within)] = Field(
        1e-3,
        validate_default=False,
        description="how often the guest's word is read. While a virtual CPU runs ordinary work, it has the highest "
        "priority for a quarter of each such time, so that an interrupt is taken which wakes a real-time task",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Priority:
        if self.least > self.most:
            raise ValueError(f"least: {self.least} is more than most, {self.most}; expected no more than that")
        return self
