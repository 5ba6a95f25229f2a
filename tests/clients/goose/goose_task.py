"""The task of `tests/clients/task.py` by what Goose speaks with model servers, as often as the argument says.

What to do comes as JSON, what was done goes out as JSON, a line for each. `setup` are the lines of the set-up page,
which make a provider for each API.
"""

import asyncio
import json
import os
import sys

from goose import MessageContent, MessageRole, ProviderMessage, ProviderModelConfig, ProviderTool, StreamChunk

TEXT = {"type": "string"}
READ = {"type": "object", "properties": {"path": TEXT}, "required": ["path"]}
WRITE = {"type": "object", "properties": {"path": TEXT, "content": TEXT}, "required": ["path", "content"]}
TOOLS = [
    ProviderTool(name="read_file", description="Read a text file.", input_schema_json=json.dumps(READ)),
    ProviderTool(name="write_file", description="Write a text file.", input_schema_json=json.dumps(WRITE)),
]
MODEL = ProviderModelConfig(model_name="my-model", context_limit=32000, max_tokens=500)


async def ask(provider, messages, streamed):
    """The answer: its text, its calls as (id, name, arguments), and whether it has its usage."""
    if not streamed:
        done = await provider.complete(MODEL, "Use the tools.", messages, TOOLS)
        text = "".join(part.text for part in done.content if part.is_TEXT())
        calls = [(part.id, part.name, part.arguments_json) for part in done.content if part.is_TOOL_REQUEST()]
        return text, calls, done.usage.input_tokens > 0
    text, calls, usage = "", [], None
    stream = await provider.stream(MODEL, "Use the tools.", messages, TOOLS)
    while (chunk := await stream.next_chunk()) is not None:
        if chunk.is_ERROR_CHUNK():
            raise SystemExit(str(chunk))
        if chunk.is_TEXT_CHUNK():
            text += chunk.text
        elif chunk.is_TOOL_CHUNK():
            calls.append((chunk.id, chunk.name, chunk.arguments_json))
        elif isinstance(chunk, StreamChunk.END_CHUNK):
            usage = chunk.usage
    return text, calls, usage.input_tokens > 0


async def work(task) -> None:
    made = {}
    exec(task["setup"], made)
    for api in ("chat", "messages"):
        files, calls, said, usage = dict(task["files"]), [], [], []
        messages = [ProviderMessage(role=MessageRole.USER, content=[MessageContent.TEXT(task["ask"])])]
        while True:
            text, made_calls, counted = await ask(made[api], messages, task["streamed"])
            said.append(text)
            usage.append(counted)
            if not made_calls:
                break
            parts = [MessageContent.TOOL_REQUEST(*call) for call in made_calls]
            messages.append(ProviderMessage(role=MessageRole.ASSISTANT, content=[MessageContent.TEXT(text), *parts]))
            results = []
            for ident, name, arguments in made_calls:
                given = json.loads(arguments)
                calls.append([name, given])
                if name == "read_file":
                    result = files[given["path"]]
                else:
                    files[given["path"]] = given["content"]
                    result = "written"
                content = json.dumps([{"type": "text", "text": result}])
                results.append(MessageContent.TOOL_RESULT(id=ident, success=True, content_json=content))
            messages.append(ProviderMessage(role=MessageRole.TOOL, content=results))
        print(json.dumps({"calls": calls, "files": files, "said": said, "usage": usage}))


for each in json.loads(sys.argv[1]):
    asyncio.run(work(each))
sys.stdout.flush()
os._exit(0)  # at its usual end the interpreter meets threads of Goose, and is at times aborted
