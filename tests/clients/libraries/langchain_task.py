"""LangChain, as often as the argument says: the task of `tests/clients/task.py`, or tools that its providers define and
that are run here.

What to do comes as JSON, what was done goes out as JSON, a line for each.
"""

import json
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answer(bound, messages, streamed):
    if not streamed:
        return bound.invoke(messages)
    reply = None
    for chunk in bound.stream(messages):
        reply = chunk if reply is None else reply + chunk
    return reply


def work(task):
    files = dict(task["files"])
    calls = []

    @tool
    def read_file(path: str) -> str:
        """Read a text file."""
        calls.append(["read_file", {"path": path}])
        return files[path]

    @tool
    def write_file(path: str, content: str) -> str:
        """Write a text file."""
        calls.append(["write_file", {"path": path, "content": content}])
        files[path] = content
        return "written"

    tools = {"read_file": read_file, "write_file": write_file}
    model = ChatAnthropic(model="some-model", base_url=task["url"], api_key="k", max_tokens=500)
    bound = model.bind_tools(list(tools.values()))
    messages = [HumanMessage(task["ask"])]
    said = []
    usage = []
    while True:
        reply = answer(bound, messages, task["streamed"])
        messages.append(reply)
        said.append(reply.text)
        usage.append(reply.usage_metadata["input_tokens"] > 0 and reply.usage_metadata["output_tokens"] > 0)
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            messages.append(ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))
    counted = model.get_num_tokens_from_messages(messages[:1], tools=list(tools.values()))
    return {"calls": calls, "files": files, "said": said, "usage": usage, "counted": counted}


def tools_of_anthropic(task):
    model = ChatAnthropic(model="some-model", base_url=task["url"], api_key="k", max_tokens=500)
    bound = model.bind_tools(
        [
            {"type": "bash_20250124", "name": "bash"},
            {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
            {"type": "memory_20250818", "name": "memory"},
        ]
    )
    messages = [HumanMessage("Do it.")]
    calls = []
    while True:
        messages.append(answer(bound, messages, task["streamed"]))
        if not messages[-1].tool_calls:
            return {"calls": calls, "text": messages[-1].text}
        for call in messages[-1].tool_calls:
            calls.append([call["name"], call["args"]])
            messages.append(ToolMessage(f"of the {call['name']}", tool_call_id=call["id"]))


def tools_of_openai(task):
    model = ChatOpenAI(
        model="some-model",
        base_url=task["url"] + "/v1",
        api_key="k",
        use_responses_api=True,
        output_version="responses/v1",
    )
    bound = model.bind_tools([{"type": "apply_patch"}, {"type": "computer"}])
    messages = [HumanMessage("Do it.")]
    calls = []
    while True:
        messages.append(answer(bound, messages, task["streamed"]))
        kinds = ("apply_patch_call", "computer_call")
        made = [block for block in messages[-1].content if isinstance(block, dict) and block.get("type") in kinds]
        if not made:
            return {"calls": calls, "text": messages[-1].text}
        for call in made:
            calls.append([call["type"], call.get("operation") or call["actions"]])
            if call["type"] == "computer_call":
                shown = [{"type": "input_image", "image_url": "data:image/png;base64," + PNG}]
                kind = {"type": "computer_call_output"}
                messages.append(ToolMessage(shown, tool_call_id=call["call_id"], additional_kwargs=kind))
            else:
                result = {"type": "apply_patch_call_output", "status": "completed", "output": "of the apply_patch"}
                messages.append(HumanMessage([{**result, "call_id": call["call_id"]}]))


DO = {"task": work, "tools of anthropic": tools_of_anthropic, "tools of openai": tools_of_openai}

for each in json.loads(sys.argv[1]):
    print(json.dumps(DO[each["do"]](each)))
