"""A third implementation of the scanner's rules: reads the whole text at once, naive, recursive, without state between
pieces.

It is slow on purpose. It shares only data types with the scanners, and finds the end of a block in a different way: a
recursive descent that raises, instead of a state machine. The size limit of a block is met by cutting the text before
the descent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.parse.oracle_block import (
    BRACKETS,
    BlockDescent,
    Closed,
    Cut,
    Interrupted,
    Released,
    calls,
    is_inner,
)
from tests.parse.oracle_quoting import INFO, LISTED, MARKS, behind_block, behind_code, quoting
from tests.parse.oracle_values import (
    NAME,
)
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Open
from toolwire.scan._grammar import (
    AS_TEXT,
    BLOCK_BYTES,
    DROPPED,
    FENCE,
    SPACE,
    WORD_BYTES,
    Block,
    BlockPolicy,
    BlockSyntax,
    Decision,
    Grammar,
    Why,
    only,
)
from toolwire.scan._plan import quoted_calls
from toolwire.scan.loose_head import LooseHead, loose_words


@dataclass(frozen=True)
class Settings:
    """The options of `CallScanner` that change the result."""

    block_bytes: int = BLOCK_BYTES
    trim_edges: bool = True
    reasoning: tuple[tuple[str, str], ...] = ()
    preopened: bool = False
    scan_calls: bool = False


def valid(text: str) -> str:
    """Returns the text with surrogates treated as in the scanners."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse(
    text: str, grammar: Grammar, policy: BlockPolicy, settings: Settings | None = None, truncated: bool = False
) -> list[Event]:
    """Returns the events of the whole text, with blocks numbered from 0 and one delta per block."""
    return AnswerReading(valid(text), grammar, policy, settings or Settings(), truncated).events()


@dataclass
class AnswerReading:
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
    """The kind of the last block, if it is framing or a section with only text."""
    only_a_name: bool = False
    """The last block is a call without arguments."""
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
        """True inside reasoning, between the tags number `pair`."""
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
        """Acts on the decision about the block at `at`. Returns whether it was recognised."""
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
        """Returns the end of the block that begins here, or None. Untaught forms are tried where no taught block
        begins."""
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
            if untaught and (at < self.quiet or self.inside or fence or span or self.cited):
                continue
            if syntaxes[0].opener:
                if self.cited:
                    continue
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
            if judge is not None and self.only_a_name and not self.anchored("margin", at):
                end_of_sentence = self.weigh("sentence", 0, at, at, syntaxes)
                if end_of_sentence is not None:
                    return end_of_sentence
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

    @property
    def cited(self) -> bool:
        """True in a line of a Markdown quotation, perhaps in items of lists."""
        return re.search(r"(?:\A|\n)(?:(?:[-*+]|[0-9]+[.)])?[ \t])*>[^\n]*\Z", self.prose) is not None

    def frames(self) -> bool:
        """Returns True if framing here would be the first visible content of the answer, or the first after a block or
        tag."""
        since = "".join(self.said)
        near = len(since) <= self.limit or (self.settings.trim_edges and not self.inside)
        return (self.fresh and not self.inside) or (self.after_edge and near and not since.strip(SPACE))

    def around(self, opener: str, at: int) -> tuple[str, int]:
        """Returns what may quote the block that begins here (`text`: it is quoted), and the number of ticks."""
        fence, span, string = quoting(self.prose, self.text[at].replace("`", ""))
        if fence and opener.startswith(FENCE):
            return ("" if 0 < fence <= len(FENCE) else "text"), 0
        if fence:
            return ("fence" if self.anchored("margin", at) else "text"), fence
        if span:
            return "code", span
        if string or self.prose.endswith('"'):
            return "string", 1
        last = self.prose[-1:].encode()[-1:]
        return ("marks" if last in {mark.encode()[-1:] for mark in MARKS} else ""), 1

    def taught(self) -> list[list[BlockSyntax]]:
        """Returns the taught syntaxes, grouped by opener."""
        groups: dict[tuple[str, str], list[BlockSyntax]] = {}
        for syntax in self.grammar.syntaxes:
            if syntax.opener and not syntax.untaught:
                groups.setdefault((syntax.opener, syntax.anchor), []).append(syntax)
        return list(groups.values())

    def own_fence(self, at: int) -> int | None:
        """Returns the end of calls in a fence of their own that begins here, or None."""
        if not self.text.startswith(FENCE, at) or at < self.muted or (self.inside and not self.settings.scan_calls):
            return None
        if (
            not LISTED.match(self.prose.rpartition("\n")[2])
            or self.prose.endswith("`")
            or any(quoting(self.prose, "")[:2])
        ):
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
        """Returns the end of calls in any form that begin here and reach to the end of the answer, or None. `again`: a
        block in another form failed here."""
        if (
            self.inside
            or at < self.settled
            or not (again or (syntax.anchor == "margin" and self.anchored("margin", at)))
        ):
            return None
        if self.cited or any(quoting(self.prose, self.text[at].replace("`", ""))[:2]):
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
        decision = self.policy.block(Block(syntax, body, (("calls", body),), True, True, first=self.fresh))
        if not (decision.calls or decision.drop):
            return None
        self.chosen = syntax
        if decision.before:
            self.say(body[: decision.before])
        self.fresh = False
        self.settle(decision, at + decision.before, upto, syntax.family)
        return upto

    def weigh(self, around: str, ticks: int, start: int, at: int, syntaxes: list[BlockSyntax]) -> int | None:
        """Returns the end of blocks that may be quoted, the first of which begins here, or None if they are quoted."""
        untaught = syntaxes[0].untaught
        found: list[tuple[int, int, Callable[[], Decision], str, bool]] = []
        while True:
            first = around in ("framed", "sentence") and not found  # which is not quoted until that is known
            end, judge = self.block(syntaxes, at, start, "" if first else around)
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
        """Forbids blocks up to there."""
        self.muted = max(self.muted, upto, start + 1)
        self.quiet = max(self.quiet, upto, start + 1)
        self.settled = max(self.settled, upto, start + 1)

    def candidates(self, at: int) -> list[list[BlockSyntax]]:
        """Returns the syntaxes that may begin here, grouped by opener, in the order in which they are tried."""
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
            if self.text[at] == "`":
                return LISTED.match(self.prose.rpartition("\n")[2]) is not None
            while at not in self.line_starts and self.text[at - 1] in " \t":
                at -= 1
            return at in self.line_starts or self.text[at - 1] == "\n"
        return anchor != "line" or starts

    def tag_at(self, at: int, *, answer: bool = True) -> int:
        """Returns the end of the reasoning tag that begins here, or `at`. `answer`: a call that begins an answer takes
        precedence."""
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
        """Returns True if reasoning may begin here."""
        since = "".join(self.said)
        near = len(since) <= self.limit or self.settings.trim_edges
        behind = self.after_edge and near and not since.strip(SPACE)
        fence, _, _ = quoting(self.prose, self.text[at].replace("`", ""))
        return not fence and (self.anchored("line", at) or self.fresh or behind)

    def ends_reasoning(self, at: int, behind: int) -> bool:
        """Returns True if a closing tag ends reasoning, which it does not in code."""
        fence, span, _ = quoting(self.prose, self.text[at].replace("`", ""))
        if fence:
            return False
        rest = self.text[behind:].encode()
        end = behind_code(rest, span) if span else None
        if end is not None:
            self.mute(behind + len(rest[:end].decode(errors="replace")), at)
        return end is None

    def say(self, text: str, read: str | None = None) -> None:
        """Adds visible text or reasoning. `read` is the original text, if different."""
        self.said.append(text)
        self.prose += text if read is None else read
        if not self.inside and text.strip(SPACE):
            self.fresh = False

    def segment(self, *, edge: bool) -> None:
        """Emits the text since the last edge, without the whitespace that is dropped, and with the character that
        remains between two texts (R6.6)."""
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
        if decision.replacement:
            self.say(decision.replacement, "")
            self.segment(edge=True)
            self.after_block = True
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
        """Returns the syntaxes that may begin an answer, if it begins here."""
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
        """Returns the end of the block and a function that returns the decision about it (None: it was not a block).
        `around` may quote it, and begins at `since`."""
        over = next(self.overflows(start if since is None else since), None)
        begun = start + len(syntaxes[0].opener)  # which counts as a whole
        if over is not None and over < begun:
            over = begun if begun < len(self.text) else None
        openers = [
            syntax.opener
            for syntax in self.grammar.syntaxes
            if syntax.opener
            and syntax.anchor != "line"
            and (syntaxes[0].untaught or not syntax.untaught or syntax.anchor == "after")
        ]
        names = self.policy.callable_names
        strict = self.policy.strict and not around
        may_call = None if self.policy.strict and not syntaxes[0].untaught else self.policy.may_call
        quoted = quoted_calls(tuple(syntax for syntax in self.grammar.syntaxes if not syntax.loose))
        descent = BlockDescent(self.text[:over], start, syntaxes, strict, openers, names, around, may_call, quoted)
        self.chosen = syntaxes[0]
        self.mark, self.only_a_name = "", False
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

    def unfinished(self, descent: BlockDescent, upto: int, why: Why) -> tuple[int, Callable[[], Decision]]:
        self.chosen = descent.syntax
        return upto, partial(self.policy.unfinished, descent.syntax, self.text[descent.after : upto], why)

    def cut(self, descent: BlockDescent, cut: Cut, over: int | None) -> tuple[int, Callable[[], Decision] | None]:
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

    def judged(self, descent: BlockDescent, end: Closed) -> tuple[int, Callable[[], Decision]]:
        self.chosen = syntax = descent.syntax
        self.mark = ""
        self.only_a_name = [piece[0] for piece in descent.pieces] == ["name"] and not end.broken
        if descent.pieces:
            self.mark = "mark" if {piece[0] for piece in descent.pieces} == {"said"} else ""
        elif not end.broken:
            weighed = syntax.framing == "head" or syntax.ends_section or end.upto == descent.after
            self.mark = syntax.framing if weighed else ""
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
        block = Block(syntax, body, pieces, end.closed, end.broken, first=self.fresh)
        return end.upto, partial(self.policy.block, block)

    def overflows(self, start: int) -> Iterator[int]:
        size = 0
        for index in range(start, len(self.text)):
            size += len(self.text[index].encode())
            if size > self.limit:
                yield index
