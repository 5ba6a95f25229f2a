"""Naive parsers for comparison: the two usual ways to parse tool calls in text.

Both accept only well-formed calls, and have no limits, repair, reasoning, schemas, strictness, or support for markers
in strings. Both return the events of `toolwire.events`, so that their speed is comparable.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...events import BlockKind, Close, Delta, Event, Open

Written = tuple[str, str]
"""Name and arguments (JSON text) of a call."""


def json_calls(body: str) -> list[Written]:
    """Returns the calls of a JSON body: one object or a list, with the keys that models use."""
    loaded = json.loads(body)
    if isinstance(loaded, dict):
        loaded = loaded.get("tool_calls", [loaded])
    return [(call.get("name") or call["tool_name"], arguments_of(call)) for call in loaded]


def arguments_of(call: Mapping[str, Any]) -> str:
    """Returns the arguments as JSON text, whether they were written as a string or as an object."""
    arguments = call["arguments"] if "arguments" in call else call["parameters"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


_FUNCTION: Final = re.compile(r"<function=([^>]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PAIR: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def parameter_calls(body: str) -> list[Written]:
    """Returns the calls in `<function=NAME><parameter=KEY>VALUE</parameter></function>`."""
    return [(name, _typed(_PARAMETER.findall(inner))) for name, inner in _FUNCTION.findall(body)]


def pair_calls(body: str) -> list[Written]:
    """Returns the call in `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`."""
    return [(body.partition("<arg_key>")[0].strip(), _typed(_PAIR.findall(body)))]


_DEEPSEEK: Final = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
_KIMI: Final = re.compile(
    r"<\|tool_call_begin\|>functions\.(.*?):\d+<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL
)


def _typed(pairs: list[tuple[str, str]]) -> str:
    """Returns the values as a JSON object; values that are not JSON become strings, because there is no schema."""
    arguments: dict[str, Any] = {}
    for key, value in pairs:
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return json.dumps(arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Tags:
    """A call block for simple parsers: the text before, the text after (empty: the end of the answer), and a parser of
    the text between."""

    opener: str
    closer: str
    calls: Callable[[str], list[Written]] = json_calls


TAGS: Final[Mapping[str, Tags]] = {
    "sentinel": Tags("<tool_call>", "</tool_call>"),
    "hermes": Tags("<tool_call>", "</tool_call>"),
    "ernie": Tags("<tool_call>", "</tool_call>"),
    "fenced_json": Tags("```json", "```"),
    "jamba": Tags("<tool_calls>", "</tool_calls>"),
    "hunyuan": Tags("<tool_calls>", "</tool_calls>"),
    "nemotron": Tags("<TOOLCALL>", "</TOOLCALL>"),
    "longcat": Tags("<longcat_tool_call>", "</longcat_tool_call>"),
    "cohere": Tags("<|START_ACTION|>", "<|END_ACTION|>"),
    "mistral_v3": Tags("[TOOL_CALLS]", ""),
    "internlm": Tags("<|action_start|><|plugin|>", "<|action_end|>"),
    "granite": Tags("<|tool_call|>", ""),
    "phi4_mini": Tags("functools", ""),
    "qwen3_coder": Tags("<tool_call>", "</tool_call>", parameter_calls),
    "seed_oss": Tags("<seed:tool_call>", "</seed:tool_call>", parameter_calls),
    "deepseek_v31": Tags("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", _DEEPSEEK.findall),
    "kimi_k2": Tags("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", _KIMI.findall),
    "glm45": Tags("<tool_call>", "</tool_call>", pair_calls),
    "glm47": Tags("<tool_call>", "</tool_call>", pair_calls),
}
"""The tags of the formats that a parser for tags can read, by format."""


class Blocks:
    """Numbers blocks and creates their events."""

    def __init__(self) -> None:
        self._count = 0
        self._text: int | None = None

    def text(self, text: str, out: list[Event]) -> None:
        """Adds visible text."""
        if not text:
            return
        if self._text is None:
            self._text = self._count
            self._count += 1
            out.append(Open(self._text, BlockKind.TEXT))
        out.append(Delta(self._text, text))

    def calls(self, calls: list[Written], out: list[Event]) -> None:
        """Adds complete calls."""
        self.close(out)
        for name, arguments in calls:
            block = self._count
            self._count += 1
            out.append(Open(block, BlockKind.TOOL_CALL, name=name, call_id=f"call_{uuid.uuid4().hex}"))
            out.append(Delta(block, arguments))
            out.append(Close(block))

    def close(self, out: list[Event]) -> None:
        """Closes an open text block."""
        if self._text is not None:
            out.append(Close(self._text))
            self._text = None


class RescanningScanner:
    """Stores the whole answer and runs a regular expression over it at every delta: quadratic time.

    Many parsers of inference servers work so: they get the text so far and compare it with the previous one.
    """

    def __init__(self, tags: Tags = TAGS["sentinel"]) -> None:
        self._tags = tags
        self._pattern = re.compile(re.escape(tags.opener) + "(.*?)" + (re.escape(tags.closer) or r"\Z"), re.DOTALL)
        self._all = ""
        self._calls = 0
        self._shown = 0
        self._blocks = Blocks()

    def feed(self, delta: str) -> list[Event]:
        """Returns the events that the delta adds."""
        self._all += delta
        return self._look(self._tags.closer != "")

    def _look(self, closed: bool) -> list[Event]:
        out: list[Event] = []
        matches = list(self._pattern.finditer(self._all)) if closed else []
        for match in matches[self._calls :]:
            self._blocks.text(self._all[self._shown : match.start()], out)
            self._blocks.calls(self._tags.calls(match[1]), out)
            self._shown = match.end()
        self._calls = max(self._calls, len(matches))
        rest = self._all[self._shown :]
        opened = rest.find(self._tags.opener)
        safe = len(rest) - partial_opener(rest, self._tags.opener) if opened < 0 else opened
        self._blocks.text(rest[:safe], out)
        self._shown += safe
        return out

    def finish(self) -> list[Event]:
        """Returns the events for held-back text, and for a call that ends with the answer."""
        out = [] if self._tags.closer else self._look(True)
        self._blocks.text(self._all[self._shown :], out)
        self._blocks.close(out)
        return out


class BufferingScanner:
    """Stores only undecided text, and searches it for the next tag, as a careful author would write it by hand.

    Linear in prose; in a call the buffer is searched again at every delta.
    """

    def __init__(self, tags: Tags = TAGS["sentinel"]) -> None:
        self._tags = tags
        self._buffer = ""
        self._inside = False
        self._blocks = Blocks()

    def feed(self, delta: str) -> list[Event]:
        """Returns the events that the delta adds."""
        out: list[Event] = []
        tags = self._tags
        self._buffer += delta
        while True:
            if self._inside:
                body, closer, rest = self._buffer.partition(tags.closer) if tags.closer else (self._buffer, "", "")
                if not closer:
                    self._look(body)
                    return out
                self._blocks.calls(tags.calls(body), out)
            else:
                text, opener, rest = self._buffer.partition(tags.opener)
                if not opener:
                    held = partial_opener(text, tags.opener)
                    self._blocks.text(text[: len(text) - held], out)
                    self._buffer = text[len(text) - held :]
                    return out
                self._blocks.text(text, out)
            self._buffer = rest
            self._inside = not self._inside

    def _look(self, body: str) -> None:
        """Looks at the unfinished body of a call. This parser waits for its end."""

    def finish(self) -> list[Event]:
        """Returns the events for held-back text, and for a call that ends with the answer."""
        out: list[Event] = []
        if self._inside and not self._tags.closer:
            self._blocks.calls(self._tags.calls(self._buffer), out)
        else:
            self._blocks.text(self._tags.opener * self._inside + self._buffer, out)
        self._blocks.close(out)
        return out


def partial_opener(text: str, opener: str) -> int:
    """Returns the number of characters at the end of `text` that may be the start of an opener."""
    for size in range(min(len(opener) - 1, len(text)), 0, -1):
        if opener.startswith(text[-size:]):
            return size
    return 0
