// What a view asks the server for beside the stream (tailrace/dashboard/api.py).
import { useEffect, useState } from "preact/hooks";

const base = { path: "" };

/** From now on everything is asked of this node; empty: of the server's own. */
export function askOf(node: string): void {
	base.path = node ? `nodes/${encodeURIComponent(node)}/` : "";
}

/** Where something of the node that is shown is to be had. */
export function at(path: string): string {
	return base.path + path;
}

export interface Asked<T> {
	value: T | null; // the last that came
	error: string; // why there is nothing newer; empty: it is new
}

export async function ask<T>(path: string, options?: RequestInit): Promise<T> {
	const answer = await fetch(at(`api/${path}`), options).catch(() => null);
	if (!answer) throw new Error("The server does not answer.");
	const said = await answer.json().catch(() => null);
	if (!answer.ok || !said) throw new Error(said?.error ?? `The server answers ${answer.status}.`);
	return said as T;
}

/** The answer, asked for again after so many milliseconds, for as long as the view is shown; 0: once. No path: not. */
export function useAsked<T>(path: string | null, every: number): Asked<T> {
	const [asked, setAsked] = useState<Asked<T>>({ value: null, error: "" });
	useEffect(() => {
		let timer = 0;
		let shown = true;
		setAsked({ value: null, error: "" });
		const look = async () => {
			try {
				const value = await ask<T>(path!);
				if (shown) setAsked({ value, error: "" });
			} catch (error) {
				if (shown) setAsked(({ value }) => ({ value, error: (error as Error).message }));
			}
			if (shown && every) timer = setTimeout(look, every);
		};
		if (path !== null) look();
		return () => {
			shown = false;
			clearTimeout(timer);
		};
	}, [path, every]);
	return asked;
}
