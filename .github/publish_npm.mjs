// Publishes the npm packages of a folder: `node publish_npm.mjs FOLDER`. What is there already is skipped if it is the
// same, so that an attempt that broke off can be repeated; other contents under the same version are an error.
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";

const folder = resolve(process.argv[2]);
const packages = readdirSync(folder).filter((name) => name.endsWith(".tgz")).map((name) => {
  const file = join(folder, name);
  const manifest = JSON.parse(execFileSync("tar", ["-xzOf", file, "package/package.json"], { encoding: "utf8" }));
  const integrity = `sha512-${createHash("sha512").update(readFileSync(file)).digest("base64")}`;
  return { file, integrity, id: `${manifest.name}@${manifest.version}`, asksFor: Object.keys(manifest.optionalDependencies ?? {}) };
});
if (packages.length === 0) throw new Error(`${folder} holds no package`);

// Who asks for others comes after them: whoever installs in between gets all or nothing.
const names = packages.map(({ id }) => id.slice(0, id.lastIndexOf("@")));
const depth = (name, seen = []) => {
  const at = names.indexOf(name);
  if (at < 0 || seen.includes(name)) return 0;
  return 1 + Math.max(0, ...packages[at].asksFor.map((next) => depth(next, [...seen, name])));
};
const order = packages
  .map((one, at) => ({ ...one, depth: depth(names[at]) }))
  .sort((a, b) => a.depth - b.depth || a.id.localeCompare(b.id));

// Nothing is published before all of them can be.
for (const one of order) {
  const asked = spawnSync("npm", ["view", one.id, "dist.integrity", "--json"], { encoding: "utf8" });
  // Some versions of npm answer with a list.
  const [answer] = asked.stdout.trim() ? [JSON.parse(asked.stdout)].flat() : [];
  if (asked.status !== 0 && answer?.error?.code !== "E404") {
    throw new Error(`npm does not say whether ${one.id} is there: ${asked.stdout}${asked.stderr}`);
  }
  one.there = asked.status === 0 && answer !== undefined;
  if (one.there && answer !== one.integrity) {
    throw new Error(`${one.id} is there with other contents (${answer}, here ${one.integrity}); they need a new version`);
  }
}
for (const { id, file, there } of order) {
  console.log(there ? `${id} is there already` : `${id}:`);
  if (!there) execFileSync("npm", ["publish", file, "--access", "public"], { stdio: "inherit" });
}
