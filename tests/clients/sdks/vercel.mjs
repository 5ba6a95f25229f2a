// Vercel `ai`. Arguments: base URL, provider (`responses`, `chat`, `compatible`), way (`generate` or `stream`), provider options.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { ASK, TOOLS, report, run } from "./task.mjs";

const [baseURL, provider, way, options] = process.argv.slice(2);
const settings = { baseURL, apiKey: "none" };
const models = {
  responses: () => createOpenAI(settings)("m"),
  chat: () => createOpenAI(settings).chat("m"),
  compatible: () => createOpenAICompatible({ ...settings, name: "gateway", includeUsage: true })("m"),
};
const request = {
  model: models[provider](),
  prompt: ASK,
  maxRetries: 0,
  stopWhen: stepCountIs(9),
  providerOptions: { openai: JSON.parse(options) },
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
