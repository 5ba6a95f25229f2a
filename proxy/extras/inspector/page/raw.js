/** The second lane: the model's text as it came, tinted by what became of it; also as the server's bytes. */

import { h, keepInView } from "./dom.js";
import { escaped, foreign, visible } from "./marks.js";
import { hue, seconds } from "./words.js";

export const KINDS = {
  text: ["text", "Text for the client"],
  reasoning: ["reasoning", "Reasoning"],
  call: ["call", "Became a call"],
  refused: ["refused", "Looked like a call, and became text"],
  markup: ["markup", "Markup: belongs to no text"],
  dropped: ["dropped", "Dropped"],
  open: ["undecided", "Not decided yet"],
};

/** All of the text as segments: what no span covers is plain. */
function segments(raw, running) {
  const all = [];
  let last = 0;
  const rest = running ? "open" : "text";
  for (const span of [...raw.spans].sort((a, b) => a.from - b.from)) {
    if (span.from > last) all.push({ from: last, to: span.from, kind: "text" });
    if (span.to > last) all.push({ ...span, from: Math.max(last, span.from) });
    last = Math.max(last, span.to);
  }
  if (last < raw.text.length) all.push({ from: last, to: raw.text.length, kind: rest });
  return all;
}

export class RawLane {
  mode = "text";
  #segments = [];
  #round = null;
  #nodes = [];
  #edge = null;

  constructor() {
    this.element = h("div", { class: "pane raw" });
  }

  update(view, round) {
    const shape = JSON.stringify([this.mode, round?.number, round?.raw.spans, round?.frames?.length]);
    const same = shape === this.shape && round?.raw.text === this.#round?.raw.text;
    this.#round = round;
    if (same) return;
    this.shape = shape;
    this.#segments = [];
    this.#nodes = [];
    if (!round) this.element.replaceChildren(h("p", { class: "wait" }, "No server was asked."));
    else if (this.mode === "bytes") this.#bytes(round.frames ?? []);
    else this.#text(view, round);
  }

  #text(view, round) {
    this.#segments = segments(round.raw, view.running && round.ended_at === null).map((segment) => ({
      ...segment,
      element: this.#segment(segment, round.raw.text, view),
    }));
    const failed = round.failed
      ? h("p", { class: "failure" }, h("b", null, round.failed.code), " ", ...visible(round.failed.message ?? ""))
      : null;
    const none = !round.raw.text && !failed ? h("p", { class: "wait" }, "No text (yet).") : null;
    const text = this.#segments.map(({ element }) => element);
    this.element.replaceChildren(
      ...[h("pre", { class: "foreign", "data-testid": "raw" }, text), failed, none].filter(Boolean),
    );
  }

  #segment({ from, to, kind, call, judgement }, text, view) {
    const judgementWords = view.judgements[judgement]?.words;
    const title = [KINDS[kind]?.[1] ?? kind, call ? `call ${call}` : null, judgementWords].filter(Boolean).join(" · ");
    const props = { class: `span ${kind} ${call ? hue(call) : ""}`, title };
    if (call) props["data-calls"] = call;
    if (judgement !== undefined && judgement !== null) props["data-judgement"] = judgement;
    if (/call|refused|dropped/.test(kind)) props["data-label"] = call ? `call ${call}` : kind;
    const nodes = visible(text.slice(from, to));
    let at = from;
    for (const node of nodes) {
      this.#nodes.push({ at, node });
      at += node.units ?? node.length;
    }
    return h("span", props, nodes);
  }

  /** Where an offset of the text is among the nodes: sets one end of a range there. */
  #put(range, end, offset) {
    let low = 0;
    let high = this.#nodes.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#nodes[middle].at <= offset) low = middle;
      else high = middle - 1;
    }
    const { at, node } = this.#nodes[low];
    if (node.nodeType === Node.TEXT_NODE) range[`set${end}`](node, Math.min(offset - at, node.length));
    else range[`set${end}${offset > at ? "After" : "Before"}`](node);
  }

  #range(from, to) {
    const range = new Range();
    this.#put(range, "Start", from);
    this.#put(range, "End", to);
    return range;
  }

  /** Tints a part of the text without a change of the document: nothing is laid out anew. */
  #tint(name, from, to) {
    if (from < to) CSS.highlights?.set(name, new Highlight(this.#range(from, to)));
    else CSS.highlights?.delete(name);
  }

  #bytes(frames) {
    const lines = frames.map(({ at, data }) =>
      h(
        "li",
        { "data-at": at },
        h("span", { class: "at" }, seconds(at)),
        h("code", { class: "foreign" }, escaped(data)),
      ),
    );
    this.element.replaceChildren(
      frames.length
        ? h("ol", { class: "frames", "data-testid": "frames" }, lines)
        : foreign("(no frames were kept)", "p"),
    );
  }

  /** What had gone on, what is held back, what has not come yet. */
  show({ upto, released }, at) {
    for (const line of this.element.querySelectorAll("[data-at]"))
      line.classList.toggle("later", Number(line.dataset.at) > at);
    const pre = this.element.querySelector("pre");
    this.#edge = null;
    if (!pre || !this.#nodes.length) return;
    Object.assign(pre.dataset, { upto, released });
    this.#tint("held", released, upto);
    this.#tint("later", upto, this.#round.raw.text.length);
    this.#edge = this.#range(Math.max(0, upto - 1), upto);
    for (const { from, element } of this.#segments) element.classList.toggle("unborn", from >= upto);
  }

  /** Keeps the edge of what has come in view. */
  follow() {
    const edge = this.mode === "bytes" ? this.element.querySelector(".later") : this.#edge;
    keepInView(this.element, edge?.getClientRects()[0]);
  }

  places(call) {
    return [...this.element.querySelectorAll(`[data-calls="${call.n}"]`)];
  }

  /** Where a judgement is about. */
  judgement(index) {
    return this.element.querySelector(`[data-judgement="${index}"]`);
  }
}
