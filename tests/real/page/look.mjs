// What a person does on the page, in a real browser: `node look.mjs PLAN.json` prints a report that the Rust test judges.
//
// The plan says where the browser is, what opens the page, where pictures go, and which scenario to play.

import { execFile } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { promisify } from "node:util";
import { actions } from "./actions.mjs";
import { launch } from "./browser.mjs";

const plan = JSON.parse(readFileSync(process.argv[2], "utf8"));
const run = promisify(execFile);
mkdirSync(plan.pictures, { recursive: true });
const report = { steps: [], axe: {}, nodes: {} };
const browser = await launch(plan.installed);
const { page, evaluate, until, go, judge, shot, seen } = browser;
const done = (what) => report.steps.push(what);
const says = (words) => `document.querySelector('main').innerText.includes(${JSON.stringify(words)})`;
const toast = (words) => until(`a word about it: ${words}`, `document.getElementById('live').textContent.includes(${JSON.stringify(words)})`);
const click = (name) => page.getByRole("button", { name, exact: true }).click();
const pages = ["", "servers", "tools", "calls", "scripts", "approvals", "gallery", "sessions", "settings"];
const metamcp = (...args) => run(plan.metamcp[0], [...plan.metamcp.slice(1), ...args], { cwd: plan.folder, env: plan.env });

async function judged(name) {
  report.axe[name] = await judge();
  report.nodes[name] = await evaluate("document.querySelectorAll('*').length");
}

const dark = (on) => page.emulateMedia({ colorScheme: on ? "dark" : "light", reducedMotion: "reduce" });

/** Every page in light and dark, and as narrow as a phone. */
async function everyPage(views, pictured) {
  for (const view of views) {
    const name = view.replace(/^#\//, "").replace(/[^a-z0-9]+/gi, "-") || "overview";
    await go(view);
    for (const on of [false, true]) {
      await dark(on);
      await judged(`${name} ${on ? "dark" : "light"}`);
      if (pictured) await shot(plan.pictures, `${name}-${on ? "dark" : "light"}`);
    }
    await dark(false);
    await page.setViewportSize({ width: 360, height: 740 });
    const over = await evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    if (over > 0) throw new Error(`${name} is ${over} pixels wider than a phone`);
    await judged(`${name} phone`);
    if (pictured) await shot(plan.pictures, `${name}-phone`);
    await page.setViewportSize({ width: 1280, height: 860 });
    done(`looked at ${view}`);
  }
}

const scenarios = {
  ...actions({ browser, plan, report, done, says, toast, click, metamcp, judged }),

  /** Nothing is configured, nothing happened. */
  async empty() {
    for (const [view, words] of [
      ["#/", "No server is configured."], ["#/servers", "metamcp add memory"], ["#/tools", "No tool is known yet."], ["#/calls", "metamcp call SERVER:TOOL"],
      ["#/scripts", "metamcp run"], ["#/approvals", "No installation waits for you."], ["#/gallery", "Find a server for a need"], ["#/sessions", "metamcp init"], ["#/settings", "the configuration is as it should be"],
    ]) {
      await go(view);
      await until(`${words} on ${view}`, says(words));
      await judged(`empty ${view}`);
      done(`empty ${view}`);
    }
    await go("#/server/nobody");
    await until("what is wrong", says('there is no server "nobody" here'));
    await go("#/call/99");
    await until("what is wrong", says("there is no call 99"));
    await go("#/call/x");
    await until("what is wrong", says("Try again"));
    done("what is not there is said");
  },

  /** Everything there is to see and to do. */
  async full() {
    await everyPage(["#/", "#/servers", "#/server/text", "#/server/github", "#/tools?q=work%20out%20the%20average", "#/tool/numbers%3Astatistics", "#/calls", "#/call/1", "#/scripts", "#/script/1", "#/approvals", "#/gallery?need=what%20time%20is%20it%20in%20Sydney", "#/listed/memory", "#/sessions", "#/settings"], true);
    // What is seen is what there is.
    await go("#/server/github");
    await until("the missing variable", says("PAGE_TOKEN_NOT_SET"));
    await go("#/settings");
    await until("the origin of a value", says("variable METAMCP_CONFIG"));
    done("missing variables and origins");

    // The search is the model's, and says why.
    await go("#/tools");
    await page.keyboard.press("/");
    await page.keyboard.type("work out the average");
    await page.keyboard.press("Enter");
    await until("hits", "document.querySelector('.two pre') !== null && document.querySelector('.two pre').textContent.includes('numbers:statistics')");
    report.search = await evaluate("document.querySelector('.two pre').textContent");
    await page.locator("ol.why summary").first().click();
    await until("the features", "document.querySelector('ol.why details[open] tbody tr') !== null");
    done("search with why");

    // A tool by its form, and its call afterwards.
    await go("#/tool/numbers%3Astatistics");
    await page.getByLabel("values").fill("2\n4\n9");
    await click("Run");
    await until("the result", says('"mean":5') + " || " + says('"mean": 5'));
    await page.getByRole("button", { name: "Edit as JSON" }).click();
    report.json = await page.getByLabel("Arguments as JSON").inputValue();
    await page.getByLabel("Arguments as JSON").fill("{\"values\": \"no\"}");
    await click("Run");
    await until("what is wrong with the arguments", "document.querySelector('.badge.bad') !== null");
    await page.getByLabel("Arguments as JSON").fill("{");
    await click("Run");
    await toast("the arguments are not JSON");
    done("a tool run by its form");

    // A call made elsewhere appears by itself, and leads to its timeline.
    await go("#/calls");
    const before = await evaluate("document.querySelectorAll('#calls tbody tr').length");
    await metamcp("call", "text:slugify", "text=Live From Elsewhere");
    await until("the new call", `document.querySelectorAll('#calls tbody tr').length > ${before} && document.querySelector('#calls tbody tr').textContent.includes('text:slugify')`);
    done("a live call");
    await page.locator("#calls tbody tr a").first().click();
    await until("its timeline", "document.querySelector('svg.timeline rect') !== null");
    await until("its steps", says("answered"));
    done("a timeline");
    await go("#/calls");
    await page.getByLabel("Server").fill("numbers");
    await until("only those", "[...document.querySelectorAll('#calls tbody .id')].length > 0 && [...document.querySelectorAll('#calls tbody .id')].every((one) => one.textContent.startsWith('numbers:'))");
    await page.getByLabel("Only failed").check();
    await until("only failed ones", "[...document.querySelectorAll('#calls tbody tr')].every((one) => one.querySelector('.badge.bad'))");
    await page.getByLabel("Server").fill("nobody");
    await until("none", says("No call fits these filters."));
    done("filters");

    // A script with its code, logs and calls.
    await go("#/scripts");
    await page.locator("tbody tr a").first().click();
    await until("its code", says("numbers.factorize"));
    await until("its log", says("factors of 1001"));
    await until("its call", says("numbers:factorize"));
    done("a script");

    // A server: restart, off, on.
    await go("#/server/text");
    const pid = () => evaluate("[...document.querySelectorAll('td[data-title=Process]')].map((one) => one.textContent).find((one) => /^\\d+$/.test(one)) ?? ''");
    const old = await pid();
    await click("Restart");
    await toast("text was restarted");
    await until("another process", `[...document.querySelectorAll('td[data-title=Process]')].some((one) => /^\\d+$/.test(one.textContent) && one.textContent !== ${JSON.stringify(old)})`);
    report.pids = [old, await pid()];
    done("restart");
    await click("Disable");
    await toast("text is disabled");
    await until("that it is off", says("turned off in the config file"));
    report.disabled = JSON.parse(readFileSync(plan.config, "utf8")).mcpServers.text.disabled;
    await click("Enable");
    await toast("text is enabled");
    await until("that it is on", `!${says("turned off in the config file")}`);
    report.enabled = JSON.parse(readFileSync(plan.config, "utf8")).mcpServers.text.disabled ?? false;
    done("disable and enable");

    // stderr comes as it is written.
    await go("#/server/talker");
    await until("its stderr", "document.querySelector('pre.log').textContent.includes('talker says hello')");
    await metamcp("call", "talker:say", "words=fresh words");
    await until("what it wrote now", "document.querySelector('pre.log').textContent.includes('fresh words')");
    done("live stderr");

    // The keyboard alone, and what a screen reader is told.
    await go("#/");
    await page.reload();
    await browser.settled();
    await page.keyboard.press("Tab");
    report.first = await evaluate("document.activeElement.textContent");
    await page.keyboard.press("Enter");
    report.skipped = await evaluate("document.activeElement.id");
    await page.getByRole("link", { name: "Servers", exact: true }).focus();
    await page.keyboard.press("Enter");
    await until("the next page", "document.activeElement.tagName === 'H1'");
    await browser.settled();
    report.focused = await evaluate("document.activeElement.tagName + ' ' + document.activeElement.textContent");
    report.current = await evaluate("document.querySelector('nav [aria-current=page]').textContent");
    await page.getByRole("button", { name: "Theme" }).click();
    await page.getByRole("button", { name: "Theme" }).click();
    report.theme = await evaluate("document.documentElement.dataset.theme");
    await page.reload();
    report.kept = await evaluate("document.documentElement.dataset.theme");
    await page.getByRole("button", { name: "Theme" }).click();
    done("keyboard and theme");

    // Nobody asks while nobody looks.
    await browser.settled();
    await click("Pause");
    await page.waitForTimeout(300);
    const asked = seen.requests;
    await page.waitForTimeout(2_500);
    report.whilePaused = seen.requests - asked;
    await click("Go on");
    done("pause");
  },

  /** Every word of a server's is hostile. */
  async hostile() {
    await go("#/server/hostile");
    await until("its stderr", "document.querySelector('pre.log').textContent.includes('pwned(0)')");
    await until("its tools", "document.querySelectorAll('[data-title=Tool]').length > 20");
    await shot(plan.pictures, "hostile");
    await judged("hostile server");
    report.rows = await evaluate("[...document.querySelectorAll('td[data-title=About]')].map((one) => one.textContent)");
    await click("Next");
    await until("the next page", says("101 to "));
    report.rows.push(...(await evaluate("[...document.querySelectorAll('td[data-title=About]')].map((one) => one.textContent)")));
    for (const tool of ["tool0", "tool1", "tool2", "tool16"]) {
      await go(`#/tool/hostile%3A${tool}`);
      await click("Run");
      await until("what it answers", "document.querySelector('form + div .badge') !== null");
      for (const summary of await page.locator("main summary").all()) await summary.click();
      await page.waitForTimeout(200);
    }
    report.shown = await evaluate("[...document.querySelectorAll('main pre')].map((one) => one.textContent).join('\\n')");
    // Sources of names: the address, the search, filters.
    for (const words of plan.corpus) {
      await evaluate(`location.hash = '#/server/' + encodeURIComponent(${JSON.stringify(words)})`);
      await evaluate(`location.hash = ${JSON.stringify(`#/calls?server=${words}`)}`);
    }
    await go("#/tools?q=" + encodeURIComponent("<img src=x onerror=pwned()>"));
    await until("an answer", "document.querySelector('.two pre') !== null");
    await go("#/calls?server=hostile");
    await go("#/");
    await go("#/servers");
    report.markup = await evaluate("document.querySelectorAll('main script, main iframe, main object, main embed, main style, main link, main base, main meta, main form[action], main [onerror], main [onload], main [style], main img, main video, main audio, main math').length");
    report.title = await page.title();
    done("hostile");
  },

  /** 200 servers with 100 tools each. */
  async crowd() {
    await go("#/");
    await judged("crowd overview");
    await go("#/servers");
    await until("all servers", "document.querySelectorAll('tbody tr').length >= 200");
    await judged("crowd servers");
    await page.getByLabel("Filter").fill("crowd-19");
    await until("some servers", "document.querySelectorAll('tbody tr').length === 11");
    await go("#/tools");
    await until("the first page of tools", says("1 to 100 of 20,"));
    await judged("crowd tools");
    await page.getByLabel("Filter").fill("crowd-150");
    await until("the tools of one", says("1 to 100 of 102"));
    await click("Next");
    await until("the last page", says("101 to 102 of 102"));
    await click("Previous");
    await until("the first page", says("1 to 100 of 102"));
    await page.getByRole("searchbox", { name: "What the tool should do" }).fill("echo");
    await click("Search");
    await until("an answer", "document.querySelector('.two pre') !== null");
    await go("#/calls");
    // Many more calls than anybody could read.
    const asked = seen.requests;
    const from = performance.now();
    await metamcp("run", plan.flood);
    await until("the newest calls", "document.querySelectorAll('#calls tbody tr').length >= 100");
    report.requestsPerSecond = (seen.requests - asked) / Math.max(1, (performance.now() - from) / 1_000);
    await judged("crowd calls");
    await until("that some are left out", "document.body.innerText.includes('are not shown') || document.querySelectorAll('#calls tbody tr').length >= 100");
    done("crowd");
  },

  /** What waits for a person. */
  async approve() {
    await go("#/approvals");
    await until("the count of what waits", "document.querySelector('nav .count').textContent.includes('2')");
    await until("the plan", says(plan.waits.server));
    await until("the project file", says("sha256"));
    await judged("approvals with plans light");
    await shot(plan.pictures, "approvals-waiting");
    if (!plan.person) {
      report.canApprove = await evaluate("[...document.querySelectorAll('.ask button.main')].some((one) => !one.disabled)");
      await until("why not", says("This page can only look and decline."));
      const forced = (name, body) => evaluate(`fetch('/api/${name}', { method: 'POST', headers: { 'content-type': 'application/json', 'x-metamcp-key': localStorage.getItem('metamcp.key') }, body: ${JSON.stringify(JSON.stringify(body))} }).then(async (answer) => answer.status + ' ' + (await answer.text()))`);
      report.forced = [
        await forced("trust", { file: plan.project, sha256: plan.sha256, approve: true }),
        await forced("approve", { digest: plan.waits.digest ?? "any", values: {} }),
        await forced("accept", { digest: "any" }),
      ];
      await page.getByRole("article", { name: /^Install/ }).getByRole("button", { name: "Decline" }).click();
      await toast("was dropped");
      await page.getByRole("article", { name: /^Project file/ }).getByRole("button", { name: "Decline" }).click();
      await toast("declined");
      await until("that it is declined", "[...document.querySelectorAll('.ask .badge')].some((one) => one.textContent === 'declined')");
      done("declined");
      return;
    }
    await click("Trust exactly this");
    await toast("approved");
    done("trusted");
    await click("Install exactly this");
    await toast("is installed");
    await until("that nothing waits", says("No installation waits for you."));
    done("installed");
    await go(`#/server/${plan.waits.server}`);
    await until("what was installed", says("Pinned tools"));
  },

  /** A daemon that ends while somebody looks. */
  async ended() {
    await go("#/");
    await metamcp("daemon", "stop");
    await until("what to do", "document.getElementById('banner').innerText.includes('metamcp ui')");
    await judged("the daemon ended");
    await shot(plan.pictures, "ended");
    done("ended");
  },
};

try {
  await browser.enter(plan.url);
  await dark(false);
  await scenarios[plan.scenario]();
  report.violations = await browser.violations();
} catch (error) {
  report.failure = `${error.stack ?? error}`;
  await shot(plan.pictures, `failed-${plan.scenario}`).catch(() => {});
}
Object.assign(report, { dialogs: seen.dialogs, errors: seen.errors, strangers: seen.strangers, opened: seen.opened, requests: seen.requests });
await browser.close();
console.log(JSON.stringify(report));
