// Bundles the page of `ziggurat view` into the Python package.
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

process.chdir(import.meta.dirname);
const out = "../src/ziggurat/static";
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  entryPoints: ["src/main.js"],
  outdir: out,
  bundle: true,
  format: "esm",
  // Codecs are loaded when an image has them.
  splitting: true,
  minify: true,
  target: "es2022",
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});

// What is bundled is given away with the package, and so are its licences.
const packages = new Set(
  Object.keys(metafile.inputs)
    .map((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1])
    .filter(Boolean),
);
const notices = [...packages].sort().map((name) => {
  const directory = join("node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(directory, "package.json"), "utf8"));
  const file = readdirSync(directory).find((entry) => /^licen[sc]e/i.test(entry));
  const text = file ? readFileSync(join(directory, file), "utf8").trim() : license;
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync(join(out, "licences.txt"), notices.join(`\n${"-".repeat(80)}\n\n`));
// Last, because the page counts as built when it is there.
for (const name of ["icon.svg", "style.css", "index.html"]) cpSync(join("src", name), join(out, name));
