"""Parsers of other projects, each measured only if it is installed.

Libraries that parse unfinished JSON know no calls, so the usual code is built around them: find the opener, then parse
the whole body so far at every delta and look at the known parts of the call. Inference servers use them so. The time
includes this code; it excludes the comparison that finds new parts of the arguments, which a server that streams them
also needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from ...events import Event
from .naive import TAGS, Blocks, BufferingScanner, Tags, json_calls, partial_opener

Load = Callable[[str], Any]


class PartialJsonScanner(BufferingScanner):
    """Hand-written tag search; bodies are parsed by a library for unfinished JSON."""

    def __init__(self, tags: Tags, load: Load) -> None:
        super().__init__(tags)
        self._load = load
        self.seen: Any = None
        """The library's value of the body so far."""

    def _look(self, body: str) -> None:
        with suppress(ValueError):  # not enough text yet, such as an unfinished escape; all libraries raise it
            self.seen = self._load(body[: len(body) - partial_opener(body, self._tags.closer)])


def _jiter() -> Load:
    from_json = import_module("jiter").from_json
    return lambda text: from_json(text.encode(), partial_mode="trailing-strings")


def _partial_json_parser() -> Load:
    load: Load = import_module("partial_json_parser").loads
    return load


def _json_repair() -> Load:
    loads = import_module("json_repair").loads
    return lambda text: loads(text, skip_json_loads=True, stream_stable=True)


PARTIAL_JSON: Final[Mapping[str, Callable[[], Load]]] = {
    "jiter": _jiter,
    "partial-json-parser": _partial_json_parser,
    "json-repair": _json_repair,
}
"""Libraries that parse unfinished JSON, by distribution name. Each raises `ImportError` if it is missing."""


def partial_json(library: str, format: str) -> Callable[[], PartialJsonScanner] | None:
    """Returns a factory of the scanner for a library; None if the format has no JSON between tags.

    Raises `ImportError` if the library is not installed.
    """
    load = PARTIAL_JSON[library]()
    tags = TAGS.get(format)
    if tags is None or tags.calls is not json_calls:
        return None
    return lambda: PartialJsonScanner(tags, load)


SGLANG: Final[Mapping[str, str]] = {
    "hermes": "hermes",
    "qwen3_coder": "qwen3_coder",
    "glm45": "glm45",
    "glm47": "glm47",
    "llama3_json": "llama3",
}
"""Formats, with SGLang's names: those in which SGLang 0.5.23 found the calls of the corpus."""


class SglangScanner:
    """SGLang's streaming parser. It returns names and pieces of arguments by the number of the call."""

    def __init__(self, parser: Any) -> None:
        self._parse = parser.parse_stream_chunk
        self._blocks = Blocks()
        self._calls: dict[int, tuple[str, list[str]]] = {}

    def feed(self, delta: str) -> list[Event]:
        """Returns the events that the delta adds. Calls are returned at the end, because SGLang does not report the end
        of a call."""
        out: list[Event] = []
        text, items = self._parse(delta)
        self._blocks.text(text, out)
        for item in items:
            if item.name:
                self._calls[item.tool_index] = (item.name, [])
            if item.parameters:
                self._calls[item.tool_index][1].append(item.parameters)
        return out

    def finish(self) -> list[Event]:
        """Returns the events of the calls."""
        out: list[Event] = []
        self._blocks.calls([(name, "".join(pieces)) for name, pieces in self._calls.values()], out)
        return out


def sglang(format: str, tools: Sequence[Mapping[str, Any]]) -> Callable[[], SglangScanner] | None:
    """Returns a factory of SGLang's parser for these tools; None if it has none for the format.

    Raises `ImportError` if SGLang is not installed.
    """
    parser = import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser
    tool = import_module("sglang.srt.entrypoints.openai.protocol").Tool
    name = SGLANG.get(format)
    if name is None:
        return None
    offered = [tool.model_validate(each) for each in tools]
    return lambda: SglangScanner(parser(offered, name))
