"""What the scanner is compared with: the two ways in which text-based tool calls are usually parsed.

Both take well-formed calls only, and know nothing of limits, repair, reasoning, schemas, strictness, or markers inside
strings. Both give the events of `toolwire.events`, so that what they cost is comparable.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire.events import BlockKind, Close, Delta, Event, Open

Written = tuple[str, str]
"""Name and arguments (JSON text) of a call."""


def json_calls(body: str) -> list[Written]:
    """The calls of a JSON body: one object or a list of them, with the keys that models use."""
    loaded = json.loads(body)
    if isinstance(loaded, dict):
        loaded = loaded.get("tool_calls", [loaded])
    return [(call.get("name") or call["tool_name"], arguments_of(call)) for call in loaded]


def arguments_of(call: Mapping[str, Any]) -> str:
    """The arguments as JSON text, whether they were written as a string or as an object."""
    arguments = call["arguments"] if "arguments" in call else call["parameters"]
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


_FUNCTION: Final = re.compile(r"<function=([^>]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PAIR: Final = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)


def parameter_calls(body: str) -> list[Written]:
    """`<function=NAME><parameter=KEY>VALUE</parameter></function>`."""
    return [(name, _typed(_PARAMETER.findall(inner))) for name, inner in _FUNCTION.findall(body)]


def pair_calls(body: str) -> list[Written]:
    """`NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`."""
    return [(body.partition("<arg_key>")[0].strip(), _typed(_PAIR.findall(body)))]


_DEEPSEEK: Final = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
_KIMI: Final = re.compile(
    r"<\|tool_call_begin\|>functions\.(.*?):\d+<\|tool_call_argument_begin\|>(.*?)<\|tool_call_end\|>", re.DOTALL
)


def _typed(pairs: list[tuple[str, str]]) -> str:
    """Values as JSON where they are JSON, else as strings: without a schema nobody knows better."""
    arguments: dict[str, Any] = {}
    for key, value in pairs:
        try:
            arguments[key] = json.loads(value)
        except ValueError:
            arguments[key] = value
    return json.dumps(arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Tags:
    """A block as simple parsers see it: a literal before, a literal behind (empty: the end of the answer), and how to
    read what is between them."""

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
"""The formats that can be read in this way."""


class Blocks:
    """Numbers blocks and makes their events."""

    def __init__(self) -> None:
        self._count = 0
        self._text: int | None = None

    def text(self, text: str, out: list[Event]) -> None:
        """More visible text."""
        if not text:
            return
        if self._text is None:
            self._text = self._count
            self._count += 1
            out.append(Open(self._text, BlockKind.TEXT))
        out.append(Delta(self._text, text))

    def calls(self, calls: list[Written], out: list[Event]) -> None:
        """Whole calls."""
        self.close(out)
        for name, arguments in calls:
            block = self._count
            self._count += 1
            out.append(Open(block, BlockKind.TOOL_CALL, name=name, call_id=f"call_{uuid.uuid4().hex}"))
            out.append(Delta(block, arguments))
            out.append(Close(block))

    def close(self, out: list[Event]) -> None:
        """The text is over."""
        if self._text is not None:
            out.append(Close(self._text))
            self._text = None


class RescanningScanner:
    """Keeps the whole answer and runs a regular expression over all of it with every delta: quadratic.

    So do many parsers that inference servers ship: they are given the text so far and compare it with what it was
    before.
    """

    def __init__(self, tags: Tags = TAGS["sentinel"]) -> None:
        self._tags = tags
        self._pattern = re.compile(re.escape(tags.opener) + "(.*?)" + (re.escape(tags.closer) or r"\Z"), re.DOTALL)
        self._all = ""
        self._calls = 0
        self._shown = 0
        self._blocks = Blocks()

    def feed(self, delta: str) -> list[Event]:
        """The events that the delta adds."""
        self._all += delta
        return self._look(self._tags.closer != "")

    def _look(self, closed: bool) -> list[Event]:
        out: list[Event] = []
        found = list(self._pattern.finditer(self._all)) if closed else []
        for match in found[self._calls :]:
            self._blocks.text(self._all[self._shown : match.start()], out)
            self._blocks.calls(self._tags.calls(match[1]), out)
            self._shown = match.end()
        self._calls = max(self._calls, len(found))
        rest = self._all[self._shown :]
        opened = rest.find(self._tags.opener)
        safe = len(rest) - partial_opener(rest, self._tags.opener) if opened < 0 else opened
        self._blocks.text(rest[:safe], out)
        self._shown += safe
        return out

    def finish(self) -> list[Event]:
        """What was held back, and a call that the end of the answer ends."""
        out = [] if self._tags.closer else self._look(True)
        self._blocks.text(self._all[self._shown :], out)
        self._blocks.close(out)
        return out


class BufferingScanner:
    """Keeps only what is undecided, and looks for the tag of the moment in all of that: what a careful author writes by
    hand.

    Linear in prose; in a call the buffer is searched again with every delta.
    """

    def __init__(self, tags: Tags = TAGS["sentinel"]) -> None:
        self._tags = tags
        self._buffer = ""
        self._inside = False
        self._blocks = Blocks()

    def feed(self, delta: str) -> list[Event]:
        """The events that the delta adds."""
        out: list[Event] = []
        tags = self._tags
        self._buffer += delta
        while True:
            if self._inside:
                if not tags.closer:
                    return out
                body, closer, rest = self._buffer.partition(tags.closer)
                if not closer:
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

    def finish(self) -> list[Event]:
        """What was held back, and a call that the end of the answer ends."""
        out: list[Event] = []
        if self._inside and not self._tags.closer:
            self._blocks.calls(self._tags.calls(self._buffer), out)
        else:
            self._blocks.text(self._tags.opener * self._inside + self._buffer, out)
        self._blocks.close(out)
        return out


def partial_opener(text: str, opener: str) -> int:
    """How many characters at the end of `text` may yet become an opener."""
    for size in range(min(len(opener) - 1, len(text)), 0, -1):
        if opener.startswith(text[-size:]):
            return size
    return 0
