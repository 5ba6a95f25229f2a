"""Text of strings inside streamed arguments (R6.13). Part of the Python twin, see `_pyparse.py`; `_faststring.pxi` is
the same with C types.

`live.py` and its followers (`follow_*.py`, which read a call while it comes) make all decisions. They tell the kind of
the current string, and this module finds the part of further text that can be sent without them, because it changes
none of their states. Nearly every delta consists only of such text.
"""

from __future__ import annotations

import re
from typing import Final

from ..repair.literals import json_string

NO_STRING: Final = 0
JSON_STRING: Final = 1
NESTED_STRING: Final = 2
CODE_STRING: Final = 3
PLAIN_TEXT: Final = 4
LINES: Final = 5
UNSAID: Final = 6
"""Kinds of strings: `NO_STRING`; `JSON_STRING`; `NESTED_STRING`, JSON inside a JSON string; `CODE_STRING`, Python;
`PLAIN_TEXT`, unquoted; `LINES`, unquoted, where a final line end may not belong to it; `UNSAID`, text of any kind that
is sent only when it has ended."""

_JSON: Final = re.compile(rb'(?:[^"\\\x00-\x1f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_JSON_CUT: Final = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?")
_NESTED: Final = re.compile(rb'(?:[^"\\\x00-\x1f]+|\\/|\\\\(?:\\["\\/]|[/bfnrt]|u[0-9a-fA-F]{4}))*')
_NESTED_CUT: Final = re.compile(rb"\\(?:\\(?:\\|u[0-9a-fA-F]{0,3})?)?")
_ESCAPED: Final = re.compile(rb"\\(.)")
_CODE: Final = {quote: re.compile(rb"(?:[^\\%b]+|\\[nt\\'\"])*" % quote) for quote in (b"'", b'"')}
_CODE_ESCAPES: Final = {b"n": b"\n", b"t": b"\t"}


def certain(kind: int, stops: bytes, more: bytes) -> tuple[int, bytes, bool]:
    """Returns how many bytes of `more` are certainly text of a string of this kind (up to the first of `stops`), their
    JSON text to send, and whether the rest must wait because it may be a cut escape or a final line end."""
    size = len(more)
    if kind == UNSAID:
        return size, b"", False
    if kind == JSON_STRING:
        used = _end(_JSON, more)
        return used, more[:used], used < size and _JSON_CUT.fullmatch(more, used) is not None
    if kind == NESTED_STRING:
        used = _end(_NESTED, more)
        said = _ESCAPED.sub(rb"\1", more[:used])
        return used, said, used < size and _NESTED_CUT.fullmatch(more, used) is not None
    if kind == CODE_STRING:
        used = _end(_CODE[stops], more)
        text = _ESCAPED.sub(lambda found: _CODE_ESCAPES.get(found[1], found[1]), more[:used])
        return used, _as_json(text), more[used:] == b"\\"
    used = min((at for at in map(more.find, stops) if at >= 0), default=size)
    waits = kind == LINES and more.endswith(b"\n")
    used -= waits
    return used, _as_json(more[:used]), waits


def _end(pattern: re.Pattern[bytes], more: bytes) -> int:
    found = pattern.match(more)
    assert found is not None  # the pattern also matches the empty text
    return found.end()


def _as_json(text: bytes) -> bytes:
    return json_string(text.decode())[1:-1].encode()
