"""Text of strings that passes without asking who reads it (R6.13): a scanner that asks for every byte, in either twin,
gives the same after every delta."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.options import route_options
from tests.parse.conftest import MODULES, load
from tests.parse.texts import cuts
from toolwire import open_scanner
from toolwire.config import LimitsConfig
from toolwire.events import Delta, Event, Fault, Open
from toolwire.scan._pystring import JSON_STRING, NESTED_STRING, NO_STRING, certain
from toolwire.scan.live import LiveCalls

pytestmark = pytest.mark.twin

SCHEMA = {
    "type": "object",
    "properties": {"s": {"type": "string"}, "o": {"type": "object"}, "m": {"type": ["string", "null"]}},
}
TOOL = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}

PLACES: dict[str, tuple[str, str, str]] = {
    "JSON": ("hermes", '<tool_call>{"name":"write","arguments":{"s":"', '"}}</tool_call>'),
    "a list of JSON": ("llama3_json", '[{"name":"write","parameters":{"s":"', '"}}]'),
    "JSON behind a name": ("mistral", '[TOOL_CALLS]write[ARGS]{"s":"', '"}'),
    "JSON in JSON": ("sentinel", '<tool_call>{"name":"write","arguments":"{\\"s\\":\\"', '\\"}"}</tool_call>'),
    "lines": (
        "qwen3_coder",
        "<tool_call>\n<function=write>\n<parameter=s>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    "lines of any type": (
        *("qwen3_coder", "<tool_call>\n<function=write>\n<parameter=m>\n"),
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    "JSON in tags": (
        *("qwen3_coder", '<tool_call>\n<function=write>\n<parameter=o>\n{"k":"'),
        '"}\n</parameter>\n</function>\n</tool_call>',
    ),
    "text in tags": ("glm47", "<tool_call>write<arg_key>s</arg_key><arg_value>", "</arg_value></tool_call>"),
    "what nobody knows": ("glm47", "<tool_call>write<arg_key>z</arg_key><arg_value>", "</arg_value></tool_call>"),
    "Python": ("pythonic", "[write(s='", "')]"),
    "Python, three quotes": ("pythonic", '[write(s="""', '""")]'),
    "Python, raw": ("pythonic", "[write(s=r'", "')]"),
    "braces": ("gemma4", '<|tool_call>call:write{s:<|"|>', '<|"|>}<tool_call|>'),
}
"""A format, and what stands around a string in a call of it."""

ASCII = "".join(map(chr, range(128)))
PIECES = [
    *("a", "some text ", "é", "\u20ac", "\U0001f600", "\n", "\n\n", "\t", "\x00", "\x1f", "\x7f", "u00e9", "n", "/"),
    *("\\", "\\\\", "\\\\\\", "\\n", "\\\\n", '\\"', '\\\\\\"', "\\'", "\\/", "\\\\\\/"),
    *("\\t", "\\r", "\\b", "\\x41", "\\q"),
    *("\\u00e9", "\\\\u00E9", "\\u12", "\\\\u00g0", "\\ud83d\\ude00", "\\\\ud83d\\\\ude00", "\\ud83d", "\\udE00"),
    *('"', "'", '""', "'''", '"""', '","k":"', "', k='", "}", "{", "<", '<|"|>', "<|", "</tool_call>", "</tool_cal"),
    *("</parameter>", "\n</parameter>\n", "</arg_value>", "<parameter=o>", "<tool_call>", "x" * 70, "y" * 300, ASCII),
]
bodies = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


class Asked(LiveCalls):
    """Lets nothing pass unasked."""

    string = property(lambda self: NO_STRING, lambda self, kind: None)


@contextmanager
def reading(twin: ModuleType, reader: type[LiveCalls]) -> Iterator[None]:
    with patch.object(twin, "LiveCalls", reader):
        yield


def scan(
    twin: ModuleType, reader: type[LiveCalls], format: str, pieces: list[Any], block_bytes: int, cut_off: bool
) -> list[tuple[str, list[str]]]:
    """What every delta gave, and the end: the text of arguments, and what else there was."""
    options = route_options(argument_streaming=0, recognise="taught")
    limits = LimitsConfig(block_bytes=block_bytes)
    with reading(twin, reader):
        scanner = open_scanner(format, [TOOL], options=options, limits=limits, scanner=twin.CallScanner)
    given_out = [*map(scanner.feed, pieces), scanner.finish(truncated=cut_off)]
    return [split(events) for events in given_out]


def split(events: list[Event]) -> tuple[str, list[str]]:
    """The text, and every other event but for what is drawn by lot."""
    said = "".join(event.text for event in events if isinstance(event, Delta))
    others: list[str] = []
    for event in events:
        if isinstance(event, Open):
            others.append(f"{event.kind} {event.block} {event.name} {event.extra}")
        elif isinstance(event, Fault):
            others.append(f"fault: {event.error}")
        elif not isinstance(event, Delta):
            others.append(repr(event))
    return said, others


@every("place", PLACES)
@examples(0.24)
@given(data=st.data(), body=bodies, limit=st.sampled_from([40, 100, 1 << 20]), cut_off=st.booleans())
def test_the_same_goes_out_as_if_every_byte_were_asked_for(
    place: str, data: st.DataObject, body: str, limit: int, cut_off: bool
) -> None:
    format, begin, end = PLACES[place]
    text = begin + body + end
    pieces: list[Any] = data.draw(cuts(text[: data.draw(st.integers(len(begin), len(text)))]))
    twins = [load(implementation) for implementation in MODULES]
    found = [scan(twin, reader, format, pieces, limit, cut_off) for twin in twins for reader in (LiveCalls, Asked)]
    for other in found[1:]:
        assert other == found[0]


@given(body=bodies, kind=st.sampled_from([JSON_STRING, NESTED_STRING]))
def test_what_is_certain_is_text_of_the_string(body: str, kind: int) -> None:
    """An independent reader agrees with what passes; and it does not grow while it waits."""
    more = body.encode()
    used, said, waits = certain(kind, b"", more)
    outer = json.loads(f'"{more[:used].decode()}"')
    assert said.decode() == (more[:used].decode() if kind == JSON_STRING else outer)
    json.loads(f'"{said.decode()}"')
    if waits:
        assert 0 < len(more) - used <= 6
