"""A virtual function that carries the frames of a machine's port while there is one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from tailrace.spec.fields import Model, each_once
from tailrace.spec.virtual_function import CardFunction, Station, VirtualFunction


class Failover(Model):
    """Of one vhost-user port. The machine's Linux makes one interface of it and of the function."""

    mac: Station = Field(description="the address of both; on all nodes that the machine moves to the same")
    vf: CardFunction | None = Field(
        None, description="the function, as `vf` of a port; none: this node has none, and the port carries all"
    )

    @model_validator(mode="after")
    def _fits(self) -> Failover:
        if self.vf is not None and self.vf.mac not in (None, self.mac):
            raise ValueError(f"vf has the mac {self.vf.mac}; expected none, or that of the port, {self.mac}")
        return self

    @property
    def function(self) -> VirtualFunction | None:
        """The function, without the address, which it has only while it is plugged."""
        return None if self.vf is None else self.vf.model_copy(update={"mac": None})


def _number(key: Any) -> Any:
    """YAML's keys are text here."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key


Failovers = Annotated[dict[Annotated[int, BeforeValidator(_number), Field(ge=0)], Failover], each_once(_number, "port")]
"""By the number of the port."""
