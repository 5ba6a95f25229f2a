/** The live list: a table of which only the rows in view are elements. */

import { exported } from "./api.js";
import { download } from "./copying.js";
import { button, h, say } from "./dom.js";
import { Filter } from "./filter.js";
import { shown } from "./marks.js";
import { clock, milliseconds, misfits, number, outcome, plural, tail } from "./words.js";

const ROW = 34;
const BEYOND = 12;
const TELL_MS = 8000;
const OFFER_MS = 500;

const route = (row) => (row.route && row.route !== row.model ? `${row.model} → ${row.route}` : (row.model ?? ""));
const tokens = ({ input_tokens: read, output_tokens: written }) =>
  read || written ? `${number(read ?? 0)} → ${number(written ?? 0)}` : "";
const noteWords = (row) =>
  [
    misfits(row) ? "misfit" : "",
    row.reasks ? "retried" : "",
    ...["repaired", "coerced", "recognised"].map((kind) => (row[kind] ? kind : "")),
  ]
    .filter(Boolean)
    .join(", ");
const times = (row) =>
  [
    `First byte: ${milliseconds(row.first_byte_ms) || "unknown"}`,
    row.overhead_ms === null || row.overhead_ms === undefined ? "" : `gateway: ${milliseconds(row.overhead_ms)}`,
  ]
    .filter(Boolean)
    .join(" · ");

/** name, label, text of a row, its long form */
const COLUMNS = [
  ["at", "Time", (row) => clock(row.at), (row) => new Date(row.at * 1000).toISOString()],
  [
    "question",
    "Question",
    (row) => row.question || (row.running ? "" : (row.path ?? "")),
    (row) => row.question || row.path || "",
  ],
  ["outcome", "Outcome", (row) => outcome(row).words, (row) => row.why ?? row.code ?? ""],
  ["notes", "Notes", noteWords, (row) => (misfits(row) ? `Schema warning: ${row.why ?? ""}` : noteWords(row))],
  ["session", "Session", (row) => tail(row.session), (row) => (row.session ? `Only session ${row.session}` : "")],
  [
    "client",
    "Client",
    (row) => row.client ?? "",
    (row) => [row.client, row.key && `key ${row.key}`, row.api, row.path].filter(Boolean).join(" · "),
  ],
  ["model", "Model → route", route, (row) => [route(row), row.backend].filter(Boolean).join(" · at ")],
  ["format", "Format", (row) => row.read_as ?? "", (row) => (row.format ? `Taught: ${row.format}` : "")],
  ["tokens", "Tokens", tokens, (row) => (tokens(row) ? "Tokens of the prompt → tokens of the answer" : "")],
  ["total", "Total", (row) => milliseconds(row.total_ms), times],
];

const domId = (id) => `row-${id}`;

export class ListPage {
  title = "Exchanges";
  #elements = new Map();
  #shown = [];
  #selected = null;
  #paused = null;
  #top = 0;
  #told = { at: 0, arrived: 0 };
  #picked = new Set();
  #offered = -OFFER_MS;
  #offering = null;

  /** `setup` says whether rows arrive and whether files can be made of them. */
  constructor(rows, tell, { live, shared }) {
    Object.assign(this, { rows, tell, live, shared });
    this.filter = new Filter(() => this.#refresh({ keep: false }));
    this.pause = button("Pause", () => this.togglePause(), {
      "aria-pressed": "false",
      "data-testid": "pause",
      title: "Space",
      hidden: !live,
    });
    this.count = h("p", { class: "count", "data-testid": "count" });
    this.body = h("tbody");
    this.table = this.#table();
    this.scroller = h(
      "div",
      { class: "scroller", "data-testid": "scroller", on: { scroll: () => this.#draw() } },
      this.table,
    );
    this.empty = h("div", { class: "empty", hidden: true });
    this.picks = h("div", { class: "bar picks", role: "group", "aria-label": "Selected exchanges", hidden: true });
    this.element = h(
      "section",
      { class: "list", "aria-label": "Exchanges" },
      h("div", { class: "bar" }, this.filter.element, this.count, this.pause),
      this.picks,
      this.scroller,
      this.empty,
    );
  }

  #table() {
    const heads = COLUMNS.map(([name, label]) => h("th", { scope: "col", class: name }, label));
    return h(
      "table",
      {
        class: "exchanges",
        role: "grid",
        tabindex: "0",
        "aria-label": "Exchanges, newest first. Arrow keys select, Enter opens.",
        "data-testid": "exchanges",
        on: { click: (event) => this.#click(event) },
      },
      h("thead", null, h("tr", { "aria-rowindex": "1" }, h("th", { class: "pick" }, h("span", null, "Select")), heads)),
      this.body,
    );
  }

  show() {
    this.stop = this.rows.watch(() => this.#refresh());
    this.resized = new ResizeObserver(() => this.#draw());
    this.resized.observe(this.scroller);
    requestAnimationFrame(() => {
      this.scroller.scrollTop = this.#top;
      this.#refresh({ keep: false });
      this.table.focus({ preventScroll: true });
    });
  }

  hide() {
    this.#top = this.scroller.scrollTop;
    this.stop();
    this.resized.disconnect();
  }

  togglePause() {
    this.#paused = this.#paused ? null : { rows: this.rows.newest(), arrived: this.rows.arrived };
    this.pause.setAttribute("aria-pressed", String(Boolean(this.#paused)));
    this.tell(this.#paused ? "Paused" : "Live again");
    this.#refresh();
  }

  /** The rows anew; what is in view stays where it is, unless the newest are in view. */
  #refresh({ keep = true } = {}) {
    const all = this.#paused?.rows ?? this.rows.newest();
    const anchor = Math.floor(this.scroller.scrollTop / ROW);
    const held = keep && this.scroller.scrollTop > 0 ? this.#shown[anchor]?.exchange_id : null;
    this.#offer(all);
    this.#shown = all.filter((row) => this.filter.accepts(row));
    this.#say(all.length);
    if (held) {
      const now = this.#shown.findIndex((row) => row.exchange_id === held);
      if (now >= 0 && now !== anchor) {
        this.#draw(now - anchor);
        this.scroller.scrollTop += (now - anchor) * ROW;
        return;
      }
    }
    this.#draw();
  }

  /** What there is to choose from changes slowly, and looking through many rows takes a moment. */
  #offer(rows) {
    const wait = OFFER_MS - (performance.now() - this.#offered);
    const offer = (now) => ((this.#offered = performance.now()), (this.#offering = null), this.filter.offer(now));
    if (wait <= 0) offer(rows);
    else this.#offering ??= setTimeout(() => offer(this.#paused?.rows ?? this.rows.newest()), wait);
  }

  #say(all) {
    const waiting = this.#paused ? this.rows.arrived - this.#paused.arrived : 0;
    const parts = [
      this.#shown.length === all ? plural(all, "exchange") : `${number(this.#shown.length)} of ${number(all)}`,
    ];
    if (this.rows.skipped) parts.push(`${number(this.rows.skipped)} were deleted before they were shown`);
    say(this.count, parts.join(" · "));
    say(this.pause, this.#paused ? `Paused · ${number(waiting)} waiting` : "Pause");
    this.#tellNew();
    this.scroller.hidden = !this.#shown.length;
    this.empty.hidden = Boolean(this.#shown.length);
    if (!this.#shown.length) this.#explain(all);
  }

  #tellNew() {
    const now = Date.now();
    const fresh = this.rows.arrived - this.#told.arrived;
    if (this.#paused || now - this.#told.at < TELL_MS || !fresh) return;
    if (this.#told.at) this.tell(`${plural(fresh, "new exchange")}`, { quiet: true });
    this.#told = { at: now, arrived: this.rows.arrived };
  }

  #explain(all) {
    const words = all
      ? "No exchange matches the search and the filters."
      : "No exchange yet. Send a request through the gateway, or use the playground: it appears here while it runs.";
    if (this.empty.textContent !== words) this.empty.replaceChildren(h("p", null, words));
  }

  /** `shift`: by so many rows the view is about to be scrolled. */
  #draw(shift = 0) {
    const first = Math.floor(this.scroller.scrollTop / ROW) + shift;
    const start = Math.max(0, Math.min(first, this.#shown.length) - BEYOND);
    const end = Math.min(this.#shown.length, first + Math.ceil(this.scroller.clientHeight / ROW) + BEYOND);
    const rows = this.#shown.slice(start, end);
    const wanted = new Set(rows.map((row) => row.exchange_id));
    for (const [id, { tr }] of this.#elements) if (!wanted.has(id)) (tr.remove(), this.#elements.delete(id));
    this.#spacers();
    this.before.firstChild.style.height = `${start * ROW}px`;
    this.after.firstChild.style.height = `${(this.#shown.length - end) * ROW}px`;
    let place = this.before;
    rows.forEach((row, index) => {
      const tr = this.#row(row, start + index);
      if (place.nextSibling !== tr) place.after(tr);
      place = tr;
    });
    this.table.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    this.#mark();
  }

  #spacers() {
    if (this.before) return;
    const spacer = () => h("tr", { class: "spacer", "aria-hidden": "true" }, h("td"));
    this.before = spacer();
    this.after = spacer();
    this.body.append(this.before, this.after);
  }

  #row(row, index) {
    let known = this.#elements.get(row.exchange_id);
    if (!known) {
      const cells = COLUMNS.map(([name]) => h("td", { class: `${name} foreign` }));
      const tick = h("input", { type: "checkbox", tabindex: "-1", "data-testid": "pick" });
      const pick = h("td", { class: "pick" }, tick);
      const tr = h("tr", { id: domId(row.exchange_id), "data-id": row.exchange_id, "data-testid": "row" }, pick, cells);
      known = { tr, tick, cells, row: null };
      this.#elements.set(row.exchange_id, known);
    }
    if (known.row !== row) {
      COLUMNS.forEach(([, , text, title], n) => {
        say(known.cells[n], shown(text(row)));
        known.cells[n].title = shown(title(row));
      });
      known.tr.dataset.outcome = outcome(row).kind;
      known.tick.setAttribute("aria-label", shown(`Select ${clock(row.at, true)} ${row.question ?? ""}`));
      known.row = row;
    }
    known.tick.checked = this.#picked.has(row.exchange_id);
    known.tr.setAttribute("aria-rowindex", String(index + 2));
    return known.tr;
  }

  #mark() {
    for (const [id, { tr }] of this.#elements) tr.setAttribute("aria-selected", String(id === this.#selected));
    if (this.#elements.has(this.#selected)) this.table.setAttribute("aria-activedescendant", domId(this.#selected));
    else this.table.removeAttribute("aria-activedescendant");
  }

  #click(event) {
    const id = event.target.closest("tr[data-id]")?.dataset.id;
    if (!id) return;
    if (event.target.closest(".pick")) return this.#pick(id);
    const { session } = this.rows.get(id) ?? {};
    if (event.target.closest(".session") && session) return this.filter.only(session);
    this.#selected = id;
    this.open();
  }

  #pick(id) {
    if (!this.#picked.delete(id)) this.#picked.add(id);
    this.#drawPicks();
    this.#draw();
  }

  #unpick() {
    this.#picked.clear();
    this.#drawPicks();
    this.#draw();
    this.table.focus({ preventScroll: true });
  }

  #drawPicks() {
    const ids = [...this.#picked];
    this.picks.hidden = !ids.length;
    const [a, b] = ids.map(encodeURIComponent);
    const save = (as, name) => async () => {
      try {
        download(await exported(ids, as), name);
      } catch (error) {
        this.tell(`Not exported: ${error.message}`);
      }
    };
    const files = [
      button("Download captures", save("captures", `${ids.length}-exchanges.capture.jsonl`), { "data-testid": "export" }),
      button("Share as HTML", save("html", `${ids.length}-exchanges.html`), { "data-testid": "share" }),
    ];
    this.picks.replaceChildren(
      h("span", null, `${number(ids.length)} selected`),
      button("Compare", () => (location.hash = `#/compare/${a}/${b}`), {
        disabled: ids.length !== 2,
        title: "Compares two exchanges",
        "data-testid": "compare-two",
      }),
      ...(this.shared ? [] : files),
      button("Clear", () => this.#unpick(), { class: "quiet" }),
    );
  }

  open() {
    if (this.#selected) location.hash = `#/exchange/${encodeURIComponent(this.#selected)}`;
  }

  #select(index) {
    const row = this.#shown[Math.max(0, Math.min(index, this.#shown.length - 1))];
    if (!row) return;
    this.#selected = row.exchange_id;
    const at = this.#shown.indexOf(row) * ROW;
    const head = this.table.tHead.offsetHeight;
    const { scrollTop, clientHeight } = this.scroller;
    if (at < scrollTop) this.scroller.scrollTop = at;
    else if (at + ROW + head > scrollTop + clientHeight) this.scroller.scrollTop = at + ROW + head - clientHeight;
    this.#draw();
  }

  /** One key; true if it meant something here. */
  key(event) {
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const now = this.#shown.findIndex((row) => row.exchange_id === this.#selected);
    const to = {
      j: now + 1,
      ArrowDown: now + 1,
      k: Math.max(0, now - 1),
      ArrowUp: Math.max(0, now - 1),
      PageDown: now + page,
      PageUp: now - page,
      Home: 0,
      End: this.#shown.length - 1,
    }[event.key];
    if (to !== undefined) this.#select(to);
    else if (event.key === "Enter" && this.#selected) this.open();
    else if (event.key === "x" && this.#selected) this.#pick(this.#selected);
    else if (event.key === " " && this.live) this.togglePause();
    else if (event.key === "/") this.filter.search.focus();
    else if (event.key === "Escape" && !this.filter.reset.hidden) this.filter.clear();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
