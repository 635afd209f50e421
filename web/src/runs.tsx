// Runs: the list, one as its report, and what changed between two.
import { useState } from "preact/hooks";
import { at, useAsked } from "./ask";
import { Card, Problem } from "./card";
import { Table, type Column } from "./table";

const EVERY_MS = 5000;

interface Entry {
	folder: string;
	started: number | null; // seconds since 1970
	name: string | null;
	method: string | null;
	host: string | null;
	fabric: string | null;
	trials: number | null;
	reason: string | null; // why it is not valid
	unreadable: string | null;
}

interface Figure {
	trial: string;
	figure: string;
	unit: string;
	a: number | null;
	b: number | null;
	ratio: number | null;
}

interface Difference {
	a: string;
	b: string;
	setting: Record<string, { a: string | null; b: string | null }>;
	host: Record<string, { a: string | null; b: string | null }>;
	versions: Record<string, { a: string | null; b: string | null }>;
	spec: string[];
	figures: Figure[];
	only_a: string[];
	only_b: string[];
}

type Changed = [string, { a: string | null; b: string | null }];

const figure = (value: number | null) => (value === null ? "–" : Number(value.toPrecision(4)).toString());

const FIGURES: Column<Figure>[] = [
	{ head: "trial", cell: ({ trial }) => trial },
	{ head: "figure", cell: ({ figure, unit }) => `${figure} ${unit}` },
	{ head: "A", cell: ({ a }) => figure(a) },
	{ head: "B", cell: ({ b }) => figure(b) },
	{ head: "B ÷ A", cell: ({ ratio }) => figure(ratio) },
];

const CHANGED: Column<Changed>[] = [
	{ head: "what", cell: ([name]) => name },
	{ head: "A", cell: ([, { a }]) => a ?? "–" },
	{ head: "B", cell: ([, { b }]) => b ?? "–" },
];

export function Runs() {
	const { value, error } = useAsked<{ folder: string; runs: Entry[] }>("runs", EVERY_MS);
	const [report, setReport] = useState<string | null>(null);
	const [chosen, setChosen] = useState<string[]>([]);
	const [wanted, setWanted] = useState("");
	const choose = (name: string) =>
		setChosen((old) => (old.includes(name) ? old.filter((each) => each !== name) : [...old, name].slice(-2)));
	const columns: Column<Entry>[] = [
		{ head: "run", cell: ({ folder }) => folder },
		{ head: "started", cell: ({ started }) => (started === null ? "–" : new Date(started * 1000).toLocaleString("sv")) },
		{ head: "method", cell: ({ method }) => method ?? "–" },
		{ head: "fabric", cell: ({ fabric }) => fabric ?? "–" },
		{ head: "host", cell: ({ host }) => host ?? "–" },
		{ head: "trials", cell: ({ trials }) => trials ?? "–" },
		{
			head: "valid",
			cell: ({ reason, unreadable }) => <span title={unreadable ?? reason ?? ""}>{unreadable ? "cannot be read" : reason ? "no" : "yes"}</span>,
			state: ({ reason, unreadable }) => `state ${unreadable ? "gone" : reason ? "" : "up"}`,
		},
		{
			head: "report",
			cell: ({ folder, unreadable }) => (
				<button type="button" disabled={!!unreadable} aria-label={`open report of ${folder}`} onClick={() => setReport(folder)}>
					open
				</button>
			),
		},
		{
			head: "compare",
			cell: ({ folder, unreadable }) => (
				<input type="checkbox" disabled={!!unreadable} aria-label={`compare ${folder}`} checked={chosen.includes(folder)} onChange={() => choose(folder)} />
			),
		},
	];
	const shown = (value?.runs ?? []).filter(({ folder, method, host }) => `${folder} ${method} ${host}`.includes(wanted));
	// In the order of time: what changed from the older to the newer one.
	const [a, b] = [...chosen].sort((one, two) => startOf(value?.runs, one) - startOf(value?.runs, two));
	return (
		<>
			<Problem error={error} />
			<Table id="runs" title="Runs" rows={shown} columns={columns} keyOf={({ folder }) => folder} empty={value ? `No such run in ${value.folder}.` : "…"}>
				<p>
					<input type="search" placeholder="part of a name" aria-label="filter runs" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />{" "}
					<span class="soft">{chosen.length === 2 ? "" : "Choose two to compare."}</span>
				</p>
			</Table>
			{a && b && <Compared a={a} b={b} />}
			{report && (
				<Card id="report" title={`Report of ${report}`}>
					<p>
						<button type="button" onClick={() => setReport(null)}>
							close
						</button>
					</p>
					<iframe class="report" title={`report of ${report}`} sandbox="allow-scripts" src={at(`api/runs/${encodeURIComponent(report)}/report`)} />
				</Card>
			)}
		</>
	);
}

function startOf(runs: Entry[] | undefined, folder: string): number {
	return runs?.find((each) => each.folder === folder)?.started ?? 0;
}

function Compared({ a, b }: { a: string; b: string }) {
	const { value, error } = useAsked<Difference>(`diff?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`, 0);
	if (!value) return <Problem error={error} />;
	const changed: Changed[] = Object.entries({ ...value.setting, ...value.host, ...value.versions });
	const only = [...value.only_a.map((name) => `${name} (only A)`), ...value.only_b.map((name) => `${name} (only B)`)];
	return (
		<>
			<Table id="figures" title={`A: ${a}, B: ${b}`} rows={value.figures} columns={FIGURES} keyOf={({ trial, figure }) => `${trial} ${figure}`} empty="No figure of one has its like in the other.">
				{only.length > 0 && <p class="soft">{only.join(", ")}</p>}
			</Table>
			<Table id="changed" title="What else changed" rows={changed} columns={CHANGED} keyOf={([name]) => name} empty="Nothing." />
			{value.spec.length > 0 && (
				<Card id="spec" title="The spec">
					<pre class="log" tabIndex={0} role="region" aria-labelledby="spec">
						{value.spec.join("\n")}
					</pre>
				</Card>
			)}
		</>
	);
}
