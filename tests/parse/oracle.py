"""A third reading of the rules: the whole text at once, naive, recursive, with no state kept between pieces.

Slow on purpose. It shares nothing with the scanners but the data types, and finds the ends of blocks in another way: a
recursive descent that raises, instead of a machine that is told. The bound of a block's size is met by not showing the
descent what lies beyond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from proxy.events import BlockKind, Close, Delta, Event, Fault, Open
from proxy.scan._grammar import (
    AS_TEXT,
    BLOCK_BYTES,
    DROPPED,
    END,
    FENCE,
    SPACE,
    WORD_BYTES,
    Block,
    BlockPolicy,
    BlockSyntax,
    Branch,
    Decision,
    Field,
    Grammar,
    Why,
    only,
)
from proxy.scan.loose_head import LooseHead, loose_words
from tests.parse.oracle_quoting import INFO, MARKS, behind_block, behind_code, name_in, quoting

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
NAME = LETTERS + "0123456789_.-"
SCALAR = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-."


@dataclass(frozen=True)
class Settings:
    """The options of `CallScanner` that change what is found."""

    block_bytes: int = BLOCK_BYTES
    trim_edges: bool = True
    reasoning: tuple[tuple[str, str], ...] = ()
    preopened: bool = False
    scan_calls: bool = False


class Wrong(Exception):
    """The text is not what the field must be, as it shows at offset `at`. `begun`: a call in Python was begun."""

    def __init__(self, at: int, begun: bool = True) -> None:
        self.at = at
        self.begun = begun


class Ended(Exception):
    """The text ends inside the field; the argument says whether inside a JSON string."""


def valid(text: str) -> str:
    """Surrogates as the scanners treat them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse(
    text: str, grammar: Grammar, policy: BlockPolicy, settings: Settings | None = None, truncated: bool = False
) -> list[Event]:
    """The events of the whole text, blocks numbered from 0, one delta a block."""
    return _Reading(valid(text), grammar, policy, settings or Settings(), truncated).events()


def skip(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] in chars:
        at += 1
    return at


def value_end(text: str, at: int) -> int:
    """Where the value that begins at `at` ends. Raises `Wrong` and `Ended`."""
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
    """Where calls as Python writes them end: `f(...)`, or `[f(...), ...]`, or a list of objects. Raises `Wrong`, with
    True if a call was begun, and `Ended`."""
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
    """The end of the bracket at `at` and of all that are `awaited` behind it."""
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
    """The end of a string whose own quotes may stand in it: the quote that a comma, colon or closing bracket
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
    """The end of `{...}` with strings between two `quote`."""
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


# --- a block ---------------------------------------------------------------------------------------------------------

CONTENT = ("value", "arguments", "call", "calls")
BRACKETS = {"object": "{", "array": "[", "list": "[", "braces": "{"}
Option = tuple[BlockSyntax, Branch]


class Closed(Exception):
    """The block ends at `upto`, its body at `body_end`. `broken`: not as its syntax says. `closed`: its closer is
    there. `more`: the text ended, where one argument more might have come."""

    def __init__(
        self, upto: int, body_end: int, *, broken: bool = False, closed: bool = True, more: bool = False
    ) -> None:
        self.upto = upto
        self.body_end = body_end
        self.broken = broken
        self.closed = closed
        self.more = more


class Released(Exception):
    """The opener was none, as shows at the offset that is the argument."""


class Interrupted(Exception):
    """Another block begins at the offset that is the argument, where this one was whole but for its closer and went on
    otherwise."""


class Cut(Exception):
    """The text ends inside the block. `early`: no more than the opener was read. `text`: what was begun counts as text
    also if the answer is truncated. `ends`: that is how the block ends, and `surely` so also if the answer is
    truncated. `whole`: a closer is all that is missing, the body ends there. `in_string`: of JSON. `begin`: where the
    field begins that is cut."""

    def __init__(
        self,
        *,
        early: bool = False,
        text: bool = False,
        ends: bool = False,
        surely: bool = True,
        whole: int | None = None,
        in_string: bool = False,
        begin: int = 0,
    ) -> None:
        self.begin = begin
        self.early = early
        self.text = text
        self.ends = ends
        self.surely = surely
        self.whole = whole
        self.in_string = in_string


class _Descent:
    """Reads a block in `text`, which goes as far as the block may. `read` never comes back: it raises how the block
    ends."""

    def __init__(
        self,
        text: str,
        start: int,
        syntaxes: list[BlockSyntax],
        strict: bool,
        openers: list[str],
        names: tuple[str, ...],
        around: str = "",
        may_call: Callable[[str, bool], bool] | None = None,
    ) -> None:
        self.text = text
        self.around = around
        self.may_call = may_call
        self.names = names
        self.printing: Field | None = None
        self.openers = openers
        self.value_ended: Literal["surely", "likely", "unlikely"] = "surely"
        self.syntaxes = syntaxes
        self.syntax = syntaxes[0]
        self.strict = strict
        self.after = start + len(self.syntax.opener)
        self.mark = self.after
        self.may_end = False
        self.pieces: list[tuple[Field, int, int | None]] = []
        self.fence = any(syntax.fence for syntax in syntaxes)
        self.fenced = False

    def read(self) -> None:
        self.node([(syntax, branch) for syntax in self.syntaxes for branch in syntax.nodes[0]], self.after)

    def node(self, options: list[Option], at: int, *, over: bool = False) -> None:
        """What may come between two fields. `over`: nothing but another block, or the end of the answer."""
        text = self.text
        ends = any(branch.read == "end" for _, branch in options)
        options = [option for option in options if option[1].read != "end"]
        literals = {branch.literal or BRACKETS.get(branch.read, ""): (syntax, branch) for syntax, branch in options}
        other = literals.pop("", None)
        free = other is not None and other[1].read == "nothing" and other[1].then == END
        unlikely = self.value_ended == "unlikely"
        if free and not unlikely:
            self.value_ended = "surely"
            self.may_end = True
            self.mark = at
        if free and not literals:
            raise Closed(at, self.mark)
        lead = not self.pieces
        begin = at
        begun = self.openers if over else [] if self.may_end else self.openers_at(options)
        while True:
            at = skip(text, at, SPACE + (LETTERS if lead and self.fenced else ""))
            fence = [FENCE] if (self.fence and not self.fenced if lead else self.fenced) else []
            for literal, (syntax, branch) in literals.items():
                if text.startswith(literal, at):
                    self.take(syntax, branch, at)
            if fence and text.startswith(FENCE, at):
                self.fenced = not self.fenced
                at += len(FENCE)
                continue
            if any(text.startswith(opener, at) for opener in begun):
                raise Closed(at, at, closed=(not literals and other is None) or free)
            if any(literal.startswith(text[at:]) for literal in [*literals, *fence, *begun, ""]):
                break
            if self.may_end:
                raise Closed(self.mark, self.mark)
            if other is not None:
                self.take(*other, begin if other[1].read == "text" else at)
            if lead:
                self.mention(at)
            if self.syntax.untaught and self.pieces[-1][0] not in CONTENT:
                raise Released(at)
            field, start, _ = self.pieces.pop()
            self.broken(field, start, at, at if begun else None)
        if lead:
            raise Cut(early=True)
        if (ends and at == len(text)) or (not ends and other is None and not literals) or (free and unlikely):
            raise Cut(ends=True, surely=self.value_ended == "surely")
        if self.may_end:
            raise Closed(self.mark, self.mark, more=any(branch.field == "key" for _, branch in options))
        final = other is None and all(self.over(syntax, branch, set()) for syntax, branch in options)
        raise Cut(whole=at if final else None)

    def openers_at(self, options: list[Option]) -> list[str]:
        """What may end the block here as the beginning of another one: after content, where closers are all that is
        missing."""
        if not self.pieces or self.pieces[-1][0] not in CONTENT:
            return []
        if not any(self.closing(syntax, branch, set()) for syntax, branch in options):
            return []
        literals = [branch.literal or BRACKETS.get(branch.read, "") for _, branch in options]
        literals = [literal for literal in literals if literal]
        return [o for o in self.openers if not any(o.startswith(x) or x.startswith(o) for x in literals)]

    def closing(self, syntax: BlockSyntax, branch: Branch, seen: set[int]) -> bool:
        """Whether the block can end behind a branch without a further field."""
        if branch.read != "nothing" or branch.then in seen:
            return False
        if branch.then == END:
            return True
        seen.add(branch.then)
        return any(self.closing(syntax, option, seen) for option in syntax.nodes[branch.then])

    def over(self, syntax: BlockSyntax, branch: Branch, seen: set[int]) -> bool:
        """Whether nothing is left to come from here on but closers and further calls."""
        if branch.read != "nothing":
            return branch.read == "end" or branch.field in ("call", "calls")
        if branch.then in seen:
            return False
        return branch.then == END or all(
            self.over(syntax, option, seen | {branch.then}) for option in syntax.nodes[branch.then]
        )

    def take(self, syntax: BlockSyntax, branch: Branch, at: int) -> None:
        self.syntax = syntax
        after = at + len(branch.literal)
        if branch.read == "nothing":
            if branch.then == END and self.value_ended == "unlikely":
                self.node([], after, over=True)
            if branch.then == END:
                raise Closed(at if branch.ahead else after, at)
            self.node([(syntax, option) for option in syntax.nodes[branch.then]], after)
        if branch.literal and branch.read in BRACKETS:
            self.node([(syntax, replace(branch, literal=""))], after)
        self.field(syntax, branch, after)

    def field(self, syntax: BlockSyntax, branch: Branch, at: int) -> None:
        text = self.text
        self.may_end = False
        self.value_ended = "surely"
        if branch.read in ("name", "word", "text"):
            self.until_literal(syntax, branch, at)
        in_code = branch.read in ("list", "call")
        if branch.read == "printed" or (branch.read in ("object", "array") and syntax.first_keys and not self.pieces):
            in_code = self.first_key(syntax, at, calls=branch.read == "printed")
            self.first_name(syntax, at)
        self.printing = branch.field if syntax.untaught and not syntax.opener and branch.read != "braces" else None
        try:
            match branch.read:
                case "list" | "call":
                    end = code_end(text, at, listed=branch.read == "list")
                case _ if in_code:
                    end = self.code(at)
                case "braces":
                    end = braces_end(text, at, syntax.quote)
                case _:
                    end = value_end(text, at)
        except Wrong as wrong:
            if (
                self.printing is not None and not in_code and text[wrong.at] == "`"
            ):  # the fence ends: a bracket may be missing
                self.printing = None
                self.keep(branch.field, at, wrong.at)
                self.node([(syntax, option) for option in syntax.nodes[branch.then]], wrong.at)
            if in_code and not (self.pieces or wrong.begun):
                self.mention(wrong.at)
            self.broken(branch.field, at, wrong.at)
        except Ended as ended:
            if ended.args[0]:
                self.keep(branch.field, at, None)
            raise Cut(in_string=ended.args[0], begin=at) from None
        self.printing = None
        self.keep(branch.field, at, end)
        if branch.then == END:
            raise Closed(end, end)
        self.node([(syntax, option) for option in syntax.nodes[branch.then]], end)

    def code(self, at: int) -> int:
        text = self.text
        if text[at] == "{":
            return rest_of_brackets(text, at, [])
        if text[at] == "[":
            return code_end(text, at, listed=True)
        return code_end(text, at + len("await ") if text.startswith("await ", at) else at, listed=False)

    def keep(self, field: Field, begin: int, end: int | None) -> None:
        if field:
            self.pieces.append((field, begin, end))

    def until_literal(self, syntax: BlockSyntax, branch: Branch, begin: int) -> None:
        text = self.text
        worded = ended = False
        data_to = begin
        for at in range(begin, len(text)):
            if at < data_to:
                continue
            for option in syntax.nodes[branch.then]:
                literal = option.literal or BRACKETS[option.read]
                if text.startswith(literal, at):
                    own = option.read == "nothing" if literal[0] == "\n" else text[at - 1] == "\n"
                    unlikely = syntax.framed and text[begin] == "\n" and not own
                    before = len(self.pieces)
                    self.keep(branch.field, begin, at)
                    wrong = self.misfit(syntax, option, at + len(literal), unlikely) if branch.read == "text" else None
                    if wrong is None:
                        if branch.read == "text":
                            self.value_ended = "unlikely" if unlikely else "likely"
                        self.take(syntax, option, at)
                    del self.pieces[before:]
                    data_to = wrong - 1 if wrong > at + len(literal) and text[wrong - 1] in SPACE else wrong
            if at < data_to:
                continue
            if any(option.literal.startswith(text[at:]) for option in syntax.nodes[branch.then]):
                break
            if branch.read != "text":
                others = self.openers if syntax.untaught else [syntax.opener]
                if any(opener and text.startswith(opener, at) for opener in others):  # so the first one was a mention
                    self.no_word(branch.field, begin, at)
                if any(opener.startswith(text[at:]) for opener in others):
                    break
                char = text[at]
                strange = branch.read == "name" and char.isascii() and char not in NAME + ":/"
                bad = char not in SPACE and (ended or strange)
                if bad or len(text[begin : at + 1].encode()) > WORD_BYTES:
                    self.no_word(branch.field, begin, at)
                worded = worded or char not in SPACE
                ended = ended or (worded and (char == "\n" or (branch.read == "name" and char in SPACE)))
        raise Cut(early=branch.read != "text" and not self.pieces)

    def misfit(self, syntax: BlockSyntax, branch: Branch, at: int, unlikely: bool) -> int | None:
        """Where what follows a branch's literal is none of what may follow; None if it is. `unlikely`: all of it has to
        be as the template writes it."""
        if branch.read != "nothing":
            return self.wrong_tag(at) if unlikely else None
        if branch.then == END and not unlikely:
            return None
        node = () if branch.then == END else syntax.nodes[branch.then]
        free = any(option == Branch() for option in node)
        if any(not option.literal and option.read not in BRACKETS for option in node) and not (free and unlikely):
            return None
        at = skip(self.text, at, SPACE)
        for option in node:
            literal = option.literal or BRACKETS.get(option.read, "")
            if literal and self.text.startswith(literal, at):
                return self.misfit(syntax, option, at + len(literal), unlikely)
            if literal.startswith(self.text[at:]):
                return None
        openers = self.openers if branch.then == END else self.openers_at([(syntax, option) for option in node])
        begun = any(self.text.startswith(o, at) or o.startswith(self.text[at:]) for o in openers)
        return None if at == len(self.text) or begun else at

    def wrong_tag(self, at: int) -> int | None:
        """Where the rest of a tag is not a word, `>` and a line end."""
        size = 0
        while at < len(self.text) and self.text[at] not in "<" + SPACE:
            size += len(self.text[at].encode())
            if size > WORD_BYTES:
                return at
            at += 1
            if self.text[at - 1] == ">":
                return None if self.text[at : at + 1] in ("\n", "") else at
        return None if at == len(self.text) else at

    def no_word(self, field: Field, begin: int, at: int) -> None:
        if not self.pieces:
            self.mention(at)
        if self.syntax.untaught:
            raise Released(at)
        self.broken(field, begin, at)

    def first_key(self, syntax: BlockSyntax, at: int, *, calls: bool) -> bool:
        """Whether what begins like this is read as Python is. `calls`: it may be some."""
        quotes = ('"', "'") if syntax.untaught else ('"',)
        heads = ["{" + quote + key + quote for key in syntax.first_keys for quote in quotes]
        if calls:
            heads += [w + name + "(" for name in self.names for w in ("", "await ", "print(", "print(await ")]
        squeezed = ""
        for where, char in enumerate(self.text[at:], at):
            if char in SPACE and squeezed in ("[", "{", "[{"):
                continue
            squeezed += char
            if squeezed in heads or squeezed.removeprefix("[") in heads:
                return calls_in_code(squeezed) if syntax.untaught else False
            if not any(head.startswith(squeezed.removeprefix("[")) for head in heads):
                raise Released(where)
        raise Cut(text=True)

    def first_name(self, syntax: BlockSyntax, at: int) -> None:
        """Raise `Released` if the object at `at` gives itself a name that no call has."""
        if self.may_call is None or not syntax.names:
            return
        begun = re.compile(r"""\[?[ \t\r\n]*\{[ \t\r\n]*(["'])([^"']*)\1""").match(self.text, at)
        if begun is None or self.text[at] not in "[{":
            return
        rest = self.text[begun.end() :].encode()
        place, cut = name_in(
            rest[:WORD_BYTES], begun[1].encode(), begun[2].encode(), [n.encode() for n in syntax.names]
        )
        if place is not None and not self.may_call(rest[slice(*place)].decode(errors="replace"), syntax.untaught):
            raise Released(begun.end() + len(rest[: place[1]].decode(errors="replace")))
        if place is None and cut and len(rest) <= WORD_BYTES:
            raise Cut(text=True)

    def broken(self, field: Field, begin: int, wrong: int, beyond: int | None = None) -> None:
        """The first closer ends it. Another opener does if it stands before that, and not before `beyond`."""
        closer = self.syntax.closer
        if not closer or self.around not in ("", "own fence"):
            raise Released(wrong)
        self.keep(field, begin, None)
        found = self.text.find(closer, self.after)
        opener = -1 if beyond is None or not self.syntax.opener else self.text.find(self.syntax.opener, beyond)
        if opener >= 0 and not 0 <= found <= opener:
            raise Interrupted(opener)
        if found < 0:
            raise Cut
        raise Closed(found + len(closer), found, broken=True)

    def mention(self, at: int) -> None:
        """No body follows the opener."""
        closer = self.syntax.closer
        if self.syntax.untaught or not self.strict or self.syntax.first_keys or not closer:
            raise Released(at)
        opener = self.text.find(self.syntax.opener, self.after)
        found = self.text.find(closer, self.after)
        if found >= 0 and (opener < 0 or found < opener):
            raise Closed(found + len(closer), found, broken=True)
        if opener >= 0:
            raise Released(opener)
        raise Cut(text=True)


def calls_in_code(begun: str) -> bool:
    """What has no markers is read as Python is, but for an object with JSON's quotes."""
    return not begun.startswith('{"')


def calls(syntaxes: list[BlockSyntax]) -> bool:
    """They are more than framing."""
    return any(branch.field for syntax in syntaxes for node in syntax.nodes for branch in node)


def is_inner(syntaxes: list[BlockSyntax]) -> bool:
    """They stand in a section, or end one."""
    return syntaxes[0].anchor == "after" or any(syntax.ends_section for syntax in syntaxes)


# --- the whole text --------------------------------------------------------------------------------------------------


@dataclass
class _Reading:
    text: str
    grammar: Grammar
    policy: BlockPolicy
    settings: Settings
    truncated: bool
    pair: int = -1
    said: list[str] = field(default_factory=list)
    after_edge: bool = False
    after_block: bool = False
    fresh: bool = True
    left: str = ""
    middle: str = ""
    in_section: bool = False
    spoken: bool = False
    mark: str = ""
    """What the block that was read last is, if it is framing, or a section in which something was said."""
    out: list[Event] = field(default_factory=list)
    blocks: int = 0
    prose: str = ""
    quiet: int = 0
    settled: int = 0
    muted: int = 0
    stopped: bool = False
    line_starts: set[int] = field(default_factory=lambda: {0})

    @property
    def inside(self) -> bool:
        """In reasoning, between the tags of index `pair`."""
        return self.pair >= 0

    def events(self) -> list[Event]:
        settings = self.settings
        if settings.preopened and settings.reasoning:
            self.pair = 0
            self.after_edge = True
        at = 0
        while at < len(self.text):
            behind = self.tag_at(at)
            if behind > at:
                at = behind
                self.line_starts.add(at)
                continue
            found = self.block_at(at)
            if found is None and (behind := self.tag_at(at, answer=False)) > at:
                at = behind
                self.line_starts.add(at)
                continue
            if found is None:
                self.say(self.text[at])
                at += 1
                continue
            at = found
            if self.stopped:
                return self.out
        self.segment(edge=False)
        return self.out

    def settle(self, decision: Decision, at: int, end: int, family: str) -> bool:
        """Do what was decided of the block that stands there; whether it was recognised."""
        recognised = bool(decision.calls) or decision.drop
        if decision.error is not None:
            self.segment(edge=True)
            self.out.append(Fault(decision.error))
            self.stopped = True
        elif recognised:
            self.segment(edge=True)
            self.after_block = True
            self.calls(decision, self.text[at:end])
            self.line_starts.add(end)
            if decision.calls:
                self.grammar = only(self.grammar, family)
        else:
            self.say(self.text[at:end] if decision.replacement is None else decision.replacement, self.text[at:end])
        return recognised

    def block_at(self, at: int) -> int | None:
        """Where the block ends that begins here and is one; None: none does. What was not taught is tried where what
        was taught is none."""
        answer = self.answer_at(at)
        again = False
        for syntaxes in self.candidates(at):
            if syntaxes[0].loose:
                end = self.loose(syntaxes[0], at, again)
                if end is not None:
                    return end
                continue
            untaught = syntaxes[0].untaught
            if syntaxes != answer:
                end = self.own_fence(at)
                if end is not None:
                    return end
            fence, span, _ = quoting(self.prose, self.text[at].replace("`", ""))
            if untaught and (at < self.quiet or self.inside or fence or span):
                continue
            if syntaxes[0].opener:
                if at < self.muted and not untaught:
                    continue
                around, ticks = self.around(syntaxes[0].opener, at)
                if around == "text":
                    continue
                if around:
                    end = self.weigh(around, ticks, at, at, syntaxes)
                    if end is not None:
                        return end
                    continue
            if not untaught and calls(syntaxes):
                self.in_section = self.in_section or is_inner(syntaxes)
            end, judge = self.block(syntaxes, at)
            if self.mark and not self.frames():
                around = "heads" if self.mark == "head" else "framed"
                end_of_marks = self.weigh(around, WORD_BYTES, at, at, syntaxes)
                if end_of_marks is not None:
                    return end_of_marks
                continue
            family = self.chosen.family
            decision = None if judge is None else judge()
            if untaught and not (decision is not None and (decision.calls or decision.drop)):
                self.quiet = max(self.quiet, end, at + 1)
                again = again or bool(syntaxes[0].opener)
                continue
            if decision is None and any(syntax.untaught for syntax in self.grammar.syntaxes):
                again = again or bool(syntaxes[0].opener)
                continue
            if decision is AS_TEXT and syntaxes[0].opener:
                others = [other for other in self.grammar.syntaxes if other.loose]
                end_of_loose = self.loose(others[0], at, True) if others else None
                if end_of_loose is not None:
                    return end_of_loose
            if decision is None:
                self.fresh = False
                self.say(syntaxes[0].opener)
                return at + len(syntaxes[0].opener)
            if untaught or not calls(syntaxes):
                self.in_section = self.in_section or is_inner(syntaxes)
            self.fresh = False
            self.settle(decision, at, end, family)
            return end
        return self.own_fence(at)

    def frames(self) -> bool:
        """A marker here is the first thing of the answer that is visible, or the first one behind a block or a tag."""
        since = "".join(self.said)
        near = len(since) <= self.limit or (self.settings.trim_edges and not self.inside)
        return (self.fresh and not self.inside) or (self.after_edge and near and not since.strip(SPACE))

    def around(self, opener: str, at: int) -> tuple[str, int]:
        """What may quote the block that begins here; `text`: it is quoted."""
        fence, span, string = quoting(self.prose, self.text[at].replace("`", ""))
        if fence and opener.startswith(FENCE):
            return ("" if fence <= len(FENCE) else "text"), 0
        if fence:
            return ("fence" if self.anchored("margin", at) else "text"), fence
        if span:
            return "code", span
        if string or self.prose.endswith('"'):
            return "string", 1
        last = self.prose[-1:].encode()[-1:]
        return ("marks" if last in {mark.encode()[-1:] for mark in MARKS} else ""), 1

    def taught(self) -> list[list[BlockSyntax]]:
        """The taught syntaxes, those of one opener together."""
        groups: dict[tuple[str, str], list[BlockSyntax]] = {}
        for syntax in self.grammar.syntaxes:
            if syntax.opener and not syntax.untaught:
                groups.setdefault((syntax.opener, syntax.anchor), []).append(syntax)
        return list(groups.values())

    def own_fence(self, at: int) -> int | None:
        """Where calls end that stand in a fence of their own, which begins here."""
        if not self.text.startswith(FENCE, at) or at < self.muted or (self.inside and not self.settings.scan_calls):
            return None
        if not self.anchored("margin", at) or self.prose.endswith("`") or any(quoting(self.prose, "")[:2]):
            return None
        window = self.text[at:].encode()[:WORD_BYTES]
        line = re.match(rb"(`{3,})%b\n[ \t\r\n]*" % INFO, window)
        if line is None or line.end() == len(window):
            return None
        first = at + len(line[0].decode())
        for syntaxes in self.taught():
            if (
                calls(syntaxes)
                and not syntaxes[0].opener.startswith("`")
                and self.text.startswith(syntaxes[0].opener, first)
            ):
                return self.weigh("own fence", len(line[1]), at, first, syntaxes)
        return None

    def loose(self, syntax: BlockSyntax, at: int, again: bool) -> int | None:
        """Where the calls in any form end that begin here and go on to the end of the answer; None: there are none.
        `again`: a block in another form was none here."""
        if (
            self.inside
            or at < self.settled
            or not (again or (syntax.anchor == "margin" and self.anchored("margin", at)))
        ):
            return None
        if any(quoting(self.prose, self.text[at].replace("`", ""))[:2]):
            return None
        names = self.policy.callable_names
        words = [word.decode() for some in loose_words(names) for word in some]
        if not any(self.text.startswith(word, at) for word in words):
            return None
        over = next(self.overflows(at), None)
        head, upto = LooseHead(names), len(self.text)
        verdict: bool | None = None
        for where, char in enumerate(self.text[at:over], at):
            for byte in char.encode():
                verdict = head.take(byte)
                if verdict is not None:
                    break
            if verdict is not None:
                upto = where
                break
        if verdict:
            upto = len(self.text) if over is None else over
        self.settled = max(self.settled, upto, at + 1)
        if not verdict or over is not None or self.truncated:
            return None
        body = self.text[at:]
        decision = self.policy.block(Block(syntax, body, (("calls", body),), True, True))
        if not (decision.calls or decision.drop):
            return None
        self.chosen = syntax
        if decision.before:
            self.say(body[: decision.before])
        self.fresh = False
        self.settle(decision, at + decision.before, upto, syntax.family)
        return upto

    def weigh(self, around: str, ticks: int, start: int, at: int, syntaxes: list[BlockSyntax]) -> int | None:
        """Where blocks end that may be quoted, the first one of which begins here; None: they are quoted."""
        untaught = syntaxes[0].untaught
        found: list[tuple[int, int, Callable[[], Decision], str, bool]] = []
        while True:
            end, judge = self.block(syntaxes, at, start, around)
            if judge is None:
                seen = end if around != "framed" else found[-1][1]
                self.mute(seen if found else start + 1, start)
                self.quiet = max(self.quiet, seen) if untaught else self.quiet
                return None
            found.append((at, end, judge, self.chosen.family, is_inner(syntaxes)))
            if around == "framed" and len(found) > 1 and self.mark != "mark":
                break
            rest = self.text[end:].encode()
            openers = [some[0].opener for some in self.taught()]
            if around == "framed":
                openers += [pair[1 if self.inside else 0] for pair in self.settings.reasoning]
            behind = behind_block(rest, around, ticks, openers)
            where = end + len(rest[: behind.at].decode(errors="replace"))
            if behind.what == "text":
                return self.mute(end if around == "framed" else where, start)
            if behind.what == "call":
                break
            at, ticks = where, behind.ticks
            marks = [some for some in self.taught() if not calls(some) or around != "framed"]
            following = next((some for some in marks if some[0].opener == behind.opener), None)
            if following is None:
                break
            syntaxes = following
            ticks -= (behind.at + len(behind.opener.encode())) * (around == "framed")
        said, vanishes = start, False
        for begin, end, judge, family, inner in found:
            decision = judge()
            recognised = bool(decision.calls) or decision.drop
            if untaught and not recognised:
                return self.mute(end, start)
            if decision.error is None and not (vanishes or recognised):
                self.say(self.text[said:begin])
            self.in_section = self.in_section or (recognised and inner)
            self.settle(decision, begin, end, family)
            if self.stopped:
                return end
            self.fresh = False
            said, vanishes = end, recognised
        if around != "own fence":
            return said
        if not vanishes:
            self.say(self.text[said:])
        return len(self.text)

    def mute(self, upto: int, start: int) -> None:
        """No block begins up to there."""
        self.muted = max(self.muted, upto, start + 1)
        self.quiet = max(self.quiet, upto, start + 1)
        self.settled = max(self.settled, upto, start + 1)

    def candidates(self, at: int) -> list[list[BlockSyntax]]:
        """The syntaxes that may begin here, those of one opener together, in the order in which they are tried."""
        found: list[list[BlockSyntax]] = []
        if syntaxes := self.answer_at(at):
            found.append(syntaxes)
        if self.inside and not self.settings.scan_calls:
            return found
        groups: dict[tuple[bool, str, str], list[BlockSyntax]] = {}
        for syntax in self.grammar.syntaxes:
            if not (self.inside and syntax.untaught) and not syntax.loose:
                groups.setdefault((syntax.untaught, syntax.opener, syntax.anchor), []).append(syntax)
        for (_, opener, anchor), syntaxes in sorted(groups.items(), key=lambda group: (group[0][0], not group[0][1])):
            literals = [opener] if opener else self.line_literals(syntaxes) if anchor == "margin" else []
            if any(self.text.startswith(literal, at) for literal in literals) and self.anchored(anchor, at):
                found.append(syntaxes)
        if self.fresh and not self.inside and self.text[at] not in SPACE:
            printed = [syntax for syntax in self.grammar.syntaxes if syntax.untaught and syntax.anchor == "answer"]
            found += [printed] if printed else []
        return found + [[syntax] for syntax in self.grammar.syntaxes if syntax.loose]

    def line_literals(self, syntaxes: list[BlockSyntax]) -> list[str]:
        return [b.literal or BRACKETS.get(b.read, "") for syntax in syntaxes for b in syntax.nodes[0]]

    def anchored(self, anchor: str, at: int) -> bool:
        starts = at in self.line_starts or self.text[at - 1] == "\n"
        if anchor == "after":
            return self.follows_block()
        if anchor == "margin":
            while at not in self.line_starts and self.text[at - 1] in " \t":
                at -= 1
            return at in self.line_starts or self.text[at - 1] == "\n"
        return anchor != "line" or starts

    def tag_at(self, at: int, *, answer: bool = True) -> int:
        """Where a reasoning tag that begins here ends; `at` if there is none. `answer`: the beginning of an answer that
        is a call goes before."""
        if self.inside:
            closer = self.settings.reasoning[self.pair][1]
            if self.text.startswith(closer, at) and at >= self.muted and self.ends_reasoning(at, at + len(closer)):
                self.segment(edge=True)
                self.pair = -1
                self.prose = ""
                return at + len(closer)
            return at
        for index, (opener, _) in enumerate(self.settings.reasoning):
            if self.text.startswith(opener, at) and not (answer and self.answer_at(at)) and self.starts(at):
                self.segment(edge=True)
                self.pair = index
                self.prose = ""
                return at + len(opener)
        return at

    def starts(self, at: int) -> bool:
        """Whether reasoning may begin here."""
        since = "".join(self.said)
        near = len(since) <= self.limit or self.settings.trim_edges
        behind = self.after_edge and near and not since.strip(SPACE)
        fence, _, _ = quoting(self.prose, self.text[at].replace("`", ""))
        return not fence and (self.anchored("line", at) or self.fresh or behind)

    def ends_reasoning(self, at: int, behind: int) -> bool:
        """Whether a closing tag ends reasoning: not in code."""
        fence, span, _ = quoting(self.prose, self.text[at].replace("`", ""))
        if fence:
            return False
        rest = self.text[behind:].encode()
        end = behind_code(rest, span) if span else None
        if end is not None:
            self.mute(behind + len(rest[:end].decode(errors="replace")), at)
        return end is None

    def say(self, text: str, read: str | None = None) -> None:
        """Visible text, or reasoning. `read` is what stood there instead."""
        self.said.append(text)
        self.prose += text if read is None else read
        if not self.inside and text.strip(SPACE):
            self.fresh = False

    def segment(self, *, edge: bool) -> None:
        """Give out the text since the last edge, without the whitespace that belongs to no text, and with what stays of
        it between two texts (R6.6)."""
        text = "".join(self.said)
        self.said.clear()
        self.prose += "\n" if edge else ""
        touched, self.after_edge = self.after_edge, edge
        self.after_block = False
        in_section, self.in_section = self.in_section, False
        left = ""
        if self.inside:
            if not text.strip(SPACE) and (touched or edge) and len(text) <= self.limit:
                text = ""
        elif self.settings.trim_edges:
            right = ""
            if touched:
                core = text.lstrip(SPACE)
                right, text = "" if in_section else text[: len(text) - len(core)], core
            if edge:
                core = text.rstrip(SPACE)
                if len(text) - len(core) <= self.limit:
                    text, left = core, text[len(core) :]
            if text and self.spoken:
                spaces = self.left + right or self.middle
                text = ("\n" if "\n" in spaces else " "[: len(spaces)]) + text
            self.middle = "" if text else self.middle + right
        elif not text.strip(SPACE) and (touched or edge) and len(text) <= self.limit:
            text, left = "", self.left + text
            if len(left) > self.limit:
                text, left = left, ""
        elif text:
            text = self.left + text
        if not self.inside and text:
            self.spoken = True
        if not self.inside and (text or left):
            self.left = left
        if text:
            block = self.number()
            self.out.append(Open(block, BlockKind.REASONING if self.inside else BlockKind.TEXT))
            self.out.append(Delta(block, text))
            self.out.append(Close(block, "truncated" if self.truncated and not edge else "complete"))

    def number(self) -> int:
        self.blocks += 1
        return self.blocks - 1

    def calls(self, decision: Decision, raw: str) -> None:
        if decision.reasoning:
            block = self.number()
            self.out += [Open(block, BlockKind.REASONING), Delta(block, decision.reasoning), Close(block)]
        for call in decision.calls:
            block = self.number()
            self.out.append(
                Open(
                    block,
                    BlockKind.TOOL_CALL,
                    name=call.name,
                    call_id=call.call_id,
                    call_kind=call.kind,
                    namespace=call.namespace,
                    extra={"source": call.source or raw},
                )
            )
            if call.arguments:
                self.out.append(Delta(block, call.arguments))
            self.out.append(Close(block))

    @property
    def limit(self) -> int:
        return max([self.settings.block_bytes, *(len(syntax.opener.encode()) for syntax in self.grammar.syntaxes)])

    def answer_at(self, at: int) -> list[BlockSyntax]:
        """The syntaxes that an answer may begin with, if it begins here."""
        syntaxes = [syntax for syntax in self.grammar.syntaxes if syntax.anchor == "answer" and not syntax.untaught]
        heads = {branch.literal or BRACKETS.get(branch.read, "") for syntax in syntaxes for branch in syntax.nodes[0]}
        named = any(branch.read == "name" for syntax in syntaxes for branch in syntax.nodes[0] if not branch.literal)
        begins = any(head and self.text[at] == head[0] for head in heads)
        begins = begins or (named and (self.text[at] in NAME + ":/" or not self.text[at].isascii()))
        return syntaxes if begins and self.fresh and not self.inside else []

    def follows_block(self) -> bool:
        since = "".join(self.said)
        near = len(since) <= self.limit or (self.settings.trim_edges and not self.inside)
        return self.after_block and near and not since.strip(SPACE)

    def block(
        self, syntaxes: list[BlockSyntax], start: int, since: int | None = None, around: str = ""
    ) -> tuple[int, Callable[[], Decision] | None]:
        """Where the block ends and who says what it is; None: its opener was none, as is seen there. `around` is what
        may quote it, and begins at `since`."""
        over = next(self.overflows(start if since is None else since), None)
        begun = start + len(syntaxes[0].opener)  # which counts as a whole
        if over is not None and over < begun:
            over = begun if begun < len(self.text) else None
        openers = [
            syntax.opener
            for syntax in self.grammar.syntaxes
            if syntax.opener and syntax.anchor != "line" and (syntaxes[0].untaught or not syntax.untaught)
        ]
        names = self.policy.callable_names
        strict = self.policy.strict and not around
        may_call = None if self.policy.strict and not syntaxes[0].untaught else self.policy.may_call
        descent = _Descent(self.text[:over], start, syntaxes, strict, openers, names, around, may_call)
        self.chosen = syntaxes[0]
        self.mark = ""
        try:
            descent.read()
        except Released as found:
            return found.args[0], None
        except Closed as end:
            if end.more and self.truncated and over is None:
                return self.unfinished(descent, len(self.text), "truncated")
            return self.judged(descent, end)
        except Interrupted as found:
            return self.unfinished(descent, found.args[0], "end")
        except Cut as cut:
            return self.cut(descent, cut, over)
        raise AssertionError("a descent never comes back")

    def unfinished(self, descent: _Descent, upto: int, why: Why) -> tuple[int, Callable[[], Decision]]:
        self.chosen = descent.syntax
        return upto, partial(self.policy.unfinished, descent.syntax, self.text[descent.after : upto], why)

    def cut(self, descent: _Descent, cut: Cut, over: int | None) -> tuple[int, Callable[[], Decision] | None]:
        syntax, after = descent.syntax, descent.after
        found = self.text.find(syntax.closer, after, over) if syntax.closer else -1
        by_closer = Closed(found + len(syntax.closer), found, broken=True)
        if over is not None:
            if found >= 0 and not self.policy.strict:
                descent.pieces = [piece for piece in descent.pieces if piece[2] is not None]
                return self.judged(descent, by_closer)
            return self.unfinished(descent, over, "oversize")
        if cut.text or (cut.early and (syntax.first_keys or not self.truncated)):
            return len(self.text), None
        if cut.ends and (cut.surely or not self.truncated):
            return self.judged(descent, Closed(len(self.text), len(self.text)))
        if self.truncated:
            return self.unfinished(descent, len(self.text), "truncated")
        if cut.whole is not None:
            return self.judged(descent, Closed(len(self.text), cut.whole, closed=False))
        if descent.printing is not None:
            if not cut.in_string:
                descent.keep(descent.printing, cut.begin, None)
            return self.judged(descent, Closed(len(self.text), len(self.text), broken=True))
        if cut.in_string and found >= 0:
            return self.judged(descent, by_closer)
        return self.unfinished(descent, len(self.text), "end")

    def judged(self, descent: _Descent, end: Closed) -> tuple[int, Callable[[], Decision]]:
        self.chosen = syntax = descent.syntax
        self.mark = ""
        if not end.broken and descent.pieces:
            self.mark = "mark" if {piece[0] for piece in descent.pieces} == {"said"} else ""
        elif not end.broken:
            self.mark = syntax.framing if syntax.framing == "head" or end.upto == descent.after else ""
        if not end.broken and not descent.pieces:  # framing
            closers = [closer for _, closer in self.settings.reasoning]
            tag = self.text[descent.after - len(syntax.opener) : end.upto]
            framing = AS_TEXT if tag in closers and tag != syntax.opener else DROPPED
            return end.upto, lambda: framing
        body = self.text[descent.after : end.body_end]
        pieces = tuple(
            (field, self.text[begin : end.body_end if upto is None else upto])
            for field, begin, upto in descent.pieces
            if begin <= end.body_end and (upto is None or upto <= end.body_end)
        )
        whole = syntax.whole
        if whole and len(pieces) < 2:
            pieces = ((whole, body),)
        return end.upto, partial(self.policy.block, Block(syntax, body, pieces, end.closed, end.broken))

    def overflows(self, start: int) -> Iterator[int]:
        size = 0
        for index in range(start, len(self.text)):
            size += len(self.text[index].encode())
            if size > self.limit:
                yield index
