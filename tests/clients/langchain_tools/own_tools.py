"""LangChain with tools that its providers define and that are run here, as often as the argument says.

What to do comes as JSON, what was called goes out as JSON, a line for each.
"""

import json
import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def answer(bound, messages, streamed):
    if not streamed:
        return bound.invoke(messages)
    reply = None
    for chunk in bound.stream(messages):
        reply = chunk if reply is None else reply + chunk
    return reply


def of_anthropic(task):
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
            return calls, messages[-1].text
        for call in messages[-1].tool_calls:
            calls.append([call["name"], call["args"]])
            messages.append(ToolMessage(f"of the {call['name']}", tool_call_id=call["id"]))


def of_openai(task):
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
            return calls, messages[-1].text
        for call in made:
            calls.append([call["type"], call.get("operation") or call["actions"]])
            if call["type"] == "computer_call":
                shown = [{"type": "input_image", "image_url": "data:image/png;base64," + PNG}]
                kind = {"type": "computer_call_output"}
                messages.append(ToolMessage(shown, tool_call_id=call["call_id"], additional_kwargs=kind))
            else:
                result = {"type": "apply_patch_call_output", "status": "completed", "output": "of the apply_patch"}
                messages.append(HumanMessage([{**result, "call_id": call["call_id"]}]))


for each in json.loads(sys.argv[1]):
    made, said = (of_openai if each["api"] == "openai" else of_anthropic)(each)
    print(json.dumps({"calls": made, "text": said}))
