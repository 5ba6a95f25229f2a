"""Finds valid calls that an answer contains as text, although a client expects them as calls (R23.7: there should be
none).

It is independent of the gateway's scanner, as a second opinion. It reads the whole answer, and may search it
repeatedly. The same calls count as with `recognise: any` (R23.1): markers of a model family anywhere, except in inline
code, in a Markdown quotation and in a fence with other content; an answer that consists of calls; and a fence or an
object at the start of a line that ends the answer. A call is valid if a tool of that name is on offer and the arguments
fit its schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from ...schemas.schema import compile_schema
from .reading import PrintedCall, Schemas, balanced, calls_of, json_value, python_calls

MAX_CHARS: Final = 8_000
"""Longer answers are cut, because some patterns take quadratic time."""


def printed(text: str, schemas: Schemas) -> list[PrintedCall]:
    """Returns the calls that `text` contains, in order."""
    try:
        return [call for call in _candidates(text[:MAX_CHARS], schemas) if _valid(call, schemas)]
    except RecursionError:  # no call is nested so deeply
        return []


def _candidates(text: str, schemas: Schemas) -> list[PrintedCall]:
    text = _THINKING.sub("", text, count=1)
    spans = sorted(_marked(text, schemas), key=lambda span: span[:2])
    fences = [*_FENCE.finditer(text)]
    if not spans:
        return [*_at_the_end(text, fences, schemas)]
    inline = [code.span() for code in _INLINE.finditer(_FENCE.sub(lambda fence: " " * len(fence[0]), text))]
    return [
        call
        for start, end, call in spans
        if not any(a <= start and end <= b for a, b in inline)
        and not _mixed(text, fences, start, end, spans)
        and not text[text.rfind("\n", 0, start) + 1 : start].lstrip(" \t").startswith(">")  # a Markdown quotation
    ]


def _valid(call: PrintedCall, schemas: Schemas) -> bool:
    schema = schemas.get(call.name)
    if schema is None or call.arguments == schema:  # the model repeated the tool's definition
        return False
    try:
        return compile_schema(schema).check(json.dumps(call.arguments)) is None
    except (TypeError, ValueError):  # a set or a lone surrogate, which JSON cannot express
        return False


# --- the whole answer, or its end -------------------------------------------------------------------------------------

_FENCE: Final = re.compile(r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n`]*\n(?P<body>.*?)^[ \t]*(?P=fence)[ \t]*$", re.M | re.S)
_THINKING: Final = re.compile(r"\A\s*(?:<think>)?(?:(?!<think>).)*?</think>", re.S)
_INLINE: Final = re.compile(r"(?<!`)(`{1,2})(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)", re.S)
_ENDINGS: Final = re.compile(r"(?:\s*(?:</tool_call>|<\|im_end\|>|<\|eot_id\|>|<\|eom_id\|>|</s>))+\s*\Z")
"""Markers that may follow a call without an opener."""
_BETWEEN: Final = re.compile(r"[\s;,]*")


def _at_the_end(text: str, fences: list[re.Match[str]], schemas: Schemas) -> Iterator[PrintedCall]:
    """Yields the calls of an answer that consists of calls, or ends with a fence or an object at the start of
    a line."""
    text = _ENDINGS.sub("", text)
    whole = text.strip()
    if (fence := _FENCE.fullmatch(whole)) is not None:
        whole = fence["body"].strip()
    if (calls := python_calls(whole, schemas)) is not None:
        yield from calls
    elif fences and not text[fences[-1].end() :].strip():
        yield from _values(fences[-1]["body"].strip(), schemas)
    else:
        for start in (match.start(1) for match in re.finditer(r"^[ \t]*([{\[])", text, re.M)):
            if any(fence.start() < start < fence.end() for fence in fences):
                continue
            if text[start] == "[" and text[:start].strip():
                continue  # after prose a list is text
            if calls := [*_values(text[start:].strip(), schemas)]:
                yield from calls
                return


def _values(text: str, schemas: Schemas) -> Iterator[PrintedCall]:
    """Yields the calls of a text that consists of JSON values only; none if it contains anything else."""
    calls: list[PrintedCall] = []
    place = 0
    while place < len(text):
        try:
            value, end = json_value(text, place)
        except ValueError:
            return
        made = [*calls_of(value, schemas)]
        if not made:
            return
        calls += made
        place = _after(text, end)
    yield from calls


def _after(text: str, end: int) -> int:
    match = _BETWEEN.match(text, end)
    return end if match is None else match.end()


# --- the markers of model families ------------------------------------------------------------------------------------

Span = tuple[int, int, PrintedCall]
"""A call, with its start and end."""

_BEFORE_OBJECT: Final = re.compile(
    r"(?:<(?:tool_call|function_call|tool_calls|tools|TOOLCALL|longcat_tool_call|function_calls)>|\[TOOL_CALLS?\]|\[TOOL_REQUEST\]"
    r"|<\|(?:tool_call|python_tag|python_start|START_ACTION|tool_call_start|function_call|tool_calls)\|>|functools"
    r"|<\|content_invoke_tool_json\|>|<\|im_start\|>assistant -> tool/function_call\n"
    r"|<\|action_start\|><\|plugin\|>|function call<\|role_sep\|>)\s*(?:```(?:json)?\s*)?(?=[{\[])"
)
"""Markers before an object, or a list of objects, that contains the tool's name."""

_BEFORE_ARGUMENTS: Final = [
    re.compile(pattern.replace("NAME", r"(?P<name>[\w./-]+)") + r"\s*(?=\{)")
    for pattern in (
        r"\[TOOL_CALLS\]\s*NAME(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?",
        r"function<｜tool▁sep｜>NAME\s*```json",
        r"<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>",
        r"functions\.NAME:[0-9]+\s*<\|tool_call_argument_begin\|>",
        r"to=functions\.NAME(?:(?!<\|message\|>)[^{}])*<\|message\|>",
        r"<function=NAME>",
        r"<tool_call>function\n+NAME",
        r"(?m:^)>>>NAME\n",
        r"<\|plamo:begin_tool_name:plamo\|>NAME<\|plamo:end_tool_name:plamo\|>(?:(?!<\|plamo:msg\|>)[^{}])*<\|plamo:msg\|>",
        r"<[^<>\s]*?\s?invoke name=[\"']?NAME[\"']?\s*>",
    )
]
"""Markers before an object that contains the arguments only."""

_TAGGED: Final = [
    re.compile(pattern.replace("NAME", r"(?P<name>[\w./-]+)"), re.S)
    for pattern in (
        r"<function=NAME>(?P<body>(?:(?!<function=).)*?)(?:</function>|\Z)",
        r"<(?P<tag>[^<>\s]*?\s?invoke) name=[\"']?NAME[\"']?\s*>(?P<body>(?:(?!invoke name=).)*?)(?:</(?P=tag)>|\Z)",
        r"<[^<>\s]*?\s?invoke name=[\"']?NAME[\"']?\s*/>(?P<body>)",
        r"<function name=\"NAME\">(?P<body>.*?)(?:</function>|\Z)",
        r"<(?P<tag>(?:iquest_|iquestcoder_|ifm\|)?tool_call)>\s*NAME\s*(?:<tool_sep>\s*)?(?P<body>(?:<(?:ifm\|)?(?:arg|param)_key>.*?)?)(?:</(?P=tag)>|\Z)",
        r"<\|tool_call:start\|>NAME\s(?P<body>.*?)(?:<\|tool_call:end\|>|\Z)",
        r"assistant to=NAME<\|channel\|>[^{}]*?<\|message\|>(?P<body>(?:<rfl:.*?)?)(?:<\|call\|>|\Z)",
        r"<\|open\|>call tool=\"NAME\"[^<>]*<\|sep\|>(?P<body>.*?)<\|close\|>call<\|sep\|>",
    )
]
_VALUE: Final = re.compile(
    r"<[^<>\s]*?\s?(?:parameter|param)(?:=|\s+name=)[\"']?(?P<key>[^\"'>\s]+)[\"']?[^>]*>(?P<value>.*?)"
    r"(?:</[^<>]*?(?:parameter|param)>|(?=<parameter)|\Z)"
    r"|<(?P<kind>(?:ifm\|)?(?:arg|param)_)key>(?P<key2>.*?)</(?P=kind)key>\s*"
    r"<(?P=kind)value>(?P<value2>.*?)(?:</(?P=kind)value>|\Z)"
    r"|<\|open\|>argument key=\"(?P<key3>[^\"]*)\"[^<>]*<\|sep\|>(?P<value3>.*?)<\|close\|>argument<\|sep\|>"
    r"|<\|tool_arg:start\|>(?P<key4>.*?)<\|tool_arg:value\|>(?P<value4>.*?)<\|tool_arg:end\|>"
    r"|\]<\]minimax\[>\[<(?P<key5>[\w-]+)>(?P<value5>.*?)\]<\]minimax\[>\[</(?P=key5)>",
    re.S,
)
_PYTHON: Final = re.compile(
    r"(?:<\|python_start\|>|<\|tool_call_start\|>|<function_calls>|```tool_code|(?m:^)Action:(?=[ ]*\w+\())\s*(?P<body>.+?)\s*"
    r"(?:<\|python_end\|>|<\|tool_call_end\|>|</function_calls>|```|(?=\nAction:)|\Z)",
    re.S,
)
_BRACES: Final = re.compile(r"call:(?P<name>[\w./-]+)(?=\{)")
_BRACES_END: Final = re.compile(r"<end_function_call>|<tool_call\|>")
_BRACE_TOKENS: Final = re.compile(r'(<escape>|<\|"\|>)(?P<text>.*?)\1|(?P<key>[\w$.-]+)(?=:)', re.S)
_TOOLS_PREFIX: Final = re.compile(r"<\|tools_prefix\|>\s*(?=\[)")
_OF_MARKERS: Final = re.compile(r"<[^<>!][^<>]*>|\[/?[A-Z_]+\]|functools|```\w*")


def _marked(text: str, schemas: Schemas) -> Iterator[Span]:
    for reader in (_objects, _arguments, _tagged, _pythonic, _braces, _keyed):
        yield from reader(text, schemas)


def _objects(text: str, schemas: Schemas) -> Iterator[Span]:
    for match in _BEFORE_OBJECT.finditer(text):
        place = match.end()
        while place < len(text) and text[place] in "{[":
            try:
                value, end = json_value(text, place)
            except ValueError:
                break
            yield from ((match.start(), end, call) for call in calls_of(value, schemas))
            place = _after(text, end)


def _arguments(text: str, schemas: Schemas) -> Iterator[Span]:
    for pattern in _BEFORE_ARGUMENTS:
        for match in pattern.finditer(text):
            try:
                value, end = json_value(text, match.end())
            except ValueError:
                continue
            if isinstance(value, dict):
                yield match.start(), end, PrintedCall(match["name"], value)


def _tagged(text: str, schemas: Schemas) -> Iterator[Span]:
    for pattern in _TAGGED:
        for match in pattern.finditer(text):
            schema = schemas.get(match["name"])
            if schema is None or match["body"].lstrip().startswith("{"):
                continue
            properties = schema.get("properties", {})
            arguments = {}
            for value in _VALUE.finditer(match["body"]):
                key, raw = next((value[f"key{n}"], value[f"value{n}"]) for n in ("", *"2345") if value[f"key{n}"])
                arguments[key] = _typed(raw, properties.get(key, {}))
            yield *match.span(), PrintedCall(match["name"], arguments)


def _typed(raw: str, schema: Any) -> Any:
    """Returns the value of an unquoted text: text if the schema wants text, else JSON."""
    text = re.sub(r"\A<!\[CDATA\[(.*)\]\]>\Z", r"\1", raw.removeprefix("\n").removesuffix("\n"), flags=re.S)
    kinds = schema.get("type", "string" if "enum" in schema else None)
    if kinds == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        try:
            return json_value(text.strip(), 0)[0]
        except ValueError:
            return {"True": True, "False": False, "None": None}.get(text.strip(), text)


def _pythonic(text: str, schemas: Schemas) -> Iterator[Span]:
    for match in _PYTHON.finditer(text):
        yield from ((*match.span(), call) for call in python_calls(match["body"], schemas) or ())


def _braces(text: str, schemas: Schemas) -> Iterator[Span]:
    """Yields the calls in Gemma's format: `call:NAME{key:<escape>text<escape>,n:1}`."""

    def quoted(token: re.Match[str]) -> str:
        return json.dumps(token["text"] if token["key"] is None else token["key"])

    for match in _BRACES.finditer(text):
        closer = _BRACES_END.search(text, match.end())
        end = closer.start() if closer else balanced(text, match.end())
        try:
            value, _ = json_value(_BRACE_TOKENS.sub(quoted, text[match.end() : end]), 0)
        except ValueError:
            continue
        yield match.start(), end, PrintedCall(match["name"], value)


def _keyed(text: str, schemas: Schemas) -> Iterator[Span]:
    """Yields the calls in Apertus' format: `[{NAME: arguments}]`."""
    for match in _TOOLS_PREFIX.finditer(text):
        try:
            value, end = json_value(text, match.end())
        except ValueError:
            continue
        for item in value:
            if isinstance(item, dict) and len(item) == 1 and isinstance(arguments := next(iter(item.values())), dict):
                yield match.start(), end, PrintedCall(next(iter(item)), arguments)


def _mixed(text: str, fences: list[re.Match[str]], start: int, end: int, spans: list[Span]) -> bool:
    """Returns True if this call is in a fence that contains anything except calls."""
    around = next((fence for fence in fences if fence.start() < start and end <= fence.end()), None)
    if around is None:
        return False
    rest, place = "", around.start("body")
    for a, b, _ in spans:
        if around.start() < a and b <= around.end() and b > place:
            rest += text[place : max(a, place)]
            place = b
    rest += text[place : around.end("body")]
    return bool(_OF_MARKERS.sub("", rest).strip())
