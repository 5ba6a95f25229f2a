/** Characters that hide, reorder or command are shown as marks in their place. */

import { h } from "./dom.js";

const HIDDEN = new RegExp(
  "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}\\p{Cs}]+",
  "gu",
);
const MOST_MARKS = 2000;
const C0 = ["NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "TAB", "LF", "VT", "FF", "CR", "SO", "SI"];
const NAMES = {
  0x1b: "ESC",
  0x7f: "DEL",
  0xad: "SHY",
  0x200b: "ZWSP",
  0x200c: "ZWNJ",
  0x200d: "ZWJ",
  0x200e: "LRM",
  0x200f: "RLM",
  0x2028: "LS",
  0x2029: "PS",
  0x202a: "LRE",
  0x202b: "RLE",
  0x202c: "PDF",
  0x202d: "LRO",
  0x202e: "RLO",
  0x2066: "LRI",
  0x2067: "RLI",
  0x2068: "FSI",
  0x2069: "PDI",
  0xfeff: "BOM",
};

const code = (point) => `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
const name = (point) => NAMES[point] ?? C0[point] ?? code(point);

function mark(run) {
  const points = Array.from(run, (character) => character.codePointAt(0));
  const codes = points.slice(0, 8).map(code).join(" ");
  const element = h("span", { class: "mark", title: codes }, points.map(name).join("·"));
  element.units = run.length;
  return element;
}

/** The same as a plain text: for cells and titles. */
export const shown = (text) =>
  text.replace(HIDDEN, (run) => `⟨${Array.from(run, (one) => name(one.codePointAt(0))).join("·")}⟩`);

/** Foreign text as nodes: text nodes, and marks for what would not be seen. */
export function visible(text) {
  const nodes = [];
  let last = 0;
  let marks = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > last) nodes.push(document.createTextNode(text.slice(last, found.index)));
    last = found.index + found[0].length;
    nodes.push(mark(found[0]));
    if (++marks === MOST_MARKS) break;
  }
  if (last < text.length) nodes.push(document.createTextNode(text.slice(last)));
  return nodes;
}

/** Bytes of a wire as nodes: line ends too are shown, each as its escape. */
export function escaped(text) {
  const nodes = [];
  for (const part of text.split(/(\r\n|\n|\r|\t)/)) {
    const shown = { "\r\n": "\\r\\n", "\n": "\\n", "\r": "\\r", "\t": "\\t" }[part];
    if (shown) nodes.push(h("span", { class: "mark soft" }, shown));
    else if (part) nodes.push(...visible(part));
  }
  return nodes;
}

/** A block of foreign text. */
export const foreign = (text, tag = "pre", props = {}) =>
  h(tag, { ...props, class: `foreign ${props.class ?? ""}`.trim() }, visible(text));
