"""The built-in texts, created from the formats' own rendering with a random seed. Each case contains its expected
calls.

| case | content |
| --- | --- |
| prose | ordinary text without a call |
| calls | only calls with small arguments |
| mixed | prose before, between and after calls; accents, emoji, escapes, nested values |
| 10 KB, 100 KB | one call that writes a file of that size |
| unfinished | many beginnings of calls, none complete: the worst case for text that is held back |
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Final

from ...formats.base import ToolFormat
from ...formats.engine.longjson import compact
from ...model import ToolUse

TOOLS: Final[Sequence[Mapping[str, Any]]] = tuple(
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object", **schema}}}
    for name, schema in {
        "get_weather": {
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "hourly": {"type": "boolean"},
            },
            "required": ["city"],
        },
        "write_file": {
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
            "required": ["path", "content"],
        },
        "search": {
            "properties": {
                "query": {"type": "string"},
                "filters": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
                "limit": {"type": "number"},
            },
            "required": ["query"],
        },
    }.items()
)
"""The tools on offer in all cases."""

_COMMON: Final = (
    "the of and to in is that it was for on are with they be at one have this from by not but what all were when we there "
    "can an your which their said if do will each about how up out them then she many some so these would other into has "
    "more her two like him see time could no make than first been its who now people my made over did down only way find "
    "use may water long little very after words called just where most know function returns value, list. (see above) "
    "`config.yaml` it's don't 42 3.14 naïve café"
)
WORDS: Final = _COMMON.split()
"""Common words, with some that are not ASCII."""
_CITIES: Final = ("Berlin", "São Paulo", "Lima", "Oslo", "Nairobi", "Köln", "東京", "Łódź")
_LINES: Final = (
    "    total = price * 1.19  # € gross\n",
    '    print("done", total)\n',
    "    if a < b and b > c:\n",
    "\n",
    "    return re.sub(r'\\s+', ' ', text)\n",
    "# naïve: 🎉\n",
)


@dataclass(frozen=True, slots=True)
class CorpusCall:
    """A call with parsed arguments, so that spaces and escapes do not matter."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class CorpusCase:
    """A text and the calls in it."""

    name: str
    text: str
    calls: tuple[CorpusCall, ...]


def prose(rng: random.Random, chars: int) -> str:
    """Returns ordinary text of at least this many characters."""
    sentences: list[str] = []
    size = 0
    while size < chars:
        sentence = " ".join(rng.choices(WORDS, k=12)).capitalize() + rng.choice((". ", "? ", ".\n\n"))
        sentences.append(sentence)
        size += len(sentence)
    return "".join(sentences)


def small_call(rng: random.Random) -> CorpusCall:
    """Returns a call with arguments of up to about 100 characters."""
    match rng.randrange(3):
        case 0:
            return CorpusCall(
                "get_weather", {"city": rng.choice(_CITIES), "days": rng.randint(1, 9), "hourly": rng.random() < 0.5}
            )
        case 1:
            return CorpusCall(
                "write_file", {"path": f"src/{rng.choice(WORDS)}.py", "content": "".join(rng.choices(_LINES, k=3))}
            )
        case _:
            tags = rng.sample(("new", "größte", "x/y", "a b"), k=2)
            return CorpusCall(
                "search", {"query": " ".join(rng.choices(WORDS, k=3)), "filters": {"tags": tags}, "limit": 2.5}
            )


def large_call(rng: random.Random, size: int) -> CorpusCall:
    """Returns a call with arguments of about this many bytes of JSON."""
    lines: list[str] = []
    left = size
    while left > 0:
        line = rng.choice(_LINES)
        lines.append(line)
        left -= len(compact(line).encode()) - 2
    return CorpusCall("write_file", {"path": "src/main.py", "content": "".join(lines)})


def rendered(format: ToolFormat, calls: Sequence[CorpusCall]) -> str:
    """Returns the calls as one answer of a model in this format."""
    uses = [ToolUse(f"call_{n}", call.name, compact(call.arguments)) for n, call in enumerate(calls)]
    if format.render_calls is not None:
        return format.render_calls(uses)
    return "\n".join(map(format.render_call, uses))


def unfinished(format: ToolFormat, rng: random.Random, chars: int) -> str:
    """Returns at least this many characters of unfinished calls."""
    one, other = (rendered(format, [CorpusCall(name, {})]) for name in ("a", "b"))
    opener = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    pieces: list[str] = []
    size = 0
    while size < chars:
        piece = opener[: rng.randrange(1, max(len(opener), 2))] + rng.choice((" ", "x ", " no ", ""))
        pieces.append(piece)
        size += len(piece)
    return "".join(["So: ", *pieces])


Build = Callable[[ToolFormat, random.Random], tuple[str, Sequence[CorpusCall]]]


def _prose(format: ToolFormat, rng: random.Random) -> tuple[str, Sequence[CorpusCall]]:
    return prose(rng, 18_000), ()


def _calls(format: ToolFormat, rng: random.Random) -> tuple[str, Sequence[CorpusCall]]:
    calls = [small_call(rng) for _ in range(40)]
    return rendered(format, calls), calls


def _mixed(format: ToolFormat, rng: random.Random) -> tuple[str, Sequence[CorpusCall]]:
    calls: list[CorpusCall] = []
    texts: list[str] = []
    for _ in range(12):
        call = small_call(rng)
        calls.append(call)
        texts += [prose(rng, 400), "\n", rendered(format, [call]), "\n"]
    return "".join([*texts, prose(rng, 200)]), calls


def _large(size: int, format: ToolFormat, rng: random.Random) -> tuple[str, Sequence[CorpusCall]]:
    call = large_call(rng, size)
    return rendered(format, [call]), [call]


def _unfinished(format: ToolFormat, rng: random.Random) -> tuple[str, Sequence[CorpusCall]]:
    return unfinished(format, rng, 18_000), ()


CASES: Final[Mapping[str, Build]] = {
    "prose": _prose,
    "calls": _calls,
    "mixed": _mixed,
    "10 KB": partial(_large, 10_000),
    "100 KB": partial(_large, 100_000),
    "unfinished": _unfinished,
}


def build(name: str, format: ToolFormat, seed: int) -> CorpusCase:
    """Returns the case of this name in a format. The same seed gives the same text."""
    text, calls = CASES[name](format, random.Random(seed))
    return CorpusCase(name, text, tuple(calls))


def growing(kind: str, format: ToolFormat, chars: int, seed: int) -> str:
    """Returns a text of about this many characters: `prose`, or one call (`call`)."""
    rng = random.Random(seed)
    return prose(rng, chars) if kind == "prose" else rendered(format, [large_call(rng, chars)])


def value_of(arguments: str) -> Any:
    """Returns the parsed arguments; text that is not JSON is returned unchanged."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
