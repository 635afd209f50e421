// A card with a heading, and what it says where it has nothing to show.
import type { ComponentChildren } from "preact";

export function Card({ id, title, children }: { id: string; title: string; children: ComponentChildren }) {
	return (
		<section class="card" aria-labelledby={id}>
			<h2 id={id}>{title}</h2>
			{children}
		</section>
	);
}

/** A sentence of the server's, its commands set as code. */
export function Sentence({ text }: { text: string }) {
	return <>{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}

/** Why what is asked for is not there, or is old. */
export function Problem({ error }: { error: string }) {
	return error ? (
		<p class="problem" role="status">
			<Sentence text={error} />
		</p>
	) : null;
}
