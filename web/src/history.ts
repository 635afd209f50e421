// The rates of the last minute, as charts show them: figures only, so that a page may be open for days.
import { useRef } from "preact/hooks";
import { kept, type Chain, type Flow, type Node } from "./picture";
import { sorted } from "./words";

const SECONDS = 60;
const MOST = 7; // lines that can be told apart

export type Lines = Map<string, Flow>;

export interface Moment {
	time: number;
	chains: Lines; // delivered at either end
	functions: Lines; // sent by each function's ports
	ways: Lines; // north/south: to and from the ends of chains; east/west: from function to function
}

function add(lines: Lines, name: string, { packets, bits }: Flow): void {
	const known = lines.get(name) ?? { packets: 0, bits: 0 };
	lines.set(name, { packets: known.packets + packets, bits: known.bits + bits });
}

/** What the hops of each chain carry together, by way. */
const carried = { functions: {} as Node["functions"], ways: kept<Lines>(() => new Map()) };

function waysOf(name: string, chain: Chain, functions: Node["functions"]): Lines {
	if (carried.functions !== functions) Object.assign(carried, { functions, ways: kept((chain) => sumOf(chain, functions)) });
	return carried.ways(name, chain);
}

function sumOf(chain: Chain, functions: Node["functions"]): Lines {
	const ways: Lines = new Map();
	for (const [at, [, { forward, back }]] of sorted(chain.hops).entries()) {
		const inside = [chain.places[at], chain.places[at + 1]].every((place) => place !== undefined && place in functions);
		add(ways, inside ? "east/west" : "north/south", forward);
		add(ways, inside ? "east/west" : "north/south", back);
	}
	return ways;
}

function momentOf(node: Node): Moment {
	const chains: Lines = new Map();
	const sums: Record<string, Flow> = {};
	for (const [index, [name, chain]] of sorted(node.chains).entries()) {
		if (index < MOST) {
			const inOrder = sorted(chain.hops);
			add(chains, `${name} →`, inOrder[inOrder.length - 1]?.[1].forward ?? { packets: 0, bits: 0 });
			add(chains, `${name} ←`, inOrder[0]?.[1].back ?? { packets: 0, bits: 0 });
		}
		for (const [way, { packets, bits }] of waysOf(name, chain, node.functions)) {
			const sum = (sums[way] ??= { packets: 0, bits: 0 });
			sum.packets += packets;
			sum.bits += bits;
		}
	}
	const ways: Lines = new Map(Object.entries(sums));
	const functions: Lines = new Map();
	for (const [index, [name, { ports }]] of sorted(node.functions).entries()) {
		for (const port of ports) {
			const sent = node.ports[port]?.received; // what the switch receives of it
			if (sent) add(functions, index < MOST - 1 ? name : "others", sent);
		}
	}
	return { time: node.time, chains, functions, ways };
}

/** The last minute, this picture's rates as its last. */
export function useHistory(node: Node | null): Moment[] {
	const past = useRef<Moment[]>([]);
	const known = past.current;
	const last = known[known.length - 1]?.time;
	if (node && last !== node.time) {
		if (last !== undefined && last > node.time) known.length = 0; // another machine, or it was booted anew
		known.push(momentOf(node));
		while (known[0]!.time < node.time - SECONDS) known.shift();
	}
	return known;
}
