"""What a machine's guest sees as a port of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from tailrace.spec import units
from tailrace.spec.port import PCI_ADDRESS
from tailrace.spec.virtual_function import CardFunction, VirtualFunction

VHOST_USER = "vhost-user"
EMULATED = ("virtio", "e1000e", "vmxnet3")
"""What QEMU emulates, in front of a TAP."""
WORDS = (VHOST_USER, *EMULATED)
_PASSTHROUGH = "passthrough"
_FUNCTION: TypeAdapter[VirtualFunction] = TypeAdapter(CardFunction)


def _interface(value: Any) -> str:
    """A word as it is; {passthrough: 0000:3b:00.0} as every part of Tailrace writes it: pci:0000:3b:00.0; a virtual
    function as its own URI."""
    if isinstance(value, str) and value in WORDS:
        return value
    address = value.get(_PASSTHROUGH) if isinstance(value, dict) and len(value) == 1 else None
    if isinstance(address, str) and re.fullmatch(PCI_ADDRESS, address):
        return f"pci:{address.lower()}"
    if isinstance(address, dict) or (isinstance(address, str) and "/" in address):
        return _function(address).uri
    device = "0000:3b:00.0, or ens1f0/0 for a virtual function"
    if isinstance(value, dict) and list(value) == [_PASSTHROUGH]:
        raise ValueError(f"{_PASSTHROUGH}: {units.shown(address)} is no device; expected {device}")
    if isinstance(value, dict):
        keys = ", ".join(map(str, value)) or "none"
        raise ValueError(f"a group of the keys {keys} is no interface; expected {{{_PASSTHROUGH}: {device}}}")
    expected = (
        f"expected {', '.join(WORDS)}, {{{_PASSTHROUGH}: 0000:3b:00.0}}, or {{{_PASSTHROUGH}: CARD/NUMBER}} such as "
        f"{{{_PASSTHROUGH}: ens1f0/0}}"
    )
    raise ValueError(f"{units.shown(value)} is no interface; {expected}")


def _function(value: Any) -> VirtualFunction:
    try:
        return _FUNCTION.validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{_PASSTHROUGH}: {_wrong(error.errors())}") from None


def _wrong(found: Sequence[ErrorDetails]) -> str:
    """The first thing that is wrong with a virtual function; a key that there is not comes before one that lacks."""
    first = min(found, key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"unknown key {key!r}; expected one of {', '.join(VirtualFunction.model_fields)}"
    if first["type"] == "missing":
        return f"lacks {key!r}; expected CARD/NUMBER, such as ens1f0/0, or {{of: ens1f0, number: 0}}"
    if first["type"] == "value_error":
        return f"{key}: {first['ctx']['error']}" if key else str(first["ctx"]["error"])
    return f"{key}: {units.shown(first['input'])}; expected {first['msg'].removeprefix('Input should be ')}"


def _expand(value: Any) -> list[str]:
    """virtio is [virtio]."""
    return [_interface(each) for each in (value if isinstance(value, list) else [value])]


def _as_written(interfaces: list[str]) -> list[Any]:
    return [{_PASSTHROUGH: _address(each)} if passed_through(each) else each for each in interfaces]


def _address(interface: str) -> Any:
    if not interface.startswith("vf:"):
        return interface.removeprefix("pci:")
    return VirtualFunction.of_uri(interface).model_dump(mode="json", exclude_none=True)


def passed_through(interface: str) -> bool:
    """Whether it is a device of this machine's that a guest has to itself, and no port of the switch."""
    return interface.startswith(("pci:", "vf:"))


_FUNCTION_SCHEMA = {"type": ["string", "object"], "description": "as `vf` of a port: CARD/NUMBER, or with settings"}
_ONE = {
    "anyOf": [
        {"enum": list(WORDS)},
        {
            "type": "object",
            "properties": {_PASSTHROUGH: {"anyOf": [{"type": "string", "pattern": PCI_ADDRESS}, _FUNCTION_SCHEMA]}},
            "required": [_PASSTHROUGH],
            "additionalProperties": False,
        },
    ]
}
Interfaces = Annotated[
    list[str],
    BeforeValidator(_expand),
    PlainSerializer(_as_written),
    WithJsonSchema({"anyOf": [_ONE, {"type": "array", "minItems": 1, "items": _ONE}]}),
]
