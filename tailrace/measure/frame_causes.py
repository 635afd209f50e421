"""Why the slowest frames of a trial are slow: their way through the switch, explained by `cause_meter.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from tailrace.measure.cause_meter import CauseMeter, Passage
from tailrace.measure.causes import Holders, Hop
from tailrace.measure.hops import Sighting, cut, function_name
from tailrace.observe.hop_trace import Record
from tailrace.results.causes import Causes


@dataclass
class FrameCauses(CauseMeter):
    """The causes of slow frames, for one trial after the other."""

    worker_of: Callable[[str], str] = field(kw_only=True)
    """The worker that polls a port of the switch."""

    def explain(
        self, slowest: Iterable[Sighting], records: Mapping[int, list[Record]], ports: Sequence[str], hz: int
    ) -> Causes:
        """The causes of these frames; `ports` are the switch's, by their numbers; `hz` as the tester has measured."""
        numbers = {name: number for number, name in enumerate(ports)}
        return self.explain_passages(self._passages(slowest, records, numbers), hz, numbers)

    def _passages(
        self, slowest: Iterable[Sighting], records: Mapping[int, list[Record]], numbers: Mapping[str, int]
    ) -> Iterator[Passage]:
        for sighting in sorted(slowest, key=lambda each: each.sent - each.received):
            hops = sorted(records.get(sighting.key, ()), key=lambda record: record.arrived)
            found = cut(sighting, hops)
            if found is not None:
                way, cycles = found
                times = list(accumulate(cycles, initial=sighting.sent))
                yield Passage(sighting, way, times, self.holders(hops, numbers))

    def holders(self, records: Sequence[Record], numbers: Mapping[str, int]) -> list[Holders]:
        """Who had the frame in each part of its way, by the records of its hops and the numbers of ports."""
        pollers = self.pollers
        tester = pollers.get("tester")
        workers = [pollers.get(self.worker_of(record.source)) for record in records]
        functions = [pollers.get(function_name(record.target, after.source)) for record, after in pairwise(records)]
        hops = tuple(
            Hop(worker, numbers.get(record.source, -1), numbers.get(record.target, -1), record.target, receiver)
            for record, worker, receiver in zip(records, workers, [*functions, tester], strict=True)
        )
        found = [Holders(workers[0], tester, hops)]
        for number, worker in enumerate(workers):
            found.append(Holders(worker))
            if number < len(functions):
                found.append(Holders(functions[number], workers[number + 1], hops[number + 1 :]))
        found.append(Holders(tester, workers[-1]))
        return found
