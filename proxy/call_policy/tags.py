"""Names and keys as they stand in tags.

A name or a key may be the rest of a tag, quotes and further attributes included: `"query" string="true"`. A name ends
at whitespace or at `<|` (harmony: `functions.f <|constrain|>json`).
"""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_policy.untyped import OTHERS, STRING, Types
from toolwire.scan._grammar import BlockSyntax

_ATTRIBUTE: Final = re.compile(r"""["']?\s[\w:.-]+=["']""")
_TYPED: Final = re.compile(r"""\b(string|type)=["']?(\w+)""")


def name_of(text: str, syntax: BlockSyntax) -> str:
    """A tool's name as it stands in a tag or a header of this syntax."""
    return _without_entities(tag_name(text)) if syntax.entities else tag_name(text)


def key_of(text: str, syntax: BlockSyntax) -> tuple[str, Types | None]:
    """An argument's name as it stands in a tag of this syntax, and the types that the tag allows; None: it says
    nothing."""
    if syntax.prefix:  # the tag is the name
        return text.strip().removeprefix("<"), None
    key, types = tag_key(text)
    return (_without_entities(key) if syntax.entities else key), types


def tag_name(text: str) -> str:
    """A tool's name as it stands in a tag or a header."""
    name, _ = _tag(text.partition("<|")[0])
    return name.split(None, 1)[0] if name else ""


def tag_key(text: str) -> tuple[str, Types | None]:
    """An argument's name as it stands in a tag, and the types that the tag's other attributes allow (`string="true"`,
    `type="number"`); None: they say nothing."""
    key, attributes = _tag(text)
    typed = _TYPED.search(attributes)
    if typed is None:
        return key, None
    if typed[1] == "string":
        return key, STRING if typed[2] == "true" else OTHERS
    return key, frozenset((typed[2],))


def unframed(text: str) -> str:
    """A value without the line end on either side."""
    return text.removeprefix("\n").removesuffix("\n")


def _tag(text: str) -> tuple[str, str]:
    """What a tag is about, and its further attributes. The quotes around the first may be missing, also one of them."""
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
