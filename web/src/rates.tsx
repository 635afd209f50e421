// Rates: by function, by way and of all chains, in packets or bits a second.
import { useState } from "preact/hooks";
import { Chart } from "./chart";
import type { Moment } from "./history";
import type { Flow } from "./picture";

const UNITS: [keyof Flow, string][] = [
	["packets", "Packets"],
	["bits", "Bits"],
];

export function Delivered({ history, unit = "packets" }: { history: Moment[]; unit?: keyof Flow }) {
	const what = unit === "packets" ? "Packets" : "Bits";
	return (
		<Chart id="delivered" title={`${what} delivered a second`} history={history} of={({ chains }) => chains} unit={unit} pairs />
	);
}

export function Rates({ history }: { history: Moment[] }) {
	const [unit, setUnit] = useState<keyof Flow>("packets");
	return (
		<>
			<div class="choice" role="group" aria-label="unit">
				{UNITS.map(([each, name]) => (
					<button key={each} type="button" aria-pressed={unit === each} onClick={() => setUnit(each)}>
						{name}
					</button>
				))}
			</div>
			<Chart id="by-function" title="Sent by each function" history={history} of={({ functions }) => functions} unit={unit} stacked />
			<Chart id="by-way" title="Hops: to and from ends of chains, and between functions" history={history} of={({ ways }) => ways} unit={unit} stacked />
			<Delivered history={history} unit={unit} />
		</>
	);
}
