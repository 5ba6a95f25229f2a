"""The prompt that a model was sent, split into the client's parts and the gateway's.

The split is found by comparison: text of the prompt that is also in the client's request is the client's. The rest was
injected, or is history (calls and results of earlier turns, written as text). So the split is right for any middleware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any, Final

import orjson

from ...errors import GatewayError
from ...model import Message, OpaquePart, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from ...protocols.base import ClientSide, ServerSide
from ...protocols.shared.wire import BOUNDS
from ...support.bounded_json import loads
from ..capture.files import RecordedCall
from .bounds import COMPARED_STEPS, MOST_MESSAGES
from .captured_request import CapturedRequest

COMPARED_CHARS: Final = 20_000
"""Characters up to which texts are compared word by word. A longer text that is not found as a whole counts as
`injected`."""

JUNK_WORDS: Final = 1_000

LEAST_CHARS: Final = 8
"""Minimum length of a client's text that is looked for inside of another text. A shorter one would be found by
chance."""

_ANSWERS: Final = frozenset({"assistant", "tool", "function"})
"""The roles of calls and results."""
_INSTRUCTS: Final = frozenset({"system", "developer"})
"""The roles of instructions, which may quote the form of a result."""

_RESULT: Final = re.compile(r"<tool_res(?:ult|ponse)|tool_result")
_WORDS: Final = re.compile(r"\s+|\w+|[^\w\s]")
_SHOWN_APART: Final = frozenset({"messages", "tools", "prompt", "input", "instructions", "system"})


@dataclass(frozen=True, slots=True)
class MessagePiece:
    """A piece of a message. Its kind is `client`, `injected`, `history`, `escaped`, or `unread` if it was not compared.
    `tools` are the tools that it names. Lines that name different tools are different pieces."""

    text: str
    kind: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message of the prompt."""

    role: str
    pieces: tuple[MessagePiece, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt: its messages, the names of the tools in the request body, and the other parameters."""

    messages: tuple[PromptMessage, ...]
    tools: tuple[str, ...]
    parameters: Mapping[str, Any]


def read_prompt(call: RecordedCall, sides: Sequence[ClientSide], asked: CapturedRequest) -> Prompt:
    """Returns the prompt in the request of a call: the one that the server's chat template made of it, if the server
    tells."""
    body, rendered = call.bytes_of("sent"), call.bytes_of("prompt")
    try:
        sent = loads(body, BOUNDS)
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        return Prompt((PromptMessage("", (MessagePiece(body.decode(errors="replace"), "client"),)),), (), {})
    written = (
        [("", rendered.decode(errors="replace"))] if rendered else list(_messages(sent, body, asked.server, sides))
    )
    ours = _Ours(asked.history, asked.names, ran=any(tool.server for tool in asked.offer.tools))
    messages = [PromptMessage(role, tuple(ours.pieces(text, role))) for role, text in _shown(written)]
    if (left := len(written) - len(messages)) > 0:
        note = MessagePiece(f"… {left} messages are not shown …", "unread")
        messages.insert(len(messages) // 2, PromptMessage("", (note,)))
    tools = sent.get("tools")
    names = tuple(filter(None, map(_tool_name, tools))) if isinstance(tools, list) else ()
    parameters = {key: value for key, value in sent.items() if key not in _SHOWN_APART}
    return Prompt(tuple(messages), names, parameters)


def _messages(
    sent: dict[str, Any], body: bytes, server: ServerSide, sides: Sequence[ClientSide]
) -> Iterator[tuple[str, str]]:
    """Yields role and text of each message; of a request with one prompt text, that text."""
    prompt = sent.get("prompt")
    if isinstance(prompt, str):
        yield "", prompt
        return
    side = next((one for one in sides if one.name == server.name), None)
    if side is not None:
        try:
            for message in side.read_request({"model": "", **sent}, body).messages:
                yield message.role, text_of(message.parts)
            return
        except (GatewayError, ValueError, TypeError, AttributeError):
            pass
    yield "", orjson.dumps(sent, option=orjson.OPT_INDENT_2).decode()


def text_of(parts: Iterable[Part]) -> str:
    """Returns the text of parts. Calls and results are written in words."""
    return "".join(map(_text_of_part, parts))


def _text_of_part(part: Part) -> str:
    match part:
        case Text() | Refusal() | Reasoning():
            return part.text
        case ToolUse():
            return f"\n[call {part.name} {part.arguments}]\n"
        case ToolResult():
            return text_of(part.parts)
        case OpaquePart():
            return f"\n{orjson.dumps(part.payload, default=str).decode()}\n"
        case _:
            return "\n[image]\n"


def _shown(written: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Returns the messages that are shown: the first and the last ones."""
    if len(written) <= MOST_MESSAGES:
        return written
    return [*written[: MOST_MESSAGES // 2], *written[-(MOST_MESSAGES // 2) :]]


def _tool_name(tool: Any) -> str | None:
    inner = tool.get("function", tool) if isinstance(tool, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    return name if isinstance(name, str) else None


class _Ours:
    """Tells the client's texts from the gateway's. `names` are the tools on offer. `ran`: the gateway ran tools itself,
    which the client's history does not show."""

    def __init__(self, history: Sequence[Message], names: Sequence[str], *, ran: bool) -> None:
        self._finder = _Finder([text for message in history if (text := _said(message))])
        self._had_calls = ran or any(
            isinstance(part, ToolUse | ToolResult) for message in history for part in message.parts
        )
        longest_first = sorted(map(re.escape, names), key=len, reverse=True)
        self._named = re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])") if names else None

    def pieces(self, text: str, role: str) -> Iterator[MessagePiece]:
        """Yields the pieces of a message."""
        for piece, kind in self._finder.marked(text):
            answers = role in _ANSWERS or (role not in _INSTRUCTS and _RESULT.search(piece))
            if kind == "injected" and self._had_calls and answers:
                kind = "history"
            if kind in ("client", "unread") or self._named is None:
                yield MessagePiece(piece, kind)
                continue
            for names, lines in groupby(piece.splitlines(keepends=True), self._mentioned):
                yield MessagePiece("".join(lines), kind, names)

    def _mentioned(self, line: str) -> tuple[str, ...]:
        return () if self._named is None else tuple(dict.fromkeys(self._named.findall(line)))


def _said(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


class _Finder:
    """Finds the texts of a client in other texts, within a budget of steps (`COMPARED_STEPS`)."""

    def __init__(self, said: Sequence[str]) -> None:
        self._said = said
        self._whole = frozenset(said)
        self._words: dict[str, frozenset[str]] = {}
        self._left = COMPARED_STEPS

    def marked(self, text: str) -> Iterator[tuple[str, str]]:
        """Yields the pieces of `text`, each with its kind."""
        todo: list[tuple[str, str, Sequence[str]]] = [(text, "", self._said)]
        while todo:
            piece, kind, said = todo.pop()
            if not piece:
                continue
            if kind or piece in self._whole:
                yield piece, kind or "client"
                continue
            if not self._afford(len(said) * (len(piece) + 100)):
                yield piece, "unread"
                continue
            inside = [one for one in said if len(one) >= LEAST_CHARS and one in piece]
            if inside:
                whole = max(inside, key=len)
                begin = piece.index(whole)
                rest = [one for one in said if one != whole]
                todo.append((piece[begin + len(whole) :], "", rest))
                todo.append((whole, "client", ()))
                todo.append((piece[:begin], "", rest))
                continue
            near = self._near(piece, said)
            if near is None:
                yield piece, "injected"
            else:
                yield from _compared(piece, near)

    def _near(self, text: str, said: Sequence[str]) -> str | None:
        """Returns the client's text of which this is a changed form, such as one with escaped markers; else None."""
        if len(text) > COMPARED_CHARS:
            return None
        words = self._words_of(text)
        for one in said:
            if LEAST_CHARS <= len(one) <= COMPARED_CHARS and self._afford(len(one)):
                own = self._words_of(one)
                if len(own & words) > 0.8 * len(own) and len(own) > 2:
                    # A comparison costs a hundredth of the square of its length: see `_compared`.
                    return one if self._afford(len(text) * len(one) // 20) else None
        return None

    def _words_of(self, text: str) -> frozenset[str]:
        known = self._words.get(text)
        if known is None:
            known = self._words[text] = frozenset(_WORDS.findall(text))
        return known

    def _afford(self, steps: int) -> bool:
        self._left -= steps
        return self._left >= 0


def _compared(text: str, said: str) -> Iterator[tuple[str, str]]:
    ours, theirs = _WORDS.findall(text), _WORDS.findall(said)
    # In a long text the words that make more than a hundredth of it are no anchors: they would make it cubic.
    often = len(theirs) > JUNK_WORDS
    for what, begin, end, _, _ in SequenceMatcher(None, ours, theirs, autojunk=often).get_opcodes():
        if begin < end:
            yield "".join(ours[begin:end]), "client" if what == "equal" else "escaped"
