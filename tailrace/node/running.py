"""A plan made real: starts what it says in order, reports what stands, and takes it down again.

Everything is put on record before it is made (`tailrace.state.record`), so that `tailrace down` finds it after any end.
How one plan becomes another while frames move is `tailrace.node.change`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tailrace.errors import Failure, Fault, Mistake, Refused, TailraceError
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.functions.names import outer_name
from tailrace.functions.namespace import prepare_namespace
from tailrace.functions.runtime import Arrival, Instance, Origin
from tailrace.functions.runtimes import STARTERS, has_namespace
from tailrace.functions.show import tell
from tailrace.functions.threads import Resized
from tailrace.kernel.tree import Tree
from tailrace.node.change import change_over
from tailrace.node.claiming import check_free, claim_pages, claim_plans
from tailrace.node.difference import Change, Difference, difference, unlike
from tailrace.plan.make import Plan
from tailrace.plan.planned import PlannedFunction, PlannedPort
from tailrace.plan.usable import usable_cpus
from tailrace.process.process import undisturbed
from tailrace.process.programs import own_program
from tailrace.resources import hugepages
from tailrace.resources.claims import END_IT, taken
from tailrace.resources.ethtool import set_offloads
from tailrace.resources.interface import changes_for, check_interface
from tailrace.resources.ledger import claim_file, exclusive_of_others, forget_pages, own_claim
from tailrace.resources.pci import check_pci
from tailrace.resources.place import poller_node
from tailrace.resources.topology import allowed_cpus, read_cpus
from tailrace.spec.interface import passed_through
from tailrace.spec.model import LONGEST_SOCKET, TESTER_ENDS
from tailrace.state.card_functions import check_functions, take_functions
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import HugePages, Offloads, Process, State, peek
from tailrace.switch.config import configuration, instance_name, planned_port, socket_of, uri_of
from tailrace.switch.confine import check_user, close_folder, group_for, let_pass, make_folders

_ATTACH_SECONDS = 10.0
_AT_ONCE = 8
"""Instances that are started at the same time."""
_RECORD_SECONDS = 1.0
"""In which the record says that a process has been ended."""


@dataclass
class Node:
    """What is up under one state."""

    state: State
    plan: Plan
    launcher: Launcher
    fabric: TailraceFabric
    notes: list[str]
    origins: dict[str, Origin | Arrival] = field(default_factory=dict)
    """What functions that are started go on from, by name; the others start anew."""
    resized: dict[str, Resized] = field(default_factory=dict)
    """Functions whose CPUs are others now, by name."""
    began: float = field(default_factory=time.monotonic)
    """When what is being done was asked for."""

    @classmethod
    def of(cls, state: State, plan: Plan, *, logs: Path, tied: bool) -> Node:
        launcher = Launcher(state, logs, tied)
        return cls(state, plan, launcher, _fabric(plan, launcher), list(plan.notes))

    def log_to(self, logs: Path) -> None:
        """Sends the output of what is started from now on to another folder."""
        self.launcher = replace(self.launcher, logs=logs)
        self.fabric = _fabric(self.plan, self.launcher)

    def socket(self, port: str) -> Path:
        """Where the fabric listens for the guest of a port, or the guest for the fabric."""
        planned = next((each for each in self.plan.ports if each.name == port), PlannedPort(port, port))
        which = {each.name: self.state.record.instances.get(each.name, 1) for each in self.plan.functions}
        return socket_of(planned, self.state.sockets, which)

    def check(self) -> None:
        """Finds what is missing on this machine before anything is started. Raises Mistake with the cure."""
        own_program("tailrace-switch")
        for runtime in {each.runs for each in self.plan.started}:
            STARTERS[runtime].check()
        if self.plan.tester:
            own_program("tailrace-tester")
        self.check_cores()
        self.check_named()

    def check_named(self) -> None:
        """Whether the switch would take the plan's configuration, and this machine has what the spec names: user,
        interfaces, devices, folders, memory, which nobody else holds. Raises Refused."""
        self.fabric.would_take(configuration(self.plan, self.state.sockets, {}))
        if self.plan.user is not None:
            check_user(self.plan.user, self.state.folder)
        self.check_ports_of(self.plan.ports)
        check_functions(self.state, self.plan.vfs)
        check_free(self.state, self.plan, pages=self.plan.pages)

    def check_cores(self) -> None:
        """Whether the cores of the switch's workers are nobody else's. Raises Refused."""
        workers, others = self.plan.placement.workers, exclusive_of_others([self.state.folder])
        said = taken(workers)
        for core in self.plan.cores if said is None else ():
            if core in others:
                said = f"core {core} is held by {others[core].words}, and each would wait while the other runs"
        if said is not None:
            allowed = allowed_cpus()
            busy = {cpu.core for cpu in allowed if cpu.number in others or taken([cpu.number]) is not None}
            whole = {cpu.core: cpu.number for cpu in reversed(allowed) if cpu.core not in busy}
            free = sorted(whole.values())[-len(workers) :]
            choose = f"name {'another' if len(free) == 1 else 'others'} with `fabric: {{cores: {free}}}`, or "
            raise Refused(f"fabric.cores: {said}; {choose if len(free) == len(workers) else ''}{END_IT}")

    def check_ports_of(self, ports: Sequence[PlannedPort]) -> None:
        """Whether sockets and devices can be had. Raises Refused."""
        for port in ports:
            try:
                self._check_port(port)
            except Mistake as mistake:
                raise Refused(f"ports.{port.name}: {mistake}") from None

    def _check_port(self, port: PlannedPort) -> None:
        if port.guest and len(str(self.socket(port.name)).encode()) > LONGEST_SOCKET:
            raise Mistake(
                f"{self.socket(port.name)}: too long for a socket's path; set TAILRACE_STATE to a shorter folder"
            )
        if port.path is not None and port.mode == "server" and not Path(port.path).parent.is_dir():
            raise Mistake(f"{port.path}: there is no folder {Path(port.path).parent}; make it, or use another path")
        for device in port.devices:
            if device.startswith(("if:", "xdp:")):
                check_interface(device.partition(":")[2])
            if device.startswith("pci:") and port.vf is None:
                check_pci(device.removeprefix("pci:"))

    def prepare(self) -> None:
        """Makes the machine ready, before any process is started. Raises Mistake or Failure with the cure."""
        self.check()
        claim_plans(self.state, self.plan, pages=self.plan.pages)
        if self.plan.pages:
            reserve_each(self.state, self.plan.pages)
        self.prepare_interfaces(self.plan.ports)
        take_functions(self.state, self.plan.vfs)

    def start(self) -> None:
        """Applies the plan; on return every function is attached and every chain is wired. Raises Failure."""
        state = self.state
        for folder in (state.sockets, state.logs):
            folder.mkdir(exist_ok=True)
        # Functions listen for the switch, so most can start beside it.
        self.fabric.launch()
        early = [each.name for each in self.plan.started if STARTERS[each.runs].early]
        begun = dict(zip(early, self.start_functions(self.plan, dict.fromkeys(early, 1)), strict=True))
        self.fabric.await_answer()
        version, running = self.fabric.configuration()
        wanted = difference(None, self.plan, running=running, instances={}, alive=(), sockets=state.sockets)
        state.record.version = change_over(self, wanted, version, begun=begun)
        state.record.complete = True
        state.save()

    def difference_to(
        self, plan: Plan, leave: Collection[str] = (), anew: Collection[str] = ()
    ) -> tuple[int, Difference]:
        """The version that runs, and what is to be done until it is this plan. `leave` are processes that have ended
        and are to be left so, as those of functions that were stopped are; `anew` are those that are to be replaced."""
        version, running = self.fabric.configuration()
        gone = self.gone()
        ports = {name: port for name, port in running.get("ports", {}).items() if name not in gone}
        running_now = {process.name for process in self.state.processes() if process.id.alive()}
        record = self.state.record
        stopped = {instance_name(name, record.instances.get(name, 1)) for name in record.stopped}
        alive = running_now | set(leave) | stopped
        found = difference(
            self.plan,
            plan,
            running={**running, "ports": ports},
            instances=self.state.record.instances,
            alive=alive,
            sockets=self.state.sockets,
            granted=self.state.record.granted,
            around=self.state.record.around,
            anew=anew,
            stopped=stopped,
        )
        return version, found

    def gone(self) -> list[str]:
        """The ports that a change which failed has left closed: the same configuration opens them."""
        return [port.name for port in self.fabric.ports() if port.state == "gone"]

    def unlike(self) -> list[Change]:
        """What the switch carries otherwise than the plan says."""
        _, running = self.fabric.configuration()
        return unlike(self.plan, self.state.sockets, self.state.record.instances, running, self.state.record.around)

    def give_back_ports(self) -> bool:
        """Gives the switch the ports of the plan that it lacks, for functions and guests to go on; returns whether it
        lacked any."""
        _, running = self.fabric.configuration()
        whole = configuration(self.plan, self.state.sockets, self.state.record.instances)["ports"]
        lost = {name: port for name, port in whole.items() if name not in running.get("ports", {})}
        if lost:
            self.fabric.apply({"ports": lost})
        return bool(lost)

    def lead(self, chain: str, functions: Sequence[str]) -> None:
        """Leads a chain through these functions only, or through all of them again."""
        self.fabric.apply({"chains": {chain: {"through": list(functions)}}})

    def prepare_interfaces(self, ports: Sequence[PlannedPort]) -> None:
        """Switches off, on record, the offloads of interfaces that the switch cannot have."""
        for device in (device for port in ports for device in port.devices if device.startswith("if:")):
            for change in changes_for(device.removeprefix("if:")):
                self.state.add(Offloads(change.interface, change.namespace, change.before))
                set_offloads(change.interface, change.namespace, change.wanted)

    def start_functions(self, plan: Plan, instances: Mapping[str, int]) -> list[Process]:
        """Starts these instances of functions of a plan, several at a time where they live in a place that can do that;
        they listen for the switch, which looks for them. Raises Failure, Mistake once all that was begun has started
        or failed."""
        wanted = [(STARTERS[each.runs], each) for each in plan.functions if each.name in instances]
        prepared = {each.name: self._instance(plan, each, instances[each.name]) for _, each in wanted}
        self._surround(plan, {each.name: prepared[each.name].group for _, each in wanted}, instances)
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            begun = {
                each.name: pool.submit(runtime.start, self.launcher, prepared[each.name])
                for runtime, each in wanted
                if runtime.several
            }
            started = {
                each.name: begun[each.name].result()
                if each.name in begun
                else runtime.start(self.launcher, prepared[each.name])
                for runtime, each in wanted
            }
        finally:
            with undisturbed():  # what is to be taken back is what has been begun
                pool.shutdown(cancel_futures=True)
        for each in started.values():
            self.notes += [note for note in each.notes if note not in self.notes]
        return [started[name].process for name in instances]

    def prepare_function(self, plan: Plan, name: str, instance: int) -> None:
        """Makes what the switch opens as the ports of an instance, where that is not the instance's own to make."""
        planned = plan.function(name)
        STARTERS[planned.runs].prepare(self.launcher, self._instance(plan, planned, instance))

    def _surround(self, plan: Plan, groups: Mapping[str, int], instances: Mapping[str, int]) -> None:
        """Makes the folders of instances' sockets, and the network namespaces of their functions; by name, each with
        its group."""
        planned = [plan.function(name) for name in groups]
        sockets = self.state.sockets
        folders = {
            socket_of(port, sockets, instances).parent.name: groups[each.name]
            for each in planned
            for port in plan.guests(each)
        }
        make_folders(self.state, folders)
        for each in planned:
            if STARTERS[each.runs].passes and groups[each.name]:
                let_pass(sockets, groups[each.name])
            if each.network is not None and has_namespace(each.runs, each.network):
                prepare_namespace(self.state, each.name, each.network, groups[each.name])

    def _instance(self, plan: Plan, planned: PlannedFunction, instance: int) -> Instance:
        ports = {each.name: each for each in plan.ports}
        uris = (uri_of(ports[port], self.state.sockets, {planned.name: instance}) for port in planned.ports)
        outside = has_namespace(planned.runs, planned.network)
        return Instance(
            name=instance_name(planned.name, instance),
            kind=planned.kind or "",
            ports=tuple(each if passed_through(each) else next(uris) for each in planned.interfaces),
            place=plan.placement.functions[planned.name],
            memory_bytes=planned.memory_bytes,
            huge=plan.huge,
            interfaces=planned.interfaces,
            failover=planned.failover,
            driver=planned.driver,
            group=group_for(self.state, planned.name),
            image=planned.image,
            cpus=planned.cpus,
            most_cpus=planned.most_cpus,
            stacked=planned.stacked,
            priority=planned.priority,
            latency=planned.latency,
            domain=planned.domain,
            settings=planned.settings,
            tables_mib=planned.tables_mib,
            network=outer_name(self.state.folder, planned.name) if outside else None,
            inner_network=None if outside else planned.network,
            origin=self.origins.get(planned.name),
            page_kib=planned.page_kib,
        )

    def wait_for(self, ports: Sequence[str], processes: Sequence[Process] | None = None) -> None:
        """Waits until somebody is attached to each of the ports. Raises Fault if what should attach has ended."""
        owners = [each for each in self.plan.started if not set(map(planned_port, ports)).isdisjoint(each.ports)]
        seconds = max([_ATTACH_SECONDS, *(STARTERS[each.runs].patience for each in owners)])
        deadline = time.monotonic() + seconds
        while True:
            states = {port.name: port for port in self.fabric.ports()}
            waiting = [name for name in ports if states[name].state != "up"]
            if not waiting:
                return
            self.check_alive(processes)
            if time.monotonic() > deadline:
                port = states[waiting[0]]
                who = "tester" if port.name in TESTER_ENDS else port.name.rpartition(".")[0]
                reason = f" ({port.reason})" if port.reason else ""
                lines = max([1, *(STARTERS[each.runs].last_lines for each in owners)])
                raise self.launcher.failure(
                    who, f"{who} did not attach to {port.name} within {seconds:g} s{reason}", lines
                )
            time.sleep(0.01)

    def wait_for_functions(self, names: Sequence[str], processes: Sequence[Process]) -> None:
        """Waits until the functions, each begun as the process in its place, forward, and tells them what their plans
        have for them. Raises Fault or Failure."""
        began = time.monotonic()
        for name, process in zip(names, processes, strict=True):
            planned = self.plan.function(name)
            runtime = STARTERS[planned.runs]
            place = self.plan.placement.functions[name]
            says = planned.kind is not None
            runtime.wait(self.launcher, process, place, began + runtime.patience, says=says)
            for port in self.plan.guests(planned):
                close_folder(self.state.sockets / f"{process.name}.{port.name.rpartition('.')[2]}")
            if planned.told is not None:
                tell(self.state, process, planned.told)

    def check_alive(self, processes: Sequence[Process] | None = None) -> None:
        """Raises Fault if a process of ours has ended."""
        for process in self._processes() if processes is None else processes:
            if not process.id.alive() and not self._was_replaced(process):
                lines = STARTERS[process.runtime].last_lines if process.runtime in STARTERS else 1
                raise Fault(why_ended(self.launcher, process, lines))

    def _was_replaced(self, process: Process) -> bool:
        """Whether a process has been ended in order, so that it is on record no more: what is up may change while
        somebody measures it. It ends a moment before that is written down."""
        deadline = time.monotonic() + _RECORD_SECONDS
        while process in self.state.record.things and time.monotonic() < deadline:
            try:
                if process not in peek(self.state.folder).things:
                    return True
            except TailraceError:
                return False
            time.sleep(0.02)
        return False

    def _processes(self) -> list[Process]:
        """Those of the node, and those that a measurement has started beside it."""
        own = self.launcher.state
        return self.state.processes() + (own.processes() if own is not self.state else [])

    def check_ports(self) -> None:
        """Raises Fault if the switch has quarantined a port."""
        for port in self.fabric.ports():
            if port.state == "quarantined":
                raise Fault(f"the port {port.name} was quarantined: {port.reason}")

    def attach(self) -> None:
        """Takes up what `tailrace up` has left running."""
        self.fabric.attach()

    def stop(self) -> list[str]:
        """Takes everything down; returns what could not be."""
        try:
            self.fabric.stop()
        except Failure as error:
            return [str(error), *self.state.undo_all()]
        return self.state.undo_all()


def _fabric(plan: Plan, launcher: Launcher) -> TailraceFabric:
    options = SwitchOptions(
        place=plan.placement.switch,
        backpressure_us=plan.backpressure_us,
        idle=plan.idle,
        pci=plan.opens_pci,
        keep=plan.capabilities,
        groups=plan.groups,
        cores=plan.placement.workers,
        user=plan.user,
        device_queues=sum(port.queues for port in plan.ports if not port.guest),
        memory_mib=plan.memory_mib,
    )
    return TailraceFabric(launcher, options)


def reserve_pages(state: State, pages: int) -> None:
    """Sees to it that so many 2 MiB pages are free for the pollers; what is added is on record first."""
    _reserve(state, pages, _pollers_node(state), hugepages.PAGE_KIB)


def reserve_each(state: State, wanted: hugepages.Wanted) -> None:
    """Sees to it that all of these pages are free, each on its CPU's node; what is added is on record first."""
    nodes = {cpu.number: cpu.node for cpu in read_cpus(Tree())}
    for node, kib, pages in hugepages.by_pool(wanted, nodes).values():
        _reserve(state, pages, node, kib)


def _reserve(state: State, pages: int, node: int | None, kib: int) -> None:
    base = hugepages.pool_of(node, kib=kib)
    with hugepages.alone():
        lacking = hugepages.missing(pages, base)
        if lacking:
            claim = str(claim_file(state.folder))
            thing = HugePages(before=hugepages.pool(base).total, added=lacking, node=node, kib=kib, claim=claim)
            state.add(thing)
            forget_pages(base)
            hugepages.add(lacking, base)
            state.alter(thing, replace(thing, there=True))
            claim_pages(state)


def _pollers_node(state: State) -> int | None:
    """The node that the pollers of a state are on, or would be."""
    claim = own_claim(state.folder)
    if claim is not None and claim.exclusive:
        return poller_node(read_cpus(Tree()), claim.exclusive)
    return poller_node(usable_cpus().cpus)


def quietly(call: Callable[[], object]) -> None:
    """Runs something whose failure changes nothing any more."""
    with suppress(TailraceError, OSError):
        call()
