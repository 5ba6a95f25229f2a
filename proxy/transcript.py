"""A conversation with tools as one that a text-only chat backend understands (R5). Pure functions.

Rules of this module:

1. A request without tools and without earlier calls or results comes back as the same object.
2. Every tool result is there exactly once, right after the message that called, in the order of the calls; a result whose
   call is unknown stays where it was (R5.8, C14).
3. Results and what user and assistant said are data: they hold no marker of the format afterwards (R5.6). System messages
   are instructions and stay as they are.
4. The model sees earlier calls only in a form that the scanner reads back, unless `bracket` or `native` was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import is_
from typing import Final, Literal

from .formats.base import ToolFormat
from .formats.rendering import RESULT_MARKERS, Escaping, result_text, taught_arguments, taught_name
from .judging.ids import is_given
from .model import Image, Message, ModelRequest, Opaque, Part, Reasoning, Role, Text, ToolChoice, ToolResult, ToolUse

Placement = Literal["append", "prepend", "separate", "user"]
Flatten = Literal["sentinel", "bracket", "native"]

GO_ON: Final = "Continue."
"""Said by the user where a transcript would not end with a user message (R5.8a)."""

BRACKET_MARKERS: Final = ("[function_call",)
"""What opens a call and a result in bracket style."""

_HISTORY: Final = (ToolUse, ToolResult)

_NONE: Final = ToolChoice("none")

_Place = tuple[int, int]
"""Where a call stands: message, part."""


def inject(
    request: ModelRequest,
    segment: str,
    tool_format: ToolFormat,
    *,
    placement: Placement = "append",
    flatten: Flatten = "sentinel",
) -> ModelRequest:
    """The request for a backend that knows no tools: history as text, `segment` in its place, tools dropped.

    An empty segment is not placed.
    """
    history = _has_history(request.messages)
    if not segment and not history and not request.tools:
        return request
    messages: Sequence[Message] = request.messages
    if flatten != "native" and not history:
        writer = _writer(tool_format, flatten == "bracket")
        messages = [writer.talk(message, message.parts) for message in messages]
    elif flatten != "native":
        messages = flattened(messages, tool_format, bracket=flatten == "bracket")
    if segment:
        messages = placed(messages, segment, placement)
    last = next((message for message in reversed(messages) if not is_silent(message)), None)
    if last is None or last.role not in ("user", "tool"):
        messages = [*messages, Message("user", (Text(GO_ON),))]
    return replace(
        request,
        messages=tuple(messages),
        tools=(),
        tool_choice=_NONE,
        parallel_tool_calls=True,
    )


def is_silent(message: Message) -> bool:
    """Whether nothing that a message holds can be said to a model that only reads text (`proxy.backends.adapt.fit_parts`)."""

    def unsaid(part: Part) -> bool:
        foreign = isinstance(part, Opaque) and part.protocol != "chat"
        return foreign or (isinstance(part, Reasoning) and not part.text)

    return bool(message.parts) and all(map(unsaid, message.parts))


def _has_history(messages: Iterable[Message]) -> bool:
    for message in messages:
        for part in message.parts:
            if type(part) in _HISTORY:
                return True
    return False


# --- the segment ----------------------------------------------------------------------------------------------------


def placed(messages: Sequence[Message], segment: str, placement: Placement) -> list[Message]:
    """The messages with the segment in its place (R5.1).

    `append`, `prepend`: at the end or the head of the first system message, if it stands before what the user says; `separate`:
    a system message behind those at the beginning; `user`: at the head of the first user message. Where there is no such
    message a new one is made.
    """
    out = list(messages)
    user = next((index for index, message in enumerate(out) if message.role == "user"), None)
    systems = (index for index, message in enumerate(out[:user]) if message.role in ("system", "developer"))
    found = user if placement == "user" else next(systems, None)
    leading = next(
        (index for index, message in enumerate(out) if message.role not in ("system", "developer")), len(out)
    )
    if placement == "separate" or found is None:
        at = leading if placement in ("separate", "user") else 0
        out.insert(at, Message("user" if placement == "user" else "system", (Text(segment),)))
    else:
        old = out[found]
        parts = _joined(old.parts, segment, at_end=placement == "append")
        out[found] = Message(old.role, parts, old.name, old.extra)
    return out


def _joined(parts: tuple[Part, ...], segment: str, *, at_end: bool) -> tuple[Part, ...]:
    """Into the neighbouring text if there is one: many backends take only a plain string."""
    edge = parts[-1 if at_end else 0] if parts else None
    if not isinstance(edge, Text):
        return (*parts, Text(segment)) if at_end else (Text(segment), *parts)
    texts = (edge.text, segment) if at_end else (segment, edge.text)
    joined = Text("\n\n".join(text for text in texts if text))
    return (*parts[:-1], joined) if at_end else (joined, *parts[1:])


# --- the history ----------------------------------------------------------------------------------------------------


def flattened(messages: Sequence[Message], tool_format: ToolFormat, *, bracket: bool = False) -> list[Message]:
    """Calls and results as text: calls in their assistant message, results as user messages right after it."""
    writer = _writer(tool_format, bracket)
    answers, owner = _answers(messages)
    own_id = None if bracket else tool_format.own_id
    made = 0
    out: list[Message] = []
    for index, message in enumerate(messages):
        uses = [part for part in message.parts if isinstance(part, ToolUse)]
        orphans = [
            part
            for place, part in enumerate(message.parts)
            if isinstance(part, ToolResult) and (index, place) not in owner
        ]
        rest = tuple(part for part in message.parts if not isinstance(part, ToolUse | ToolResult))
        if uses:
            shown = uses
            if own_id is not None:
                shown = [replace(use, call_id=own_id(use, number)) for number, use in enumerate(uses, made)]
            made += len(uses)
            out += writer.calling(message, rest, shown)
            places = [place for place, part in enumerate(message.parts) if isinstance(part, ToolUse)]
            results = [
                # An id that was given out in place of the model's own says nothing to it.
                replace(
                    result,
                    call_id=own.call_id if is_given(result.call_id) else result.call_id,
                    name=result.name or taught_name(own),
                )
                for place, own in zip(places, shown, strict=True)
                for result in answers.get((index, place), ())
            ]
            out += writer.results(results)
            continue
        out += writer.results(orphans)
        if rest or not message.parts:
            out.append(writer.talk(message, rest))
    return out


def _answers(messages: Sequence[Message]) -> tuple[dict[_Place, list[ToolResult]], dict[_Place, _Place]]:
    """The results of each call, and the call of each result. A result belongs to the latest earlier message that called with
    its id: some clients begin to count anew in every turn. Within that message unanswered calls come first."""
    answers: dict[_Place, list[ToolResult]] = {}
    owner: dict[_Place, _Place] = {}
    latest: dict[str, list[_Place]] = {}
    for index, message in enumerate(messages):
        here: dict[str, list[_Place]] = {}
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolUse):
                here.setdefault(part.call_id, []).append((index, place))
            elif isinstance(part, ToolResult) and part.call_id in latest:
                calls = latest[part.call_id]
                call = next((call for call in calls if call not in answers), calls[-1])
                answers.setdefault(call, []).append(part)
                owner[index, place] = call
        latest.update(here)
    return answers, owner


class _Writer:
    """Writes calls, results and talk as messages in one style."""

    def __init__(self, tool_format: ToolFormat, bracket: bool) -> None:
        shapes = tool_format.grammar.shapes
        self.format = tool_format
        self.bracket = bracket
        self.alone = not bracket and tool_format.alone
        more = (*RESULT_MARKERS, *(BRACKET_MARKERS if bracket else ()))
        # Only what opens a block matters in talk; a lone closer (a Markdown fence, say) means nothing there.
        self._talk = Escaping((*(shape.opener for shape in shapes if shape.opener), *more))
        self._data = Escaping((*tool_format.grammar.markers, *more))

    def talk(self, message: Message, parts: tuple[Part, ...]) -> Message:
        """A message without calls and results."""
        role: Role = "user" if message.role == "tool" else message.role
        if role in ("user", "assistant"):
            parts = self._safe(parts)
        unchanged = role == message.role and (parts is message.parts or parts == message.parts)
        return message if unchanged else replace(message, role=role, parts=parts)

    def _safe(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """The parts without markers in their texts; the same object if there are none."""
        escape = self._talk.text
        safe = [
            Text(text) if type(part) is Text and (text := escape(part.text)) is not part.text else part
            for part in parts
        ]
        return parts if all(map(is_, safe, parts)) else tuple(safe)

    def calling(self, message: Message, rest: tuple[Part, ...], uses: Sequence[ToolUse]) -> list[Message]:
        """An assistant message that called: what it said, then the calls."""
        said = self.talk(message, rest)
        calls = self.calls(uses)
        if not rest:
            return [replace(said, parts=(Text(calls),))]
        if self.alone:  # such a format reads a call only where it is the whole message
            return [said, replace(message, parts=(Text(calls),))]
        last = said.parts[-1]
        if not isinstance(last, Text):
            return [replace(said, parts=(*said.parts, Text(calls)))]
        return [replace(said, parts=(*said.parts[:-1], Text(f"{last.text}\n{calls}" if last.text else calls)))]

    def calls(self, uses: Sequence[ToolUse]) -> str:
        """The calls of one message."""
        if self.bracket:
            return "\n".join(map(self._bracket_call, uses))
        if self.format.render_calls is not None:
            return self.format.render_calls(uses)
        return "\n".join(map(self.format.render_call, uses))

    def results(self, results: Iterable[ToolResult]) -> list[Message]:
        """The results in one user message; none for none. Images follow the text of their result."""
        parts: list[Part] = []
        for result in results:
            text = self._bracket_result(result) if self.bracket else self.format.render_result(result)
            if parts and isinstance(parts[-1], Text):
                parts[-1] = Text(f"{parts[-1].text}\n{text}")
            else:
                parts.append(Text(text))
            parts += [part for part in result.parts if isinstance(part, Image)]
        return [Message("user", tuple(parts))] if parts else []

    def _bracket_call(self, use: ToolUse) -> str:
        item = "" if use.item_id is None else f"id={use.item_id} "
        arguments = self._data.text(taught_arguments(use))
        return f"[function_call {item}call_id={use.call_id} name={taught_name(use)} arguments={arguments}]"

    def _bracket_result(self, result: ToolResult) -> str:
        return f"[function_call_output call_id={result.call_id} output={self._data.text(result_text(result))}]"


@lru_cache(maxsize=256)
def _writer(tool_format: ToolFormat, bracket: bool) -> _Writer:
    """Kept, because every request needs one of the few that there are. It holds nothing of a request."""
    return _Writer(tool_format, bracket)
