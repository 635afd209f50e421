"""A node in a few figures: what an overview of several nodes shows of each (overview.py).

What another node says of itself is checked against the same model that makes it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from tailrace.dashboard.alarms import DOWN
from tailrace.dashboard.picture import Totals
from tailrace.dashboard.turns import Document

_LONGEST = 300
Count = Annotated[int, Field(ge=0, le=10**9)]
Rate = Annotated[float, Field(ge=0, le=1e18)]
Text = Annotated[str, Field(max_length=_LONGEST)]


class Latest(BaseModel):
    """The last of the bell's alarms."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    time: Text
    kind: Text
    level: Text
    about: Text


class Summary(BaseModel):
    """What a node does now. A later version may say more."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    up: bool
    why: Text = ""
    """Why no switch can be shown."""
    spec: Text = ""
    version: Count | None = None
    chains: Count = 0
    losing: Count = 0
    """Chains that have dropped something in the last second."""
    packets: Rate = 0.0
    """Delivered at both ends of all chains, a second."""
    bits: Rate = 0.0
    drops: Rate = 0.0
    """By all hops, a second."""
    ports: Count = 0
    down: Count = 0
    """Ports whose device or guest is gone."""
    drift: Count | None = None
    """Places of the host that are not as its profile has set them; None where no profile can be checked."""
    alarms: Count = 0
    warnings: Count = 0
    latest: Latest | None = None


def summary(document: Document, totals: Totals, verify: Mapping[str, Any]) -> Summary:
    """Of a picture, the sums over its chains, and how the host's profile stands."""
    events = document.get("events", {}).values()
    levels = Counter(each["level"] for each in events)
    latest = max(events, key=lambda each: each["time"], default=None)
    ports = document.get("ports", {})
    return Summary(
        up=document["up"],
        why=document.get("why", "")[:_LONGEST],
        spec=document.get("spec", "")[-_LONGEST:],
        version=document.get("version"),
        chains=len(document.get("chains", {})),
        losing=totals.losing,
        packets=totals.packets,
        bits=totals.bits,
        drops=totals.drops,
        ports=len(ports),
        down=sum(port["state"] in DOWN for port in ports.values()),
        drift=None if "why" in verify else len(verify["places"]) if verify["lost"] else 0,
        alarms=levels["alarm"],
        warnings=levels["warning"],
        latest=latest and Latest(**{name: str(latest[name])[:_LONGEST] for name in ("time", "kind", "level", "about")}),
    )
