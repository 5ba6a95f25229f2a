/** "Read again as": one text of the model, read by every format, side by side. */

import { button, h, table, wide } from "./dom.js";
import { foreign, visible } from "./marks.js";
import { hue, number, plural } from "./words.js";

/** More names are folded. */
const FEW = 4;

const callLine = ({ name, arguments: args }, n) =>
  h("li", { class: hue(n + 1) }, h("b", { class: "foreign" }, visible(name)), foreign(args ?? "", "code"));

/** One row for all formats that read the same. */
function row({ names, chosen, calls, judgements, text, reasoning, error }) {
  const [first, ...others] = names;
  const badge = chosen ? h("span", { class: "badge" }, "chosen") : null;
  const name = h(
    "th",
    { scope: "row" },
    h("b", null, first),
    badge,
    others.length && others.length <= FEW ? h("p", null, others.join(", ")) : null,
    others.length > FEW
      ? h("details", null, h("summary", null, `and ${plural(others.length, "other")}`), h("p", null, others.join(", ")))
      : null,
  );
  if (error) return h("tr", { class: "bad" }, name, h("td", { colspan: 3 }, foreign(error, "span")));
  const items = (lines, tag = "ul") => (lines.length ? h(tag, null, lines) : h("span", { class: "none" }, "none"));
  return h(
    "tr",
    { class: chosen ? "chosen" : "" },
    name,
    h("td", null, items(calls.map(callLine), "ol")),
    h(
      "td",
      null,
      text ? foreign(text) : h("span", { class: "none" }, "none"),
      reasoning ? h("details", null, h("summary", null, "reasoning"), foreign(reasoning)) : null,
    ),
    h("td", null, items(judgements.map((words) => h("li", null, visible(words))))),
  );
}

/** Formats that read the same, together: the one chosen first, then those that found most. */
function grouped(readings) {
  const groups = new Map();
  for (const { format, chosen, ...reading } of [...readings].sort((a, b) => b.chosen - a.chosen)) {
    const key = JSON.stringify(reading);
    const group = groups.get(key) ?? { calls: [], judgements: [], ...reading, chosen, names: [] };
    group.names.push(format);
    groups.set(key, group);
  }
  return [...groups.values()].sort(
    (a, b) => b.chosen - a.chosen || Boolean(a.error) - Boolean(b.error) || b.calls.length - a.calls.length,
  );
}

export class Readings {
  /** `read()` gives the readings. */
  constructor(read) {
    this.read = read;
    this.body = h("div", { "data-testid": "readings", "aria-live": "polite" });
    this.ask = button("Read again as…", () => this.load(), { "data-testid": "read-again" });
    this.element = h(
      "section",
      { class: "readings", "aria-label": "Read again as" },
      h("header", null, h("h3", null, "Read again as…"), this.ask),
      this.body,
    );
  }

  async load() {
    this.ask.disabled = true;
    this.body.replaceChildren(h("p", { class: "wait" }, "Reading…"));
    try {
      this.#show(await this.read());
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "failure" }, error.message));
    }
    this.ask.disabled = false;
    this.ask.textContent = "Read once more";
  }

  #show({ text, left_out_chars: left = 0, formats }) {
    const heads = ["Format", "Calls", "Text left", "What was decided"];
    const beyond = left ? ` (the first ones; ${number(left)} more were not read)` : "";
    const caption = `${number(text.length)} characters${beyond}; formats that read the same are together`;
    this.body.replaceChildren(wide("Readings", table(null, heads, grouped(formats).map(row), caption)));
  }
}
