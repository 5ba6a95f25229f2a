"""GBNF grammars (llama.cpp's notation) of answers that call tools: only calls, or text that may lead to calls (R10.10,
R23.2).

Rules of this module:

1. Once a call has begun, only calls follow, and their arguments fit the schema (`toolwire.formats.gbnf.arguments`). The
   answer ends after the last call: a small model that may write text after a call does not stop.
2. Text is any text in which no call begins in the taught form. It may end anywhere, also inside a possible opener.
   Other forms in which the scanner finds calls, and openers after a backtick, stay text: forbidding them would only
   make the model distort what it wants to write.
3. Reasoning is free, and has to end only if a call is demanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...scan._grammar import BlockSyntax, Grammar
from ..engine.layout import Layout
from ..engine.longjson import compact
from .arguments import arguments, rules_for
from .notation import Expression, Inexpressible, choice, literal, optional, sequence
from .rules import STANDARD, GrammarBounds
from .text import SPACE, Pattern, TextWithout, Unit, Where, spaced, units

__all__ = ["CALLS_ONLY", "STANDARD", "AllowedText", "GrammarBounds", "Inexpressible", "answer_grammar"]

_NUMBER: Final = "[0-9]+"
_SPACES: Final = r"[ \t\r\n]*"
_BLANK: Final = r"[ \n] [ \n]?"
_KEY: Final = re.compile(r'"([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedText:
    """The text allowed around the calls of an answer. `text`: before the calls, or instead of them. `thinking`: tags
    between which the model may reason first. `preopened`: the answer begins inside the first of these."""

    text: bool = False
    thinking: tuple[tuple[str, str], ...] = ()
    preopened: bool = False


CALLS_ONLY: Final = AllowedText()


def answer_grammar(
    tools: Iterable[tuple[str, Mapping[str, Any]]],
    parallel: bool,
    layout: Layout,
    bounds: GrammarBounds = STANDARD,
    *,
    reads: Grammar | None = None,
    framing: Grammar | None = None,
    around: AllowedText = CALLS_ONLY,
) -> str:
    """Returns the grammar of an answer that calls one of `tools` (name, schema of the arguments), or several if
    `parallel`. `reads` is the grammar that finds the format's calls; text requires it. `framing` surrounds ordinary
    text: an opener that occurs in it does not start a call by itself.

    Raises `Inexpressible` if there are no tools, or a lone surrogate in one.
    """
    calls = _CallRules(tools, parallel, layout, bounds)
    if not around.text and not around.preopened:
        return calls.rules.text(calls.rest())
    return calls.rules.text(_AnswerRules(calls, reads, framing, around).root())


class _CallRules:
    """The calls of an answer, from any point of the text that begins them."""

    def __init__(
        self, tools: Iterable[tuple[str, Mapping[str, Any]]], parallel: bool, layout: Layout, bounds: GrammarBounds
    ) -> None:
        self.rules = rules_for(layout, bounds)
        self.layout = layout
        self.before = layout.first + layout.opener
        """The text before the first name."""
        number = sequence(literal(layout.numbered), _NUMBER) if layout.numbered else ""
        self._middle = sequence(number, self._text(layout.middle))
        closer = self._text(layout.closer)
        self.tools = {name: sequence(arguments(schema, self.rules, layout), closer) for name, schema in tools}
        """For each name: the arguments of a call and its end."""
        if not self.tools:
            raise Inexpressible("there is no tool to call")
        whole = (sequence(literal(self.shown(name)), self._middle, rest) for name, rest in self.tools.items())
        self._named = self.rules.name("named", choice(whole))
        self._more: Expression = ""
        if parallel and bounds.calls != 1:
            another = sequence(self._text(layout.separator), self._text(layout.opener), self._named)
            self._more = self.rules.repeat(self.rules.name("another", another), 0, bounds.calls and bounds.calls - 1)

    def _text(self, text: str) -> Expression:
        """Returns text of the layout. Where it is JSON, a space is allowed as in arguments."""
        if self.layout.name == "plain" or not self.rules.spaced:
            return literal(text)
        parts: list[Expression] = []
        piece, inside = "", False
        for char in text:
            piece += char
            inside ^= char == '"'
            if char in ",:" and not inside:
                parts += (literal(piece), '" "?')
                piece = ""
        return sequence(*parts, literal(piece))

    def shown(self, name: str) -> str:
        """Returns a name as written in a call."""
        return name if self.layout.name == "plain" else compact(name)

    def rest(self, begun: str = "", *, section: bool = True) -> Expression:
        """Returns an expression for the calls after their beginning `begun`. Without `section`, the frame around all
        calls may be missing."""
        return sequence(self._text(self.before[len(begun) :]), self._named, self._end(section))

    def rest_after_name(self, name: str, *, middle: bool) -> Expression:
        """Returns an expression for the rest of the calls after the first call's `name`; with `middle`, after the text
        between its name and arguments."""
        return sequence("" if middle else self._middle, self.tools[name], self._end(True))

    def _end(self, section: bool) -> Expression:
        last = self._text(self.layout.last)
        # Models write a line end after a call. They may stop there: the line end must not force another call.
        return sequence(self._more, last if section else optional(last), optional(_BLANK))


class _AnswerRules:
    """An answer with text and reasoning besides calls."""

    def __init__(self, calls: _CallRules, reads: Grammar | None, framing: Grammar | None, around: AllowedText) -> None:
        self._calls = calls
        self._rules = calls.rules
        self._syntaxes = reads.syntaxes if reads is not None else ()
        self._framing = {syntax.opener for syntax in framing.syntaxes} if framing is not None else set()
        self._around = around

    def root(self) -> Expression:
        """Returns the whole answer."""
        around = self._around
        if not around.text:
            return self._thinking(around.thinking[0], sequence(_SPACES, self._calls.rest()), may_end=False)
        start = self._rules.reserve("answer")
        patterns = dict(self._openers())
        within = [self._thinking(tags, start, may_end=True) for tags in around.thinking]
        for (opener, closer), thinking in zip(around.thinking, within, strict=True):
            patterns.setdefault(((SPACE, *units(opener)), "start"), thinking)
            # The template may have opened the reasoning: after its closer the answer begins.
            patterns.setdefault((units(closer), "anywhere"), start)
        text = TextWithout(tuple(Pattern(what, then, where) for (what, where), then in patterns.items()), may_end=True)
        text.rule(self._rules, start=start)
        return within[0] if around.preopened else start

    def _thinking(self, tags: tuple[str, str], then: Expression, *, may_end: bool) -> Expression:
        return TextWithout((Pattern.of(tags[1], then),), may_end=may_end).rule(self._rules)

    def _openers(self) -> Iterator[tuple[tuple[tuple[Unit, ...], Where], Expression]]:
        """Yields the beginnings of calls in text, each with the required continuation."""
        for syntax in self._syntaxes:
            if all(branch.read == "nothing" for node in syntax.nodes for branch in node):
                continue  # reads no call
            if syntax.anchor in ("anywhere", "line") and syntax.opener and not syntax.first_keys:
                yield from self._by_opener(syntax)
            elif syntax.anchor in ("answer", "line"):
                yield from self._by_head(syntax)

    def _by_opener(self, syntax: BlockSyntax) -> Iterator[tuple[tuple[tuple[Unit, ...], Where], Expression]]:
        """Yields the scanner's opener if the layout writes it. It always means a call, except in inline code."""
        calls = self._calls
        where: Where = "line" if syntax.anchor == "line" else "plain"
        before, _, rest = calls.before.partition(syntax.opener)
        if len(before) + len(rest) == len(calls.before):
            return  # written otherwise by this layout
        if syntax.opener not in self._framing:
            yield (units(syntax.opener), where), calls.rest(before + syntax.opener, section=not before)
        elif rest:
            yield (units(syntax.opener + rest), where), calls.rest(calls.before, section=not before)
        else:
            for name in calls.tools:
                what = syntax.opener + calls.shown(name) + calls.layout.middle
                yield (units(what), where), calls.rest_after_name(name, middle=True)

    def _by_head(self, syntax: BlockSyntax) -> Iterator[tuple[tuple[tuple[Unit, ...], Where], Expression]]:
        """Yields the beginnings of JSON or Python calls. These become calls only after a key that ordinary JSON does
        not have, or after the name of a tool."""
        calls = self._calls
        head = calls.before.removeprefix(syntax.opener)
        bracket = {"object": "{", "array": "[", "list": "["}.get(syntax.nodes[0][0].read)
        if not calls.before.startswith(syntax.opener) or head.strip()[:1] != bracket:
            return  # written otherwise by this layout
        where: Where = "start" if syntax.anchor == "answer" else "line"
        opener = units(syntax.opener)
        key = _KEY.search(head)
        if key is not None and key[1] not in syntax.names:
            yield ((*opener, *spaced(head[: key.end()])), where), calls.rest(syntax.opener + head[: key.end()])
            return
        plain = calls.layout.name == "plain"
        for name in calls.tools:
            what = (*opener, *spaced(head), SPACE, *units(calls.shown(name)))
            if plain:
                what = (*what, *spaced(calls.layout.middle))
            yield (what, where), calls.rest_after_name(name, middle=plain)
