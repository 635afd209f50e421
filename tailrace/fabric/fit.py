"""Which words of a spec a fabric cannot carry.

Every fabric carries chains of functions between two ports, frames as they come; what else a spec can say is
Tailrace's own. A word that would be left out in silence would make a comparison of two different things.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.fabric.kinds import Kind
from tailrace.spec.model import TESTER_ENDS, Spec


def words_beyond(spec: Spec) -> list[str]:
    """The words of a spec that only Tailrace's own switch carries, as paths in it: `chains.voice.match`."""
    return list(_words(spec))


def check_fits(spec: Spec, kind: Kind) -> str | None:
    """Why a fabric cannot carry a spec, with the words; None if it can."""
    words = words_beyond(spec)
    if not words or kind.name == "tailrace":
        return None
    return f"{kind.name} cannot carry {', '.join(words)}"


def _words(spec: Spec) -> Iterator[str]:
    for name, port in spec.ports.items():
        for word in sorted(port.model_fields_set - {"mode"}):
            yield f"ports.{name}.{word}"
    for name, function in spec.functions.items():
        if not function.started:
            yield f"functions.{name}.runs: {function.runs}"
        if len(function.replicas) > 1:
            yield f"functions.{name}.replicas"
        for word in sorted(function.model_fields_set & {"interface", "driver"}):
            yield f"functions.{name}.{word}"
    for name, chain in spec.chains.items():
        if chain.match:
            yield f"chains.{name}.match"
        if chain.priority:
            yield f"chains.{name}.priority"
        if set(chain.ends) != set(TESTER_ENDS):
            yield f"chains.{name} (it does not run from tester.a to tester.b)"
    for section in ("bridges", "mirrors"):
        for name in getattr(spec, section):
            yield f"{section}.{name}"
    if spec.trace is not None:
        yield "trace"
    for word in sorted(spec.fabric.model_fields_set & {"workers", "cores", "pins", "user"}):
        yield f"fabric.{word}"
