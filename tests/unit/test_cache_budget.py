"""One budget for all caches (R33.1): what is asked for beyond it is evicted, and what was evicted is gone."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import read_config, serving
from tests.unit.hostile_entries import FILLS, MIB, MOST_ENTRIES, OTHERS, Asked, budget_bytes, pattern_schema
from toolwire.config import DEFAULT_CHAIN
from toolwire.formats.engine.toolset import MAX_NOTES_BYTES, ToolSet, note, note_of
from toolwire.model import ToolSpec
from toolwire.pipeline.exchange.caches import CACHES
from toolwire.pipeline.handlers.status import METRICS
from toolwire.schemas.schema import SchemaCache, SchemaProblem, ToolSchema, ToolSchemas, compile_schema
from toolwire.support.cache import ENTRY_BYTES, SHARE, CacheBudget, CacheUse, chars_of, weight_of

ROOT: Final = Path(__file__).parents[2]

# --- the budget ----------------------------------------------------------------------------------------------------

MOCK: Final = {"backends": {"mock": {"kind": "mock", "script": ["ok"]}}}
WHAT = st.sampled_from(["put", "get", "grow", "drop"])
STEPS = st.lists(st.tuples(WHAT, st.sampled_from("ab"), st.integers(0, 5), st.integers(-300, 4000)), max_size=60)


@given(steps=STEPS)
def test_law_sums_are_right_and_never_beyond_the_budget(steps: list[tuple[str, str, int, int]]) -> None:
    reported: dict[str, CacheUse] = {}
    budget = CacheBudget(SHARE * 3_000, lambda name, use: reported.update({name: use}))
    caches = {name: budget.cache(name) for name in "ab"}
    for what, name, key, number in steps:
        cache = caches[name]
        match what:
            case "put":
                kept = cache.put(key, number, abs(number))
                assert kept is (cache.get(key) is not None)
            case "get":
                cache.get(key)
            case "grow":
                cache.grow(key, number)
            case "drop":
                cache.drop(key)
                assert cache.get(key) is None
        entries = [entry for one in caches.values() for entry in one._entries.values()]
        assert budget.held == sum(entry.weight for entry in entries) == sum(use.bytes for use in budget.use.values())
        assert set(budget._order) == set(entries)
        assert budget.held <= budget.most
        assert {name: use.entries for name, use in reported.items()} == {name: len(one) for name, one in caches.items()}


def test_the_least_recently_used_entry_goes_whichever_cache_it_is_in() -> None:
    budget = CacheBudget(SHARE * (1_000 + ENTRY_BYTES + 64))
    one, other = budget.cache("one"), budget.cache("other")
    for number in range(SHARE):
        (one if number % 2 else other).put(number, number, 1_000)
    assert other.get(0) == 0
    assert one.put("new", "new", 1_000)
    assert (other.get(0), one.get(1), one.get("new")) == (0, None, "new")


def test_an_entry_that_is_too_heavy_is_not_kept_and_nothing_is_evicted_for_it() -> None:
    budget = CacheBudget(SHARE * 10_000)
    cache = budget.cache("a")
    assert cache.put("small", 1, 10)
    assert not cache.put("large", 1, 10_000)
    assert (cache.get("large"), cache.get("small")) == (None, 1)
    cache.grow("small", 10_000)
    assert (cache.get("small"), budget.held) == (None, 0)


def test_weights_and_sizes_of_json() -> None:
    text = "x" * 1_000
    assert weight_of(text) == sys.getsizeof(text) == weight_of(text, text)
    assert weight_of({"a": [text, {"b": text}]}) > 1_000
    assert weight_of([text], ["y" * 1_000]) > 2_000
    assert 1_000 < chars_of({"a": [text]}, 5_000) < 1_100
    assert chars_of(["x" * 10] * 1_000, 50) < 2_000, "counts no further than it has to"


# --- each cache ----------------------------------------------------------------------------------------------------


async def test_each_cache_of_an_application_can_be_filled_here() -> None:
    """A cache that has no entry in `FILLS` is not tested."""
    config = read_config({**MOCK, "chain": [*DEFAULT_CHAIN[:3], "cache", *DEFAULT_CHAIN[3:]]})
    async with serving(config) as server:
        assert server.app[CACHES].use.keys() == FILLS.keys()
        assert server.app[CACHES].most == config.limits.cache_bytes


@pytest.mark.usefixtures("earlier_frozen")
@every("name", FILLS)
def test_a_cache_that_asks_for_several_budgets_keeps_one(name: str) -> None:
    asked = Asked(budget_bytes(name))
    budget = asked.budget
    fill = FILLS[name](budget)
    early: list[weakref.ref[Any]] = []
    for number in range(MOST_ENTRIES):
        value = fill(number)
        if len(early) < 5 and type(value).__weakrefoffset__:
            early.append(weakref.ref(value))
        del value
        assert budget.held <= budget.most
        if asked.total[name] >= 3 * budget.most:
            break
    assert asked.total[name] >= 3 * budget.most
    assert asked.evicted[name] > 0
    gc.collect()
    assert [ref() for ref in early if ref() is not None] == [], "what was evicted is gone"


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the system does not say how much memory a process has"
)
def test_a_process_grows_by_no_more_than_the_budget() -> None:
    """Weights are what is really kept: filled three times over, the caches take no more than the budget, and a quarter
    and 16 MiB for what allocators lose."""
    command = [sys.executable, "-m", "tests.unit.hostile_entries"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    grown = {name: int(size) for name, size in map(str.split, said.splitlines())}
    assert grown.keys() == {*FILLS, *OTHERS}
    most = {name: budget_bytes(name.partition("/")[0]) * 5 // 4 + 16 * MIB for name in grown}
    assert {name: size for name, size in grown.items() if size > most[name]} == {}


async def test_metrics_say_what_is_kept() -> None:
    async with serving(read_config(MOCK)) as server:
        app = server.app
        SchemaCache(app[CACHES]).get({"type": "object", "title": "kept"})
        page = app[METRICS].page()[0].decode()
        held = app[CACHES].use["schemas"].bytes
    assert f'toolwire_cache_bytes{{contents="schemas"}} {float(held)}' in page
    assert 'toolwire_cache_entries{contents="schemas"} 1.0' in page
    assert 'toolwire_cache_evictions_total{contents="schemas"} 0.0' in page


# --- notes of tools ------------------------------------------------------------------------------------------------


def test_notes_are_weighed_with_the_set_that_they_were_made_of() -> None:
    grown: list[int] = []
    tools = ToolSet([ToolSpec("a"), ToolSpec("b")], grow=grown.append)
    chosen = ToolSet(tools[:1], of=tools)
    note(tools, "chosen", chosen, 100)
    note(chosen, "text", "x", 1_000)
    assert sum(grown) == tools.noted_bytes > 1_100
    note(tools, "too large", "x", MAX_NOTES_BYTES)
    assert note_of(tools, "too large") is None
    note(tools, "large", "x", MAX_NOTES_BYTES - 2_000)
    assert note_of(tools, "chosen") is None, "the others had to go"
    assert sum(grown) == tools.noted_bytes <= MAX_NOTES_BYTES
    note(chosen, "more", "x", 5_000)  # a request that still runs
    assert sum(grown) == tools.noted_bytes


def test_the_key_of_a_note_has_weight() -> None:
    tools = ToolSet([ToolSpec("a")])
    note(tools, ("choice", ("a" * 10_000,)), 1, 0)
    assert tools.noted_bytes > 10_000


# --- schemas -------------------------------------------------------------------------------------------------------


@every("size", [1, 50, 110, 220, 440])
def test_larger_automata_weigh_more(size: int) -> None:
    schema = compile_schema(pattern_schema(1, size, 1))
    assert schema.pattern_bytes >= 600 * size
    assert schema.weight > schema.pattern_bytes


def test_patterns_beyond_the_bound_are_dropped() -> None:
    schema = compile_schema(pattern_schema(1, 440, 32))
    assert 0 < schema.pattern_bytes <= 2 * 1024 * 1024
    assert 0 < schema.dropped < 32
    assert schema.check('{"p0": "x"}') is not None, "the first ones are checked"
    assert schema.check('{"p31": "x"}') is None
    assert compile_schema(pattern_schema(1, 440, 32), patterns=False).check('{"p0": "x"}') is None


def test_the_patterns_of_all_strict_tools_have_a_bound() -> None:
    schema, schemas = compile_schema(pattern_schema(1, 440, 32)), ToolSchemas()
    for name in "ab":
        schemas.put(name, lambda patterns: schema, strict=True)
    with pytest.raises(SchemaProblem, match="of this and earlier tools take more than 4194304 bytes"):
        schemas.put("c", lambda patterns: schema, strict=True)


@every(
    "bind",
    [
        lambda schema: {**schema, "required": [*schema["properties"]], "additionalProperties": False},
        lambda schema: {"type": "object", "not": schema},
        lambda schema: {
            "type": "object",
            "patternProperties": {part["pattern"]: {} for part in schema["properties"].values()},
        },
    ],
)
@every("patterns", [True, False])
def test_patterns_that_cannot_be_dropped_are_refused_beyond_the_bound(bind: Any, patterns: bool) -> None:
    strict = bind(pattern_schema(1)).get("required") is not None
    few = compile_schema(bind(pattern_schema(1, 440, 2)), strict=strict, patterns=patterns)
    assert few.dropped == 0
    with pytest.raises(SchemaProblem, match="take more than 2097152 bytes when compiled"):
        compile_schema(bind(pattern_schema(1, 440, 32)), strict=strict, patterns=patterns)


def test_problems_keep_no_schema() -> None:
    cache = SchemaCache(CacheBudget())
    for _ in range(2):
        with pytest.raises(SchemaProblem):
            cache.get({"type": "object", "properties": {"a": {"type": "x" * 1_000}}})
    (entry,) = cache._known._entries.values()
    assert isinstance(entry.value, SchemaProblem)
    assert entry.value.__traceback__ is None
    assert entry.weight < 4_000
    assert not [one for one in gc.get_referrers(entry.value) if isinstance(one, ToolSchema)]


# --- caches that are in no budget ----------------------------------------------------------------------------------

UNBUDGETED: Final[Mapping[str, str]] = {
    "keyed by what is known of a server's kind": "upstream/servers/adapt.py:_decided_by_itself",
    "keyed by the secrets of the configuration": """
        upstream/servers/private_data.py:_parts upstream/servers/private_data.py:forms
    """,
    "64 of at most 256 bytes": "upstream/client/wire_answer.py:_media_type",
    "keyed by grammars, formats and settings, which the configuration and the code make": """
        call_policy/assembly.py:_own_syntax call_policy/assembly.py:is_line call_policy/json_calls.py:_head
        formats/base.py:escaping_for formats/base.py:escaping_in_calls formats/recognised/brackets.py:reading_brackets
        formats/recognised/recognition.py:recognised_markers formats/recognised/recognition.py:recognising
        pipeline/scanning/preopened.py:keep_closing_tags pipeline/scanning/preopened.py:marks_of
        pipeline/scanning/preopened.py:pairs_of pipeline/scanning/scanners.py:not_taught
        prompting/transcript.py:turn_escaping scan/_grammar.py:only scan/_grammar.py:without_calls
        scan/_plan.py:_own_nodes scan/_plan.py:plan scan/_plan.py:quoted_calls scan/blocks.py:_whole
        scanner.py:reasoning_tags scanner.py:signs_of scanner.py:triggers
    """,
    "one of at most 65,536 characters": "call_policy/near.py:_is_template call_policy/near.py:_says_something",
    "one value": "formats/base.py:builtin_formats formats/base.py:control_tokens formats/base.py:_defined",
    "1,024 of at most 256 characters; values are names of formats": "formats/model_families.py:_format_for",
    "64 of at most 65,536 characters; values are names of formats": "formats/model_families.py:_format_of_template",
    "keyed by types of the code": """
        pipeline/chain/plain.py:_both pipeline/paths/stream_paths.py:_copies_text support/conversion.py:hints_of
    """,
    "files of the package": """
        extras/tune/cases.py:_shipped protocols/shared/request_schema.py:_compiled
        protocols/shared/request_schema.py:_schema
    """,
    "16 of at most 64 characters": "protocols/responses/ids.py:_stem",
    "the names of events that the gateway writes itself": "protocols/responses/output.py:head_of",
    "what is installed": "registry.py:_installed",
    "16, each of the names of the tools of a request: `limits.tools_max`, 128 characters each": "scan/_plan.py:heads",
    "as `heads`": "scan/loose_head.py:loose_words scan/loose_head.py:_indexed call_policy/near.py:_indexed",
    "one function of the C library": "support/allocator.py:_trim",
}
"""Why what functions of `proxy` remember is bounded, and these functions."""
_STATE: Final = "what one answer or one text has still to say, not a cache"
EVICTING: Final[Mapping[str, str]] = {
    "proxy/formats/engine/escaping.py:_with_backslashes:out": _STATE,
    "proxy/extras/inspector/ring.py:_drop:self._gone": "ids and numbers of captures, which the inspector's own bounds count",
    "proxy/known/past.py:save_in:self._lists": "weighed with the conversation that it belongs to",
    "proxy/observability/telemetry.py:_count:self._counted_at": "`SERIES_PER_FAMILY` of bounded labels",
    "proxy/observability/telemetry.py:_place:self._places": "`SERIES_PER_FAMILY` of bounded labels",
    "proxy/pipeline/paths/relay.py:_cut:rest": _STATE,
    "proxy/pipeline/exchange/routing.py:find:self._found": "1,024 names of at most 256 characters; values are routes",
    "proxy/pipeline/exchange/routing.py:format_for:self._formats": "1,024 names of at most 256 characters; values are formats",
    "proxy/pipeline/scanning/preopened.py:_keep:values": "256 digests, or sentences for the log",
    "proxy/scan/parts/block.py:_read_node:word": _STATE,
    "proxy/support/lines.py:feed:self._held": _STATE,
}
"""Dictionaries that forget when they are full, and why they are in no budget."""

_REMEMBERS: Final = {"lru_cache", "cache"}
_ABOUT_CACHES: Final = re.compile(r"\bcache\b|\blru_cache\b|\.clear\b|\.popitem\b")
"""In each file that the tests below could find something in."""


@pytest.fixture(scope="module")
def parsed() -> list[tuple[str, ast.Module]]:
    files = [path for folder in ("proxy", "middlewares") for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in files}
    return [(name, ast.parse(text)) for name, text in texts.items() if _ABOUT_CACHES.search(text)]


def _name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_functions_that_remember_are_bounded_for_a_reason(parsed: list[tuple[str, ast.Module]]) -> None:
    found = {
        f"{path}:{node.name}"
        for path, tree in parsed
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(_name(one) in _REMEMBERS for one in node.decorator_list)
    }
    assert found == {f"proxy/{name}" for names in UNBUDGETED.values() for name in names.split()}
    called = {
        f"{path}:{node.lineno}"
        for path, tree in parsed
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node) in _REMEMBERS and isinstance(node.func, ast.Call)
    }
    assert not called, "as a decorator, so that it has a name here"


def _forgets(node: ast.AST) -> Iterator[str]:
    """The attributes that a function clears, or takes the oldest entry of, because they are full."""
    for step in ast.walk(node):
        if not isinstance(step, ast.If | ast.While):
            continue
        for call in (inner for statement in step.body for inner in ast.walk(statement)):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            forgets = call.func.attr == "clear" or (call.func.attr == "popitem" and call.keywords)
            if forgets and "len(" in ast.unparse(step.test):
                yield ast.unparse(call.func.value)


def test_dictionaries_that_forget_are_bounded_for_a_reason(parsed: list[tuple[str, ast.Module]]) -> None:
    found = {
        f"{path}:{node.name}:{what}"
        for path, tree in parsed
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for what in _forgets(node)
    }
    assert found == EVICTING.keys()
