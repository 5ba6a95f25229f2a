/** The last hour: counts by route as small charts, and how the servers are. */

import { overview } from "./api.js";
import { h, svg } from "./dom.js";
import { clock, number } from "./words.js";

const AGAIN_MS = 5000;
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
  return h(
    "table",
    { class: "charts", "data-testid": "charts" },
    h("caption", null, `The last hour, ${hour(minutes[0])} to ${hour(minutes.at(-1))}, a bar a minute`),
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        h("th", { scope: "col" }, "Route"),
        METRICS.map(([, label]) => h("th", { scope: "col" }, label)),
      ),
    ),
    h(
      "tbody",
      null,
      rows.map(([name, route]) =>
        h(
          "tr",
          null,
          h("th", { scope: "row", class: "foreign" }, name),
          METRICS.map((metric) => cell(route, minutes, metric)),
        ),
      ),
    ),
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

export class OverviewPage {
  title = "Overview";

  constructor() {
    this.body = h("div", null, h("p", { class: "wait" }, "Loading…"));
    this.element = h("section", { class: "overview", "aria-label": "Overview" }, this.body);
  }

  show() {
    this.stopped = new AbortController();
    this.#load(this.stopped.signal);
  }

  hide() {
    this.stopped.abort();
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
      : h("p", { class: "none" }, "none");
    this.body.replaceChildren(
      h("h2", null, "Servers"),
      servers,
      h("h2", null, "Traffic"),
      h("div", { class: "wide" }, charts(found)),
    );
  }

  key(event) {
    if (event.key === "Escape") location.hash = "#/";
    return event.key === "Escape";
  }
}
