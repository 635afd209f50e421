// The bell: what somebody has to look after, with how many are new.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Event, Picture } from "./picture";

const MOST = 5; // notifications at a time
const TOLD = 1000; // alarms that are not told of again

interface Alarm extends Event {
	key: string;
}

/** What the server has found, the newest first. */
function alarmsOf(picture: Picture | null): Alarm[] {
	const events = Object.entries(picture?.events ?? {}).map(([key, each]) => ({ ...each, key: `${key} ${each.time}` }));
	return events.sort((a, b) => b.time.localeCompare(a.time));
}

/** Shows what comes after the first picture as the browser's notifications, where these are allowed; returns how that
 * stands. By what was there before, not by time: the browser's clock may be another than the server's. */
function useNotices(alarms: Alarm[], heard: boolean): [NotificationPermission | "", () => void] {
	const able = "Notification" in window && window.isSecureContext;
	const [allowed, setAllowed] = useState<NotificationPermission | "">(able ? Notification.permission : "");
	const told = useRef<Set<string> | null>(null);
	const keys = alarms.map(({ key }) => key);
	useEffect(() => {
		if (!heard) return;
		const known = told.current ?? new Set(keys);
		const fresh = alarms.filter(({ key }) => !known.has(key));
		for (const key of keys) known.delete(key), known.add(key); // what is shown is forgotten last
		for (const key of known) known.size > TOLD && known.delete(key);
		told.current = known;
		if (allowed === "granted")
			for (const { about, kind, key } of fresh.slice(0, MOST)) new Notification(`${about}: ${kind}`, { tag: key, icon: "icon.svg" });
	}, [heard, keys.join()]);
	return [allowed, () => Notification.requestPermission().then(setAllowed)];
}

/** `picture`: of what is now; what is replayed has been told. */
export function Bell({ picture }: { picture: Picture | null }) {
	const alarms = alarmsOf(picture);
	const [allowed, request] = useNotices(alarms, picture !== null);
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
				<div class="list">
				{allowed === "default" && (
					<button type="button" onClick={request}>
						Notify me
					</button>
				)}
				<ol aria-label="alarms">
					{alarms.length === 0 && <li class="soft">Nothing has gone wrong.</li>}
					{alarms.map((alarm) => (
						<li key={alarm.key} class={alarm.level}>
							<time dateTime={alarm.time}>{new Date(alarm.time).toLocaleTimeString("en-GB")}</time>
							<b>{alarm.about}</b> {alarm.kind}
						</li>
					))}
				</ol>
				</div>
			)}
		</div>
	);
}
