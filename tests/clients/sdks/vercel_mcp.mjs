// Vercel `ai` with an MCP server that the gateway asks; of its tools all but `add` need an approval, which is given. Arguments: way
// (`generate` or `stream`), the server's URL.
import { generateText, streamText } from "ai";
import { gateway as provider } from "./vercel-openai.mjs";

const [way, serverUrl] = process.argv.slice(2);
const tools = {
  mcp: provider.tools.mcp({ serverLabel: "calc", serverUrl, requireApproval: { never: { toolNames: ["add"] } } }),
};

async function ask(messages) {
  const request = { model: provider.responses("m"), messages, tools, maxRetries: 0, onError: () => {} };
  if (way !== "stream") return generateText(request);
  const result = streamText(request);
  for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  return { content: await result.content, text: await result.text, response: await result.response };
}

const messages = [{ role: "user", content: "hi" }];
const first = await ask(messages);
const asked = first.content.filter((part) => part.type === "tool-approval-request");
const answers = asked.map(({ approvalId }) => ({
  type: "tool-approval-response",
  approvalId,
  approved: true,
  providerExecuted: true,
}));
const second = await ask([...messages, ...first.response.messages, { role: "tool", content: answers }]);
const results = [...first.content, ...second.content].filter((part) => part.type === "tool-result");
console.log(
  JSON.stringify({
    text: second.text,
    asked: asked.map((part) => part.toolCall.toolName),
    results: results.map((part) => part.output.output),
  }),
);
