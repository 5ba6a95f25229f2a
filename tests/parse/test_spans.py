"""Where blocks and tags stand: the spans that the scanner reports."""

from __future__ import annotations

from dataclasses import asdict
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.cases import examples
from tests.parse.conftest import load
from tests.parse.oracle import Settings, valid
from tests.parse.policies import WordPolicy
from tests.parse.test_laws import modules
from tests.parse.texts import GRAMMARS, cuts, texts, texts_of
from tests.parse.texts import settings as any_settings
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import CallsConfig, LimitsConfig, RouteOptions
from toolwire.events import BlockKind, Delta, Event, Open
from toolwire.formats.recognised.recognition import recognising
from toolwire.model import ToolChoice, ToolSpec
from toolwire.registry import registries
from toolwire.scan._grammar import Grammar
from toolwire.scan.spans import Span

TAGS = (("<think>", "</think>"),)
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
BROKEN = '<tool_call>{"name": "f", "arguments": {"ü": }}</tool_call>'
Reported = tuple[int, int, str, int, bool]


def scan(
    module: ModuleType, grammar: Grammar, policy: Any, pieces: Any, truncated: bool = False, **options: Any
) -> tuple[list[Event], list[Span]]:
    spans: list[Span] = []
    scanner = module.CallScanner(grammar, policy, on_span=spans.append, **options)
    events = [event for piece in pieces for event in scanner.feed(piece)]
    return events + scanner.finish(truncated), spans


def reported(spans: list[Span]) -> list[Reported]:
    """What of spans can be compared: a decision may hold an error, which equals no other."""
    return [(one.start, one.end, one.kind, one.calls, vanishes(one)) for one in spans]


def vanishes(span: Span) -> bool:
    """Nothing of the span's text goes out as text."""
    decision = span.decision
    return span.kind != "block" or bool(span.calls) or decision.drop or decision.error is not None


def plain(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", list(GRAMMARS))
@examples(0.5)
@given(st.data(), any_settings, st.booleans(), st.booleans())
def test_spans_are_the_same_in_both_twins_and_for_every_split(
    name: str, data: st.DataObject, settings: Settings, strict: bool, truncated: bool
) -> None:
    text = data.draw(st.one_of(texts_of(GRAMMARS[name]), texts))
    note(repr(text))
    pieces = data.draw(cuts(text))
    found = [
        reported(scan(module, GRAMMARS[name], WordPolicy(strict), some, truncated, **asdict(settings))[1])
        for module in modules()
        for some in ([text], pieces)
    ]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("name", list(GRAMMARS))
@examples(0.5)
@given(st.data(), any_settings, st.booleans())
def test_what_is_in_no_span_goes_out_and_nothing_else(
    name: str, data: st.DataObject, settings: Settings, truncated: bool
) -> None:
    """Whitespace aside. Blocks and tags stand in order, each where its text says."""
    text = valid(data.draw(st.one_of(texts_of(GRAMMARS[name]), texts)))
    note(repr(text))
    raw = text.encode()
    for module in modules():
        events, spans = scan(module, GRAMMARS[name], WordPolicy(), [text], truncated, **asdict(settings))
        gone = [one for one in spans if vanishes(one)]
        places = [0, *(place for one in gone for place in (one.start, one.end)), len(raw)]
        assert places == sorted(places)
        blocks = {e.block: e for e in events if isinstance(e, Open)}
        calls = [e for e in blocks.values() if e.kind is BlockKind.TOOL_CALL]
        assert len(calls) == sum(one.calls for one in spans)
        for one in gone:
            if one.calls:
                assert calls.pop(0).extra["source"].encode() == raw[one.start : one.end]
                del calls[: one.calls - 1]
            elif one.kind in ("reasoning", "text"):
                tags = [pair[one.kind == "text"] for pair in settings.reasoning]
                assert raw[one.start : one.end].decode() in tags
        if any(one.decision.replacement is not None for one in spans):
            continue
        said = "".join(e.text for e in events if isinstance(e, Delta) and blocks[e.block] not in calls_of(events))
        stays = b"".join(raw[a:b] for a, b in zip(places[::2], places[1::2], strict=True))
        assert plain(said) == plain(stays.decode())


def calls_of(events: list[Event]) -> list[Open]:
    return [e for e in events if isinstance(e, Open) and e.kind is BlockKind.TOOL_CALL]


TOOLS = (ToolSpec("f", parameters={"type": "object", "properties": {"a": {"type": "integer"}}}),)


def policy_of(tools: tuple[ToolSpec, ...] = TOOLS) -> CallPolicy:
    options = RouteOptions(calls=CallsConfig())
    return CallPolicy(tools, choice=ToolChoice(), parallel=True, options=options, limits=LimitsConfig())


KINDS: dict[str, tuple[str, list[tuple[str, str, int]]]] = {
    "prose": ("Grüße", []),
    "a call behind text that is not ASCII": (f"Grüße \U0001f680 {CALL} B", [("block", CALL, 1)]),
    "tags": ("<think>Hm</think>.", [("reasoning", "<think>", 0), ("text", "</think>", 0)]),
    "a call in reasoning is reasoning": (
        f"<think>{CALL}</think>",
        [("reasoning", "<think>", 0), ("text", "</think>", 0)],
    ),
    "a tool that is not on offer": (CALL.replace('"f"', '"g"'), [("block", CALL.replace('"f"', '"g"'), 0)]),
    "a fence of its own": (
        f"A\n```xml\n{CALL}\n```",
        [("framing", "```xml\n", 0), ("block", CALL, 1), ("framing", "\n```", 0)],
    ),
    "a form that was not taught": (
        'A\n```json\n{"name": "f", "arguments": {"a": 1}}\n```',
        [("block", '```json\n{"name": "f", "arguments": {"a": 1}}\n```', 1)],
    ),
    "a call in an unknown form behind a block that is text": (
        f"{BROKEN}\n<f><a>1</a></f>",
        [("block", BROKEN, 0), ("block", "<f><a>1</a></f>", 1)],
    ),
}


@pytest.mark.parametrize("case", KINDS)
def test_what_is_reported(twin: ModuleType, case: str) -> None:
    text, expected = KINDS[case]
    grammar = recognising(registries().formats.get("hermes").grammar, "any")
    for pieces in ([text], list(text), [text.encode()[at : at + 1] for at in range(len(text.encode()))]):
        _, spans = scan(twin, grammar, policy_of(), pieces, reasoning=TAGS)
        raw = text.encode()
        assert [(one.kind, raw[one.start : one.end].decode(), one.calls) for one in spans] == expected


def test_calls_that_are_streamed_while_they_come_count(twin: ModuleType) -> None:
    """One was closed when the next began: the span of their block has all of them."""
    both = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "f", "arguments": {"a": 2}}]'
    grammar = registries().formats.get("mistral").grammar
    for pieces in ([both], list(both)):
        events, spans = scan(twin, grammar, policy_of(), pieces, stream_after=0)
        assert len(calls_of(events)) == 2
        assert [(one.kind, one.start, one.end, one.calls) for one in spans] == [("block", 0, len(both), 2)]


def test_a_call_that_was_withdrawn_counts(twin: ModuleType) -> None:
    cut = '<tool_call>{"name": "f", "arguments": {"a": 1'
    grammar = registries().formats.get("hermes").grammar
    events, spans = scan(twin, grammar, policy_of(), list(cut), truncated=True, stream_after=0)
    assert len(calls_of(events)) == 1
    assert [(one.start, one.end, one.calls, one.decision.drop) for one in spans] == [(0, len(cut), 1, True)]


def test_text_that_goes_past_feed_counts(twin: ModuleType) -> None:
    """`pass_on` takes text that the chunk gate has looked at."""
    grammar = registries().formats.get("hermes").grammar
    spans: list[Span] = []
    scanner = twin.CallScanner(grammar, policy_of(), on_span=spans.append)
    scanner.feed("Grüße")
    assert scanner.pass_on(" aus Köln") == " aus Köln"
    scanner.feed(CALL)
    scanner.finish()
    before = len("Grüße aus Köln".encode())
    assert [(one.start, one.end) for one in spans] == [(before, before + len(CALL))]


def test_nobody_has_to_look() -> None:
    """Without an observer nothing is reported, and nothing else changes."""
    grammar = registries().formats.get("hermes").grammar
    for name in ("python", "compiled"):
        scanner = load(name).CallScanner(grammar, policy_of())
        assert [type(event).__name__ for event in scanner.feed(CALL)] == ["Open", "Delta", "Close"]
