// Vercel `ai` with an MCP server that the gateway asks; of its tools all but `add` need an approval, which is given. A
// task: way (`generate` or `stream`), the server's URL.
import { generateText, streamText } from "ai";
import { each } from "./task.mjs";

await each(async (page, way, serverUrl) => {
  const { gateway: provider } = await page("vercel-openai");
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
  return {
    text: second.text,
    asked: asked.map((part) => part.toolCall.toolName),
    results: results.map((part) => part.output.output),
  };
});
