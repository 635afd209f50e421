// Functions: where each lives, how it is, what it has said; with `--control` it can be replaced.
import { useState } from "preact/hooks";
import { ask, useAsked } from "./ask";
import { Card, Problem } from "./card";
import type { Node } from "./picture";
import { Table, type Column } from "./table";
import { short } from "./words";

const EVERY_MS = 1000;

interface Function {
	name: string;
	function: string;
	kind: string | null;
	runs: string;
	state: string;
	cpus: string;
	pid: number | null;
	restarts: number;
	flows: number | null;
}

interface Said {
	control: boolean;
	functions: Function[];
}

/** Whose port it is: nat-2 of nat-2.0, and of nat-2@4.0, which an instance that has taken its place has. */
function ownerOf(port: string): string {
	return port.slice(0, port.lastIndexOf(".")).replace(/@\d+$/, "");
}

/** What the replica's ports let the switch have, in packets a second. */
function sentBy(node: Node | null, row: Function): string {
	const ports = (node?.functions[row.function]?.ports ?? []).filter((port) => ownerOf(port) === row.name);
	return node ? short(ports.reduce((sum, port) => sum + (node.ports[port]?.received.packets ?? 0), 0)) : "–";
}

export function Functions({ node }: { node: Node | null }) {
	const { value, error } = useAsked<Said>("functions", EVERY_MS);
	const [shown, setShown] = useState<string | null>(null);
	const columns: Column<Function>[] = [
		{ head: "function", cell: ({ name }) => name },
		{ head: "does", cell: ({ kind }) => kind ?? "–" },
		{ head: "lives in", cell: ({ runs }) => runs },
		{ head: "CPUs", cell: ({ cpus }) => cpus || "–" },
		{ head: "state", cell: ({ state }) => state, state: ({ state }) => `state ${state}` },
		{ head: "process", cell: ({ pid }) => pid ?? "–" },
		{ head: "restarts", cell: ({ restarts }) => restarts },
		{ head: "flows", cell: ({ flows }) => (flows === null ? "–" : short(flows)) },
		{ head: "sends pps", cell: (row) => sentBy(node, row) },
		{
			head: "log",
			cell: ({ name }) => (
				<button type="button" aria-pressed={shown === name} aria-label={`log of ${name}`} onClick={() => setShown(shown === name ? null : name)}>
					log
				</button>
			),
		},
	];
	if (value?.control) columns.push({ head: "restart", cell: ({ name }) => <Restart name={name} /> });
	return (
		<>
			<Problem error={error} />
			<Table id="functions" title="Functions" rows={value?.functions ?? []} columns={columns} keyOf={({ name }) => name} empty="No function is up." />
			{shown && <Log key={shown} name={shown} />}
		</>
	);
}

/** Asks twice: the first click only offers it. */
function Restart({ name }: { name: string }) {
	const [state, setState] = useState<"" | "sure?" | "…" | "done">("");
	const [problem, setProblem] = useState("");
	const press = async () => {
		setProblem("");
		if (state !== "sure?") return setState("sure?");
		setState("…");
		try {
			await ask(`functions/${encodeURIComponent(name)}/restart`, { method: "POST" });
			setState("done");
		} catch (error) {
			setProblem((error as Error).message);
			setState("");
		}
	};
	return (
		<>
			<button type="button" disabled={state === "…"} onClick={press} aria-label={`restart ${name} ${state}`}>
				{state === "sure?" ? "sure?" : "restart"}
			</button>
			<span role="status">{problem || (state === "sure?" ? "" : state)}</span>
		</>
	);
}

function Log({ name }: { name: string }) {
	const { value, error } = useAsked<{ lines: string[] }>(`functions/${encodeURIComponent(name)}/log`, EVERY_MS);
	return (
		<Card id="log" title={`Log of ${name}`}>
			<Problem error={error} />
			<pre class="log" tabIndex={0} role="region" aria-labelledby="log">
				{value?.lines.join("\n") || (value ? "It has said nothing yet." : "")}
			</pre>
		</Card>
	);
}
