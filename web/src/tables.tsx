// Ports and workers as tables.
import { rateOf, totalOf, type Port, type Worker } from "./picture";
import { percent, short, sorted } from "./words";

export function Ports({ ports }: { ports: Record<string, Port> }) {
	return (
		<section class="card" aria-labelledby="ports">
			<h2 id="ports">Ports</h2>
			<div class="wide" tabIndex={0} role="region" aria-labelledby="ports">
				<table>
					<thead>
						<tr>
							<th scope="col">port</th>
							<th scope="col">state</th>
							<th scope="col">rx pps</th>
							<th scope="col">rx bps</th>
							<th scope="col">tx pps</th>
							<th scope="col">tx bps</th>
							<th scope="col">waiting</th>
							<th scope="col">drops/s</th>
							<th scope="col">dropped</th>
						</tr>
					</thead>
					<tbody>
						{sorted(ports).map(([name, port]) => (
							<tr key={name}>
								<th scope="row">{name}</th>
								<td class={`state ${port.state}`}>{port.state || "–"}</td>
								<td>{short(port.received.packets)}</td>
								<td>{short(port.received.bits)}</td>
								<td>{short(port.sent.packets)}</td>
								<td>{short(port.sent.bits)}</td>
								<td>{short(port.waiting)}</td>
								<td class={rateOf(port.drops) > 0 ? "bad" : ""}>{short(rateOf(port.drops))}</td>
								<td title={Object.keys(port.drops).join(", ")}>{short(totalOf(port.drops))}</td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
		</section>
	);
}

export function Workers({ workers }: { workers: Record<string, Worker> }) {
	return (
		<section class="card" aria-labelledby="workers">
			<h2 id="workers">Workers</h2>
			<div class="wide" tabIndex={0} role="region" aria-labelledby="workers">
				<table>
					<thead>
						<tr>
							<th scope="col">worker</th>
							<th scope="col">core</th>
							<th scope="col">idle</th>
							<th scope="col">busy</th>
							<th scope="col">asleep</th>
							<th scope="col">pps</th>
							<th scope="col">cycles/packet</th>
							<th scope="col">burst</th>
						</tr>
					</thead>
					<tbody>
						{sorted(workers).map(([name, worker]) => (
							<tr key={name}>
								<th scope="row">{name}</th>
								<td>{worker.core ?? "–"}</td>
								<td>{worker.idle}</td>
								<td>
									<meter min={0} max={1} high={0.9} value={worker.busy} aria-label={`${name} busy`} />
									<span>{percent(worker.busy)}</span>
								</td>
								<td>{percent(worker.asleep)}</td>
								<td>{short(worker.packets)}</td>
								<td>{worker.cycles_a_packet === undefined ? "–" : short(worker.cycles_a_packet)}</td>
								<td>{worker.burst?.toFixed(1) ?? "–"}</td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
		</section>
	);
}
