// The page: what the node does now, or why that is not known.
import { render } from "preact";
import { Bell } from "./bell";
import { ChainCard } from "./chain";
import { Rates } from "./rates";
import { useStream, type Heard } from "./stream";
import { Ports, Workers } from "./tables";
import { sorted } from "./words";

function State({ picture, stale, refused }: Heard) {
	if (refused) return <span class="pill bad">another token</span>;
	if (stale !== null) return <span class="pill bad">stale</span>;
	if (!picture) return <span class="pill">connecting</span>;
	return picture.up ? <span class="pill good">live</span> : <span class="pill warn">no switch</span>;
}

function Banner({ picture, stale, refused }: Heard) {
	let text = "";
	if (refused) text = "The server was started anew and has another token. Open the link that it has printed.";
	else if (stale !== null)
		text = `The server has not answered since ${stale}. What is shown is old. It is asked again and again; is \`tailrace dashboard\` still running?`;
	else if (picture && !picture.up) text = `${picture.why[0]?.toUpperCase()}${picture.why.slice(1)}.`;
	return (
		<p class={`banner ${text ? "" : "empty"}`} role="status">
			{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}
		</p>
	);
}

function Page() {
	const heard = useStream();
	const { picture, stale, refused } = heard;
	const node = picture?.up ? picture : null;
	return (
		<main class={stale !== null || refused ? "old" : ""} data-time={node?.time} data-seconds={node?.seconds}>
			<header class="top">
				<h1>
					<img src="icon.svg" alt="" width="28" height="28" /> Tailrace
				</h1>
				<State {...heard} />
				{node && (
					<p class="soft">
						{node.spec}
						{node.version !== undefined && `, version ${node.version}`}
					</p>
				)}
				<Bell picture={picture} />
			</header>
			<Banner {...heard} />
			{node && (
				<>
					{sorted(node.chains).map(([name, chain]) => (
						<ChainCard key={name} name={name} chain={chain} node={node} />
					))}
					<Rates node={node} />
					<div class="two">
						<Ports ports={node.ports} />
						<Workers workers={node.workers} />
					</div>
				</>
			)}
		</main>
	);
}

// The token has become a cookie; it need not stand where others may read it.
history.replaceState(null, "", location.pathname);
render(<Page />, document.body);
