/** The playground: a request with tools, sent as a client would; two answers side by side, each beside its raw text. */

import { check, kept, models, send } from "./api.js";
import { answers, translated, wholeAnswer } from "./answers.js";
import { button, choice, field, fill, h, say, toggles } from "./dom.js";
import { jsonArea } from "./json.js";
import { foreign, shown, visible } from "./marks.js";
import { events } from "./sse.js";
import { EXAMPLE, Tools } from "./tools.js";
import { hue, milliseconds } from "./words.js";

const CHECK_MS = 450;
const ROLES = ["system", "user", "assistant", "tool"];
const RAW_CHARS = 200_000;

/** A model's name: one of those that are served, or one that is typed. */
class ModelChoice {
  constructor(n, changed) {
    this.changed = changed;
    this.select = choice([], "", () => this.#chosen(), { "aria-label": "Model", "data-testid": `model-${n}` });
    this.input = h("input", {
      placeholder: "name of a model",
      "aria-label": "Name of the model",
      "data-testid": `model-name-${n}`,
      on: { input: changed },
    });
    this.element = h("div", { class: "row" }, field("Model", this.select), this.input);
    this.offer([]);
  }

  offer(names) {
    const { value } = this;
    this.names = names;
    fill(this.select, [...names.map((name) => [`=${name}`, shown(name)]), ["", "another name…"]]);
    this.value = value;
  }

  get value() {
    return this.select.value ? this.select.value.slice(1) : this.input.value;
  }

  set value(name) {
    const known = this.names.includes(name);
    this.select.value = known ? `=${name}` : "";
    this.input.value = known ? "" : name;
    this.input.hidden = known;
  }

  #chosen() {
    this.input.hidden = Boolean(this.select.value);
    if (!this.input.hidden) this.input.focus();
    this.changed();
  }
}

/** What lies under an answer: the text that the model wrote, and the bytes that the client got. */
class Beside {
  #got = "";
  #left = 0;

  constructor(n) {
    this.mode = "model";
    this.pre = h("pre", { class: "foreign" });
    const options = [
      ["model", "Model's text"],
      ["client", "Client's bytes"],
    ];
    const turn = (mode) => ((this.mode = mode), this.draw());
    const group = toggles("Raw answer", options, this.mode, turn);
    this.element = h("div", { class: "beside", "data-testid": `beside-${n}`, hidden: true }, group, this.pre);
  }

  clear() {
    [this.#got, this.#left, this.written] = ["", 0, null];
    this.element.hidden = false;
    this.draw();
  }

  add(text) {
    const room = RAW_CHARS - this.#got.length;
    this.#got += text.slice(0, room);
    this.#left += Math.max(0, text.length - room);
  }

  /** Reads what the model wrote, as the gateway recorded it. */
  async read(id, signal) {
    try {
      const { rounds } = await kept(id).view(signal);
      this.written = rounds.map(({ raw }) => raw.text).join("\n\n--- next answer ---\n\n");
    } catch (error) {
      this.written = signal.aborted ? "" : error.message;
    }
    this.draw();
  }

  draw() {
    const model = this.written ?? "It is shown when the answer has ended.";
    const more = this.#left ? `\n… ${this.#left} more characters` : "";
    this.pre.replaceChildren(...visible(this.mode === "model" ? model : this.#got + more));
  }
}

/** One answer: whom to ask, and what comes. */
class Column {
  constructor(page, n) {
    this.page = page;
    this.model = new ModelChoice(n, () => page.changed());
    this.format = choice([["", "as the route says"]], "", () => page.changed(), { "data-testid": `format-${n}` });
    this.who = h("div", { class: "row" }, this.model.element, field("Format", this.format));
    this.state = h("p", { class: "state", role: "status" }, "Not asked yet");
    this.body = h("div", { class: "body" });
    this.beside = new Beside(n);
    this.element = h(
      "article",
      { class: "answer", "aria-label": `Answer ${n}`, "data-testid": `answer-${n}` },
      this.state,
      h("div", { class: "both" }, this.body, this.beside.element),
    );
  }

  async ask(api, body, signal) {
    const began = performance.now();
    const since = () => milliseconds(performance.now() - began);
    this.answer = null;
    this.body.replaceChildren();
    this.beside.clear();
    this.state.replaceChildren("Asked…");
    let id = null;
    try {
      const response = await send(api.path, JSON.stringify(body), { format: this.format.value, signal });
      id = response.headers.get("X-Request-Id");
      this.#link(id, ` · answering after ${since()}`);
      if (body.stream) for await (const answer of answers(api.name, this.#noted(response))) this.#later(answer);
      else this.answer = wholeAnswer(api.name, await this.#whole(response));
      this.#draw();
      const { finish, usage } = this.answer ?? {};
      const tokens = usage ? ` · ${usage.completion_tokens ?? usage.output_tokens ?? "?"} tokens` : "";
      this.state.append(` · ${finish ?? "ended"} after ${since()}${tokens}`);
    } catch (error) {
      this.#draw();
      if (signal.aborted) this.state.append(" · stopped");
      else this.body.append(problem(error));
      if (!signal.aborted) say(this.state, "Refused or broken");
    }
    this.beside.draw();
    if (id) await this.beside.read(id, signal);
  }

  async *#noted(response) {
    for await (const event of events(response)) {
      this.beside.add(`${event.name === "message" ? "" : `event: ${event.name}\n`}data: ${event.data}\n\n`);
      yield event;
    }
  }

  async #whole(response) {
    const body = await response.json();
    this.beside.add(JSON.stringify(body, null, 2));
    return body;
  }

  #link(id, words) {
    const link = id
      ? h("a", { href: `#/exchange/${encodeURIComponent(id)}`, "data-testid": "to-exchange" }, "Show this exchange")
      : "";
    this.state.replaceChildren(link, words);
  }

  /** Draws once a frame, however fast the answer comes. */
  #later(answer) {
    this.answer = answer;
    this.frame ??= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    if (this.beside.mode === "client") this.beside.draw();
    if (!this.answer) return;
    const { text, reasoning, calls, error } = this.answer;
    this.body.replaceChildren(
      ...[
        reasoning && h("details", null, h("summary", null, "reasoning"), foreign(reasoning)),
        text && foreign(text),
        ...calls.map((call, n) =>
          h(
            "div",
            { class: `call ${hue(n + 1)}`, "data-testid": "answer-call" },
            h("b", { class: "foreign" }, visible(call.name)),
            foreign(call.arguments),
          ),
        ),
        error && problem(error),
      ].filter(Boolean),
    );
  }
}

const problem = ({ code, message, param, hint }) =>
  h(
    "p",
    { class: "failure" },
    h("b", null, code ?? "error"),
    " ",
    ...visible(message ?? ""),
    param ? ` (${param})` : "",
    hint ? h("small", null, ` ${hint}`) : null,
  );

export class PlaygroundPage {
  title = "Playground";
  messages = [
    { role: "system", content: "You are a helpful assistant." },
    { role: "user", content: "What is the weather in Paris?" },
  ];

  constructor(setup, tell) {
    Object.assign(this, { setup, tell });
    this.columns = [new Column(this, 1), new Column(this, 2)];
    this.api = choice(
      setup.apis.map(({ name }) => name),
      "chat",
      () => this.#turn(),
      { "data-testid": "api" },
    );
    this.tools = new Tools(() => this.changed());
    this.said = h("div", { class: "said" });
    this.toolChoice = choice(["auto", "required", "none"], "auto", () => this.changed(), {
      "data-testid": "tool-choice",
    });
    this.more = jsonArea("More fields as JSON", (value) => ((this.extra = value ?? {}), this.changed()), {
      rows: 3,
      placeholder: '{"temperature": 0}',
      fit: (value) =>
        value && typeof value === "object" && !Array.isArray(value) ? null : "More fields are an object",
    });
    this.body = jsonArea("The request as JSON", (value) => ((this.whole = value ?? {}), this.changed()), {
      rows: 26,
      "data-testid": "body",
    });
    this.judgement = h("p", { class: "check", role: "status", "data-testid": "check" });
    this.go = button("Send", () => this.send(), { class: "main", "data-testid": "send", title: "Ctrl+Enter" });
    this.stopper = button("Stop", () => this.stop?.abort(), { disabled: true, "data-testid": "stop" });
    this.stream = h("input", { type: "checkbox", checked: true, "data-testid": "stream" });
    this.compare = h("input", { type: "checkbox", "data-testid": "compare", on: { change: () => this.#two() } });
    this.further = button("Go on with this answer", () => this.#goOn(), { hidden: true, "data-testid": "go-on" });
    this.element = this.#layout();
    const { routes, formats } = setup;
    const named = routes.flatMap(({ model, aliases = [] }) => [model, ...aliases]).filter((name) => !/[*?]/.test(name));
    this.columns.forEach(({ model, format }, n) => {
      fill(format, [["", "as the route says"], ...formats]);
      model.offer(named);
      model.value = named[n] ?? named[0] ?? "";
    });
    this.#serve(named);
    this.tools.put([structuredClone(EXAMPLE)]);
    this.#draw();
    this.#two();
    this.#turn();
  }

  #layout() {
    this.form = h(
      "div",
      null,
      h(
        "fieldset",
        null,
        h("legend", null, "Messages"),
        this.said,
        button("Add a message", () => this.#add(), { "data-testid": "add-message" }),
      ),
      this.tools.element,
      h("div", { class: "row" }, field("Tool choice", this.toolChoice)),
      h("details", null, h("summary", null, "More fields"), this.more),
    );
    return h(
      "section",
      { class: "playground", "aria-label": "Playground" },
      h(
        "form",
        { class: "ask", on: { submit: (event) => event.preventDefault() } },
        h(
          "div",
          { class: "row" },
          field("API", this.api),
          this.columns[0].who,
          field("Stream", this.stream, { class: "field tick" }),
          field("Two answers", this.compare, { class: "field tick" }),
        ),
        this.columns[1].who,
        this.form,
        this.body,
        h("div", { class: "row send" }, this.go, this.stopper, this.judgement),
      ),
      h(
        "div",
        { class: "answers" },
        this.columns.map(({ element }) => element),
        this.further,
      ),
    );
  }

  /** Offers the models that the gateway serves. */
  async #serve(named) {
    try {
      const served = [...new Set([...(await models()), ...named])];
      for (const { model } of this.columns) {
        model.offer(served);
        if (!model.value) model.value = served[0] ?? "";
      }
      this.changed();
    } catch {
      // The names of the configuration stay.
    }
  }

  show() {
    this.changed();
  }

  hide() {}

  /** A request to begin with, as a client sent it. */
  load(api, body) {
    if (!this.setup.apis.some(({ name }) => name === api)) return this.tell(`The playground does not speak ${api}`);
    this.api.value = api;
    if (api === "chat") {
      const { model, messages = [], tools = [], tool_choice: wanted, stream, stream_options: options, ...extra } = body;
      this.columns[0].model.value = model ?? "";
      this.messages = messages;
      this.tools.put(tools);
      this.extra = wanted && typeof wanted === "object" ? { ...extra, tool_choice: wanted } : extra;
      if (typeof wanted === "string") this.toolChoice.value = wanted;
      this.more.put(Object.keys(this.extra).length ? this.extra : undefined);
      this.#draw();
    } else {
      this.whole = body;
      this.columns[0].model.value = body.model ?? "";
    }
    this.#turn(body);
  }

  get #chat() {
    return this.api.value === "chat";
  }

  #turn(body = null) {
    this.form.hidden = !this.#chat;
    this.body.hidden = this.#chat;
    if (!this.#chat && !body)
      this.whole = translated(this.api.value, { ...this.#chatBody(), model: this.columns[0].model.value });
    if (!this.#chat) this.body.put(this.whole);
    this.changed();
  }

  #two() {
    const { checked } = this.compare;
    this.columns[1].who.hidden = this.columns[1].element.hidden = !checked;
    this.element.classList.toggle("two", checked);
  }

  #chatBody() {
    const tools = this.tools.value;
    const offered = tools.length ? { tools, tool_choice: this.toolChoice.value } : {};
    const counts = this.stream.checked ? { stream_options: { include_usage: true } } : {};
    return { messages: this.messages, ...offered, ...counts, ...this.extra };
  }

  #request(column) {
    const body = this.#chat ? this.#chatBody() : this.whole;
    return { ...body, model: column.model.value, stream: this.stream.checked };
  }

  /** Something was typed: asks (not at once) whether it would be taken. */
  changed() {
    clearTimeout(this.timer);
    this.checking?.abort();
    this.timer = setTimeout(() => this.#check(), CHECK_MS);
  }

  async #check() {
    this.checking = new AbortController();
    try {
      const { ok, error } = await check(this.api.value, this.#request(this.columns[0]), this.checking.signal);
      this.judgement.dataset.ok = ok;
      this.judgement.replaceChildren(ok ? "This would be accepted" : problem(error));
    } catch (error) {
      if (error.name !== "AbortError") this.judgement.replaceChildren(problem(error));
    }
  }

  async send() {
    const typed = this.#chat ? [this.tools.json, this.more] : [this.body];
    if (this.stop || !typed.every((area) => area.check())) return;
    const api = this.setup.apis.find(({ name }) => name === this.api.value);
    this.stop = new AbortController();
    this.go.disabled = true;
    this.stopper.disabled = false;
    const columns = this.compare.checked ? this.columns : this.columns.slice(0, 1);
    await Promise.all(columns.map((column) => column.ask(api, this.#request(column), this.stop.signal)));
    this.further.hidden = !(this.#chat && this.columns[0].answer);
    this.tell(columns.length > 1 ? "Both answers have ended" : "The answer has ended", { quiet: true });
    this.stop = null;
    this.go.disabled = false;
    this.stopper.disabled = true;
  }

  #add(message = { role: "user", content: "" }) {
    this.messages.push(message);
    this.#draw();
    this.changed();
    this.said.lastElementChild.querySelector("textarea").focus();
  }

  /** The first answer as messages, with a place for each result. */
  #goOn() {
    const { answer } = this.columns[0];
    this.further.hidden = true;
    const calls = answer.calls.map(({ id, name, arguments: args }) => ({
      id,
      type: "function",
      function: { name, arguments: args },
    }));
    this.messages.push({ role: "assistant", content: answer.text, ...(calls.length ? { tool_calls: calls } : {}) });
    if (!calls.length) return this.#add();
    for (const { id } of calls) this.#add({ role: "tool", tool_call_id: id, content: "" });
  }

  #draw() {
    this.said.replaceChildren(...this.messages.map((message, index) => this.#message(message, index)));
  }

  #message(message, index) {
    const text = typeof message.content === "string" || message.content === null || message.content === undefined;
    const area = h("textarea", {
      rows: Math.min(8, Math.max(1, String(message.content ?? "").split("\n").length)),
      "aria-label": `Message ${index + 1}`,
      value: text ? (message.content ?? "") : JSON.stringify(message.content),
      readonly: !text,
      on: { input: () => ((message.content = area.value), this.changed()) },
    });
    const role = (value) => ((message.role = value), this.#draw(), this.changed());
    const ident = h("input", {
      class: "mono",
      value: message.tool_call_id ?? "",
      placeholder: "tool_call_id",
      "aria-label": "Id of the call",
    });
    ident.addEventListener("input", () => ((message.tool_call_id = ident.value), this.changed()));
    const remove = () => (this.messages.splice(index, 1), this.#draw(), this.changed());
    const roles = ROLES.includes(message.role) ? ROLES : [message.role, ...ROLES];
    return h(
      "div",
      { class: "message row" },
      choice(roles, message.role, role, { "aria-label": `Role of message ${index + 1}` }),
      h(
        "div",
        { class: "grow" },
        area,
        message.role === "tool" ? ident : null,
        message.tool_calls
          ? foreign(JSON.stringify(message.tool_calls.map((call) => call.function ?? call)), "code")
          : null,
      ),
      button("×", remove, { class: "quiet", "aria-label": `Remove message ${index + 1}` }),
    );
  }

  key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.send();
    else if (event.key === "Escape") location.hash = "#/";
    else return false;
    return true;
  }
}
