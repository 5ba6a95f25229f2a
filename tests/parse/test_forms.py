"""What the models of a family write beside the form that they were taught: one text for each fact of a format.

The corpus has what every format has in common; here is what one has alone. Each text is read whole, byte by byte and
incrementally.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.cases import every
from tests.parse.reading import blocks, scanned
from toolwire.config import ReasoningConfig
from toolwire.model import ToolSpec

BAR = "｜DSML｜"
M3 = "]<]minimax[>["
STRINGS = {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}, 'x & "y" <z': {"type": "string"}}
SCHEMA = {
    "type": "object",
    "properties": {
        **STRINGS,
        "n": {"type": "integer"},
        "any": {},
        "deep": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
            },
        },
    },
}
TOOLS = [ToolSpec(name, parameters=SCHEMA) for name in ("f", "g")]

Said = str | tuple[str, dict[str, Any]]
"""Text, or a call."""


def _dsml(text: str, space: str = "") -> str:
    """`[` and `[/` begin a tag with the prefix."""
    return text.replace("[/", f"</{BAR}{space}").replace("[", f"<{BAR}{space}").replace("]", ">")


def _m3(text: str) -> str:
    return text.replace("<", f"{M3}<")


def _qwen(name: str, **arguments: str) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def _glm(name: str, **arguments: str) -> str:
    values = (f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in arguments.items())
    return f"<tool_call>{name}{''.join(values)}</tool_call>"


def _minimax(name: str, **arguments: str) -> str:
    values = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
    return f'<minimax:tool_call>\n<invoke name="{name}">\n{values}</invoke>\n</minimax:tool_call>'


def _deepseek(name: str, **arguments: str) -> str:
    end = f"</{BAR}parameter>\n"
    values = "".join(f'<{BAR}parameter name="{key}" string="true">{value}{end}' for key, value in arguments.items())
    return f'<{BAR}tool_calls>\n<{BAR}invoke name="{name}">\n{values}</{BAR}invoke>\n</{BAR}tool_calls>'


WRITERS: dict[str, Callable[..., str]] = {
    "qwen3_coder": _qwen,
    "glm47": _glm,
    "minimax_m2": _minimax,
    "deepseek_v4": _deepseek,
}
"""One format for each kind of tags."""

EMPTY = {
    "qwen3_coder": "<function=f></function>",
    "glm47": "<tool_call>f</tool_call>",
    "deepseek_v4": _dsml('[invoke name="f"][/invoke]'),
}
"""A call without arguments."""

SENTENCES: dict[str, tuple[str, list[Said]]] = {
    f"{format}: {where}": (
        text.replace("CALL", call),
        [said.replace("CALL", call) if said else ("f", {}) for said in wanted],
    )
    for format, call in EMPTY.items()
    for where, text, wanted in (
        ("a sentence with an empty call", "Write CALL to call it.", ["Write CALL to call it."]),
        ("an empty call, and a comma", "Either CALL, or not.", ["Either CALL, or not."]),
        ("an empty call behind a sentence", "I call it. CALL", ["I call it.", ""]),
        ("an empty call that ends its line", "I call it. CALL \nDone.", ["I call it.", "", "Done."]),
        ("an empty call that begins its line", "I call it.\nCALL and wait.", ["I call it.", "", "and wait."]),
        ("two empty calls in a line", "I call it. CALL CALL", ["I call it.", "", ""]),
    )
}

QUOTING: dict[str, tuple[str, list[Said]]] = {
    f"{format}: a value quotes {where}": (
        f"{write('f', a=document, b='z')}\n{write('g', b='z', a=document)}",
        [("f", {"a": document, "b": "z"}), ("g", {"b": "z", "a": document})],
    )
    for format, write in WRITERS.items()
    for where, document in {
        "a call between words": f"Write\n{write('g', a='x', b='y')}\nfor a call.",
        "an empty call": f"Write\n{write('g')}\nfor a call.",
        "two calls at its end": f"Write\n{write('g', a='x')}\n{write('f', b='y')}",
    }.items()
}
"""Documents about calls as arguments."""

FORMS: dict[str, tuple[str, list[Said]]] = {
    **QUOTING,
    **SENTENCES,
    "qwen3_coder: a value quotes tags that are no call": (
        _qwen("f", a="Write <function=NAME>, then <parameter=KEY>.", b="z"),
        [("f", {"a": "Write <function=NAME>, then <parameter=KEY>.", "b": "z"})],
    ),
    "qwen3_coder: a value quotes the beginning of a call": (
        _qwen("f", b="z", a="<function=g>\n<parameter=a>\nand so on"),
        [("f", {"b": "z", "a": "<function=g>\n<parameter=a>\nand so on"})],
    ),
    "qwen3_coder: another call behind a value": (
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n" + _qwen("g", a="y"),
        [("f", {"a": "x"}), ("g", {"a": "y"})],
    ),
    # --- DeepSeek from V3.2 on
    "deepseek_v41: a space in every tag": (
        _dsml(
            'Hm.\n[calls]\n[invoke name="f"]\n[parameter name="a" string="true"]  x\n[/parameter]\n[/invoke]\n[/calls]',
            " ",
        ),
        ["Hm.", ("f", {"a": "  x\n"})],
    ),
    "deepseek_v41: v4.1 reads V3.2's": (
        _dsml(
            '[function_calls][invoke name="f"][parameter name="n" string="false"]2[/parameter][/invoke][/function_calls]'
        ),
        [("f", {"n": 2})],
    ),
    "deepseek_v32: an invoke that closes itself": (
        _dsml('[function_calls]\n[invoke name="f"/]\n[invoke name="g" /]\n[/function_calls]'),
        [("f", {}), ("g", {})],
    ),
    "deepseek_v4: an object in an invoke": (
        _dsml('[tool_calls][invoke name="f"]\n{"a": "1", "n": 1}\n[/invoke][invoke name="g"][/invoke][/tool_calls]'),
        [("f", {"a": "1", "n": 1}), ("g", {})],
    ),
    "deepseek_v4: without a section": (_dsml('Hm.[invoke name="f"][/invoke][/tool_calls]'), ["Hm.", ("f", {})]),
    "deepseek_v4: a slip in the section's word": (
        _dsml('[toolcalls]\n[invoke name="f"][/invoke]\n[/tool_calls]'),
        [("f", {})],
    ),
    "gigachat35: gigachat 3.5": (
        _dsml('[tool_calls][invoke name="f"][/invoke][/tool_calls]').replace("DSML", "GCML") + "<|message_sep|>",
        [("f", {})],
    ),
    "deepseek_v4: closing tags without a call": (_dsml("Done.\n[/parameter]\n[/invoke]\n[/tool_calls]"), ["Done."]),
    "deepseek_v41: the end of a section without a call": (_dsml("Done.[/calls]", " "), ["Done."]),
    "deepseek_v4: a sentence about the end of a section": (
        _dsml("Then [/tool_calls] ends it."),
        [_dsml("Then [/tool_calls] ends it.")],
    ),
    "mistral: the end of a section without a call": ("Done.[/TOOL_CALLS]", ["Done."]),
    "mistral: a sentence about the end of a section": ("Then [/TOOL_CALLS] ends it.", ["Then [/TOOL_CALLS] ends it."]),
    # --- sections whose markers are tokens
    "kimi_k2: an empty section": ("One. <|tool_calls_section_begin|><|tool_calls_section_end|> Two.", ["One.", "Two."]),
    "kimi_k2: noise in a section": (
        "One. <|tool_calls_section_begin|> let me <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|> see <|tool_calls_section_end|>",
        ["One.", ("f", {}), "see"],
    ),
    "kimi_k2: nothing but noise in a section": (
        "<|tool_calls_section_begin|>I need no tool.<|tool_calls_section_end|>",
        ["I need no tool."],
    ),
    "kimi_k2: the section's end ends the call": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a":"x"}<|tool_calls_section_end|>',
        [("f", {"a": "x"})],
    ),
    "deepseek_v31: an empty section": ("One.<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>", ["One."]),
    # --- tags
    "kimi_k3: entities in attributes, none in values": (
        '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="x &amp; &quot;y&quot; &lt;z" type="string"'
        "<|sep|>&amp;<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
        [("f", {'x & "y" <z': "&amp;"})],
    ),
    "minicpm5: CDATA": (
        '<function name="f"><param name="a"><![CDATA[ x </param> y\n]]></param><param name="b"> z </param></function>',
        [("f", {"a": " x </param> y\n", "b": " z "})],
    ),
    "minicpm5: CDATA with space around it": (
        "<function name='f'><param name='a'> <![CDATA[q]]> </param></function>",
        [("f", {"a": "q"})],
    ),
    "minicpm5: a space that got lost": ('<functionname="f"><paramname="n">1</param></function>', [("f", {"n": 1})]),
    "muse: an invoke that closes itself": (
        '<atem:function_calls><atem:invoke name="f"/></atem:function_calls>',
        [("f", {})],
    ),
    "dots_llm: an object in the section": (
        '<dots_function_call>{"name":"f","arguments":{"a":"x"}}</dots_function_call>',
        [("f", {"a": "x"})],
    ),
    "step3: without its type": (
        '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="f"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>',
        [("f", {})],
    ),
    "hunyuan3: a suffix in every tag": (
        "Hm.<tool_calls:ab1>\n<tool_call:ab1>f<tool_sep:ab1>\n<arg_key:ab1>a</arg_key:ab1>\n<arg_value:ab1>x</arg_value:ab1>\n"
        "</tool_call:ab1>\n</tool_calls:ab1>",
        ["Hm.", ("f", {"a": "x"})],
    ),
    "hunyuan4: without its separator": (
        "<tool_calls:ab1><tool_call:ab1>f<arg_key:ab1>a</arg_key:ab1><arg_value:ab1>x\ny</arg_value:ab1></tool_call:ab1>"
        "<tool_call:ab1>g</tool_call:ab1></tool_calls:ab1>",
        [("f", {"a": "x\ny"}), ("g", {})],
    ),
    "k2_horizon: the type is passed over, an object is read": (
        "<ifm|tool_calls><ifm|tool_call>f\n<ifm|arg_key>n</ifm|arg_key><ifm|arg_type>string</ifm|arg_type>"
        '<ifm|arg_value>1</ifm|arg_value></ifm|tool_call><ifm|tool_call>{"name":"g","arguments":{}}</ifm|tool_call></ifm|tool_calls>',
        [("f", {"n": 1}), ("g", {})],
    ),
    "solar_open2: as its template": (
        "<|tool_call:start|>f\n<|tool_arg:start|>a<|tool_arg:value|>x y<|tool_arg:end|>\n<|tool_call:end|>",
        [("f", {"a": "x y"})],
    ),
    # --- elements
    "minimax_m3: values are elements": (
        _m3(
            'Hm.\n<tool_call>\n<invoke name="f">\n<deep>\n<id>42</id>\n<rows><item><n>1.50</n></item><item><n>2</n></item></rows>\n'
            "</deep>\n<a>x y</a></invoke>\n</tool_call>"
        ),
        ["Hm.", ("f", {"deep": {"id": "42", "rows": [{"n": 1.5}, {"n": 2}]}, "a": "x y"})],
    ),
    "minimax_m3: one row is a row": (
        _m3('<tool_call><invoke name="f"><deep><rows><item><n>1</n></item></rows></deep></invoke></tool_call>'),
        [("f", {"deep": {"rows": [{"n": 1}]}})],
    ),
    "minimax_m3: without arguments": (
        _m3('<tool_call>\n<invoke name="f">\n</invoke>\n<invoke name="g"></invoke></tool_call>'),
        [("f", {}), ("g", {})],
    ),
    "minimax_m3: JSON where no elements are": (
        _m3('<tool_call><invoke name="f"><any>{"q": [1]}</any><n>3</n></invoke></tool_call>'),
        [("f", {"any": {"q": [1]}, "n": 3})],
    ),
    # --- JSON
    "gigachat: the separator is framing": (
        'Hm.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {"a": "x"}}',
        ["Hm.", ("f", {"a": "x"})],
    ),
    "lfm2: an object": (
        '<|tool_call_start|>{"name": "f", "arguments": {"a": "x"}}<|tool_call_end|>',
        [("f", {"a": "x"})],
    ),
    "lfm2: a list without tags": ("[f(n=1), g()]", [("f", {"n": 1}), ("g", {})]),
    "lfm2: JSON in its tags": (
        '<|tool_call_start|>[{"name": "f", "parameters": {"n": 1}}]<|tool_call_end|>Done.',
        [("f", {"n": 1}), "Done."],
    ),
    "jamba: an empty list": ("One. <tool_calls>[]</tool_calls>", ["One."]),
    "cohere: an empty list": ("<|START_ACTION|>[]<|END_ACTION|><|START_TEXT|>One.<|END_TEXT|>", ["One."]),
    "cohere: a lone call": ('<|START_ACTION|>{"tool_name":"f","parameters":{}}<|END_ACTION|>', [("f", {})]),
    "qwen3_coder: an object": ('<tool_call>\n<function=f>\n{"n": 1}\n</function>\n</tool_call>', [("f", {"n": 1})]),
    "mimo: line ends belong to the value": (
        "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
        [("f", {"a": "\nx\n"})],
    ),
    "gemma4: a bare colon": ('<|tool_call>:f{a:<|"|>x<|"|>}<tool_call|>', [("f", {"a": "x"})]),
    "plamo3: as its template": (
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f"
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{}"
        "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>",
        [("f", {})],
    ),
    # --- headers
    "harmony: the name alone": (
        ' to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a":"x"}<|call|>',
        [("f", {"a": "x"})],
    ),
    "inkling: a name before the content": (
        'f<|content_invoke_tool_json|>{"name":"f","args":{"a":"x"}}<|end_message|><|content_model_end_sampling|>',
        [("f", {"a": "x"})],
    ),
    "inkling: a word that is none": ("Hello, world", ["Hello, world"]),
    "inkling: a word alone": ("Hello", ["Hello"]),
    "functionary: the first recipient stands in the prompt": ('f\n{"a":"x"}\n>>>g\n{}', [("f", {"a": "x"}), ("g", {})]),
    "functionary: everybody": ("all\nLet me see.\n>>>f\n{}", ["Let me see.", ("f", {})]),
    "functionary: prose": ("Hello, >>> print(1)\n>>> 2", ["Hello, >>> print(1)\n>>> 2"]),
    "functionary_v31: functionary 3.1": ('Hm.<function=f>{"a":"x"}</function>', ["Hm.", ("f", {"a": "x"})]),
    "muse: recipients vanish": (
        ' to=f<|message|><atem:function_calls>\n<atem:invoke name="f">\n<atem:parameter name="a">x</atem:parameter>\n</atem:invoke>\n'
        "</atem:function_calls><|eom|><|start|>assistant to=user<|message|>Done.<|eot|>",
        [("f", {"a": "x"}), "Done."],
    ),
    "beam: ends with the message": (
        ' to=f<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="a">\nx\n</rfl:parameter><|end|>'
        "<|start|>assistant to=g<|channel|>analysis <|constrain|>xml<|message|><|call|>",
        [("f", {"a": "x"}), ("g", {})],
    ),
    "apriel: the last response": (
        'Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{"name": "f", "arguments": {}}]</tool_calls>\n'
        "[END FINAL RESPONSE]<|end|>",
        [("f", {})],
    ),
}


def said(twin: ModuleType, format: str, pieces: list[bytes], *, truncated: bool = False, **options: Any) -> list[Said]:
    """Texts and calls; thoughts are left out."""
    events = scanned(twin, format, TOOLS, pieces, truncated=truncated, **({"recognise": "taught"} | options))
    return [
        (block.name or "", json.loads(block.text)) if block.is_call else block.text.strip()
        for block in blocks(events)
        if block.kind != "reasoning"
    ]


@every("form", FORMS)
def test_it_is_read(twin: ModuleType, form: str) -> None:
    text, wanted = FORMS[form]
    format = form.partition(":")[0]
    data = text.encode()
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
        for streaming in ("buffered", 0):
            assert said(twin, format, pieces, argument_streaming=streaming) == wanted


@every("text", ["Paris", "Paris<", "Well, then.", "f", "f\n", "f\n "])
@every("format", ["inkling", "functionary"])
def test_an_answer_of_a_word_that_was_cut_off(twin: ModuleType, format: str, text: str) -> None:
    """It may be the name of a tool, and is a text as long as nothing of a call came."""
    assert said(twin, format, [text.encode()], truncated=True) == [text.strip()]


@pytest.mark.parametrize(
    ("format", "text"), [("functionary", 'f\n{"a'), ("inkling", 'f<|content_invoke_tool_json|>{"na')]
)
def test_a_call_at_the_beginning_that_was_cut_off(twin: ModuleType, format: str, text: str) -> None:
    assert said(twin, format, [text.encode()], truncated=True) == []


def test_trinity_calls_while_it_thinks(twin: ModuleType) -> None:
    text = b'<think>Hm.\n<tool_call>{"name":"f","arguments":{"a":"x"}}</tool_call></think>Done.'
    assert said(twin, "trinity", [text]) == [("f", {"a": "x"}), "Done."]
    assert said(twin, "hermes", [text]) == ["Done."]
    text = text.removeprefix(b"<think>")
    found = said(twin, "trinity", [text], reasoning=ReasoningConfig(preopened=True))
    assert found == [("f", {"a": "x"}), "Done."]
