/** What an answer of each API says: text, reasoning, calls, usage, error. A stream is an answer that grows. */

const fresh = () => ({ text: "", reasoning: "", calls: [], usage: null, finish: null, error: null });

/** What one event of a stream adds to an answer. */
const READERS = {
  /** A whole body too: its message has the fields of a delta. */
  chat(answer, data) {
    const choice = data.choices?.[0];
    const delta = choice?.delta ?? choice?.message;
    if (delta?.content) answer.text += delta.content;
    answer.reasoning += delta?.reasoning_content ?? delta?.reasoning ?? "";
    for (const part of delta?.tool_calls ?? []) {
      const call = (answer.calls[part.index ?? answer.calls.length] ??= { id: part.id, name: "", arguments: "" });
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    answer.finish = choice?.finish_reason ?? answer.finish;
    answer.usage = data.usage ?? answer.usage;
  },
  responses(answer, data) {
    const { item } = data;
    if (data.type === "response.output_text.delta") answer.text += data.delta;
    else if (/^response\.reasoning.*delta$/.test(data.type)) answer.reasoning += data.delta;
    else if (data.type === "response.output_item.added" && item?.type?.endsWith("_call"))
      answer.calls.push({ id: item.id, name: item.name ?? item.type, arguments: item.arguments ?? item.input ?? "" });
    else if (/_call_(arguments|input)\.delta$/.test(data.type)) {
      const call = answer.calls.find(({ id }) => id === data.item_id) ?? answer.calls.at(-1);
      if (call) call.arguments += data.delta;
    } else if (/^response\.(completed|incomplete|failed)$/.test(data.type)) {
      const { status: finish, usage, error = null } = data.response;
      Object.assign(answer, { finish, usage, error });
    }
  },
  messages(answer, data) {
    const { delta, content_block: block } = data;
    if (data.type === "content_block_start" && block.type.endsWith("tool_use"))
      answer.calls.push({ id: block.id, name: block.name, arguments: "" });
    if (delta?.type === "text_delta") answer.text += delta.text;
    if (delta?.type === "thinking_delta") answer.reasoning += delta.thinking;
    if (delta?.type === "input_json_delta" && answer.calls.length) answer.calls.at(-1).arguments += delta.partial_json;
    answer.finish = delta?.stop_reason ?? answer.finish;
    answer.usage = data.usage ?? answer.usage;
  },
};

/** Reads events of an API's stream; gives the answer after each. */
export async function* answers(api, events) {
  const answer = fresh();
  const take = READERS[api] ?? READERS.chat;
  for await (const { data } of events) {
    if (!data || data === "[DONE]") continue;
    const parsed = JSON.parse(data);
    if (parsed.error) answer.error = parsed.error;
    else take(answer, parsed);
    yield answer;
  }
}

const WHOLE = {
  responses(answer, { output = [], status, usage, error }) {
    for (const item of output) {
      const text = (item.content ?? []).map((part) => part.text ?? "").join("");
      if (item.type === "message") answer.text += text;
      else if (item.type === "reasoning") answer.reasoning += text;
      else if (item.type?.endsWith("_call"))
        answer.calls.push({ id: item.id, name: item.name ?? item.type, arguments: item.arguments ?? item.input ?? "" });
    }
    Object.assign(answer, { finish: status, usage, error: error ?? null });
  },
  messages(answer, { content = [], stop_reason: finish, usage }) {
    for (const block of content) {
      if (block.type === "text") answer.text += block.text;
      else if (block.type === "thinking") answer.reasoning += block.thinking;
      else if (block.type?.endsWith("tool_use"))
        answer.calls.push({ id: block.id, name: block.name, arguments: JSON.stringify(block.input) });
    }
    Object.assign(answer, { finish, usage });
  },
};

/** The answer in a whole body of an API. */
export function wholeAnswer(api, body) {
  const answer = fresh();
  (WHOLE[api] ?? READERS.chat)(answer, body);
  return answer;
}

/** A chat request in the words of another API: what was said in plain words, and the tools. */
export function translated(api, { messages, tools = [], model }) {
  const said = messages
    .filter(({ role, content }) => role !== "tool" && content)
    .map(({ role, content }) => ({ role, content }));
  const functions = tools.map((tool) => tool.function);
  if (api === "responses")
    return { model, input: said, tools: functions.map((one) => ({ type: "function", ...one })) };
  const system = said.filter(({ role }) => role === "system").map(({ content }) => content);
  return {
    model,
    max_tokens: 1024,
    ...(system.length ? { system: system.join("\n") } : {}),
    messages: said.filter(({ role }) => role !== "system"),
    tools: functions.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters })),
  };
}
