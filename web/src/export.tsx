// A chart as a file: its figures (CSV), or as it is drawn (PNG, SVG).

import { canvasOf, svgOf } from "./graph";

export interface Drawn {
	name: string;
	columns: string[]; // the first is what the others are over
	rows: (number | string | null)[][];
	canvas: () => HTMLCanvasElement | null;
	svg: () => string;
}

function save(name: string, content: Blob | null): void {
	if (!content) return;
	const link = document.createElement("a");
	link.href = URL.createObjectURL(content);
	link.download = name;
	link.click();
	URL.revokeObjectURL(link.href);
}

/** RFC 4180; what a spreadsheet would take for a formula begins with a quote. */
export function csv({ columns, rows }: Pick<Drawn, "columns" | "rows">): string {
	const field = (value: number | string | null) => {
		const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
		return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
	};
	return [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** The canvas on the page's own ground: by itself it has none. */
function png(canvas: HTMLCanvasElement, done: (made: Blob | null) => void): void {
	const copy = document.createElement("canvas");
	copy.width = canvas.width;
	copy.height = canvas.height;
	const pen = copy.getContext("2d")!;
	pen.fillStyle = colour("--card");
	pen.fillRect(0, 0, copy.width, copy.height);
	pen.drawImage(canvas, 0, 0);
	copy.toBlob(done);
}

export function colour(name: string): string {
	return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function escaped(text: string): string {
	return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

/** An SVG document of parts that are in pixels. */
export function svg(width: number, height: number, parts: string[]): string {
	return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="${colour("--card")}"/>${parts.join("")}</svg>`;
}

export function Export({ of }: { of: () => Drawn }) {
	const kinds: Record<string, (drawn: Drawn) => void> = {
		CSV: (drawn) => save(`${drawn.name}.csv`, new Blob([csv(drawn)], { type: "text/csv" })),
		PNG: (drawn) => {
			const canvas = drawn.canvas();
			if (canvas) png(canvas, (made) => save(`${drawn.name}.png`, made));
		},
		SVG: (drawn) => save(`${drawn.name}.svg`, new Blob([drawn.svg()], { type: "image/svg+xml" })),
	};
	return (
		<p class="export" role="group" aria-label="save the chart">
			{Object.entries(kinds).map(([kind, make]) => (
				<button key={kind} type="button" onClick={() => make(of())}>
					{kind}
				</button>
			))}
		</p>
	);
}

/** The graph of a chain, as it is drawn or as its figures. */
export function ExportGraph({ name, graph, figures }: { name: string; graph: () => SVGSVGElement | null; figures: () => unknown }) {
	const kinds: Record<string, (drawn: SVGSVGElement) => void> = {
		SVG: (drawn) => save(`${name}.svg`, new Blob([svgOf(drawn, colour("--card"))], { type: "image/svg+xml" })),
		PNG: (drawn) => png(canvasOf(drawn), (made) => save(`${name}.png`, made)),
		JSON: () => save(`${name}.json`, new Blob([JSON.stringify(figures(), null, 2)], { type: "application/json" })),
	};
	return (
		<p class="export graph-export" role="group" aria-label={`save the graph of ${name}`}>
			{Object.entries(kinds).map(([kind, make]) => (
				<button
					key={kind}
					type="button"
					onClick={() => {
						const drawn = graph();
						if (drawn) make(drawn);
					}}
				>
					{kind}
				</button>
			))}
		</p>
	);
}
