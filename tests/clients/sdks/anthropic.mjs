// npm `@anthropic-ai/sdk`. A task: way (`create`, `stream`, `toolRunner`, `toolRunner streamed`).
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { ASK, TOOLS, each, report, run } from "./task.mjs";

const text = (message) => message.content.map((part) => part.text ?? "").join("");

async function turn(client, way, request) {
  if (way === "create") return client.messages.create(request);
  const runner = client.messages.stream(request);
  let deltas = "";
  runner.on("text", (delta) => (deltas += delta));
  const message = await runner.finalMessage();
  if (deltas !== text(message)) throw new Error(`deltas say ${deltas}`);
  return message;
}

async function byHand(client, way, messages) {
  const tools = TOOLS.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters }));
  const { input_tokens } = await client.messages.countTokens({ model: "m", messages, tools });
  if (!input_tokens) throw new Error("nothing counted");
  for (;;) {
    const message = await turn(client, way, { model: "m", max_tokens: 1000, messages, tools });
    if (!message.usage.input_tokens) throw new Error("no usage");
    messages.push({ role: "assistant", content: message.content });
    if (message.stop_reason !== "tool_use") return text(message);
    const called = message.content.filter((part) => part.type === "tool_use");
    const content = called.map(({ id, name, input }) => ({ type: "tool_result", tool_use_id: id, content: run(name, input) }));
    messages.push({ role: "user", content });
  }
}

async function byToolRunner(client, way, messages) {
  const tools = TOOLS.map(({ name, description, parameters }) =>
    betaTool({ name, description, inputSchema: parameters, run: (args) => run(name, args) }),
  );
  const stream = way === "toolRunner streamed";
  const runner = client.beta.messages.toolRunner({ model: "m", max_tokens: 1000, messages, tools, stream });
  if (stream) for await (const part of runner) for await (const event of part) if (!event.type) throw new Error("no type");
  return text(await runner.runUntilDone());
}

await each(async (page, way) => {
  const client = (await page("anthropic-client")).client.withOptions({ maxRetries: 0 });
  return report(await (way.startsWith("toolRunner") ? byToolRunner : byHand)(client, way, [{ role: "user", content: ASK }]));
});
