"""Calls in forms that nobody taught, made by machine: each family's own, alone and with prose around it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.corpus.answers import Call, PrintedCalls
from tests.corpus.formats import FORMATS, Format
from tests.corpus.quoted import CALLS, written
from tests.corpus.values import Call as Written
from tests.corpus.values import Number

PROSE = ("Let me look that up.", "One moment.", "Ich sehe nach.", "我来看看。")


def _value(value: Any) -> Any:
    """A value of the corpus as plain JSON."""
    if isinstance(value, Number):
        return json.loads(value.text)
    if isinstance(value, Mapping):
        return {key: _value(inner) for key, inner in value.items()}
    return [_value(inner) for inner in value] if isinstance(value, list) else value


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
