"""Alarms: rules held against each picture, the service's events, and what is looked at now and then.

A condition rings when it begins, and again only after it was over for some seconds. Used by the event loop, except
`check`, which a thread calls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import compress
from operator import is_not
from typing import Any

from tailrace.dashboard.host import Host
from tailrace.dashboard.measurement import Measurement
from tailrace.dashboard.rules import Rule, Rules
from tailrace.dashboard.turns import Document
from tailrace.dashboard.webhook import Webhooks
from tailrace.node.events import stamp

KEPT = 50
_EVERY = 0.25
"""Seconds between two looks at a picture."""
_QUIET = 5.0
"""Seconds that a condition has to be over before it rings again."""
DOWN = ("down", "removed", "gone", "quarantined")
"""States of ports whose device or guest is gone."""
_EVENTS = {
    "drift": ("node.drifted",),
    "node-failed": ("node.unreadable", "node.failed", "switch.died", "switch.failed", "card.lost"),
    "function-restarted": ("function.died", "function.unhealthy", "function.failed"),
}
"""What of the service's events a rule is about."""


class Alarms:
    """The alarms of one node."""

    def __init__(self, rules: Rules, host: Host, measurement: Measurement) -> None:
        self._rules = rules.rules
        self._host, self._measurement = host, measurement
        self.webhooks = Webhooks([each.url for each in rules.webhooks])
        self._kept: deque[tuple[str, dict[str, Any]]] = deque(maxlen=KEPT)
        self._rung = 0
        self._looked = float("-inf")
        self._seen: dict[tuple[Rule, str], float] = {}
        """When each condition was last true."""
        self._told: dict[str, str] = {}
        """Events of the service that were told, by number with their time: numbers begin anew with the service."""
        self._chains: Document = {}
        """As they were last looked at."""
        self._losing: dict[str, dict[str, float]] = {}
        """Of those that drop frames: how many a second by reason."""
        self._slow: list[tuple[Rule, str, str]] = []
        self._counted: tuple[str, int, float] = "", 0, 0.0

    def look(self, document: Document, events: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What the bell has to say: the service's events, and conditions that have begun."""
        now = time.monotonic()
        true: list[tuple[Rule, str, str]] = []
        if now - self._looked >= _EVERY:  # there may be a thousand chains
            true = [*self._conditions(document), *self._slow]
            self._looked = now
        for rule, about, kind in true:
            if now - self._seen.get((rule, about), float("-inf")) > _QUIET:
                self._ring(rule, about, kind)
            self._seen[rule, about] = now
        self._seen = {each: when for each, when in self._seen.items() if now - when <= _QUIET}
        for number, event in events.items():
            told_by = self._rule_of(event)
            if told_by and self._told.get(number) != event["time"]:
                self.webhooks.tell({**event, "level": told_by.level})
        self._told = {number: event["time"] for number, event in events.items()}
        shown = {number: event for number, event in events.items() if not self._is_port(event)}
        return {**shown, **dict(self._kept), **self.webhooks.failures}

    def check(self) -> None:
        """Looks at what takes longer: the host's tuning, and the measurement under way."""
        found: list[tuple[Rule, str, str]] = []
        for rule in self._on("drift"):
            verify = self._host.verify()
            if verify.get("lost") and rule.fits("host"):
                found.append((rule, "host", f"drift: {len(verify['places'])} places are not as they were set"))
        if any(self._on("out-of-sequence")):
            run, rate = self._reordered()
            found += [
                (rule, run, f"out of sequence: {rate:.0f} frames a second")
                for rule in self._on("out-of-sequence")
                if rate > rule.above and rule.fits(run)
            ]
        self._slow = found

    def _reordered(self) -> tuple[str, float]:
        """The measurement under way, and how many frames a second came out of sequence since the last look."""
        said, now = self._measurement.document(), time.monotonic()
        run = said.get("run", "") if said.get("state") == "running" else ""
        count = sum(way["out_of_sequence"] for way in said.get("ways", ()))
        (before, old, when), self._counted = self._counted, (run, count, now)
        return run, max(count - old, 0) / max(now - when, 1e-9) if run and run == before else 0.0

    def _conditions(self, document: Document) -> Iterator[tuple[Rule, str, str]]:
        """Of the picture: each rule that is fulfilled, by whom, and what is to be said."""
        chains, last = document.get("chains", {}), self._chains
        self._losing = {name: drops for name, drops in self._losing.items() if name in chains}
        for name in compress(chains, map(is_not, chains.values(), map(last.get, chains))):  # of a thousand a few
            if drops := _drops(chains[name]):
                self._losing[name] = drops
            else:
                self._losing.pop(name, None)
        self._chains = chains
        for rule in self._on("loss"):
            for name, drops in self._losing.items():
                if sum(drops.values()) > rule.above and rule.fits(name):
                    yield rule, name, f"loss: {max(drops, key=drops.__getitem__)}"
        for rule in self._on("port-down"):
            for name, port in document.get("ports", {}).items():
                if port["state"] in DOWN and rule.fits(name):
                    yield rule, name, f"port {port['state']}"

    def _ring(self, rule: Rule, about: str, kind: str) -> None:
        self._rung += 1
        alarm = {"time": stamp(time.time()), "kind": kind, "level": rule.level, "about": about}
        self._kept.append((f"rule {self._rung}", alarm))
        self.webhooks.tell(alarm)

    def _on(self, what: str) -> Iterator[Rule]:
        return (rule for rule in self._rules if rule.when == what)

    def _rule_of(self, event: Mapping[str, Any]) -> Rule | None:
        return next(
            (r for r in self._rules if event["kind"] in _EVENTS.get(r.when, ()) and r.fits(event["about"])), None
        )

    def _is_port(self, event: Mapping[str, Any]) -> bool:
        """Whether a rule says the same of what is seen in the picture."""
        return event["kind"].startswith("port.") and any(rule.fits(event["about"]) for rule in self._on("port-down"))


def _drops(chain: Document) -> dict[str, float]:
    """Frames a second by reason."""
    found: dict[str, float] = {}
    for hop in chain["hops"].values():
        for way in hop.values():
            for reason, drop in way["drops"].items():
                if drop["rate"]:
                    found[reason] = found.get(reason, 0.0) + drop["rate"]
    return found
