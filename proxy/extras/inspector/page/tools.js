/** The tools of the playground's request: a form and its JSON, kept in step. */

import { button, choice, h } from "./dom.js";
import { jsonArea } from "./json.js";

const TYPES = ["string", "number", "integer", "boolean", "array", "object"];

const tool = (name, description, properties, required = Object.keys(properties)) => ({
  type: "function",
  function: { name, description, parameters: { type: "object", properties, required } },
});
const text = (description) => ({ type: "string", description });

/** Tools to begin with, as agents have them. */
const PALETTE = [
  tool("get_weather", "The weather of a place, now.", { city: text("Name of the city") }),
  tool("search_web", "Searches the web.", { query: text("Words to search for") }),
  tool("calculate", "Calculates an expression.", { expression: text("Such as 3 * (4 + 5)") }),
  tool(
    "read_file",
    "Reads a file.",
    { path: text("Path of the file"), lines: { type: "integer", description: "Number of lines" } },
    ["path"],
  ),
  tool("write_file", "Writes a file.", { path: text("Path of the file"), content: text("The whole content") }),
  tool("run_command", "Runs a shell command.", { command: { type: "array", items: { type: "string" } } }),
];

export const EXAMPLE = PALETTE[0];

const fit = (value) =>
  !Array.isArray(value)
    ? "The tools are an array"
    : value.every((tool) => typeof tool?.function?.name === "string")
      ? null
      : 'Each tool is {"type": "function", "function": {"name": .., "parameters": ..}}';

export class Tools {
  value = [];

  constructor(changed) {
    this.changed = changed;
    this.form = h("div", { class: "toolform" });
    this.palette = h("div", { class: "palette", role: "group", "aria-label": "Ready-made tools", "data-testid": "palette" });
    this.json = jsonArea(
      "Tools as JSON",
      (value) => {
        this.value = value ?? [];
        this.#draw();
        changed();
      },
      { fit, "data-testid": "tools-json" },
    );
    this.element = h(
      "fieldset",
      { class: "tooleditor" },
      h("legend", null, "Tools"),
      this.palette,
      this.form,
      button("Add a tool", () => this.#add(), { "data-testid": "add-tool" }),
      h("details", null, h("summary", null, "as JSON"), this.json),
    );
  }

  put(value) {
    this.value = value;
    this.json.put(value.length ? value : undefined);
    this.#draw();
  }

  #add() {
    const parameters = { type: "object", properties: {}, required: [] };
    this.value.push({
      type: "function",
      function: { name: `tool_${this.value.length + 1}`, description: "", parameters },
    });
    this.#redraw();
    this.form.lastElementChild?.querySelector("input")?.focus();
  }

  #redraw() {
    this.#draw();
    this.#told();
  }

  #told() {
    this.json.put(this.value.length ? this.value : undefined);
    this.changed();
  }

  /** Puts a ready-made tool among the tools, or takes it out. */
  #toggle(one) {
    const index = this.#place(one);
    if (index >= 0) this.value.splice(index, 1);
    else this.value.push(structuredClone(one));
    this.#redraw();
    this.palette.querySelector(`[data-name="${one.function.name}"]`).focus();
  }

  #place = (one) => this.value.findIndex((own) => own.function?.name === one.function.name);

  #draw() {
    const chip = (one) =>
      button(one.function.name, () => this.#toggle(one), {
        class: "mono",
        "data-name": one.function.name,
        "aria-pressed": String(this.#place(one) >= 0),
        title: one.function.description,
      });
    this.palette.replaceChildren(...PALETTE.map(chip));
    this.form.replaceChildren(...this.value.map((tool, index) => this.#tool(tool, index)));
  }

  #text(label, value, put, props = {}) {
    const input = h("input", { "aria-label": label, placeholder: label.toLowerCase(), value: value ?? "", ...props });
    input.addEventListener("input", () => (put(input.value), this.#told()));
    return input;
  }

  #tool(tool, index) {
    const own = tool.function;
    own.parameters ??= { type: "object", properties: {} };
    const schema = own.parameters;
    schema.properties ??= {};
    const rows = Object.keys(schema.properties).map((name) => this.#parameter(schema, name));
    const add = () => {
      let n = 1;
      while (`value_${n}` in schema.properties) n++;
      schema.properties[`value_${n}`] = { type: "string" };
      this.#redraw();
    };
    const remove = () => (this.value.splice(index, 1), this.#redraw());
    const heads = ["Parameter", "Type", "Required", "Description"].map((head) => h("th", { scope: "col" }, head));
    return h(
      "section",
      { class: "tool", "aria-label": `Tool ${index + 1}` },
      h(
        "div",
        { class: "row" },
        this.#text("Name", own.name, (value) => (own.name = value), { class: "mono", "data-testid": "tool-name" }),
        this.#text("Description", own.description, (value) => (own.description = value), { class: "grow" }),
        button("×", remove, { class: "quiet", "aria-label": `Remove tool ${index + 1}` }),
      ),
      rows.length ? h("table", null, h("thead", null, h("tr", null, heads, h("td"))), h("tbody", null, rows)) : null,
      button("Add a parameter", add, { class: "quiet", "data-testid": "add-parameter" }),
    );
  }

  #parameter(schema, first) {
    let name = first;
    const own = schema.properties[name];
    const required = () => new Set(schema.required ?? []);
    const require = (needed) => {
      const names = required();
      needed ? names.add(name) : names.delete(name);
      schema.required = [...names];
    };
    /** Keeps the order of the parameters. */
    const rename = (next) => {
      if (!next || next in schema.properties) return;
      const needed = required().has(name);
      require(false);
      const entries = Object.entries(schema.properties).map(([key, value]) => [key === name ? next : key, value]);
      schema.properties = Object.fromEntries(entries);
      name = next;
      if (needed) require(true);
    };
    const types = TYPES.includes(own.type) ? TYPES : [["", "as in the JSON"], ...TYPES];
    const retype = (value) => value && ((own.type = value), this.#told());
    const tick = h("input", { type: "checkbox", checked: required().has(name), "aria-label": `${name} is required` });
    tick.addEventListener("change", () => (require(tick.checked), this.#told()));
    const remove = () => {
      require(false);
      delete schema.properties[name];
      this.#redraw();
    };
    return h(
      "tr",
      null,
      h("td", null, this.#text("Parameter name", name, rename, { class: "mono" })),
      h("td", null, choice(types, TYPES.includes(own.type) ? own.type : "", retype, { "aria-label": "Type" })),
      h("td", { class: "tick" }, tick),
      h(
        "td",
        null,
        this.#text("Parameter description", own.description, (value) => (own.description = value)),
      ),
      h("td", null, button("×", remove, { class: "quiet", "aria-label": `Remove parameter ${name}` })),
    );
  }
}
