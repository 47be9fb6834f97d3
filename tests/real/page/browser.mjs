// A real Chromium, what it complains about, and ways to look at a page that its own policy does not forbid.
import { mkdtempSync, rmSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** How long anything may take to appear on a loaded machine. */
export const PATIENCE = 30_000;

const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  "--disable-extensions", "--disable-default-apps", "--metrics-recording-only", "--disable-dev-shm-usage", "--force-color-profile=srgb",
];

/** The browser that npm brought, the one named by CHROME, or the system's. */
function program(installed) {
  const own = join(installed, "browser/chromium");
  const all = [process.env.CHROME, own, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const found = all.find((one) => one && existsSync(one));
  if (!found) throw new Error("there is no Chromium: npm brings one for Linux on x64 only; name another in CHROME, or install chromium");
  return found;
}

export async function launch(installed) {
  const need = createRequire(join(installed, "from.js"));
  const { chromium } = need("playwright-core");
  const axe = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8");
  const profile = mkdtempSync(join(tmpdir(), "page-profile-"));
  const browser = join(installed, "browser");
  const fonts = join(profile, "fonts.conf");
  const folders = ["/usr/share/fonts", join(browser, "fonts")].map((one) => `<dir>${one}</dir>`).join("");
  writeFileSync(fonts, `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>${folders}<cachedir>${profile}/fonts</cachedir></fontconfig>`);
  const env = { ...process.env, FONTCONFIG_FILE: fonts, HOME: profile };
  const options = (more) => ({
    executablePath: program(installed), headless: true, args: FLAGS, env: { ...env, ...more },
    viewport: { width: 1280, height: 860 }, reducedMotion: "reduce", timezoneId: "Europe/Berlin", locale: "en-GB",
  });
  let context;
  try {
    context = await chromium.launchPersistentContext(profile, options({}));
  } catch {
    // A machine without a desktop may lack libraries; the package brings those too.
    context = await chromium.launchPersistentContext(profile, options({ LD_LIBRARY_PATH: join(browser, "al2023/lib") }));
  }
  context.setDefaultTimeout(PATIENCE);
  const page = context.pages()[0] ?? await context.newPage();
  const seen = { violations: [], dialogs: [], errors: [], strangers: [], requests: 0, opened: 0 };
  context.on("page", (one) => { if (one !== page) seen.opened += 1; });
  page.on("dialog", (dialog) => { seen.dialogs.push(dialog.message()); dialog.dismiss().catch(() => {}); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => {
    const words = message.text();
    if (/Content Security Policy|Trusted ?Type|Refused to/i.test(words)) seen.violations.push(words);
    else if (message.type() === "error" && !/status of 4\d\d|ERR_CONNECTION_REFUSED/.test(words)) seen.errors.push(words);
  });
  const own = { origin: null };
  page.on("request", (request) => {
    seen.requests += 1;
    const url = new URL(request.url());
    if (own.origin && url.origin !== own.origin && url.protocol !== "data:") seen.strangers.push(request.url());
  });
  // Violations as the page itself is told of them: the console is for people.
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  const cdp = await context.newCDPSession(page);
  /** An expression in the page, by the debugger: the page's policy has no say in that. */
  const evaluate = async (expression) => {
    const { result, exceptionDetails } = await cdp.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const violations = async () => [...seen.violations, ...(await evaluate("globalThis.violations"))];
  const until = async (what, expression) => {
    const end = performance.now() + PATIENCE;
    let last;
    do {
      last = await evaluate(expression);
      if (last) return last;
      await page.waitForTimeout(50);
    } while (performance.now() < end);
    throw new Error(`not seen: ${what}; the page says: ${(await evaluate("document.body.innerText")).slice(0, 1_500)}`);
  };
  /** Serious and critical findings of axe. */
  const judge = async () => {
    if (!(await evaluate("typeof globalThis.axe === 'object'"))) await evaluate(`${axe}; true`);
    const found = await evaluate(`axe.run(document, { resultTypes: ["violations"] }).then((all) => all.violations.map((one) => ({ id: one.id, impact: one.impact, help: one.help, where: one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200) + " " + (node.any[0]?.message ?? "")) })))`);
    return found.filter((one) => one.impact === "serious" || one.impact === "critical");
  };
  const enter = async (url) => {
    own.origin = new URL(url).origin;
    await page.goto(url);
    await until("the page behind the link", "location.pathname === '/' && document.querySelector('main h1') !== null");
  };
  /** A view, once it has its data. */
  const go = async (hash) => {
    // The view that is there is marked, so that it is not taken for the next one.
    await evaluate(`(() => { const old = location.hash; location.hash = ${JSON.stringify(hash)}; if (location.hash !== old) document.querySelector('.content')?.setAttribute('data-old', ''); })()`);
    await settled();
  };
  const settled = () => until("a view with its data", "document.querySelector('.content:not([data-old])') !== null && !document.querySelector('.content[aria-busy]') && !document.querySelector('.content > .loading')");
  const shot = async (folder, name, fullPage = false) => page.screenshot({ path: join(folder, `${name}.png`), fullPage, animations: "disabled" });
  const close = async () => {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  };
  return { page, context, cdp, seen, evaluate, violations, until, judge, enter, go, settled, shot, close };
}
