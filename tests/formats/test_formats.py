"""The built-in formats as text: what is rendered is read back, and data never looks like a call (R5.2, R5.6, R6.12)."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.formats.cases import (
    FORMATS,
    SEARCH,
    STOPS,
    WEATHER,
    apart,
    bare,
    described,
    every_format,
    inside,
    json_object,
    restored,
    scan,
    valued,
)
from tests.strategies import json_objects, texts
from toolwire.formats.base import ToolFormat, call_form, escaping_for
from toolwire.formats.engine.rendering import prompt_name
from toolwire.model import Image, OpaquePart, Refusal, Text, ToolResult, ToolSpec, ToolUse

MARKERS = ("<tool_call>", "</tool_call>", "```json", "```", "<|im_end|>", "<tool_response", "</tool_response>")
pieces = st.sampled_from(
    [*MARKERS, "<", "\\", "`", "/", "tool_call>", "<\\tool_call>", "<\\\\/tool_call>", "\n", "é", " x"]
)
hostile = st.lists(pieces | texts, max_size=12).map("".join)
compact_objects = json_objects.map(lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")))
hostile_arguments = st.dictionaries(hostile, hostile, max_size=3).map(
    lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
)
in_json = every("tool_format", [f for f in FORMATS if f.name not in STOPS])
in_own_syntax = every("tool_format", [f for f in FORMATS if f.name in STOPS])


def literals(tool_format: ToolFormat) -> list[str]:
    """Everything that the format's syntaxes look for, whole and without its last character."""
    found = [*tool_format.grammar.markers, "".join(tool_format.grammar.markers)]
    found += [b.literal for syntax in tool_format.grammar.syntaxes for node in syntax.nodes for b in node if b.literal]
    return [*dict.fromkeys(found), *dict.fromkeys(literal[:-1] for literal in found)]


@cache
def hostile_for(tool_format: ToolFormat) -> st.SearchStrategy[str]:
    """Text of what the format looks for, control tokens, and both as if they were escaped already."""
    found = [*literals(tool_format), *sorted(tool_format.template_tokens)[:20]]
    found += [f"{text[0]}{slashes}{text[1:]}" for text in found if text for slashes in ("\\", "\\\\")]
    return st.lists(st.sampled_from(found) | pieces | texts, max_size=8).map("".join)


tool_names = st.sampled_from(["search", "get-it", "a", "functions_x", "name"])


@cache
def members_for(tool_format: ToolFormat) -> st.SearchStrategy[dict[str, str]]:
    """Keys, and values as JSON, in whose strings there is anything. To make this takes longer than to draw from it."""
    strings = hostile_for(tool_format)
    number = st.sampled_from(["1.0", "1e-07", "-0", "12345678901234567890", "0.10", "-1.5E+3", "7"])
    leaf = (
        strings.map(lambda s: json.dumps(s, ensure_ascii=False)) | number | st.sampled_from(["true", "false", "null"])
    )
    inner_keys = texts.map(lambda s: json.dumps(s, ensure_ascii=False))

    def joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        lists = st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        maps = st.dictionaries(inner_keys, inner, max_size=3)
        return lists | maps.map(lambda m: f"{{{','.join(f'{k}:{v}' for k, v in m.items())}}}")

    keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,11}|[é_]ß", fullmatch=True)
    return st.dictionaries(keys, st.recursive(leaf, joined, max_leaves=5), max_size=4)


@cache
def keys_for(tool_format: ToolFormat) -> st.SearchStrategy[str]:
    return hostile_for(tool_format).filter(str.strip)


def split(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(edges)]


cut_places = st.lists(st.integers(0, 400), max_size=5)
some = examples(0.12)
"""There are many formats, and each shares most of what it does with others."""


@in_json
@some
@example(arguments='{"":"/think"}', cuts=[])
@given(arguments=compact_objects | hostile_arguments, cuts=cut_places)
def test_a_rendered_call_is_read_back_at_every_split(tool_format: ToolFormat, arguments: str, cuts: list[int]) -> None:
    """With their bytes, unless they hold a control token or a tag of thinking: that is spelled in another way, for the
    same value."""
    text = tool_format.render_call(ToolUse("call_1", "search", arguments))
    tags = {tag.strip() for tags in tool_format.grammar.reasoning for tag in tags}
    tokens = [token for token in tool_format.template_tokens | tags if token in arguments]
    for answer in ([text], split(text, cuts), list(text)):
        found = scan(tool_format, (SEARCH,), answer)
        if tokens:
            assert valued(found) == [("search", apart(json_object(arguments)))]
            empty = tool_format.render_call(ToolUse("call_1", "search", "{}"))
            assert all(text.count(token) == empty.count(token) for token in tokens)
        else:
            assert bare(found) == [("search", arguments)]


@every_format
@some
@given(data=st.data(), cuts=cut_places)
def test_arguments_have_their_values_at_every_split(
    tool_format: ToolFormat, data: st.DataObject, cuts: list[int]
) -> None:
    drawn = data.draw(members_for(tool_format))
    arguments = f"{{{','.join(f'{json.dumps(k, ensure_ascii=False)}:{v}' for k, v in drawn.items())}}}"
    tool = described(data.draw(tool_names), arguments)
    text = tool_format.render_call(ToolUse("call_1", tool.name, arguments))
    for answer in ([text], split(text, cuts), list(text)):
        found = restored(tool_format, scan(tool_format, (tool,), answer))
        assert valued(found) == [(tool.name, apart(json_object(arguments)))], text


@in_own_syntax
@some
@given(data=st.data())
def test_what_the_syntax_cannot_say_stays_a_call(tool_format: ToolFormat, data: st.DataObject) -> None:
    """Text that would end a value, and names that are none: written so that nothing else is cut off (R5.6)."""
    value = data.draw(hostile_for(tool_format))
    key = data.draw(keys_for(tool_format))
    arguments = json.dumps({key: value, "last": 1}, ensure_ascii=False)
    tool = ToolSpec("search", None, {"type": "object", "properties": {"last": {"type": "integer"}}})
    (call,) = scan(tool_format, (tool,), [tool_format.render_call(ToolUse("call_1", "search", arguments))])
    assert isinstance(call, ToolUse)
    assert json.loads(call.arguments)["last"] == 1


@in_own_syntax
def test_what_follows_a_slip_in_a_value_ends_no_earlier_call(tool_format: ToolFormat) -> None:
    """A closing tag with the name of the key, or of another family, and then what follows a value or opens a block."""
    tool = described("search", '{"q":"","last":1}')
    for literal in literals(tool_format):
        for closer in ("</q>", "\n</param>"):
            arguments = json.dumps({"q": f"a{closer}\n{literal}", "last": 1}, ensure_ascii=False)
            text = tool_format.render_call(ToolUse("call_1", "search", arguments))
            found = restored(tool_format, scan(tool_format, (tool,), [text]))
            assert valued(found) == [("search", apart(json_object(arguments)))], text


@in_own_syntax
def test_values_keep_their_bytes_wherever_they_read_back(tool_format: ToolFormat) -> None:
    """What the format looks for is only escaped where a value would not come back without."""
    assert tool_format.layout is not None
    tool = described("search", '{"q":"","last":1}')
    always = {*tool_format.template_tokens, *(tag for tags in tool_format.grammar.reasoning for tag in tags)}
    for literal in literals(tool_format):
        for value in (
            f"a {literal} b",
            f"a{literal}",
            f"{literal}\n{literal}",
            f"\n{literal} x\n",
            f"{literal[:1]}\\{literal[1:]} b",
        ):
            if any(text.strip() in value for text in always):
                continue
            arguments = json.dumps({"q": value, "last": 1}, ensure_ascii=False)
            use = ToolUse("call_1", "search", arguments)
            shown, plain = tool_format.render_call(use), tool_format.layout.call(use)
            wanted = [("search", apart(json_object(arguments)))]
            assert valued(restored(tool_format, scan(tool_format, (tool,), [shown]))) == wanted
            if valued(restored(tool_format, scan(tool_format, (tool,), [plain]))) == wanted:
                assert shown == plain


@every_format
@some
@given(cuts=cut_places)
def test_several_calls_of_one_answer_are_read_back(tool_format: ToolFormat, cuts: list[int]) -> None:
    uses = [
        ToolUse("a", "search", '{"q":1}'),
        ToolUse("b", "get_weather", '{"city":"Oslo"}'),
        ToolUse("c", "search", "{}"),
    ]
    assert tool_format.render_calls is not None
    text = tool_format.render_calls(uses)
    for answer in ([text], split(text, cuts), list(text)):
        assert bare(scan(tool_format, (WEATHER, SEARCH), answer)) == [(use.name, use.arguments) for use in uses]


@in_json
@every(
    ("written", "read"),
    [
        ("", "{}"),
        ("  ", "{}"),
        ('{"n":1.0,"big":12345678901234567890}', None),
        ('{"n":1.0,"big":1234567890123456789.50,"n":2e0}', '{"n":2e0,"big":1234567890123456789.50}'),
        (' {"a":1} ', '{"a":1}'),
    ],
)
def test_arguments_keep_their_text(tool_format: ToolFormat, written: str, read: str | None) -> None:
    """Numbers do so as well where a key occurs twice, of which the last one stays."""
    text = tool_format.render_call(ToolUse("a", "search", written))
    ((_, arguments),) = bare(scan(tool_format, (SEARCH,), [text]))
    assert arguments.strip() == (read or written)


@every_format
@every("broken", ['{"a":', "no json", "[1]", '{"a": "</tool_call>', "\x00"])
def test_a_call_with_broken_arguments_is_still_a_block(tool_format: ToolFormat, broken: str) -> None:
    """As a string that stands for the arguments, or as the only argument where they must be an object."""
    tool = ToolSpec("search", None, {"properties": {"arguments": {"type": "string"}}})
    text = tool_format.render_call(ToolUse("a", "search", broken))
    if f'":{json.dumps(broken)}' not in text:
        assert valued(scan(tool_format, (tool,), [text])) == [("search", {"arguments": broken})]


@every_format
def test_a_custom_tool_is_taught_with_one_input(tool_format: ToolFormat) -> None:
    tool = ToolSpec("patch", "Apply a patch.", None, kind="custom")
    assert "input" in tool_format.render_tools((tool,))
    text = tool_format.render_call(ToolUse("a", "patch", '*** Begin\n"x" </tool_call>', kind="custom"))
    (call,) = scan(tool_format, (tool,), [text])
    assert isinstance(call, ToolUse)
    assert (call.kind, call.arguments) == ("custom", '*** Begin\n"x" </tool_call>')


@every_format
def test_tools_are_listed_in_order(tool_format: ToolFormat) -> None:
    listed = tool_format.render_tools((SEARCH, WEATHER))
    assert listed == tool_format.render_tools((SEARCH, WEATHER))
    assert listed.index("search") < listed.index("get_weather") < listed.index("Get the weather.")
    for word in ("city", "string", "required"):
        assert word in listed.lower()


def test_equal_names_in_two_groups_stay_apart() -> None:
    tools = [ToolSpec("read", namespace=space) for space in (None, "a", "b")]
    assert [prompt_name(tool) for tool in tools] == ["read", "a__read", "b__read"]


def own_words(tool_format: ToolFormat) -> Counter[str]:
    """How often each marker stands in a listing of a tool of which nothing is said."""
    return counted(
        tool_format, tool_format.render_tools((ToolSpec("t", "d", {"properties": {"k": {"description": "d"}}}),))
    )


def counted(tool_format: ToolFormat, text: str) -> Counter[str]:
    markers = {*tool_format.grammar.markers, *tool_format.results.markers, *tool_format.template_tokens}
    return Counter({marker: text.count(marker) for marker in markers if marker in text})


@every_format
@some
@example(text="</parameter><|im_end|>")
@given(text=hostile)
def test_no_marker_survives_in_data(tool_format: ToolFormat, text: str) -> None:
    """Beside those of the listing's own."""
    tool = ToolSpec("t", text or "d", {"properties": {"k": {"description": text or "d"}}})
    assert counted(tool_format, tool_format.render_tools((tool,))) == own_words(tool_format)

    result = ToolResult(text or "id", (Text(text),), name=text)
    written = tool_format.render_result(result)
    shown = inside(tool_format, written, result)
    assert not counted(tool_format, shown)
    assert escaping_for(tool_format).restore(shown) == text
    assert scan(tool_format, (tool,), [written]) == (Text(written),)


@every_format
def test_results_are_plain_text_in_the_form_of_the_family(tool_format: ToolFormat) -> None:
    def shown(result: ToolResult) -> str:
        return inside(tool_format, tool_format.render_result(result), result)

    assert shown(ToolResult("call_1", (Text("a"), Text("b")))) == "ab"
    assert shown(ToolResult("x y>", (), name="get-it", is_error=True)) == "Error: "
    assert shown(ToolResult("c", (Text("error 5"),), is_error=True)) == "error 5"
    parts = (Text("see "), Image("data:x"), OpaquePart("chat", {"a": [1]}), Refusal(" no"))
    assert shown(ToolResult("c", parts)) == 'see \n\n[image]\n\n{"a":[1]}\n\n no'


@every_format
def test_instructions_show_the_form_that_is_read(tool_format: ToolFormat) -> None:
    """With names for its parts that nobody can take for a name or a value (R31.5)."""
    opener = call_form(tool_format).split("<function-name>")[0]
    assert "".join(opener.split()) in "".join(tool_format.instructions.split())
    assert "<function-name>" in tool_format.instructions
    assert "fence" in tool_format.instructions
    assert not re.search(r"\b(TOOL|KEY|VALUE)\b", tool_format.instructions + tool_format.template)
    shown = tool_format.instructions.partition("\n")[2]
    assert not [part for part in scan(tool_format, (SEARCH,), [shown]) if isinstance(part, ToolUse)]


@every_format
def test_the_grammar_of_free_text_is_taught(tool_format: ToolFormat) -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": "start: BEGIN </tool_call>"}
    for extra in ({"format": form}, {"custom": {"format": {"type": "grammar", "grammar": form}}}):
        tool = ToolSpec("apply_patch", "Edits files.", kind="custom", extra={"chat": extra})
        shown = tool_format.render_tools([tool])
        assert "Edits files." in shown
        assert "(lark)" in shown
        assert "start: BEGIN" in shown
        assert not {*counted(tool_format, shown)} - {*own_words(tool_format)}
    assert "(lark)" not in tool_format.render_tools([ToolSpec("f", "x", extra={"chat": {"format": form}})])


@every_format
@every("arguments", ["{}", '{"city":"Oslo"}'])
def test_a_call_of_nothing_is_for_the_gateway_where_it_runs_all_tools(tool_format: ToolFormat, arguments: str) -> None:
    """In the form that was taught (R15.5); where a tool is the client's it is text (R9.2)."""
    text = tool_format.render_call(ToolUse("call_1", "nothing", arguments))
    ours = tuple(replace(tool, server=True) for tool in (SEARCH, WEATHER))
    for answer in ([text], list(text)):
        assert bare(scan(tool_format, ours, answer)) == [("nothing", arguments)]
        found = scan(tool_format, (ours[0], WEATHER), answer)
        assert [type(part) for part in found] == [Text]
