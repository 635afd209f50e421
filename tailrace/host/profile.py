"""Profiles: which knob gets which value, and how many cores each role gets. A profile may inherit another.

The published ones stand in host/profiles/; a user's own is a YAML file of the same form:

    inherits: latency
    roles: {system: 2, switch: 1, vnf: rest}
    knobs: {idle_latency: 10, audit_off: null}      # null: left alone

It is read by the core schema of YAML 1.2, as a spec is (docs/spec.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tailrace.errors import Mistake
from tailrace.host.knobs import KNOBS
from tailrace.resources.roles import ROLES
from tailrace.spec import core_schema

FOLDER = Path(__file__).parent / "profiles"
_KEYS = ("about", "inherits", "roles", "knobs")


@dataclass(frozen=True)
class Profile:
    """What is wanted, whatever the machine."""

    name: str
    about: str
    roles: Mapping[str, int | str]
    knobs: Mapping[str, Any]
    """Values by knob; a knob that is not in it is left alone."""
    line: tuple[str, ...] = field(default=())
    """The profiles it inherits, nearest first."""
    reference: str = ""
    """What `load_profile` finds it by again, wherever the command runs."""


def profile_names() -> list[str]:
    """The profiles that come with Tailrace."""
    order = ("vanilla", "throughput", "latency", "optimized-1", "optimized-2")
    return [name for name in order if (FOLDER / f"{name}.yaml").is_file()]


def load_profile(name: str, _seen: tuple[str, ...] = ()) -> Profile:
    """The profile of a name, or in a file whose path has a `/` or ends in .yaml. Raises Mistake with file and key."""
    own = _is_file(name)
    path = Path(name) if own else FOLDER / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Mistake(f"{path}: not text in UTF-8; expected a YAML file") from None
    except OSError as error:
        known = ", ".join(profile_names())
        raise Mistake(
            f"{path}: {error.strerror}" if own else f"no profile {name!r}; expected {known}, or a YAML file"
        ) from None
    place = str(path.resolve())
    if place in _seen:
        raise Mistake(f"{path}: inherits itself, by {' → '.join((*_seen, place))}")
    try:
        data = core_schema.read(text)
        data = {} if data is None else data
    except yaml.YAMLError as error:
        raise Mistake(f"{path}: {str(error).replace(chr(10), ' ')}") from None
    if not isinstance(data, dict):
        raise Mistake(f"{path}: expected a mapping with {', '.join(_KEYS)}")
    for key in data:
        if key not in _KEYS:
            raise Mistake(f"{path}: {key}: unknown; expected {', '.join(_KEYS)}")
    base = _base(path, data.get("inherits"), (*_seen, place))
    knobs = {**(base.knobs if base else {}), **_knobs(path, data.get("knobs") or {})}
    return Profile(
        path.stem if own else name,
        str(data.get("about") or (base.about if base else "")),
        {**(base.roles if base else {}), **_roles(path, data.get("roles") or {})},
        {knob: value for knob, value in knobs.items() if value is not None},
        (base.name, *base.line) if base else (),
        str(path.absolute()) if own else name,
    )


def _is_file(name: str) -> bool:
    """Whether a profile's name is a path."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def _base(path: Path, name: Any, seen: tuple[str, ...]) -> Profile | None:
    """What the profile in a file inherits; a path is relative to the file's folder."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise Mistake(f"{path}: inherits: {name!r} is wrong; expected a profile's name, or a YAML file")
    try:
        return load_profile(str((path.parent / name).absolute()) if _is_file(name) else name, seen)
    except Mistake as error:
        raise Mistake(f"{path}: inherits: {error}") from None


def _knobs(path: Path, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise Mistake(f"{path}: knobs: expected a mapping of knobs and values")
    for name, value in values.items():
        knob = KNOBS.get(name)
        if knob is None:
            near = [known for known in KNOBS if str(name) in known or known in str(name)]
            hint = f"; did you mean {near[0]}?" if near else "; `tailrace host knobs` lists them"
            raise Mistake(f"{path}: knobs.{name}: there is no such knob{hint}")
        if value is not None and not knob.known(value):
            raise Mistake(f"{path}: knobs.{name}: {value!r} is wrong; it takes {knob.takes}")
    return values


def _roles(path: Path, values: Any) -> dict[str, int | str]:
    if not isinstance(values, dict):
        raise Mistake(f"{path}: roles: expected a mapping of {', '.join(ROLES)}")
    for role, count in values.items():
        if role not in ROLES:
            raise Mistake(f"{path}: roles.{role}: unknown; expected {', '.join(ROLES)}")
        words = ("rest", "spare", *(["auto"] if role == "system" else []))
        if count not in words and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            known = ", ".join(f"`{word}`" for word in words)
            raise Mistake(f"{path}: roles.{role}: {count!r} is wrong; expected a number of cores, or {known}")
    return values
