"""Calls in forms that nobody taught, made by machine: every family's own, and drawn ones for laws.

of_families()          # each family's form, alone and with prose around it
printed(Random(7))     # any form, any tool, any values
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

from tests.corpus import writers
from tests.corpus.answers import Answer, Call, PrintedCalls, all_tools
from tests.corpus.formats import FORMATS, Format
from tests.corpus.quoted import CALLS, written
from tests.corpus.values import Call as Written
from tests.corpus.values import Number, read_json
from tests.corpus.writers import Style

PROSE = ("Let me look that up.", "One moment.", "Ich sehe nach.", "我来看看。")


def _value(value: Any) -> Any:
    """A value of the corpus as plain JSON."""
    if isinstance(value, Number):
        return json.loads(value.text)
    if isinstance(value, Mapping):
        return {key: _value(inner) for key, inner in value.items()}
    return [_value(inner) for inner in value] if isinstance(value, list) else value


# --- the families' own forms ------------------------------------------------------------------------------------------


def of_families() -> Iterator[PrintedCalls]:
    """What every family writes: alone, behind prose where prose may stand there, and two calls in one answer."""
    for number, format in enumerate(FORMATS):
        one, two = CALLS[number % len(CALLS)], CALLS[(number + 1) % len(CALLS)]
        yield _of_family(format, "alone", written(format, [one]), [one])
        if "before" in format.prose:
            prose = PROSE[number % len(PROSE)]
            yield _of_family(format, "behind_prose", f"{prose}\n\n{written(format, [one])}", [one], prose)
        if format.parallel:
            yield _of_family(format, "two", written(format, [one, two]), [one, two])


def _of_family(format: Format, kind: str, text: str, calls: list[Written], prose: str = "") -> PrintedCalls:
    return PrintedCalls(
        f"family/{format.title.replace(' ', '_')}/{kind}",
        text,
        (*(call.name for call in calls), "list_files"),
        f"{format.title}, {kind.replace('_', ' ')}, where another form is taught",
        tuple(Call(call.name, _value(call.arguments)) for call in calls),
        text_left=prose,
    )


# --- drawn ones -------------------------------------------------------------------------------------------------------

WORDS = (
    *("Oslo", "Zürich", "unpaid invoices", "a/b.txt", 'say "hi"', "it's", "line\nline", "C:\\new", "東京 😀", "true"),
    "17",
)
_NAMES = ("name", "tool", "tool_name", "function", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "inputs", "action_input", "tool_arguments")


def printed(random: Random) -> PrintedCalls:
    """An answer that is one or several calls: of any tools, with any values that fit, in any of the forms."""
    form = random.choice(FORMS)
    several = random.random() < 0.4
    calls = [_call(random) for _ in range(random.randint(2, 3) if several else 1)]
    text = form(random, calls)
    prose = random.choice(PROSE) if form in BEHIND_PROSE and random.random() < 0.4 else ""
    thought = "<think>Which tool?</think>\n" if random.random() < 0.15 else ""
    offered = (*dict.fromkeys(call.name for call in calls), *(name for name in ("list_files", "run") if not several))
    return PrintedCalls(
        f"drawn/{form.__name__}",
        thought + (f"{prose}\n\n" if prose else "") + text,
        tuple(dict.fromkeys(offered)),
        f"drawn: {form.__name__.replace('_', ' ')}",
        tuple(calls),
        text_left=prose,
    )


def _call(random: Random) -> Call:
    name = random.choice(list(all_tools()))
    schema = all_tools()[name]["parameters"]
    required = schema.get("required", ())
    chosen = [key for key in schema["properties"] if key in required or random.random() < 0.5]
    return Call(name, {key: _draw(random, schema["properties"][key]) for key in chosen})


def _draw(random: Random, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return random.choice(schema["enum"])
    match schema["type"]:
        case "string":
            return random.choice(WORDS)
        case "integer":
            return random.randint(schema.get("minimum", 0), min(schema.get("maximum", 1000), 1000))
        case "number":
            return random.choice([0, 2.5, 100, 1e-7])
        case "boolean":
            return random.random() < 0.5
        case "array":
            return [_draw(random, schema["items"]) for _ in range(random.randint(1, 3))]
    wanted = schema.get("required", ())
    return {
        key: _draw(random, inner)
        for key, inner in schema["properties"].items()
        if key in wanted or random.random() < 0.5
    }


def _dumps(random: Random, value: Any) -> str:
    return json.dumps(value, ensure_ascii=random.random() < 0.2, indent=random.choice([None, None, 2]))


def _object(random: Random, call: Call) -> dict[str, Any]:
    """One call as an object, under any of the keys."""
    arguments: Any = call.arguments
    kind = random.randrange(5)
    if kind == 0:
        return {"function": {"name": call.name, "arguments": json.dumps(arguments)}, "type": "function"}
    if kind == 1 and "name" not in arguments and not set(arguments) & set(_ARGUMENTS):
        return {random.choice(_NAMES): call.name, **arguments}
    if kind == 2 and not arguments:
        return {random.choice(_NAMES): call.name}
    members = [(random.choice(_NAMES), call.name), (random.choice(_ARGUMENTS), arguments)]
    if kind == 3:
        members[1] = (members[1][0], json.dumps(arguments))
    return dict(reversed(members) if random.random() < 0.2 else members)


def an_object(random: Random, calls: list[Call]) -> str:
    return random.choice(["\n", "; ", "\n\n"]).join(_dumps(random, _object(random, call)) for call in calls)


def a_list(random: Random, calls: list[Call]) -> str:
    return _dumps(random, [_object(random, call) for call in calls])


def tool_calls(random: Random, calls: list[Call]) -> str:
    return _dumps(random, {"tool_calls": [_object(random, call) for call in calls]})


def a_fence(random: Random, calls: list[Call]) -> str:
    word = random.choice(["json", "", "tool_call", "JSON"])
    return f"```{word}\n{random.choice([an_object, a_list, tool_calls])(random, calls)}\n```"


def python_calls(random: Random, calls: list[Call]) -> str:
    texts = [f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})" for call in calls]
    if len(texts) > 1:
        return f"[{', '.join(texts)}]"
    return random.choice(["{}", "[{}]", "print({})", "await {}", "```python\n{}\n```"]).format(texts[0])


def a_family_block(random: Random, calls: list[Call]) -> str:
    """In the form of any family that takes prose around it."""
    several = len(calls) > 1
    format = random.choice([f for f in FORMATS if "before" in f.prose and (f.parallel or not several)])
    made = [Written(call.name, read_json(json.dumps(call.arguments))) for call in calls]
    return written(format, made, Style(spaced=random.random() < 0.7))


def a_tag(random: Random, calls: list[Call]) -> str:
    """In tags of no family that is taught."""
    kind = random.randrange(4)
    texts = []
    for call in calls:
        arguments = json.dumps(call.arguments)
        inside = "".join(
            f'<parameter name="{key}">{writers.untyped(read_json(json.dumps(value)))}</parameter>\n'
            for key, value in call.arguments.items()
        )
        texts.append(
            (
                f"<function={call.name}>{arguments}</function>",
                f'<tools>{{"name": "{call.name}", "arguments": {arguments}}}</tools>',
                f'[TOOL_CALL]{{"name": "{call.name}", "arguments": {arguments}}}[/TOOL_CALL]',
                f'<invoke name="{call.name}">\n{inside}</invoke>',
            )[kind]
        )
    return "\n".join(texts)


Form = Callable[[Random, list[Call]], str]
FORMS: tuple[Form, ...] = (an_object, a_list, tool_calls, a_fence, python_calls, a_family_block, a_tag)
BEHIND_PROSE = (an_object, tool_calls, a_fence, a_family_block, a_tag)


# --- made into none ---------------------------------------------------------------------------------------------------


def spoiled(random: Random) -> Answer:
    """An answer that holds a drawn call and is none: it is quoted, or talked about, or of a tool that is not on
    offer."""
    while True:
        meant = printed(random)
        form = meant.id.removeprefix("drawn/")
        way = random.choice(WAYS)
        text = way(meant.text, form in ("a_family_block", "a_tag"))
        if text is not None:
            offered = meant.offered if way is not of_others else _others(meant)
            return Answer(f"spoiled/{way.__name__}/{form}", text, offered, f"{form}, {way.__name__}".replace("_", " "))


def _others(meant: PrintedCalls) -> tuple[str, ...]:
    """Tools that none of the calls is of."""
    called = {call.name for call in meant.calls}
    return tuple(name for name in ("search", "run", "get_time", "list_files") if name not in called)[:2]


def of_others(text: str, marked: bool) -> str | None:
    """Only the tools on offer are others."""
    return text


def with_prose_behind(text: str, marked: bool) -> str | None:
    """Where no marker says that it is a call."""
    return None if marked else f"{text}\n\nThat is how it would look."


def in_inline_code(text: str, marked: bool) -> str | None:
    """In a sentence."""
    return None if "`" in text or "\n" in text else f"One could write `{text}` here."


def in_a_fence_with_more(text: str, marked: bool) -> str | None:
    """Behind some words."""
    return None if "<think>" in text else f"````\nfor example:\n{text}\n````"


def behind_words_of_its_line(text: str, marked: bool) -> str | None:
    """On a line that begins as prose."""
    return None if marked or "\n" in text or "`" in text else f"The call would be {text}"


WAYS = (of_others, with_prose_behind, in_inline_code, in_a_fence_with_more, behind_words_of_its_line)
