/** The time axis, drawn to scale: rounds, pieces of the model, events of the client, tools; and the scrubber. */

import { button, h, say, svg } from "./dom.js";
import { heldTimes, nearest } from "./moments.js";
import { number, seconds } from "./words.js";

const LEFT = 76;
const RIGHT = 14;
const LINE = 22;
/** 1, 2 or 5 of a power of ten, from ten microseconds to an hour. */
const STEPS = [1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000].flatMap((size) => [size, 2 * size, 5 * size]);
const BEYOND = 50;

/** Vertical ticks as one path, however many there are; those of one pixel fall together. */
function ticks(times, x, top, height) {
  const places = new Set(times.map((at) => Math.round(x(at) * 2) / 2));
  return [...places].map((place) => `M${place} ${top}v${height}`).join("");
}

/** The row of each run, so that those at the same time do not cover one another (within four rows). */
function apart(tools) {
  const ends = [];
  return tools.map(({ from, to }) => {
    const free = ends.findIndex((end) => end <= from);
    const row = free >= 0 ? free : Math.min(ends.length, 3);
    ends[row] = to ?? Infinity;
    return row;
  });
}

export class Timeline {
  position = 0;
  #moments = [];
  #playing = 0;

  /** `moved(position)` is called as the scrubber moves, `describe(moment)` says in words what is there. */
  constructor(moved, describe) {
    Object.assign(this, { moved, describe });
    this.drawing = svg("svg", { class: "axis", role: "img", "data-testid": "axis" });
    this.playhead = svg("line", { class: "playhead" });
    this.range = h("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "Position in time",
      "data-testid": "scrubber",
      on: { input: () => this.go(Number(this.range.value)) },
    });
    this.play = button("Play", () => this.toggle(), { title: "P", "data-testid": "play" });
    this.where = h("output", { class: "where", "data-testid": "where" });
    this.element = h(
      "section",
      { class: "timeline", "aria-label": "Time axis" },
      this.drawing,
      h("div", { class: "scrubber" }, ...this.#buttons(), this.range, this.where),
    );
    this.#pointers();
  }

  #buttons() {
    const step = (label, words, way) => button(label, () => this.step(way), { "aria-label": words, title: words });
    return [
      step("⇤", "To the start", -Infinity),
      step("‹", "One frame back", -1),
      this.play,
      step("›", "One frame on", 1),
      step("⇥", "To the end", Infinity),
    ];
  }

  #pointers() {
    const to = (event) => {
      const box = this.drawing.getBoundingClientRect();
      const at = ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * this.span;
      this.go(nearest(this.#moments, Math.max(0, at)));
    };
    this.drawing.addEventListener("pointerdown", (event) => {
      this.drawing.setPointerCapture(event.pointerId);
      to(event);
    });
    this.drawing.addEventListener("pointermove", (event) => event.buttons & 1 && to(event));
  }

  /** The view anew; a scrubber that stands at the end stays at the end. */
  update(view, all) {
    const follows = this.position >= this.#moments.length - 1;
    this.view = view;
    this.#moments = all;
    this.span = Math.max(view.seconds ?? 0, all.at(-1).at, 0.001);
    this.range.max = all.length - 1;
    if (follows) this.position = all.length - 1;
    this.draw();
  }

  get last() {
    return this.#moments.length - 1;
  }

  /** Moves by so many frames. */
  step(way) {
    this.stop();
    this.go(this.position + way);
  }

  go(position) {
    this.position = Math.max(0, Math.min(position, this.last));
    this.#point();
    this.moved(this.position);
  }

  toggle() {
    if (this.#playing) return this.stop();
    if (this.position === this.last) this.go(0);
    say(this.play, "Stop");
    const began = performance.now() - this.#moments[this.position].at * 1000;
    const tick = () => {
      const now = (performance.now() - began) / 1000;
      let next = this.position;
      while (next < this.last && this.#moments[next + 1].at <= now) next++;
      if (next !== this.position) this.go(next);
      if (next === this.last) this.stop();
      else this.#playing = requestAnimationFrame(tick);
    };
    this.#playing = requestAnimationFrame(tick);
  }

  stop() {
    cancelAnimationFrame(this.#playing);
    this.#playing = 0;
    say(this.play, "Play");
  }

  #x(at) {
    return LEFT + (at / this.span) * (this.width - LEFT - RIGHT);
  }

  #point() {
    const moment = this.#moments[this.position];
    const x = this.#x(moment.to);
    this.playhead.setAttribute("x1", x);
    this.playhead.setAttribute("x2", x);
    this.range.value = this.position;
    const words = `${this.position} of ${this.last} · ${seconds(moment.to)}`;
    const more = this.describe(moment);
    say(this.where, more ? `${words} · ${more}` : words);
    this.range.setAttribute("aria-valuetext", this.where.textContent);
  }

  draw() {
    if (!this.view) return;
    this.width = Math.max(320, this.drawing.clientWidth || 960);
    const lines = ["sent", "model", "client", ...(this.view.tools.length ? ["tools"] : [])];
    const rows = apart(this.view.tools);
    const bottom = (lines.length + Math.max(0, ...rows)) * LINE + 4;
    const line = Object.fromEntries(lines.map((name, n) => [name, n * LINE + 4]));
    this.drawing.setAttribute("height", bottom + 22);
    this.drawing.setAttribute("aria-label", this.#words());
    this.playhead.setAttribute("y1", 0);
    this.playhead.setAttribute("y2", bottom);
    this.drawing.replaceChildren(
      ...lines.map((name) => svg("text", { x: 0, y: line[name] + 13, class: "name" }, name)),
      this.#ruler(bottom),
      ...this.view.rounds.flatMap((round) => this.#round(round, line)),
      this.#ticks(this.view.client.events, "client", line.client),
      ...this.view.tools.map((tool, n) => this.#tool(tool, line.tools + rows[n] * LINE)),
      this.playhead,
    );
    this.#point();
  }

  #words() {
    const { rounds, client, tools } = this.view;
    const pieces = rounds.reduce((sum, round) => sum + round.raw.steps.length, 0);
    const parts = [`${rounds.length} rounds`, `${pieces} pieces from the model`, `${client.events.length} events`];
    if (tools.length) parts.push(`${tools.length} tool runs`);
    return `Time axis of ${seconds(this.span)}: ${parts.join(", ")}`;
  }

  #ruler(top) {
    const step = STEPS.find((size) => (this.width - LEFT) / (this.span / size) >= 90) ?? 5000;
    const marks = Array.from({ length: Math.min(BEYOND, Math.floor(this.span / step) + 1) }, (_, n) => n * step);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return svg(
      "g",
      { class: "ruler" },
      svg("path", { d: `M${LEFT} ${top}H${this.width - RIGHT}${ticks(marks, (at) => this.#x(at), 0, top + 4)}` }),
      ...marks
        .filter((at) => this.#x(at) < this.width - 40)
        .map((at) =>
          svg(
            "text",
            { x: this.#x(at), y: top + 16 },
            step < 0.01 ? `${(at * 1000).toFixed(Math.max(0, digits - 3))} ms` : `${at.toFixed(digits)} s`,
          ),
        ),
    );
  }

  #bar(from, to, top, height, name, title) {
    const x = this.#x(from);
    const shape = { x, y: top, width: Math.max(1.5, this.#x(to) - x), height, rx: 2, class: name };
    return svg("rect", shape, svg("title", null, title));
  }

  #round(round, line) {
    const end = round.ended_at ?? this.span;
    const first = round.answered_at ?? end;
    const failed = round.failed ? " failed" : "";
    const who = `Round ${round.number} at ${round.backend ?? "the server"}`;
    const held = heldTimes(round).map(([from, to]) =>
      this.#bar(from, to, line.model + 3, 12, "held", `Held back ${seconds(to - from)}`),
    );
    return [
      this.#bar(round.at, first, line.sent + 3, 12, `waiting${failed}`, `${who}: waited ${seconds(first - round.at)}`),
      svg("text", { x: this.#x(round.at) + 5, y: line.sent + 13, class: "in" }, number(round.number)),
      round.answered_at !== null && this.#bar(first, end, line.model + 3, 12, `answer${failed}`, `${who}: answered`),
      ...held,
      this.#ticks(round.raw.steps, "model", line.model),
    ].filter(Boolean);
  }

  #ticks(happenings, name, top) {
    const d = ticks(
      happenings.map(({ at }) => at),
      (at) => this.#x(at),
      top + 3,
      12,
    );
    return svg("path", { d, class: `ticks ${name} ${happenings.length > this.width / 3 ? "dense" : ""}` });
  }

  #tool(tool, top) {
    const to = tool.to ?? this.span;
    const words = `${tool.name}: ${tool.state}, ${seconds(to - tool.from)}`;
    const x = this.#x(tool.from);
    const room = this.#x(to) - x > 60;
    return svg(
      "g",
      { class: "tool" },
      this.#bar(tool.from, to, top + 3, 14, `run ${/err|fail|time/i.test(tool.state) ? "failed" : ""}`, words),
      room && svg("text", { x: x + 5, y: top + 14, class: "in" }, tool.name.slice(0, (this.#x(to) - x) / 7)),
    );
  }
}
