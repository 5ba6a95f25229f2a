"""Every family's calls, quoted as documentation quotes them: in inline code, in fences that hold more, in tables, in
programs.

Each call is real: the tool is on offer and the arguments fit. What makes it none is where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle

from tests.corpus.answers import Answer
from tests.corpus.formats import FORMATS, Format
from tests.corpus.values import Call, Number
from tests.corpus.writers import Style

STYLE = Style()
CALLS = (
    Call("get_weather", {"city": "Oslo", "unit": "celsius"}),
    Call("search", {"query": "unpaid invoices", "limit": Number("5")}),
    Call("read_file", {"path": "docs/README.md"}),
    Call("set_light", {"room": "kitchen", "on": True, "level": Number("40")}),
    Call("calculator", {"expression": "6 * 7"}),
)


def written(format: Format, calls: Sequence[Call], style: Style = STYLE) -> str:
    """What models of a family write, with the ids that it has."""
    return format.write(
        [replace(call, id=_ident(format, call, place)) for place, call in enumerate(calls)],
        style,
    )


def _ident(format: Format, call: Call, place: int) -> str | None:
    return {"kimi": f"functions.{call.name}:{place}", "mistral": f"abc12345{place}"}.get(format.ids)


def quotations() -> Iterator[Answer]:
    """All of them, in a settled order."""
    calls = cycle(CALLS)
    for format in FORMATS:
        for manner in MANNERS:
            call = next(calls)
            text = manner(format, written(format, [call]), call)
            if text is not None:
                kind = manner.__name__
                ident = f"quoted/{format.title.replace(' ', '_')}/{kind}"
                why = f"{format.title} as documentation has it: {kind.replace('_', ' ')}"
                yield Answer(ident, text, (call.name, "list_files"), why)


# --- the ways to quote ------------------------------------------------------------------------------------------------

INLINE = (
    "When it wants to know something, the model writes `{}` and stops.",
    "The whole thing, on one line: `{}`. The client never sees it.",
    "Compare `{}` with what your server shows; if the tags are missing, look at `skip_special_tokens`.",
    "A parser has to find `{}` however the stream is cut.",
    "Ein vollständiger Aufruf sieht so aus: `{}`, danach folgt das Ergebnis.",
)
BEFORE = ("How it looks on the wire:", "From the test suite of a parser:", "A transcript:", "What the log showed:")
AFTER = (
    "The result follows in the next message.",
    "Everything behind it is prose again.",
    "No tool was run for this page.",
    "Note the line ends: they belong to the template.",
)


def _pick(choices: tuple[str, ...], text: str) -> str:
    return choices[len(text) % len(choices)]


def inline_code(format: Format, text: str, call: Call) -> str | None:
    """In a sentence."""
    line = text.replace("\n", "")
    return None if "`" in line else _pick(INLINE, text).format(line)


def a_transcript_in_a_fence(format: Format, text: str, call: Call) -> str | None:
    """With what was said before and after."""
    return f"{_pick(BEFORE, text)}\n\n````text\nuser: please use {call.name}\nmodel: {text}\ntool: ok\n````\n\n{_pick(AFTER, text)}"


def a_string_in_a_program(format: Format, text: str, call: Call) -> str | None:
    """As the sample of a test."""
    return f"````python\nSAMPLE = r'''{text}'''\nassert parse(SAMPLE).name == '{call.name}'\n````"


def a_commented_fence(format: Format, text: str, call: Call) -> str | None:
    """With a comment over it, at the end of the answer."""
    return f"In the form that {format.title} uses, this is one call of `{call.name}`:\n\n````\n# one call\n{text}\n````"


def a_quotation(format: Format, text: str, call: Call) -> str | None:
    """In lines that begin with `>`."""
    quotation = "\n".join(f"> {line}" for line in text.split("\n"))
    return f"{_pick(BEFORE, text)}\n\n{quotation}\n\n{_pick(AFTER, text)}"


def a_row_of_a_table(format: Format, text: str, call: Call) -> str | None:
    """Where no bar disturbs it."""
    line = text.replace("\n", "")
    if "|" in line or "`" in line:
        return None
    return f"| family | a call |\n| --- | --- |\n| {format.title} | `{line}` |"


def markers_by_name(format: Format, text: str, call: Call) -> str | None:
    """Only the openers and closers, one after the other."""
    known = [marker for marker in (format.opener, format.starts, format.closer, format.end) if marker.strip()]
    if not known:
        return None
    listed = ", then ".join(f"`{marker.strip()}`" for marker in known if "`" not in marker)
    return f"The markers of {format.title}, in their order: {listed}. Between them stands a call of a tool such as {call.name}."


Manner = Callable[[Format, str, Call], str | None]
MANNERS: tuple[Manner, ...] = (
    *(inline_code, a_transcript_in_a_fence, a_string_in_a_program, a_commented_fence, a_row_of_a_table, a_quotation),
    markers_by_name,
)
