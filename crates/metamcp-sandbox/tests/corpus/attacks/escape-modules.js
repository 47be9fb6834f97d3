// expect: error
return (await import("fs")).readFileSync("@SECRET@", "utf8");
//---
// expect: error
return (await import("@SECRET@")).default;
//---
// expect: error
return await import("std");
//---
// expect: error
return await import("os");
//---
// expect: error
return await import("qjs:std");
//---
// expect: error
return await import("node:child_process");
//---
// expect: error
return await import("data:text/javascript,export default 1");
//---
// expect: error
return await import("file:///etc/passwd");
//---
// expect: error
return await import("/proc/self/environ");
//---
// expect: error
return await import({ toString() { return "@SECRET@" } });
//---
// expect: error
import fs from "fs"; return fs;
//---
// expect: error
export default 1;
//---
// expect: error
return require("child_process").execSync("touch @TARGET@");
//---
// expect: error
return eval("import('os')");
//---
// expect: error
return import.meta.url;
//---
// expect: ok
return typeof eval("(0, eval)('this')").process;
//---
// expect: ok
return (0, eval)("typeof std + typeof os + typeof bjson");
//---
// expect: error
return process.binding("fs");
//---
// expect: error
return Deno.readTextFileSync("@SECRET@");
//---
// expect: error
return Bun.file("@SECRET@").text();
//---
// expect: error
std.open("@TARGET@", "w"); return 1;
//---
// expect: error
os.exec(["touch", "@TARGET@"]); return 1;
//---
// expect: error
return await fetch("http://169.254.169.254/latest/meta-data/");
//---
// expect: error
new XMLHttpRequest().open("GET", "http://localhost"); return 1;
//---
// expect: error
new WebSocket("ws://localhost"); return 1;
//---
// expect: error
new Worker("x.js"); return 1;
//---
// expect: error
return new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
//---
// expect: ok
return typeof WebAssembly;
//---
// expect: error
loadScript("@SECRET@"); return 1;
//---
// expect: error
return read("@SECRET@");
//---
// expect: error
return await import("metamcp:prelude/core");
//---
// expect: error
return await import("metamcp:prelude");
//---
// expect: error
return await import("core");
