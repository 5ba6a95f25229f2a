"""Calls and text reach clients of Chat and Responses as they were written, streamed or not (R1.3). In every format:
`tests/parse/test_formats_corpus.py`, `tests/chain/test_laws.py`."""

from __future__ import annotations

from typing import Any

from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.corpus.cases import Part
from tests.e2e.conftest import USER, Gateway, function, post

RESPONSES = "/v1/responses"


def chat_parts(answer: Any) -> list[Part]:
    """The parts of a Chat message; it has one text, in front of the calls."""
    message = answer["choices"][0]["message"]
    found = [
        *([Part("reasoning", message["reasoning_content"])] if message.get("reasoning_content") else []),
        *([Part("text", message["content"])] if message.get("content") else []),
    ]
    return [*found, *(_call(call["function"], call["id"]) for call in message.get("tool_calls", []))]


def chat_stream_parts(chunks: list[Any]) -> list[Part]:
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in chunks:
        delta = chunk["choices"][0]["delta"]
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key) or ""
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["tool_calls"]):
                message["tool_calls"].append({"id": call["id"], "function": dict(call["function"])})
            else:
                message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return chat_parts({"choices": [{"message": message}]})


def response_parts(response: Any) -> list[Part]:
    """The parts of a response, in the order of Chat."""
    found: dict[str, list[Part]] = {"reasoning": [], "message": [], "function_call": []}
    for item in response["output"]:
        if item["type"] == "function_call":
            found["function_call"].append(_call(item, item["call_id"]))
        else:
            texts = item["content"] if item["type"] == "message" else [*item["summary"], *item.get("content", [])]
            found[item["type"]].append(Part("text", "".join(part["text"] for part in texts)))
    reasoning = "".join(part.text for part in found["reasoning"])
    text = "".join(part.text for part in found["message"])
    return [
        *([Part("reasoning", reasoning)] if reasoning else []),
        *([Part("text", text)] if text else []),
        *found["function_call"],
    ]


def _call(call: Any, id: str) -> Part:
    return Part("call", call["arguments"], call["name"], id)


async def parts_everywhere(server: TestServer, tools: list[Any]) -> list[list[Part]]:
    """The answers of a Chat and of a Responses client, whole and streamed."""
    body = {"messages": USER, "tools": tools}
    asked = {"input": "hi", "tools": [{"type": "function", "strict": False, **tool["function"]} for tool in tools]}
    *chunks, done = (await post(server, {**body, "stream": True})).frames()
    frames = (await post(server, {**asked, "stream": True}, path=RESPONSES)).frames()
    assert done == "[DONE]"
    return [
        chat_parts((await post(server, body)).json()),
        chat_stream_parts(chunks),
        response_parts((await post(server, asked, path=RESPONSES)).json()),
        response_parts([frame for frame in frames if isinstance(frame, dict)][-1]["response"]),
    ]


CALL = '<tool_call>{"name":"f","arguments":{}}</tool_call>'


@every(
    "trim, text, wanted",
    [
        ("edge", f" {CALL}One {CALL} and \n{CALL}\n two\n<think>Hm.</think> three.{CALL} ", "One and\ntwo\nthree."),
        (
            "none",
            f" One {CALL} and \n{CALL}\n two\n<think>Hm.</think> three.\n{CALL} ",
            " One  and \n\n two\n three.\n",
        ),
    ],
)
async def test_words_around_calls_are_never_glued(gateway: Gateway, trim: str, text: str, wanted: str) -> None:
    """R6.6: on Chat all texts are one, on Responses each has an item of its own; together they read the same."""
    server = await gateway(script=[{"text": text, "chunk": 3}], format="hermes", trim=trim)
    for found in await parts_everywhere(server, [function("f")]):
        assert [part.text for part in found if part.kind == "text"] == [wanted]
        assert [part.text for part in found if part.kind == "reasoning"] == ["Hm."]
