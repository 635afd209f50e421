// The chains: all of a few; of many those that drop, and those that are asked for.
import { useState } from "preact/hooks";
import { ChainCard } from "./chain";
import { rateOf, type Chain, type Node } from "./picture";
import { sorted } from "./words";

const MOST = 12;

function drops({ hops }: Chain): boolean {
	return Object.values(hops).some(({ forward, back }) => rateOf(forward.drops) + rateOf(back.drops) > 0);
}

export function Chains({ node }: { node: Node }) {
	const [wanted, setWanted] = useState("");
	const all = sorted(node.chains);
	const found = all.filter(([name]) => name.includes(wanted));
	const few = all.length <= MOST;
	const shown = few ? all : [...found.filter(([, chain]) => drops(chain)), ...found.filter(([, chain]) => !drops(chain))].slice(0, MOST);
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
			{shown.map(([name, chain]) => (
				<ChainCard key={name} name={name} chain={chain} node={node} />
			))}
		</>
	);
}
