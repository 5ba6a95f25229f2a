/** What the page asks of the gateway: the key, JSON, the live feed (with reconnect), the client's own paths.
 *
 * In a page that was shared as a file, the data is in the page, and nothing is asked. */

import { events } from "./sse.js";

const shared = document.getElementById("shared");
/** {setup, rows, exchanges: {id: {view, formats, capture}}} of a shared page, else null. */
export const SHARED = shared && JSON.parse(shared.textContent);
const HERE = new URL("./", import.meta.url);
const GATEWAY = SHARED ? new URL("http://gateway/") : new URL("../", HERE);
const KEY = "toolwire-inspector-key";
const SILENCE_MS = 60_000;

export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `The gateway answered ${status}`);
    Object.assign(this, { status, code: error?.code ?? null, hint: error?.hint ?? null, param: error?.param ?? null });
  }
}

let askKey = async () => null;
let asking = null;

/** Who asks the person for a key: a function that gives the key, or null. */
export const setAskKey = (ask) => (askKey = ask);

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

async function renewKey() {
  asking ??= askKey().finally(() => (asking = null));
  const key = await asking;
  if (key) sessionStorage.setItem(KEY, key);
  return Boolean(key);
}

async function refusal(response) {
  const text = await response.text();
  try {
    return new Refused(response.status, JSON.parse(text).error);
  } catch {
    return new Refused(response.status, { message: text.slice(0, 300) || undefined });
  }
}

async function ask(url, { method = "GET", body, signal, type = "application/json" } = {}) {
  for (;;) {
    const response = await fetch(url, {
      method,
      body,
      signal,
      headers: headers(body === undefined ? {} : { "Content-Type": type }),
      cache: "no-store",
    });
    if (response.status === 401 && (await renewKey())) continue;
    if (!response.ok) throw await refusal(response);
    return response;
  }
}

const data = (path, options) => ask(new URL(`api/${path}`, HERE), options).then((response) => response.json());
const exchange = (id) => `exchanges/${encodeURIComponent(id)}`;
const jsonl = (file, signal) => ({ method: "POST", body: file, type: "application/x-ndjson", signal });

const post = (value, signal) => ({ method: "POST", body: JSON.stringify(value), signal });

export const setup = async () => SHARED?.setup ?? data("setup");
export const overview = (signal) => data("overview", { signal });
export const check = (api, body, signal) => data("check", post({ api, body }, signal));

/** Several exchanges in one file: `as` is "captures" or "html". */
export const exported = (ids, as) => ask(new URL("api/export", HERE), post({ ids, as })).then((got) => got.blob());

/** The names of the models that the gateway serves. */
export const models = async () => {
  const response = await ask(new URL("v1/models", GATEWAY));
  const { data: served, models: listed } = await response.json();
  return [...new Set((served ?? listed ?? []).map(({ id, slug }) => id ?? slug).filter(Boolean))];
};

/** One exchange of a shared page. */
function within(id) {
  const has = SHARED.exchanges[id];
  const given = (name) => async () => {
    if (!has) throw new Refused(404);
    return has[name];
  };
  return {
    id,
    view: given("view"),
    formats: given("formats"),
    capture: async () => new Blob([has.capture], { type: "application/jsonl" }),
    html: null,
  };
}

/** One exchange that the gateway stores: what its view, its readings and its files are asked by. */
export const kept = (id) =>
  SHARED
    ? within(id)
    : {
        id,
        view: (signal) => data(exchange(id), { signal }),
        formats: () => data(`${exchange(id)}/formats`),
        capture: () => ask(new URL(`api/${exchange(id)}/capture`, HERE)).then((response) => response.blob()),
        html: () => exported([id], "html"),
      };

/** The same for a capture file that was opened here. */
export const opened = (file) => ({
  id: null,
  file,
  view: (signal) => data("view", jsonl(file, signal)),
  formats: () => data("formats", jsonl(file)),
  capture: async () => file,
  html: () => ask(new URL("api/html", HERE), jsonl(file)).then((response) => response.blob()),
});

/** The address of a client's path, tried with another format if one is named. */
export const address = (path, format = "") =>
  format ? new URL(`try/${encodeURIComponent(format)}${path}`, HERE) : new URL(path.replace(/^\//, ""), GATEWAY);

/** A request as a client would send it; `body` is JSON text. */
export const send = (path, body, { format = "", signal } = {}) =>
  ask(address(path, format), { method: "POST", body, signal });

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The live feed for good: `take(name, data, first)` for each event, `state(words)` as the connection changes. */
export async function feed(take, state) {
  for (let failures = 0; ; failures++) {
    const control = new AbortController();
    let timer = 0;
    try {
      const response = await ask(new URL("api/feed", HERE), { signal: control.signal });
      state("live");
      let first = true;
      const alive = () => (clearTimeout(timer), (timer = setTimeout(() => control.abort(), SILENCE_MS)));
      alive();
      for await (const event of events(response)) {
        alive();
        failures = 0;
        if (!event.data) continue;
        take(event.name, JSON.parse(event.data), first);
        if (event.name === "rows") first = false;
      }
    } catch (error) {
      if (error.status === 401 || error.status === 403 || error.status === 404) return state("refused", error.message);
    }
    clearTimeout(timer);
    state("lost");
    await pause(Math.min(10_000, 400 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2));
  }
}
