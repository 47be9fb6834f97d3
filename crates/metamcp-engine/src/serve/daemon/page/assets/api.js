// Requests to the daemon, one way of polling, and what the whole page says when the daemon is gone.
import { add, put } from "./dom.js";

export class Refused extends Error {
  constructor(body, status) {
    super(String(body.error ?? `the daemon answered with ${status}`));
    this.hint = body.hint ? String(body.hint) : null;
    this.code = String(body.code ?? "");
    this.status = status;
  }
}

/** How many requests were made and how many are under way: for the tests, and for who wonders. */
export const traffic = { made: 0, open: 0 };

let isClosed = false;

/** One request. */
export async function ask(name, params = {}, { signal } = {}) {
  traffic.made += 1;
  traffic.open += 1;
  try {
    let answer;
    try {
      answer = await fetch(`/api/${encodeURIComponent(name)}`, {
        method: "POST",
        headers: { "content-type": "application/json", "x-metamcp-key": localStorage.getItem("metamcp.key") ?? "" },
        body: JSON.stringify(params),
        signal,
      });
    } catch (error) {
      if (error.name !== "AbortError") banner("The daemon ended.", "Run `metamcp ui` again; this page tries to reach it meanwhile.");
      throw error;
    }
    const body = await answer.json().catch(() => ({}));
    if (answer.status === 401) {
      isClosed = true;
      banner("This browser is no longer let in.", "Run `metamcp ui` in a terminal, which opens the page anew.");
      throw new Refused(body, 401);
    }
    banner(null);
    if (!answer.ok) throw new Refused(body, answer.status);
    return body;
  } finally {
    traffic.open -= 1;
  }
}

const bar = document.getElementById("banner");
function banner(title, hint) {
  if (title === null) {
    bar.hidden = true;
    return;
  }
  if (!bar.hidden && bar.dataset.title === title) return;
  bar.dataset.title = title;
  const strong = document.createElement("strong");
  strong.textContent = title;
  put(bar, strong, " ", hint);
  bar.hidden = false;
}

const live = document.getElementById("live");
let forgetting;
/** Says in a few words what was done, for eyes and ears. */
export function say(words, tone = "good") {
  put(live, words);
  live.className = `toast shown ${tone}`;
  clearTimeout(forgetting);
  forgetting = setTimeout(() => { live.className = "toast"; }, 6_000);
}

/** What went wrong, and what to do next. */
export function told(error) {
  const box = document.createElement("div");
  box.className = "failed";
  box.setAttribute("role", "alert");
  const words = error instanceof Refused ? error.message : "The daemon does not answer.";
  add(box, [words]);
  if (error?.hint) {
    const hint = document.createElement("p");
    add(hint, [error.hint]);
    box.append(hint);
  }
  return box;
}

/** Does something because of a button: once at a time, and says how it ended. */
export async function act(button, work, done) {
  if (button.getAttribute("aria-disabled") === "true") return undefined;
  button.setAttribute("aria-disabled", "true");
  try {
    const result = await work();
    if (done) say(typeof done === "function" ? done(result) : done);
    return result;
  } catch (error) {
    const hint = error?.hint ? ` ${error.hint}` : "";
    say(`${error instanceof Refused ? error.message : "The daemon does not answer."}${hint}`, "bad");
    return undefined;
  } finally {
    button.removeAttribute("aria-disabled");
  }
}

// -- polling: one request at a time, at most one a second of each kind, none while nobody looks --

// Rounds wait for each other, so that a daemon that answers slowly is asked less often and not more.
let turn = Promise.resolve();
function inTurn(work) {
  const mine = turn.then(work);
  turn = mine.catch(() => {});
  return mine;
}

let paused = false;
export const isPaused = () => paused;
export function setPaused(on) { paused = on; }

/** Calls `work` again and again until the signal says stop. */
export function poll(work, every, signal) {
  const pause = Math.max(1_000, every);
  let timer;
  const again = (after) => {
    if (!signal.aborted && !isClosed) timer = setTimeout(round, after);
  };
  const round = async () => {
    if (document.hidden || paused) return again(pause);
    let after = pause;
    try {
      await inTurn(() => (signal.aborted ? undefined : work()));
    } catch (error) {
      if (error?.name === "AbortError") return undefined;
      after = Math.max(pause, 3_000);
    }
    return again(after);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { clearTimeout(timer); again(0); }
  }, { signal });
  again(pause);
}
