"""Reading one block, for the oracle: a recursive descent that raises how the block ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from tests.parse.oracle_quoting import name_in
from tests.parse.oracle_values import (
    LETTERS,
    NAME,
    Ended,
    Wrong,
    braces_end,
    code_end,
    rest_of_brackets,
    skip,
    value_end,
)
from toolwire.scan._grammar import (
    END,
    FENCE,
    KEY_CLOSER,
    SPACE,
    WORD_BYTES,
    BlockSyntax,
    Branch,
    Field,
)

CONTENT = ("value", "arguments", "call", "calls")
BRACKETS = {"object": "{", "array": "[", "list": "[", "braces": "{"}
Option = tuple[BlockSyntax, Branch]


class Closed(Exception):
    """The block ends at `upto`, its body at `body_end`. `broken`: it does not follow its syntax. `closed`: its closer
    is there. `more`: the text ended where another argument might have followed."""

    def __init__(
        self, upto: int, body_end: int, *, broken: bool = False, closed: bool = True, more: bool = False
    ) -> None:
        self.upto = upto
        self.body_end = body_end
        self.broken = broken
        self.closed = closed
        self.more = more


class Released(Exception):
    """The opener did not begin a block; the argument is the offset where this shows."""


class Interrupted(Exception):
    """The argument is the offset where another block begins in this one, of which only the closer was missing."""


class Cut(Exception):
    """The text ends inside the block. `early`: only the opener was read. `text`: the beginning is text even if the
    answer is truncated. `ends`: the block ends with the answer (`surely`: even if truncated). `whole`: only a closer is
    missing, and the body ends there. `in_string`: inside a JSON string. `begin`: start of the field that is cut."""

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


class BlockDescent:
    """Reads a block in `text`, which ends where the block must end. `read` never returns: it raises how the block
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
        quoted: re.Pattern[bytes] | None = None,
    ) -> None:
        self.text = text
        self.around = around
        self.may_call = may_call
        self.quoted = quoted
        self.names = names
        self.printing: Field | None = None
        self.openers = openers
        self.value_ended: Literal["surely", "likely", "unlikely", "quoted"] = "surely"
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
        """Reads the text between two fields. `over`: only another block or the end of the answer may follow."""
        text = self.text
        ends = any(branch.read == "end" for _, branch in options)
        options = [option for option in options if option[1].read != "end"]
        literals = {branch.literal or BRACKETS.get(branch.read, ""): (syntax, branch) for syntax, branch in options}
        other = literals.pop("", None)
        free = other is not None and other[1].read == "nothing" and other[1].then == END
        unlikely = self.value_ended in ("unlikely", "quoted")
        if free and not unlikely:
            self.value_ended = "surely"
            self.may_end = True
            self.mark = at
        if free and not literals:
            raise Closed(at, self.mark)
        lead = not self.pieces
        begin = at
        apart = self.may_end or self.value_ended == "quoted"
        begun = [] if apart else self.openers if over else self.openers_at(options)
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
        ending = [
            literal
            for literal, (syntax, branch) in literals.items()
            if branch.read == "nothing" and self.closing(syntax, branch, set())
        ]
        valued = bool(self.pieces) and self.pieces[-1][0] in CONTENT
        closes = valued and any(literal.startswith(text[at:]) for literal in ending)
        raise Cut(whole=at if final or closes else None)

    def openers_at(self, options: list[Option]) -> list[str]:
        """Returns the openers of other blocks that may end this one here: after content, if only closers are
        missing."""
        if not self.pieces or self.pieces[-1][0] not in CONTENT:
            return []
        if not any(self.closing(syntax, branch, set()) for syntax, branch in options):
            return []
        literals = [branch.literal or BRACKETS.get(branch.read, "") for _, branch in options]
        literals = [literal for literal in literals if literal]
        return [o for o in self.openers if not any(o.startswith(x) or x.startswith(o) for x in literals)]

    def closing(self, syntax: BlockSyntax, branch: Branch, seen: set[int]) -> bool:
        """Returns True if the block can end after a branch without another field."""
        if branch.read != "nothing" or branch.then in seen:
            return False
        if branch.then == END:
            return True
        seen.add(branch.then)
        return any(self.closing(syntax, option, seen) for option in syntax.nodes[branch.then])

    def over(self, syntax: BlockSyntax, branch: Branch, seen: set[int]) -> bool:
        """Returns True if only closers and further calls can follow."""
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
            if branch.then == END and self.value_ended in ("unlikely", "quoted"):
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
        worded = ended = closed = False
        data_to = begin
        for at in range(begin, len(text)):
            if at < data_to:
                continue
            for option in self.closers(syntax, branch, begin, at):
                literal = option.literal or BRACKETS[option.read]
                if text.startswith(literal, at):
                    own = option.read == "nothing" if literal[0] == "\n" else text[at - 1] == "\n"
                    unlikely = syntax.framed and text[begin] == "\n" and not own
                    seen = self.calls_before(begin, at, len(literal)) if branch.read == "text" and not closed else None
                    quoted = bool(seen)
                    before = len(self.pieces)
                    self.keep(branch.field, begin, at)
                    behind = at + len(literal)
                    wrong = self.misfit(syntax, option, behind, unlikely, quoted) if branch.read == "text" else None
                    if wrong is None:
                        if branch.read == "text":
                            self.value_ended = "quoted" if quoted else "unlikely" if unlikely else "likely"
                        self.take(syntax, option, at)
                    del self.pieces[before:]
                    closed = closed or (seen is None and not unlikely)
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

    def closers(self, syntax: BlockSyntax, branch: Branch, begin: int, at: int) -> Iterator[Branch]:
        """The branches that may end a field at `at`. A closing tag with the name of the key ends no value that has an
        opening one."""
        for option in syntax.nodes[branch.then]:
            if option.literal != KEY_CLOSER:
                yield option
                continue
            _, start, stop = self.pieces[-1]
            key = self.text[start:stop].strip(SPACE + "\"'")
            if 0 < len(key.encode()) <= 128 and f"<{key}" not in self.text[begin:at]:
                yield replace(option, literal=f"</{key}>")

    def calls_before(self, begin: int, at: int, size: int) -> int | None:
        """Returns the number of calls that the value quotes and that have not ended where the literal at `at` stands.
        None: no call has begun. A closer before the first call may be the value's own: then none is quoted."""
        open_calls: int | None = None
        before, text = (self.text[begin:end].encode() for end in (at, at + size))
        for found in self.quoted.finditer(text) if self.quoted is not None else ():
            if found.start() < len(before):
                if open_calls is None and not found[1]:
                    return 0
                open_calls = (open_calls or 0) + 1 if found[1] else max(0, (open_calls or 0) - 1)
        return open_calls

    def misfit(self, syntax: BlockSyntax, branch: Branch, at: int, unlikely: bool, quoted: bool) -> int | None:
        """Returns the offset where the text after a branch's literal cannot follow a value, or None. `unlikely`: all of
        the text must be as the template writes it. `quoted`: only the end of the answer may follow."""
        if branch.read != "nothing":
            return at if quoted else self.wrong_tag(at) if unlikely else None
        unlikely = unlikely or quoted
        if branch.then == END and not unlikely:
            return None
        node = () if branch.then == END else syntax.nodes[branch.then]
        free = any(option == Branch() for option in node)
        if any(not option.literal and option.read not in BRACKETS for option in node) and not (
            quoted or (free and unlikely)
        ):
            return None
        at = skip(self.text, at, SPACE)
        for option in node:
            literal = option.literal or BRACKETS.get(option.read, "")
            if literal and self.text.startswith(literal, at):
                return self.misfit(syntax, option, at + len(literal), unlikely, quoted)
            if literal.startswith(self.text[at:]):
                return None
        openers = self.openers if branch.then == END else self.openers_at([(syntax, option) for option in node])
        openers = [] if quoted else openers
        begun = any(self.text.startswith(o, at) or o.startswith(self.text[at:]) for o in openers)
        return None if at == len(self.text) or begun else at

    def wrong_tag(self, at: int) -> int | None:
        """Returns the offset where the rest of a tag is not a word, `>` and a line end, or None."""
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
        """Returns True if a field with this beginning is read as Python. `calls`: it may contain calls."""
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
        """Raises `Released` if the object at `at` has a name that no tool has."""
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
        """Ends a broken block at the first closer. Another opener ends it too if it comes first, but not before
        `beyond`."""
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
        """Handles an opener without a body."""
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
    """Returns True unless the text is an object with JSON's quotes: other unmarked text is read as Python."""
    return not begun.startswith('{"')


def calls(syntaxes: list[BlockSyntax]) -> bool:
    """Returns True if the syntaxes are more than framing."""
    return any(branch.field for syntax in syntaxes for node in syntax.nodes for branch in node)


def is_inner(syntaxes: list[BlockSyntax]) -> bool:
    """Returns True if the syntaxes stand in a section or end one."""
    return syntaxes[0].anchor == "after" or any(syntax.ends_section for syntax in syntaxes)
