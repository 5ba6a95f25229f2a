"""Laws of the scanner: both implementations give the same events, cuts never show, and the oracle reads the same (R1.3,
R6.5)."""

from __future__ import annotations

import re
from dataclasses import asdict
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.cases import examples
from tests.parse import oracle
from tests.parse.conftest import load
from tests.parse.oracle import Settings, valid
from tests.parse.policies import KeepingPolicy, WordPolicy
from tests.parse.texts import GRAMMARS, cuts, texts, texts_of
from tests.parse.texts import settings as any_settings
from toolwire.events import BlockKind, Delta, Event, Fault, Finish, Open, Start
from toolwire.scan._grammar import WORD_BYTES, Grammar
from toolwire.stream_grammar import check, normalise

pytestmark = pytest.mark.twin

FRAMED = ("section", "families", "headers", "endings")
"""Grammars with framing, which vanishes."""

ANY = {name: st.one_of(texts_of(grammar), texts_of(grammar), texts) for name, grammar in GRAMMARS.items()}
FENCES = r"(?:`{3,}[\w.:/-]*)*"
"""Lines of fences, without whitespace."""


def scan(
    module: ModuleType, grammar: Grammar, policy: WordPolicy, settings: Settings, pieces: Any, truncated: bool = False
) -> tuple[list[Event], list[Any]]:
    """All events, and what could be seen at each step."""
    scanner = module.CallScanner(grammar, policy, **asdict(settings))
    events: list[Event] = []
    seen: list[Any] = []
    for piece in pieces:
        found = scanner.feed(piece)
        events += found
        seen.append((found, scanner.state, scanner.held, scanner.next_block))
    found = scanner.finish(truncated)
    seen.append((found, scanner.state, scanner.held, scanner.next_block))
    return events + found, seen


@pytest.mark.parametrize("name", list(GRAMMARS))
@given(st.data(), any_settings, st.booleans(), st.booleans())
def test_twins_and_oracle_agree_for_every_split(
    name: str, data: st.DataObject, settings: Settings, strict: bool, truncated: bool
) -> None:
    """And the twins not only with the same events: in the same pieces, with the same state and text held back."""
    grammar, policy = GRAMMARS[name], WordPolicy(strict)
    text = data.draw(ANY[name])
    note(repr(text))
    expected = oracle.parse(text, grammar, policy, settings, truncated)
    pieces = data.draw(cuts(text))
    told: list[list[str]] = []
    shown: list[list[Any]] = []
    for module in modules():
        own = WordPolicy(strict)
        events, seen = scan(module, grammar, own, settings, pieces, truncated)
        assert normalise(events) == expected
        assert own.log == policy.log
        told.append(own.begun)
        shown.append(seen)
        stream = [Start("", "", 0), *events]
        check(stream if events and isinstance(events[-1], Fault) else [*stream, Finish()])
    assert all(begun == told[0] for begun in told)
    assert all(seen == shown[0] for seen in shown)
    check_held(grammar, settings, shown[0])


def check_held(grammar: Grammar, settings: Settings, seen: list[Any]) -> None:
    """Outside blocks nothing but pending whitespace and less than a marker is held back (R1.4). Before a marker may
    stand the line of a fence, and behind a closing tag in inline code the rest of its line."""
    tags = [tag for pair in settings.reasoning for tag in pair]
    longest = max(len(marker.encode()) for marker in [*(syntax.opener for syntax in grammar.syntaxes), *tags, " "])
    for _, state, held, _ in seen:
        if state in ("text", "reasoning"):
            waits = held.lstrip(" \t\r\n")
            looks_on = waits.startswith("`") or (state == "reasoning" and waits.startswith(tuple(tags)))
            assert len(waits.encode()) < longest + (WORD_BYTES if looks_on else 0)


def modules() -> list[ModuleType]:
    """Both twins. Skips the test where the compiled one is turned off."""
    return [load(name) for name in ("python", "compiled")]


@pytest.mark.parametrize("name", [name for name in GRAMMARS if name not in FRAMED])
@examples(0.5)
@given(st.data(), st.booleans())
def test_nothing_is_lost(name: str, data: st.DataObject, trim: bool) -> None:
    """Visible text and the sources of calls are the whole input, but for whitespace beside calls, and the lines of
    their fence, of which each holds no more than a word."""
    text = data.draw(texts_of(GRAMMARS[name]))
    note(repr(text))
    pieces = data.draw(cuts(text))
    for module in modules():
        events, _ = scan(module, GRAMMARS[name], KeepingPolicy(), Settings(trim_edges=trim), pieces)
        calls = {e.block: e.extra["source"] for e in events if isinstance(e, Open) and e.kind is BlockKind.TOOL_CALL}
        found = "".join(
            f"{FENCES}{plain(calls[e.block])}{FENCES}" if isinstance(e, Open) else plain(e.text)
            for e in events
            if (isinstance(e, Open) and e.block in calls) or (isinstance(e, Delta) and e.block not in calls)
        )
        assert re.fullmatch(found, "".join(valid(text).split()))


def plain(text: str) -> str:
    """The text without whitespace, as a pattern."""
    return re.escape("".join(text.split()))


@given(st.data(), st.text(), any_settings)
def test_text_without_an_opener_comes_back_byte_for_byte(data: st.DataObject, text: str, settings: Settings) -> None:
    pieces = data.draw(cuts(text.replace("<", "")))
    settings = Settings(settings.block_bytes, settings.trim_edges, (("<think>", "</think>"),))
    for module in modules():
        events, _ = scan(module, GRAMMARS["sentinel"], WordPolicy(), settings, pieces)
        assert "".join(e.text for e in events if isinstance(e, Delta)) == valid(text.replace("<", ""))


def test_a_delta_of_prose_goes_out_as_it_came(twin: ModuleType) -> None:
    """One event a delta, holding the very object that was fed."""
    scanner = twin.CallScanner(GRAMMARS["sentinel"], WordPolicy(), reasoning=(("<think>", "</think>"),))
    first, second = "".join(["one", " two"]), "".join([" three", " föur"])
    opened, delta = scanner.feed(first)
    assert isinstance(opened, Open)
    assert opened.kind is BlockKind.TEXT
    assert delta.text is first
    (delta,) = scanner.feed(second)
    assert delta.text is second
    assert delta == Delta(0, " three föur")


def test_every_split_of_a_real_answer_in_two(twin: ModuleType) -> None:
    text = (
        "<think>Hm: <tool_call>{}</tool_call>?</think>\n\nIch lese „übung“ 😀 <tool_call> nennt man so.\n"
        '<tool_call>\n{"name":"x","arguments":"{\\"p\\":\\"</tool_call>\\\\u00e9\\"}"}\n</tool_call>\n'
        '<tool_call>{"x": [1, {"y": null},],}</tool_call> und fertig. \n'
    )
    settings = Settings(reasoning=(("<think>", "</think>"),))
    expected = oracle.parse(text, GRAMMARS["sentinel"], WordPolicy(), settings)
    assert [e.kind.value for e in expected if isinstance(e, Open)] == [
        *["reasoning", "text", "tool_call", "tool_call", "text"]
    ]
    data = text.encode()
    for at in range(len(data) + 1):
        events, _ = scan(twin, GRAMMARS["sentinel"], WordPolicy(), settings, [data[:at], data[at:]])
        assert normalise(events) == expected
    for at in range(len(text) + 1):
        events, _ = scan(twin, GRAMMARS["sentinel"], WordPolicy(), settings, [text[:at], text[at:]])
        assert normalise(events) == expected
