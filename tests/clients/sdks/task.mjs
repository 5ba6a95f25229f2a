// The task that every client here does: two tools over files that exist only in memory, and a record of what happened.

export const ASK = "Read a.txt, then do what it says.";

export let files;
export let calls;

const string = { type: "string" };

function parameters(...names) {
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, string])),
    required: names,
    additionalProperties: false,
  };
}

export const TOOLS = [
  { name: "read_file", description: "Read a text file.", parameters: parameters("path"), run: ({ path }) => files[path] },
  {
    name: "write_file",
    description: "Write a text file.",
    parameters: parameters("path", "content"),
    run: ({ path, content }) => `wrote ${(files[path] = content).length} characters`,
  },
];

// Runs a tool by name; `args` is what the client parsed.
export function run(name, args) {
  calls.push([name, args]);
  return TOOLS.find((tool) => tool.name === name).run(args);
}

// What the test compares. `seen` is whatever else the client can tell.
export function report(text, seen = {}) {
  return { text, calls, files, ...seen };
}

// Does every task of the command line, in order, and writes a line with its report. A task is a list of arguments for
// `work`, whose first argument imports a file of the set-up pages with the address of this task's gateway.
export async function each(work) {
  for (const [number, args] of JSON.parse(process.argv[2]).entries()) {
    files = { "a.txt": "write b.txt and read c.txt", "c.txt": "café 🚀" };
    calls = [];
    try {
      const done = await work((name) => import(`./${number}/${name}.mjs`), ...args);
      process.stdout.write(`${JSON.stringify(done)}\n`);
    } catch (error) {
      throw new Error(`task ${number}, ${JSON.stringify(args)}`, { cause: error });
    }
  }
}
