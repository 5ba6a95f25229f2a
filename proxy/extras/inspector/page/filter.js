/** Which exchanges the list shows: by API, route, format, session, outcome and words. */

import { choice, fill, h, button } from "./dom.js";
import { shown } from "./marks.js";
import { OUTCOMES, outcome, repairs, short, tail } from "./words.js";

const MOST_SESSIONS = 50;
const FIELDS = ["id", "model", "route", "backend", "read_as", "client", "key", "code", "status", "path"];
const MORE = ["question", "session", "why"];

const words = (row) =>
  [...[...FIELDS, ...MORE].map((name) => row[name]), row.tools, row.called].flat().join("\n").toLowerCase();

/** The selects: name, the word for all, the value of a row. */
const CHOICES = [
  ["api", "any API"],
  ["route", "any route"],
  ["read_as", "any format"],
];

/** The sessions of these rows, the latest first, each with its latest question. */
function sessions(rows) {
  const found = new Map();
  for (const { session, question } of rows) {
    if (session && !found.has(session) && found.size < MOST_SESSIONS) found.set(session, question ?? "");
  }
  return [...found].map(([id, question]) => [id, shown(`${tail(id)} ${short(question, 40)}`)]);
}

export class Filter {
  #chosen = {};
  text = "";

  constructor(changed) {
    this.changed = () => (this.#offerReset(), changed());
    const put = (name) => (value) => ((this.#chosen[name] = value), this.changed());
    this.selects = new Map();
    for (const [name, all] of [...CHOICES, ["session", "any session"]]) {
      const label = all.replace("any ", "");
      const props = { "aria-label": label, "data-testid": `filter-${name}` };
      this.selects.set(name, choice([["", all]], "", put(name), props));
    }
    this.selects.set(
      "outcome",
      choice(OUTCOMES, "", put("outcome"), { "aria-label": "Outcome", "data-testid": "filter-outcome" }),
    );
    this.search = h("input", {
      type: "search",
      placeholder: "Search question, tool, model, session, id  ( / )",
      "aria-label": "Search exchanges",
      "data-testid": "search",
      on: { input: () => ((this.text = this.search.value.trim().toLowerCase()), this.changed()) },
    });
    this.reset = button("Show all", () => this.clear(), { class: "quiet", hidden: true });
    this.element = h("search", { class: "filter" }, this.search, [...this.selects.values()], this.reset);
  }

  clear() {
    for (const control of [this.search, ...this.selects.values()]) control.value = "";
    this.#chosen = {};
    this.text = "";
    this.changed();
  }

  /** Shows one session only. */
  only(session) {
    this.#chosen.session = session;
    this.changed();
    this.selects.get("session").value = session;
  }

  /** What there is to choose from, given the exchanges. A select without a choice is hidden. */
  offer(rows) {
    const some = (name) => [...new Set(rows.map((row) => row[name]).filter(Boolean))].sort();
    const put = (name, all, options) => {
      const select = this.selects.get(name);
      fill(select, [["", all], ...options], this.#chosen[name] ?? "");
      select.hidden = options.length < 2 && !this.#chosen[name];
    };
    for (const [name, all] of CHOICES) {
      put(
        name,
        all,
        some(name).map((value) => [value, shown(String(value))]),
      );
    }
    put("session", "any session", sessions(rows));
  }

  accepts(row) {
    for (const name of ["api", "route", "read_as", "session"]) {
      if (this.#chosen[name] && row[name] !== this.#chosen[name]) return false;
    }
    const wanted = this.#chosen.outcome;
    if (wanted === "repairs" ? !repairs(row) : wanted && outcome(row).kind !== wanted) return false;
    return !this.text || words(row).includes(this.text);
  }

  #offerReset() {
    this.reset.hidden = !(this.text || Object.values(this.#chosen).some(Boolean));
  }
}
