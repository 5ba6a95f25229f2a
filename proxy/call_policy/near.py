"""Near misses: text that tried to be a call (R23.4).

Rules of this module:

1. Asking the model again costs a whole answer, so what is only explained, or is JSON for its own sake, is none: a block
   with dots in place of a value is the former, and in a form that ordinary text may have as well the name of a tool is
   asked for.
2. A name means a tool if it is one edit away from the name of that tool alone: one character that is missing, too many,
   another one or in its neighbour's place; or all that differs is case and what stands between words.
3. A call whose name is nobody's was meant as one between such markers; in a form that ordinary text may have as well
   only if it is written as it was taught: a name that a tool could have and its arguments, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ..model import ToolSpec
from ..scan._grammar import FENCE, BlockSyntax
from .assembly import PythonArguments
from .json_calls import MemberArguments
from .written import Written

NAME_CHARS: Final = 256
"""A name that is longer is nobody's."""

_ELLIPSIS: Final = re.compile(r"[{\[(:,>]\s*(?:\.\.\.|…)\s*[}\]),<]")
_A_NAME: Final = re.compile(r"[^\W\d][\w.:/-]*")
_BETWEEN: Final = re.compile(r"[-_.\s]+")


def tries_to_call(syntax: BlockSyntax, body: str, names: Collection[str]) -> bool:
    """Whether a block that cannot be read, has no end or names no tool was meant to be a call: something stands between
    markers that no text has by chance, or the name of a tool stands in it as in JSON or in Python."""
    if is_marked(syntax):
        return any(map(str.isalnum, body)) and _ELLIPSIS.search(body) is None
    return any(f'"{name}"' in body or f"'{name}'" in body or f"{name}(" in body for name in names)


def is_marked(syntax: BlockSyntax) -> bool:
    """Whether blocks stand between markers that no text has by chance."""
    opener = syntax.opener.strip()
    return any(map(str.isalpha, opener)) and not opener.startswith(FENCE)


def means_call(syntax: BlockSyntax, body: str, written: Written) -> bool:
    """Whether this was meant as a call, although no tool has its name (rule 3)."""
    if is_marked(syntax):
        return tries_to_call(syntax, body, ())
    match written.arguments:
        case MemberArguments():
            return False
        case PythonArguments(call) if call.positional:
            return False
    return _A_NAME.fullmatch(written.name) is not None


def near_name(names: Iterable[str | None], known: Mapping[str, ToolSpec], allowed: Collection[str]) -> str | None:
    """The name of the one tool that is meant by the first of these names that means one; None if none does."""
    for name in filter(None, names):
        tools = {id(known[other]): other for other in sorted(allowed, reverse=True) if is_near(name, other)}
        if len(tools) == 1:
            return next(iter(tools.values()))
    return None


def is_near(name: str, other: str) -> bool:
    """Whether one edit makes one name the other (rule 2)."""
    if len(name) > NAME_CHARS:
        return False
    return _is_one_edit(name, other) or _words(name) == _words(other) != ""


def _words(name: str) -> str:
    return _BETWEEN.sub("", name).casefold()


def _is_one_edit(one: str, other: str) -> bool:
    if len(one) > len(other):
        one, other = other, one
    more = len(other) - len(one)
    if more > 1:
        return False
    at = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    if more:
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
