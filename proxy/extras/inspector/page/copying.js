/** A request as a command line and as a program, the clipboard, and files to keep. */

import { address } from "./api.js";
import { h } from "./dom.js";

const UNSEEN = /[\u007f-\u00a0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
/** How the SDK is called, and what it is given by name; the rest goes along in `extra_body`. */
const OPENAI = {
  chat: ["client.chat.completions.create", "model messages tools tool_choice temperature max_tokens stream"],
  responses: [
    "client.responses.create",
    "model input instructions tools tool_choice temperature max_output_tokens stream",
  ],
};

/** Nothing in a copied text may hide, reorder or command. */
const plain = (json) => json.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
const compact = (body) => plain(JSON.stringify(body));

export function curl(path, body, keys) {
  const quoted = compact(body).replaceAll("'", "'\\''");
  const lines = [
    `curl -sS${body.stream ? "N" : ""} '${address(path)}'`,
    "-H 'Content-Type: application/json'",
    ...(keys ? ['-H "Authorization: Bearer $TOOLWIRE_KEY"'] : []),
    `-d '${quoted}'`,
  ];
  return `${lines.join(" \\\n  ")}\n`;
}

/** A JSON value as a Python expression. */
function literal(value, indent = "    ") {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return plain(JSON.stringify(value));
  const inner = `${indent}    `;
  const items = Array.isArray(value)
    ? value.map((item) => literal(item, inner))
    : Object.entries(value).map(([name, item]) => `${plain(JSON.stringify(name))}: ${literal(item, inner)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!items.length) return open + close;
  const line = `${open}${items.join(", ")}${close}`;
  if (line.length < 90 && !line.includes("\n")) return line;
  return `${open}\n${items.map((item) => `${inner}${item},\n`).join("")}${indent}${close}`;
}

export function python(api, path, body, keys) {
  const key = keys ? 'os.environ["TOOLWIRE_KEY"]' : '"none"';
  const needed = keys ? "import os\n\n" : "";
  return OPENAI[api] ? openai(api, path, body, key, needed) : httpx(path, body, keys ? key : "", needed);
}

function openai(api, path, body, key, needed) {
  const [create, names] = OPENAI[api];
  const known = new Set(names.split(" "));
  const own = Object.entries(body).filter(([name]) => known.has(name));
  const extra = Object.fromEntries(Object.entries(body).filter(([name]) => !known.has(name)));
  const lines = own.map(([name, value]) => `    ${name}=${literal(value)},\n`);
  if (Object.keys(extra).length) lines.push(`    extra_body=${literal(extra)},\n`);
  const base = String(address(path)).replace(/\/(chat\/completions|responses)$/, "");
  const show = body.stream ? "for event in answer:\n    print(event)\n" : "print(answer.model_dump_json(indent=2))\n";
  const client = `${needed}from openai import OpenAI\n\nclient = OpenAI(base_url="${base}", api_key=${key})\n`;
  return `${client}answer = ${create}(\n${lines.join("")})\n${show}`;
}

function httpx(path, body, key, needed) {
  const headers = key ? `headers = {"Authorization": f"Bearer {${key.replaceAll('"', "'")}}"}\n` : "headers = {}\n";
  const request = `"POST", "${address(path)}", json=body, headers=headers, timeout=600`;
  const show = `with httpx.stream(${request}) as answer:\n    for line in answer.iter_lines():\n        print(line)\n`;
  return `${needed}import httpx\n\nbody = ${literal(body, "")}\n${headers}${show}`;
}

/** Copies a text; where the browser does not let (plain HTTP), it is shown to be copied by hand. */
export async function copy(text, tell) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied");
  } catch {
    const area = h("textarea", { readonly: true, rows: 16, "aria-label": "Text to copy", value: text });
    const close = h("form", { method: "dialog" }, h("button", null, "Close"));
    const dialog = h("dialog", { on: { close: () => dialog.remove() } }, h("h2", null, "Copy this"), area, close);
    document.body.append(dialog);
    dialog.showModal();
    area.select();
  }
}

export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
