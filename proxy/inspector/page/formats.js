/** "Read again as": one text of the model, read by every format, side by side. */

import { button, h } from "./dom.js";
import { foreign, visible } from "./marks.js";
import { hue, number } from "./words.js";

const callLine = ({ name, arguments: args }, n) =>
  h("li", { class: hue(n + 1) }, h("b", { class: "foreign" }, visible(name)), foreign(args ?? "", "code"));

function row(reading) {
  const { format, chosen, calls, verdicts, text, reasoning, error } = reading;
  const name = h("th", { scope: "row" }, format, chosen ? h("span", { class: "badge" }, "chosen") : null);
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
    h("td", null, items(verdicts.map((words) => h("li", null, visible(words))))),
  );
}

const order = (a, b) => b.chosen - a.chosen || Boolean(a.error) - Boolean(b.error) || b.calls.length - a.calls.length;

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

  #show({ text, formats }) {
    const heads = ["Format", "Calls", "Text left", "What was decided"];
    const caption = `${number(text.length)} characters, as each format reads them`;
    this.body.replaceChildren(
      h(
        "div",
        { class: "wide", tabindex: 0, role: "region", "aria-label": "Readings" },
        h(
          "table",
          null,
          h("caption", null, caption),
          h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col" }, head)))),
          h("tbody", null, [...formats].sort(order).map((reading) => row({ calls: [], verdicts: [], ...reading }))),
        ),
      ),
    );
  }
}
