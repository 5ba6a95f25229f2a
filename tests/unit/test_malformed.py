"""SC-009: at least 95 % of malformed blocks, arguments and schemas are detected; no crash, no wrong call."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.malformed import TOOLS, BadBlock, bad_arguments, bad_blocks, bad_tools, meant
from toolwire.errors import ModelFault
from toolwire.events import Fault, Finish, Start
from toolwire.folding import fold
from toolwire.model import ToolSpec
from toolwire.scanner import open_scanner
from toolwire.schemas.schema import SchemaProblem, check_tool_schema, compile_schema, validate_tool_name

SEED = 9
LEAST = 0.95


def report(name: str, detected: Sequence[bool], capsys: pytest.CaptureFixture[str]) -> None:
    """Print the share, and hold it against the bound."""
    share = sum(detected) / len(detected)
    with capsys.disabled():
        print(f"\nSC-009 {name}: {sum(detected)} of {len(detected)} detected ({share:.1%})")
    assert share >= LEAST


def is_detected(item: BadBlock, *, strict: bool) -> bool:
    """Run one answer through scanner, policy and schema check."""
    counts: Counter[str] = Counter()
    tools = [replace(tool, strict=strict) for tool in TOOLS]
    scanner = open_scanner(tools=tools, count=lambda name: counts.update([name]))
    events = [*scanner.feed(item.answer), *scanner.finish(truncated=item.truncated)]
    if events and isinstance(events[-1], Fault):
        assert isinstance(events[-1].error, ModelFault)
        return True
    reply = fold([Start("r", "m", 0), *events, Finish()])
    if not reply.calls:
        # Nothing is lost: what is no call stays text, word for word, unless it was cut off for length.
        assert reply.text == item.answer or counts["truncated_calls"]
        return True
    (call,) = reply.calls
    value = json.loads(call.arguments)
    if (call.name, value) == (item.meant.tool.name, item.meant.arguments):
        return counts["repaired"] == 1
    parameters = next(tool.parameters for tool in TOOLS if tool.name == call.name)
    return compile_schema(parameters).check(call.arguments) is not None


def is_refused(tool: ToolSpec) -> bool:
    """The gateway does not take the tool from a client."""
    if not validate_tool_name(tool.name):
        return True
    try:
        check_tool_schema(tool.parameters, strict=tool.strict is True)
    except SchemaProblem:
        return True
    return False


def test_the_corpus_is_large_enough_and_reproducible() -> None:
    blocks, arguments, tools = list(bad_blocks(SEED, 12)), list(bad_arguments(SEED, 25)), list(bad_tools())
    assert len(blocks) >= 500
    assert len(arguments) >= 250
    assert len(tools) >= 100
    assert blocks == list(bad_blocks(SEED, 12))
    assert arguments == list(bad_arguments(SEED, 25))


def test_what_the_corpus_breaks_was_in_order() -> None:
    rng = random.Random(SEED)
    for _ in range(100):
        call = meant(rng)
        assert compile_schema(call.tool.parameters).check(json.dumps(call.arguments)) is None
    for tool in TOOLS:
        assert not is_refused(tool)


def test_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    report("blocks, soft", [is_detected(item, strict=False) for item in bad_blocks(SEED, 12)], capsys)


def test_blocks_for_strict_tools(capsys: pytest.CaptureFixture[str]) -> None:
    detected = [is_detected(item, strict=True) for item in bad_blocks(SEED, 12)]
    report("blocks, strict", detected, capsys)
    assert all(detected), "a strict tool never gets a call that the model did not write"


def test_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    items = list(bad_arguments(SEED, 25))
    missed = [item for item in items if compile_schema(item.tool.parameters).check(item.arguments) is None]
    report("arguments", [item not in missed for item in items], capsys)
    assert not missed


def test_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    report("schemas", [is_refused(item.tool) for item in bad_tools()], capsys)
