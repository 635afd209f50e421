// A record of the stream (tailrace/dashboard/record.py), shown instead of what is now: at a moment, or as it went on.
import { createContext } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, at } from "./ask";
import { merge, type Picture } from "./picture";

/** Whether what is shown is of a record: the server is asked for nothing beside it. */
export const Replaying = createContext(false);

const STEP = 0.1; // seconds between two pictures
const RELOAD_MS = 5000;

interface Index {
	parts: number[]; // when each begins, in seconds since 1970
	last: number;
	recording: boolean;
	cut: boolean;
}

type Part = [number, Picture][];

/** What the server has recorded; null: nothing. */
function useIndex(): [Index | null, string] {
	const [index, setIndex] = useState<Index | null>(null);
	const [problem, setProblem] = useState("");
	useEffect(() => {
		let timer = 0;
		const look = async () => {
			try {
				const found = await ask<Index>("record");
				setIndex(found);
				if (found.recording) timer = setTimeout(look, RELOAD_MS);
			} catch (error) {
				setProblem((error as Error).message);
			}
		};
		look();
		return () => clearTimeout(timer);
	}, []);
	return [index, problem];
}

async function load(begin: number): Promise<Part> {
	const answer = await fetch(at(`api/record/${begin}`));
	if (!answer.ok) throw new Error("This part of the record is not there any more.");
	const part: Part = [];
	let now: unknown = null;
	for (const line of (await answer.text()).split("\n")) {
		if (!line.startsWith('{"at"')) continue;
		const { at: when, whole, change } = JSON.parse(line);
		now = whole ?? merge(now, change);
		part.push([when, now as Picture]);
	}
	return part;
}

/** The replayed picture, or null while what is now is shown; and what it is steered by. */
export function useReplay(): { picture: Picture | null; bar: preact.JSX.Element | null } {
	const [index, problem] = useIndex();
	const [moment, setMoment] = useState<number | null>(null);
	const [playing, setPlaying] = useState(false);
	const [picture, setPicture] = useState<Picture | null>(null);
	const [fault, setFault] = useState("");
	const loaded = useRef<{ at: number; part: Promise<Part> } | null>(null);

	useEffect(() => {
		if (moment === null || !index) return setPicture(null);
		const begin = index.parts.filter((each) => each <= moment).pop();
		if (begin === undefined) return;
		// The last part of one that still grows is asked for again.
		if (loaded.current?.at !== begin || begin === index.parts[index.parts.length - 1]) loaded.current = { at: begin, part: load(begin) };
		let wanted = true;
		loaded.current.part.then(
			(part) => {
				if (!wanted) return;
				setFault("");
				setPicture((part.filter(([when]) => when <= moment).pop() ?? part[0])?.[1] ?? null);
			},
			(error) => setFault(error.message),
		);
		return () => {
			wanted = false;
		};
	}, [moment, index]);

	useEffect(() => {
		if (!playing) return;
		const timer = setInterval(() => setMoment((old) => Math.min((old ?? 0) + STEP, index?.last ?? 0)), STEP * 1000);
		return () => clearInterval(timer);
	}, [playing, index]);

	if (problem) return { picture: null, bar: <p class="problem" role="status">{problem}</p> };
	const first = index?.parts[0];
	if (!index || first === undefined) return { picture: null, bar: null };
	const live = () => {
		setPlaying(false);
		setMoment(null);
	};
	const shown = moment ?? index.last;
	const bar = (
		<div class="replay" role="group" aria-label="replay">
			<button type="button" aria-pressed={moment === null} onClick={live}>
				live
			</button>
			<button type="button" aria-pressed={playing} onClick={() => (setMoment(shown >= index.last ? first : shown), setPlaying(!playing))}>
				{playing ? "pause" : "play"}
			</button>
			<input
				type="range"
				min={first}
				max={index.last}
				step={STEP}
				value={shown}
				aria-label="moment"
				aria-valuetext={new Date(shown * 1000).toLocaleTimeString("en-GB")}
				onInput={(event) => setMoment(Number(event.currentTarget.value))}
			/>
			<time>{new Date(shown * 1000).toLocaleString("sv")}</time>
			{index.cut && <span class="pill warn">The record was cut short: what it has is shown.</span>}
			{fault && <span class="bad">{fault}</span>}
		</div>
	);
	return { picture: moment === null ? null : picture, bar };
}
