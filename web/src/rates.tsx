// What left the chains in the last minute, at either end.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Node } from "./picture";
import { amount, short, sorted } from "./words";

const SECONDS = 60;
const MOST = 7; // lines that can be told apart
const HEIGHT = 200;

function colour(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(name);
}

/** Packets a second that each chain delivered, by its name and way. */
function delivered(node: Node): Map<string, number> {
	const found = new Map<string, number>();
	for (const [name, { hops }] of sorted(node.chains).slice(0, MOST)) {
		const inOrder = sorted(hops).map(([, hop]) => hop);
		found.set(`${name} →`, inOrder[inOrder.length - 1]?.forward.packets ?? 0);
		found.set(`${name} ←`, inOrder[0]?.back.packets ?? 0);
	}
	return found;
}

function plot(lines: string[], box: HTMLElement): uPlot {
	const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { show: false } };
	return new uPlot(
		{
			width: box.clientWidth,
			height: HEIGHT,
			scales: { x: { time: false, range: [-SECONDS, 0] }, y: { range: (_, __, most) => [0, Math.max(most, 1) * 1.1] } },
			axes: [
				{ ...axis, incrs: [10, 20, 30], values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
				{ ...axis, values: (_, ticks) => ticks.map(short), size: 56 },
			],
			series: [
				{ label: "time", value: (_, at) => (at === null ? "now" : `${at.toFixed(1)} s`) },
				...lines.map((label, i) => ({
					label,
					stroke: () => colour(`--s${Math.floor(i / 2) + 1}`),
					width: 2,
					dash: i % 2 ? [6, 4] : [],
					points: { show: false },
					value: (plot: uPlot, _: number, series: number, at: number | null) => {
						const values = plot.data[series] ?? [];
						return amount(values[at ?? values.length - 1] ?? 0, "pps");
					},
				})),
			],
			cursor: { drag: { x: false, y: false } },
		},
		[[], ...lines.map(() => [])],
		box,
	);
}

export function Rates({ node }: { node: Node }) {
	const box = useRef<HTMLDivElement>(null);
	const chart = useRef<uPlot | null>(null);
	const past = useRef<{ time: number; rates: Map<string, number> }[]>([]);
	const rates = delivered(node);
	const names = [...rates.keys()].join();

	useEffect(() => {
		if (!box.current) return;
		const made = plot([...rates.keys()], box.current);
		chart.current = made;
		const observer = new ResizeObserver(([entry]) => made.setSize({ width: entry!.contentRect.width, height: HEIGHT }));
		observer.observe(box.current);
		return () => {
			observer.disconnect();
			made.destroy();
		};
	}, [names]);

	useEffect(() => {
		const known = past.current;
		if ((known[known.length - 1]?.time ?? 0) > node.time) known.length = 0; // another machine, or it was booted anew
		known.push({ time: node.time, rates });
		while (known[0]!.time < node.time - SECONDS) known.shift();
		const lines = [...rates.keys()].map((line) => known.map((each) => each.rates.get(line) ?? null));
		chart.current?.setData([known.map(({ time }) => time - node.time), ...lines]);
	}, [node.time]);

	return (
		<section class="card" aria-labelledby="rates">
			<h2 id="rates">Packets delivered a second</h2>
			<div ref={box} class="plot" />
		</section>
	);
}
