// The chains: all of a few; of many those that drop, and those that are asked for.
import { useState } from "preact/hooks";
import { ChainCard } from "./chain";
import { kept, rateOf, type Node } from "./picture";
import { sorted } from "./words";

const MOST = 12; // tailrace/dashboard/turns.py has as many anew in each picture
const STILL = 4; // of more, lines do not move, and only those in the window are drawn: else it takes a core

const drops = kept(({ hops }) => Object.values(hops).some(({ forward, back }) => rateOf(forward.drops) + rateOf(back.drops) > 0));

export function Chains({ node }: { node: Node }) {
	const [wanted, setWanted] = useState("");
	const all = sorted(node.chains);
	const found = all.filter(([name]) => name.includes(wanted));
	const few = all.length <= MOST;
	const shown = few ? all : [...found.filter((each) => drops(...each)), ...found.filter((each) => !drops(...each))].slice(0, MOST);
	const many = shown.length > STILL;
	return (
		<>
			{!few && (
				<p class="choice">
					<input type="search" placeholder="part of a name" aria-label="filter chains" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />{" "}
					<span class="soft">
						{shown.length} of {all.length} chains
					</span>
				</p>
			)}
			<div class={many ? "still" : ""}>
				{shown.map(([name, chain]) => (
					<ChainCard key={name} name={name} chain={chain} node={node} many={many} />
				))}
			</div>
		</>
	);
}
