/** Which exchanges the list shows: by API, route, outcome and words. */

import { choice, fill, h, button } from "./dom.js";
import { OUTCOMES, outcome, repairs } from "./words.js";

const words = (row) =>
  [row.id, row.model, row.route, row.backend, row.format, row.client, row.key, row.code, row.status, row.path]
    .concat(Array.isArray(row.tools) ? row.tools : [])
    .join("\n")
    .toLowerCase();

export class Filter {
  api = "";
  route = "";
  outcome = "";
  text = "";

  constructor(changed) {
    const put = (name) => (value) => ((this[name] = value), this.#offerReset(), changed());
    this.apis = choice([["", "any API"]], "", put("api"), { "aria-label": "API", "data-testid": "filter-api" });
    this.routes = choice([["", "any route"]], "", put("route"), {
      "aria-label": "Route",
      "data-testid": "filter-route",
    });
    this.outcomes = choice(OUTCOMES, "", put("outcome"), { "aria-label": "Outcome", "data-testid": "filter-outcome" });
    this.search = h("input", {
      type: "search",
      placeholder: "Search model, tool, client, code, id  ( / )",
      "aria-label": "Search exchanges",
      "data-testid": "search",
      on: { input: () => put("text")(this.search.value.trim().toLowerCase()) },
    });
    this.reset = button("Show all", () => this.clear(changed), { class: "quiet", hidden: true });
    this.element = h("search", { class: "filter" }, this.search, this.apis, this.routes, this.outcomes, this.reset);
  }

  clear(changed) {
    for (const control of [this.search, this.apis, this.routes, this.outcomes]) control.value = "";
    this.api = this.route = this.outcome = this.text = "";
    this.#offerReset();
    changed();
  }

  /** What there is to choose from, given the exchanges. */
  offer(rows) {
    const some = (name) => [...new Set(rows.map((row) => row[name]).filter(Boolean))].sort();
    fill(this.apis, [["", "any API"], ...some("api").map((name) => [name, name])], this.api);
    fill(this.routes, [["", "any route"], ...some("route").map((name) => [name, name])], this.route);
  }

  accepts(row) {
    if (this.api && row.api !== this.api) return false;
    if (this.route && row.route !== this.route) return false;
    if (this.outcome === "repairs" ? !repairs(row) : this.outcome && outcome(row).kind !== this.outcome) return false;
    return !this.text || words(row).includes(this.text);
  }

  #offerReset() {
    this.reset.hidden = !(this.api || this.route || this.outcome || this.text);
  }
}
