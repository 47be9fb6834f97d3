#!/usr/bin/env node
// Starts the program of this system, which is in a package of its own: npm installs the one that fits. Clients that
// `metamcp init` configures start that program itself, without Node.
"use strict";

const name = `@metamcp/${process.platform}-${process.arch}`;
const file = process.platform === "win32" ? "metamcp.exe" : "metamcp";

let program;
try {
  program = require.resolve(`${name}/bin/${file}`);
} catch {
  console.error(
    `metamcp: the package ${name} is not installed. Either npm left optional packages out (install metamcp again ` +
      `without --omit=optional or --no-optional), or metamcp is not made for ${process.platform} on ${process.arch}.`,
  );
  process.exit(1);
}

const words = process.argv.slice(2);
if (process.execve && process.platform !== "win32") {
  // Newer versions of Node can become the program, so that nothing stays between it and its client.
  try {
    process.execve(program, [program, ...words], process.env);
  } catch {
    // Not permitted here: start it as a child.
  }
}

const child = require("node:child_process").spawn(program, words, { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`metamcp: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
// A terminal sends these to the program as well; whoever sends them to us alone means the program.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code, signal) => {
  if (signal) {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  } else {
    process.exit(code);
  }
});
