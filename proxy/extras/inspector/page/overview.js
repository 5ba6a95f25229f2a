/** Latency, tokens, models, formats and verdicts of the exchanges in the list; the last hour by route, and the servers. */

import { overview } from "./api.js";
import { h, none, svg, table, wide } from "./dom.js";
import { shown } from "./marks.js";
import { clock, milliseconds, number, plural, VERDICTS } from "./words.js";

const AGAIN_MS = 5000;
const ROWS_MS = 1000;
const MOST_GROUPS = 40;
const METRICS = [
  ["requests", "Requests"],
  ["calls", "Calls"],
  ["repaired", "Repaired"],
  ["recognised", "Recognised"],
  ["failed", "Failed"],
];
const hour = (minute) => clock(minute * 60).slice(0, 5);
const sum = (values = []) => values.reduce((total, value) => total + value, 0);

/** Sixty bars, one a minute. */
function bars(values, minutes, name, label, height = 30) {
  const most = Math.max(1, ...values);
  const marks = values.map((value, n) => {
    const tall = value ? Math.max(1.5, (value / most) * (height - 2)) : 0;
    const title = svg("title", null, `${hour(minutes[n])}: ${number(value)}`);
    return tall ? svg("rect", { x: n * 4, y: height - tall, width: 3, height: tall }, title) : null;
  });
  const box = {
    class: `bars ${name}`,
    viewBox: `0 0 240 ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  };
  return svg("svg", box, svg("path", { d: `M0 ${height - 0.5}H240`, class: "base" }), marks);
}

function cell(route, minutes, [name, label]) {
  const values = route[name] ?? minutes.map(() => 0);
  const total = sum(values);
  const most = Math.max(...values);
  const words = `${label}: ${number(total)} in the last hour, at most ${number(most)} in a minute`;
  return h("td", { class: total ? name : "zero" }, h("b", null, number(total)), bars(values, minutes, name, words));
}

/** The routes together. */
const all = (routes, minutes) =>
  Object.fromEntries(
    METRICS.map(([name]) => [name, minutes.map((_, n) => sum(routes.map((route) => route[name]?.[n] ?? 0)))]),
  );

function charts({ routes, minutes }) {
  const rows = [...routes].sort((a, b) => sum(b.requests) - sum(a.requests)).map((route) => [route.model, route]);
  if (rows.length > 1) rows.unshift(["all routes", all(routes, minutes)]);
  const line = ([name, route]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "foreign" }, name),
      METRICS.map((metric) => cell(route, minutes, metric)),
    );
  return table(
    { class: "charts", "data-testid": "charts" },
    ["Route", ...METRICS.map(([, label]) => label)],
    rows.map(line),
    `The last hour, ${hour(minutes[0])} to ${hour(minutes.at(-1))}, a bar a minute`,
  );
}

/** What requests for a model are sent without, since the server refused it. */
function without([model, kinds]) {
  const words = Object.entries(kinds).map(([kind, keys]) => `${kind.replace("_", " ")} (${keys} keys)`);
  return h("span", { class: "foreign" }, `${model} without ${words.join(", ")}`);
}

function server({ name, up, kind, refused }) {
  const [state, words] = up === null ? ["unknown", "not known"] : up ? ["up", "up"] : ["down", "down"];
  return h(
    "li",
    { class: "server" },
    h("span", { class: "health", "data-state": state }, words),
    h("b", { class: "foreign" }, name),
    h("span", { class: "foreign" }, kind ?? ""),
    ...Object.entries(refused ?? {}).map(without),
  );
}

// --- the exchanges in the list --------------------------------------------------------------------------------------

/** The value below which this part of the sorted values lies. */
const quantile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
const sorted = (rows, name) =>
  rows
    .map((row) => row[name])
    .filter((value) => typeof value === "number")
    .sort((a, b) => a - b);

/** Rows by the value of a field, the most frequent first. */
function groups(rows, name) {
  const found = new Map();
  for (const row of rows) {
    if (!row[name]) continue;
    if (found.has(row[name])) found.get(row[name]).push(row);
    else found.set(row[name], [row]);
  }
  return [...found].sort((a, b) => b[1].length - a[1].length).slice(0, MOST_GROUPS);
}

const LATENCIES = [
  ["First byte, median", "first_byte_ms", 0.5],
  ["First byte, p95", "first_byte_ms", 0.95],
  ["Whole, median", "total_ms", 0.5],
  ["Whole, p95", "total_ms", 0.95],
];
const total = (rows, name) => rows.reduce((all, row) => all + (row[name] ?? 0), 0);
const CELLS = [
  ["Exchanges", (rows) => number(rows.length)],
  ["With a call", (rows) => number(rows.filter((row) => row.calls).length)],
  ...LATENCIES.map(([label, name, part]) => [label, (rows) => milliseconds(quantile(sorted(rows, name), part))]),
  ["Tokens read", (rows) => number(total(rows, "input_tokens"))],
  ["Tokens written", (rows) => number(total(rows, "output_tokens"))],
];

function figures(title, rows, name) {
  const by = groups(rows, name);
  if (!by.length) return null;
  const line = ([value, own]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", class: "foreign" }, shown(String(value))),
      CELLS.map(([, text]) => h("td", null, text(own))),
    );
  const labels = [title, ...CELLS.map(([label]) => label)];
  const body = [...(by.length > 1 ? [["all", rows]] : []), ...by].map(line);
  return wide(title, table({ class: "figures", "data-testid": `latency-${name}` }, labels, body));
}

function verdicts(rows) {
  const by = groups(rows, "verdict");
  const most = Math.max(1, ...by.map(([, own]) => own.length));
  return h(
    "ul",
    { class: "verdicts", "data-testid": "verdicts" },
    by.map(([verdict, own]) =>
      h(
        "li",
        null,
        h("span", null, VERDICTS[verdict] ?? shown(String(verdict))),
        h("meter", { min: 0, max: most, value: own.length, "aria-label": VERDICTS[verdict] ?? "verdict" }),
        h("b", null, number(own.length)),
      ),
    ),
  );
}

function ofRows(rows) {
  const ended = rows.filter((row) => !row.running);
  if (!ended.length) return [h("h2", null, "Exchanges"), none("No exchange has ended yet.")];
  return [
    h("h2", null, `${plural(ended.length, "exchange")} in the list`),
    h("h3", null, "Verdicts on exchanges with tools, and failures"),
    verdicts(ended),
    figures("Model", ended, "model"),
    figures("Format", ended, "read_as"),
  ].filter(Boolean);
}

export class OverviewPage {
  title = "Overview";

  constructor(rows, { live }) {
    Object.assign(this, { rows, live });
    this.listed = h("div", { class: "listed" });
    this.body = h("div", null, live ? h("p", { class: "wait" }, "Loading…") : null);
    this.element = h("section", { class: "overview", "aria-label": "Overview" }, this.listed, this.body);
  }

  show() {
    this.stopped = new AbortController();
    this.stop = this.rows.watch(() => this.#later());
    this.drawn = 0;
    this.#drawRows();
    if (this.live) this.#load(this.stopped.signal);
  }

  hide() {
    this.stopped.abort();
    this.stop();
    clearTimeout(this.timer);
    this.timer = null;
  }

  /** Counting all rows takes a moment, so it is done at most once a second. */
  #later() {
    if (performance.now() - this.drawn > ROWS_MS) return this.#drawRows();
    this.timer ??= setTimeout(() => this.#drawRows(), ROWS_MS);
  }

  #drawRows() {
    clearTimeout(this.timer);
    this.timer = null;
    this.drawn = this.rows.size ? performance.now() : -ROWS_MS;
    this.listed.replaceChildren(...ofRows(this.rows.newest()));
  }

  async #load(signal) {
    while (!signal.aborted) {
      try {
        const found = await overview(signal);
        if (signal.aborted) return;
        const key = JSON.stringify(found);
        if (key !== this.shown) this.#draw(found);
        this.shown = key;
      } catch (error) {
        if (!signal.aborted) this.body.replaceChildren(h("p", { class: "failure" }, error.message));
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  #draw(found) {
    const servers = found.backends.length
      ? h("ul", { class: "servers", "data-testid": "servers" }, found.backends.map(server))
      : none();
    this.body.replaceChildren(
      h("h2", null, "Servers"),
      servers,
      h("h2", null, "The last hour by route"),
      h("div", { class: "wide" }, charts(found)),
    );
  }

  key(event) {
    if (event.key === "Escape") location.hash = "#/";
    return event.key === "Escape";
  }
}
