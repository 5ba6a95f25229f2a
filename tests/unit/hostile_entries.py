"""Makes each cache of an application ask for as much as a client can make it ask for.

`python -m tests.unit.hostile_entries` fills each cache with entries of three budgets, each in a process of its own, and
prints its name and by how many bytes the process grew.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from toolwire.events import Finish, Start
from toolwire.extras.middlewares import cache as answers
from toolwire.formats.engine.toolset import KnownList, KnownTools, new_set, note
from toolwire.ingress.known_conversations import ConversationLookup, KnownConversations
from toolwire.known.past import fold_items
from toolwire.middlewares import injection
from toolwire.model import Message, Text, ToolSpec
from toolwire.pipeline.exchange.file_texts import FileTexts
from toolwire.schemas.schema import SchemaCache, ToolSchema
from toolwire.support.cache import CacheBudget

Fill = Callable[[int], object]
"""Asks for one more entry, each number for another one. Returns the value, or what only the value holds."""


def pattern_schema(number: int, size: int = 300, patterns: int = 4) -> dict[str, Any]:
    """Short text, large automata."""
    wanted = (f"^(a{{1,{size}}}|b{{1,{size}}}|r{number}i{at})$" for at in range(patterns))
    return _object(*({"type": "string", "pattern": pattern} for pattern in wanted))


def _object(*properties: Any, prefix: str = "p") -> dict[str, Any]:
    return {"type": "object", "properties": {f"{prefix}{at}": one for at, one in enumerate(properties)}}


def _wide(number: int) -> dict[str, Any]:
    return _object(*[{}] * 900, prefix=f"p{number}x")


def _unions(number: int) -> dict[str, Any]:
    return _object(*[{"anyOf": [{"type": "string"}, {"type": "null"}]}] * 600, prefix=f"p{number}x")


def _values(number: int) -> dict[str, Any]:
    return _object({"enum": [f"{number}x{at}" for at in range(9_000)]})


_PATTERNS: Final = (
    pattern_schema,
    lambda number: pattern_schema(number, 440),
    lambda number: pattern_schema(number, 50, 32),
    lambda number: pattern_schema(number, 1, 32),
)
_NODES: Final = (_wide, _unions, _values)


def schemas(budget: CacheBudget, shapes: Sequence[Callable[[int], dict[str, Any]]] = _PATTERNS) -> Fill:
    """Compiled schemas, each used."""
    known = SchemaCache(budget)

    def fill(number: int) -> ToolSchema:
        schema = known.get(shapes[number % len(shapes)](number))
        for text in ("a" * 250, "b" * 250, "ab" * 100):
            schema.check(orjson.dumps({f"p{at}": text for at in range(4)}).decode())
        return schema

    return fill


def schema_parts(budget: CacheBudget) -> Fill:
    """Parts of schemas, compiled to find out what does not fit."""
    known = SchemaCache(budget)

    def fill(number: int) -> object:
        schema = known.get(pattern_schema(number // 4))
        schema.flaws("a" * 250, ("properties", f"p{number % 4}"))
        return schema._part(("properties", f"p{number % 4}"))

    return fill


def tools(budget: CacheBudget) -> Fill:
    """Lists of tools with notes that are longer than the list."""
    known = KnownTools(budget.cache("tools"))

    def fill(number: int) -> KnownList:
        properties = {f"p{at}": {"a": [{}] * 20} for at in range(50)}
        value: dict[str, Any] = {
            "tools": [{"name": f"t{number}", "parameters": {"properties": properties}}, {"name": "x" * 100}]
        }
        known.learn(orjson.dumps(value), value)
        learned = value["tools"]
        assert isinstance(learned, KnownList)
        made = new_set(learned, "chat", [ToolSpec(f"t{number}"), ToolSpec("x")])
        for at in range(20):
            text = f"{number}x{at}" * 3_000
            note(made, ("about", at), text, sys.getsizeof(text))
        return learned

    return fill


def _texts(budget: CacheBudget, name: str) -> Fill:
    middleware = injection.Injection()
    middleware._open(budget)
    texts = middleware._segments if name == "prompts" else middleware._grammars

    def fill(number: int) -> str | None:
        return injection._cached_text(texts, number.to_bytes(16, "big"), lambda: f"é€{number}" * 20_000)

    return fill


def cached_answers(budget: CacheBudget) -> Fill:
    """Answers, as the middleware `cache` keeps them."""
    middleware = answers.Cache()
    middleware._answers = budget.cache("answers")

    def fill(number: int) -> object:
        keeping = answers._Recording(middleware, number.to_bytes(16, "big"))
        start = Start("", "m", 0, {"chat": {"x": [f"{number}y{at}" for at in range(2_000)]}})
        keeping.see(start)
        keeping.see(Finish("stop"))
        return start

    return fill


def file_texts(budget: CacheBudget) -> Fill:
    """Texts of files."""
    texts = FileTexts(budget)

    def fill(number: int) -> str:
        text = f"é€{number}" * 20_000
        texts.keep(number.to_bytes(16, "big"), text)
        return text

    return fill


def conversations(budget: CacheBudget) -> Fill:
    """Conversations of a few bytes for each value, and what stages made of them."""
    known = KnownConversations(budget.cache("conversations"))
    lookup = ConversationLookup(known, b'"messages"', "", "chat")

    def fill(number: int) -> object:
        items = [{"x": [{"a": at}] * 20, "y": f"é€{number}z{at}" * 90, "z": f"a{number}" * 300} for at in range(24)]
        body = orjson.dumps({"messages": items})
        cut = known.cut(body, lookup)
        assert cut is not None
        value = orjson.loads(body)
        known.keep(cut, value, lookup, len(body))
        past = value["messages"].past
        for key in range(3):
            fold_items(
                past, key, value["messages"], 0, lambda carried, more, start, made: made.extend(map(_made, more)) or 0
            )
        return past

    def _made(item: dict[str, Any]) -> Message:
        return Message("user", (Text(item["z"] + "b"), Text(item["z"])), extra={"chat": {"y": item["y"] + "c"}})

    return fill


FILLS: Final[Mapping[str, Callable[[CacheBudget], Fill]]] = {
    "schemas": schemas,
    "schema_parts": schema_parts,
    "tools": tools,
    "prompts": lambda budget: _texts(budget, "prompts"),
    "grammars": lambda budget: _texts(budget, "grammars"),
    "answers": cached_answers,
    "file_texts": file_texts,
    "conversations": conversations,
}
"""By the name of a cache: how it is filled."""
OTHERS: Final[Mapping[str, Callable[[CacheBudget], Fill]]] = {"schemas/nodes": lambda budget: schemas(budget, _NODES)}
"""Other ways to fill a cache, by its name and what it is filled with."""


MIB: Final = 1024 * 1024


def budget_bytes(name: str) -> int:
    """A budget in which the entries that `FILLS` makes for this cache have room."""
    return {"schemas": 32, "schema_parts": 16, "tools": 16}.get(name, 4) * MIB


MOST_ENTRIES: Final = 3_000
"""Asked for at most: no fill needs more for three budgets."""


class Asked:
    """A budget that knows how many bytes its caches have asked for."""

    def __init__(self, most: int) -> None:
        self.total: dict[str, int] = {}
        self.evicted: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self.budget = CacheBudget(most, self._see)

    def _see(self, name: str, use: Any) -> None:
        grown = use.bytes - self._before.get(name, 0)
        self._before[name] = use.bytes
        self.total[name] = self.total.get(name, 0) + max(grown, 0)
        self.evicted[name] = self.evicted.get(name, 0) + use.evicted


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def grown(name: str) -> int:
    """By how many bytes this process grows when a cache is filled."""
    fills, name = {**FILLS, **OTHERS}[name], name.partition("/")[0]
    most = budget_bytes(name)
    asked = Asked(most)
    fill = fills(asked.budget)
    fill(0)
    gc.collect()
    before = resident()
    for number in range(1, MOST_ENTRIES):
        fill(number)
        if asked.total[name] >= 3 * most or resident() - before > 8 * most:
            break
    gc.collect()
    return resident() - before


def main() -> None:
    """The command. The processes are forks of this one, so that the package is imported once."""
    for name in (*FILLS, *OTHERS):
        child = os.fork()
        if not child:
            print(name, grown(name), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name}: failed")


if __name__ == "__main__":
    main()
