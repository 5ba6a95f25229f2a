"""The task of `tests/clients/task.py` by LangChain, as often as the argument says.

What to do comes as JSON, what was done goes out as JSON, a line for each.
"""

import json
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool


def work(task) -> None:
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
        if task["streamed"]:
            reply = None
            for chunk in bound.stream(messages):
                reply = chunk if reply is None else reply + chunk
        else:
            reply = bound.invoke(messages)
        messages.append(reply)
        said.append(reply.text if isinstance(reply.text, str) else reply.text())
        usage.append(reply.usage_metadata["input_tokens"] > 0 and reply.usage_metadata["output_tokens"] > 0)
        if not reply.tool_calls:
            break
        for call in reply.tool_calls:
            messages.append(ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))
    counted = model.get_num_tokens_from_messages(messages[:1], tools=list(tools.values()))
    print(json.dumps({"calls": calls, "files": files, "said": said, "usage": usage, "counted": counted}))


for each in json.loads(sys.argv[1]):
    work(each)
