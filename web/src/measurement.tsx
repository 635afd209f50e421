// Latency and soak: the measurement that is under way, or the last one, as its run folder has it so far.
import { useAsked } from "./ask";
import { Card, Problem, Sentence } from "./card";
import { HeatMap, type Heat } from "./heat";
import { Table, type Column } from "./table";
import { microseconds, percent, short } from "./words";

const EVERY_MS = 1000;

interface Way {
	trial: string;
	way: string;
	sent: number;
	received: number;
	lost: number;
	duplicate: number;
	out_of_sequence: number;
	latency_us: Record<string, number> | null;
}

interface Slow {
	trial: string;
	way: string;
	sequence: number;
	latency_us: number;
	part: string;
	part_us: number;
	cause: string;
}

interface Interval {
	start_s: number;
	ways: { max_ns: number }[];
}

interface Found {
	why?: string;
	run: string;
	name: string;
	method: string;
	state: string;
	reason?: string | null;
	ways: Way[];
	slowest: Slow[];
	heat?: Heat;
	asked_s?: number | null; // of a soak
	measured_s?: number;
	intervals?: number;
	last?: Interval | null;
	worst?: Interval | null;
	gaps?: { start_s: number; end_s: number; reason: string }[];
}

const QUANTILES = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
const FAULTS = ["lost", "duplicate", "out_of_sequence"] as const;

const WAYS: Column<Way>[] = [
	{ head: "trial, direction", cell: ({ trial, way }) => `${trial}, ${way}` },
	{ head: "sent", cell: ({ sent }) => short(sent) },
	...FAULTS.map((fault) => ({
		head: fault.replaceAll("_", " "),
		cell: (row: Way) => short(row[fault]),
		state: (row: Way) => (row[fault] ? "bad" : ""),
	})),
	...QUANTILES.map((name) => ({ head: `${name} µs`, cell: ({ latency_us: us }: Way) => (us ? microseconds(us[name] ?? 0) : "–") })),
];

const SLOWEST: Column<Slow>[] = [
	{ head: "trial, direction", cell: ({ trial, way }) => `${trial}, ${way}` },
	{ head: "frame", cell: ({ sequence }) => sequence },
	{ head: "µs", cell: ({ latency_us: us }) => microseconds(us) },
	{ head: "held up at", cell: ({ part }) => part },
	{ head: "there µs", cell: ({ part_us: us }) => microseconds(us) },
	{ head: "cause", cell: ({ cause }) => cause || "not known" },
];

export function Measurement() {
	const { value, error } = useAsked<Found>("measurement", EVERY_MS);
	if (!value) return <Problem error={error} />;
	if (value.why) return <Card id="measurement" title="Latency and soak"><p class="soft"><Sentence text={value.why} /></p></Card>;
	const worst = Math.max(0, ...value.ways.map(({ latency_us: us }) => us?.max ?? 0));
	return (
		<>
			<Problem error={error} />
			<Progress {...value} />
			{value.heat && value.heat.columns.length > 0 && <HeatMap heat={value.heat} worst={worst} />}
			<Table id="ways" title="Latency and faults" rows={value.ways} columns={WAYS} keyOf={({ trial, way }) => `${trial} ${way}`} empty="Nothing has been measured to its end yet." />
			<Table
				id="slowest"
				title="Slowest frames"
				rows={value.slowest}
				columns={SLOWEST}
				keyOf={({ trial, way, sequence }) => `${trial} ${way} ${sequence}`}
				empty="Known where a measurement follows frames: `tailrace measure latency --hops --causes`."
			/>
		</>
	);
}

function Progress({ run, name, method, state, reason, asked_s: asked, measured_s: measured, ...soak }: Found) {
	const good = state === "running" || state === "done";
	const slowestOf = (interval: Interval) => microseconds(Math.max(...interval.ways.map(({ max_ns }) => max_ns)) / 1e3);
	return (
		<Card id="measurement" title={`${name} (${method})`}>
			<p>
				<span class={`pill ${good ? "good" : "warn"}`}>{state}</span> <span class="soft">{run}</span>
			</p>
			{!good && reason && <p class="soft">{reason}</p>}
			{asked && measured !== undefined && (
				<p>
					<progress max={asked} value={measured} aria-label="measured" /> {percent(measured / asked)}: {measured.toFixed(0)} of{" "}
					{asked.toFixed(0)} s{soak.intervals !== undefined && `, ${soak.intervals} intervals`}
				</p>
			)}
			{soak.last && soak.worst && (
				<p class="soft">
					slowest frame of the last interval {slowestOf(soak.last)} µs, of all {slowestOf(soak.worst)} µs at {soak.worst.start_s.toFixed(0)} s
				</p>
			)}
			{soak.gaps?.map((gap) => (
				<p key={gap.start_s} class="bad">
					gap of {(gap.end_s - gap.start_s).toFixed(0)} s at {gap.start_s.toFixed(0)} s: {gap.reason}
				</p>
			))}
		</Card>
	);
}
