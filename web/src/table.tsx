// A table of anything: a row for each, whose first cell names it. On a narrow screen it scrolls by itself.
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { useSeen } from "./seen";

const MOST = 100; // rows, unless all are asked for
const FEW = 20; // of more rows only those of a table in the window are drawn

export interface Column<T> {
	head: string;
	cell: (row: T) => ComponentChildren;
	state?: (row: T) => string; // the cell's class
}

interface Props<T> {
	id: string; // of the heading
	title: string;
	rows: T[];
	columns: Column<T>[];
	keyOf: (row: T) => string;
	empty?: string; // what is said instead of no rows
	children?: ComponentChildren; // between heading and table
}

export function Table<T>({ id, title, rows: now, columns, keyOf, empty, children }: Props<T>) {
	const [all, setAll] = useState(false);
	const section = useRef<HTMLElement>(null);
	const rows = useSeen(now, section, now.length <= FEW);
	const shown = all ? rows : rows.slice(0, MOST);
	return (
		<section ref={section} class="card" aria-labelledby={id}>
			<h2 id={id}>{title}</h2>
			{children}
			{empty && rows.length === 0 ? (
				<p class="soft">{empty}</p>
			) : (
				<div class="wide" tabIndex={0} role="region" aria-labelledby={id}>
					<table>
						<thead>
							<tr>
								{columns.map(({ head }) => (
									<th key={head} scope="col">
										{head}
									</th>
								))}
							</tr>
						</thead>
						<tbody>
							{shown.map((row) => (
								<Row key={keyOf(row)} row={row} columns={columns} />
							))}
						</tbody>
					</table>
				</div>
			)}
			{shown.length < rows.length && (
				<button type="button" onClick={() => setAll(true)}>
					{rows.length - shown.length} more
				</button>
			)}
		</section>
	);
}

/** Drawn again where what it is of is another; of an entry, its value. */
function Row<T>({ row, columns }: { row: T; columns: Column<T>[] }) {
	const of = Array.isArray(row) ? row : [row];
	return useMemo(() => {
		const [first, ...others] = columns;
		return (
			<tr>
				<th scope="row">{first!.cell(row)}</th>
				{others.map(({ head, cell, state }) => (
					<td key={head} class={state?.(row)}>
						{cell(row)}
					</td>
				))}
			</tr>
		);
	}, [columns, ...of]);
}

/** A share of one as a bar and as a number. */
export function Share({ value, label }: { value: number; label: string }) {
	return (
		<>
			<meter min={0} max={1} high={0.9} value={value} aria-label={label} />
			<span>{(value * 100).toFixed(0)} %</span>
		</>
	);
}
