// A heat map of latency over time: a column for each interval or trial, darker where more of its frames were.
import { useEffect, useRef } from "preact/hooks";
import { Card } from "./card";
import { colour, Export, svg, type Drawn } from "./export";
import { microseconds } from "./words";

export interface Heat {
	from_us: number[]; // the smallest latency of each row
	columns: { label: string; counts: [number, number][] }[];
}

const HEIGHT = 220;
const LEFT = 64;
const LABELS = 18; // pixels below the columns
const TICKS = 5;

/** How dark a cell is. A single frame of millions can be seen too: the worst are what is looked for. */
function shade(count: number, most: number): number {
	return 0.15 + (0.85 * Math.log1p(count)) / Math.log1p(most);
}

function mostOf(counts: [number, number][]): number {
	return Math.max(...counts.map(([, count]) => count));
}

function draw(canvas: HTMLCanvasElement, { from_us: rows, columns }: Heat): void {
	const width = canvas.clientWidth;
	const ratio = devicePixelRatio;
	canvas.width = width * ratio;
	canvas.height = HEIGHT * ratio;
	const pen = canvas.getContext("2d")!;
	pen.scale(ratio, ratio);
	const wide = (width - LEFT) / columns.length;
	const high = (HEIGHT - LABELS) / rows.length;
	pen.fillStyle = colour("--forward");
	for (const [x, { counts }] of columns.entries()) {
		const most = mostOf(counts);
		for (const [row, count] of counts) {
			pen.globalAlpha = shade(count, most);
			pen.fillRect(LEFT + x * wide, HEIGHT - LABELS - (row + 1) * high, Math.max(wide - 0.5, 0.5), high);
		}
	}
	pen.globalAlpha = 1;
	pen.fillStyle = colour("--soft");
	pen.font = "12px system-ui";
	pen.textAlign = "right";
	for (let tick = 0; tick < Math.min(TICKS, rows.length); tick++) {
		const row = Math.round((tick * (rows.length - 1)) / Math.max(TICKS - 1, 1));
		pen.fillText(`${microseconds(rows[row]!)} µs`, LEFT - 6, HEIGHT - LABELS - row * high - 1);
	}
	pen.textAlign = "left";
	pen.fillText(columns[0]!.label, LEFT, HEIGHT - 4);
	pen.textAlign = "right";
	if (columns.length > 1) pen.fillText(columns[columns.length - 1]!.label, width, HEIGHT - 4);
}

function drawn({ from_us: rows, columns }: Heat, canvas: HTMLCanvasElement | null): Drawn {
	const width = canvas?.clientWidth ?? 0;
	const [wide, high] = [width / columns.length, HEIGHT / rows.length];
	const cell = (x: number, row: number, count: number, most: number) =>
		`<rect x="${(x * wide).toFixed(1)}" y="${(HEIGHT - (row + 1) * high).toFixed(1)}" width="${wide.toFixed(2)}" height="${high.toFixed(2)}" fill="${colour("--forward")}" fill-opacity="${shade(count, most).toFixed(2)}"/>`;
	return {
		name: "latency",
		columns: ["at", "from us", "frames"],
		rows: columns.flatMap(({ label, counts }) => counts.map(([row, count]) => [label, rows[row]!, count])),
		canvas: () => canvas,
		svg: () => svg(width, HEIGHT, columns.flatMap(({ counts }, x) => counts.map(([row, count]) => cell(x, row, count, mostOf(counts))))),
	};
}

export function HeatMap({ heat, worst }: { heat: Heat; worst: number }) {
	const canvas = useRef<HTMLCanvasElement>(null);
	useEffect(() => {
		const box = canvas.current;
		if (!box || !heat.columns.length || !heat.from_us.length) return;
		const observer = new ResizeObserver(() => draw(box, heat));
		observer.observe(box);
		return () => observer.disconnect();
	}, [heat]);
	const said = `Latency of ${heat.columns.length} intervals or trials, from ${microseconds(heat.from_us[0] ?? 0)} to ${microseconds(worst)} µs`;
	return (
		<Card id="heat" title="Latency over time">
			<canvas ref={canvas} class="heat" role="img" aria-label={said} />
			<Export of={() => drawn(heat, canvas.current)} />
		</Card>
	);
}
