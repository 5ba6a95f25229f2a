// npm `openai`, Chat Completions. Argument: way.
import { client as asShown } from "./openai-client.mjs";
import { ASK, TOOLS, report, run } from "./task.mjs";

const [way] = process.argv.slice(2);
const client = asShown.withOptions({ maxRetries: 0 });
const messages = [{ role: "user", content: ASK }];
const definition = ({ name, description, parameters }) => ({ name, description, parameters });

async function turn(request) {
  if (way === "create") return client.chat.completions.create(request);
  const runner = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  let deltas = "";
  runner.on("content", (delta) => (deltas += delta));
  const completion = await runner.finalChatCompletion();
  if (deltas !== (completion.choices[0].message.content ?? "")) throw new Error(`deltas say ${deltas}`);
  return completion;
}

async function byHand() {
  const tools = TOOLS.map((tool) => ({ type: "function", function: { ...definition(tool), strict: true } }));
  for (;;) {
    const completion = await turn({ model: "m", messages, tools });
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

async function byRunTools(stream) {
  const tools = TOOLS.map((tool) => ({
    type: "function",
    function: { ...definition(tool), parse: JSON.parse, function: (args) => run(tool.name, args) },
  }));
  return client.chat.completions.runTools({ model: "m", messages, tools, stream }).finalContent();
}

report(await (way.startsWith("runTools") ? byRunTools(way === "runTools streamed") : byHand()));
