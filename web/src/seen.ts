// What is outside the window needs no drawing: it is drawn when it comes near.
import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const NEAR = "200px";

/** The value, or while the element is far from the window the one of when it was near. */
export function useSeen<T>(value: T, element: RefObject<Element | null>, always: boolean): T {
	const [seen, setSeen] = useState(true);
	const last = useRef(value);
	useEffect(() => {
		if (!element.current) return;
		const observer = new IntersectionObserver((entries) => setSeen(entries[entries.length - 1]!.isIntersecting), { rootMargin: NEAR });
		observer.observe(element.current);
		return () => observer.disconnect();
	}, []);
	if (seen || always) last.current = value;
	return last.current;
}
