// Makes the page that the Python package ships: node build.mjs [FOLDER]
import { cp } from "node:fs/promises";
import { build } from "esbuild";

const here = import.meta.dirname;
const folder = process.argv[2] ?? `${here}/../tailrace/dashboard/static`;

await build({
	entryPoints: [`${here}/src/page.tsx`, `${here}/src/page.css`],
	outdir: folder,
	bundle: true,
	minify: true,
	format: "esm",
	target: "es2022",
	jsx: "automatic",
	jsxImportSource: "preact",
	legalComments: "inline",
	logLevel: "warning",
});
await cp(`${here}/static`, folder, { recursive: true });
