// Where a chain's places and hops lie: from left to right if there is room, from top to bottom otherwise.

export const NODE = { width: 152, height: 60 };
const LEAST_HOP = 150; // what two rates need between two places
const MOST_HOP = 320;
const HOP_HEIGHT = 108;
const MARGIN = 2; // a border's own width
const LABELS = 27; // how far rates reach above and below the places

export interface Layout {
	upright: boolean;
	width: number;
	height: number;
	nodes: { x: number; y: number }[]; // their upper left corners
	hops: { x1: number; y1: number; x2: number; y2: number }[];
}

export function layout(places: number, width: number): Layout {
	const gaps = Math.max(places - 1, 1);
	const hop = (width - 2 * MARGIN - places * NODE.width) / gaps;
	return hop >= LEAST_HOP ? across(places, width, Math.min(hop, MOST_HOP)) : down(places, width);
}

function across(places: number, width: number, hop: number): Layout {
	const used = places * NODE.width + (places - 1) * hop;
	const left = (width - used) / 2;
	const nodes = Array.from({ length: places }, (_, i) => ({ x: left + i * (NODE.width + hop), y: LABELS }));
	const y = LABELS + NODE.height / 2;
	const hops = nodes.slice(1).map(({ x }) => ({ x1: x - hop, y1: y, x2: x, y2: y }));
	return { upright: false, width, height: 2 * LABELS + NODE.height, nodes, hops };
}

function down(places: number, width: number): Layout {
	const step = NODE.height + HOP_HEIGHT;
	const x = (width - NODE.width) / 2;
	const nodes = Array.from({ length: places }, (_, i) => ({ x, y: MARGIN + i * step }));
	const hops = nodes.slice(1).map(({ y }) => ({ x1: width / 2, y1: y - HOP_HEIGHT, x2: width / 2, y2: y }));
	return { upright: true, width, height: 2 * MARGIN + (places - 1) * step + NODE.height, nodes, hops };
}
