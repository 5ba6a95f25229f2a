// npm `openai`, Responses. A task: way (`create`, `stream` or `websocket`), follow-up (`echo` or `previous`).
import { ResponsesWS } from "openai/resources/responses/ws";
import { ASK, TOOLS, each, report, run } from "./task.mjs";

const tools = TOOLS.map(({ name, description, parameters }) => ({
  type: "function", name, description, parameters, strict: true,
}));

// One turn on the connection, which remembers a response that is not stored.
async function socketTurn(socket, request, events) {
  socket.send({ type: "response.create", store: false, ...request });
  for await (const { type, message, error } of socket.stream()) {
    if (type === "error") throw error;
    if (type !== "message") continue;
    events.push(message.type);
    if (message.type === "response.completed") {
      const said = message.response.output.filter((item) => item.type === "message");
      const output_text = said.flatMap((item) => item.content.map((part) => part.text)).join("");
      return { ...message.response, output_text };
    }
  }
}

async function turn(client, way, request, events) {
  if (way === "create") return client.responses.create(request);
  const runner = client.responses.stream(request);
  let deltas = "";
  const given = {};
  runner.on("event", (event) => events.push(event.type));
  runner.on("response.output_text.delta", (event) => (deltas += event.delta));
  runner.on("response.function_call_arguments.delta", (event) => (given[event.item_id] = event.snapshot));
  const response = await runner.finalResponse();
  if (deltas !== response.output_text) throw new Error(`deltas say ${deltas}, the response ${response.output_text}`);
  for (const item of response.output)
    if (item.type === "function_call" && item.arguments !== given[item.id])
      throw new Error(`deltas of ${item.id} say ${given[item.id]}`);
  return response;
}

await each(async (page, way, followUp) => {
  const client = (await page("openai-client")).client.withOptions({ maxRetries: 0 });
  const socket = way === "websocket" ? new ResponsesWS(client) : null;
  const events = [];
  const statuses = [];
  let input = [{ role: "user", content: ASK }];
  let previous_response_id;
  for (;;) {
    const request = { model: "m", input, tools, ...(previous_response_id && { previous_response_id }) };
    const response = await (socket ? socketTurn(socket, request, events) : turn(client, way, request, events));
    statuses.push(response.status);
    const made = response.output.filter((item) => item.type === "function_call");
    if (!made.length) {
      socket?.close();
      return report(response.output_text, { statuses, events });
    }
    const results = made.map((call) => ({
      type: "function_call_output", call_id: call.call_id, output: run(call.name, JSON.parse(call.arguments)),
    }));
    if (followUp === "previous") {
      previous_response_id = response.id;
      input = results;
    } else {
      input = [...input, ...response.output, ...results];
    }
  }
});
