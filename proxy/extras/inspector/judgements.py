"""Judgements: decisions about blocks and calls, in words for people."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from ...call_policy.near import NearMiss
from ...errors import quote
from ...formats.recognised.recognition import BARE, FENCE
from ...record import CallDecision
from ...scan._grammar import Decision
from ..capture.verdict import dropped

MOST_COMPARED: Final = 32
"""The number of unknown names in one answer for which the closest tool on offer is looked up."""
NAME_CHARS: Final = 128

JudgementKind = Literal[
    "repaired", "coerced", "recognised", "refused", "dropped", "cut", "failed", "retried", "near", "switched"
]

_REPAIRS: Final[Mapping[str, str]] = {
    "fence": "a Markdown fence around the JSON",
    "commas": "a missing comma",
    "quotes": "quotes or words that are not JSON's",
    "controls": "a raw control character in a string",
    "brackets": "missing brackets at the end",
    "closer": "the closing tag is missing",
}
_COERCIONS: Final[Mapping[str, str]] = {
    "string": "a number or boolean where a string is wanted",
    "number": "a number in quotes",
    "boolean": "a boolean in quotes",
    "null": "a null in quotes",
    "json": "an object or array in quotes",
    "array": "one value where a list is wanted",
    "enum": "an allowed value in another case",
}
_FORMS: Final[Mapping[str, str]] = {BARE: "a call without markers", FENCE: "a fenced call"}
_TRAILING: Final = re.compile(r",\s*[}\]]")
_UNRECOGNISED: Final[Mapping[str, str]] = {
    "name": "another call beside it names no tool on offer",
    "arguments": "its arguments cannot be read",
    "schema": "its arguments do not fit the tool's schema",
    "definition": "it is the tool's definition, not a call",
}


@dataclass(eq=False, slots=True)
class Judgement:
    """One decision in words. `calls` are the numbers of the calls that it is about, `round` is the number of the
    server's answer."""

    kind: JudgementKind
    words: str
    calls: list[int] = field(default_factory=list)
    round: int = 0


class Notes:
    """Collects what a call policy counts and reports while it decides about one block. Its methods are the callbacks
    `count`, `label`, `near` and `refused` of the policy. `names` are the names of the tools on offer."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self._closest_to: dict[str, str] = {}
        self.said: list[tuple[str, str]] = []

    def count(self, name: str) -> None:
        """Notes that this counter was raised."""
        self.said.append((name, ""))

    def label(self, name: str, label: str) -> None:
        """Notes a label of a counter."""
        self.said.append((name, label))

    def near(self, miss: NearMiss) -> None:
        """Notes why the block is a failed attempt to call a tool."""
        self.said.append(("near", miss.why))

    def refused(self, detail: str, name: str | None) -> None:
        """Notes why the block is no call. `name` is the tool that it names if that tool is not on offer."""
        self.said.append(("refused", f"{detail}{self._closest(name)}"))

    def repeat(self, decision: CallDecision) -> None:
        """Replaces the notes with those of a decision that was recorded."""
        self.said = []
        for note in decision.notes:
            counter, _, label = note.partition(":")
            self.said.append((counter, label))
        if decision.why:
            self.refused(decision.why, decision.name)

    def not_offered(self, name: str) -> None:
        """Notes that the block names only tools that are not on offer."""
        self.refused(f"{quote(name)} is not on offer.", name)

    def take(self) -> list[tuple[str, str]]:
        """Returns the notes on this block and clears them."""
        said, self.said = self.said, []
        return said

    def _closest(self, name: str | None) -> str:
        if name is None:
            return ""
        known = self._closest_to.get(name)
        if known is None:
            compared = len(self._closest_to) < MOST_COMPARED
            found = difflib.get_close_matches(name[:NAME_CHARS], self.names, 1, 0.5) if compared else []
            known = self._closest_to[name] = f" The closest is {quote(found[0])}." if found else ""
        return known


def judgements_of(
    said: Sequence[tuple[str, str]], body: str, decision: Decision
) -> tuple[list[Judgement], list[list[Judgement]]]:
    """Returns the judgements on a block without calls, and those on each call of a block with calls. `body` is the text
    of the block."""
    if decision.calls:
        return [], _of_calls(said, body, len(decision.calls))
    words = _refusal(said)
    if decision.error is not None:
        return [Judgement("failed", f"Ended the answer: {words or decision.error}")], []
    if decision.drop:
        kind: JudgementKind = "cut" if ("truncated_calls", "") in said else "dropped"
        return [Judgement(kind, f"Dropped: {dropped({name for name, _ in said})}")], []
    if words:
        return [Judgement("refused", f"Text, not a call: {words}")], []
    return [], []


def _of_calls(said: Sequence[tuple[str, str]], body: str, count: int) -> list[list[Judgement]]:
    forms = [label for name, label in said if name == "recognised" and label]
    groups: list[list[tuple[str, str]]] = []
    for one in said:
        if one == ("calls", ""):
            groups.append([])
        elif groups:
            groups[-1].append(one)
    found: list[list[Judgement]] = []
    for index in range(count):
        judgements: list[Judgement] = []
        if index < len(forms):
            form = _FORMS.get(forms[index], f"a call in the form of {forms[index]}")
            judgements.append(Judgement("recognised", f"Recognised as {form}, which was not taught"))
        for name, label in groups[index] if index < len(groups) else ():
            if name == "repaired" and label:
                judgements.append(repaired(label, body))
            elif name == "coerced" and label:
                judgements.append(coerced(label))
            elif name == "object_arguments":
                judgements.append(Judgement("repaired", "The arguments are an object where a string was taught"))
        found.append(judgements)
    return found


def repaired(kind: str, body: str) -> Judgement:
    """Returns a sentence about one step of a repair, of this `kind`. `body` is the text that was repaired."""
    what = "a trailing comma" if kind == "commas" and _TRAILING.search(body) else _REPAIRS.get(kind, kind)
    return Judgement("repaired", f"Repaired: {what}")


def coerced(kind: str) -> Judgement:
    """Returns a sentence about an argument that was converted to the type in the schema."""
    return Judgement("coerced", f"Types mended: {_COERCIONS.get(kind, kind)}")


def _refusal(said: Sequence[tuple[str, str]]) -> str:
    """Returns why a block is no call: the words of the call policy, else words for the counters that it raised."""
    for name, label in said:
        if name == "refused":
            return label
    near = next((why for name, why in said if name == "near"), "")
    for name, label in said:
        if name == "unrecognised" and label:
            if near:
                return near
            return f"it names a tool on offer, but {_UNRECOGNISED.get(label, label)}."
    return ""
