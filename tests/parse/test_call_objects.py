"""Calls in other words than those that were taught, streamed: any split, both twins, given out while they come or
not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import examples
from tests.options import route_options
from tests.parse import oracle
from tests.parse.conftest import MODULES, load
from tests.parse.texts import cuts
from toolwire.call_policy.ids import CallIds
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig
from toolwire.events import BlockKind, Delta, Event, Fault, Open
from toolwire.formats.families import hermes, sentinel
from toolwire.formats.families.json_tags import JAMBA
from toolwire.model import ToolChoice, ToolSpec
from toolwire.repair.relaxed_json import parses
from toolwire.stream_grammar import normalise

pytestmark = pytest.mark.twin

STRING = {"type": "string"}
OBJECT = {"type": "object"}


def tool(called: str, *required: str, **properties: Any) -> ToolSpec:
    return ToolSpec(called, parameters={"type": "object", "properties": properties, "required": list(required)})


TOOLS = (
    tool("f", "a", a=STRING, n={"type": "integer"}),
    tool("g", input=STRING, arguments=OBJECT),
    tool("h", arguments=STRING),
    ToolSpec("p", kind="custom"),
)
GRAMMARS = {"sentinel": sentinel.GRAMMAR, "hermes": hermes.GRAMMAR, "jamba": JAMBA.grammar}

inner = st.sampled_from(
    [{"a": "x}"}, {"a": "x", "n": 1}, {}, {"arguments": {"q": "é"}}, {"input": "ls"}, {"z": 1}, "text", None, 5]
)
values = inner | inner.map(json.dumps) | st.just("")
keys = st.sampled_from(
    ["name", "tool", "function", "action", "arguments", "parameters", "args", "input", "id", "type", "a", "n", "z"]
)
called = st.sampled_from(["f", "g", "h", "p", "unknown"])
members = st.dictionaries(keys, values | called, max_size=4)
objects = st.one_of(
    st.tuples(called, members).map(lambda both: {"name": both[0], **both[1]}),
    st.tuples(called, members).map(lambda both: {**both[1], "name": both[0]}),
    st.tuples(called, members).map(lambda both: {"tool": both[0], **both[1]}),
    st.tuples(called, values).map(
        lambda both: {"type": "function", "function": {"name": both[0], "arguments": both[1]}}
    ),
)


def policy() -> CallPolicy:
    numbers = iter(range(1, 100))
    return CallPolicy(
        TOOLS,
        choice=ToolChoice(),
        parallel=True,
        options=route_options(recognise="taught"),
        limits=LimitsConfig(),
        ids=CallIds(new_id=lambda: f"call_{next(numbers)}"),
    )


def plain(events: list[Event]) -> list[Event]:
    """Without what only a call that was held back knows when it opens."""
    for event in events:
        if isinstance(event, Open):
            event.extra = {}
    return normalise(events)


@pytest.mark.parametrize("implementation", MODULES)
@pytest.mark.parametrize("form", GRAMMARS)
@examples(0.4)
@given(data=st.data(), written=st.lists(objects, min_size=1, max_size=3))
def test_streamed_is_whole(implementation: str, form: str, data: st.DataObject, written: list[Any]) -> None:
    """A list of calls in `jamba`, else one."""
    twin = load(implementation)
    text = f"a <tool_call>{json.dumps(written[0])}</tool_call> b"
    if form == "jamba":
        text = f"a <tool_calls>{json.dumps(written)}</tool_calls> b"
    expected = oracle.parse(text, GRAMMARS[form], policy())
    pieces = data.draw(cuts(text))
    found: dict[bool, list[Event]] = {}
    for incremental in (False, True):
        scanner = twin.CallScanner(GRAMMARS[form], policy(), stream_after=0 if incremental else None)
        events = [event for piece in pieces for event in scanner.feed(piece)]
        found[incremental] = [*events, *scanner.finish()]
    assert normalise(found[False]) == expected
    if isinstance(found[True][-1], Fault):
        # What was begun and turned out to be no call cannot be taken back (R6.13); a call never becomes another one.
        assert not any(isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL for event in expected)
        sent = "".join(event.text for event in found[True] if isinstance(event, Delta) and event.block == 1)
        assert not parses(sent)
    else:
        assert plain(found[True]) == plain(expected)
