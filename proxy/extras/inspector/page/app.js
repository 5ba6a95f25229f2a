/**
 * The inspector's start: views by location.hash, the header, the key, files, keys of the keyboard.
 *
 * Addresses: `#/` list, `#/exchange/ID?at=POSITION`, `#/compare/ID/ID`, `#/file`, `#/playground`, `#/overview`.
 *
 * data-testid: connection, said (what was announced), theme, help, open-file, file, key-form, key;
 * list: exchanges (table), row, pick, scroller, count, pause, search, filter-NAME, compare-two, export, share;
 * compare: facts-table, request-diff, answer-diff, decisions;
 * exchange: outcome, why, facts, calls, call, judgements, axis, scrubber, play, where, lanes, raw (data-upto, data-released),
 * events, frames, toggle-NAME, readings, read-again, ask-again, to-playground, copy-curl, copy-python, download,
 * share; playground: api, model-N, model-name-N, format-N, stream, beside-N, palette, tool-choice, add-message, add-tool, add-parameter, tool-name, tools-json, body,
 * compare, check, send, stop, answer-N, answer-call, to-exchange, go-on; overview: charts, servers, verdicts, latency-NAME.
 */

import { SHARED, feed, hasKey, kept, opened, setAskKey, setup as getSetup } from "./api.js";
import { ComparePage } from "./compare.js";
import { button, h, say } from "./dom.js";
import { ExchangePage } from "./exchange.js";
import { ListPage } from "./list.js";
import { OverviewPage } from "./overview.js";
import { PlaygroundPage } from "./playground.js";
import { Rows } from "./rows.js";

const byId = (id) => document.getElementById(id);
const main = byId("main");
const rows = new Rows();
const VIEWS = [
  ["#/", "Exchanges"],
  ["#/overview", "Overview"],
  ["#/playground", "Playground"],
];
const KEYS = [
  ["?", "this help"],
  ["1 … 9", "in an exchange: to that call"],
  ["j k ↓ ↑", "next, previous exchange"],
  ["Enter", "opens the exchange"],
  ["Escape", "back"],
  ["/", "search"],
  ["Space", "pauses the list"],
  ["x", "selects an exchange, to compare or to download"],
  ["← →", "a frame back, on; with Shift ten"],
  ["Home End", "the start, the end"],
  ["p", "plays"],
  ["r", "read again as…"],
  ["Ctrl Enter", "sends (playground)"],
];
let setup;
let page;
let list;
let playground;
let file = null;

/** Says something to the eye and to a screen reader; `quiet`: only to the latter. */
function tell(words, { quiet = false } = {}) {
  const said = byId("said");
  said.classList.toggle("quiet", quiet);
  said.textContent = words;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => (said.textContent = ""), 2500);
}

function dialog(title, content, props = {}) {
  const element = h(
    "dialog",
    { "aria-label": title, ...props, on: { close: () => element.remove() } },
    h("h2", null, title),
    content,
  );
  document.body.append(element);
  element.showModal();
  return element;
}

function help() {
  if (document.querySelector("dialog[open]")) return;
  const terms = KEYS.map(([key, words]) =>
    h(
      "div",
      null,
      h(
        "dt",
        null,
        key.split(" ").map((one) => h("kbd", null, one)),
      ),
      h("dd", null, words),
    ),
  );
  const off = h("input", { type: "checkbox", checked: localStorage.getItem("toolwire-keys") !== "off" });
  off.addEventListener("change", () => localStorage.setItem("toolwire-keys", off.checked ? "on" : "off"));
  const letters = h("label", { class: "field tick" }, off, h("span", null, "Single keys do this"));
  const close = h("form", { method: "dialog" }, letters, h("button", { class: "main" }, "Close"));
  const tip = h(
    "p",
    null,
    "Hover or focus a call to see where it came from; double-click an event to go to its moment.",
  );
  dialog("Keyboard", h("div", null, h("dl", { class: "keys" }, terms), tip, close), { "data-testid": "help-dialog" });
}

setAskKey(
  () =>
    new Promise((resolve) => {
      const key = h("input", {
        type: "password",
        autocomplete: "off",
        required: true,
        "aria-label": "Key",
        "data-testid": "key",
      });
      const form = h(
        "form",
        { method: "dialog", "data-testid": "key-form" },
        key,
        h("button", { class: "main" }, "Use this key"),
      );
      const words = hasKey() ? "That key was not accepted." : "This gateway asks for a key.";
      const text = h("p", null, `${words} It is kept in this tab only.`);
      const element = dialog("Key", h("div", null, text, form));
      element.addEventListener("close", () => resolve(key.value || null));
    }),
);

/** Where the address leads: a page, or nothing known. */
function pageOf(hash) {
  const [path, query = ""] = hash.split("?");
  const [, view = "", id = "", other = ""] = path.split("/");
  const at = new URLSearchParams(query).get("at");
  const options = { at: at === null ? null : Number(at) || 0, setup, tell, play };
  if (view === "exchange" && id) return new ExchangePage(kept(decodeURIComponent(id)), options);
  if (view === "file" && file) return new ExchangePage(opened(file), options);
  if (view === "compare" && id && other)
    return new ComparePage(kept(decodeURIComponent(id)), kept(decodeURIComponent(other)));
  if (!setup.live && setup.file) return new ExchangePage(kept(setup.file), options);
  if (view === "overview") return new OverviewPage(rows, setup);
  if (!setup.live) return list;
  if (view === "playground") return (playground ??= new PlaygroundPage(setup, tell));
  return list;
}

function route() {
  page?.hide();
  page = pageOf(location.hash);
  main.replaceChildren(page.element);
  page.show();
  document.title = `${page.title} · toolwire`;
  const here = `#/${location.hash.split(/[/?]/)[1] ?? ""}`;
  for (const link of byId("views").children) {
    if (link.getAttribute("href") === here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (page !== list) main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function play(api, body) {
  playground ??= new PlaygroundPage(setup, tell);
  playground.load(api, body);
  location.hash = "#/playground";
}

function open(chosen) {
  if (!chosen) return;
  file = chosen;
  if (location.hash === "#/file") route();
  else location.hash = "#/file";
}

function theme() {
  const names = { auto: "Auto", light: "Light", dark: "Dark" };
  const turn = (name) => {
    localStorage.setItem("toolwire-theme", name);
    document.documentElement.dataset.theme = name;
    switcher.textContent = names[name];
    switcher.setAttribute("aria-label", `Colours: ${names[name]}`);
  };
  const order = Object.keys(names);
  const next = () => turn(order[(order.indexOf(document.documentElement.dataset.theme) + 1) % 3]);
  const switcher = button("", next, { class: "quiet", title: "Colours: auto, light, dark", "data-testid": "theme" });
  const stored = localStorage.getItem("toolwire-theme");
  turn(stored in names ? stored : "auto");
  return switcher;
}

function header() {
  const picker = h("input", { type: "file", accept: ".jsonl,.json,.gz", hidden: true, "data-testid": "file" });
  picker.addEventListener("change", () => (open(picker.files[0]), (picker.value = "")));
  const controls = [
    picker,
    SHARED ? null : button("Open capture", () => picker.click(), { "data-testid": "open-file" }),
    theme(),
    button("?", help, { class: "quiet", "aria-label": "Help on the keyboard", "data-testid": "help" }),
  ];
  byId("tools").append(...controls.filter(Boolean));
  const views = setup.live ? VIEWS : setup.file ? [] : VIEWS.slice(0, 2);
  byId("views").append(...views.map(([href, words]) => h("a", { href }, words)));
}

function dropping() {
  addEventListener("dragover", (event) => (event.preventDefault(), document.body.classList.add("dropping")));
  addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    open(event.dataTransfer.files[0]);
  });
}

function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    const { target } = event;
    const typing = target.matches("input:not([type=checkbox], [type=range]), textarea, select");
    if (typing && event.key === "Escape") return target.blur();
    const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    if (!sends && (typing || event.ctrlKey || event.metaKey || event.altKey)) return;
    if (target.matches("button, a, summary, [type=checkbox]") && /^( |Enter)$/.test(event.key)) return;
    if (target.matches("[type=range], .pane") && /^(Arrow|Home|End)/.test(event.key)) {
      if (target.type === "range" || /Up|Down|Home|End/.test(event.key)) return;
    }
    if (event.key.length === 1 && localStorage.getItem("toolwire-keys") === "off") return;
    if (event.key === "?") help();
    else if (!page.key(event)) return;
    event.preventDefault();
  });
}

function connection(state, words = "") {
  if (!setup.live) return;
  const shown = { live: "live", lost: "connection lost, trying again", refused: `no feed: ${words}` }[state];
  byId("connection").dataset.state = state;
  say(byId("connection"), shown);
}

function live() {
  const take = (name, data, first) => {
    if (name === "rows") rows.take(data, first);
    if (name === "workers" && setup.live)
      say(byId("connection"), data.of > 1 ? `live · ${data.answering} of ${data.of} workers` : "live");
  };
  feed(take, connection);
}

async function start() {
  byId("skip").addEventListener("click", (event) => (event.preventDefault(), main.focus()));
  try {
    setup = await getSetup();
  } catch (error) {
    main.replaceChildren(h("p", { class: "failure" }, error.message));
    return;
  }
  list = new ListPage(rows, tell, { live: setup.live, shared: Boolean(SHARED) });
  header();
  if (!SHARED) dropping();
  keys();
  if (setup.file && !location.hash) history.replaceState(null, "", `#/exchange/${encodeURIComponent(setup.file)}`);
  addEventListener("hashchange", route);
  route();
  if (SHARED) rows.take(SHARED, true);
  else if (setup.live || !setup.file) live();
}

start();
