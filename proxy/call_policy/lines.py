"""Calls as command lines: the tool's name, then its arguments as a JSON object or the text of the first argument
(CWM)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ..repair.literals import json_string
from ..repair.repair import parses, read_json
from ..scan._grammar import SPACE, BlockSyntax
from .untyped import ParameterTypes, typed_value
from .written import Settled, WrittenCall, object_text

_NAMED: Final = re.compile(r"[ \t\r\n]*(?:function>[ \t\r\n]*)?([\w.:/-]+)(?:>|(?=[ \t\r\n])|\Z)[ \t\r\n]*")
"""The name, after the word `function>` or without it."""
_MEMBER: Final = re.compile(r"\{\s{0,16}\"([^\"\\]{1,256})\"\s{0,16}:")
_UNKNOWN: Final = "command"
"""The argument of an unknown tool. Models of this format were trained on tools that run commands."""


@lru_cache(maxsize=256)  # a pure function of a frozen value; there are few
def is_line(syntax: BlockSyntax) -> bool:
    """Returns True if the calls of a syntax are command lines."""
    return any(branch.read == "text" and branch.field == "call" for node in syntax.nodes for branch in node)


def line_call(text: str) -> WrittenCall:
    """Returns the call in a line. Raises `ValueError` if the line does not begin with a name."""
    named = _NAMED.match(text)
    if named is None:
        raise ValueError("it begins with no name")
    return WrittenCall(named[1], LineArguments(text[named.end() :].rstrip(SPACE)))


@dataclass(slots=True)
class LineArguments:
    """A JSON object with parameters of the tool, or the value of its first required (else first declared) parameter.
    Broken JSON that names a parameter is an error."""

    text: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """Returns the arguments as JSON text, see `WrittenArguments.settle`. Raises `ValueError`."""
        known = ParameterTypes(parameters)
        own = {*known.names, *known.required}
        if self.text[:1] == "{" and parses(self.text):
            keys = read_json(self.text).keys()
            if not keys or not own or not keys.isdisjoint(own):
                return Settled(self.text)
        elif (member := _MEMBER.match(self.text)) is not None and member[1] in own:
            raise ValueError("its arguments are no JSON")
        if not self.text:
            return Settled("{}")
        names = [name for name in known.names if name in known.required] or known.names
        if not names:
            return Settled(object_text([(_UNKNOWN, json_string(self.text))]))
        return Settled(object_text([(names[0], typed_value(self.text, known.of(names[0])))]))
