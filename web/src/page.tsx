// The page: what the node does now, or why that is not known.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Bell } from "./bell";
import { Chains } from "./chains";
import { Functions } from "./functions";
import { useHistory, type Moment } from "./history";
import { Host } from "./host";
import { Measurement } from "./measurement";
import type { Node } from "./picture";
import { Delivered, Rates } from "./rates";
import { useReplay } from "./replay";
import { Runs } from "./runs";
import { useStream, type Heard } from "./stream";
import { Ports, Workers } from "./tables";

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
	else if (picture?.record) text = picture.record;
	else if (picture && !picture.up) text = `${picture.why[0]?.toUpperCase()}${picture.why.slice(1)}.`;
	return (
		<p class={`banner ${text ? "" : "empty"}`} role="status">
			{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}
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
};

type Name = keyof typeof VIEWS;

/** The view that the address names. */
function useView(): Name {
	const named = () => (location.hash.slice(1) in VIEWS ? (location.hash.slice(1) as Name) : "chains");
	const [view, setView] = useState<Name>(named);
	useEffect(() => {
		const look = () => setView(named());
		addEventListener("hashchange", look);
		return () => removeEventListener("hashchange", look);
	}, []);
	return view;
}

function Views({ view }: { view: Name }) {
	return (
		<nav aria-label="views">
			{Object.entries(VIEWS).map(([name, title]) => (
				<a key={name} href={`#${name}`} aria-current={name === view ? "page" : undefined}>
					{title}
				</a>
			))}
		</nav>
	);
}

function View({ view, node, history }: { view: Name; node: Node | null; history: Moment[] }) {
	if (view === "functions") return <Functions node={node} />;
	if (view === "host") return <Host node={node} />;
	if (view === "measurement") return <Measurement />;
	if (view === "runs") return <Runs />;
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

function Page() {
	const heard = useStream();
	const replay = useReplay();
	const picture = replay.picture ?? heard.picture;
	const old = !replay.picture && (heard.stale !== null || heard.refused);
	const node = picture?.up ? picture : null;
	const view = useView();
	const history = useHistory(node);
	return (
		<main class={old ? "old" : ""} data-time={node?.time} data-seconds={node?.seconds}>
			<header class="top">
				<h1>
					<img src="icon.svg" alt="" width="28" height="28" /> Tailrace
				</h1>
				{replay.picture ? <span class="pill warn">replay</span> : <State {...heard} />}
				{node && (
					<p class="soft">
						{node.spec}
						{node.version !== undefined && `, version ${node.version}`}
					</p>
				)}
				<Bell picture={picture} />
			</header>
			<Views view={view} />
			{replay.bar}
			{replay.picture ? null : <Banner {...heard} />}
			<View view={view} node={node} history={history} />
		</main>
	);
}

// The token has become a cookie; it need not stand where others may read it.
history.replaceState(null, "", location.pathname + location.hash);
render(<Page />, document.body);
