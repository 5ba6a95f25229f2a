"""Closing tags that are data, and closing tags that are missing.

Inside a value a closing tag ends it only where something follows that may follow. Where a block's closing tags are
missing and another block begins, that ends it (R6.8).
"""

from __future__ import annotations

import json
import re
from itertools import product
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.options import route_options
from tests.parse.conftest import MODULES, load, some
from tests.parse.reading import blocks, scanned
from tests.parse.texts import cuts
from toolwire import open_scanner
from toolwire.events import BlockKind, Fault, Open
from toolwire.model import ToolUse
from toolwire.registry import registries

pytestmark = pytest.mark.twin


class Form(NamedTuple):
    """How a format writes a call with one value, which stands between `head` and `end`. `closers` are the tags that end
    a value, the call and the section, as far as the scanner may meet them in a value."""

    format: str
    head: str
    end: str
    closers: tuple[str, ...]


FORMS = {
    "qwen3_coder": Form(
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=k>\n",
        "\n</parameter>\n</function>\n</tool_call>",
        ("</parameter>", "</function>", "</tool_call>"),
    ),
    "qwen3_coder without its wrapper": Form(
        "qwen3_coder",
        "<function=f>\n<parameter=k>\n",
        "\n</parameter>\n</function>",
        ("</parameter>", "</tool_call>"),
    ),
    "qwen3_coder in one line": Form(
        "qwen3_coder",
        "<tool_call><function=f><parameter=k>",
        "</parameter></function></tool_call>",
        ("</parameter>", "</function>", "</tool_call>"),
    ),
    "qwen3_coder with an attribute": Form(
        "qwen3_coder", '<function=f>\n<parameter name="k" value="', '"/>\n</function>', ('"/>', "'/>", '"></parameter>')
    ),
    "minimax_m2 with an attribute": Form(
        "minimax_m2",
        "<minimax:tool_call><invoke name=\"f\"><parameter name='k' value='",
        "'></parameter></invoke></minimax:tool_call>",
        ("'></parameter>", "'/>", "</parameter>"),
    ),
    "seed_oss": Form(
        "seed_oss",
        "<seed:tool_call>\n<function=f>\n<parameter=k>\n",
        "\n</parameter>\n</function>\n</seed:tool_call>",
        ("</parameter>", "</function>", "</seed:tool_call>"),
    ),
    "glm45": Form(
        "glm45",
        "<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>",
        "</arg_value>\n</tool_call>",
        ("</arg_value>", "</tool_call>", "</arg_key>"),
    ),
    "glm47": Form(
        "glm47",
        "<tool_call>f<arg_key>k</arg_key><arg_value>",
        "</arg_value></tool_call>",
        ("</arg_value>", "</tool_call>"),
    ),
    "minimax_m2": Form(
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="k">',
        "</parameter>\n</invoke>\n</minimax:tool_call>",
        ("</parameter>", "</minimax:tool_call>"),
    ),
    "step3": Form(
        "step3",
        '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f"><steptml:parameter name="k">',
        "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
        ("</steptml:parameter>", "</steptml:invoke>", "<｜tool_calls_end｜>"),
    ),
    "minicpm5": Form("minicpm5", '<function name="f"><param name="k">', "</param></function>", ("</param>",)),
    "deepseek_v32": Form(
        "deepseek_v32",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="k" string="true">',
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        ("</｜DSML｜parameter>", "</｜DSML｜function_calls>"),
    ),
    "kimi_k3": Form(
        "kimi_k3",
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>',
        "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        ("<|close|>argument<|sep|>", "<|close|>tools<|sep|>"),
    ),
}
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}},
}


def found(
    twin: ModuleType, format: str, pieces: list[str] | list[bytes], streaming: str | int = "buffered"
) -> list[str]:
    """The arguments of calls, and the text around them."""
    events = scanned(twin, format, [TOOL], pieces, argument_streaming=streaming, recognise="taught")
    return [f"call {block.text}" if block.is_call else block.text for block in blocks(events)]


def call(value: str) -> str:
    return "call " + json.dumps({"k": value}, ensure_ascii=False, separators=(",", ":"))


@st.composite
def values(draw: st.DrawFn, form: Form) -> str:
    """Texts with closing tags, each followed by something that no tag begins with. Only where the template puts a value
    into lines of its own all that ends a call may stand in it, but not in lines of its own."""
    tag = st.sampled_from(form.closers)
    tags = st.lists(tag, min_size=1, max_size=3)
    if not form.head.endswith("\n"):
        tags = st.tuples(tag, st.integers(1, 3)).map(lambda drawn: [drawn[0]] * drawn[1])
    spaces = st.sampled_from(["", " ", "\n", " \n\t"])
    text = st.text(st.characters(codec="utf-8", exclude_characters="<\r\x00"), min_size=1, max_size=6)
    words = text.filter(lambda text: bool(text.strip(" \t\n")))
    pieces = st.lists(st.tuples(words, tags, spaces, words), min_size=1, max_size=3)
    value = "".join(before + space.join(tags) + space + behind for before, tags, space, behind in draw(pieces))
    assume("\n</function>" not in value and not re.search(r"\n</parameter>\s*</(function|tool_call)>", value))
    if form.format == "qwen3_coder" and not form.head.endswith("\n"):  # one line end would be the tags'
        assume(value == value.strip("\n"))
    return value


@pytest.mark.parametrize("implementation", MODULES)
@every("name", FORMS)
@examples(0.12)
@given(data=st.data())
def test_closing_tags_with_text_behind_them_are_part_of_the_value(
    implementation: str, name: str, data: st.DataObject
) -> None:
    form = FORMS[name]
    value = data.draw(values(form))
    pieces = data.draw(cuts(f"{form.head}{value}{form.end}"))
    for streaming in ("buffered", 0):
        assert found(load(implementation), form.format, pieces, streaming) == [call(value)]


@every("name", FORMS)
@every("value", ["a {} b", "{}", "{}{}x", "{} {}\n\n{} x", "a{} ", " {}"])
def test_each_closing_tag(twin: ModuleType, name: str, value: str) -> None:
    form = FORMS[name]
    closer = form.closers[0]
    text = value.replace("{}", closer)
    for size in (1, 4, 10_000):
        whole = f"So: {form.head}{text}{form.end}"
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert found(twin, form.format, pieces) == ["So:", call(text)]


@every("behind", ["", " More.", "\n"])
@every(
    "text",
    [
        "<function=f>\n<parameter=k>\n1\n</parameter>\n</function>",
        "<function=f><parameter=k>1</parameter></function>",
        "<function=f>\n<parameter=k>\n1\n</function>",
        *(f"<function=f>\n<parameter=k>\n1\n</{word}>\n</function>" for word in ("param", "arg", "arg_value")),
        "<function=f>\n<parameter=k>\n1\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_a_function_without_its_wrapper_leaves_no_tags(twin: ModuleType, text: str, behind: str) -> None:
    wanted = [call("1"), *filter(None, [behind.strip()])]
    for streaming in ("buffered", 0):
        assert found(twin, "qwen3_coder", list(text + behind), streaming) == wanted


@every("value", ["x\n</param>\ny", "x\n</arg>", "</param>", "<param>\nx\n</param>"])
def test_another_familys_closer_inside_of_a_value_is_data(twin: ModuleType, value: str) -> None:
    form = FORMS["qwen3_coder"]
    for streaming in ("buffered", 0):
        assert found(twin, form.format, list(f"{form.head}{value}{form.end}"), streaming) == [call(value)]


@every(
    ("text", "wanted"),
    [
        ("<tool_call>f<arg_key>k</arg_key><arg_value>1</tool_call>", [call("1")]),
        ("<tool_call>f\n<arg_key>k</arg_key>\n<arg_value>1\n</tool_call>\n", [call("1")]),
        (
            "<tool_call>f<arg_key>k</arg_key><arg_value>1</tool_call> 2</arg_value></tool_call>",
            [call("1</tool_call> 2")],
        ),
        ("<tool_call>f<arg_key>k</arg_key><arg_value>1</tool_call></arg_value></tool_call>", [call("1</tool_call>")]),
    ],
)
@every("format", ["glm45", "glm47"])
def test_glm_may_leave_out_the_last_closing_tag_of_a_value(
    twin: ModuleType, format: str, text: str, wanted: list[str]
) -> None:
    for streaming in ("buffered", 0):
        assert found(twin, format, list(text), streaming) == wanted


def test_what_a_broken_block_has_passed_over_is_looked_at_again(twin: ModuleType) -> None:
    """In one delta: the search for the end of a value does not rely on what was found from further behind."""
    broken = "<function=f>\n<parameter=k>\n1\n</parameter>\n</function>\n<parameter=k>1<parameter=\n</parameter>"
    text = (
        f"<tool_call>\n{broken}\n</tool_call>\n<tool_call>\n<function=f>\n<parameter=k>\n2\n</function>\n</tool_call>"
    )
    assert found(twin, "qwen3_coder", [text])[-1:] == found(twin, "qwen3_coder", list(text))[-1:]


# --- closing tags that are missing ------------------------------------------------------------------------------------

NO_CLOSER = {
    **dict.fromkeys(
        ("llama3_json", "mistral", "mistral_v3", "gigachat", "phi4_mini", "functionary", "ui_tars"),
        "calls have no end of their own",
    ),
    **dict.fromkeys(
        ("bare_json", "fenced_json", "pythonic", "olmo3", "dots"), "all calls stand in one pair of brackets"
    ),
    **dict.fromkeys(
        ("apertus", "cohere", "granite", "hunyuan", "jamba", "nemotron", "xlam"), "all calls stand in one array"
    ),
    **dict.fromkeys(("lfm2", "sarashina"), "all calls stand in one list"),
    "cwm": "what stands in a call is text, whatever it is",
    "minimax_m3": "the tag of another call begins as the tag of another argument does",
}
CLOSED = sorted({registries().formats.get(name).name for name in registries().formats.names()} - set(NO_CLOSER))


def without_closer(format: str, *behind: str) -> str:
    """Two calls, the first one without what closes it, and with something else behind it."""
    chosen = registries().formats.get(format)
    uses = [ToolUse(f"call_{k}", "f", f'{{"k":"{k}"}}') for k in "ab"]
    text = (chosen.render_calls or (lambda uses: "".join(map(chosen.render_call, uses))))(uses)
    closer = next(syntax.closer for syntax in chosen.grammar.syntaxes if syntax.closer and syntax.closer in text)
    before, found, after = text.partition(closer)
    assert found
    return "".join((before, *behind, after))


def test_the_next_block_ends_one_whose_closer_is_missing(twin: ModuleType) -> None:
    every_case = product(CLOSED, ("buffered", 0), ("", " ", "\n\n"), (1, 10_000))
    for format, streaming, behind, size in some(twin, every_case, 13):
        text = without_closer(format, behind)
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert found(twin, format, pieces, streaming) == [call("a"), call("b")], (format, streaming, text, size)


@pytest.mark.parametrize(("unclosed", "wanted"), [("text", 1), ("error", 0)])
def test_what_is_done_with_a_call_without_its_closer_is_an_option(twin: ModuleType, unclosed: str, wanted: int) -> None:
    options = route_options(unclosed=unclosed, recognise="taught")  # type: ignore[arg-type]
    counted: list[str] = []
    scanner = open_scanner("hermes", [TOOL], options=options, scanner=twin.CallScanner, count=counted.append)
    events = [*scanner.feed(without_closer("hermes")), *scanner.finish()]
    assert [event.kind for event in events if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL] == [
        BlockKind.TOOL_CALL
    ] * wanted
    assert isinstance(events[-1], Fault) == (unclosed == "error")
    assert counted.count("unclosed_repaired") == 0


def test_it_counts_as_repaired(twin: ModuleType) -> None:
    counted: list[str] = []
    scanner = open_scanner("hermes", [TOOL], scanner=twin.CallScanner, count=counted.append)
    scanner.feed(without_closer("hermes"))
    assert sorted(counted) == ["calls", "calls", "repaired", "unclosed_repaired"]


@every("size", [1, 7, 10_000])
@every(
    ("first", "calls"),
    [
        ('{"name":"f","arguments":{"k":"a"}} and then', 1),  # text, as it would be at the end of the answer (R6.8)
        ('{"name":"f","arguments":{"k":"<tool_call>"}} and then ', 1),
        ('{"name":"f","arguments":{"k":"</tool_call>"}} and then ', 1),
        ('{"name":"f","arguments":{"k":"a"', 0),  # broken: the first closer ends it
        ('{"name":"f","arguments":{"k":"a"}} junk </tool_call>', 1),
    ],
)
def test_a_block_that_went_on_otherwise_takes_no_other_with_it(
    twin: ModuleType, first: str, calls: int, size: int
) -> None:
    text = f'<tool_call>{first}<tool_call>{{"name":"f","arguments":{{"k":"b"}}}}</tool_call>'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert found(twin, "hermes", pieces) == [
        text[: text.rindex("<tool_call>")].rstrip() if calls else text,
        *[call("b")] * calls,
    ]
