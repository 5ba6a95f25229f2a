"""Calls and text in every format reach clients of Chat and Responses as they were written, streamed or not (R1.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.corpus.cases import CLASSES, Case, Part, cases
from tests.corpus.formats import FORMATS
from tests.e2e.conftest import USER, Gateway, post

RESPONSES = "/v1/responses"
SAMPLED = [kind for kind in CLASSES if kind not in ("large", "foreign")]


def sample() -> list[Any]:
    """The last case of one class for each format, the classes in turn. `tests/parse/test_formats_corpus.py` has all."""
    return [
        pytest.param(found[-1], id=f"{format.title}-{kind}")
        for row, format in enumerate(FORMATS)
        for column, kind in enumerate(SAMPLED)
        if (row + column) % len(SAMPLED) == 0 and (found := cases(format.title, kind))
    ]


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


def wanted(case: Case) -> list[Part]:
    """The case's parts as a protocol with one text has them."""
    found: list[Part] = []
    for kind in ("reasoning", "text"):
        text = "".join(part.text for part in case.parts if part.kind == kind)
        found += [replace(part, text=text) for part in case.parts if part.kind == kind][:1]
    return [*found, *(part for part in case.parts if part.kind == "call")]


def fits(case: Case, found: list[Part]) -> bool:
    expected = wanted(case)
    return len(expected) == len(found) and all(a.fits(b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("case", sample())
async def test_the_same_calls_and_text_whatever_the_client_speaks(gateway: Gateway, case: Case) -> None:
    turn = {"text": case.text, "chunk": 5, "finish": "length" if case.truncated else "stop"}
    server = await gateway(
        script=[turn],
        format=case.format.name,
        reasoning={"preopened": case.preopened, "scan_calls": case.scan_calls},
    )
    tools = [tool.spec() for tool in case.tools]
    body = {"messages": USER, "tools": tools}
    flat = [{"type": "function", "strict": False, **tool["function"]} for tool in tools]
    asked = {"input": "hi", "tools": flat}

    answer = await post(server, body)
    assert fits(case, chat_parts(answer.json())), (wanted(case), answer.json())
    *chunks, done = (await post(server, {**body, "stream": True})).frames()
    assert done == "[DONE]"
    assert fits(case, chat_stream_parts(chunks)), (wanted(case), chunks)
    answer = await post(server, asked, path=RESPONSES)
    assert fits(case, response_parts(answer.json())), (wanted(case), answer.json())
    frames = (await post(server, {**asked, "stream": True}, path=RESPONSES)).frames()
    last = [frame for frame in frames if isinstance(frame, dict)][-1]
    assert fits(case, response_parts(last["response"])), (wanted(case), last)


CALL = '<tool_call>{"name":"f","arguments":{}}</tool_call>'


@pytest.mark.parametrize(
    ("trim", "text", "wanted"),
    [
        ("edge", f" {CALL}One {CALL} and \n{CALL}\n two\n<think>Hm.</think> three.{CALL} ", "One and\ntwo\nthree."),
        (
            "none",
            f" One {CALL} and \n{CALL}\n two\n<think>Hm.</think> three.\n{CALL} ",
            " One  and \n\n two\n three.\n",
        ),
    ],
    ids=["edge", "none"],
)
async def test_words_around_calls_are_never_glued(gateway: Gateway, trim: str, text: str, wanted: str) -> None:
    """R6.6: on Chat all texts are one, on Responses each has an item of its own; together they read the same."""
    server = await gateway(script=[{"text": text, "chunk": 3}], format="hermes", trim=trim)
    function: dict[str, Any] = {"name": "f", "parameters": {"type": "object"}}
    body: dict[str, Any] = {"messages": USER, "tools": [{"type": "function", "function": function}]}
    asked: dict[str, Any] = {"input": "hi", "tools": [{"type": "function", "strict": False, **function}]}
    *chunks, _ = (await post(server, {**body, "stream": True})).frames()
    frames = (await post(server, {**asked, "stream": True}, path=RESPONSES)).frames()
    for found in (
        chat_parts((await post(server, body)).json()),
        chat_stream_parts(chunks),
        response_parts((await post(server, asked, path=RESPONSES)).json()),
        response_parts([frame for frame in frames if isinstance(frame, dict)][-1]["response"]),
    ):
        assert [part.text for part in found if part.kind == "text"] == [wanted]
        assert [part.text for part in found if part.kind == "reasoning"] == ["Hm."]
