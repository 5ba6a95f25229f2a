/** Two exchanges side by side: facts, verdicts, and the differences of their requests and answers. */

import { lineDiff } from "./diff.js";
import { h, none, table, wide } from "./dom.js";
import { foreign, visible } from "./marks.js";
import { clock, milliseconds, number, outcome, plural } from "./words.js";

const AROUND = 3;
const MOST_ROWS = 4000;

const tokens = (value) => (value === null || value === undefined ? "" : number(value));
const FACTS = [
  ["Begun", (row) => clock(row.at, true), false],
  ["Model", (row) => row.model],
  ["Route", (row) => row.route],
  ["Server", (row) => row.backend],
  ["API", (row) => row.api ?? row.path],
  ["Client", (row) => row.client],
  ["Session", (row) => row.session],
  ["Question", (row) => row.question],
  ["Outcome", (row) => outcome(row).words],
  ["Format taught", (row) => row.format],
  ["Format read", (row) => row.read_as],
  ["First byte", (row) => milliseconds(row.first_byte_ms), false],
  ["Total", (row) => milliseconds(row.total_ms), false],
  ["Tokens of the prompt", (row) => tokens(row.input_tokens)],
  ["Tokens of the answer", (row) => tokens(row.output_tokens)],
];

/** The model's text, round by round. */
const written = ({ rounds }) => rounds.map(({ raw }) => raw.text).join("\n\n");
const lines = (text) => text.split("\n");

function facts(views) {
  const equal = [];
  const rows = FACTS.map(([label, value, compared = true]) => {
    const [a, b] = views.map(({ row }) => String(value(row) ?? ""));
    if (compared && a === b) {
      if (a) equal.push(`${label.toLowerCase()}: ${a}`);
      return null;
    }
    const cell = (text) => h("td", { class: "foreign" }, visible(text));
    return h("tr", { class: compared ? "differs" : "" }, h("th", { scope: "row" }, label), cell(a), cell(b));
  });
  const why = views.map((view) => h("td", { class: "foreign" }, view.why ? visible(view.why) : "no tools on offer"));
  const same = h("td", { colspan: 2, class: "foreign" }, visible(equal.join(" · ")));
  const all = [
    h("tr", null, h("th", { scope: "row" }, "Verdict"), why),
    ...rows,
    equal.length ? h("tr", null, h("th", { scope: "row" }, "Equal"), same) : null,
  ];
  const body = h("tbody", null, all);
  return wide("Facts", h("table", { class: "comparison", "data-testid": "facts-table" }, heads(views), body));
}

function heads(views) {
  const link = ({ id, row }, letter) =>
    h(
      "th",
      { scope: "col" },
      h("a", { href: `#/exchange/${encodeURIComponent(row.exchange_id ?? id)}`, class: "foreign" }, `${letter}: ${id}`),
    );
  return h("thead", null, h("tr", null, h("td"), link(views[0], "A"), link(views[1], "B")));
}

/** A difference as a table: equal lines far from any change are left out. */
function difference(a, b, testid, label) {
  const rows = lineDiff(lines(a), lines(b));
  const differs = rows.map(({ left, right }) => left !== right);
  if (!differs.includes(true)) return none("no difference", { "data-testid": testid });
  const near = new Uint8Array(rows.length);
  differs.forEach((is, n) => is && near.fill(1, Math.max(0, n - AROUND), n + AROUND + 1));
  const body = [];
  let skipped = 0;
  const gap = () => {
    if (skipped) body.push(h("tr", { class: "gap" }, h("td", { colspan: 2 }, `${plural(skipped, "equal line")}`)));
    skipped = 0;
  };
  rows.forEach(({ left, right }, n) => {
    if (!near[n]) return skipped++;
    gap();
    if (body.length >= MOST_ROWS) return undefined;
    const cell = (text, kind) =>
      h("td", { class: differs[n] && text !== null ? kind : "" }, text === null ? "" : foreign(text || " ", "code"));
    return body.push(h("tr", null, cell(left, "removed"), cell(right, "added")));
  });
  gap();
  const changed = differs.filter(Boolean).length;
  const caption = `${plural(changed, "line")} differ${changed === 1 ? "s" : ""}${body.length >= MOST_ROWS ? `; the first ${number(MOST_ROWS)} are shown` : ""}`;
  return wide(label, table({ class: "difference", "data-testid": testid }, ["A", "B"], body, caption));
}

function decisions(views) {
  const list = ({ calls, judgements }) => [
    ...calls.map(({ name, arguments: args }) => h("li", null, h("b", { class: "foreign" }, visible(name)), " ", foreign(args ?? "", "code"))),
    ...judgements.map(({ kind, words }) => h("li", null, h("em", { "data-kind": kind }, kind), " ", ...visible(words))),
  ];
  const column = (view, letter) => {
    const items = list(view);
    return h(
      "section",
      { "aria-label": `Decisions about ${letter}` },
      h("h3", null, letter),
      items.length ? h("ul", null, items) : none("No call, and no decision about one."),
    );
  };
  return h("div", { class: "sides", "data-testid": "decisions" }, column(views[0], "A"), column(views[1], "B"));
}

export class ComparePage {
  title = "Compare";

  constructor(a, b) {
    this.sources = [a, b];
    this.stopped = new AbortController();
    this.body = h("div", null, h("p", { class: "wait" }, "Loading…"));
    this.element = h("section", { class: "compare", "aria-label": "Two exchanges compared" }, this.body);
  }

  show() {
    this.#load(this.stopped.signal);
  }

  hide() {
    this.stopped.abort();
  }

  async #load(signal) {
    try {
      const views = await Promise.all(this.sources.map((source) => source.view(signal)));
      if (!signal.aborted) this.#draw(views);
    } catch (error) {
      const words = error.status === 404 ? "One of the exchanges is not stored (any more)." : error.message;
      if (!signal.aborted) this.body.replaceChildren(h("p", { class: "failure" }, words));
    }
  }

  #draw(views) {
    const [a, b] = views;
    this.body.replaceChildren(
      h("h2", null, "Two exchanges"),
      facts(views),
      h("h2", null, "Calls and decisions"),
      decisions(views),
      h("h2", null, "The model's answers"),
      difference(written(a), written(b), "answer-diff", "Difference of the answers"),
      h("h2", null, "The client's requests"),
      difference(a.request.text, b.request.text, "request-diff", "Difference of the requests"),
    );
  }

  key(event) {
    if (event.key === "Escape") location.hash = "#/";
    return event.key === "Escape";
  }
}
