"""Answers that are no calls and must never be read as one, and answers that are calls in forms which nobody taught.

They stand in `no_calls.txt` and `printed_calls.txt`, as plain text: an answer is many lines, and what matters in it are
quotes and backslashes, which JSON or Python would hide. `quoted.py` adds quotations of every family's calls,
`misprinted.py` has what each family writes.

    for answer in no_calls():       # answer.text, answer.tools
    for answer in printed_calls():  # answer.text, answer.tools, answer.calls, answer.mended, answer.text_left

A form that is taught is a call wherever it stands and whether or not its arguments fit. So what holds of an answer of
the first kind on a route with any format: recognising adds nothing, it is read as if only the taught form were.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
HEAD = re.compile(
    r"^=== (?P<id>[a-z0-9/_.-]+) \| (?P<tools>[a-z_ ]+) \| (?P<why>[^|\n]+?)(?: \| (?P<more>[^|\n]+?))?$", re.M
)
"""A line that begins an answer."""

CALLS = "\n=== calls\n"
"""What stands between an answer and the calls that it makes, one JSON object a line."""

Schemas = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Answer:
    """What a model wrote, the tools on offer, and why it is in the corpus."""

    id: str
    text: str
    offered: tuple[str, ...]
    why: str

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools on offer, as Chat has them."""
        return [{"type": "function", "function": {"name": name, **all_tools()[name]}} for name in self.offered]

    @property
    def schemas(self) -> Schemas:
        """Their parameters by name."""
        return {name: all_tools()[name]["parameters"] for name in self.offered}


@dataclass(frozen=True)
class Call:
    """A call that has to come out."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class PrintedCalls(Answer):
    """Calls. `mended`: only after its arguments were given the types that the schema wants (`coerce`). `text_left`:
    what the client sees besides, up to white space at its edges."""

    calls: tuple[Call, ...] = ()
    mended: bool = False
    text_left: str = ""


@cache
def all_tools() -> dict[str, dict[str, Any]]:
    """Description and parameters of every tool, by name."""
    tools: dict[str, dict[str, Any]] = json.loads((FOLDER / "answer_tools.json").read_text("utf-8"))
    return tools


@cache
def no_calls() -> tuple[Answer, ...]:
    """All answers that are none."""
    from tests.corpus.quoted import quotations

    read = (Answer(head["id"], text, _names(head), head["why"]) for head, text in _answers("no_calls.txt"))
    return (*read, *quotations())


@cache
def printed_calls() -> tuple[PrintedCalls, ...]:
    """All answers that are calls."""
    from tests.corpus.misprinted import of_families

    return (*map(_printed, _answers("printed_calls.txt")), *of_families())


def _printed(answer: tuple[re.Match[str], str]) -> PrintedCalls:
    head, text = answer
    text, _, calls = text.partition(CALLS)
    made = tuple(Call(**json.loads(line)) for line in calls.splitlines() if not line.startswith("text "))
    left = "".join(json.loads(line[5:]) for line in calls.splitlines() if line.startswith("text "))
    return PrintedCalls(head["id"], text, _names(head), head["why"], made, head["more"] == "mended", left)


def _names(head: re.Match[str]) -> tuple[str, ...]:
    return tuple(head["tools"].split())


def _answers(file: str) -> Iterator[tuple[re.Match[str], str]]:
    text = (FOLDER / file).read_text("utf-8")
    heads = [*HEAD.finditer(text)]
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        yield head, text[head.end() + 1 : after.start() if after else len(text)].removesuffix("\n")
