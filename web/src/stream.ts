// The stream of pictures: what was last heard, and whether it is still true.
import { useEffect, useState } from "preact/hooks";
import { merge, type Picture } from "./picture";

const STALE_MS = 1000; // ten pictures missing
const RETRY_MS = 1000;

export interface Heard {
	picture: Picture | null;
	stale: number | null; // seconds since the last picture; null: it is live
	refused: boolean; // the server does not know our token
}

/** What the server says, for as long as the page is there. */
export function useStream(): Heard {
	const [picture, setPicture] = useState<Picture | null>(null);
	const [stale, setStale] = useState<number | null>(null);
	const [refused, setRefused] = useState(false);
	useEffect(() => {
		let source: EventSource;
		let retry = 0;
		let last = performance.now();
		let now: Picture | null = null;

		const hear = (next: unknown) => {
			now = next as Picture;
			last = performance.now();
			setPicture(now);
			setStale(null);
			setRefused(false);
		};
		const connect = () => {
			source = new EventSource("stream");
			source.addEventListener("whole", (event) => hear(JSON.parse(event.data)));
			source.addEventListener("change", (event) => hear(merge(now, JSON.parse(event.data))));
			// It goes on by itself after a lost connection, but not after an answer that is no stream.
			source.addEventListener("error", async () => {
				if (source.readyState !== EventSource.CLOSED) return;
				retry = setTimeout(connect, RETRY_MS);
				const answer = await fetch("icon.svg").catch(() => null);
				setRefused(answer?.status === 401);
			});
		};
		const watch = setInterval(() => {
			const silent = performance.now() - last;
			if (silent > STALE_MS) setStale(Math.floor(silent / 1000));
		}, 200);
		connect();
		return () => {
			source.close();
			clearInterval(watch);
			clearTimeout(retry);
		};
	}, []);
	return { picture, stale, refused };
}
