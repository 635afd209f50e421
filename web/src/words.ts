// Numbers and names as `tailrace top` writes them.

/** Three figures, and the letter of a unit's multiple: 12.3 and k. */
function figures(value: number): [string, string] {
	for (const [factor, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
		if (value >= factor * 0.9995) {
			const shown = value / factor;
			return [shown < 999.5 ? String(Number(shown.toPrecision(3))) : shown.toFixed(0), unit];
		}
	}
	return [value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1), ""];
}

/** 0, 12.3k, 1.23M. */
export function short(value: number): string {
	return figures(value).join("");
}

/** 12.3 kpps, with a space that does not break. */
export function amount(value: number, unit: string): string {
	const [number, multiple] = figures(value);
	return `${number}\u202f${multiple}${unit}`;
}

export function percent(share: number): string {
	return `${(share * 100).toFixed(0)} %`;
}

const natural = new Intl.Collator("en", { numeric: true });

let order: string[] = []; // of the last large record: it is asked for again and again, and hardly ever has other names
const LARGE = 50;

/** The entries of a record by name: worker-2 before worker-10. */
export function sorted<T>(record: Record<string, T>): [string, T][] {
	const names = Object.keys(record);
	if (names.length < LARGE) return Object.entries(record).sort(([a], [b]) => natural.compare(a, b));
	if (names.length !== order.length || !order.every((name) => name in record)) order = names.sort(natural.compare);
	return order.map((name) => [name, record[name]!]);
}

/** Three figures, as the reports write latencies. */
export function microseconds(us: number): string {
	return us >= 100 ? us.toFixed(0) : String(Number(us.toPrecision(3)));
}
