// The bell: what somebody has to look after, with how many are new.
import { useEffect, useRef, useState } from "preact/hooks";
import { rateOf, together, type Event, type Picture } from "./picture";
import { sorted } from "./words";

const KEPT = 50;

interface Alarm extends Event {
	key: string;
}

/** Alarms of the node's events, and of chains that begin to lose frames; the newest first. */
function useAlarms(picture: Picture | null): Alarm[] {
	const losing = useRef(new Set<string>());
	const [losses, setLosses] = useState<Alarm[]>([]);
	useEffect(() => {
		if (!picture?.up) return;
		for (const [name, { hops }] of Object.entries(picture.chains)) {
			const drops = together(Object.values(hops).flatMap(({ forward, back }) => [forward.drops, back.drops]));
			const worst = Object.entries(drops).sort(([, a], [, b]) => b.rate - a.rate)[0];
			if (!worst || rateOf(drops) === 0) losing.current.delete(name);
			else if (!losing.current.has(name)) {
				losing.current.add(name);
				const time = new Date().toISOString();
				const loss: Alarm = { key: `loss ${name} ${time}`, time, kind: `loss: ${worst[0]}`, level: "alarm", about: name };
				setLosses((old) => [loss, ...old].slice(0, KEPT));
			}
		}
	}, [picture]);
	const events = sorted(picture?.events ?? {}).map(([number, each]) => ({ ...each, key: `${number} ${each.time}` }));
	return [...losses, ...events].sort((a, b) => b.time.localeCompare(a.time)).slice(0, KEPT);
}

export function Bell({ picture }: { picture: Picture | null }) {
	const alarms = useAlarms(picture);
	const [seen, setSeen] = useState("");
	const [open, setOpen] = useState(false);
	const fresh = open ? 0 : alarms.filter(({ time }) => time > seen).length;
	const show = (wanted: boolean) => {
		setOpen(wanted);
		setSeen(alarms[0]?.time ?? "");
	};
	const label = fresh ? `${fresh} new alarms` : "no new alarms";
	return (
		<div class="bell" onKeyDown={(event) => event.key === "Escape" && show(false)}>
			<button
				type="button"
				class={fresh ? "bad" : ""}
				aria-expanded={open}
				aria-label={label}
				onClick={() => show(!open)}
			>
				<svg viewBox="0 0 24 24" width="20" height="20" aria-hidden="true">
					<path d="M6 17V11a6 6 0 0 1 12 0v6l2 2H4zM10 21h4" />
				</svg>
				{fresh > 0 && <b>{fresh}</b>}
			</button>
			<span class="hidden" role="alert">
				{fresh > 0 && label}
			</span>
			{open && (
				<ol aria-label="alarms">
					{alarms.length === 0 && <li class="soft">Nothing has gone wrong.</li>}
					{alarms.map((alarm) => (
						<li key={alarm.key} class={alarm.level}>
							<time dateTime={alarm.time}>{new Date(alarm.time).toLocaleTimeString("en-GB")}</time>
							<b>{alarm.about}</b> {alarm.kind}
						</li>
					))}
				</ol>
			)}
		</div>
	);
}
