"""Texts split into deltas, chunk frames and request bodies, generated with fixed seeds.

A delta has 3 to 6 characters, 4.5 on average, like tokens of common tokenizers in English. The splits ignore words and
tags, so nearly every tag is split.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from toolwire.extras.bench.corpus import WORDS

SEED: Final = 20
DELTA_CHARS: Final = (3, 6)

_CITIES: Final = ("Berlin", "São Paulo", "Lima", "Oslo", "Nairobi", "Köln")


def prose(deltas: int) -> list[str]:
    """Returns ordinary text without an opener, in this many deltas."""
    return _first(deltas, lambda rng: " ".join(rng.choices(WORDS, k=12)) + rng.choice((". ", "? ", ".\n\n")))


@cache
def prose_text(deltas: int) -> str:
    """Returns the text of `prose` in one piece."""
    return "".join(prose(deltas))


def calls(deltas: int) -> list[str]:
    """Returns only calls of a weather tool in the format `sentinel`, about 110 characters each."""
    return _first(deltas, _weather_call)


def mixed(deltas: int) -> list[str]:
    """Returns prose with a call after about every 400 characters."""
    return _first(deltas, lambda rng: " ".join(rng.choices(WORDS, k=80)) + ".\n" + _weather_call(rng))


def long_call(deltas: int) -> list[str]:
    """Returns one call that writes a file, in about this many deltas."""
    line = "    total = price * 1.19  # € gross\n"
    lines = int(deltas * 4.5 / (len(call_text("write_file", {"content": line * 50})) / 50))
    return cut(call_text("write_file", {"path": "a.py", "content": line * lines}))


def false_openers(deltas: int) -> list[str]:
    """Returns text with many incomplete tags: the worst case of text that is held back."""
    return _first(deltas, lambda rng: rng.choice(("<tool_", "<tool_cal", "<<<<", "<t", "</tool_call>", "a < b ")))


def mentioned_openers(deltas: int) -> list[str]:
    """Returns complete openers without a body: each must be recognised as a mention and become text."""
    return _first(deltas, lambda rng: "<tool_call>" + rng.choice((" is a tag ", "<tool_call>", "}", "x")))


def hostile_body(deltas: int) -> list[str]:
    """Returns a block without an end, full of closers inside strings: the worst case of searching the closer."""
    return ['<tool_call>{"name":"f","arguments":"', *cut("</tool_call> " * deltas, deltas - 1)[: deltas - 1]]


def cut(text: str, least: int = 0) -> list[str]:
    """Returns `text` in deltas. Raises `ValueError` if there are fewer than `least`."""
    rng = random.Random(SEED)
    out = []
    place = 0
    while place < len(text):
        size = rng.randint(*DELTA_CHARS)
        out.append(text[place : place + size])
        place += size
    if len(out) < least:
        raise ValueError(f"the text has {len(out)} deltas, {least} are wanted")
    return out


def _first(deltas: int, piece: Callable[[random.Random], str]) -> list[str]:
    rng = random.Random(SEED)
    wanted = deltas * DELTA_CHARS[1]
    pieces: list[str] = []
    size = 0
    while size < wanted:
        pieces.append(piece(rng))
        size += len(pieces[-1])
    return cut("".join(pieces), deltas)[:deltas]


def _weather_call(rng: random.Random) -> str:
    return call_text("get_weather", {"city": rng.choice(_CITIES), "unit": "celsius", "days": rng.randint(1, 9)})


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """Returns a call in the format `sentinel`."""
    inner = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    body = json.dumps({"name": name, "arguments": inner}, ensure_ascii=False, separators=(",", ":"))
    return f"<tool_call>{body}</tool_call>"


# --- the wire ---------------------------------------------------------------------------------------------------------


def frame(content: str) -> bytes:
    """Returns one chunk of a streamed chat answer as model servers write it: 217 bytes with a delta of 4 characters."""
    chunk = {
        "id": "chatcmpl-6f1c2f7e9f0a4c0f9b1",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "example-8b-instruct",
        "choices": [{"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}],
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def closing_frames() -> bytes:
    """Returns the last chunk and the end marker."""
    last = frame("").replace(b'{"content":""}', b"{}").replace(b'"finish_reason":null', b'"finish_reason":"stop"')
    return last + b"data: [DONE]\n\n"


def tools(count: int) -> list[dict[str, Any]]:
    """Returns tools like those of a coding agent, with schemas of five properties; the first is `get_weather`, as in
    `calls`."""
    weather = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    listed = [_tool("get_weather", "The weather forecast of a city.", weather)]
    for number in range(1, count):
        properties = {
            "path": {"type": "string", "description": "Path relative to the workspace root"},
            "recursive": {"type": "boolean", "description": "Whether to go into folders"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
            "mode": {"type": "string", "enum": ["text", "binary", "auto"]},
            "patterns": {"type": "array", "items": {"type": "string"}, "description": "Globs to look at"},
        }
        schema = {"type": "object", "properties": properties, "required": ["path"], "additionalProperties": False}
        listed.append(_tool(f"file_operation_{number}", f"Works on files of the workspace, in way {number}.", schema))
    return listed[:count]


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def request_body(tool_count: int, *, stream: bool, work: str = "") -> bytes:
    """Returns a chat request with this many tools and four messages. `work` is the last text: the settings of the model
    server."""
    earlier: Sequence[tuple[str, str]] = (
        ("system", "You are a helpful assistant. Answer briefly and use the tools that you are given."),
        ("user", prose_text(80)),
        ("assistant", prose_text(40)),
    )
    messages = [{"role": role, "content": text} for role, text in earlier]
    body: dict[str, Any] = {
        "model": "example-8b-instruct",
        "messages": [*messages, {"role": "user", "content": f"And tomorrow? {work}"}],
        "temperature": 0.7,
        "stream": stream,
    }
    if tool_count:
        body["tools"] = tools(tool_count)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def agent_body(tool_count: int, turns: int, *, api: str = "chat", stream: bool = True, store: bool = True) -> bytes:
    """The request of an agent after that many turns of about 1.5 kB: it reads a file, is given it, and says something,
    in turn. The body after `turns + 1` begins with the same messages."""
    return conversation_body(tool_count, agent_messages(turns), api=api, stream=stream, store=store)


def agent_messages(turns: int) -> list[dict[str, Any]]:
    """Returns the first messages of an agent's conversation, in Chat's form."""
    return list(map(_turn, range(turns)))


def conversation_body(
    tool_count: int,
    said: Sequence[dict[str, Any]],
    *,
    api: str = "chat",
    stream: bool = True,
    store: bool = True,
    previous: str | None = None,
) -> bytes:
    """The request of an agent after these messages, which are in Chat's form. Over Responses they may continue the
    response `previous`."""
    body: dict[str, Any] = {"model": "example-8b-instruct", "stream": stream}
    system = "You are a coding agent. " + prose_text(400)
    if api == "responses":
        items = [item for turn in said for item in _as_items(turn)]
        body |= {
            "store": store,
            "instructions": system,
            "input": items if previous else [{"role": "user", "content": "Look at it all."}, *items],
        }
        if previous:
            body["previous_response_id"] = previous
    elif api == "messages":
        body |= {"max_tokens": 1000, "system": system}
        body["messages"] = [{"role": "user", "content": "Look at it all."}, *map(_as_blocks, said)]
    else:
        head = [{"role": "system", "content": system}, {"role": "user", "content": "Look at it all."}]
        body["messages"] = [*head, *said]
    functions = [tool["function"] for tool in tools(tool_count)]
    if api == "messages":
        body["tools"] = [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in functions
        ]
    else:
        nested = api == "chat"
        body["tools"] = [{"type": "function", **({"function": one} if nested else one)} for one in functions]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@cache
def _turn(number: int) -> dict[str, Any]:
    """A message in Chat's form."""
    text = "".join(_first(330, lambda rng: " ".join(rng.choices(WORDS, k=12)) + ".\n"))
    text = f"{number}: {text[number % 50 :]}"
    ident = f"call_{number // 3:08d}abcdef"
    if number % 3 == 0:
        call = {"name": "get_weather", "arguments": json.dumps({"city": text[:700], "days": number})}
        calls = [{"id": ident, "type": "function", "function": call}]
        return {"role": "assistant", "content": text[:700], "tool_calls": calls}
    if number % 3 == 1:
        return {"role": "tool", "tool_call_id": ident, "content": text}
    return {"role": "user", "content": text}


def _as_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The same in Responses."""
    if message["role"] == "tool":
        return [
            {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]},
        ]
    calls = [
        {"type": "function_call", "call_id": call["id"], **call["function"]} for call in message.get("tool_calls", ())
    ]
    return [{"role": message["role"], "content": message["content"]}, *calls]


def _as_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """The same in Messages."""
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": [{"type": "text", "text": message["content"]}, *calls]}


def responses_body(tool_count: int, *, work: str, stream: bool = True, store: bool = True) -> bytes:
    """Returns the same request in Responses."""
    chat = json.loads(request_body(tool_count, stream=stream, work=work))
    body = {"model": chat["model"], "input": chat["messages"], "temperature": chat["temperature"], "stream": stream}
    if not store:
        body["store"] = False
    if tool_count:
        body["tools"] = [{"type": "function", **tool["function"]} for tool in chat["tools"]]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def messages_body(tool_count: int, *, stream: bool) -> bytes:
    """Returns the same request in Messages."""
    chat = json.loads(request_body(tool_count, stream=stream))
    system, *messages = chat["messages"]
    body = {
        "model": chat["model"],
        "max_tokens": 1000,
        "system": system["content"],
        "messages": messages,
        "stream": stream,
    }
    if tool_count:
        functions = [tool["function"] for tool in chat["tools"]]
        body["tools"] = [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in functions
        ]
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
