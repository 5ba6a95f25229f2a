"""Names and keys in tags.

A name or key may be the rest of a tag, including quotes and further attributes: `"query" string="true"`. A name ends at
whitespace or at `<|` (harmony: `functions.f <|constrain|>json`).
"""

from __future__ import annotations

import re
from typing import Final

from ..scan._grammar import BlockSyntax
from .untyped import OTHERS, STRING, Types

_ATTRIBUTE: Final = re.compile(r"""["']?\s[\w:.-]+=["']""")
_OPENED_AGAIN: Final = re.compile(r"\A\s*+(?:<[\w|:]++>)++")
"""Tags before a key whose own tag was written twice (GLM)."""
_TYPED: Final = re.compile(r"""\b(string|type)=["']?(\w+)""")


def name_of(text: str, syntax: BlockSyntax) -> str:
    """Returns a tool's name from a tag or header of this syntax."""
    return _without_entities(tag_name(text)) if syntax.entities else tag_name(text)


def key_of(text: str, syntax: BlockSyntax) -> tuple[str, Types | None]:
    """Returns an argument's name from a tag of this syntax, and the types that the tag allows (None if it does not
    say)."""
    if syntax.prefix:  # the tag is the name
        return text.strip().removeprefix("<"), None
    key, types = tag_key(_OPENED_AGAIN.sub("", text))
    return (_without_entities(key) if syntax.entities else key), types


def tag_name(text: str) -> str:
    """Returns a tool's name from a tag or header."""
    name, _ = _tag(text.partition("<|")[0])
    return name.split(None, 1)[0] if name else ""


def tag_key(text: str) -> tuple[str, Types | None]:
    """Returns an argument's name from a tag, and the types that its other attributes allow (`string="true"`,
    `type="number"`), or None if they do not say."""
    key, attributes = _tag(text)
    typed = _TYPED.search(attributes)
    if typed is None:
        return key, None
    if typed[1] == "string":
        return key, STRING if typed[2] == "true" else OTHERS
    return key, frozenset((typed[2],))


def unframed(text: str) -> str:
    """Returns a value without the line end on either side."""
    return text.removeprefix("\n").removesuffix("\n")


def _tag(text: str) -> tuple[str, str]:
    """Returns the main value of a tag and its further attributes. Quotes around the value may be missing on either
    side."""
    text = text.strip()
    if text[:1] in ('"', "'"):
        end = text.find(text[0], 1)
        if end > 0:
            return text[1:end].strip(), text[end + 1 :]
        text = text[1:]
    attribute = _ATTRIBUTE.search(text)
    end = len(text) if attribute is None else attribute.start()
    return text[:end].strip().rstrip("\"'"), text[end:]


def _without_entities(text: str) -> str:
    return text.replace("&lt;", "<").replace("&quot;", '"').replace("&amp;", "&")
