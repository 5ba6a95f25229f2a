"""A protocol that nobody speaks, both halves in one file: the example of docs/how-to/add-a-protocol.md, and the proof
that a protocol needs no line outside of its own.

A request, posted to `/v1/tiny`:

    {"model": "m", "say": [{"who": "user", "text": "hi"}], "tools": [{"name": "look", "takes": {...}}], "stream": true}

What was said by the model may have `calls` (`{"id", "name", "args"}`), what a tool said has `of`, the id of its call. A
streamed answer:

    data: {"text": "Hel"}

    data: {"call": {"id": "c1", "name": "look", "args": {"at": "it"}}}

    data: {"end": "stop", "cost": [3, 2]}

A whole one is an object with `text`, `calls`, `end` and `cost`. An error is `{"error": {"code": ..., "said": ...}}`,
also in a stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from toolwire.errors import BackendFault, ClientFault, GatewayError
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.fastparse import FrameTooLarge, SseFramer
from toolwire.model import (
    Message,
    ModelReply,
    ModelRequest,
    Origin,
    Part,
    ReplyChoice,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
    Usage,
)
from toolwire.protocols.base import ClientSide, ListedModel, ServerSide
from toolwire.protocols.shared.noise import Note, ignore_note
from toolwire.protocols.shared.wire import dump, load
from toolwire.protocols.streams import KEEPALIVE, StreamReader, StreamWriter, WriteOptions


class TinyProtocol(ClientSide, ServerSide):
    """Both halves."""

    name = "tiny"
    path = "/tiny"
    content_type = "text/event-stream"
    example: Mapping[str, Any] = {
        "say": [{"who": "user", "text": "Look."}],
        "tools": [{"name": "look", "takes": {"type": "object", "properties": {"at": {"type": "string"}}}}],
        "stream": True,
    }
    client_header = "x-tiny-version"
    id_header = "x-tiny-id"
    end_marks = (b'"end"',)

    # --- towards clients --------------------------------------------------------------------------------------------

    def read_request(self, body: Mapping[str, Any], raw: bytes) -> ModelRequest:
        if not isinstance(body.get("say"), list):
            raise ClientFault("'say' must be a list.", param="say")
        tools = tuple(
            ToolSpec(tool["name"], None, tool["takes"], extra={"tiny": tool}) for tool in body.get("tools") or ()
        )
        return ModelRequest(
            model=body["model"],
            messages=tuple(_read_message(said) for said in body["say"]),
            tools=tools,
            tool_choice=ToolChoice("auto" if tools else "none"),
            stream=body.get("stream") is True,
            include_usage=True,
            origin=Origin(self.name, raw),
        )

    def writer(self, options: WriteOptions) -> StreamWriter:
        return TinyWriter()

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        choice = reply.choices[0]
        calls = [_write_call(part) for part in choice.parts if isinstance(part, ToolUse)]
        return dump({"text": reply.text, "calls": calls, "end": choice.reason, "cost": _cost(reply.usage)})

    def write_error(self, error: GatewayError, request_id: str) -> bytes:
        return _error(error)

    def write_models(self, models: Sequence[ListedModel], *, for_codex: bool = False) -> bytes:
        return dump({"names": [model.name for model in models]})

    def write_model(self, model: ListedModel) -> bytes:
        return dump({"name": model.name})

    # --- towards servers --------------------------------------------------------------------------------------------

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        return {"x-tiny-version": "1", **({"x-tiny-key": api_key} if api_key else {})}

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": request.model, "say": [said for m in request.messages for said in _say(m)]}
        if request.tools:
            body["tools"] = [{"name": tool.name, "takes": tool.parameters} for tool in request.tools]
        return {**body, "stream": request.stream, **request.extra}

    def reader(self, *, frame_bytes: int, choices: int = 1, note: Note = ignore_note) -> StreamReader:
        return TinyReader(frame_bytes)

    def read_reply(self, body: bytes, *, choices: int = 1, note: Note = ignore_note) -> ModelReply:
        try:
            said = load(body)
            if fault := _fault(said):
                raise fault
            parts: list[Part] = [Text(said["text"])] if said["text"] else []
            parts += [_read_call(call) for call in said["calls"]]
            return ModelReply("", "", 0, (ReplyChoice(tuple(parts), said["end"]),), Usage(*said["cost"]))
        except (ValueError, KeyError, TypeError):
            raise BackendFault("That is no tiny answer.", code="upstream_invalid_response") from None

    def is_empty_frame(self, name: str | None, data: bytes) -> bool:
        return data == b'{"text":""}'

    def is_end(self, name: str | None, data: bytes) -> bool:
        return data.startswith(b'{"end"')

    def missing_end(self, tail: bytes) -> bytes | None:
        return None

    def read_refusal(self, body: bytes) -> tuple[str, str | None]:
        try:
            error = load(body)["error"]
            return error["said"], "model_not_found" if error["code"] == "who" else None
        except (ValueError, KeyError, TypeError):
            return "", None


class TinyWriter:
    """Events to frames. Text goes at once, a call when it is whole."""

    def __init__(self) -> None:
        self._opened: dict[int, Open] = {}
        self._arguments: dict[int, list[str]] = {}

    def feed(self, events: Iterable[Event]) -> bytes:
        return b"".join(b"data: %b\n\n" % frame for event in events for frame in self._frames(event))

    def keepalive(self) -> bytes:
        return KEEPALIVE

    def close(self) -> None:
        """Does nothing: nothing here refers to the writer."""

    def _frames(self, event: Event) -> Iterable[bytes]:
        match event:
            case Open():
                self._opened[event.block], self._arguments[event.block] = event, []
            case Delta():
                if self._opened[event.block].kind is BlockKind.TEXT:
                    yield dump({"text": event.text})
                self._arguments[event.block].append(event.text)
            case Close():
                opened, text = self._opened[event.block], "".join(self._arguments[event.block])
                if opened.kind is BlockKind.TOOL_CALL:
                    yield dump({"call": _write_call(ToolUse(opened.call_id or "", opened.name or "", text))})
            case Finish():
                yield dump({"end": event.reason, "cost": _cost(event.usage)})
            case Fault():
                yield _error(event.error)


class TinyReader:
    """Frames to events."""

    def __init__(self, frame_bytes: int) -> None:
        self._framer = SseFramer(frame_bytes)
        self._text: int | None = None
        self._blocks = 0
        self._started = self._ended = False

    def feed(self, data: bytes) -> list[Event]:
        out: list[Event] = []
        try:
            for _, frame in self._framer.feed(data):
                if not self._ended:
                    out += self._frame(frame)
        except (FrameTooLarge, ValueError, KeyError, TypeError) as error:
            out += self._end(Fault(BackendFault(f"That is no tiny stream: {error}", code="upstream_invalid_response")))
        return out

    def finish(self) -> list[Event]:
        fault = BackendFault("The model server broke off its stream.", code="upstream_disconnected")
        return [] if self._ended else self._end(Fault(fault))

    def _frame(self, frame: bytes) -> list[Event]:
        said = load(frame)
        out: list[Event] = []
        if fault := _fault(said):
            return self._end(Fault(fault))
        if not self._started:
            self._started = True
            out.append(Start("", "", 0))
        if "text" in said:
            if self._text is None:
                self._text = self._new()
                out.append(Open(self._text, BlockKind.TEXT))
            return [*out, Delta(self._text, said["text"])]
        if self._text is not None:
            out.append(Close(self._text))
            self._text = None
        if "call" in said:
            use, block = _read_call(said["call"]), self._new()
            opened = Open(block, BlockKind.TOOL_CALL, name=use.name, call_id=use.call_id)
            return [*out, opened, Delta(block, use.arguments), Close(block)]
        return [*out, *self._end(Finish(said["end"], Usage(*said["cost"])))]

    def _new(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    def _end(self, last: Event) -> list[Event]:
        self._ended = True
        return [last]


def _read_message(said: Mapping[str, Any]) -> Message:
    if said["who"] == "tool":
        return Message("tool", (ToolResult(said["of"], (Text(said["text"]),)),))
    parts: list[Part] = [Text(said["text"])] if said.get("text") else []
    parts += [_read_call(call) for call in said.get("calls") or ()]
    return Message("assistant" if said["who"] == "model" else said["who"], tuple(parts))


def _say(message: Message) -> Iterable[dict[str, Any]]:
    """One entry for a message, and one for each result in it."""
    text, calls = "", []
    for part in message.parts:
        match part:
            case ToolResult():
                yield {
                    "who": "tool",
                    "of": part.call_id,
                    "text": "".join(p.text for p in part.parts if isinstance(p, Text)),
                }
            case ToolUse():
                calls.append(_write_call(part))
            case Text():
                text += part.text
    if message.role != "tool":
        said = {"who": "model" if message.role == "assistant" else message.role, "text": text}
        yield {**said, "calls": calls} if calls else said


def _read_call(call: Mapping[str, Any]) -> ToolUse:
    return ToolUse(call["id"] or f"call_{uuid4().hex}", call["name"], dump(call["args"]).decode())


def _write_call(use: ToolUse) -> dict[str, Any]:
    return {"id": use.call_id, "name": use.name, "args": load(use.arguments)}


def _cost(usage: Usage | None) -> list[int]:
    return [usage.input_tokens, usage.output_tokens] if usage else [0, 0]


def _error(error: GatewayError) -> bytes:
    return dump({"error": {"code": error.code, "said": error.message}})


def _fault(said: Any) -> GatewayError | None:
    return BackendFault(said["error"]["said"]) if "error" in said else None
