// Ports and workers as tables.
import { rateOf, totalOf, type Port, type Worker } from "./picture";
import { Share, Table, type Column } from "./table";
import { percent, short, sorted } from "./words";

const PORTS: Column<[string, Port]>[] = [
	{ head: "port", cell: ([name]) => name },
	{ head: "state", cell: ([, { state }]) => state || "–", state: ([, { state }]) => `state ${state}` },
	{ head: "rx pps", cell: ([, { received }]) => short(received.packets) },
	{ head: "rx bps", cell: ([, { received }]) => short(received.bits) },
	{ head: "tx pps", cell: ([, { sent }]) => short(sent.packets) },
	{ head: "tx bps", cell: ([, { sent }]) => short(sent.bits) },
	{ head: "waiting", cell: ([, { waiting }]) => short(waiting) },
	{ head: "drops/s", cell: ([, { drops }]) => short(rateOf(drops)), state: ([, { drops }]) => (rateOf(drops) ? "bad" : "") },
	{ head: "dropped", cell: ([, { drops }]) => <span title={Object.keys(drops).join(", ")}>{short(totalOf(drops))}</span> },
];

const WORKERS: Column<[string, Worker]>[] = [
	{ head: "worker", cell: ([name]) => name },
	{ head: "core", cell: ([, { core }]) => core ?? "–" },
	{ head: "idle", cell: ([, { idle }]) => idle },
	{ head: "busy", cell: ([name, { busy }]) => <Share value={busy} label={`${name} busy`} /> },
	{ head: "asleep", cell: ([, { asleep }]) => percent(asleep) },
	{ head: "pps", cell: ([, { packets }]) => short(packets) },
	{ head: "cycles/packet", cell: ([, { cycles_a_packet: cycles }]) => (cycles === undefined ? "–" : short(cycles)) },
	{ head: "burst", cell: ([, { burst }]) => burst?.toFixed(1) ?? "–" },
];

export function Ports({ ports }: { ports: Record<string, Port> }) {
	return <Table id="ports" title="Ports" rows={sorted(ports)} columns={PORTS} keyOf={([name]) => name} />;
}

export function Workers({ workers }: { workers: Record<string, Worker> }) {
	return <Table id="workers" title="Workers" rows={sorted(workers)} columns={WORKERS} keyOf={([name]) => name} />;
}
