"""A third reading of the rules: the whole text at once, naive, recursive, with no state kept between pieces.

Slow on purpose. It shares nothing with the scanners but the data types, and finds the ends of blocks in another way: a
recursive descent that raises, instead of a machine that is told. The bound of a block's size is met by not showing the descent
what lies beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from proxy._grammar import (
    BLOCK_BYTES,
    DROPPED,
    END,
    FENCE,
    SPACE,
    WORD_BYTES,
    Block,
    Branch,
    Field,
    Grammar,
    Judge,
    Shape,
    Verdict,
)
from proxy.events import BlockKind, Close, Delta, Event, Fault, Open

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
    """The text is not what the field must be."""


class Ended(Exception):
    """The text ends inside the field; the argument says whether inside a JSON string."""


def valid(text: str) -> str:
    """Surrogates as the scanners treat them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse(
    text: str, grammar: Grammar, judge: Judge, settings: Settings | None = None, truncated: bool = False
) -> list[Event]:
    """The events of the whole text, blocks numbered from 0, one delta a block."""
    return _Reading(valid(text), grammar, judge, settings or Settings(), truncated).events()


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
    raise Wrong


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
                raise Wrong
            at = skip(text, string_end(text, at), SPACE)
            if at == len(text):
                raise Ended(False)
            if text[at] != ":":
                raise Wrong
            at += 1
        at = skip(text, value_end(text, at), SPACE)
        if at == len(text):
            raise Ended(False)
        if text[at] == bracket:
            return at + 1
        if text[at] != ",":
            raise Wrong
        at += 1


# --- other syntax ----------------------------------------------------------------------------------------------------


def code_end(text: str, at: int, *, listed: bool) -> int:
    """Where calls as Python writes them end: `f(...)`, or `[f(...), ...]`, or a list of objects. Raises `Wrong`, with True if a
    call was begun, and `Ended`."""
    if listed:
        at = skip(text, at + 1, SPACE)
        if at == len(text):
            raise Ended(False)
        if text[at] == "{":
            return rest_of_brackets(text, at, ["]"])
    if text[at] not in LETTERS + "_" and text[at].isascii():
        raise Wrong(False)
    while at < len(text) and (text[at] in NAME or not text[at].isascii()):
        at += 1
    if at == len(text):
        raise Ended(False)
    if text[at] != "(":
        raise Wrong(False)
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
            raise Wrong(True)
        at += 1
    return at


def literal_end(text: str, at: int) -> int:
    """The end of a string whose own quotes may stand in it: the quote that a comma, colon or closing bracket follows."""
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
                raise Wrong(True)
            closing = text.find(quote, at + len(quote))
            if closing < 0:
                raise Ended(False)
            at = closing + len(quote)
            continue
        if text[at] in "{[":
            awaited.append({"[": "]", "{": "}"}[text[at]])
        elif text[at] in "}]":
            if text[at] != awaited.pop():
                raise Wrong(True)
            if not awaited:
                return at + 1
        at += 1


# --- a block ---------------------------------------------------------------------------------------------------------

BRACKETS = {"object": "{", "array": "[", "list": "[", "braces": "{"}
Option = tuple[Shape, Branch]


class Closed(Exception):
    """The block ends at `upto`, its body at `body_end`. `broken`: not as its shape says. `closed`: its closer is there.
    `more`: the text ended, where one argument more might have come."""

    def __init__(
        self, upto: int, body_end: int, *, broken: bool = False, closed: bool = True, more: bool = False
    ) -> None:
        self.upto = upto
        self.body_end = body_end
        self.broken = broken
        self.closed = closed
        self.more = more


class Released(Exception):
    """The opener was none."""


class Interrupted(Exception):
    """Another block begins at the offset that is the argument, where this one was whole but for its closer and went on otherwise."""


class Cut(Exception):
    """The text ends inside the block. `early`: no more than the opener was read. `text`: what was begun counts as text
    also if the answer is truncated. `ends`: that is how the block ends, and `surely` so also if the answer is truncated. `whole`: a
    closer is all that is missing, the body ends there. `in_string`: of JSON."""

    def __init__(
        self,
        *,
        early: bool = False,
        text: bool = False,
        ends: bool = False,
        surely: bool = True,
        whole: int | None = None,
        in_string: bool = False,
    ) -> None:
        self.early = early
        self.text = text
        self.ends = ends
        self.surely = surely
        self.whole = whole
        self.in_string = in_string


class _Descent:
    """Reads a block in `text`, which goes as far as the block may. `read` never comes back: it raises how the block ends."""

    def __init__(self, text: str, start: int, shapes: list[Shape], strict: bool, openers: list[str]) -> None:
        self.text = text
        self.openers = openers
        self.value_ended: Literal["surely", "likely", "unlikely"] = "surely"
        self.shapes = shapes
        self.shape = shapes[0]
        self.strict = strict
        self.after = start + len(self.shape.opener)
        self.mark = self.after
        self.may_end = False
        self.pieces: list[tuple[Field, int, int | None]] = []
        self.fence = any(shape.fence for shape in shapes)
        self.fenced = False

    def read(self) -> None:
        self.place([(shape, branch) for shape in self.shapes for branch in shape.places[0]], self.after)

    def place(self, options: list[Option], at: int, *, over: bool = False) -> None:
        """What may come between two fields. `over`: nothing but another block, or the end of the answer."""
        text = self.text
        literals = {branch.literal or BRACKETS.get(branch.read, ""): (shape, branch) for shape, branch in options}
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
            for literal, (shape, branch) in literals.items():
                if text.startswith(literal, at):
                    self.take(shape, branch, at)
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
                self.mention()
            field, start, _ = self.pieces.pop()
            self.broken(field, start, at if begun else None)
        if lead:
            raise Cut(early=True)
        if (other is None and not literals) or (free and unlikely):
            raise Cut(ends=True, surely=self.value_ended == "surely")
        if self.may_end:
            raise Closed(self.mark, self.mark, more=any(branch.field == "key" for _, branch in options))
        final = other is None and all(branch.then == END and branch.read == "nothing" for _, branch in options)
        raise Cut(whole=at if final else None)

    def openers_at(self, options: list[Option]) -> list[str]:
        """What may end the block here as the beginning of another one: after content, where closers are all that is missing."""
        if not self.pieces or self.pieces[-1][0] not in ("value", "arguments", "call", "calls"):
            return []
        if not any(self.closing(shape, branch, set()) for shape, branch in options):
            return []
        literals = [branch.literal or BRACKETS.get(branch.read, "") for _, branch in options]
        literals = [literal for literal in literals if literal]
        return [o for o in self.openers if not any(o.startswith(x) or x.startswith(o) for x in literals)]

    def closing(self, shape: Shape, branch: Branch, seen: set[int]) -> bool:
        """Whether the block can end behind a branch without a further field."""
        if branch.read != "nothing" or branch.then in seen:
            return False
        if branch.then == END:
            return True
        seen.add(branch.then)
        return any(self.closing(shape, option, seen) for option in shape.places[branch.then])

    def take(self, shape: Shape, branch: Branch, at: int) -> None:
        self.shape = shape
        after = at + len(branch.literal)
        if branch.read == "nothing":
            if branch.then == END and self.value_ended == "unlikely":
                self.place([], after, over=True)
            if branch.then == END:
                raise Closed(at if branch.ahead else after, at)
            self.place([(shape, option) for option in shape.places[branch.then]], after)
        if branch.literal and branch.read in BRACKETS:
            self.place([(shape, replace(branch, literal=""))], after)
        self.field(shape, branch, after)

    def field(self, shape: Shape, branch: Branch, at: int) -> None:
        text = self.text
        self.may_end = False
        self.value_ended = "surely"
        if branch.read in ("name", "word", "text"):
            self.until_literal(shape, branch, at)
        if branch.read in ("object", "array") and shape.first_keys and not self.pieces:
            self.first_key(shape, at)
        try:
            match branch.read:
                case "list" | "call":
                    end = code_end(text, at, listed=branch.read == "list")
                case "braces":
                    end = braces_end(text, at, shape.quote)
                case _:
                    end = value_end(text, at)
        except Wrong as wrong:
            if branch.read in ("list", "call") and not (self.pieces or wrong.args[0]):
                self.mention()
            self.broken(branch.field, at)
        except Ended as ended:
            if ended.args[0]:
                self.keep(branch.field, at, None)
            raise Cut(in_string=ended.args[0]) from None
        self.keep(branch.field, at, end)
        if branch.then == END:
            raise Closed(end, end)
        self.place([(shape, option) for option in shape.places[branch.then]], end)

    def keep(self, field: Field, begin: int, end: int | None) -> None:
        if field:
            self.pieces.append((field, begin, end))

    def until_literal(self, shape: Shape, branch: Branch, begin: int) -> None:
        text = self.text
        worded = ended = False
        data_to = begin
        for at in range(begin, len(text)):
            if at < data_to:
                continue
            for option in shape.places[branch.then]:
                literal = option.literal or BRACKETS[option.read]
                if text.startswith(literal, at):
                    own = option.read == "nothing" if literal[0] == "\n" else text[at - 1] == "\n"
                    unlikely = shape.framed and text[begin] == "\n" and not own
                    before = len(self.pieces)
                    self.keep(branch.field, begin, at)
                    wrong = self.misfit(shape, option, at + len(literal), unlikely) if branch.read == "text" else None
                    if wrong is None:
                        if branch.read == "text":
                            self.value_ended = "unlikely" if unlikely else "likely"
                        self.take(shape, option, at)
                    del self.pieces[before:]
                    data_to = wrong - 1 if wrong > at + len(literal) and text[wrong - 1] in SPACE else wrong
            if at < data_to:
                continue
            if any(option.literal.startswith(text[at:]) for option in shape.places[branch.then]):
                break
            if branch.read != "text":
                if shape.opener and text.startswith(shape.opener, at):  # so the first one was a mention
                    self.broken(branch.field, begin) if self.pieces else self.mention()
                if shape.opener.startswith(text[at:]):
                    break
                char = text[at]
                strange = branch.read == "name" and char.isascii() and char not in NAME + ":/"
                bad = char not in SPACE and (ended or strange)
                if bad or len(text[begin : at + 1].encode()) > WORD_BYTES:
                    self.broken(branch.field, begin) if self.pieces else self.mention()
                worded = worded or char not in SPACE
                ended = ended or (worded and (char == "\n" or (branch.read == "name" and char in SPACE)))
        raise Cut(early=branch.read != "text" and not self.pieces)

    def misfit(self, shape: Shape, branch: Branch, at: int, unlikely: bool) -> int | None:
        """Where what follows a branch's literal is none of what may follow; None if it is. `unlikely`: all of it has to be as the
        template writes it."""
        if branch.read != "nothing":
            return self.wrong_tag(at) if unlikely else None
        if branch.then == END and not unlikely:
            return None
        place = () if branch.then == END else shape.places[branch.then]
        free = any(option == Branch() for option in place)
        if any(not option.literal and option.read not in BRACKETS for option in place) and not (free and unlikely):
            return None
        at = skip(self.text, at, SPACE)
        for option in place:
            literal = option.literal or BRACKETS.get(option.read, "")
            if literal and self.text.startswith(literal, at):
                return self.misfit(shape, option, at + len(literal), unlikely)
            if literal.startswith(self.text[at:]):
                return None
        openers = self.openers if branch.then == END else self.openers_at([(shape, option) for option in place])
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

    def first_key(self, shape: Shape, at: int) -> None:
        heads = [bracket + '{"' + key + '"' for key in shape.first_keys for bracket in ("", "[")]
        squeezed = ""
        for char in self.text[at:]:
            if char in SPACE and squeezed in ("[", "{", "[{"):
                continue
            squeezed += char
            if squeezed in heads:
                return
            if not any(head.startswith(squeezed) for head in heads):
                raise Released
        raise Cut(text=True)

    def broken(self, field: Field, begin: int, beyond: int | None = None) -> None:
        """The first closer ends it. Another opener does if it stands before that, and not before `beyond`."""
        closer = self.shape.closer
        if not closer:
            raise Released
        self.keep(field, begin, None)
        found = self.text.find(closer, self.after)
        opener = -1 if beyond is None or not self.shape.opener else self.text.find(self.shape.opener, beyond)
        if opener >= 0 and not 0 <= found <= opener:
            raise Interrupted(opener)
        if found < 0:
            raise Cut
        raise Closed(found + len(closer), found, broken=True)

    def mention(self) -> None:
        """No body follows the opener."""
        closer = self.shape.closer
        if not self.strict or self.shape.first_keys or not closer:
            raise Released
        opener = self.text.find(self.shape.opener, self.after)
        found = self.text.find(closer, self.after)
        if found >= 0 and (opener < 0 or found < opener):
            raise Closed(found + len(closer), found, broken=True)
        if opener >= 0:
            raise Released
        raise Cut(text=True)


# --- the whole text --------------------------------------------------------------------------------------------------


@dataclass
class _Reading:
    text: str
    grammar: Grammar
    judge: Judge
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
    out: list[Event] = field(default_factory=list)
    blocks: int = 0

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
        line_starts = {0}
        while at < len(self.text):
            behind = self.tag_at(at)
            if behind > at:
                at = behind
                line_starts.add(at)
                continue
            shapes = self.shapes_at(at, at in line_starts or self.text[at - 1] == "\n")
            if not shapes:
                self.say(self.text[at])
                at += 1
                continue
            self.fresh = False
            self.in_section = self.in_section or shapes[0].anchor == "after" or shapes[0].ends_section
            end, verdict = self.block(shapes, at)
            if verdict is None:
                at += len(shapes[0].opener)
                self.say(shapes[0].opener)
                continue
            if verdict.error is not None:
                self.segment(edge=True)
                self.out.append(Fault(verdict.error))
                return self.out
            if verdict.calls or verdict.drop:
                self.segment(edge=True)
                self.after_block = True
                self.calls(verdict, self.text[at:end])
                line_starts.add(end)
                if verdict.calls and self.grammar.exclusive:
                    family = self.chosen.family
                    shapes = [shape for shape in self.grammar.shapes if shape.family == family]
                    self.grammar = replace(self.grammar, shapes=tuple(shapes))
            else:
                self.say(self.text[at:end] if verdict.replacement is None else verdict.replacement)
            at = end
        self.segment(edge=False)
        return self.out

    def tag_at(self, at: int) -> int:
        """Where a reasoning tag that begins here ends; `at` if there is none."""
        if self.inside:
            closer = self.settings.reasoning[self.pair][1]
            if self.text.startswith(closer, at):
                self.segment(edge=True)
                self.pair = -1
                return at + len(closer)
            return at
        for index, (opener, _) in enumerate(self.settings.reasoning):
            if self.text.startswith(opener, at) and not self.answer_at(at):
                self.segment(edge=True)
                self.pair = index
                return at + len(opener)
        return at

    def say(self, text: str) -> None:
        self.said.append(text)
        if not self.inside and text.strip(SPACE):
            self.fresh = False

    def segment(self, *, edge: bool) -> None:
        """Give out the text since the last edge, without the whitespace that belongs to no text, and with what stays of it between
        two texts (R6.6)."""
        text = "".join(self.said)
        self.said.clear()
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

    def calls(self, verdict: Verdict, raw: str) -> None:
        for call in verdict.calls:
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
        return max([self.settings.block_bytes, *(len(shape.opener.encode()) for shape in self.grammar.shapes)])

    def answer_at(self, at: int) -> list[Shape]:
        """The shapes that an answer may begin with, if it begins here."""
        shapes = [shape for shape in self.grammar.shapes if shape.anchor == "answer"]
        heads = {branch.literal or BRACKETS.get(branch.read, "") for shape in shapes for branch in shape.places[0]}
        named = any(branch.read == "name" for shape in shapes for branch in shape.places[0] if not branch.literal)
        begins = any(head and self.text[at] == head[0] for head in heads)
        begins = begins or (named and (self.text[at] in NAME + ":/" or not self.text[at].isascii()))
        return shapes if begins and self.fresh and not self.inside else []

    def shapes_at(self, at: int, line_start: bool) -> list[Shape]:
        """The shapes that may begin here: those of one opener."""
        if shapes := self.answer_at(at):
            return shapes
        if self.inside and not self.settings.scan_calls:
            return []
        here = [
            shape
            for shape in self.grammar.shapes
            if shape.opener
            and self.text.startswith(shape.opener, at)
            and (shape.anchor != "line" or line_start)
            and (shape.anchor != "after" or self.follows_block())
        ]
        return [shape for shape in here if (shape.opener, shape.anchor) == (here[0].opener, here[0].anchor)]

    def follows_block(self) -> bool:
        since = "".join(self.said)
        near = len(since) <= self.limit or (self.settings.trim_edges and not self.inside)
        return self.after_block and near and not since.strip(SPACE)

    def block(self, shapes: list[Shape], start: int) -> tuple[int, Verdict | None]:
        """Where the block ends and what it is; None: its opener was none."""
        over = next(self.overflows(start), None)
        openers = [shape.opener for shape in self.grammar.shapes if shape.opener and shape.anchor != "line"]
        descent = _Descent(self.text[:over], start, shapes, self.judge.strict, openers)
        try:
            descent.read()
        except Released:
            return start, None
        except Closed as end:
            if end.more and self.truncated and over is None:
                return len(self.text), self.judge.unfinished(descent.shape, self.text[descent.after :], "truncated")
            return self.judged(descent, end)
        except Interrupted as found:
            upto: int = found.args[0]
            return upto, self.judge.unfinished(descent.shape, self.text[descent.after : upto], "end")
        except Cut as cut:
            return self.cut(descent, cut, over)
        raise AssertionError("a descent never comes back")

    def cut(self, descent: _Descent, cut: Cut, over: int | None) -> tuple[int, Verdict | None]:
        shape, after = descent.shape, descent.after
        found = self.text.find(shape.closer, after, over) if shape.closer else -1
        by_closer = Closed(found + len(shape.closer), found, broken=True)
        if over is not None:
            if found >= 0 and not self.judge.strict:
                descent.pieces = [piece for piece in descent.pieces if piece[2] is not None]
                return self.judged(descent, by_closer)
            return over, self.judge.unfinished(shape, self.text[after:over], "oversize")
        if cut.text or (cut.early and (shape.first_keys or not self.truncated)):
            return after, None
        if cut.ends and (cut.surely or not self.truncated):
            return self.judged(descent, Closed(len(self.text), len(self.text)))
        if self.truncated:
            return len(self.text), self.judge.unfinished(shape, self.text[after:], "truncated")
        if cut.whole is not None:
            return self.judged(descent, Closed(len(self.text), cut.whole, closed=False))
        if cut.in_string and found >= 0:
            return self.judged(descent, by_closer)
        return len(self.text), self.judge.unfinished(shape, self.text[after:], "end")

    def judged(self, descent: _Descent, end: Closed) -> tuple[int, Verdict]:
        self.chosen = shape = descent.shape
        if not end.broken and not descent.pieces:  # framing
            return end.upto, DROPPED
        body = self.text[descent.after : end.body_end]
        pieces = tuple(
            (field, self.text[begin : end.body_end if upto is None else upto])
            for field, begin, upto in descent.pieces
            if begin <= end.body_end and (upto is None or upto <= end.body_end)
        )
        whole = shape.whole
        if whole and len(pieces) < 2:
            pieces = ((whole, body),)
        return end.upto, self.judge.block(Block(shape, body, pieces, end.closed, end.broken))

    def overflows(self, start: int) -> Iterator[int]:
        size = 0
        for index in range(start, len(self.text)):
            size += len(self.text[index].encode())
            if size > self.limit:
                yield index
