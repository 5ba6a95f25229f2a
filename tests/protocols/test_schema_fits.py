"""What fits by the quick test fits the schema: the law of `proxy.protocols.schema_fits`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocols.request_schema import _schema
from proxy.protocols.schema_fits import compiled

NAMES = ("chat_request", "messages_request", "responses_request")
EXACT = {name: fastjsonschema.compile(_schema(name), use_default=False) for name in NAMES}
QUICK = {name: compiled(_schema(name)) for name in NAMES}

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
GOOD: dict[str, dict[str, Any]] = {
    "chat_request": {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "stop": ["a"],
        "temperature": 1,
        "max_tokens": 5,
    },
    "messages_request": {
        "model": "m",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
        ],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "stream": True,
    },
    "responses_request": {
        "model": "m",
        "input": [
            {
                "role": "user",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "u"}],
            },
            {"type": "message", "role": "assistant", "content": "b"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"type": "reasoning", "summary": []},
            {"type": "item_reference", "id": "i"},
        ],
        "tools": [TOOL, {"type": "namespace", "name": "n", "tools": [TOOL]}],
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "temperature": 0.5,
    },
}
ODD = [
    None,
    True,
    0,
    -3,
    1.0,
    2.5,
    10**9,
    "",
    "a",
    "x" * 600,
    [],
    {},
    [1],
    [{}],
    {"type": "text"},
    {"type": []},
    {"url": 1},
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place inside of it: what it is in, and its key there."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(inside):
        yield value, key
        yield from places(item)


def fits(name: str, body: dict[str, Any]) -> bool:
    try:
        EXACT[name](body)
    except fastjsonschema.JsonSchemaValueException:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_what_clients_send_fits(name: str) -> None:
    assert fits(name, GOOD[name])
    assert QUICK[name](GOOD[name])


@pytest.mark.parametrize("name", NAMES)
def test_whatever_stands_at_one_place(name: str) -> None:
    refused = 0
    for number in range(len(list(places(GOOD[name])))):
        for odd in ODD:
            body = copy.deepcopy(GOOD[name])
            inside, key = list(places(body))[number]
            inside[key] = odd
            assert fits(name, body) or not QUICK[name](body), body
            refused += not QUICK[name](body)
        body = copy.deepcopy(GOOD[name])
        inside, key = list(places(body))[number]
        del inside[key]
        assert fits(name, body) or not QUICK[name](body), body
    assert refused


@pytest.mark.parametrize("name", NAMES)
@given(st.data())
def test_whatever_stands_in_a_field(name: str, data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(sorted(_schema(name)["properties"])), max_size=3))
    body = {**GOOD[name], **{field: data.draw(st.sampled_from(ODD)) for field in fields}}
    assert fits(name, body) or not QUICK[name](body)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "a"},
        {"enum": [1]},
        {"if": {"properties": {"a": {"const": "b"}}, "minProperties": 1}, "then": {}},
        {"properties": {"a": {"not": {}}}},
    ],
)
def test_what_it_does_not_know_it_does_not_pass_over(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no test for"):
        compiled(schema)
