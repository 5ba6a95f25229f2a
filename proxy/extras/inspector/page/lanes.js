/** Three lanes side by side, and the light that shows where a call came from in each of them. */

import { h, say, toggles } from "./dom.js";
import { EventsLane } from "./events.js";
import { arrived } from "./moments.js";
import { KINDS as PROMPT_KINDS, PromptLane } from "./prompt.js";
import { KINDS as RAW_KINDS, RawLane } from "./raw.js";
import { bytes, number, plural } from "./words.js";

/** Which tints mean what, of the kinds that are there (and how many characters of each). */
function legend(kinds, present) {
  return h(
    "p",
    { class: "legend" },
    Object.entries(kinds)
      .filter(([kind]) => present.has(kind))
      .map(([kind, [label]]) =>
        h("span", null, h("span", { class: `span ${kind}` }, label), ` ${number(present.get(kind)) || ""}`),
      ),
  );
}

/** Characters of each kind. */
function sized(pairs) {
  const sizes = new Map();
  for (const [kind, size] of pairs) sizes.set(kind, (sizes.get(kind) ?? 0) + size);
  return sizes;
}

function frame(title, lane, modes, change) {
  const note = h("span", { class: "note" });
  const key = h("div");
  const group = toggles(`Form of ${title}`, modes, lane.mode, change);
  lane.element.tabIndex = 0;
  lane.element.setAttribute("role", "region");
  lane.element.setAttribute("aria-label", title);
  const element = h(
    "div",
    { class: "lane" },
    h("header", null, h("h3", null, title, " ", note), group),
    key,
    lane.element,
  );
  return { element, note, key, group };
}

export class Lanes {
  /** `choose(call)` is called when a call's place is pointed at (null: when no longer). */
  constructor(choose) {
    this.prompt = new PromptLane();
    this.raw = new RawLane();
    this.events = new EventsLane();
    const turn = (lane) => (mode) => ((lane.mode = mode), this.#refresh());
    this.frames = [
      frame(
        "Sent to the model",
        this.prompt,
        [
          ["messages", "Messages"],
          ["whole", "Whole"],
          ["request", "Request"],
        ],
        turn(this.prompt),
      ),
      frame(
        "Written by the model",
        this.raw,
        [
          ["text", "Text"],
          ["bytes", "Bytes"],
        ],
        turn(this.raw),
      ),
      frame(
        "Got by the client",
        this.events,
        [
          ["events", "Events"],
          ["bytes", "Bytes"],
        ],
        (mode) => {
          this.events.turn(mode);
          this.#refresh();
        },
      ),
    ];
    this.element = h(
      "div",
      { class: "lanes", "data-testid": "lanes" },
      this.frames.map(({ element }) => element),
    );
    const point = (event) => {
      const n = event.target.closest?.("[data-calls]")?.dataset.calls.split(" ")[0];
      choose(n ? this.#callOf(Number(n), this.raw.element.contains(event.target)) : null);
    };
    this.element.addEventListener("pointerover", point);
    this.element.addEventListener("focusin", point);
    this.element.addEventListener("pointerleave", () => choose(null));
  }

  #callOf(n, raw) {
    const round = this.view.rounds[this.index]?.number;
    const own = raw ? this.view.calls.find((call) => call.n === n && call.round === round) : null;
    return own ?? this.view.calls.find((call) => call.n === n) ?? null;
  }

  /** The view anew, or another round of it. */
  update(view, index, moment) {
    Object.assign(this, { view, index, moment });
    const round = view.rounds[index];
    this.prompt.update(view, round);
    this.raw.update(view, round);
    this.events.update(view);
    this.#notes(view, round);
    this.show(moment);
  }

  #refresh() {
    this.update(this.view, this.index, this.moment);
  }

  #notes(view, round) {
    const [prompt, raw, events] = this.frames;
    const spans = round?.prompt.messages.flatMap((message) => message.spans) ?? [];
    const sizes = sized(spans.map(({ kind, text }) => [kind, text.length]));
    say(prompt.note, round ? plural(round.prompt.messages.length, "message") : "");
    say(
      raw.note,
      round ? `${number(round.raw.text.length)} characters${round.raw.streamed ? "" : " · in one piece"}` : "",
    );
    say(events.note, `${plural(view.client.events.length, "event")} · ${bytes(view.client.bytes)}`);
    prompt.key.replaceChildren(legend(PROMPT_KINDS, this.prompt.mode === "request" ? new Map() : sizes));
    const kinds = sized(
      this.raw.mode === "bytes" ? [] : (round?.raw.spans ?? []).map(({ kind, from, to }) => [kind, to - from]),
    );
    const held =
      this.raw.mode === "bytes" || !round
        ? []
        : [h("span", { class: "held" }, "held back"), h("span", { class: "later" }, "not yet come")];
    raw.key.replaceChildren(legend(RAW_KINDS, kinds));
    raw.key.firstChild.append(...held);
  }

  /** One moment of the exchange. */
  show(moment, { follow = false } = {}) {
    this.moment = moment;
    if (this.view.rounds.length) this.raw.show(arrived(this.view, moment, this.index), moment.to);
    this.events.show(moment.events);
    if (!follow) return;
    this.raw.follow();
    this.events.follow(moment.events);
  }

  #places(call) {
    const here = this.view.rounds[this.index]?.number === call.round;
    return [this.prompt.places(call), here ? this.raw.places(call) : [], this.events.places(call)];
  }

  /** Lights up where a call is in all three; `reveal` scrolls there. */
  light(call, { reveal = false } = {}) {
    this.element.querySelectorAll(".lit").forEach((element) => element.classList.remove("lit"));
    this.element.classList.toggle("lighting", Boolean(call));
    if (!call) return;
    const lanes = [this.prompt, this.raw, this.events];
    this.#places(call).forEach((places, n) => {
      places.forEach((place) => place.classList.add("lit"));
      if (reveal && places.length) bring(lanes[n].element, places[0]);
    });
  }

  /** Brings what a judgement is about into view. */
  reveal(index) {
    const judgement = this.view.judgements[index];
    const place = this.raw.judgement(index);
    const call = this.view.calls.find(
      (one) => one.judgements.includes(index) || (one.n === judgement.call && one.round === judgement.round),
    );
    if (call) this.light(call, { reveal: true });
    if (place) bring(this.raw.element, place);
    for (const one of place ? [place] : []) one.classList.add("lit");
    return Boolean(place || call);
  }
}

/** Scrolls a lane to a place in it, if it cannot be seen. */
function bring(box, place) {
  const { top, bottom } = box.getBoundingClientRect();
  const at = place.getBoundingClientRect().top;
  if (at >= top && at < Math.min(bottom, innerHeight) - 20) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  box.scrollBy({ top: at - top - 48, behavior: calm ? "instant" : "smooth" });
}
