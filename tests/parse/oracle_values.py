"""The ends of values, for the oracle: a recursive descent over the whole text that raises."""

from __future__ import annotations

from toolwire.scan._grammar import (
    SPACE,
)

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAME = LETTERS + "0123456789_.-"
SCALAR = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."


class Wrong(Exception):
    """The text is not what the field must be, as shows at offset `at`. `begun`: a Python call was begun."""

    def __init__(self, at: int, begun: bool = True) -> None:
        self.at = at
        self.begun = begun


class Ended(Exception):
    """The text ends inside the field; the argument tells whether inside a JSON string."""


def skip(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def value_end(text: str, at: int) -> int:
    """Returns the end of the value that begins at `at`. Raises `Wrong` and `Ended`."""
    at = skip(text, at, SPACE)
    if at == len(text):
        raise Ended(False)
    if text[at] == '"':
        return string_end(text, at)
    if text[at] == "{":
        return members_end(text, at + 1, "}", named=True)
    if text[at] == "[":
        return members_end(text, at + 1, "]", named=False)
    if text[at] in SCALAR:
        at = skip(text, at, SCALAR)
        if at == len(text):
            raise Ended(False)
        return at
    raise Wrong(at)


def string_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        raise Ended(True)
    return at + 1


def members_end(text: str, at: int, bracket: str, *, named: bool) -> int:
    while True:
        at = skip(text, at, SPACE)
        if at == len(text):
            raise Ended(False)
        if text[at] == bracket:
            return at + 1
        if named:
            if text[at] != '"':
                raise Wrong(at)
            at = skip(text, string_end(text, at), SPACE)
            if at == len(text):
                raise Ended(False)
            if text[at] != ":":
                raise Wrong(at)
            at += 1
        at = skip(text, value_end(text, at), SPACE)
        if at == len(text):
            raise Ended(False)
        if text[at] == bracket:
            return at + 1
        if text[at] != ",":
            raise Wrong(at)
        at += 1


# --- other syntax ----------------------------------------------------------------------------------------------------


def code_end(text: str, at: int, *, listed: bool) -> int:
    """Returns the end of Python calls: `f(...)`, or `[f(...), ...]`, or a list of objects. Raises `Wrong` (with `begun`
    if a call was begun) and `Ended`."""
    if listed:
        at = skip(text, at + 1, SPACE)
        if at == len(text):
            raise Ended(False)
        if text[at] == "{":
            return rest_of_brackets(text, at, ["]"])
    if text[at] not in LETTERS + "_" and text[at].isascii():
        raise Wrong(at, False)
    while at < len(text) and (text[at] in NAME or not text[at].isascii()):
        at += 1
    if at == len(text):
        raise Ended(False)
    if text[at] != "(":
        raise Wrong(at, False)
    return rest_of_brackets(text, at, ["]"] if listed else [])


def rest_of_brackets(text: str, at: int, awaited: list[str]) -> int:
    """Returns the end of the bracket at `at` and of the enclosing ones, whose closers are `awaited`."""
    awaited = [*awaited, {"(": ")", "[": "]", "{": "}"}[text[at]]]
    at += 1
    while awaited:
        if at >= len(text):
            raise Ended(False)
        if text[at] in "'\"":
            at = literal_end(text, at)
            continue
        if text[at] in "([{":
            at, awaited = at + 1, [*awaited, {"(": ")", "[": "]", "{": "}"}[text[at]]]
            continue
        if text[at] in ")]}" and text[at] != awaited.pop():
            raise Wrong(at)
        at += 1
    return at


def literal_end(text: str, at: int) -> int:
    """Returns the end of a string that may contain its own quotes: the quote that a comma, colon or closing bracket
    follows."""
    quote = text[at]
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        if text[at] == quote:
            behind = skip(text, at, SPACE + quote)
            if behind == len(text):
                break
            if text[behind] in ",:)]}":
                return behind
            at = behind
            continue
        at += 1
    raise Ended(False)


def braces_end(text: str, at: int, quote: str) -> int:
    """Returns the end of `{...}` with strings between two `quote`."""
    awaited: list[str] = []
    while True:
        if at >= len(text):
            raise Ended(False)
        if text[at] == quote[0]:
            if not text.startswith(quote, at):
                if quote.startswith(text[at:]):
                    raise Ended(False)
                raise Wrong(at)
            closing = text.find(quote, at + len(quote))
            if closing < 0:
                raise Ended(False)
            at = closing + len(quote)
            continue
        if text[at] in "{[":
            awaited.append({"[": "]", "{": "}"}[text[at]])
        elif text[at] in "}]":
            if text[at] != awaited.pop():
                raise Wrong(at)
            if not awaited:
                return at + 1
        at += 1
