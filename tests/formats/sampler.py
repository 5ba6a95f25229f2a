"""A reader of the GBNF that `proxy.gbnf.grammar` writes, and a random writer of texts that such a grammar allows.

Knows what the notation has and the generator uses: rules, alternatives, groups, literals, character classes, `?`, `{m}`, `{m,n}`.
Raises `GrammarError` for anything else, so a grammar that llama.cpp would refuse is not accepted here by accident.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Write = Callable[[Random, list[str], int], None]
"""Appends a random text; the number is a budget that makes optional things rarer the smaller it is."""

TOKEN = re.compile(
    r'\s*(?:(?P<name>[a-zA-Z][a-zA-Z0-9-]*)|(?P<literal>"(?:[^"\\]|\\.)+")|(?P<set>\[(?:[^\]\\]|\\.)+\])'
    r"|(?P<repeat>\{\d+(?:,\d+)?\})|(?P<mark>[()|?]))"
)
ESCAPE = re.compile(r"\\(?:x([0-9A-F]{2})|(.))", re.DOTALL)
SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
MANY = 6
"""How often something is repeated at most beyond what must be."""


class GrammarError(ValueError):
    """Not the GBNF that we know."""


def unescape(text: str) -> str:
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else SIMPLE[found[2]], text)


@dataclass
class Class:
    """A character class: the characters to choose from."""

    choices: str

    @classmethod
    def read(cls, text: str) -> Class:
        negated = text.startswith("^")
        members: set[str] = set()
        chars = re.findall(r"\\x[0-9A-F]{2}|\\.|.", text[negated:], re.DOTALL)
        index = 0
        while index < len(chars):
            first = unescape(chars[index])
            if chars[index + 1 : index + 2] == ["-"]:
                members |= {chr(c) for c in range(ord(first), ord(unescape(chars[index + 2])) + 1)}
                index += 3
            else:
                members.add(first)
                index += 1
        everything = [chr(c) for c in range(256)] + list("</>{}`-_tool_call:\u2028é😀\uffff")
        return cls("".join(c for c in everything if (c in members) != negated) if negated else "".join(sorted(members)))


class Grammar:
    """A grammar as a writer of random texts."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Write] = {}
        self.used: set[str] = set()
        for line in text.splitlines():
            name, sign, body = line.partition(" ::= ")
            if not sign or not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*", name) or name in self.rules:
                raise GrammarError(f"not a rule: {line!r}")
            self.tokens = self._tokens(body)
            self.rules[name] = self._either()
            if self.tokens:
                raise GrammarError(f"left over in {name}: {self.tokens}")
        if missing := self.used - self.rules.keys():
            raise GrammarError(f"undefined: {missing}")

    def sample(self, random: Random) -> str:
        out: list[str] = []
        self.rules["root"](random, out, 12)
        return "".join(out)

    @staticmethod
    def _tokens(body: str) -> list[tuple[str, str]]:
        tokens = []
        at = 0
        while body[at:].strip():
            found = TOKEN.match(body, at)
            if found is None or found.lastgroup is None:
                raise GrammarError(f"cannot read {body[at:]!r}")
            tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        return tokens

    def _either(self) -> Write:
        options = [self._row()]
        while self.tokens[:1] == [("mark", "|")]:
            self.tokens.pop(0)
            options.append(self._row())
        return lambda random, out, budget: random.choice(options)(random, out, budget)

    def _row(self) -> Write:
        items: list[Write] = []
        while self.tokens and self.tokens[0] not in (("mark", "|"), ("mark", ")")):
            items.append(self._item())
        if not items:
            raise GrammarError("an empty alternative")

        def write(random: Random, out: list[str], budget: int) -> None:
            for item in items:
                item(random, out, budget)

        return write

    def _item(self) -> Write:
        kind, text = self.tokens.pop(0)
        item: Write
        match kind:
            case "name":
                self.used.add(text)
                item = lambda random, out, budget: self.rules[text](random, out, budget - 1)  # noqa: E731
            case "literal":
                literal = unescape(text[1:-1])
                item = lambda random, out, budget: out.append(literal)  # noqa: E731
            case "set":
                choices = Class.read(text[1:-1]).choices
                item = lambda random, out, budget: out.append(random.choice(choices))  # noqa: E731
            case "mark" if text == "(":
                item = self._either()
                if not self.tokens or self.tokens.pop(0) != ("mark", ")"):
                    raise GrammarError("an open group")
            case _:
                raise GrammarError(f"unexpected {text!r}")
        return self._repeated(item)

    def _repeated(self, item: Write) -> Write:
        if not self.tokens or (self.tokens[0][0] != "repeat" and self.tokens[0][1] != "?"):
            return item
        text = self.tokens.pop(0)[1]
        low, _, high = (text.strip("{}") if text != "?" else "0,1").partition(",")
        least, most = int(low), int(high or low)
        if not least <= most <= 2000:
            raise GrammarError(f"repetition {text}")

        def write(random: Random, out: list[str], budget: int) -> None:
            for _ in range(random.randint(least, min(most, least + MANY)) if budget > 0 else least):
                item(random, out, budget)

        return write
