"""The outline of a JSON text: both twins say the same, and what a parser says (R34.5)."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.parse.conftest import load
from toolwire.model import Message, Text, ToolUse
from toolwire.scan import _pyoutline

TWINS = ["compiled", "python"]
words = st.text(st.sampled_from('a"\\[]{},: \n\u00e9\U0001f600m'), max_size=8)
values = st.recursive(
    words | st.integers(-5, 5) | st.sampled_from([None, True, 1.5]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words | st.just("m"), inner, max_size=4),
    max_leaves=12,
)
spaced = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", " :\t")])


def outline(name: str) -> Any:
    """The functions of one twin."""
    return _pyoutline if name == "python" else load("compiled")


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(text=st.binary(max_size=600) | st.text('[]{},"\\a', max_size=600).map(str.encode))
@example(text=b'["{,' * 500)
def test_law_marks_are_counted_as_bytes_counts_them(name: str, text: bytes) -> None:
    brackets = text.count(b"[") + text.count(b"{")
    assert outline(name).json_marks(text) == (brackets, text.count(b","), text.count(b'"'))


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(before=st.dictionaries(words, values, max_size=3), items=st.lists(values, max_size=5), blanks=spaced)
def test_law_items_are_those_of_a_parser(
    name: str, before: dict[str, Any], items: list[Any], blanks: tuple[str, str]
) -> None:
    """From every item on, the rest is found as from the beginning."""
    before.pop("messages", None)
    body = {**before, "messages": items, "more": {"messages": [1, 2]}}
    text = json.dumps(body, ensure_ascii=False, separators=blanks).encode()
    found = outline(name)
    start = found.array_start(text, b'"messages"')
    ends = found.item_ends(text, start)
    assert [json.loads(text[a:b].lstrip(b",")) for a, b in zip([start, *ends], ends, strict=False)] == items
    for number, end in enumerate(ends):
        assert found.item_ends(text, end) == ends[number + 1 :]
        assert found.item_ends(text, start, number + 1) == ends[: number + 1]


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize(
    "text",
    [
        *(b"{}", b'{"x":{"messages":[1]}}', b'{"messages":1,"x":[1]}', b'{"messages":{"messages":[1]}}'),
        *(b'{"x":"messages"}', b'{"x":"messages","y":[1]}', b'[{"messages":[1]}]', b'{"x":["messages",[1]]}'),
        b'"messages"',
    ],
)
def test_what_is_no_list_of_that_name_is_not_found(name: str, text: bytes) -> None:
    assert outline(name).array_start(text, b'"messages"') == -1


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(common=st.binary(max_size=9000), one=st.binary(max_size=4), other=st.binary(max_size=4))
@example(common=bytes(8192), one=b"", other=b"")
@example(common=bytes(8191), one=b"a", other=b"b")
def test_law_the_common_beginning_is_the_longest(name: str, common: bytes, one: bytes, other: bytes) -> None:
    a, b = common + one, common + other
    size = outline(name).common_length(a, 0, b, 0)
    assert outline(name).common_length(b"ab" + a, 2, b"xyz" + b, 3) == size
    assert outline(name).common_length(a, 0, b"xy", 3) == 0
    assert a[:size] == b[:size]
    assert size == min(len(a), len(b)) or (size < min(len(a), len(b)) and a[size] != b[size])


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(same=st.integers(0, 5), one=st.integers(0, 3), other=st.integers(0, 3))
def test_law_items_are_the_same_by_identity(name: str, same: int, one: int, other: int) -> None:
    """Equal ones are not: `1`, `1.0` and `True` are three texts of JSON."""
    shared = tuple([number] for number in range(same))
    a, b = ((*shared, *([7.0] for _ in range(more))) for more in (one, other))
    assert outline(name).same_items(a, b) == same


@pytest.mark.twin
@given(value=values, text=words)
def test_law_both_twins_weigh_the_same(value: Any, text: str) -> None:
    """Also what the gateway has made of values, and not what was weighed elsewhere."""
    message = Message("user", (Text(text), ToolUse("a", "b", text)), extra={"chat": {"x": value}})
    for several in ([value], [text, text.encode(), (value, text)], [message], [object(), text]):
        for of in ([], [text], [message]):
            assert load("compiled").bytes_of(several, of) == _pyoutline.bytes_of(several, of)


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
def test_other_threads_run_while_large_values_are_weighed(name: str) -> None:
    """Each turn of the other thread makes one entry, because `sleep` releases the GIL. Without a pause there is one."""
    turns: list[int] = []
    ended = threading.Event()

    def take_turns() -> None:
        while not ended.is_set():
            turns.append(0)
            time.sleep(0)

    large = [[str(number)] for number in range(300_000)]
    interval = sys.getswitchinterval()
    other = threading.Thread(target=take_turns)
    other.start()
    sys.setswitchinterval(1e-6)
    try:
        before = len(turns)
        outline(name).bytes_of(large)
        after = len(turns)
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        other.join()
    assert after - before > 20


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(value=values, blanks=spaced, twice=st.booleans())
@example(value={'a"\\': ":"}, blanks=(",", ":"), twice=False)
def test_law_the_same_key_twice_is_found(name: str, value: Any, blanks: tuple[str, str], twice: bool) -> None:
    text = json.dumps([value, {"x": 1, "y": value}], separators=blanks)
    text = text.replace('"y"', '"x"') if twice else text
    assert outline(name).has_duplicates(text.encode(), json.loads(text)) == twice


@pytest.mark.twin
@pytest.mark.parametrize("name", TWINS)
@given(value=values)
def test_law_own_texts_are_equal_and_keep_no_other_form(name: str, value: Any) -> None:
    assert outline(name).with_own_texts(value) == value
    text = "\u00e9\U0001f600" * (100 + len(str(value)))  # another object for each example
    size = sys.getsizeof(text)
    orjson.dumps(outline(name).with_own_texts([text]))
    assert sys.getsizeof(text) == size
    orjson.dumps(text)
    assert sys.getsizeof(text) > size, "no library keeps it any more: then copies are not needed"


@pytest.mark.twin
@given(text=st.text('[]{},:"\\a m', max_size=60).map(str.encode), start=st.integers(0, 60))
def test_law_both_twins_say_the_same_of_any_text(text: bytes, start: int) -> None:
    """Also of a text that is not JSON nobody reads beyond its end."""
    compiled = load("compiled")
    assert compiled.json_marks(text) == _pyoutline.json_marks(text)
    compiled.item_ends(text, min(start, len(text)))
    compiled.array_start(text, b'"m"')
