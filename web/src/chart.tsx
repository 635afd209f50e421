// The last minute as lines, or as areas on one another.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Card } from "./card";
import { colour, escaped, Export, svg, type Drawn } from "./export";
import type { Lines, Moment } from "./history";
import type { Flow } from "./picture";
import { amount, short } from "./words";

const SECONDS = 60;
const HEIGHT = 200;
const DRAW = 0.5; // seconds between two drawings

interface Props {
	id: string;
	title: string;
	history: Moment[];
	of: (moment: Moment) => Lines;
	unit: keyof Flow;
	stacked?: boolean;
	pairs?: boolean; // two lines after each other are two ways of one thing
}

function wordOf(unit: keyof Flow): string {
	return unit === "packets" ? "pps" : "bps";
}

function plot({ unit, stacked, pairs }: Props, names: string[], box: HTMLElement): uPlot {
	const shadeOf = (line: number) => `--s${(pairs ? Math.floor(line / 2) : line) % 7 + 1}`;
	const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
	const word = wordOf(unit);
	const ownOf = (plot: uPlot, series: number, at: number) => {
		const above = stacked ? (plot.data[series + 1]?.[at] ?? 0) : 0;
		return (plot.data[series]?.[at] ?? 0) - above;
	};
	return new uPlot(
		{
			width: box.clientWidth,
			height: HEIGHT,
			scales: { x: { time: false, range: [-SECONDS, 0] }, y: { range: (_, __, most) => [0, Math.max(most, 1) * 1.1] } },
			axes: [
				{ ...axis, incrs: [10, 20, 30], size: 30, values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
				{ ...axis, values: (_, ticks) => ticks.map(short), size: 56 },
			],
			series: [
				{ label: "time", value: (_, at) => (at === null ? "now" : `${at.toFixed(1)} s`) },
				...names.map((label, i) => {
					const name = shadeOf(i);
					return {
						label,
						stroke: () => colour(name),
						fill: stacked ? () => `${colour(name)}66` : undefined,
						width: 2,
						dash: pairs && i % 2 ? [6, 4] : [],
						points: { show: false },
						value: (plot: uPlot, _: number, series: number, at: number | null) =>
							amount(ownOf(plot, series, at ?? (plot.data[0]?.length ?? 1) - 1), word),
					};
				}),
			],
			// Of stacked areas each is filled down to the one below, not through it.
			bands: stacked ? names.slice(1).map((_, i) => ({ series: [i + 1, i + 2] as [number, number] })) : [],
			cursor: { drag: { x: false, y: false } },
			// A marker is made once: its colour is a name, so that it follows the scheme.
			legend: {
				markers: {
					stroke: (_, series) => `var(${shadeOf(series - 1)})`,
					fill: (_, series) => (stacked ? `color-mix(in srgb, var(${shadeOf(series - 1)}) 40%, transparent)` : ""),
				},
			},
		},
		[[], ...names.map(() => [])],
		box,
	);
}

/** Of stacked lines each holds what is below it too; the first is the whole. */
function dataOf({ history, of, unit, stacked }: Props, names: string[]): uPlot.AlignedData {
	const now = history[history.length - 1]?.time ?? 0;
	const lines = names.map((name) => history.map((moment) => of(moment).get(name)?.[unit] ?? (stacked ? 0 : null)));
	if (stacked)
		for (let i = lines.length - 2; i >= 0; i--) lines[i] = lines[i]!.map((value, at) => value! + lines[i + 1]![at]!);
	return [history.map(({ time }) => time - now), ...lines];
}

/** The chart's lines as they are drawn, with the time in seconds before now. */
function drawn({ id, unit, stacked }: Props, names: string[], plot: uPlot | null): Drawn {
	const [times = [], ...lines] = plot?.data ?? [];
	const own = (line: number, at: number) => (lines[line]?.[at] ?? 0) - (stacked ? (lines[line + 1]?.[at] ?? 0) : 0);
	const line = (values: uPlot.AlignedData[number], i: number) => {
		const points = [...times].map((time, at) => `${plot!.valToPos(time, "x").toFixed(1)},${plot!.valToPos(values[at] ?? 0, "y").toFixed(1)}`);
		const shade = plot!.series[i + 1]!.stroke as () => string;
		return `<polyline fill="none" stroke="${shade()}" stroke-width="2" points="${points.join(" ")}"/><text x="8" y="${HEIGHT + 16 * (i + 1)}" fill="${shade()}">${escaped(names[i]!)}: ${short(own(i, times.length - 1))}</text>`;
	};
	return {
		name: id,
		columns: ["seconds", ...names.map((name) => `${name} ${unit}/s`)],
		rows: [...times].map((time, at) => [time, ...names.map((_, i) => own(i, at))]),
		canvas: () => plot?.ctx.canvas ?? null,
		svg: () => svg(plot?.width ?? 0, HEIGHT + 16 * (names.length + 1), lines.map(line)),
	};
}

const DARK = matchMedia("(prefers-color-scheme: dark)");

function useDark(): boolean {
	const [dark, setDark] = useState(DARK.matches);
	useEffect(() => {
		const look = () => setDark(DARK.matches);
		DARK.addEventListener("change", look);
		return () => DARK.removeEventListener("change", look);
	}, []);
	return dark;
}

export function Chart(props: Props) {
	const { id, title, history, of, unit, stacked } = props;
	const box = useRef<HTMLDivElement>(null);
	const chart = useRef<uPlot | null>(null);
	const last = history[history.length - 1];
	const names = last ? [...of(last).keys()] : [];
	const key = `${unit} ${names.join()}`;
	const sum = last && stacked ? [...of(last).values()].reduce((sum, flow) => sum + flow[unit], 0) : null;

	const dark = useDark();
	useEffect(() => {
		if (!box.current) return;
		const made = plot(props, names, box.current);
		chart.current = made;
		const observer = new ResizeObserver(([entry]) => made.setSize({ width: entry!.contentRect.width, height: HEIGHT }));
		observer.observe(box.current);
		return () => {
			observer.disconnect();
			made.destroy();
		};
	}, [key]);

	// A pixel is a tenth of a second or so: more often there is nothing new to see.
	useEffect(() => chart.current?.setData(dataOf(props, names)), [Math.floor((last?.time ?? 0) / DRAW), key, dark]);

	return (
		<Card id={id} title={title}>
			{sum !== null && (
				<p class="soft">
					together <b>{amount(sum, wordOf(unit))}</b>
				</p>
			)}
			<div ref={box} class="plot" />
			<Export of={() => drawn(props, names, chart.current)} />
		</Card>
	);
}
