"""Removes secrets and personal data from prompts and answers.

Rules:

1. Conversation content is searched: texts, refusals, reasoning, tool results, and strings in the arguments of earlier
   calls. Tool definitions, images, and parts and fields unknown to the model of requests are not.
2. Calls in answers keep their arguments, because a changed call would be executed.
3. In a stream only the longest end of the text that may be the start of a match is held back. Per-token data
   (`logprobs`) would reveal the replaced text and is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from ...events import Close, Delta, Event, Kind, Open
from ...model import Message, ModelRequest, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from ...pipeline.answers.reply import Reply
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange
from ...record import AccessField
from ...support.offload import is_large, offload
from ...support.patterns import Patterns, StreamReplacer, replaced

KindName = Literal["card", "email", "iban", "ipv4", "private_key", "ssn", "token"]

_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})"

KINDS: Final[Mapping[KindName, tuple[str, ...]]] = {
    "card": (r"\b(?:[0-9][ -]?){12,18}[0-9]\b",),
    "email": (r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}",),
    "iban": (r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",),
    "ipv4": (rf"\b(?:{_BYTE}\.){{3}}{_BYTE}\b",),
    "private_key": (
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
        + r"[A-Za-z0-9+/=\s]{0,1000}" * 4
        + r"(?:-----END [A-Z ]{0,30}KEY-----)?",
    ),
    "ssn": (r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b",),
    "token": (
        r"\b[prs]k[-_][A-Za-z0-9_-]{16,512}",  # OpenAI, Anthropic, Stripe
        r"\b(?:gh[oprsu]|github_pat|hf)_\w{20,255}",
        r"\bglpat-[\w-]{20,255}",
        r"\bA[KS]IA[A-Z0-9]{16}\b",
        r"\bAIza[\w-]{35}",
        r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}",
        r"\beyJ[\w-]{10,512}\.[\w-]{10,1000}[\w-]{0,1000}\.[\w-]{10,512}",  # a JSON web token
        r"(?i)\bbearer [A-Za-z0-9._~+/-]{16,1000}",
    ),
}
"""The built-in patterns. They match by appearance: some numbers that are not cards look like one."""

_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:(?P<end>")(?P<key>\s*+:)?|\\?\Z)', re.DOTALL)
"""A JSON string. A string without an end matches as far as it goes, which keeps the search linear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactOptions:
    """Built-in `kinds` and own `patterns` to search for, where to search, and the replacement `by`."""

    kinds: tuple[KindName, ...] = ("card", "email", "iban", "private_key", "ssn", "token")
    patterns: tuple[str, ...] = ()
    where: Literal["prompt", "answer", "both"] = "prompt"
    by: str = "[redacted]"

    def __post_init__(self) -> None:
        try:
            self.compiled()
        except ImportError as error:
            raise ValueError(str(error)) from error

    def compiled(self) -> Patterns:
        """Returns all patterns combined. Raises `ValueError`, or `ImportError` without RE2."""
        patterns = [pattern for kind in self.kinds for pattern in KINDS[kind]] + list(self.patterns)
        if not patterns:
            raise ValueError("there is nothing to search for: set `kinds` or `patterns`")
        return Patterns(patterns)


class Redact(Middleware):
    """Replaces data that the other side must not see."""

    Options: ClassVar[type] = RedactOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (AccessField("redacted", "Texts that `redact` replaced."),)

    def __init__(self, options: RedactOptions | None = None, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._patterns: Patterns = self.options.compiled()

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        if self.options.where == "answer":
            return request
        prompt = _Prompt(self._patterns, self.options.by)
        look = prompt.messages
        messages = await offload(is_large(request), look, request.messages)
        if not prompt.found:
            return request
        exchange.record.count("redacted", prompt.found)
        return replace(request, messages=messages)

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        if self.options.where != "prompt":
            answer = _RedactedAnswer(self._patterns, self.options.by, exchange)
            reply.map(answer.see, Kind.TEXT | Kind.REASONING)


class _Prompt:
    """Searches the messages of one request. `found` counts replacements."""

    def __init__(self, patterns: Patterns, by: str) -> None:
        self.found = 0
        self._patterns = patterns
        self._by = by

    def messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Returns the messages with matches replaced."""
        return tuple(map(self._message, messages))

    def _message(self, message: Message) -> Message:
        return replace(message, parts=tuple(map(self._part, message.parts)))

    def _part(self, part: Part) -> Part:
        match part:
            case Text() | Refusal() | Reasoning():
                return replace(part, text=self._text(part.text))
            case ToolUse(kind="function"):
                return replace(part, arguments=_STRING.sub(self._string, part.arguments))
            case ToolUse():
                return replace(part, arguments=self._text(part.arguments))
            case ToolResult():
                return replace(part, parts=tuple(map(self._part, part.parts)))
            case _:
                return part

    def _text(self, text: str) -> str:
        clean, found = replaced(self._patterns, text, self._by)
        self.found += found
        return clean

    def _string(self, literal: re.Match[str]) -> str:
        """Returns a string literal with matches in its decoded text replaced. Keys stay unchanged."""
        if literal["key"]:
            return literal[0]
        try:
            text = json.loads(literal[0])
        except ValueError:
            text = literal[0][1:-1] if literal["end"] else literal[0][1:]
        clean = self._text(text)
        return literal[0] if clean == text else json.dumps(clean, ensure_ascii=False)


class _RedactedAnswer:
    """Replaces matches in the texts of one answer."""

    def __init__(self, patterns: Patterns, by: str, exchange: Exchange) -> None:
        self._patterns = patterns
        self._by = by
        self._exchange = exchange
        self._texts: dict[int, StreamReplacer] = {}

    def see(self, event: Event) -> Event | Iterable[Event] | None:
        """Returns the event as the client gets it, or None if its text is held back."""
        match event:
            case Open():
                self._texts[event.block] = StreamReplacer(self._patterns, self._by)
            case Delta():
                text = self._texts[event.block].feed(event.text)
                return Delta(event.block, text) if text else None
            case Close():
                replacing = self._texts.pop(event.block)
                rest = replacing.finish()
                if replacing.found:
                    self._exchange.record.count("redacted", replacing.found)
                return [Delta(event.block, rest), event] if rest else event
        return event
