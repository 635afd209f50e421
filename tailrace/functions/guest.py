"""A function that somebody else runs, in a machine, a container or a program of theirs: the switch waits for it."""

from __future__ import annotations

from tailrace.functions.runtime import Runtime


class Guest(Runtime):
    """Nothing is known of it but what the switch says of its ports."""

    name = "guest"
