// Vercel `ai` with tools that its providers define and that are run here. Arguments: API (`openai` or `anthropic`), way
// (`generate` or `stream`), provider options.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText } from "ai";

const [api, way, options] = process.argv.slice(2);
const baseURL = process.env.GATEWAY;
globalThis.AI_SDK_LOG_WARNINGS = false; // they are written to standard output
const openai = createOpenAI({ baseURL, apiKey: "none" });
const anthropic = createAnthropic({ baseURL, apiKey: "none" });
const calls = [];
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
  openai: () => ({
    shell: openai.tools.shell(gives("shell", { output: [{ stdout: "of the shell", stderr: "", outcome: exit }] })),
    local_shell: openai.tools.localShell(gives("local_shell", { output: "of the local shell" })),
    apply_patch: openai.tools.applyPatch(gives("apply_patch", { status: "completed", output: "of the patch" })),
  }),
  anthropic: () => ({
    bash: anthropic.tools.bash_20250124(gives("bash", "of the bash")),
    str_replace_based_edit_tool: anthropic.tools.textEditor_20250728(gives("editor", "of the editor")),
    memory: anthropic.tools.memory_20250818(gives("memory", "of the memory")),
    computer: anthropic.tools.computer_20251124({ ...screen, ...gives("computer", PNG), ...picture }),
  }),
};

const request = {
  model: api === "openai" ? openai.responses("m") : anthropic("m"),
  prompt: "Do it.",
  maxRetries: 0,
  stopWhen: stepCountIs(9),
  providerOptions: JSON.parse(options),
  onError: () => {}, // it is thrown below as well
  tools: TOOLS[api](),
};
let result;
if (way === "stream") {
  result = streamText(request);
  for await (const part of result.fullStream) if (part.type === "error") throw part.error;
} else {
  result = await generateText(request);
}
console.log(JSON.stringify({ text: await result.text, calls }));
