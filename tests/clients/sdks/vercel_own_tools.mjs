// Vercel `ai` with tools that its providers define and that are run here. A task: the gateway, API (`openai` or
// `anthropic`), way (`generate` or `stream`), provider options.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText } from "ai";
import { calls, each } from "./task.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false; // they are written to standard output
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

// A tool's `execute`, which notes the call and gives back `output`.
const gives = (name, output) => ({
  execute: async (input) => {
    calls.push([name, input]);
    return output;
  },
});
const exit = { type: "exit", exitCode: 0 };
const screen = { displayWidthPx: 800, displayHeightPx: 600 };
const picture = { toModelOutput: () => ({ type: "content", value: [{ type: "image-data", data: PNG, mediaType: "image/png" }] }) };
const TOOLS = {
  openai: (openai) => ({
    shell: openai.tools.shell(gives("shell", { output: [{ stdout: "of the shell", stderr: "", outcome: exit }] })),
    local_shell: openai.tools.localShell(gives("local_shell", { output: "of the local shell" })),
    apply_patch: openai.tools.applyPatch(gives("apply_patch", { status: "completed", output: "of the patch" })),
  }),
  anthropic: (anthropic) => ({
    bash: anthropic.tools.bash_20250124(gives("bash", "of the bash")),
    str_replace_based_edit_tool: anthropic.tools.textEditor_20250728(gives("editor", "of the editor")),
    memory: anthropic.tools.memory_20250818(gives("memory", "of the memory")),
    computer: anthropic.tools.computer_20251124({ ...screen, ...gives("computer", PNG), ...picture }),
  }),
};

await each(async (page, baseURL, api, way, providerOptions) => {
  const provider = (api === "openai" ? createOpenAI : createAnthropic)({ baseURL, apiKey: "none" });
  const request = {
    model: api === "openai" ? provider.responses("m") : provider("m"),
    prompt: "Do it.",
    maxRetries: 0,
    stopWhen: stepCountIs(9),
    providerOptions,
    onError: () => {}, // it is thrown below as well
    tools: TOOLS[api](provider),
  };
  let result;
  if (way === "stream") {
    result = streamText(request);
    for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  } else {
    result = await generateText(request);
  }
  return { text: await result.text, calls };
});
