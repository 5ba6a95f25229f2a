/** One exchange: what it is, its calls and judgements, the time axis and the lanes. */

import { send } from "./api.js";
import { copy, curl, download, python } from "./copying.js";
import { button, h, none, say, toggles } from "./dom.js";
import { Readings } from "./formats.js";
import { Lanes } from "./lanes.js";
import { foreign, visible } from "./marks.js";
import { arrived, endOf, moments, nearest } from "./moments.js";
import { Timeline } from "./timeline.js";
import { clock, hue, number, outcome, short, tail } from "./words.js";

const AGAIN_MS = 600;

function fact(value) {
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

export class ExchangePage {
  title = "Exchange";
  #index = 0;
  #moments = [];
  #stopped = new AbortController();
  #chosen = null;

  /** `source` gives the view, readings and file; `at` is the position that the address names, or null. */
  constructor(source, { at = null, setup, tell, play }) {
    Object.assign(this, { source, at, setup, tell, play });
    this.lanes = new Lanes((call) => this.lanes.light(call ?? this.#chosen));
    this.timeline = new Timeline(
      () => this.#moved(),
      (moment) => this.#describe(moment),
    );
    this.readings = new Readings(source.formats);
    this.head = h("header", { class: "title" });
    this.facts = h("dl", { class: "facts", "data-testid": "facts" });
    this.found = h("div", { class: "found" });
    this.rounds = h("div");
    this.runs = h("div");
    this.state = h("p", { class: "wait", role: "status" }, "Loading…");
    this.whole = h(
      "div",
      { class: "whole", hidden: true },
      h("div", { class: "about" }, this.head, this.facts, this.found),
      h("div", { class: "stage" }, this.rounds, this.timeline.element),
      this.lanes.element,
      this.runs,
      this.readings.element,
    );
    this.element = h("section", { class: "exchange", "aria-label": "Exchange" }, this.state, this.whole);
    this.lanes.element.addEventListener("dblclick", (event) => this.#jump(event));
  }

  show() {
    this.resized = new ResizeObserver(() => this.timeline.draw());
    this.resized.observe(this.timeline.drawing);
    this.#load();
  }

  hide() {
    this.#stopped.abort();
    this.timeline.stop();
    this.resized.disconnect();
  }

  async #load() {
    const { signal } = this.#stopped;
    try {
      for (;;) {
        const asked = performance.now();
        const view = await this.source.view(signal);
        if (signal.aborted) return;
        this.#update(view);
        if (!view.running || this.setup.live === false) return;
        const pause = Math.max(AGAIN_MS, 4 * (performance.now() - asked));
        await new Promise((resolve) => setTimeout(resolve, pause));
        if (signal.aborted) return;
      }
    } catch (error) {
      if (signal.aborted) return;
      this.state.hidden = false;
      say(this.state, error.status === 404 ? "This exchange is not stored (any more)." : error.message);
    }
  }

  #update(view) {
    this.view = view;
    this.state.hidden = true;
    this.whole.hidden = false;
    const followed = this.timeline.position >= this.#moments.length - 1;
    this.#moments = moments(view);
    this.#head(view);
    this.#found(view);
    this.#runs(view);
    this.timeline.update(view, this.#moments);
    if (followed) this.#index = this.#roundAt(this.#moments.at(-1));
    this.#tabs(view);
    this.lanes.update(view, this.#index, this.#moment);
    if (this.at !== null) this.timeline.go(this.at);
    this.at = null;
    if (view.running && followed) this.lanes.show(this.#moment, { follow: true });
    this.title = `${view.head.model ?? "Exchange"} · ${view.id ?? "file"}`;
    document.title = `${this.title} · toolwire`;
  }

  get #moment() {
    return this.#moments[this.timeline.position];
  }

  #roundAt(moment) {
    return Math.min(moment.round, Math.max(0, this.view.rounds.length - 1));
  }

  #head(view) {
    const { head } = view;
    const { kind, words } = outcome({ ...view.row, calls: view.row.calls || view.calls.length });
    const where = [head.route && head.route !== head.model ? head.route : null, head.backend].filter(Boolean);
    const key = JSON.stringify([head, kind, words, view.why, view.left_out_bytes]);
    if (key !== this.headKey) {
      this.headKey = key;
      this.head.replaceChildren(
        ...[
          h(
            "div",
            { class: "name" },
            h(
              "h2",
              null,
              h("span", { class: "foreign" }, head.model ?? head.path ?? "?"),
              where.length ? h("small", { class: "foreign" }, ` → ${where.join(" at ")}`) : null,
            ),
            head.read_as ? h("span", { class: "badge", title: "The format that was read" }, head.read_as) : null,
            head.format && head.format !== head.read_as
              ? h("span", { class: "badge", title: "The format that was taught" }, `taught: ${head.format}`)
              : null,
            h("span", { class: "outcome", "data-outcome": kind, "data-testid": "outcome" }, words),
          ),
          this.#actions(view),
          this.#line(view),
          view.why
            ? h("p", { class: "why foreign", "data-outcome": kind, "data-testid": "why" }, visible(view.why))
            : null,
          head.question ? h("p", { class: "asked foreign", title: "The question" }, visible(head.question)) : null,
        ].filter(Boolean),
      );
    }
    this.facts.replaceChildren(
      ...view.facts.map(([label, value]) =>
        h("div", null, h("dt", null, label), h("dd", { class: "foreign" }, fact(value))),
      ),
    );
  }

  #line({ head, id, at, left_out_bytes: left }) {
    const said = [
      at ? clock(at, true) : "",
      head.path,
      head.client,
      head.tool_mode && `tools: ${head.tool_mode}`,
      head.session && `session ${tail(head.session)}`,
      head.scanner && `scanner: ${head.scanner}`,
      head.version && `toolwire ${head.version}`,
      id,
    ].filter(Boolean);
    return h(
      "p",
      { class: "line" },
      said.map((words) => h("span", { class: "foreign" }, words)),
      left ? h("span", { class: "warn" }, `${number(left)} bytes were left out of the record`) : null,
    );
  }

  #actions({ head, id, request }) {
    const keys = this.setup.keys;
    const has = request.bytes > 0;
    const withBody = (act) => () => {
      try {
        return act(JSON.parse(this.view.request.text));
      } catch {
        return this.tell("The request was not recorded completely, or is not JSON");
      }
    };
    const live = this.setup.live && head.path && has;
    const name = `${id ?? "exchange"}.capture.jsonl`;
    const withRequest = [
      [live, "Ask again", (body) => this.#again(body), "ask-again"],
      [live, "To the playground", (body) => this.play(head.api, body), "to-playground"],
      [has, "Copy as curl", (body) => copy(curl(head.path, body, keys), this.tell), "copy-curl"],
      [has, "Copy as Python", (body) => copy(python(head.api, head.path, body, keys), this.tell), "copy-python"],
    ].filter(([offered]) => offered);
    return h(
      "div",
      { class: "actions" },
      withRequest.map(([, label, act, testid], n) =>
        button(label, withBody(act), { class: live && !n ? "main" : null, "data-testid": testid }),
      ),
      button("Download capture", this.#save(this.source.capture, name), { "data-testid": "download" }),
      this.source.html
        ? button("Share as HTML", this.#save(this.source.html, `${id ?? "exchange"}.html`), {
            title: "One file with this page, which opens without a gateway",
            "data-testid": "share",
          })
        : null,
    );
  }

  #save(read, name) {
    return async () => {
      try {
        download(await read(), name);
      } catch (error) {
        this.tell(`Not saved: ${error.message}`);
      }
    };
  }

  /** The captured request once more; its answer is read to the end, wherever one goes meanwhile. */
  async #again(body) {
    this.tell("Asked again");
    try {
      const response = await send(this.view.head.path, JSON.stringify(body));
      const id = response.headers.get("X-Request-Id");
      if (id) location.hash = `#/exchange/${encodeURIComponent(id)}`;
      await response.body?.pipeTo(new WritableStream());
    } catch (error) {
      this.tell(`Not answered: ${error.message}`);
    }
  }

  #found(view) {
    const key = JSON.stringify([view.calls, view.judgements]);
    if (key === this.foundKey) return;
    this.foundKey = key;
    const calls = view.calls.map((call) => h("li", null, this.#chip(call)));
    const judgements = view.judgements.map((judgement, index) => h("li", null, this.#judgement(judgement, index)));
    this.found.replaceChildren(
      h(
        "section",
        { "aria-label": "Calls" },
        h("h3", null, `Calls (${calls.length})`),
        calls.length ? h("ol", { class: "chips", "data-testid": "calls" }, calls) : none(),
      ),
      h(
        "section",
        { "aria-label": "What was decided" },
        h("h3", null, "What was decided"),
        judgements.length
          ? h("ul", { class: "judgements", "data-testid": "judgements" }, judgements)
          : none(calls.length ? "Nothing was changed." : "No decision about a tool call."),
      ),
    );
  }

  #chip(call) {
    const chip = button(
      [
        h("i", null, number(call.n)),
        h("b", { class: "foreign" }, visible(call.name)),
        h("code", { class: "foreign" }, visible(short(call.arguments ?? "", 140))),
      ],
      () => this.#choose(call),
      { class: `chip ${hue(call.n)}`, title: "Shows where it came from", "data-testid": "call" },
    );
    for (const type of ["pointerenter", "focus"])
      chip.addEventListener(type, () => this.lanes.light(call, { reveal: true }));
    for (const type of ["pointerleave", "blur"]) chip.addEventListener(type, () => this.lanes.light(this.#chosen));
    for (const kind of new Set(call.judgements.map((index) => this.view.judgements[index]?.kind)))
      chip.append(h("em", null, kind ?? ""));
    return chip;
  }

  #judgement({ kind, words, round, call }, index) {
    const where = [call ? `call ${call}` : "", this.view.rounds.length > 1 ? `round ${round}` : ""]
      .filter(Boolean)
      .join(", ");
    return button(
      [h("em", { "data-kind": kind }, kind), " ", ...visible(words), where ? h("small", null, ` ${where}`) : null],
      () => this.#toJudgement(index),
      { class: "judgement", title: "Shows the place" },
    );
  }

  #toJudgement(index) {
    this.#toRound(this.view.judgements[index].round);
    this.#chosen = null;
    this.lanes.light(null);
    if (!this.lanes.reveal(index)) this.lanes.raw.element.focus();
  }

  /** Shows the round of that number, whole, if another one is shown. */
  #toRound(round) {
    const index = this.view.rounds.findIndex((one) => one.number === round);
    if (index >= 0 && index !== this.#index) this.timeline.go(endOf(this.#moments, index));
  }

  #choose(call) {
    this.#chosen = this.#chosen === call ? null : call;
    this.#toRound(call.round);
    this.lanes.light(call, { reveal: true });
  }

  #tabs(view) {
    const key = JSON.stringify(view.rounds.map(({ number: n, backend, failed }) => [n, backend, failed]));
    if (key !== this.tabsKey && view.rounds.length > 1) {
      const options = view.rounds.map(({ number: n, backend, failed, status }, index) => [
        String(index),
        [`Round ${n}`, backend, failed ? `failed: ${failed.code ?? status}` : ""].filter(Boolean).join(" · "),
      ]);
      this.group = toggles("Rounds", options, String(this.#index), (value) =>
        this.timeline.go(endOf(this.#moments, Number(value))),
      );
      this.rounds.replaceChildren(this.group);
    }
    this.tabsKey = key;
    this.group?.press(String(this.#index));
  }

  #runs({ tools }) {
    const key = JSON.stringify(tools);
    if (key === this.runsKey) return;
    this.runsKey = key;
    this.runs.replaceChildren(
      ...(tools.length
        ? [
            h(
              "section",
              { class: "runs", "aria-label": "Run by the gateway" },
              h("h3", null, "Run by the gateway"),
              tools.map((tool) => this.#run(tool)),
            ),
          ]
        : []),
    );
  }

  #run({ name, state, from, to, arguments: args, result }) {
    const time = to === null || to === undefined ? "running" : `${(to - from).toFixed(3)} s`;
    return h(
      "details",
      null,
      h(
        "summary",
        null,
        h("b", { class: "foreign" }, visible(name)),
        " ",
        foreign(short(args ?? "", 120), "code"),
        ` ${state} · ${time}`,
      ),
      foreign(typeof result === "string" ? result : (JSON.stringify(result, null, 2) ?? "")),
    );
  }

  #moved() {
    const moment = this.#moment;
    const index = this.#roundAt(moment);
    if (index !== this.#index) {
      this.#index = index;
      this.#tabs(this.view);
      this.lanes.update(this.view, index, moment);
    }
    this.lanes.show(moment, { follow: true });
    this.#remember();
  }

  /** The address names the position, so that it can be shown to others. */
  #remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.#stopped.signal.aborted) return;
      const [path] = location.hash.split("?");
      const { position, last } = this.timeline;
      history.replaceState(null, "", position === last ? path : `${path}?at=${position}`);
    }, 300);
  }

  #describe(moment) {
    const { rounds } = this.view;
    const index = this.#roundAt(moment);
    if (!rounds[index]) return "";
    const { upto, released, state } = arrived(this.view, moment, index);
    const held = upto - released;
    const parts = [`${number(upto)} of ${number(rounds[index].raw.text.length)} characters`];
    if (held > 0) parts.push(`${number(held)} held back`);
    if (state) parts.push(state);
    return parts.join(" · ");
  }

  /** A double click on an event goes to its moment. */
  #jump(event) {
    const at = event.target.closest("[data-at]")?.dataset.at;
    if (at) this.timeline.go(nearest(this.#moments, Number(at)));
  }

  key(event) {
    const { timeline } = this;
    const far = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowLeft") timeline.step(-far);
    else if (event.key === "ArrowRight") timeline.step(far);
    else if (event.key === "Home") timeline.step(-Infinity);
    else if (event.key === "End") timeline.step(Infinity);
    else if (event.key === "p") timeline.toggle();
    else if (event.key === "r") this.readings.load();
    else if (/^[1-9]$/.test(event.key) && this.view?.calls[event.key - 1]) this.#choose(this.view.calls[event.key - 1]);
    else if (event.key === "Escape" && this.#chosen) this.lanes.light((this.#chosen = null));
    else if (event.key === "Escape") location.hash = "#/";
    else return false;
    return true;
  }
}
