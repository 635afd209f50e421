// A drawn graph as a file of its own: its look is the page's style sheet, which no other program has.

const LOOK = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-linecap", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
const SHAPES = "rect:not(.pick), circle, line, polygon, text, tspan"; // what can be clicked lies over the graph


/** An SVG document that looks as the graph does now, on a ground of the colour. */
export function svgOf(graph: SVGSVGElement, ground: string): string {
	const copy = graph.cloneNode(true) as SVGSVGElement;
	const drawn = [...graph.querySelectorAll<SVGElement>("*")];
	[...copy.querySelectorAll<SVGElement>("*")].forEach((element, i) => {
		const style = getComputedStyle(drawn[i]!);
		for (const name of LOOK) element.setAttribute(name, style.getPropertyValue(name));
		for (const name of ["class", "style", "tabindex", "role"]) element.removeAttribute(name);
	});
	copy.querySelectorAll("[aria-expanded]").forEach((area) => area.remove());
	const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
	for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: ground })) paper.setAttribute(name, value);
	copy.prepend(paper);
	return new XMLSerializer().serializeToString(copy);
}

/** The same, painted: the page's policy lets no image be loaded that is not the server's, so that the shapes are painted one by one. */
export function canvasOf(graph: SVGSVGElement, scale = 2): HTMLCanvasElement {
	const canvas = document.createElement("canvas");
	canvas.width = graph.clientWidth * scale;
	canvas.height = graph.clientHeight * scale;
	const pen = canvas.getContext("2d")!;
	for (const shape of graph.querySelectorAll<SVGGraphicsElement>(SHAPES)) {
		const place = shape.getCTM();
		if (!place) continue;
		pen.setTransform(new DOMMatrix([scale, 0, 0, scale, 0, 0]).multiply(place));
		pen.globalAlpha = opacity(shape, graph);
		paint(pen, shape);
	}
	return canvas;
}

/** Of a shape in what it is part of. */
function opacity(shape: Element, graph: Element): number {
	let all = 1;
	for (let each: Element | null = shape; each && each !== graph; each = each.parentElement) all *= Number(getComputedStyle(each).opacity);
	return all;
}

function paint(pen: CanvasRenderingContext2D, shape: SVGGraphicsElement): void {
	const style = getComputedStyle(shape);
	pen.fillStyle = style.fill === "none" ? "transparent" : style.fill;
	pen.strokeStyle = style.stroke === "none" ? "transparent" : style.stroke;
	pen.lineWidth = parseFloat(style.strokeWidth);
	pen.lineCap = style.strokeLinecap as CanvasLineCap;
	pen.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(",").map(parseFloat));
	if (shape instanceof SVGTextContentElement) {
		if (shape.childElementCount || !shape.getNumberOfChars()) return; // its parts are painted
		const { x, y } = shape.getStartPositionOfChar(0);
		pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
		pen.fillText(shape.textContent.trim(), x, y);
		return;
	}
	const path = outline(shape);
	pen.fill(path);
	pen.stroke(path);
}

function outline(shape: SVGGraphicsElement): Path2D {
	const path = new Path2D();
	if (shape instanceof SVGRectElement) {
		const { x, y, width, height, rx } = shape;
		path.roundRect(x.baseVal.value, y.baseVal.value, width.baseVal.value, height.baseVal.value, rx.baseVal.value);
	} else if (shape instanceof SVGCircleElement) path.arc(shape.cx.baseVal.value, shape.cy.baseVal.value, shape.r.baseVal.value, 0, 2 * Math.PI);
	else if (shape instanceof SVGLineElement) {
		path.moveTo(shape.x1.baseVal.value, shape.y1.baseVal.value);
		path.lineTo(shape.x2.baseVal.value, shape.y2.baseVal.value);
	} else if (shape instanceof SVGPolygonElement) {
		for (const { x, y } of shape.points) path.lineTo(x, y);
		path.closePath();
	}
	return path;
}
