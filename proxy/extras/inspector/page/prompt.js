/** The first lane: what the model was really sent, and what in it the gateway wrote. */

import { h } from "./dom.js";
import { foreign, visible } from "./marks.js";

export const KINDS = {
  client: ["said by the client", "What the client said"],
  injected: ["written by the gateway", "Written by the gateway: tools, instructions, reminders"],
  history: ["history as text", "Earlier calls and results, written as text"],
  unread: ["not compared", "Too much to compare: not shown, or written by either"],
  escaped: ["escaped", "Escaped by the gateway, so that it cannot be taken for markup"],
};

const label = (kind) => KINDS[kind]?.[1] ?? kind;

export class PromptLane {
  #key = "";
  #places = new Map();
  mode = "messages";

  constructor() {
    this.element = h("div", { class: "pane prompt" });
  }

  update(view, round) {
    const key = JSON.stringify([this.mode, round?.prompt, this.mode === "request" ? view.request : null]);
    if (key === this.#key) return;
    this.#key = key;
    this.#places = new Map();
    this.element.replaceChildren(...this.#content(view, round));
  }

  #content(view, round) {
    if (this.mode === "request") return [foreign(view.request.text || "(not kept)")];
    if (!round) return [h("p", { class: "wait" }, "Nothing was sent to a server.")];
    const { tools, parameters } = round.prompt;
    const messages = round.prompt.messages.filter(({ role, spans }) => role || spans.some(({ text }) => text));
    if (!messages.length) return [h("p", { class: "wait" }, "What was sent is not on record.")];
    if (this.mode === "whole")
      return [
        h(
          "pre",
          { class: "foreign" },
          messages.flatMap((one) => this.#whole(one)),
        ),
      ];
    return [...messages.map((message) => this.#message(message)), this.#beside(tools ?? [], parameters ?? {})];
  }

  #whole({ role, spans }) {
    return [h("span", { class: "role" }, `${role}\n`), ...spans.map((span) => this.#span(span)), "\n\n"];
  }

  #message({ role, spans }) {
    return h(
      "div",
      { class: "message" },
      h("h4", { class: "role" }, role),
      h(
        "pre",
        { class: "foreign" },
        spans.map((span) => this.#span(span)),
      ),
    );
  }

  #span({ text, kind, tools = [] }) {
    const element = h("span", { class: `span ${kind}`, title: label(kind) }, visible(text));
    for (const name of tools) this.#places.set(name, [...(this.#places.get(name) ?? []), element]);
    return element;
  }

  /** What was sent beside the messages. */
  #beside(tools, parameters) {
    const given = tools.map((name) => {
      const element = h("code", { class: "span injected foreign" }, name);
      this.#places.set(name, [...(this.#places.get(name) ?? []), element]);
      return element;
    });
    return h(
      "div",
      { class: "message" },
      h("h4", { class: "role" }, "beside the messages"),
      h("p", { class: "given" }, tools.length ? ["tools given as such: ", ...given] : "no tools given as such"),
      Object.keys(parameters).length ? foreign(JSON.stringify(parameters, null, 2)) : null,
    );
  }

  /** Where a call's tool is spoken of. */
  places(call) {
    return this.#places.get(call.name) ?? [];
  }
}
