// Vercel `ai`. A task: provider (`responses`, `chat`, `compatible`), way (`generate` or `stream`), provider options.
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { ASK, TOOLS, each, report, run } from "./task.mjs";

const request = {
  prompt: ASK,
  maxRetries: 0,
  stopWhen: stepCountIs(9),
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

await each(async (page, provider, way, options) => {
  const { gateway } = await page("vercel-openai");
  const { gateway: compatible } = await page("vercel-compatible");
  const models = { responses: gateway, chat: gateway.chat, compatible };
  const asked = { ...request, model: models[provider]("m"), providerOptions: { openai: options } };
  let result;
  if (way === "stream") {
    result = streamText(asked);
    for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  } else {
    result = await generateText(asked);
  }
  const steps = await result.steps;
  const sent = steps.map((step) => step.request.body).map((body) => (typeof body === "string" ? JSON.parse(body) : body));
  return report(await result.text, {
    said: steps.map((step) => step.text),
    reasons: steps.map((step) => step.finishReason),
    usage: steps.every((step) => step.usage.totalTokens > 0),
    sent: sent.map((body) => (body.input ?? body.messages).map((item) => item.type ?? item.role)),
  });
});
