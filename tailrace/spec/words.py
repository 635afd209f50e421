"""What should have been where a value is wrong, in plain words: pydantic's own are those of a programmer."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

_WORDS = {
    "dict_type": "names, each with what it is",
    "list_type": "a list, with `- ` or [ ]",
    "too_short": "at least one item",
    "string_type": "a text",
    "string_unicode": "a text in UTF-8",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
_OUTSIDE = ("greater_than_equal", "less_than_equal")


def expected(details: ErrorDetails, field: FieldInfo | None) -> str:
    """What should have been in the place of a value; `field`: of the model that it belongs to, where there is one."""
    kind, bounds_of = details["type"], details.get("ctx", {})
    limit = bounds_of.get("max_length")
    if kind in ("too_long", "string_too_long"):
        return f"at most {limit} items" if kind == "too_long" else f"a text of at most {limit} characters"
    if kind == "string_too_short":
        least = bounds_of["min_length"]
        return "a text that is not empty" if least == 1 else f"a text of at least {least} characters"
    if kind in _OUTSIDE and field is not None and None not in (bounds := _bounds(field)):
        return f"{bounds[0]} to {bounds[1]}"
    return _WORDS.get(kind) or details["msg"].removeprefix("Input should be ")


def _bounds(field: FieldInfo) -> tuple[Any, Any]:
    """The least and the most that a number may be; None: there is no such bound."""
    least, most = (
        next((found for each in field.metadata if (found := getattr(each, word, None)) is not None), None)
        for word in ("ge", "le")
    )
    return least, most
