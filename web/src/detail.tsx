// What is known of one hop or one place of a chain, once it is chosen in the graph.
import { rateOf, totalOf, type Chain, type Drops, type Node, type Port, type Way, type Worker } from "./picture";
import { percent, short, sorted } from "./words";

/** A hop by its number, or a place by its position. */
export interface Chosen {
	kind: "hop" | "place";
	at: number;
}

interface Props {
	id: string;
	chosen: Chosen;
	places: string[];
	chain: Chain;
	node: Node;
	close: () => void;
}

export function Detail({ id, chosen, places, chain, node, close }: Props) {
	const { kind, at } = chosen;
	const [, hop] = Object.entries(chain.hops).sort(([a], [b]) => Number(a) - Number(b))[at] ?? [];
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
			<Ports ports={ports.flatMap((name): [string, Port][] => (node.ports[name] ? [[name, node.ports[name]]] : []))} />
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
