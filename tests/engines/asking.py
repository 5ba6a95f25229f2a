"""Requests of the three client protocols from one neutral form, and their answers in one neutral form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import jsonschema
import orjson

from tests.e2e.meaning import PATHS as PATHS
from tests.openapi.documents import ERRORS, EVENTS, WHOLE, conforms
from tests.protocols import messages_wires, responses_wires
from toolwire.testing import WireAnswer, read_frames

Protocol = Literal["chat", "messages", "responses"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("chat", "messages", "responses")
ENDS: Final[Mapping[str | None, str]] = {
    "stop": "stop",
    "end_turn": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "tool_calls": "calls",
    "tool_use": "calls",
    "stop_sequence": "stop sequence",
}
"""Words for the end of an answer, of all protocols; other words stay as they are."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function on offer."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def tool(name: str, description: str, **properties: Any) -> Tool:
    """A tool all of whose parameters are required. A property is the name of a JSON type, or a schema."""
    shown = {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in properties.items()}
    return Tool(
        name,
        description,
        {"type": "object", "properties": shown, "required": list(shown), "additionalProperties": False},
    )


WEATHER: Final = tool("get_weather", "Get the current weather of a city", city="string")
TIME: Final = tool("get_time", "Get the current time of a city", city="string")
TOOLS: Final = (WEATHER, TIME)
QUESTION: Final = (("user", "What is the weather in Paris?"),)
HELLO: Final = (("user", "Say hello in one word."),)
COUNT: Final = (("user", "Count from 1 to 20, separated by commas."),)
HISTORY: Final = (
    *QUESTION,
    ("call", "get_weather", '{"city":"Paris"}'),
    ("result", "17 degrees, cloudy"),
    ("user", "And in one word?"),
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. `turns`: `("user", text)`, `("call", name, arguments)` and `("result", text)`; other roles as they
    are. `choice`: a word, or the name of a tool. `more`: fields of the protocol."""

    turns: tuple[tuple[Any, ...], ...] = HELLO
    protocol: Protocol = "chat"
    model: str = "auto"
    tools: tuple[Tool, ...] = ()
    choice: str | None = None
    tokens: int = 24
    stop: tuple[str, ...] = ()
    stream: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The beginning of what is asked last, by which the request is known again."""
        said = self.turns[-1][-1]
        return (said if isinstance(said, str) else next(part["text"] for part in said if "text" in part))[:40]

    def body(self) -> dict[str, Any]:
        """The request's body."""
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "stream": self.stream}
        match self.protocol:
            case "chat":
                body |= {"messages": list(map(_chat_turn, self.turns)), "max_tokens": self.tokens}
                if self.stream:
                    body["stream_options"] = {"include_usage": True}
                if self.stop:
                    body["stop"] = list(self.stop)
            case "messages":
                body |= {"messages": list(map(_messages_turn, self.turns)), "max_tokens": self.tokens}
                if self.stop:
                    body["stop_sequences"] = list(self.stop)
            case "responses":
                body |= {"input": list(map(_responses_turn, self.turns)), "max_output_tokens": self.tokens}
                body["store"] = False
        if self.tools:
            body["tools"] = [_tool(self.protocol, one) for one in self.tools]
        if self.choice is not None:
            body["tool_choice"] = _choice(self.protocol, self.choice)
        return body | dict(self.more)


def _chat_turn(turn: tuple[Any, ...]) -> dict[str, Any]:
    match turn:
        case ("call", name, arguments):
            call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case ("result", text):
            return {"role": "tool", "tool_call_id": "call_1", "content": text}
        case (role, content):
            return {"role": role, "content": content}
    raise ValueError(turn)


def _messages_turn(turn: tuple[Any, ...]) -> dict[str, Any]:
    match turn:
        case ("call", name, arguments):
            use = {"type": "tool_use", "id": "call_1", "name": name, "input": orjson.loads(arguments)}
            return {"role": "assistant", "content": [use]}
        case ("result", text):
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": text}]}
        case (role, content):
            return {"role": role, "content": content}
    raise ValueError(turn)


def _responses_turn(turn: tuple[Any, ...]) -> dict[str, Any]:
    match turn:
        case ("call", name, arguments):
            return {"type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments}
        case ("result", text):
            return {"type": "function_call_output", "call_id": "call_1", "output": text}
        case (role, content):
            return {"role": role, "content": content}
    raise ValueError(turn)


def _tool(protocol: Protocol, one: Tool) -> dict[str, Any]:
    shown = {"name": one.name, "description": one.description}
    match protocol:
        case "chat":
            return {"type": "function", "function": {**shown, "parameters": one.parameters}}
        case "messages":
            return {**shown, "input_schema": one.parameters}
        case "responses":
            return {"type": "function", **shown, "parameters": one.parameters}


def _choice(protocol: Protocol, choice: str) -> Any:
    word = choice in ("auto", "none", "required")
    match protocol:
        case "chat":
            return choice if word else {"type": "function", "function": {"name": choice}}
        case "messages":
            return {"type": {"required": "any"}.get(choice, choice)} if word else {"type": "tool", "name": choice}
        case "responses":
            return choice if word else {"type": "function", "name": choice}


# --- answers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Error:
    """An error as its client reads it."""

    code: str | None
    type: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call as its client reads it."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer. `end`: a word of `ENDS`, or the protocol's own; empty where the answer is an error. `usage`: tokens of
    the prompt and of the answer. `matched`: the stop sequence that ended it, where that is said."""

    status: int
    text: str = ""
    calls: tuple[Call, ...] = ()
    end: str = ""
    usage: tuple[int, int] | None = None
    matched: str | None = None
    error: Error | None = None

    def __str__(self) -> str:
        parts = [str(self.status)]
        if self.error is not None:
            parts.append(f"error `{self.error.code or self.error.type}`")
        parts += [f"call `{call.name}`" for call in self.calls]
        if self.text.strip() and self.error is None:
            parts.append("text")
        if self.end:
            parts.append(f"end `{self.end}`")
        return ", ".join(parts)


_COMMENT: Final = re.compile(rb"^:[^\n]*\n\n", re.MULTILINE)
"""A sign of life, which clients pass over."""


def read(protocol: Protocol, answer: WireAnswer) -> Seen:
    """What a client reads. Raises `AssertionError` for what is not the protocol's form."""
    if answer.headers.get("Content-Type", "").startswith("text/event-stream"):
        return _read_stream(protocol, answer)
    body = answer.json()
    if answer.status != 200:
        conforms(ERRORS[protocol], body)
        return Seen(answer.status, error=_error(body["error"]))
    conforms(WHOLE[protocol], body)
    return _whole(protocol, body)


def _read_stream(protocol: Protocol, answer: WireAnswer) -> Seen:
    data = _COMMENT.sub(b"", answer.body)
    frames = read_frames(data)
    if protocol != "messages" and frames and frames[-1] == "[DONE]":
        frames.pop()
    elif protocol == "chat":
        raise AssertionError("the stream has no [DONE]")
    assert frames, "the stream is empty"
    for frame in frames:
        conforms(EVENTS[protocol], frame)
    failed = next(filter(None, map(_failure, frames)), None)
    if failed is not None:
        return Seen(answer.status, error=_error(failed), text=_text_so_far(protocol, frames))
    match protocol:
        case "chat":
            return _whole("chat", _added_up(frames))
        case "messages":
            return _whole("messages", messages_wires.accumulate(data))
        case "responses":
            events = responses_wires.payloads(data)
            last = events[-1]["response"]
            assert responses_wires.accumulate(events) == last["output"], "the items differ from the whole response"
            return _whole("responses", last)


def _failure(frame: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if frame.get("type") == "response.failed":
        error: Mapping[str, Any] = frame["response"]["error"]
        return error
    found = frame.get("error") if frame.get("type") in (None, "error") else None
    return found if isinstance(found, Mapping) else None


def _error(error: Mapping[str, Any]) -> Error:
    return Error(error.get("code"), error.get("type"), error.get("message") or "")


def _text_so_far(protocol: Protocol, frames: Iterable[Mapping[str, Any]]) -> str:
    return "".join(_pieces(protocol, frames))


def _pieces(protocol: Protocol, frames: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for frame in frames:
        match protocol:
            case "chat":
                yield from (choice["delta"].get("content") or "" for choice in frame.get("choices") or ())
            case "messages" if frame["type"] == "content_block_delta":
                yield frame["delta"].get("text", "")
            case "responses" if frame["type"] == "response.output_text.delta":
                yield frame["delta"]


def _added_up(frames: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole answer that the chunks of one choice add up to."""
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    calls: list[dict[str, Any]] = message["tool_calls"]
    reason, usage = None, None
    for frame in frames:
        usage = frame.get("usage") or usage
        for choice in frame["choices"]:
            delta = choice["delta"]
            assert reason is None or not (delta.get("content") or delta.get("tool_calls")), "a chunk behind the end"
            message["content"] += delta.get("content") or ""
            for piece in delta.get("tool_calls") or ():
                if piece["index"] == len(calls):
                    calls.append({"function": {"name": piece["function"]["name"], "arguments": ""}, "id": piece["id"]})
                calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments") or ""
            reason = choice.get("finish_reason") or reason
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def _whole(protocol: Protocol, body: Mapping[str, Any]) -> Seen:
    usage = body.get("usage") or {}
    match protocol:
        case "chat":
            choice = body["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            calls = tuple(Call(one["name"], one["arguments"]) for one in functions)
            end = choice["finish_reason"]
            counts = usage.get("prompt_tokens"), usage.get("completion_tokens")
        case "messages":
            blocks = body["content"]
            text = "".join(one["text"] for one in blocks if one["type"] == "text")
            calls = tuple(
                Call(one["name"], orjson.dumps(one["input"]).decode()) for one in blocks if one["type"] == "tool_use"
            )
            end = body["stop_reason"]
            counts = usage.get("input_tokens"), usage.get("output_tokens")
        case "responses":
            items = body["output"]
            text = "".join(responses_wires.text_of(one) for one in items if one["type"] == "message")
            calls = tuple(Call(one["name"], one["arguments"]) for one in items if one["type"] == "function_call")
            end = (body.get("incomplete_details") or {}).get("reason") or body["status"]
            if end == "completed" and calls:
                end = "tool_calls"
            counts = usage.get("input_tokens"), usage.get("output_tokens")
    whole = counts[0] is not None and counts[1] is not None
    return Seen(
        200,
        text,
        calls,
        ENDS.get(end, end or ""),
        (int(counts[0]), int(counts[1])) if whole else None,
        body.get("stop_sequence"),
    )


def wrong_call(call: Call, tools: Iterable[Tool]) -> str | None:
    """The reason why a call is none that a client can run; None if it can."""
    offered = {one.name: one for one in tools}
    if call.name not in offered:
        return f"a call of {call.name!r}, which is not on offer"
    try:
        arguments = orjson.loads(call.arguments)
    except ValueError:
        return f"a call of {call.name!r} whose arguments are no JSON: {call.arguments[:60]!r}"
    if not isinstance(arguments, dict):
        return f"a call of {call.name!r} whose arguments are no object: {call.arguments[:60]!r}"
    return None


def misfit(call: Call, tools: Iterable[Tool]) -> str | None:
    """The reason why a call's arguments do not fit the tool's schema; None if they do."""
    schema = next(one.parameters for one in tools if one.name == call.name)
    try:
        jsonschema.validate(orjson.loads(call.arguments), schema)
    except jsonschema.ValidationError as error:
        return f"arguments of {call.name!r} that do not fit its schema: {error.message[:80]}"
    return None
