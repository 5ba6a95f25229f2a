"""The legacy text protocol (`/completions`), for backends that know no roles.

It has no client side: requests to `/v1/completions` are passed through (`toolwire.protocols.proxied.protocol`). For a
backend, a conversation becomes one text, by a chat template (`toolwire.protocols.completions.chat_templates`); by
default

    System: You are helpful.

    User: Hello

    Assistant:

Each message is one paragraph, `Role: text`, in order, with an open `Assistant:` at the end. The next `User:` stops the
model (`own_stops`), unless the client's stop sequences leave no room for it. If the last message is the assistant's, it
stays open and the model continues it. Calls and results that the route's format has not yet written as text take the
form of `prompt.flatten: bracket`. Reasoning of earlier turns is dropped. Text in a message cannot begin or end a turn:
its markers are escaped, by the injection middleware, which can undo it in the answer, or else here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ...config import BackendConfig
from ...errors import ClientFault
from ...model import Image, Message, ModelRequest, OpaquePart, Refusal, Text, ToolResult, ToolUse
from ..base import ServerSide
from ..chat.protocol import DONE, is_end, is_silent, missing_end
from ..chat.reader import ChatReader
from ..chat.reply import read_reply, read_usage, write_reply
from ..chat.writer import ChatWriter
from ..shared.noise import in_chat
from ..shared.wire import dump
from .chat_templates import PLAIN, ChatTemplate, Guard, TemplateTurn, template_for

_ROLES: Final[Mapping[str, str]] = {"developer": "system", "tool": "user"}
"""Role of a message in templates."""
_STOPS: Final = 4
"""The protocol allows at most four stop sequences."""


class CompletionsProtocol(ServerSide):
    """The server side of the text protocol. Its answers differ from those of chat only in `text` in place of a delta,
    so the chat reader reads them. Converted answers are written as chat."""

    name = "completions"
    path = "/completions"
    end_marks = (DONE,)
    usual = b'"text":'
    images = False
    limit_fields = ("max_tokens",)
    takes_tools = False
    takes_template = True
    noise_of = staticmethod(in_chat)

    def __init__(self, template: ChatTemplate = PLAIN, stops: int = _STOPS) -> None:
        self.stops: int = stops
        self.own_stops = template.stops
        self.turn_markers = template.markers
        self._template = template
        self._guard = Guard(template.markers)

    def configured(self, config: BackendConfig) -> CompletionsProtocol:
        template = template_for(config.template, config.options)
        return CompletionsProtocol(template, _STOPS if config.stop_sequences is None else config.stop_sequences)

    def write_request(self, request: ModelRequest) -> dict[str, Any]:
        """Returns the JSON object with the conversation as `prompt`. Parts that are not modelled are dropped, or
        written as JSON in results (R8.2, R4.2). Tools are not written: in prompt mode they are in the text already.
        Raises `ClientFault` `unsupported_content` for images."""
        sampling = request.sampling
        stop = list(sampling.stop)
        stop += self.own_stops if len(stop) + len(self.own_stops) <= self.stops else ()
        fields = {
            "model": request.model,
            "prompt": render_transcript(request.messages, self._template, guard=self._guard, guarded=request.guarded),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "stop": stop or None,
            "seed": sampling.seed,
            "top_k": sampling.top_k,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "n": sampling.n if sampling.n != 1 else None,
            "stream": True if request.stream else None,
            "stream_options": {"include_usage": True} if request.stream and request.include_usage else None,
        }
        body = {key: value for key, value in fields.items() if value is not None}
        return {**body, **_with_number(request.extra)}

    read_reply = staticmethod(read_reply)
    reader = staticmethod(ChatReader)
    writer = staticmethod(ChatWriter)
    write_reply = staticmethod(write_reply)
    is_silent = staticmethod(is_silent)
    is_end = staticmethod(is_end)
    missing_end = staticmethod(missing_end)
    read_usage = staticmethod(read_usage)


def _with_number(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the parameters with `logprobs` as a number: here it is the number of alternatives for each token."""
    wanted = extra.get("logprobs")
    if not isinstance(wanted, bool):
        return extra
    others = {name: value for name, value in extra.items() if name not in ("logprobs", "top_logprobs")}
    return {**others, "logprobs": extra.get("top_logprobs") or 1} if wanted else others


def render_transcript(
    messages: Iterable[Message], template: ChatTemplate = PLAIN, *, guard: Guard | None = None, guarded: bool = False
) -> str:
    """Returns the conversation as one text. `guarded`: see `ModelRequest`. Raises `ClientFault`: `unsupported_content`
    for images, `invalid_message_order` for a conversation that the template refuses."""
    guard = guard or Guard(template.markers)
    turns = [
        TemplateTurn(_ROLES.get(message.role, message.role), guard.text(_pieces(message), guarded=guarded))
        for message in messages
    ]
    try:
        return template.render(turns)
    except ValueError as error:
        raise ClientFault(
            f"The model's chat template cannot write this conversation: {error}",
            code="invalid_message_order",
            param="messages",
        ) from error


def _pieces(message: Message) -> list[str]:
    """Returns the lines of a message."""
    pieces = []
    for part in message.parts:
        match part:
            case Text() | Refusal():
                pieces.append(part.text)
            case ToolUse():
                pieces.append(f"[function_call call_id={part.call_id} name={part.name} arguments={part.arguments}]")
            case ToolResult():
                output = "\n".join(_pieces(Message("tool", part.parts)))
                pieces.append(f"[function_call_output call_id={part.call_id} output={output}]")
            case Image():
                raise ClientFault(
                    "This model takes text only.",
                    code="unsupported_content",
                    param="messages",
                    hint="Leave out images.",
                )
            case OpaquePart() if message.role == "tool":
                pieces.append(dump(part.payload).decode())
            case _:
                pass
    return pieces
