"""Quoting, and the names of objects, for the oracle: the whole text at once, with regular expressions where the
scanners count bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from toolwire.scan._grammar import FENCE, SPACE, WORD_BYTES

MARKS = {"'": "'", "“": "”", "„": "“", "‘": "’", "«": "»", "「": "」"}
"""Quotation marks that count directly around a block."""

INFO = rb"[ \t\r]*[A-Za-z0-9_.:/\x80-\xff-]*[ \t\r]*"
"""The text allowed after the ticks of a fence that is removed: a word."""


LISTED = re.compile(r"(?:(?:[-*+]|[0-9]+[.)])?[ \t])*\Z")
"""A pattern of what may stand before a fence in its line: indentation, and marks of list items."""


def quoting(prose: str, behind: str) -> tuple[int, int, bool]:
    """Returns the marks of the fence and the ticks of the inline code around the following text, and whether it is in a
    string. The marks are negative for tildes. `behind` is its first character, if that is not a tick."""
    fence = span = 0
    string = False
    for line in (prose + behind).split("\n"):
        runs = [(found.start(), found.end()) for found in re.finditer('`+|~+|"', line)]
        span, opened, string = 0, False, False
        for start, end in runs:
            if line[start] == '"':
                string = not (string or fence or span)
                continue
            ticks = end - start
            margin = not line[:start].strip(" \t")
            tilde = line[start] == "~"
            if fence > 0 and opened and not tilde:  # a fence has no other tick in its line
                span, fence, opened = fence, 0, False
            if fence:
                own = tilde == (fence < 0)
                if margin and own and ticks >= abs(fence) and not re.match("[A-Za-z0-9]", line[end:]):
                    fence = 0
            elif LISTED.match(line[:start]) and ticks >= 3 and not (tilde and line.startswith("^", end)):
                fence, opened, string = -ticks if tilde else ticks, True, False
            elif not tilde:
                span = 0 if span == ticks else span or ticks
    return fence, span, string


def behind_code(rest: bytes, ticks: int) -> int | None:
    """Returns the end of open inline code with this many ticks, or None if it does not end in this line."""
    line = re.match(b"[^\n]*", rest[:WORD_BYTES])
    assert line is not None
    for run in re.finditer(b"`+", line[0]):
        whole = run.end() < min(len(rest), WORD_BYTES) or run.end() == len(rest) <= WORD_BYTES
        if run.end() - run.start() == ticks and whole:
            return run.end()
    return None


@dataclass(frozen=True)
class Behind:
    """What stands behind a block that may be quoted: whether it is a call, another block of the same fence, which
    begins `at` bytes on, or text, as is seen there."""

    what: Literal["call", "block", "text"]
    at: int = 0
    opener: str = ""
    ticks: int = 0


def behind_block(rest: bytes, around: str, ticks: int, openers: list[str]) -> Behind:
    """Returns the result of reading on after a block. `openers` are those of blocks that a fence may contain."""
    if around == "code":
        end = behind_code(rest, ticks)
        return Behind("call") if end is None else Behind("text", end)
    if around == "string":
        found = re.match(b'[^"\n]*"', rest[:WORD_BYTES])
        return Behind("call") if found is None else Behind("text", found.end() - 1)
    if around == "marks":
        closing = next((mark for mark in MARKS.values() if rest.startswith(mark.encode())), None)
        return Behind("call") if closing is None else Behind("text", len(closing.encode()))
    if around == "heads":
        return Behind("text" if re.match(rb"[ \t.,;:)]", rest) else "call")
    if around == "sentence":
        return Behind("text" if re.match(rb"[.,;:)]|[ \t]+[^ \t\r\n<\[\]|]", rest[:WORD_BYTES]) else "call")
    found_there = in_fence(rest, around == "own fence", ticks, openers)
    if around == "framed":
        ended = found_there.at == len(rest)
        last = len(rest) if ended else found_there.at + len(found_there.opener.encode()) + (found_there.what == "text")
        return Behind("call") if last > ticks else found_there
    decided = found_there.at + len(found_there.opener.encode()) - (found_there.what == "block")
    ended = found_there.what == "call" or (found_there.what == "text" and found_there.at == len(rest))
    too_far = len(rest) > WORD_BYTES if ended else decided >= WORD_BYTES
    return Behind("text", WORD_BYTES) if too_far else found_there


def in_fence(rest: bytes, own: bool, ticks: int, openers: list[str]) -> Behind:
    at, inside = 0, True
    while True:
        while at < len(rest) and rest[at : at + 1] in (b" ", b"\t", b"\r", b"\n"):
            at += 1
        if at == len(rest):
            return Behind("call")
        run = re.compile(b"`*").match(rest, at)
        assert run is not None
        if own and run[0] and inside:
            if run.end() == len(rest):
                return Behind("call") if len(run[0]) >= ticks else Behind("text", len(rest))
            if len(run[0]) < ticks or rest[run.end()] not in SPACE.encode():
                return Behind("text", run.end())
            at, inside = run.end(), False
        elif own and run[0]:
            if len(run[0]) < len(FENCE) and run.end() < len(rest):
                return Behind("text", run.end())
            info = re.compile(INFO).match(rest, run.end())
            assert info is not None
            if rest[info.end() : info.end() + 1] != b"\n":
                return Behind("text", info.end())
            at, inside, ticks = info.end() + 1, True, len(run[0])
        else:
            for opener in openers:
                if rest.startswith(opener.encode(), at):
                    return Behind("block", at, opener, ticks)
            fits = max(len(common(rest[at:], opener.encode())) for opener in openers)
            return Behind("text", at + fits)


def common(one: bytes, other: bytes) -> bytes:
    """Returns the common prefix."""
    size = 0
    while size < min(len(one), len(other)) and one[size] == other[size]:
        size += 1
    return one[:size]


def name_in(rest: bytes, quote: bytes, key: bytes, names: list[bytes]) -> tuple[tuple[int, int] | None, bool]:
    """Returns the span of the name in the text after an object's first key (as long as members are scalars), and
    whether the text ends before that is known."""
    space = rb"[ \t\r\n]*"
    string = rb"%b([^\\%b]*)" % (quote, quote)
    scalar = rb"[A-Za-z0-9+.-]+"
    behind = rb"(?:%b(?:,(?:%b(?:%b)?)?)?)?" % (space, space, string)
    begun = rb"%b(?::(?:%b(?:%b(?:%b%b)?|%b%b)?)?)?" % (space, space, string, quote, behind, scalar, behind)
    at = 0
    while True:
        value = re.compile(rb"%b:%b(?:%b%b|%b)" % (space, space, string, quote, scalar)).match(rest, at)
        if value is not None and key in names and value[1] is not None:
            return value.span(1), False
        more = (
            None
            if value is None
            else re.compile(rb"%b,%b%b%b" % (space, space, string, quote)).match(rest, value.end())
        )
        if more is None:
            return None, re.compile(begun).fullmatch(rest, at) is not None
        key, at = more[1], more.end()
