"""A switch with a port for each end of a tester, for tests that look at what passes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from running_switch import RunningSwitch
from running_tester import RunningTester


class Watched:
    """The two, ready for traffic."""

    def __init__(self, switch: RunningSwitch, tester: RunningTester) -> None:
        self.switch = switch
        self.tester = tester

    def drops(self, *ports: str) -> dict[str, int]:
        """What was dropped because of these ports, by reason."""
        found: dict[str, int] = {}
        for port in ports:
            for name, count in self.switch.counters(port).items():
                if name.startswith("drop_") and count:
                    found[name] = found.get(name, 0) + count
        return found


@contextmanager
def watched_switch(binaries: Path, folder: Path, names: str, config: dict[str, Any]) -> Iterator[Watched]:
    """A port for each letter of `names`; `config` is merged into the switch's configuration."""
    switch = RunningSwitch(binaries / "switch/tailrace-switch", folder)
    try:
        paths = {name: switch.add_guest(name) for name in names}
        switch.patch(**config)
        tester = RunningTester(
            binaries / "tester/tailrace-tester", folder, {name: f"vhost:{path}" for name, path in paths.items()},
            "--core", "0",
        )  # fmt: skip
        try:
            for name in names:
                switch.wait_state(name, "up")
            yield Watched(switch, tester)
        finally:
            tester.end()
    finally:
        assert switch.end() == 0
    assert not list(folder.glob("page*"))
