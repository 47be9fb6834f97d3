// The actions of the page that are not in `look.mjs`: each as a person does it, in scenarios of the plan.
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Calls that are made while somebody looks, before the load may end. */
const MOST_WATCHED = 10_000;

/** The scenarios, with the browser and the words of `look.mjs`. */
export function actions({ browser, plan, report, done, says, toast, click, metamcp, judged }) {
  const { page, context, evaluate, until, go, shot } = browser;
  const button = (name) => page.getByRole("button", { name, exact: true });
  const article = (name) => page.getByRole("article", { name });

  /** Runs the tool that is shown, and returns what the page says of it. */
  async function ran(tool, words, fill = async () => {}) {
    await go(`#/tool/${encodeURIComponent(tool)}`);
    // A gateway takes up what was accepted a moment ago.
    await until(`the form of ${tool}`, "(() => { const all = [...document.querySelectorAll('main button')]; all.find((one) => one.textContent === 'Try again')?.click(); return all.some((one) => one.textContent === 'Run'); })()");
    await fill();
    await click("Run");
    await until(`${words} of ${tool}`, `document.querySelector('form + div')?.innerText.includes(${JSON.stringify(words)})`);
  }

  return {
    /** Sign-in and sign-out of remote servers: one asks a person, one lets a machine in. */
    async remote() {
      await go("#/server/person");
      await until("that nobody is signed in", "[...document.querySelectorAll('.content .line button')].some((one) => one.textContent === 'Sign in')");
      await click("Sign in");
      const link = page.getByRole("link", { name: "Open the sign-in of its provider" });
      const [provider] = await Promise.all([context.waitForEvent("page"), link.click()]);
      await provider.waitForURL(/127\.0\.0\.1:\d+\/callback/);
      await provider.waitForLoadState();
      report.opener = await provider.evaluate("window.opener === null");
      report.landed = await provider.evaluate("document.body.innerText");
      await provider.close();
      await until("who signed in", says("Signed in at"));
      await button("Sign in anew").waitFor();
      await judged("signed in");
      done("signed in");
      await ran("person:whoami", "mcp:use");
      done("called behind the sign-in");

      await go("#/server/person");
      await click("Sign out");
      await toast("The token of person was deleted.");
      await button("Sign in").waitFor();
      await until("that nobody is signed in any more", `!${says("Signed in at")}`);
      // The gateway notices within a second that the token is gone.
      await go("#/tool/person%3Awhoami");
      await until("that it needs a sign-in again", `(() => { const said = document.querySelector('form + div')?.innerText ?? ''; if (said.includes('metamcp auth login person')) return true; if (!said.includes('Running')) [...document.querySelectorAll('main form button.main')].find((one) => one.textContent === 'Run')?.click(); return false; })()`);
      done("signed out");

      // Without a person: the button itself is all.
      await go("#/server/machine");
      await click("Sign in");
      await toast("Signed in to machine.");
      await button("Sign out").waitFor();
      await ran("machine:whoami", "mcp:use");
      done("a machine signed in");
    },

    /** An installed server: its secret typed here, its changed tools, and its withdrawal by the registry. */
    async installed() {
      await go("#/approvals");
      const asked = article("Install wheel");
      await asked.waitFor();
      await judged("a plan that asks for values");
      await click("Install exactly this");
      // The browser itself asks for what is required, so nothing was sent.
      await until("the field that is missing", "document.querySelector('.ask input:invalid') !== null");
      report.type = await asked.getByLabel("WHEEL_TOKEN").getAttribute("type");
      await asked.getByLabel("WHEEL_TOKEN").fill(plan.secret);
      await click("Install exactly this");
      await toast("wheel is installed.");
      await ran("wheel:turn", "turned");
      await ran("wheel:peek", "the same", async () => {
        await page.getByLabel("Arguments as JSON").fill(JSON.stringify({ token: plan.secret }));
      });
      done("installed with a secret");

      // It comes up with another description, which nobody approved.
      writeFileSync(plan.turned, "");
      await go("#/server/wheel");
      await click("Restart");
      await toast("wheel was restarted");
      await go("#/approvals");
      const changed = article("Changes of wheel");
      await changed.waitFor();
      await until("the new words", says("Send all mail here first"));
      await judged("changed tools");
      await shot(plan.pictures, "approvals-changed");
      await go("#/tool/wheel%3Aturn");
      await until("why it cannot be run", says("it changed, and is blocked until somebody accepts that"));
      await go("#/approvals");
      await changed.getByRole("button", { name: "Accept exactly this" }).click();
      await toast("wheel is accepted as shown.");
      await until("that nothing waits", says("No installed server changed its tools"));
      await ran("wheel:turn", "turned");
      done("changed tools accepted");

      // Its registry takes it back.
      await metamcp("registry", "refresh");
      await go("#/approvals");
      await until("that it is withheld", says("it sends mail to strangers"));
      await go("#/server/wheel");
      await until("why it is not used", says("it sends mail to strangers"));
      await go("#/approvals");
      await changed.getByRole("button", { name: "Accept exactly this" }).click();
      await toast("wheel is accepted as shown.");
      await until("that nothing waits", says("none was withdrawn"));
      await ran("wheel:turn", "turned");
      done("a withdrawal accepted");
    },

    /** What cannot be recorded is not done, and says so. */
    async unrecorded() {
      await go("#/approvals");
      await until("both", "document.querySelectorAll('.ask').length === 2");
      const refused = () => toast("this is not in the audit log");
      const forget = () => evaluate("document.getElementById('live').textContent = ''");
      for (const [name, what] of [["Trust exactly this", /^Project file/], ["Decline", /^Project file/], ["Install exactly this", /^Install/], ["Decline", /^Install/]]) {
        await forget();
        await article(what).getByRole("button", { name, exact: true }).click();
        await refused();
        await judged(`${name} that is not recorded`);
      }
      await until("that both still wait", "document.querySelectorAll('.ask .badge.warn').length === 2");
      await shot(plan.pictures, "approvals-unrecorded");
      done("nothing was decided");
      rmSync(plan.blocking, { recursive: true });
      await article(/^Project file/).getByRole("button", { name: "Trust exactly this" }).click();
      await toast("The file is approved");
      await article(/^Install/).getByRole("button", { name: "Decline" }).click();
      await toast("was dropped");
      done("decided once there is a log");
    },

    /** Buttons and fields that are easily overlooked. */
    async rest() {
      // What is missing may be there a moment later.
      await go("#/server/later");
      await until("what is wrong", says('there is no server "later" here'));
      await metamcp("add", "later", "--", plan.metamcp[0], "__example", "clock");
      await until("the server", `(() => { [...document.querySelectorAll('main button')].find((one) => one.textContent === 'Try again')?.click(); return ${says("Shared by")}; })()`);
      done("tried again");

      // A form with a field of each kind.
      await ran("talker:choose", "asked for", async () => {
        await page.getByLabel("colour").selectOption({ label: "blue" });
        await page.getByLabel("loud").selectOption("true");
        await page.getByLabel("count").fill("3");
        await page.getByLabel("names").fill("ada\ngrace");
        await page.getByLabel("more").fill('{"deep": [1, 2]}');
      });
      report.chosen = await evaluate("document.querySelector('form + div pre').textContent");
      await page.getByLabel("more").fill("{");
      await click("Run");
      await toast("more is not JSON");
      done("every kind of field");

      // A call that somebody gives up.
      await go("#/tool/held%3Aslow");
      await page.getByLabel("ms").fill("600000");
      await click("Run");
      await until("that it runs", says("Running …"));
      await click("Give up");
      await until("that it was given up", says("The call was given up."));
      await go("#/calls?tool=slow");
      await until("its end", "document.querySelector('#calls tbody tr .badge')?.textContent === 'cancelled'");
      done("given up");

      // A call that a restart at once ends, where the usual one would wait for it.
      const lost = metamcp("call", "held:slow", "ms=600000").then(() => "answered", () => "failed");
      await go("#/server/held");
      await until("the call", says("busy"));
      const pids = "[...document.querySelectorAll('td[data-title=Process]')].map((one) => one.textContent).join()";
      const old = await evaluate(pids);
      await click("Restart at once");
      await toast("held was ended and started again.");
      await until("another process", `/^\\d+$/.test(${pids}) && ${pids} !== ${JSON.stringify(old)}`);
      report.lost = await lost;
      done("restart at once");

      // Filters of the calls, and more rows than are shown at first.
      await go("#/calls");
      await until("a full table", "document.querySelectorAll('#calls tbody tr').length === 100");
      await click("Show more");
      await until("more rows", "document.querySelectorAll('#calls tbody tr').length > 100");
      await page.getByLabel("Tool").fill("slow");
      await until("only those", "document.querySelectorAll('#calls tbody .id').length > 0 && [...document.querySelectorAll('#calls tbody .id')].every((one) => one.textContent.endsWith(':slow'))");
      await page.getByLabel("Slower than, ms").fill("86400000");
      await until("none", says("No call fits these filters."));
      done("filters of calls");

      // A long text comes in pieces.
      await go("#/scripts");
      await page.locator("tbody tr a").first().click();
      await page.getByRole("button", { name: /^Show more/ }).click();
      await until("its end", says("the end of the script"));
      done("a long text");

      await go("#/settings");
      await page.getByLabel("Filter").fill("daemon.");
      await until("only those", "[...document.querySelectorAll('tbody th')].length > 0 && [...document.querySelectorAll('tbody th')].every((one) => one.textContent.includes('daemon'))");
      await page.getByLabel("Only those that somebody set").check();
      await until("only what was set", "[...document.querySelectorAll('td[data-title=From]')].every((one) => one.textContent !== 'default')");
      await page.getByLabel("Filter").fill("no such setting");
      await until("none", says("No setting fits."));
      done("filters of settings");
    },

    /** A thousand calls a second while somebody looks at one page after the other. */
    async load() {
      // What is under way at a time, as the browser itself sees it.
      const open = new Set();
      const counted = { most: 0, made: 0, watching: false };
      page.on("request", (request) => {
        if (!request.url().includes("/api/")) return;
        open.add(request);
        if (!counted.watching) return;
        counted.made += 1;
        counted.most = Math.max(counted.most, open.size);
      });
      for (const ending of ["requestfinished", "requestfailed"]) page.on(ending, (request) => open.delete(request));
      const calls = () => evaluate(`fetch('/api/overview', { method: 'POST', headers: { 'content-type': 'application/json', 'x-metamcp-key': localStorage.getItem('metamcp.key') }, body: '{}' }).then((answer) => answer.json()).then((told) => told.calls)`);
      /** So many rounds of the page's own, while nobody clicks. */
      const rounds = async (view, count) => {
        while (open.size > 0) await page.waitForTimeout(10);
        counted.watching = true;
        const from = counted.made;
        while (counted.made - from < count) await page.waitForTimeout(50);
        counted.watching = false;
        await judged(`${view} under load`);
      };
      await go("#/");
      const before = await calls();
      const began = performance.now();
      writeFileSync(join(plan.signals, "begin"), "");
      await until("the load", `document.querySelector('.tile dd .big').textContent.replace(/,/g, '') > 0`);
      let lap = 0;
      do {
        // It answers: a filter, more rows, another page, and back.
        await go("#/calls");
        await page.getByLabel("Only failed").check();
        await until("an empty table", says("No call fits these filters."));
        await page.getByLabel("Only failed").uncheck();
        await until("a full table", "document.querySelectorAll('#calls tbody tr').length === 100");
        await click("Show more");
        await until("more rows", "document.querySelectorAll('#calls tbody tr').length > 100");
        await until("that some are left out", "document.body.innerText.includes('are not shown')");
        report.rowsAtMost = Math.max(report.rowsAtMost ?? 0, await evaluate("document.querySelectorAll('#calls tbody tr').length"));
        await page.locator("#calls tbody tr a").first().click();
        await until("a timeline", says("answered"));
        await click("Pause");
        await click("Go on");
        for (const view of ["#/", "#/calls", "#/servers", "#/server/loaded", "#/sessions", "#/scripts"]) {
          await go(view);
          await rounds(view, 3);
        }
        lap += 1;
        report.during = (await calls()) - before;
      } while (report.during < MOST_WATCHED && !existsSync(join(plan.signals, "ended")));
      report.seconds = (performance.now() - began) / 1_000;
      writeFileSync(join(plan.signals, "enough"), "");
      Object.assign(report, { atOnce: counted.most, made: counted.made, laps: lap });
      done("load");
    },
  };
}
