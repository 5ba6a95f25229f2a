"""A reader of the GBNF that `toolwire.formats.gbnf` writes: a random writer of texts that such a grammar allows, and an
acceptor that says whether it allows a given one.

Written after llama.cpp's own engine and its notation, not after ours: rules, alternatives, groups, literals, character
classes, `?`, `*`, `+`, `{m}`, `{m,}`, `{m,n}`. Raises `GrammarError` for anything else, and for what llama.cpp refuses:
too many repetitions, left recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from random import Random

TOKEN = re.compile(
    r'\s*(?:(?P<name>[a-zA-Z][a-zA-Z0-9-]*)|(?P<literal>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)+\])'
    r"|(?P<repeat>\{\d+(?:,\d*)?\}|[?*+])|(?P<mark>[()|]))"
)
ESCAPE = re.compile(r"\\(?:x([0-9A-F]{2})|(.))", re.DOTALL)
SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
MOST = 2000
"""llama.cpp refuses an item whose rules times its repetitions are as many."""
EVERYTHING = [chr(c) for c in range(256)] + list("</>{}`-_tool_call:\u2028é😀\uffff")
"""What a negated class is sampled from."""


class GrammarError(ValueError):
    """Not a GBNF that llama.cpp takes."""


def unescape(text: str) -> str:
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else SIMPLE[found[2]], text)


@dataclass(frozen=True)
class Chars:
    """A character class."""

    members: frozenset[str]
    negated: bool = False

    @classmethod
    @cache
    def read(cls, text: str) -> Chars:
        negated = text.startswith("^")
        members: set[str] = set()
        chars = re.findall(r"\\x[0-9A-F]{2}|\\.|.", text[negated:], re.DOTALL)
        index = 0
        while index < len(chars):
            first = unescape(chars[index])
            if chars[index + 1 : index + 2] == ["-"] and index + 2 < len(chars):
                members |= {chr(c) for c in range(ord(first), ord(unescape(chars[index + 2])) + 1)}
                index += 3
            else:
                members.add(first)
                index += 1
        return cls(frozenset(members), negated)

    def has(self, char: str) -> bool:
        return (char in self.members) != self.negated

    @cached_property
    def choices(self) -> list[str]:
        """The characters to choose from."""
        return [c for c in EVERYTHING if c not in self.members] if self.negated else sorted(self.members)

    def choose(self, random: Random) -> str:
        return random.choice(self.choices)


Symbol = Chars | str
"""A class, or the name of a rule."""
Row = tuple[Symbol, ...]


@dataclass
class Grammar:
    """A grammar as llama.cpp has it: each rule is a list of rows of symbols; groups and repetitions are rules of their
    own."""

    source: str
    rules: dict[str, list[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.symbols: set[str] = set()
        self.used: set[str] = set()
        for line in self.source.splitlines():
            name, sign, body = line.partition(" ::= ")
            if not sign or not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9-]*", name) or name in self.rules:
                raise GrammarError(f"not a rule: {line!r}")
            self.symbols.add(name)
            self._tokens = list(self._read(body))[::-1]
            self.rules[name] = self._either(name)
            if self._tokens:
                raise GrammarError(f"left over in {name}: {self._tokens[::-1]}")
        if missing := self.used - self.rules.keys():
            raise GrammarError(f"undefined: {missing}")
        if "root" not in self.rules:
            raise GrammarError("no root")
        self._refuse_left_recursion()
        self._heights = self._measure()

    # --- reading ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _read(body: str) -> Iterator[tuple[str, str]]:
        at = 0
        while body[at:].strip():
            found = TOKEN.match(body, at)
            if found is None or found.lastgroup is None:
                raise GrammarError(f"cannot read {body[at : at + 40]!r}")
            yield found.lastgroup, found[found.lastgroup]
            at = found.end()

    def _new(self, base: str) -> str:
        name = f"{base}_{len(self.symbols)}"
        self.symbols.add(name)
        return name

    def _either(self, base: str) -> list[Row]:
        rows = [self._row(base)]
        while self._tokens and self._tokens[-1] == ("mark", "|"):
            self._tokens.pop()
            rows.append(self._row(base))
        return rows

    def _row(self, base: str) -> Row:
        row: list[Symbol] = []
        last: list[Symbol] | None = None
        rules_in_last = 1
        items = 0
        while self._tokens and self._tokens[-1] not in (("mark", "|"), ("mark", ")")):
            items += 1
            kind, text = self._tokens.pop()
            if kind == "repeat":
                if last is None:
                    raise GrammarError(f"nothing to repeat before {text}")
                low, high = self._bounds(text)
                times = high if high else low if high is None and low else 1
                if rules_in_last * times >= MOST:
                    raise GrammarError(f"{rules_in_last} rules {text} times")
                rules_in_last *= times
                row += self._repeated(base, last, low, high)
                last = None
                continue
            row += last or []
            rules_in_last = 1
            match kind:
                case "name":
                    self.used.add(text)
                    self.symbols.add(text)
                    last = [text]
                case "literal":
                    last = [Chars(frozenset(char)) for char in unescape(text[1:-1])]
                case "set":
                    last = [Chars.read(text[1:-1])]
                case _ if text == "(":
                    before = len(self.symbols)
                    name = self._new(base)
                    self.rules[name] = self._either(base)
                    rules_in_last = max(1, len(self.symbols) - before)
                    if not self._tokens or self._tokens.pop() != ("mark", ")"):
                        raise GrammarError("an open group")
                    last = [name]
                case _:
                    raise GrammarError(f"unexpected {text!r}")
        if not items:
            raise GrammarError("an empty alternative")  # at the end of a line llama.cpp would read on
        return (*row, *(last or []))

    @staticmethod
    def _bounds(text: str) -> tuple[int, int | None]:
        known = {"?": (0, 1), "*": (0, None), "+": (1, None)}
        if text in known:
            return known[text]
        low, comma, high = text.strip("{}").partition(",")
        if not high:
            return int(low), None if comma else int(low)
        if int(low) > int(high):
            raise GrammarError(f"repetition {text}")
        return int(low), int(high)

    def _repeated(self, base: str, item: list[Symbol], low: int, high: int | None) -> list[Symbol]:
        row = item * low
        name = ""
        for _ in range(1 if high is None else high - low):
            following, name = name, self._new(base)
            self.rules[name] = [
                (*item, name if high is None else following) if following or high is None else (*item,),
                (),
            ]
        return [*row, name] if name else row

    def _refuse_left_recursion(self) -> None:
        empty: set[str] = set()
        before = -1
        while len(empty) > before:
            before = len(empty)
            empty |= {n for n, rows in self.rules.items() if any(all(s in empty for s in row) for row in rows)}
        done: set[str] = set()
        for start in self.rules:
            ways: list[tuple[str, Iterator[str]]] = []
            if start not in done:
                ways.append((start, self._leftmost(start, empty)))
            open_rules = {start}
            while ways:
                name, more = ways[-1]
                following = next(more, None)
                if following is None:
                    ways.pop()
                    open_rules.discard(name)
                    done.add(name)
                elif following in open_rules:
                    raise GrammarError(f"left recursion in {following}")
                elif following not in done:
                    open_rules.add(following)
                    ways.append((following, self._leftmost(following, empty)))

    def _leftmost(self, name: str, empty: set[str]) -> Iterator[str]:
        for row in self.rules[name]:
            for symbol in row:
                if isinstance(symbol, str):
                    yield symbol
                if symbol not in empty:
                    break

    # --- writing ----------------------------------------------------------------------------------------------------

    def _measure(self) -> dict[str, int]:
        """How many expansions the shortest text of each rule takes at least."""
        heights: dict[str, int] = {}
        changed = True
        while changed:
            changed = False
            for name in reversed(self.rules):
                least = min((self._height(row, heights) for row in self.rules[name]), default=1 << 30)
                if least < heights.get(name, 1 << 30):
                    heights[name] = least
                    changed = True
        if unwritable := self.rules.keys() - heights.keys():
            raise GrammarError(f"nothing fits {sorted(unwritable)[:3]}")
        return heights

    @staticmethod
    def _height(row: Row, heights: dict[str, int]) -> int:
        return 1 + sum(heights.get(symbol, 1 << 30) for symbol in row if isinstance(symbol, str))

    def sample(self, random: Random, *, budget: int = 400) -> str:
        """A random text. After `budget` expansions the shortest way to an end is taken."""
        out: list[str] = []
        waiting: list[Symbol] = ["root"]
        while waiting:
            symbol = waiting.pop()
            if isinstance(symbol, Chars):
                out.append(symbol.choose(random))
                continue
            budget -= 1
            rows = self.rules[symbol]
            row = min(rows, key=lambda row: self._height(row, self._heights)) if budget < 0 else random.choice(rows)
            waiting += row[::-1]
        return "".join(out)


class Acceptor:
    """Says whether a grammar allows a text, as llama.cpp does it: by all stacks that the text so far may have led
    to."""

    def __init__(self, grammar: Grammar) -> None:
        self._rules = grammar.rules
        self._cells: dict[tuple[int, int, int], int] = {}
        """A cell is a row, a place in it, and the cell to go on at after it; 0 is the end."""
        self._content: list[tuple[Row, int, int]] = [((), 0, 0)]
        self._advanced: dict[int, frozenset[int]] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self.start = frozenset(cell for row in self._rules["root"] for cell in self._advance(self._cell(row, 0, 0)))
        self.most = len(self.start)
        """The largest number of stacks so far."""

    def _cell(self, row: Row, at: int, after: int) -> int:
        if at == len(row):
            return after
        key = (id(row), at, after)
        if key not in self._cells:
            self._cells[key] = len(self._content)
            self._content.append((row, at, after))
        return self._cells[key]

    def _advance(self, cell: int) -> frozenset[int]:
        """The cells at a class, or the end, to which a cell leads."""
        known = self._advanced.get(cell)
        if known is not None:
            return known
        found: set[int] = set()
        seen: set[int] = set()
        waiting = [cell]
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            row, at, after = self._content[one]
            if one == 0 or isinstance(row[at], Chars):
                found.add(one)
            else:
                name = row[at]
                assert isinstance(name, str)
                waiting += [self._cell(inner, 0, self._cell(row, at + 1, after)) for inner in self._rules[name]]
        self._advanced[cell] = frozenset(found)
        return self._advanced[cell]

    def _step(self, state: frozenset[int], char: str) -> frozenset[int]:
        key = (state, char)
        if key not in self._steps:
            found: set[int] = set()
            for cell in state - {0}:
                row, at, after = self._content[cell]
                chars = row[at]
                assert isinstance(chars, Chars)
                if chars.has(char):
                    found |= self._advance(self._cell(row, at + 1, after))
            self._steps[key] = frozenset(found)
            self.most = max(self.most, len(found))
        return self._steps[key]

    def go_on(self, text: str, random: Random, most: int = 2000) -> str | None:
        """A random text of the grammar that begins with `text`; None if none was found within `most` further
        characters."""
        state = self.start
        for char in text:
            state = self._step(state, char)
        for _ in range(most):
            ways = sorted(state - {0})
            if 0 in state and (not ways or random.random() < 0.3):
                return text
            if not ways:
                return None
            row, at, _ = self._content[random.choice(ways)]
            chars = row[at]
            assert isinstance(chars, Chars)
            text += chars.choose(random)
            state = self._step(state, text[-1])
        return None

    def refused_at(self, text: str) -> int | None:
        """The index of the first character that must not come, or the length if the text must not end there; None if it
        is allowed."""
        state = self.start
        for index, char in enumerate(text):
            state = self._step(state, char)
            if not state:
                return index
        return None if 0 in state else len(text)

    def accepts(self, text: str) -> bool:
        """Whether this is a whole text of the grammar."""
        return self.refused_at(text) is None

    def may_begin(self, text: str) -> bool:
        """Whether a text of the grammar begins so."""
        refused = self.refused_at(text)
        return refused is None or refused == len(text)
