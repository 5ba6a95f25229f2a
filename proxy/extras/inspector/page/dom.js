/** Elements made by code: foreign text only ever becomes text nodes, never markup. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "open", "indeterminate"]);

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
  else if (PROPERTIES.has(name)) element[name] = value;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) set(element, name, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element: `h("p", { class: "note", on: { click } }, "text", child)`. */
export const h = (tag, props, ...children) => build(document.createElement(tag), props, children);

/** The same in SVG. */
export const svg = (tag, props, ...children) => build(document.createElementNS(SVG, tag), props, children);

/** A button; its label is its content. */
export const button = (label, click, props = {}) => h("button", { type: "button", ...props, on: { click } }, label);

/** A table: its rows below the labels of its columns. */
export const table = (props, labels, rows, caption = null) =>
  h(
    "table",
    props,
    caption && h("caption", null, caption),
    h("thead", null, h("tr", null, labels.map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", null, rows),
  );

/** A box that scrolls by itself, for what may be wider than the page. */
export const wide = (label, content) =>
  h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, content);

/** Words in place of something that is not there. */
export const none = (words = "none", props = {}) => h("p", { class: "none", ...props }, words);

/** A labelled control: the label's text, then the control. */
export const field = (label, control, props = {}) =>
  h("label", { class: "field", ...props }, h("span", { class: "label" }, label), control);

/** A select of [value, text] pairs (or of plain values). */
export function choice(options, value, change, props = {}) {
  const select = h("select", { ...props, on: { change: () => change(select.value) } });
  fill(select, options, value);
  return select;
}

/** The options of a select anew, only where they changed. */
export function fill(select, options, value = select.value) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const key = JSON.stringify(pairs);
  if (select.dataset.key !== key) {
    select.replaceChildren(...pairs.map(([name, text]) => h("option", { value: name }, text)));
    select.dataset.key = key;
  }
  select.value = pairs.some(([name]) => name === value) ? value : (pairs[0]?.[0] ?? "");
}

/** Text set only where it differs, so that nothing is laid out again for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Scrolls a box so that a place (a rectangle) in it can be seen, whatever of the box the window shows. */
export function keepInView(box, place) {
  const { top, bottom } = box.getBoundingClientRect();
  const end = Math.min(bottom, innerHeight);
  if (place && (place.top < top || place.bottom > end - 20)) box.scrollTop += place.top - (top + end) / 2;
}

/** One tab stop for a list: the arrow keys go on among its stops. */
export function roving(list, selector) {
  list.addEventListener("keydown", (event) => {
    const way = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!way || !event.target.matches(selector)) return;
    const stops = [...list.querySelectorAll(selector)];
    const next = stops[stops.indexOf(event.target) + way];
    if (next) next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  list.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    list.querySelectorAll(`${selector}[tabindex="0"]`).forEach((stop) => (stop.tabIndex = -1));
    event.target.tabIndex = 0;
  });
}

/** Buttons of which one is pressed: [[value, text]..]. */
export function toggles(label, options, value, change, props = {}) {
  const group = h("div", { class: "toggles", role: "group", "aria-label": label, ...props });
  const press = (chosen) => {
    for (const item of group.children) item.setAttribute("aria-pressed", String(item.dataset.value === chosen));
  };
  for (const [name, text] of options)
    group.append(
      button(text, () => (press(name), change(name)), { "data-value": name, "data-testid": `toggle-${name}` }),
    );
  press(value);
  group.press = press;
  return group;
}
