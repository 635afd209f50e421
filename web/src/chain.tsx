// A chain as a graph: places, and between them the rates of each hop, both ways.
import type { RefObject } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Detail, type Chosen } from "./detail";
import { ExportGraph } from "./export";
import { layout, NODE, type Layout } from "./layout";
import { rateOf, together, totalOf, type Chain, type Hop, type Node, type Way } from "./picture";
import { useSeen } from "./seen";
import { amount, short } from "./words";

const WORST = ["quarantined", "gone", "removed", "down", "waiting", "up"];

/** What stands in a place's box: what it is, and the state of the worst of its ports. */
function placeOf(name: string, node: Node): { what: string; state: string } {
	const known = node.functions[name];
	const ports = known ? known.ports : [name];
	const states = ports.map((port) => node.ports[port]?.state ?? "");
	const state = WORST.find((each) => states.includes(each)) ?? "";
	return { what: known?.what ?? (name.startsWith("tester.") ? "tester" : "port"), state };
}

export function ChainCard({ name, chain: now, node, many }: { name: string; chain: Chain; node: Node; many: boolean }) {
	const frame = useRef<HTMLDivElement>(null);
	const [width, setWidth] = useState(0);
	const [chosen, setChosen] = useState<Chosen | null>(null);
	useLayoutEffect(() => {
		const box = frame.current;
		if (!box) return;
		const observer = new ResizeObserver(() => setWidth(box.clientWidth));
		observer.observe(box);
		setWidth(box.clientWidth);
		return () => observer.disconnect();
	}, []);

	const chain = useSeen(now, frame, !many);
	const places = placesOf(chain);
	const states = places.map((place) => placeOf(place, node));
	const choose = (kind: Chosen["kind"], at: number) => setChosen((now) => (now?.kind === kind && now.at === at ? null : { kind, at }));
	// Drawn again where something of it is another.
	const drawn = useMemo(() => draw(name, chain, states, width, frame, chosen, choose), [chain, width, JSON.stringify(states), chosen]);
	const close = () => {
		setChosen(null);
		frame.current?.querySelector<SVGElement>("[aria-expanded=true]")?.focus();
	};
	return (
		<section class={`card chain ${isLosing(chain) ? "losing" : ""}`} aria-labelledby={`chain-${name}`}>
			{drawn}
			{chosen && <Detail id={`detail-${name}`} name={name} chosen={chosen} places={places} chain={chain} node={node} close={close} />}
			<ExportGraph name={name} graph={() => frame.current?.querySelector("svg") ?? null} figures={() => ({ name, ...chain, states })} />
		</section>
	);
}

/** The names of the places, as far as they are known. */
function placesOf({ hops, places }: Chain): string[] {
	const count = Object.keys(hops).length;
	return places.length === count + 1 ? places : [...Array(count).keys()].map(String).concat("end");
}

function isLosing(chain: Chain): boolean {
	return Object.values(chain.hops).some(({ forward, back }) => rateOf(forward.drops) + rateOf(back.drops) > 0);
}

function titleOf(name: string, { what, state }: { what: string; state: string }): string {
	return `${name}: ${what}, ${state || "state not known"}`;
}

/** Where a hop is taken to be meant. */
function areaOf({ hops, upright }: Layout, i: number) {
	const { x1, y1, x2, y2 } = hops[i]!;
	return upright ? { x: x1 - 92, y: y1, width: 184, height: y2 - y1 } : { x: x1, y: y1 - 53, width: x2 - x1, height: 109 };
}

/** What makes an area over a part of the graph a button, by mouse and by keyboard. */
function button(label: string, pressed: boolean, press: () => void) {
	return {
		class: "pick",
		role: "button",
		tabindex: 0, // in SVG an attribute is spelt as it is written
		"aria-label": label,
		"aria-expanded": pressed,
		onClick: press,
		onKeyDown: (event: KeyboardEvent) => {
			if (event.key !== "Enter" && event.key !== " ") return;
			event.preventDefault();
			press();
		},
	} as const;
}

type Choose = (kind: Chosen["kind"], at: number) => void;

function draw(
	name: string,
	chain: Chain,
	states: { what: string; state: string }[],
	width: number,
	frame: RefObject<HTMLDivElement | null>,
	chosen: Chosen | null,
	choose: Choose,
) {
	const hops = Object.entries(chain.hops).sort(([a], [b]) => Number(a) - Number(b));
	const places = placesOf(chain);
	const drops = together(hops.flatMap(([, hop]) => [hop.forward.drops, hop.back.drops]));
	const losing = rateOf(drops) > 0;
	const first = hops[0]?.[1];
	const last = hops[hops.length - 1]?.[1];
	const at = layout(places.length, width);
	return (
		<>
			<header>
				<h2 id={`chain-${name}`}>{name}</h2>
				<p class="sum">
					<Delivered sign="→" way={last?.forward} label="delivered forward" />
					<Delivered sign="←" way={first?.back} label="delivered back" />
					<span class={losing ? "bad" : "soft"}>
						<b data-drops={name}>{short(rateOf(drops))}</b> drops/s
					</span>
					<span class="soft">
						<b>{short(totalOf(drops))}</b> dropped
					</span>
				</p>
			</header>
			<div ref={frame} class="graph">
				{width > 0 && (
					<svg width={at.width} height={at.height} role="group" aria-label={described(name, places, hops)}>
						{hops.map(([number, hop], i) => (
							<HopLines key={number} name={`${name}/${number}`} hop={hop} at={at} index={i} />
						))}
						{places.map((place, i) => (
							<Place key={i} name={place} at={at.nodes[i]!} {...states[i]!} />
						))}
						{hops.map(([number], i) => (
							<rect key={number} {...areaOf(at, i)} rx="10" {...button(`hop ${places[i]} to ${places[i + 1]}`, chosen?.kind === "hop" && chosen.at === i, () => choose("hop", i))} />
						))}
						{places.map((place, i) => (
							<rect key={i} {...at.nodes[i]!} {...NODE} rx="10" {...button(`place ${place}`, chosen?.kind === "place" && chosen.at === i, () => choose("place", i))}>
								<title>{titleOf(place, states[i]!)}</title>
							</rect>
						))}
					</svg>
				)}
			</div>
			<Reasons drops={drops} />
		</>
	);
}

function Delivered({ sign, way, label }: { sign: string; way?: Way; label: string }) {
	return (
		<span aria-label={label}>
			<i aria-hidden="true">{sign}</i> <b>{amount(way?.packets ?? 0, "pps")}</b> {amount(way?.bits ?? 0, "bps")}
		</span>
	);
}

/** The graph in words, for who does not see it. */
function described(name: string, places: string[], hops: [string, Hop][]): string {
	const each = hops.map(
		([, { forward, back }], i) =>
			`${places[i]} to ${places[i + 1]}: ${short(forward.packets)} packets a second forward, ${short(back.packets)} back`,
	);
	return `Chain ${name}. ${each.join("; ")}`;
}

function Place({ name, at, what, state }: { name: string; at: { x: number; y: number }; what: string; state: string }) {
	return (
		<g transform={`translate(${at.x} ${at.y})`} class={`place ${state}`}>
			<rect width={NODE.width} height={NODE.height} rx="10" />
			<circle cx="16" cy="22" r="4" />
			<text x="28" y="27" class="name">
				{cut(name, 14)}
			</text>
			<text x="28" y="45" class="what">
				{cut(state === "up" || state === "" ? what : state, 19)}
			</text>
		</g>
	);
}

function cut(text: string, most: number): string {
	return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Half the width of a text's capsule. */
function halfOf(text: string): number {
	return text.length * 3.6 + 8;
}

const APART = 8; // pixels between a hop's middle and each of its two lines

function HopLines({ name, hop, at, index }: { name: string; hop: Hop; at: Layout; index: number }) {
	const { x1, y1, x2, y2 } = at.hops[index]!;
	const dropping = Object.entries(together([hop.forward.drops, hop.back.drops])).filter(([, { rate }]) => rate > 0);
	const worst = dropping.sort(([, a], [, b]) => b.rate - a.rate)[0];
	const rate = worst && `▼ ${short(worst[1].rate)}/s`;
	const room = at.upright ? at.width : x2 - x1 - 24;
	const dropped = rate && halfOf(`${rate} ${worst[0]}`) * 2 <= room ? `${rate} ${worst[0]}` : rate;
	const half = halfOf(dropped ?? "");
	const middle = { x: (x1 + x2) / 2, y: (y1 + y2) / 2 };
	return (
		<g class="hop">
			{at.upright ? (
				<>
					<Line way={hop.forward} from={[x1 - APART, y1 + 3]} to={[x2 - APART, y2 - 3]} />
					<Line way={hop.back} from={[x2 + APART, y2 - 3]} to={[x1 + APART, y1 + 3]} />
					<Rate name={name} way="forward" flow={hop.forward} x={middle.x - 22} y={middle.y - 12} anchor="end" />
					<Rate name={name} way="back" flow={hop.back} x={middle.x + 22} y={middle.y - 12} anchor="start" />
				</>
			) : (
				<>
					<Line way={hop.forward} from={[x1 + 3, y1 - APART]} to={[x2 - 3, y2 - APART]} />
					<Line way={hop.back} from={[x2 - 3, y2 + APART]} to={[x1 + 3, y1 + APART]} />
					<Rate name={name} way="forward" flow={hop.forward} x={middle.x} y={y1 - APART - 29} anchor="middle" />
					<Rate name={name} way="back" flow={hop.back} x={middle.x} y={y1 + APART + 25} anchor="middle" />
				</>
			)}
			{dropped && (
				<g class="drop" transform={`translate(${middle.x} ${at.upright ? middle.y + 30 : middle.y})`}>
					<rect x={-half} y="-11" width={2 * half} height="22" rx="11" />
					<text y="4">{dropped}</text>
				</g>
			)}
		</g>
	);
}

function Rate(props: { name: string; way: string; flow: Way; x: number; y: number; anchor: string }) {
	const { name, way, flow, x, y, anchor } = props;
	return (
		<text x={x} y={y} text-anchor={anchor} class={flow.packets > 0 ? "rate" : "rate none"}>
			<tspan class="packets" data-hop={name} data-way={way}>
				{amount(flow.packets, "pps")}
			</tspan>
			<tspan x={x} dy="16" class="bits">
				{amount(flow.bits, "bps")}
			</tspan>
		</text>
	);
}

/** A line that is thicker, and moves faster, by the order of magnitude of its rate. */
function Line({ way, from, to }: { way: Way; from: [number, number]; to: [number, number] }) {
	const size = way.packets >= 1 ? Math.floor(Math.log10(way.packets)) + 1 : 0;
	const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
	const head = 7;
	const [dx, dy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
	const neck = [to[0] - dx * head, to[1] - dy * head];
	const points = [to, [neck[0]! - dy * 4, neck[1]! + dx * 4], [neck[0]! + dy * 4, neck[1]! - dx * 4]];
	const ends = { x1: from[0], y1: from[1], x2: neck[0], y2: neck[1] };
	return (
		<g class={`line ${size ? "" : "none"} ${rateOf(way.drops) > 0 ? "dropping" : ""}`}>
			<line {...ends} class="bed" style={{ strokeWidth: `${2 + size / 2}px` }} />
			{size > 0 && <line {...ends} class="flow" style={{ animationDuration: `${(2.4 / size).toFixed(2)}s` }} />}
			<polygon points={points.map((point) => point.join()).join(" ")} />
		</g>
	);
}

function Reasons({ drops }: { drops: Way["drops"] }) {
	const list = Object.entries(drops).sort(([, a], [, b]) => b.total - a.total);
	if (!list.length) return null;
	return (
		<ul class="reasons" aria-label="drops by reason">
			{list.map(([reason, { rate, total }]) => (
				<li key={reason} class={rate > 0 ? "now" : ""}>
					{reason} <b>{short(total)}</b>
					{rate > 0 && <em>{short(rate)}/s</em>}
				</li>
			))}
		</ul>
	);
}
