// What is known of one hop or one place of a chain, once it is chosen in the graph.
import { useContext } from "preact/hooks";
import { useAsked } from "./ask";
import { Problem } from "./card";
import { rateOf, totalOf, type Chain, type Drops, type Node, type Port, type Way, type Worker } from "./picture";
import { Replaying } from "./replay";
import { percent, short, sorted } from "./words";

const EVERY_MS = 1000;

/** A hop by its number, or a place by its position. */
export interface Chosen {
	kind: "hop" | "place";
	at: number;
}

interface Props {
	id: string;
	name: string; // the chain's
	chosen: Chosen;
	places: string[];
	chain: Chain;
	node: Node;
	close: () => void;
}

export function Detail({ id, name, chosen, places, chain, node, close }: Props) {
	const { kind, at } = chosen;
	const [number, hop] = Object.entries(chain.hops).sort(([a], [b]) => Number(a) - Number(b))[at] ?? [];
	const ends = kind === "hop" ? [places[at], places[at + 1]] : [places[at]];
	const ports = [...new Set(ends.flatMap((place) => (place === undefined ? [] : (node.functions[place]?.ports ?? [place]))))];
	const title = ends.join(" to ");
	return (
		<section class="detail" aria-labelledby={id} onKeyDown={(event) => event.key === "Escape" && close()}>
			<header>
				<h3 id={id}>{title}</h3>
				<button type="button" aria-label={`close ${title}`} onClick={close}>
					close
				</button>
			</header>
			{kind === "hop" && hop && <Ways hop={hop} />}
			{kind === "hop" && hop && <Counters kind="hop" names={[`${name}/${number}`]} label="counters of the hop" />}
			<Ports ports={ports.flatMap((name): [string, Port][] => (node.ports[name] ? [[name, node.ports[name]]] : []))} />
			{kind === "place" && ports.length > 0 && <Counters kind="queue" names={ports} label="counters of its ports" />}
			<Bursts workers={node.workers} />
		</section>
	);
}

function Figures({ label, head, rows }: { label: string; head: string[]; rows: string[][] }) {
	return (
		<div class="wide" tabIndex={0} role="region" aria-label={label}>
			<table>
				<thead>
					<tr>
						{head.map((each) => (
							<th key={each} scope="col">
								{each}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map(([name, ...others]) => (
						<tr key={name}>
							<th scope="row">{name}</th>
							{others.map((each, i) => (
								<td key={i}>{each}</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

/** Every reason with its sum: `receiver full 40.8k`. */
function reasons(drops: Drops): string {
	return Object.entries(drops).map(([reason, { total }]) => `${reason} ${short(total)}`).join(", ") || "–";
}

function Ways({ hop }: { hop: { forward: Way; back: Way } }) {
	const rows = (["forward", "back"] as const).map((way) => {
		const { packets, bits, drops } = hop[way];
		return [way, short(packets), short(bits), short(rateOf(drops)), short(totalOf(drops)), reasons(drops)];
	});
	return <Figures label="the hop, by direction" head={["direction", "pps", "bps", "drops/s", "dropped", "reasons"]} rows={rows} />;
}

function Ports({ ports }: { ports: [string, Port][] }) {
	if (!ports.length) return <p class="soft">No port of it is known.</p>;
	const rows = ports.map(([name, { state, received, sent, waiting, drops }]) => [
		name, state || "–", short(waiting), short(received.packets), short(sent.packets), short(rateOf(drops)), reasons(drops),
	]);
	return <Figures label="its ports" head={["port", "state", "queue depth", "rx pps", "tx pps", "drops/s", "reasons"]} rows={rows} />;
}

type Counted = Record<string, number>;

/** What is counted of a hop by direction, or of ports by queue: all that has ever happened, and what passes in any case. */
function columnsOf(kind: "hop" | "queue", slots: Record<string, Counted>): [string, Counted][] {
	if (kind === "queue") return sorted(slots);
	const [hop] = Object.values(slots);
	if (!hop) return [];
	return ["forward", "back"].map((way) => {
		const own = Object.entries(hop).filter(([counter]) => counter.startsWith(`${way}_`));
		return [way, Object.fromEntries(own.map(([counter, value]) => [counter.slice(way.length + 1), value]))];
	});
}

/** The counters as the switch has them, once a second. */
function Counters({ kind, names, label }: { kind: "hop" | "queue"; names: string[]; label: string }) {
	const replaying = useContext(Replaying);
	const query = new URLSearchParams([["kind", kind], ...names.map((name) => ["name", name])]);
	const { value, error } = useAsked<{ counters: Record<string, Counted> }>(replaying ? null : `counters?${query}`, EVERY_MS);
	if (replaying) return <p class="soft">A record has rates and drops, and no other counters.</p>;
	const columns = columnsOf(kind, value?.counters ?? {});
	const counters = [...new Set(columns.flatMap(([, counted]) => Object.keys(counted)))];
	const rows = counters
		.filter((counter) => /(packets|bytes)$/.test(counter) || columns.some(([, counted]) => counted[counter]))
		.map((counter) => [counter.replaceAll("_", " "), ...columns.map(([, counted]) => (counted[counter] ?? 0).toLocaleString("en"))]);
	return (
		<>
			<Problem error={error} />
			{rows.length > 0 && <Figures label={label} head={["counter", ...columns.map(([name]) => name)]} rows={rows} />}
		</>
	);
}

/** How the workers' bursts are spread by size: a port may be polled by any of them. */
function Bursts({ workers }: { workers: Record<string, Worker> }) {
	const busy = sorted(workers).flatMap(([name, { bursts }]): [string, [string, number][]][] => (bursts ? [[name, sorted(bursts)]] : []));
	if (!busy.length) return <p class="soft">No worker has moved frames in the last second.</p>;
	return (
		<div class="bursts">
			{busy.map(([name, shares]) => (
				<figure key={name} role="group" aria-label={`bursts of ${name} by size`}>
					<figcaption class="soft">bursts of {name}, packets</figcaption>
					<ol>
						{shares.map(([size, share]) => (
							<li key={size}>
								<span>≥ {size}</span>
								<meter min={0} max={1} value={share} aria-label={`${name}: bursts of ${size} packets or more`} />
								<span>{percent(share)}</span>
							</li>
						))}
					</ol>
				</figure>
			))}
		</div>
	);
}
