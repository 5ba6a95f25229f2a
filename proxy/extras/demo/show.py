"""The text that the demo prints: plain lines without colours, so that a terminal of any width and a log show the same.

All functions are pure. Sentences are wrapped at the width; commands to paste are not.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from ...openai_types import ChatResponse, ToolCall, ToolCallAccumulator

LOG_WIDTH: Final = 80
"""Width in characters if the output is not a terminal."""
WIDEST: Final = 120
STACKED_BELOW: Final = 60
"""The width below which the two columns stand one below the other."""


class StreamedAnswer:
    """A streamed answer as a client puts it together: `text`, `calls`, `reason`, and `error` if it ended with one.
    `complete` is True if the stream ended as it must. Raises `ValueError` for a frame that is no chunk."""

    def __init__(self, frames: Sequence[str]) -> None:
        self.frames = len(frames)
        self.complete = list(frames[-1:]) == ["[DONE]"]
        self.error: str | None = None
        self.reason: str | None = None
        texts: list[str] = []
        seen = ToolCallAccumulator()
        for frame in frames:
            if frame == "[DONE]":
                continue
            if "error" in json.loads(frame):
                self.error = frame
                continue
            for choice in ChatResponse.decode(frame).choices:
                self.reason = choice.finish_reason or self.reason
                if choice.delta is not None:
                    texts.append(choice.delta.content if isinstance(choice.delta.content, str) else "")
                    seen.add(choice.delta.tool_calls)
        self.text = "".join(texts)
        self.calls: tuple[ToolCall, ...] = seen.calls()

    def lines(self) -> list[str]:
        """Returns the answer as lines, with joined text and arguments."""
        out = [f"content: {self.text}"] if self.text else []
        for call in self.calls:
            out += [f"tool call: {call.function.name}", f"arguments: {call.function.arguments}", f"id: {call.id}"]
        if self.reason:
            out.append(f"finish_reason: {self.reason}")
        if self.error:
            out.append(self.error)
        return out


def columns(left: Sequence[str], right: Sequence[str], width: int) -> str:
    """Returns two columns, each a title and its entries; below `STACKED_BELOW` one below the other. Entries are
    wrapped at blanks where possible, and lose nothing but those blanks."""
    stacked = width < STACKED_BELOW
    room = width if stacked else (width - 3) // 2

    def column(entries: Sequence[str]) -> list[str]:
        lines = [line for entry in entries[1:] for line in entry.splitlines() or [""]]
        return [entries[0], "-" * min(room, width - 1), *(piece for line in lines for piece in _wrapped(line, room))]

    if stacked:
        return "\n".join([*column(left), "", *column(right)])
    rows = zip_longest(column(left), column(right), fillvalue="")
    return "\n".join(f"{a:<{room}} | {b}".rstrip() for a, b in rows)


def _wrapped(line: str, room: int) -> list[str]:
    return textwrap.wrap(line, room, replace_whitespace=False, break_on_hyphens=False) or [""]


def paragraph(text: str, width: int) -> str:
    """Returns sentences wrapped at the width."""
    return textwrap.fill(text, width, break_on_hyphens=False, break_long_words=False)


def curl(base: str, body: Mapping[str, Any]) -> str:
    """Returns a command for POSIX shells that sends `body`, with a line for each of its fields."""
    fields = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in body.items())
    text = f"{{\n{fields}\n}}".replace("'", r"'\''")
    return f"curl -N {base}/chat/completions \\\n  -H 'Content-Type: application/json' \\\n  -d '{text}'"


def client_lines(base: str) -> Mapping[str, str]:
    """Returns the commands for POSIX shells that start coding agents in front of the gateway, by the agent's name."""
    provider = "model_providers.toolwire"
    return {
        "Claude Code": (
            f"ANTHROPIC_BASE_URL={base.removesuffix('/v1')} ANTHROPIC_AUTH_TOKEN=none \\\n"
            "  ANTHROPIC_MODEL=my-model claude --permission-mode manual"
        ),
        "Codex": (
            "codex --model my-model --config model_provider=toolwire \\\n"
            f"  --config {provider}.name=toolwire \\\n"
            f"  --config {provider}.base_url={base}"
        ),
    }
