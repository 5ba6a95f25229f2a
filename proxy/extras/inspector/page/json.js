/** JSON that is typed: parsed, with the place of what is wrong. */

import { h, say } from "./dom.js";

/** {value} or {error: words with line and column}. */
export function parse(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    const place = /position (\d+)/.exec(error.message);
    const at = place ? Number(place[1]) : /end of/.test(error.message) ? text.length : null;
    const what = error.message.replace(/^JSON\.parse: |,? ?(in JSON )?at position.*$|, ".*$/gs, "");
    if (at === null) return { error: what };
    const before = text.slice(0, at).split("\n");
    return { error: `Line ${before.length}, column ${before.at(-1).length + 1}: ${what}` };
  }
}

/** A text area for JSON; `changed(value)` is called for what can be parsed and is fit. */
export function jsonArea(label, changed, { rows = 8, fit = () => null, ...props } = {}) {
  const error = h("p", { class: "failure", role: "status", hidden: true });
  const check = () => {
    const read = area.value.trim() ? parse(area.value) : { value: undefined };
    const words = read.error ?? (read.value === undefined ? null : fit(read.value));
    say(error, words ?? "");
    error.hidden = !words;
    area.setAttribute("aria-invalid", String(Boolean(words)));
    if (!words) changed(read.value);
    return !words;
  };
  const area = h("textarea", {
    rows,
    spellcheck: "false",
    "aria-label": label,
    class: "json",
    ...props,
    on: { input: check },
  });
  const element = h("div", { class: "jsonarea" }, area, error);
  element.check = check;
  element.put = (value) => {
    area.value = value === undefined ? "" : JSON.stringify(value, null, 2);
    error.hidden = true;
    area.setAttribute("aria-invalid", "false");
  };
  return element;
}
