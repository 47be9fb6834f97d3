// Unpacks the browser of the package into TMPDIR: `node unpack.mjs FOLDER`, where FOLDER has its node_modules.
import { createRequire } from "node:module";
import { join } from "node:path";

// So that the libraries are unpacked as well that a machine without a desktop may lack.
process.env.AWS_EXECUTION_ENV = "AWS_Lambda_nodejs22.x";
const require = createRequire(join(process.argv[2], "from.js"));
const packed = require("@sparticuz/chromium");
const chromium = packed.default ?? packed;
if (process.platform === "linux" && process.arch === "x64") console.log(await chromium.executablePath());
