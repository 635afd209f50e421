"""Addresses as every kind of function reads them: what none of them takes, said alike, and by the schema too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import jsonschema
import pytest
import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, WrapValidator

from tailrace.spec.addresses import nobody, read_host, read_interface, read_network
from tailrace.spec.fields import NAMES
from tailrace.spec.load import _PATTERNS, parse_spec
from tailrace.spec.model import Spec
from tailrace.spec.schema import schema_text
from tailrace.spec.source import SpecError

STATION = "'02:00:00:00:00:0b'"


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("0.0.0.5", "0.0.0.0/8"),
        ("127.0.0.1", "127.0.0.0/8"),
        ("239.1.1.1", "224.0.0.0/4"),
        ("255.255.255.255", "240.0.0.0/4"),
        ("::", "::/127"),
        ("::1", "::/127"),
        ("::ffff:10.0.0.1", "::ffff:0(:0|.0.0.0)/96"),  # the latter by Python from 3.13 on
        ("ff02::1", "ff00::/8"),
    ],
)
def test_of_some_networks_no_host_has_an_address(text: str, of: str) -> None:
    found = rf"is an address that no host has in a network \({of}\); expected one"
    with pytest.raises(ValueError, match=found):
        read_host(text, "expected one")
    with pytest.raises(ValueError, match=rf"has an address that no host has in a network \({of}\); expected one"):
        read_interface(f"{text}/{128 if ':' in text else 32}", "expected one")


def test_others_are_taken() -> None:
    for text in ("10.0.0.1", "169.254.0.1", "223.255.255.254", "1.0.0.0", "fe80::1", "::2", "2001:db8::"):
        assert str(read_host(text, "")) == text
    for text in ("10.0.0.0/31", "10.0.0.255/32", "2001:db8::/64"):
        assert str(read_interface(text, "")) == text
    assert nobody(read_network("198.51.100.0/24", "")) is None
    assert str(nobody(read_network("128.0.0.0/1", ""))) == "224.0.0.0/4"


#: By kind, what is refused in a place of it; the schema says so too, by patterns alone.
REFUSED = [
    ("router", "port0: '2001:db8::1%eth0/64'", "names a zone"),
    ("router", "port0: 10.0.0.1/255.255.255.0", "has a mask"),
    ("router", "port0: 10.0.0.1/24, routes: {10.2.0.0/255.255.0.0: 10.0.0.2}", "has a mask"),
    ("router", "port0: '2001:db8::1/64', routes: {'2001:db9::%x/48': '2001:db8::2'}", "names a zone"),
    ("router", "port0: '2001:db8::1/64', routes: {'2001:db9::/48': '2001:db8::2%x'}", "names a zone"),
    ("router", f"port0: '2001:db8::1/64', neighbours: {{'2001:db8::2%x': {STATION}}}", "names a zone"),
    ("nat", "pool: 198.51.100.0/255.255.255.240", "has a mask"),
    ("nat", "pool: 198.51.100.0/28, inside: 10.0.0.0/0.255.255.255", "has a mask"),
    ("balancer", "source: '2001:db8::1%eth0'", "names a zone"),
    ("firewall", "groups: {web: '2001:db8::%eth0/64'}", "names a zone"),
    ("firewall", "rules: [{action: deny, source: 10.0.0.0/255.0.0.0}]", "has a mask"),
    ("firewall", "rules: [{action: deny, source: '2001:db8::1%eth0'}]", "names a zone"),
    ("tunnel", "vni: 1, local: '2001:db8::1%eth0', remote: '2001:db8::2'", "names a zone"),
]


@pytest.mark.parametrize(("kind", "words", "said"), REFUSED)
def test_zones_and_masks_are_refused_by_every_kind_and_by_the_schema(kind: str, words: str, said: str) -> None:
    text = f"functions: {{f: {{kind: {kind}, {kind}: {{{words}}}}}}}\nchains: {{c: [tester.a, f, tester.b]}}\n"
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json.loads(schema_text()))


def inside(annotation: Any, seen: set[Any], said: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every type in a model, with what is said about it."""
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        yield from inside(inner, seen, (*said, *more))
        return
    yield annotation, said
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen.add(annotation)
            for field in annotation.model_fields.values():
                yield from inside(field.annotation, seen, tuple(field.metadata))
        return
    for each in get_args(annotation):
        yield from inside(each, seen)


def test_keys_that_have_several_spellings_are_there_once() -> None:
    """A dictionary keeps the last of two keys that become the same."""
    found = 0
    for annotation, said in inside(Spec, set()):
        if get_origin(annotation) is not dict:
            continue
        read = getattr(get_args(annotation)[0], "__metadata__", ())
        if any(isinstance(each, BeforeValidator | AfterValidator) for each in read):
            found += 1
            assert any(isinstance(each, WrapValidator) for each in said), annotation
    assert found == 3, "routes and neighbours of a router, failover of a machine"


def test_each_pattern_has_words() -> None:
    patterns: set[str] = set()
    for _, said in inside(Spec, set()):
        for each in said:
            for general in (each, *getattr(each, "metadata", ())):
                patterns |= {general.pattern} if isinstance(getattr(general, "pattern", None), str) else set()
    assert len(patterns) > 5
    assert patterns <= {*_PATTERNS, *NAMES}, patterns - {*_PATTERNS, *NAMES}
