"""What only shows when the parts of a spec are looked at together: names, and what is in two places at once."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import product

from tailrace.spec import units
from tailrace.spec.model import RESERVED_NAMES, TESTER_ENDS, Chain, Spec, replica_name
from tailrace.spec.port import PortRate, RateTo
from tailrace.spec.position import Document, Location, naming
from tailrace.spec.source import SpecError
from tailrace.spec.traffic import IMIX_MEAN, SMALLEST_FRAME, Traffic, packet_rates
from tailrace.spec.virtual_function import VirtualFunction


def cross_check(document: Document, spec: Spec, left_out: Collection[Location] = ()) -> list[SpecError]:
    """Everything wrong with a spec whose parts are sound each.

    `left_out` is what stands in the file and is not in the spec, because it is wrong: nothing is said that rests on its
    absence.
    """
    check = _Check(document, spec, left_out)
    check.names()
    check.ports()
    check.stations()
    check.functions()
    check.chains()
    check.bridges()
    check.mirrors()
    check.pins()
    check.tests()
    return check.problems


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {near[0]}?)" if near else ""


class _Check:
    def __init__(self, document: Document, spec: Spec, left_out: Collection[Location]) -> None:
        self.document = document
        self.spec = spec
        self.left_out = left_out
        self.problems: list[SpecError] = []
        self.own_ports = [name for name in spec.ports if "." not in name]
        self.function_ports = {port: name for name, each in spec.functions.items() for port in each.port_names(name)}
        self.ends = [*TESTER_ENDS, *self.own_ports]
        self.further = [
            port
            for name, each in spec.functions.items()
            for port in each.port_names(name)[0 if each.passed_through else 2 :]
        ]
        """Ports of functions that no chain leads through."""
        self.devices: dict[str, str] = {}
        """Of each device outside, whose it is: a port's, a function's, or that of a chain's end as it is written."""
        self.in_chain: dict[str, str] = {}
        """Which chain an end or function was first seen in."""
        self.in_bridge: dict[str, str] = {}

    def at_key(self, location: Location, message: str) -> None:
        self.problems.append(SpecError(self.document.path, self.document.key(location), naming(location, message)))

    def at(self, location: Location, message: str) -> None:
        self.problems.append(self.document.mistake(location, message))

    def whole(self, *sections: str) -> bool:
        """Whether all entries of these sections are in the spec."""
        return not any(each[0] in sections and len(each) <= 2 for each in self.left_out)

    def lacks(self, *location: str | int) -> bool:
        """Whether what stands at a location, or around it, was left out."""
        return any(location[: len(each)] == each for each in self.left_out)

    def unknown(self, name: str) -> bool:
        """Whether nothing in the file has this name, or that of the function, port or chain that it is of (fw.0)."""
        owner = name.partition("/")[0].partition(".")[0]
        sections = ("functions", "ports", "chains")
        return not any(self.lacks(section, each) for section in sections for each in (name, owner))

    # --- names -----------------------------------------------------------------------------------------------------

    def names(self) -> None:
        spec = self.spec
        used: dict[str, str] = {}
        named: list[tuple[Location, str, str]] = [
            (("functions", name), replica_name(name, number), "a function" if number == 1 else f"a replica of {name}")
            for name, function in spec.functions.items()
            for number in function.replicas
        ]
        named += [(("ports", name), name, "a port") for name in self.own_ports]
        named += [(("chains", name), name, "a chain") for name in spec.chains]
        named += [(("bridges", name), name, "a bridge") for name in spec.bridges]
        for location, name, what in named:
            if name in RESERVED_NAMES and location[0] in ("functions", "ports"):
                self.at_key(
                    location,
                    f"the name {name!r} is Tailrace's own ({RESERVED_NAMES[name]}); "
                    f"expected another name for the {location[0][:-1] if isinstance(location[0], str) else ''}",
                )
            elif name in used:
                self.at_key(location, f"the name {name!r} is used twice ({used[name]} has it); expected each name once")
            used.setdefault(name, what)

    def ports(self) -> None:
        paths: dict[str, str] = {}
        for name, port in self.spec.ports.items():
            if "." in name and name not in TESTER_ENDS and name not in self.function_ports and self.unknown(name):
                known = ", ".join([*TESTER_ENDS, *self.function_ports])
                self.at_key(
                    ("ports", name),
                    f"{name!r} is a port of a function that is missing; expected one of {known}"
                    + _near(name, self.function_ports),
                )
            if "." in name and port.device is not None:
                self.at_key(("ports", name), f"{name!r} is a guest's port; expected a device under a name of its own")
            if port.device is not None:
                own = port.device.identities
                for same in own:
                    if same in self.devices:
                        uri = port.device.uri if len(own) == 1 else same
                        self.at_key(
                            ("ports", name),
                            f"{uri} is the port {self.devices[same]!r} already; expected each device once",
                        )
                    self.devices.setdefault(same, name)
            if port.path is not None:
                function = self.function_ports.get(name)
                if function is not None and len(self.spec.functions[function].replicas) > 1:
                    self.at(("ports", name, "path"), f"{function!r} has several replicas; expected no path of its own")
                same = os.path.normpath(port.path)
                if same in paths:
                    self.at(
                        ("ports", name, "path"),
                        f"{port.path} is the socket of {paths[same]!r}; expected each path once",
                    )
                paths.setdefault(same, name)
            owner = self.function_ports.get(name)
            started = owner is not None and self.spec.functions[owner].started
            if started and (port.path is not None or port.mode == "client"):
                self.at_key(
                    ("ports", name), f"{name!r} is a function's that Tailrace starts; expected queues, offloads or rate"
                )
        for name, each in self.spec.functions.items():
            for uri in (uri.partition(",")[0] for uri in each.passed_through):
                if uri in self.devices:
                    self.at(
                        ("functions", name, "interface"),
                        f"{uri} is {self.devices[uri]!r}'s already; expected each device once",
                    )
                self.devices.setdefault(uri, name)

    def stations(self) -> None:
        """A card gives the frames of an address in a VLAN to one of its functions."""
        found: list[tuple[Location, VirtualFunction]] = [
            (("ports", name), port.device.vf)
            for name, port in self.spec.ports.items()
            if port.device is not None and port.device.vf is not None
        ]
        found += [
            (("functions", name, "interface"), VirtualFunction.of_uri(each))
            for name, function in self.spec.functions.items()
            for each in function.passed_through
            if each.startswith("vf:")
        ]
        owners: dict[tuple[str, str, int | None], str] = {}
        for location, each in found:
            if each.mac is None:
                continue
            owner = owners.setdefault((each.of, each.mac, each.vlan), each.name)
            if owner != each.name:
                self.at(
                    location,
                    f"{each.name} has the mac {each.mac} and the VLAN of {owner}, and the card gives a frame to one of "
                    "them; expected a mac of its own, or another vlan",
                )

    # --- functions -------------------------------------------------------------------------------------------------

    def functions(self) -> None:
        """What is wrong between the settings of a function's kind."""
        for name, function in self.spec.functions.items():
            place: Location = ("functions", name, function.kind or "")
            if any(each[: len(place)] == place for each in self.left_out):
                continue
            for where, why in function.own_settings.problems():
                self.at((*place, *where), why)

    # --- chains ----------------------------------------------------------------------------------------------------

    def _path_location(self, chain: str, index: int) -> Location:
        long = ("chains", chain, "path", index)
        return long if long in self.document.values else ("chains", chain, index)

    def chains(self) -> None:
        everything: dict[str, str] = {}
        """For each end and function: the chain that takes every frame of it."""
        for name, chain in self.spec.chains.items():
            seen: set[str] = set()
            every_frame = not chain.match and not self.lacks("chains", name, "match")
            for index, hop in enumerate(chain.path):
                text = self._canonical(str(hop))
                if not self._hop(name, chain, index) or not text:
                    continue
                place = self._path_location(name, index)
                if hop.device is not None and text not in self.spec.ports:
                    for same in hop.device.identities:
                        if self.devices.setdefault(same, text) != text:
                            self.at(
                                place, f"{same} belongs to {self.devices[same]!r} already; expected each device once"
                            )
                if text in seen:
                    self.at(
                        place,
                        f"{text!r} is used twice (first in the chain {name!r}); "
                        "expected each end and function once in a chain",
                    )
                elif every_frame and text in everything:
                    self.at(
                        place,
                        f"{text!r} is used twice (first in the chain {everything[text]!r}), and both chains take every "
                        f"frame of it; expected each end and function in one place, or a `match:` for {name!r}",
                    )
                if every_frame:
                    everything.setdefault(text, name)
                seen.add(text)
                self.in_chain.setdefault(text, name)
        if not self.spec.chains and not self.spec.bridges and self.whole("chains", "bridges"):
            if "chains" in (self.document.data or {}):
                self.at_key(
                    ("chains",),
                    "there is no chain; expected at least one, such as `voice: [tester.a, first, tester.b]`",
                )
            else:
                self.at((), "the spec lacks 'chains'; expected the key `chains:` (or `bridges:`)")

    def _canonical(self, text: str) -> str:
        """A device that has a port of its own is that port, however it is written."""
        return self.spec.device_port(text) or text

    def _hop(self, name: str, chain: Chain, index: int) -> bool:
        """Whether what stands at one place of a chain may stand there."""
        hop = chain.path[index]
        place = self._path_location(name, index)
        at_end = index in (0, len(chain.path) - 1)
        is_end = hop.device is not None or hop.name in self.ends or hop.name in self.further
        known = ", ".join(self.spec.functions) or "none is defined"
        if not is_end and hop.name not in self.spec.functions and not self.unknown(hop.name or ""):
            return False
        if at_end and not is_end:
            ports = [*self.own_ports, *self.further]
            own = f", a port ({', '.join(ports)})" if ports else ""
            self.at(
                place,
                f"{str(hop)!r} cannot be a chain's end; expected tester.a, tester.b{own} "
                f"or a device such as {{if: veth0}}{_near(str(hop), ports)}",
            )
            return False
        if not at_end and is_end:
            self.at(place, f"{str(hop)!r} is an end and stands inside the chain; expected a function here ({known})")
            return False
        if not is_end and hop.name not in self.spec.functions:
            self.at(
                place,
                f"the chain {name!r} goes through {hop.name!r}, which is missing; "
                f"expected a function ({known}){_near(hop.name or '', self.spec.functions)}",
            )
            return False
        owner = self.function_ports.get(hop.name or "")
        if owner is not None and len(self.spec.functions[owner].replicas) > 1:
            self.at(place, f"{owner!r} has several replicas, through which a chain leads; expected one")
            return False
        if not is_end and len(self.spec.functions[hop.name or ""].port_names("")) < 2:
            self.at(place, f"{hop.name!r} has one port, and the chain {name!r} leads through it; expected 2 or more")
            return False
        return True

    # --- bridges and mirrors ---------------------------------------------------------------------------------------

    def bridges(self) -> None:
        for name, bridge in self.spec.bridges.items():
            listed = list(bridge.ports)
            for port in listed:
                long = ("bridges", name, "ports", port)
                location: Location = long if long in self.document.values else ("bridges", name, listed.index(port))
                if location not in self.document.values:
                    location = ("bridges", name, "ports", listed.index(port))
                function = self.function_ports.get(port)
                carrier = port if port in self.further else function or port
                if port not in self.ends and function is None:
                    known = ", ".join([*self.ends, *self.function_ports])
                    near = _near(port, [*self.ends, *self.function_ports])
                    if not self.unknown(port):
                        continue
                    self.at_key(location, f"{port!r} is no port; expected one of {known}{near}")
                elif port in self.in_bridge:
                    self.at_key(
                        location,
                        f"{port!r} is in the bridge {self.in_bridge[port]!r}; expected each port in one bridge",
                    )
                elif carrier in self.in_chain:
                    self.at_key(
                        location,
                        f"{carrier!r} is in the chain {self.in_chain[carrier]!r} and cannot be in a bridge too; "
                        "expected a chain or a bridge",
                    )
                elif function is not None and len(self.spec.functions[function].replicas) > 1:
                    self.at_key(
                        location, f"{function!r} has several replicas, which only a chain shares out; expected one"
                    )
                self.in_bridge.setdefault(port, name)

    def mirrors(self) -> None:
        taken: dict[str, str] = {}
        ports, used = [*self.ends, *self.function_ports], self.used_ports()
        for name, mirror in self.spec.mirrors.items():
            at: Location = ("mirrors", name)
            if mirror.port in ports and mirror.port not in used and self.whole("chains", "bridges", "mirrors"):
                self.at(
                    (*at, "port"),
                    f"{mirror.port!r} is in no chain and no bridge; expected one of {', '.join(used)}",
                )
            if mirror.port is not None and mirror.port not in ports and self.unknown(mirror.port):
                self.at(
                    (*at, "port"),
                    f"{mirror.port!r} is no port; expected one of {', '.join(ports)}{_near(mirror.port, ports)}",
                )
            if mirror.chain is not None and mirror.chain not in self.spec.chains and self.unknown(mirror.chain):
                self.at(
                    (*at, "chain"),
                    f"{mirror.chain!r} is no chain; expected one of {', '.join(self.spec.chains)}"
                    + _near(mirror.chain, self.spec.chains),
                )
            where = None
            if mirror.to in self.in_chain:
                where = f"in the chain {self.in_chain[mirror.to]!r}"
            elif mirror.to in self.in_bridge:
                where = f"in the bridge {self.in_bridge[mirror.to]!r}"
            elif mirror.to in taken:
                where = f"where the mirror {taken[mirror.to]!r} leads"
            elif mirror.to not in self.ends and self.unknown(mirror.to):
                where = "no port of its own"
            if where is not None:
                self.at((*at, "to"), f"{mirror.to!r} is {where}; expected a port that carries nothing but the copies")
            taken.setdefault(mirror.to, name)

    # --- the rest --------------------------------------------------------------------------------------------------

    def pins(self) -> None:
        fabric = self.spec.fabric
        workers = fabric.number
        used = self.used_ports()
        counted = self.lacks("fabric", "workers") or self.lacks("fabric", "cores")
        for key, worker in fabric.pins.items():
            at: Location = ("fabric", "pins", key)
            port, _, number = key.partition("/")
            if port not in self.ends and port not in self.function_ports:
                if self.unknown(port):
                    self.at_key(at, f"{key!r} is no queue of a port; expected PORT/NUMBER, such as tester.a/0")
            elif port not in used:
                if self.whole("chains", "bridges", "mirrors"):
                    self.at_key(at, f"{port!r} is in no chain and no bridge; expected one of {', '.join(used)}")
            elif not re.fullmatch("0|[1-9][0-9]{0,4}", number) or (
                int(number) >= self.queues(port) and not self.lacks("ports", port, "queues")
            ):
                self.at_key(at, f"{port!r} has {self.queues(port)} queue(s); expected PORT/NUMBER from {port}/0")
            if worker < 0 or (worker >= workers and not counted):
                self.at(
                    at, f"{worker} is no worker; expected a number from 0 to {workers - 1} (`workers:` says how many)"
                )

    def used_ports(self) -> list[str]:
        """The ports that the switch will have: functions and the tester's ends only where something leads to them."""
        spec = self.spec
        named = [hop.name for chain in spec.chains.values() for hop in chain.path if hop.name is not None]
        named += [port for bridge in spec.bridges.values() for port in bridge.ports]
        places = [self.function_ports.get(port, port) for port in named]
        places += [mirror.to for mirror in spec.mirrors.values()]
        ends = [end for end in TESTER_ENDS if end in places]
        # The first replica has the function's own name, and there may be others only.
        first = [name for name, function in spec.functions.items() if name in places and 1 in function.replicas]
        return [*ends, *self.own_ports, *(port for port, name in self.function_ports.items() if name in first)]

    def queues(self, port: str) -> int:
        return self.spec.ports[port].queues if port in self.spec.ports else 1

    def tests(self) -> None:
        if self.spec.tests and self.spec.tester_chain() is None and self.whole("chains"):
            self.at_key(("tests", 0), "nothing to measure: no chain runs from tester.a to tester.b; expected one")
        for index, test in enumerate(self.spec.tests):
            if any(each[:2] == ("tests", index) for each in self.left_out):
                continue
            if test in self.spec.tests[:index]:
                first = self.document.value(("tests", self.spec.tests.index(test)))
                self.at(
                    ("tests", index),
                    f"the same test is on line {first.line}; expected each test once (`--repeat` measures it again)",
                )
            for why in rates_beyond(self.spec, test.settings):
                self.at(("tests", index, test.kind, "rate"), why)


def rates_beyond(spec: Spec, settings: Traffic) -> Iterator[str]:
    """Why rates that a test gives outright do not fit the ports of the chain that is measured, where these have one."""
    rates = packet_rates(settings)
    sizes = [IMIX_MEAN if frames == "imix" else float(frames) for frames in settings.frames]
    size = max(sizes) if settings.pcap is None else float(SMALLEST_FRAME)
    found = spec.tester_chain()
    through = [name for name in (found[1].through if found else []) if name in spec.functions]
    # Replicas share what comes.
    alone = [name for name in through if len(spec.functions[name].replicas) == 1]
    for end in [*TESTER_ENDS, *(f"{name}.{side}" for name in alone for side in (0, 1))]:
        rate = spec.ports[end].rate if end in spec.ports else PortRate()
        # Both ways at once: each port sends what is asked for, and is sent it.
        limits: list[tuple[str, PortRate | RateTo]] = [("rate", rate), ("rate.to", rate.to)]
        for pps, (at, limit) in product(rates, limits):
            if limit.packets is not None and pps > limit.packets:
                most, key = units.show_packet_rate(limit.packets), "packets"
            elif limit.max is not None and pps * size * 8 > limit.max:
                most, key = units.show_bit_rate(limit.max), "max"
            else:
                continue
            yield (
                f"{units.show_packet_rate(round(pps))} of {size:g} B frames is more than {end} may carry; expected at "
                f"most {most} (ports.{end}.{at}.{key})"
            )
