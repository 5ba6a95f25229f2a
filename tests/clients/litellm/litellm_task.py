"""The task of `tests/clients/task.py` by LiteLLM, as often as the argument says.

What to do comes as JSON, what was done goes out as JSON, a line for each.
"""

import json
import sys

import litellm

text = {"type": "string"}
tools = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": parameters}}
    for name, parameters in (
        ("read_file", {"type": "object", "properties": {"path": text}, "required": ["path"]}),
        ("write_file", {"type": "object", "properties": {"path": text, "content": text}}),
    )
]


def work(task) -> None:
    files = dict(task["files"])
    calls = []

    def run(name: str, arguments: dict[str, str]) -> str:
        calls.append([name, arguments])
        if name == "read_file":
            return files[arguments["path"]]
        files[arguments["path"]] = arguments["content"]
        return "written"

    messages = [{"role": "user", "content": task["ask"]}]
    said = []
    usage = []
    while True:
        asked = {"model": "anthropic/some-model", "api_base": task["url"], "api_key": "k", "tools": tools}
        if task["streamed"]:
            wish = {"include_usage": True}
            chunks = list(litellm.completion(messages=messages, stream=True, stream_options=wish, **asked))
            reply = litellm.stream_chunk_builder(chunks, messages=messages)
        else:
            reply = litellm.completion(messages=messages, **asked)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        said.append(message.content)
        usage.append(reply.usage.prompt_tokens > 0 and reply.usage.completion_tokens > 0)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            result = run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print(json.dumps({"calls": calls, "files": files, "said": said, "usage": usage}))


for each in json.loads(sys.argv[1]):
    work(each)
