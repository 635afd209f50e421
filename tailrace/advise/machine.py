"""The parameters of a machine: each with its unit, what it means, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from tailrace.errors import Mistake
from tailrace.spec.core_schema import read

Kind = Literal["rate", "time"]


@dataclass(frozen=True)
class Parameter:
    """What a number of the model means."""

    unit: str
    meaning: str


PARAMETERS: Mapping[str, Parameter] = {
    "line_gbps": Parameter("Gbit/s", "the link's rate at layer 1"),
    "memory_gbps": Parameter("Gbit/s", "what all cores together read from memory and write to it"),
    "card_mpps": Parameter("Mpps", "frames a second that the card handles, each way counted once"),
    "pcie_gbps": Parameter("Gbit/s", "what PCIe carries from the card to memory, packets' headers included"),
    "direct_ns": Parameter("ns", "a frame's way through a function on a virtual function, beside its way across PCIe"),
    "vhost_ns": Parameter("ns", "a frame's way through a function that the switch feeds from the card"),
    "vhost_byte_ns": Parameter("ns/B", "the same for each byte, which is copied"),
    "hop_ns": Parameter("ns", "a frame's hop from one function to the next by the switch, on a core for each hop"),
    "hop_byte_ns": Parameter("ns/B", "the same for each byte, which is copied"),
    "worker_ns": Parameter("ns", "a frame's hop by Tailrace's switch, on one of its cores"),
    "worker_byte_ns": Parameter("ns/B", "the same for each byte, which is copied"),
    "function_ns": Parameter(
        "ns", "a frame's way through a function that Tailrace's switch feeds, on the function's core"
    ),
    "function_byte_ns": Parameter("ns/B", "the same for each byte"),
    "poller_ns": Parameter("ns", "a frame's handling by the core that polls the card for the switch"),
    "poller_cache_kib": Parameter("KiB", "the cache in which that core holds the functions' rings and frames"),
    "poller_miss_ns": Parameter("ns", "what a frame takes longer there if none of it is in that cache"),
    "poller_byte_ns": Parameter("ns/B", "the same for each byte"),
    "poller_line": Parameter("part", "how much of the link's rate that core takes without loss"),
    "kernel_mpps": Parameter("Mpps", "frames a second that the kernel's switch forwards if no more are offered"),
    "kernel_drop_mpps": Parameter("Mpps", "frames a second whose dropping takes half of the kernel's time"),
    "stack_gbps": Parameter("Gbit/s", "what a TCP stream carries on the link"),
    "stack_virtio_ns": Parameter("ns", "a message's way through the guest's stack and the kernel's virtio"),
    "stack_vhost_ns": Parameter("ns", "the same and the switch's vhost-user"),
    "stack_direct_ns": Parameter("ns", "the same and a virtual function of the card"),
    "stack_byte_ns": Parameter("ns/B", "the same for each byte"),
    "stack_direct_byte_ns": Parameter("ns/B", "the same for each byte, on a virtual function of the card"),
}
FACTS = ("line_gbps", "memory_gbps")
"""Those that are known of a machine, and not fitted."""
Distance = Literal["siblings", "near", "far"]
"""As `tailrace bench` tells them apart: two threads of one core, two cores of one last-level cache, or farther."""
DISTANCES: tuple[Distance, ...] = get_args(Distance)
SHIPPED = "xeon-e5-2699v4-xl710"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


LEAST, MOST = 1e-9, 1e9
"""Of any parameter's value."""


class Value(_Strict):
    """A parameter of one machine."""

    value: Annotated[float, Field(ge=LEAST, le=MOST, strict=True)]
    source: str
    low: Annotated[float | None, Field(strict=True)] = None
    """The ends of its 95 % interval by bootstrap, where it was fitted: 95 % of fits to cells drawn again lie between,
    as many below as above."""
    high: Annotated[float | None, Field(strict=True)] = None


Size = Annotated[int, Field(ge=1, strict=True)]
Span = tuple[Size, Size]
"""The least and the most."""


def _in_order(span: Span) -> Span:
    if span[0] > span[1]:
        raise ValueError(f"{span[0]} to {span[1]}; expected the least, then the most")
    return span


_Written = Annotated[Span, AfterValidator(_in_order)]


class Calibrated(_Strict):
    """What the parameters were fitted to. What is not said bounds nothing."""

    frames: _Written | None = None
    """Bytes with FCS."""
    messages: _Written | None = None
    """Bytes that a TCP stack writes at once."""
    functions: _Written | None = None
    stacks: _Written | None = None
    """Guests whose TCP stacks send at once."""

    def beyond(self, size: int, functions: int, *, messages: bool = False) -> list[str]:
        """What of a question lies outside, with what was calibrated: its answer is extrapolated. Else empty."""
        what, span = ("messages", self.messages) if messages else ("frames", self.frames)
        whose, numbers = ("stacks", self.stacks) if messages else ("functions", self.functions)
        found = []
        if span is not None and not span[0] <= size <= span[1]:
            found.append(f"{what} of {size} B (calibrated: {_shown(span)} B)")
        if numbers is not None and not numbers[0] <= functions <= numbers[1]:
            many = f"1 {whose.removesuffix('s')}" if functions == 1 else f"{functions} {whose}"
            found.append(f"{many} (calibrated: {_shown(numbers)})")
        return found


def _shown(span: Span) -> str:
    least, most = span
    return f"{least}" if least == most else f"{least} to {most}"


class Machine(_Strict):
    """A machine as the model knows it. A parameter that is missing is one of what the machine has not."""

    name: str
    calibrated: Calibrated = Calibrated()
    distance: Distance | None = None
    """How far the core of the switch and that of the functions were from each other, where that is known: a frame's way
    from one to the other is among what both take."""
    parameters: dict[str, Value]

    def __getitem__(self, name: str) -> float:
        return self.parameters[name].value

    def __contains__(self, name: str) -> bool:
        return name in self.parameters

    def lacks(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these parameters that it has not, in their order."""
        return tuple(name for name in names if name not in self.parameters)

    def having(self, values: Mapping[str, float]) -> Machine:
        """The same with other values."""
        changed = {name: self.parameters[name].model_copy(update={"value": value}) for name, value in values.items()}
        return self.model_copy(update={"parameters": self.parameters | changed})


def read_machine(path: Path | None = None) -> Machine:
    """The machine of a file; of None the shipped one. Raises Mistake."""
    if path is None:
        text = (resources.files(__package__) / "machines" / f"{SHIPPED}.yaml").read_text()
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise Mistake(f"{path}: not text in UTF-8; expected a YAML file") from None
        except OSError as error:
            raise Mistake(f"{path}: {error.strerror}") from None
    try:
        data = read(text)
        if not isinstance(data, dict):
            what = {type(None): "nothing is in it", list: "a list"}.get(type(data), "a single value")
            raise Mistake(f"{path}: {_NO_MACHINE} ({what}); {_EXPECTED}")
        machine = Machine.model_validate(data)
    except yaml.YAMLError as error:
        words = " ".join(str(error).split())
        raise Mistake(f"{path}: {_NO_MACHINE} ({words[:200]})") from None
    except ValidationError as error:
        raise Mistake(f"{path}: {_NO_MACHINE}: {_wrong(error.errors(include_url=False))}; {_EXPECTED}") from None
    unknown = sorted(set(machine.parameters) - set(PARAMETERS))
    if unknown:
        raise Mistake(f"{path}: unknown parameters {', '.join(unknown)}; known are {', '.join(PARAMETERS)}")
    return machine


_NO_MACHINE = "not the parameters of a machine"
_EXPECTED = (
    "expected name, and of each of the parameters its value and source (docs/advise.md), as "
    "`tailrace advise calibrate` writes them"
)
_MOST_SAID = 5


def _wrong(found: Sequence[ErrorDetails]) -> str:
    """What does not fit, key by key."""
    said = []
    for each in found[:_MOST_SAID]:
        *around, key = map(str, each["loc"]) if each["loc"] else ("the file",)
        at = ".".join(around)
        if each["type"] == "missing":
            said.append(f"{at + ' ' if at else ''}lacks {key}")
        elif each["type"] == "extra_forbidden":
            said.append(f"unknown key {'.'.join([*around, key])}")
        elif each["type"] == "model_type":
            said.append(f"{'.'.join([*around, key])}: expected value and source")
        else:
            what = each["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
            given = "" if isinstance(each["input"], dict | list | tuple) else f" is {str(each['input'])[:40]!r}"
            said.append(f"{'.'.join([*around, key])}{given}: {what}")
    if len(found) > _MOST_SAID:
        said.append(f"and {len(found) - _MOST_SAID} more")
    return ", ".join(said)


def show_machine(machine: Machine) -> str:
    """As a file has it."""
    return yaml.safe_dump(machine.model_dump(exclude_none=True), sort_keys=False, allow_unicode=True, width=120)
