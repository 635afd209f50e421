// The page: what the node does now, or why that is not known.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { askOf } from "./ask";
import { Bell } from "./bell";
import { Sentence } from "./card";
import { Chains } from "./chains";
import { Functions } from "./functions";
import { useHistory, type Moment } from "./history";
import { Host } from "./host";
import { Measurement } from "./measurement";
import { Overview } from "./overview";
import type { Node } from "./picture";
import { Delivered, Rates } from "./rates";
import { Replaying, useReplay } from "./replay";
import { Runs } from "./runs";
import { useStream, type Heard } from "./stream";
import { Ports, Workers } from "./tables";

function State({ picture, stale, refused, unreachable }: Heard) {
	if (unreachable) return <span class="pill bad">unreachable</span>;
	if (refused) return <span class="pill bad">another token</span>;
	if (stale !== null) return <span class="pill bad">stale</span>;
	if (!picture) return <span class="pill">connecting</span>;
	return picture.up ? <span class="pill good">live</span> : <span class="pill warn">no switch</span>;
}

function Banner({ picture, stale, refused, unreachable }: Heard) {
	let text = "";
	if (unreachable) text = unreachable;
	else if (refused) text = "The server was started anew and has another token. Open the link that it has printed.";
	else if (stale !== null)
		text = `The server has not answered since ${stale}. What is shown is old. It is asked again and again; is \`tailrace dashboard\` still running?`;
	else if (picture?.record) text = picture.record;
	else if (picture && !picture.up) text = `${picture.why[0]?.toUpperCase()}${picture.why.slice(1)}.`;
	return (
		<p class={`banner ${text ? "" : "empty"}`} role="status">
			<Sentence text={text} />
		</p>
	);
}

const VIEWS = {
	chains: "Chains",
	rates: "Rates",
	functions: "Functions",
	host: "Host",
	measurement: "Latency and soak",
	runs: "Runs",
	nodes: "Nodes",
};

type Name = keyof typeof VIEWS;

/** What stands behind the address's #; nothing where that is no text, such as %. */
function afterHash(): string {
	try {
		return decodeURIComponent(location.hash.slice(1));
	} catch {
		return "";
	}
}

/** The view and the node that the address names: #rates, #rates@lab-2. */
function useAddress(): { view: Name; node: string } {
	const named = () => {
		const [view = "", node = ""] = afterHash().split("@");
		if (view === "nodes") return { view: view as Name, node: "" }; // of all of them
		return { view: view in VIEWS ? (view as Name) : ("chains" as Name), node };
	};
	const [address, setAddress] = useState(named);
	useEffect(() => {
		const look = () => setAddress(named());
		addEventListener("hashchange", look);
		return () => removeEventListener("hashchange", look);
	}, []);
	return address;
}

function Views({ view, node, several }: { view: Name; node: string; several: boolean }) {
	return (
		<nav aria-label="views">
			{Object.entries(VIEWS).filter(([name]) => several || name !== "nodes").map(([name, title]) => (
				<a key={name} href={`#${name}${node && `@${node}`}`} aria-current={name === view ? "page" : undefined}>
					{title}
				</a>
			))}
		</nav>
	);
}

/** The other nodes of the server's list. */
function useNodes(): string[] {
	const [names, setNames] = useState<string[]>([]);
	useEffect(() => {
		fetch("nodes")
			.then((answer) => answer.json())
			.then(({ nodes }) => setNames(nodes))
			.catch(() => {}); // the stream says why the server does not answer
	}, []);
	return names;
}

/** Which node is shown, where there are several. */
function Nodes({ view, node, names }: { view: Name; node: string; names: string[] }) {
	if (!names.length) return null;
	const shown = view === "nodes" ? "chains" : view;
	return (
		<select aria-label="node" value={node} onChange={(event) => (location.hash = `${shown}${event.currentTarget.value && `@${event.currentTarget.value}`}`)}>
			<option value="">this node</option>
			{names.map((name) => (
				<option key={name} value={name}>
					{name}
				</option>
			))}
		</select>
	);
}

function View({ view, node, history }: { view: Name; node: Node | null; history: Moment[] }) {
	if (view === "functions") return <Functions node={node} />;
	if (view === "host") return <Host node={node} />;
	if (view === "measurement") return <Measurement />;
	if (view === "runs") return <Runs />;
	if (view === "nodes") return <Overview />;
	if (!node) return null;
	if (view === "rates") return <Rates history={history} />;
	return (
		<>
			<Chains node={node} />
			<Delivered history={history} />
			<div class="two">
				<Ports ports={node.ports} />
				<Workers workers={node.workers} />
			</div>
		</>
	);
}

function Page({ address }: { address: { view: Name; node: string } }) {
	const { view } = address;
	const names = useNodes();
	const heard = useStream();
	const replay = useReplay();
	const picture = replay.picture ?? heard.picture;
	const old = !replay.picture && (heard.stale !== null || heard.refused);
	const node = picture?.up ? picture : null;
	const history = useHistory(node);
	return (
		<main class={old ? "old" : ""} data-time={node?.time} data-seconds={node?.seconds}>
			<header class="top">
				<h1>
					<img src="icon.svg" alt="" width="28" height="28" /> Tailrace
				</h1>
				<Nodes {...address} names={names} />
				{replay.picture ? <span class="pill warn">replay</span> : <State {...heard} />}
				{node && (
					<p class="soft">
						{node.spec}
						{node.version !== undefined && `, version ${node.version}`}
					</p>
				)}
				<Bell picture={heard.picture} />
			</header>
			<Views {...address} several={names.length > 0} />
			{replay.bar}
			{replay.picture ? null : <Banner {...heard} />}
			<Replaying.Provider value={replay.picture !== null}>
				<View view={view} node={node} history={history} />
			</Replaying.Provider>
		</main>
	);
}

/** A page for each node: nothing of one is taken for another's. */
function Pages() {
	const address = useAddress();
	askOf(address.node);
	return <Page key={address.node} address={address} />;
}

// The token has become a cookie; it need not stand where others may read it.
history.replaceState(null, "", location.pathname + location.hash);
render(<Pages />, document.body);
