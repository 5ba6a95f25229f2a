/** The second lane: the model's text as it came, tinted by what became of it; also as the server's bytes. */

import { h } from "./dom.js";
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

/** So long are the parts of a long span, so that only the part at the edge of what has come is laid out anew. */
const PART = 4000;

/** A span in parts; no character is cut in two. */
function* parts({ from, to, ...rest }, text) {
  for (let start = from, end; start < to; start = end) {
    end = Math.min(to, start + PART);
    if (end < to && text.codePointAt(end - 1) > 0xffff) end++;
    yield { ...rest, from: start, to: end, first: start === from };
  }
}

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
  return all.flatMap((span) => [...parts(span, raw.text)]);
}

export class RawLane {
  mode = "text";
  #segments = [];
  #round = null;

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
    if (!round) this.element.replaceChildren(h("p", { class: "wait" }, "No server was asked."));
    else if (this.mode === "bytes") this.#bytes(round.frames ?? []);
    else this.#text(view, round);
  }

  #text(view, round) {
    this.#segments = segments(round.raw, view.running && round.ended_at === null).map((segment) => ({
      ...segment,
      element: this.#segment(segment, view),
    }));
    const failed = round.failed
      ? h("p", { class: "failure" }, h("b", null, round.failed.code), " ", ...visible(round.failed.message ?? ""))
      : null;
    const none = !round.raw.text && !failed ? h("p", { class: "wait" }, "No text (yet).") : null;
    const text = this.#segments.map(({ element }) => element);
    this.element.replaceChildren(...[h("pre", { class: "foreign", "data-testid": "raw" }, text), failed, none].filter(Boolean));
  }

  #segment({ kind, call, verdict, first }, view) {
    const verdictWords = view.verdicts[verdict]?.words;
    const title = [KINDS[kind]?.[1] ?? kind, call ? `call ${call}` : null, verdictWords].filter(Boolean).join(" · ");
    const props = { class: `span ${kind} ${call ? hue(call) : ""}`, title };
    if (call) props["data-calls"] = call;
    if (verdict !== undefined && verdict !== null) props["data-verdict"] = verdict;
    if (first && /call|refused|dropped/.test(kind)) props["data-label"] = call ? `call ${call}` : kind;
    return h("span", props);
  }

  #bytes(frames) {
    const lines = frames.map(({ at, data }) =>
      h("li", { "data-at": at }, h("span", { class: "at" }, seconds(at)), h("code", { class: "foreign" }, escaped(data))),
    );
    this.element.replaceChildren(
      frames.length ? h("ol", { class: "frames", "data-testid": "frames" }, lines) : foreign("(no frames were kept)", "p"),
    );
  }

  /** What had gone on, what is held back, what has not come yet. */
  show({ upto, released }, at) {
    for (const line of this.element.querySelectorAll("[data-at]")) line.classList.toggle("later", Number(line.dataset.at) > at);
    const { text } = this.#round?.raw ?? {};
    for (const segment of this.#segments) {
      const gone = Math.max(segment.from, Math.min(released, segment.to));
      const here = Math.max(gone, Math.min(upto, segment.to));
      const shape = `${gone} ${here}`;
      if (segment.shape === shape) continue;
      segment.shape = shape;
      const part = (from, to, name, title) =>
        from < to ? h("span", { class: name, title }, visible(text.slice(from, to))) : null;
      segment.element.replaceChildren(
        ...visible(text.slice(segment.from, gone)),
        ...[
          part(gone, here, "held", "Held back: came, but had not gone on to the client"),
          part(here, segment.to, "later", "Had not come yet"),
        ].filter(Boolean),
      );
      segment.element.classList.toggle("unborn", here === segment.from);
    }
  }

  /** Keeps the edge of what has come in view. */
  follow() {
    const edge = this.element.querySelector(".later, li.later");
    if (!edge) return;
    const { top, bottom } = this.element.getBoundingClientRect();
    const place = edge.getBoundingClientRect();
    if (place.top > bottom - 40 || place.top < top) this.element.scrollTop += place.top - top - this.element.clientHeight / 2;
  }

  places(call) {
    return [...this.element.querySelectorAll(`[data-calls="${call.n}"]`)];
  }

  /** Where a verdict is about. */
  verdict(index) {
    return this.element.querySelector(`[data-verdict="${index}"]`);
  }
}
