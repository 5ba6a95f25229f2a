"""Calls and text in every format reach clients of Chat and Responses as they were written, streamed or not (R1.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.corpus.cases import CLASSES, Case, Part, cases
from tests.corpus.formats import FORMATS
from tests.e2e.conftest import USER, Gateway, function, post

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


async def check_everywhere(server: TestServer, case: Case) -> None:
    """Each client gets what the case says."""
    for found in await parts_everywhere(server, [tool.spec() for tool in case.tools]):
        assert fits(case, found), (wanted(case), found)


def scripted(case: Case, chunk: int) -> list[Any]:
    """A model that says the text of the case."""
    return [{"text": case.text, "chunk": chunk, "finish": "length" if case.truncated else "stop"}]


def reasoning(case: Case) -> dict[str, Any]:
    return {"preopened": case.preopened, "scan_calls": case.scan_calls}


@every("case", sample())
async def test_the_same_calls_and_text_whatever_the_client_speaks(gateway: Gateway, case: Case) -> None:
    server = await gateway(script=scripted(case, 5), format=case.format.name, reasoning=reasoning(case))
    await check_everywhere(server, case)


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
