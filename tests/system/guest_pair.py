"""Two guests on one chain of a switch: what most tests of guest ports move frames between."""

from __future__ import annotations

import struct
from collections.abc import Callable

from front_end import FrontEnd
from running_switch import RunningSwitch


class GuestPair:
    def __init__(self, switch: RunningSwitch, names: tuple[str, str], *kinds: Callable[[], FrontEnd]) -> None:
        """Guests with split rings, unless `kinds` has one kind for both or one for each."""
        self.switch = switch
        self.names = names
        first, second = (kinds * 2)[:2] or (FrontEnd, FrontEnd)
        self.guests = [first(), second()]
        self.paths = [switch.add_guest(name) for name in names]
        switch.join(*names)
        for guest, path in zip(self.guests, self.paths, strict=True):
            guest.start(path)
        for name in names:
            switch.wait_state(name, "up")

    def exchange(self, count: int = 20) -> None:
        """Frames cross both ways whole and in order."""
        for sender, receiver in ((0, 1), (1, 0)):
            frames = [struct.pack("<HI", count, i) * 10 for i in range(count)]
            self.guests[receiver].offer_buffers(count)
            for frame in frames:
                self.guests[sender].send(frame)
            try:
                assert self.guests[receiver].wait_received(count) == frames
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        """What the switch says about the two ports, for a test that fails."""
        lines = []
        for name in self.names:
            counted = {counter: count for counter, count in self.switch.counters(name).items() if count}
            lines.append(f"{self.switch.port(name)} {counted}")
        return "\n".join(lines)

    def restart(self, which: int) -> None:
        """The guest comes back with a new connection and a driver that starts anew."""
        guest, name = self.guests[which], self.names[which]
        guest.close()
        self.switch.wait_state(name, "waiting")
        guest.reset()
        guest.start(self.paths[which])
        self.switch.wait_state(name, "up")

    def assert_untouched(self) -> None:
        for counters in map(self.switch.counters, self.names):
            assert not any(count for name, count in counters.items() if name.startswith("drop_")), counters
            assert counters["quarantines"] == 0

    def end(self) -> None:
        for guest in self.guests:
            guest.end()
