// npm `openai`, Chat Completions. A task: way.
import { ASK, TOOLS, each, report, run } from "./task.mjs";

const definition = ({ name, description, parameters }) => ({ name, description, parameters });

async function turn(client, way, request) {
  if (way === "create") return client.chat.completions.create(request);
  const runner = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  let deltas = "";
  runner.on("content", (delta) => (deltas += delta));
  const completion = await runner.finalChatCompletion();
  if (deltas !== (completion.choices[0].message.content ?? "")) throw new Error(`deltas say ${deltas}`);
  return completion;
}

async function byHand(client, way, messages) {
  const tools = TOOLS.map((tool) => ({ type: "function", function: { ...definition(tool), strict: true } }));
  for (;;) {
    const completion = await turn(client, way, { model: "m", messages, tools });
    const { message, finish_reason } = completion.choices[0];
    if (!completion.usage.total_tokens) throw new Error("no usage");
    messages.push(message);
    if (finish_reason !== "tool_calls") return message.content;
    for (const call of message.tool_calls) {
      const content = run(call.function.name, JSON.parse(call.function.arguments));
      messages.push({ role: "tool", tool_call_id: call.id, content });
    }
  }
}

async function byRunTools(client, way, messages) {
  const tools = TOOLS.map((tool) => ({
    type: "function",
    function: { ...definition(tool), parse: JSON.parse, function: (args) => run(tool.name, args) },
  }));
  const stream = way === "runTools streamed";
  return client.chat.completions.runTools({ model: "m", messages, tools, stream }).finalContent();
}

await each(async (page, way) => {
  const client = (await page("openai-client")).client.withOptions({ maxRetries: 0 });
  return report(await (way.startsWith("runTools") ? byRunTools : byHand)(client, way, [{ role: "user", content: ASK }]));
});
