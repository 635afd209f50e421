"""A function that somebody else runs, in a machine, a container or a program of theirs: the switch waits for it."""

from __future__ import annotations

from tailrace.functions.runtime import Runtime


class Guest(Runtime):
    """Nothing is known of it but what the switch says of its ports."""

    name = "guest"
    counted = "guest"

    def refuses_cpus(self, kind: str | None, start: int, most: int) -> str | None:
        del kind, start
        return None if most == 1 else f"{most} CPUs, which a guest has from whoever runs it; expected 1"
