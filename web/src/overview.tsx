// All nodes at a glance (tailrace/dashboard/overview.py): this one, and those of the list.
import { useAsked } from "./ask";
import { Problem, Sentence } from "./card";
import { Table, type Column } from "./table";
import { short } from "./words";

const EVERY_MS = 1000;
const OLD_SECONDS = 3; // what is older says so

interface Summary {
	spec: string;
	version?: number;
	chains: number;
	losing: number;
	packets: number;
	bits: number;
	drops: number;
	ports: number;
	down: number;
	drift?: number; // places of the host; missing: no profile can be checked
	alarms: number;
	warnings: number;
	latest?: { time: string; kind: string; level: string; about: string };
}

interface Row {
	name: string; // empty: the server's own
	state: "live" | "no switch" | "unreachable" | "connecting";
	seconds?: number; // since it was heard
	why?: string;
	summary?: Summary;
}

interface Said {
	host: string;
	nodes: Row[];
}

const CLASSES = { live: "state up", "no switch": "state", unreachable: "state gone", connecting: "" };

/** A figure of a node's switch, where one is up. */
function of(head: string, figure: (summary: Summary) => string | number, bad?: (summary: Summary) => boolean): Column<Row> {
	const known = ({ state, summary }: Row) => (state === "live" ? summary : undefined);
	return {
		head,
		cell: (row) => (known(row) ? figure(known(row)!) : "–"),
		state: (row) => (known(row) && bad?.(known(row)!) ? "bad" : ""),
	};
}

/** What somebody has to look after first. */
function said({ state, why, seconds, summary }: Row): string {
	if (why) return why;
	if (state !== "connecting" && seconds! > OLD_SECONDS) return `heard ${seconds!.toFixed(0)} s ago`;
	const latest = summary?.latest;
	return latest ? `${new Date(latest.time).toLocaleTimeString("en-GB")} ${latest.about}: ${latest.kind}` : "";
}

function columnsOf(host: string): Column<Row>[] {
	return [
		{ head: "node", cell: ({ name }) => <a href={`#chains${name && `@${name}`}`}>{name || `${host} (this node)`}</a> },
		{ head: "state", cell: ({ state }) => state, state: ({ state }) => CLASSES[state] },
		of("chains", ({ chains }) => chains),
		of("losing", ({ losing }) => losing, ({ losing }) => losing > 0),
		of("pps", ({ packets }) => short(packets)),
		of("bps", ({ bits }) => short(bits)),
		of("drops/s", ({ drops }) => short(drops), ({ drops }) => drops > 0),
		of("ports down", ({ ports, down }) => `${down} of ${ports}`, ({ down }) => down > 0),
		{
			head: "drift",
			cell: ({ summary }) => summary?.drift ?? "–",
			state: ({ summary }) => (summary?.drift ? "bad" : ""),
		},
		{
			head: "alarms",
			cell: ({ summary }) => (summary ? summary.alarms + summary.warnings : "–"),
			state: ({ summary }) => (summary?.alarms ? "bad" : ""),
		},
		{ head: "last alarm, or why not", cell: (row) => <Sentence text={said(row)} />, state: () => "why" },
	];
}

export function Overview() {
	const { value, error } = useAsked<Said>("overview", EVERY_MS);
	return (
		<>
			<Problem error={error} />
			<Table id="overview" title="Nodes" rows={value?.nodes ?? []} columns={columnsOf(value?.host ?? "")} keyOf={({ name }) => name} empty="The nodes are being asked." />
		</>
	);
}
