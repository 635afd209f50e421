// The stream of pictures: what was last heard, and whether it is still true.
import { useEffect, useState } from "preact/hooks";
import { at } from "./ask";
import { merge, type Picture } from "./picture";

const STALE_MS = 1000; // ten pictures missing
const RETRY_MS = 1000;

export interface Heard {
	picture: Picture | null;
	stale: string | null; // when the last picture came; null: it is live
	refused: boolean; // the server does not know our token
	unreachable: string; // why another node cannot be shown
}

/** What the server says, for as long as the page is there. */
export function useStream(): Heard {
	const [picture, setPicture] = useState<Picture | null>(null);
	const [stale, setStale] = useState<string | null>(null);
	const [refused, setRefused] = useState(false);
	const [unreachable, setUnreachable] = useState("");
	useEffect(() => {
		let source: EventSource;
		let retry = 0;
		let last = performance.now();
		let when = new Date();
		let now: Picture | null = null;

		const hear = (next: unknown) => {
			now = next as Picture;
			last = performance.now();
			when = new Date();
			setPicture(now);
			setStale(null);
			setRefused(false);
			setUnreachable("");
		};
		const connect = () => {
			source = new EventSource(at("stream"));
			source.addEventListener("whole", (event) => hear(JSON.parse(event.data)));
			source.addEventListener("change", (event) => hear(merge(now, JSON.parse(event.data))));
			// It goes on by itself after a lost connection, but not after an answer that is no stream.
			source.addEventListener("error", async () => {
				if (source.readyState !== EventSource.CLOSED) return;
				retry = setTimeout(connect, RETRY_MS);
				const answer = await fetch(at("api/record")).catch(() => null);
				setRefused(answer?.status === 401);
				setUnreachable(answer && [404, 502].includes(answer.status) ? (await answer.json().catch(() => null))?.error : "");
			});
		};
		const watch = setInterval(() => {
			if (performance.now() - last > STALE_MS) setStale(when.toLocaleTimeString("en-GB"));
		}, 200);
		connect();
		return () => {
			source.close();
			clearInterval(watch);
			clearTimeout(retry);
		};
	}, []);
	return { picture, stale, refused, unreachable };
}
