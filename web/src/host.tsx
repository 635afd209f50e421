// Host: what each CPU does and is for, huge pages, temperatures, and whether the machine is as it was tuned.
import { useAsked } from "./ask";
import { Card, Problem, Sentence } from "./card";
import type { Node } from "./picture";
import { Share, Table, type Column } from "./table";
import { short } from "./words";

const EVERY_MS = 1000;

interface Cpu {
	cpu: number;
	role: string;
	isolated: boolean;
	busy: number;
	interrupts: number;
	mhz?: number;
}

interface Place {
	knob: string;
	place: string;
	wanted: string;
	now: string | null;
	state: string;
	by: string | null;
}

interface Verify {
	why?: string;
	profile?: string;
	counts?: Record<string, number>;
	lost?: boolean;
	places?: Place[];
}

interface Host {
	cpus: Cpu[];
	huge: { node: number; kib: number; total: number; free: number }[];
	temperatures: { name: string; celsius: number }[];
	verify: Verify;
}

const HUGE: Column<Host["huge"][number]>[] = [
	{ head: "pages", cell: ({ node, kib }) => `node ${node}, ${kib >= 1 << 20 ? `${kib >> 20} GiB` : `${kib >> 10} MiB`}` },
	{ head: "all", cell: ({ total }) => total },
	{ head: "free", cell: ({ free }) => free },
	{ head: "in use", cell: ({ node, total, free }) => <Share value={1 - free / total} label={`huge pages of node ${node} in use`} /> },
];

const TEMPERATURES: Column<Host["temperatures"][number]>[] = [
	{ head: "where", cell: ({ name }) => name },
	{ head: "°C", cell: ({ celsius }) => celsius.toFixed(1) },
];

const PLACES: Column<Place>[] = [
	{ head: "knob", cell: ({ knob }) => knob },
	{ head: "place", cell: ({ place }) => place },
	{ head: "wanted", cell: ({ wanted }) => wanted },
	{ head: "is", cell: ({ now }) => now ?? "–" },
	{ head: "state", cell: ({ state }) => state, state: ({ state }) => `state ${state === "drifted" || state === "gone" ? "gone" : ""}` },
	{ head: "by", cell: ({ by }) => by ?? "–" },
];

export function Host({ node }: { node: Node | null }) {
	const { value, error } = useAsked<Host>("host", EVERY_MS);
	if (!value) return <Problem error={error} />;
	return (
		<>
			<Problem error={error} />
			<Verified {...value.verify} />
			<Table id="cpus" title="CPUs" rows={value.cpus} columns={columnsOf(node, value.cpus)} keyOf={({ cpu }) => `${cpu}`} />
			<div class="two">
				<Table id="huge" title="Huge pages" rows={value.huge} columns={HUGE} keyOf={({ node, kib }) => `${node} ${kib}`} empty="None is reserved." />
				<Table
					id="temperatures"
					title="Temperatures"
					rows={value.temperatures}
					columns={TEMPERATURES}
					keyOf={({ name }) => name}
					empty="This machine tells none."
				/>
			</div>
		</>
	);
}

function columnsOf(node: Node | null, cpus: Cpu[]): Column<Cpu>[] {
	const workers = Object.entries(node?.workers ?? {});
	const pollerOf = (cpu: number) => workers.find(([, { core }]) => core === cpu);
	const columns: Column<Cpu>[] = [
		{ head: "CPU", cell: ({ cpu }) => cpu },
		{ head: "role", cell: ({ role }) => role || "–" },
		{ head: "busy", cell: ({ cpu, busy }) => <Share value={busy} label={`CPU ${cpu} busy`} /> },
		{ head: "poller", cell: ({ cpu }) => pollerOf(cpu)?.[0] ?? "–" },
		{
			head: "of its rounds with frames",
			cell: ({ cpu }) => {
				const poller = pollerOf(cpu);
				return poller ? <Share value={poller[1].busy} label={`${poller[0]} busy`} /> : "–";
			},
		},
		{ head: "interrupts/s", cell: ({ interrupts }) => short(interrupts), state: ({ isolated, interrupts }) => (isolated && interrupts >= 10 ? "bad" : "") },
	];
	if (cpus.some(({ mhz }) => mhz !== undefined)) columns.push({ head: "MHz", cell: ({ mhz }) => mhz ?? "–" });
	return columns;
}

function Verified({ why, profile, counts, lost, places }: Verify) {
	if (why)
		return (
			<Card id="verify" title="Tuning">
				<p class="soft">
					<Sentence text={why} />
				</p>
			</Card>
		);
	const said = Object.entries(counts ?? {}).filter(([, count]) => count);
	return (
		<Table id="verify" title={`Tuning: profile ${profile}`} rows={places ?? []} columns={PLACES} keyOf={({ place }) => place} empty="Every place is as it was set.">
			<p>
				<span class={`pill ${lost ? "bad" : "good"}`}>{lost ? "drifted" : "as applied"}</span>{" "}
				<span class="soft">{said.map(([state, count]) => `${count} ${state}`).join(", ")}</span>
			</p>
		</Table>
	);
}
