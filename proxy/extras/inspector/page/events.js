/** The third lane: what the client got, event by event. */

import { button, h, keepInView, roving } from "./dom.js";
import { escaped, foreign } from "./marks.js";
import { hue, number, seconds, short } from "./words.js";

const MOST = 3000;

const pretty = (data) => {
  try {
    return JSON.stringify(JSON.parse(data), null, 2);
  } catch {
    return data;
  }
};

export class EventsLane {
  mode = "events";
  #shown = 0;
  #most = MOST;
  #key = "";
  #wide = 4;
  #gone = 0;

  constructor() {
    this.list = h("ol", { class: "events", "data-testid": "events" });
    this.more = button("", () => this.#all(), { class: "quiet", hidden: true });
    this.element = h("div", { class: "pane client" }, this.list, this.more);
    roving(this.list, "summary");
  }

  update(view) {
    this.view = view;
    const { events } = view.client;
    const last = events[this.#shown - 1];
    const key = `${this.mode} ${last?.at} ${last?.data?.length}`;
    if (this.#shown > events.length || (this.#shown && this.#key !== key)) this.#clear();
    const fresh = events.slice(this.#shown, this.#most);
    for (const { name } of fresh) this.#wide = Math.max(this.#wide, Math.min(24, (name || "data").length));
    this.list.style.setProperty("--name", `${this.#wide + 1}ch`);
    const make = this.mode === "bytes" ? (event) => this.#bytes(event) : (event, n) => this.#event(event, n);
    const from = this.#shown;
    this.list.append(...fresh.map((event, n) => make(event, from + n)));
    this.#shown += fresh.length;
    const end = events[this.#shown - 1];
    this.#key = `${this.mode} ${end?.at} ${end?.data?.length}`;
    this.more.hidden = events.length <= this.#shown;
    this.more.textContent = `Show the ${number(events.length - this.#shown)} events after these`;
  }

  /** Shows the same events in another form. */
  turn(mode) {
    this.mode = mode;
    this.#clear();
    this.update(this.view);
  }

  #clear() {
    this.list.replaceChildren();
    this.#shown = this.#gone = 0;
  }

  #all() {
    this.#most = Infinity;
    this.update(this.view);
  }

  #event({ at, name, data, brief, calls = [] }, index) {
    const summary = h(
      "summary",
      { tabindex: index ? -1 : 0 },
      h("span", { class: "at" }, seconds(at)),
      h("span", { class: "name foreign" }, name || "data"),
      h("span", { class: "brief foreign", title: short(brief ?? "", 300) }, escaped(short(brief ?? "", 200))),
    );
    const item = h("details", { class: `event ${calls.length ? hue(calls[0]) : ""}` }, summary);
    item.addEventListener("toggle", () => item.children.length > 1 || item.append(foreign(pretty(data))), {
      once: true,
    });
    return this.#item(item, at, calls);
  }

  #bytes({ at, name, data, calls = [] }) {
    const wire = `${name ? `event: ${name}\n` : ""}${data
      .split("\n")
      .map((line) => `data: ${line}\n`)
      .join("")}\n`;
    const line = [h("span", { class: "at" }, seconds(at)), h("code", { class: "foreign" }, escaped(wire))];
    return this.#item(h("div", { class: "bytes" }, line), at, calls);
  }

  #item(content, at, calls) {
    const props = { "data-at": at, class: "later" };
    if (calls.length) props["data-calls"] = calls.join(" ");
    return h("li", props, content);
  }

  /** So many events had gone by then. */
  show(gone) {
    const items = this.list.children;
    for (let n = Math.min(gone, this.#gone); n < items.length && n < Math.max(gone, this.#gone); n++)
      items[n].classList.toggle("later", n >= gone);
    this.#gone = gone;
  }

  follow(gone) {
    keepInView(this.element, this.list.children[Math.max(0, gone - 1)]?.getBoundingClientRect());
  }

  places(call) {
    return [...this.list.querySelectorAll(`[data-calls~="${call.n}"]`)];
  }
}
