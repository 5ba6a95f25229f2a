// Vercel `ai`. Arguments: provider (`responses`, `chat`, `compatible`), way (`generate` or `stream`), provider options.
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { gateway as compatible } from "./vercel-compatible.mjs";
import { gateway } from "./vercel-openai.mjs";
import { ASK, TOOLS, report, run } from "./task.mjs";

const [provider, way, options] = process.argv.slice(2);
const models = { responses: gateway, chat: gateway.chat, compatible };
const request = {
  model: models[provider]("m"),
  prompt: ASK,
  maxRetries: 0,
  stopWhen: stepCountIs(9),
  providerOptions: { openai: JSON.parse(options) },
  include: { requestBody: true },
  onError: () => {}, // it is thrown below as well
  tools: Object.fromEntries(
    TOOLS.map(({ name, description, parameters }) => [
      name,
      tool({
        description,
        inputSchema: z.object(Object.fromEntries(parameters.required.map((key) => [key, z.string()]))),
        execute: (args) => run(name, args),
      }),
    ]),
  ),
};

let result;
if (way === "stream") {
  result = streamText(request);
  for await (const part of result.fullStream) if (part.type === "error") throw part.error;
} else {
  result = await generateText(request);
}
const steps = await result.steps;
const sent = steps.map((step) => step.request.body).map((body) => (typeof body === "string" ? JSON.parse(body) : body));
report(await result.text, {
  said: steps.map((step) => step.text),
  reasons: steps.map((step) => step.finishReason),
  usage: steps.every((step) => step.usage.totalTokens > 0),
  sent: sent.map((body) => (body.input ?? body.messages).map((item) => item.type ?? item.role)),
});
