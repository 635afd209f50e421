// The document that the server sends (tailrace/dashboard/picture.py), and how a change becomes part of it.

export interface Flow {
	packets: number; // a second
	bits: number; // a second
}

export interface Drops {
	[reason: string]: { rate: number; total: number };
}

export interface Way extends Flow {
	drops: Drops;
}

export interface Hop {
	forward: Way;
	back: Way;
}

export interface Chain {
	places: string[];
	hops: Record<string, Hop>;
}

export interface Port {
	state: string;
	received: Flow;
	sent: Flow;
	waiting: number;
	drops: Drops;
}

export interface Worker {
	core?: number;
	idle: string;
	busy: number;
	asleep: number;
	packets: number;
	cycles_a_packet?: number;
	burst?: number;
	bursts?: Record<string, number>; // by size, as shares
}

/** docs/service.md has the kinds. */
export interface Event {
	time: string;
	kind: string;
	level: "warning" | "alarm";
	about: string;
}

interface Heard {
	events: Record<string, Event>;
	record?: string; // why nothing more is recorded
}

export interface Node extends Heard {
	up: true;
	spec: string;
	version?: number;
	time: number;
	seconds: number;
	chains: Record<string, Chain>;
	functions: Record<string, { what: string; ports: string[] }>;
	ports: Record<string, Port>;
	workers: Record<string, Worker>;
}

export type Picture = Node | ({ up: false; why: string } & Heard);

type Json = { [name: string]: unknown };

function isObject(value: unknown): value is Json {
	return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A JSON merge patch (RFC 7386): a new document where something differs, the same parts elsewhere. */
export function merge(old: unknown, patch: unknown): unknown {
	if (!isObject(patch)) return patch;
	const made: Json = isObject(old) ? { ...old } : {};
	for (const [name, value] of Object.entries(patch)) {
		if (value === null) delete made[name];
		else made[name] = merge(made[name], value);
	}
	return made;
}

const MOST_KEPT = 10_000; // more than a node has chains

/** What `make` makes of a chain, once for as long as the chain is the same: most of a picture are those of the one
 * before. By name, since the table of a WeakMap grows with all that were there between two collections. */
export function kept<T>(make: (chain: Chain) => T): (name: string, chain: Chain) => T {
	const known = new Map<string, [Chain, T]>();
	return (name, chain) => {
		const found = known.get(name);
		if (found?.[0] === chain) return found[1];
		if (known.size > MOST_KEPT) known.clear(); // chains that have come and gone
		const made = make(chain);
		known.set(name, [chain, made]);
		return made;
	};
}

export function rateOf(drops: Drops): number {
	return Object.values(drops).reduce((sum, each) => sum + each.rate, 0);
}

export function totalOf(drops: Drops): number {
	return Object.values(drops).reduce((sum, each) => sum + each.total, 0);
}

/** The drops of several as those of one. */
export function together(all: Drops[]): Drops {
	const sum: Drops = {};
	for (const drops of all) {
		for (const [reason, { rate, total }] of Object.entries(drops)) {
			const known = sum[reason] ?? { rate: 0, total: 0 };
			sum[reason] = { rate: known.rate + rate, total: known.total + total };
		}
	}
	return sum;
}
