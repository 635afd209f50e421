"""A virtual function of a network card (SR-IOV), and what the card is to do with it."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from tailrace.spec import units
from tailrace.spec.fields import BitRate, Model, ShortSchema, short, text_schema

MAC = r"^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$"
MOST_NUMBER = 0xFFFE
"""TotalVFs of SR-IOV has 16 bits."""
_SHORT = r"^[^/\s]+/[0-9]{1,5}$"


def _station(value: str) -> str:
    if not re.fullmatch(MAC, value) or int(value[:2], 16) & 1 or not value.strip("0:"):
        raise ValueError(f"{units.shown(value)} is no station's address; expected one such as 02:00:00:00:00:0a")
    return value.lower()


Station = Annotated[str, AfterValidator(_station), text_schema(MAC, "02:00:00:00:00:0a")]
"""A MAC address."""


def _mbps(value: int) -> int:
    if value % 1_000_000:
        raise ValueError(f"{units.show_bit_rate(value)} is no whole number of Mbps; expected one such as 100Mbps")
    return value


CardRate = Annotated[BitRate, AfterValidator(_mbps)]


class VirtualFunction(Model):
    """One function of a card. What is not given stays as the card has it."""

    of: str = Field(
        min_length=1, max_length=32, description="the card: its Linux interface, or the PCI address of its port"
    )
    number: int = Field(ge=0, le=MOST_NUMBER, description="which of its functions: 0 is the first")
    mac: Station | None = Field(
        None, description="its address: the card gives it frames to this one alone, and to several"
    )
    vlan: int | None = Field(
        None, ge=1, le=4094, description="the VLAN that the card puts it into; it sees no tag itself"
    )
    qos: int | None = Field(None, ge=0, le=7, description="of that VLAN's tag: its priority")
    min_rate: CardRate | None = Field(None, description="bits a second that the card keeps for it, in whole Mbps")
    max_rate: CardRate | None = Field(None, description="most bits a second that it sends, in whole Mbps")
    spoof_check: bool | None = Field(None, description="whether the card drops what it sends from other addresses")
    trust: bool | None = Field(None, description="whether it may ask for more: all frames, other addresses")
    link: Literal["auto", "enable", "disable"] | None = Field(
        None, description="whether it has a link: as the card has (auto), always, never"
    )
    functions: int | None = Field(
        None,
        ge=1,
        le=MOST_NUMBER + 1,
        description="how many functions the card is given, if it has none yet; as many as the ports need unless given",
    )

    @model_validator(mode="after")
    def _fits(self) -> VirtualFunction:
        if self.qos is not None and self.vlan is None:
            raise ValueError("qos is the priority in a VLAN's tag; expected vlan beside it")
        if self.min_rate is not None and self.max_rate is not None and self.min_rate > self.max_rate:
            raise ValueError("min_rate is above max_rate; expected at most max_rate")
        if self.functions is not None and self.number >= self.functions:
            raise ValueError(
                f"number {self.number} is none of {self.functions} functions; expected 0 to {self.functions - 1}"
            )
        return self

    @property
    def name(self) -> str:
        """ens1f0/0"""
        return f"{self.of}/{self.number}"

    @property
    def uri(self) -> str:
        """All of it as one word: vf:ens1f0/0,mac=02:00:00:00:00:0a,trust=true."""
        said = self.model_dump(mode="json", exclude={"of", "number"}, exclude_none=True)
        return ",".join((f"vf:{self.name}", *(f"{word}={_text(value)}" for word, value in said.items())))

    @classmethod
    def of_uri(cls, uri: str) -> VirtualFunction:
        """From what `uri` has made."""
        name, *words = uri.removeprefix("vf:").split(",")
        given = dict(word.partition("=")[::2] for word in words)
        return cls.model_validate_strings(_expand(name) | {"number": name.rpartition("/")[2]} | given)

    @property
    def settings(self) -> dict[str, Any]:
        """What the card is to do with it, by the words of the spec; rates in Mbps."""
        words = ("mac", "vlan", "spoof_check", "trust", "link")
        found = {word: value for word in words if (value := getattr(self, word)) is not None}
        if self.vlan is not None:
            found["qos"] = self.qos or 0
        for word in ("min_rate", "max_rate"):
            value = getattr(self, word)
            if value is not None:
                found[word] = value // 1_000_000
        return found


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _expand(text: str) -> dict[str, Any]:
    if not re.fullmatch(_SHORT, text):
        raise ValueError(f"{units.shown(text)} is no virtual function; expected CARD/NUMBER, such as ens1f0/0")
    of, _, number = text.partition("/")
    return {"of": of, "number": int(number)}


CardFunction = Annotated[
    VirtualFunction,
    short(str, _expand),
    ShortSchema({"type": "string", "pattern": _SHORT, "description": "of/number"}),
]
