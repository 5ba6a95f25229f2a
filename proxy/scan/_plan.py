"""A grammar prepared for scanning: literals as bytes, and each branch at the node where it is needed. Both twins begin
with `plan`.

Everything that depends only on the grammar is computed here, before any text is read, including errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from ._grammar import (
    END,
    LITERAL_BYTES,
    MAX_FIRSTS,
    Anchor,
    BlockSyntax,
    Branch,
    Field,
    Grammar,
    Node,
    Read,
)

T = TypeVar("T")

NOTHING: Final = 0
WORD: Final = 1
PROSE: Final = 2
JSON: Final = 3
CODE: Final = 4
BRACES: Final = 5
NAME: Final = 6
PRINTED: Final = 7
LOOSE: Final = 8

NAMED: Final = bytes(range(0x80, 0x100)) + b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/"
"""The bytes of a `name` field, apart from whitespace around it."""

TICK: Final = b"`"
"""A backtick: begins inline code; three of them begin a fence."""

_READS: Final[dict[Read, tuple[int, str]]] = {
    "nothing": (NOTHING, ""),
    "name": (NAME, ""),
    "word": (WORD, ""),
    "text": (PROSE, ""),
    "object": (JSON, "{"),
    "array": (JSON, "["),
    "list": (CODE, "["),
    "call": (CODE, ""),
    "braces": (BRACES, "{"),
    "printed": (PRINTED, ""),
    "loose": (LOOSE, ""),
}
"""The reader of a field, and the bracket that begins it."""

_WRAPPERS: Final = tuple(
    wrapper + namespace
    for wrapper in (b"", b"await ", b"print(", b"print(await ")
    for namespace in (b"", b"default_api.", b"functions.")
)
"""Text that may precede the name in a Python call. The namespaces are those in which Gemini and gpt-oss learn tools."""

SURE: Final = 0
LIKELY: Final = 1
UNLIKELY: Final = 2
NESTED: Final = 3
"""Whether a value ends at a literal that may end it. `SURE`: yes. `LIKELY`: if the text after it may follow a value.
`UNLIKELY`: only if all the text after it is as the template writes it, because the template ends the value differently.
`NESTED`: only if the answer ends after it, because the literal belongs to a call that the value quotes.
"""


@dataclass(frozen=True, slots=True)
class PlanBranch:
    """A `Branch` prepared for scanning: at `literal`, consume `taken` bytes, read a field with reader `read`, and
    continue at node `then` of `syntax`."""

    literal: bytes
    taken: int
    read: int
    field: Field
    then: int
    syntax: BlockSyntax


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A `Node` prepared for scanning. `otherwise` is the branch taken if no literal fits. `ends`: the answer may end
    here. `free`: the block may end here whatever follows. `final`: only a closer is missing, unless another call
    follows. `more`: another argument may follow. `closers`: literals after which no field has to follow. `next`:
    openers of other blocks that may end this one."""

    branches: tuple[PlanBranch, ...]
    otherwise: PlanBranch | None
    ends: bool
    free: bool
    final: bool
    more: bool
    closers: tuple[bytes, ...] = ()
    next: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Opener:
    """A literal that opens a block. `syntaxes` are the ones it may open, all `untaught` or none."""

    literal: bytes
    anchor: Anchor
    syntaxes: tuple[BlockSyntax, ...]
    first: PlanNode

    @property
    def untaught(self) -> bool:
        """True if the prompt has not asked for its syntaxes."""
        return self.syntaxes[0].untaught

    @property
    def loose(self) -> bool:
        """True if it opens a call in any form."""
        return self.syntaxes[0].loose

    @property
    def inner(self) -> bool:
        """True if it follows a call inside a section (a frame around several calls), or ends the section. Whitespace
        before it is then part of the section."""
        return (self.anchor == "after" and not self.loose) or any(syntax.ends_section for syntax in self.syntaxes)

    @property
    def frames(self) -> bool:
        """True if it opens only framing: markup without any field."""
        return not any(branch.field for syntax in self.syntaxes for node in syntax.nodes for branch in node)


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal to look for. It `opens` a block, or begins the reasoning with tag pair number `reasoning`; otherwise it
    ends reasoning. For an empty opener the literal is the beginning of the block. `anchor` is that of a block, or
    `start`: at the start of a line, or separated only by whitespace from the start of the answer, a block or another
    tag."""

    literal: bytes
    anchor: Anchor = "anywhere"
    opens: Opener | None = None
    reasoning: int | None = None

    @property
    def untaught(self) -> bool:
        """True if it opens a block in a form that the prompt has not asked for."""
        return self.opens is not None and self.opens.untaught


@dataclass(frozen=True, slots=True)
class GrammarPlan:
    """A grammar prepared for scanning.

    - `text`: markers of visible text, in the order in which they are tried. `inside`: markers of reasoning, one tuple
      per pair of tags. `taught`: markers of taught blocks, which also count in reasoning if `calls_inside`.
    - `answer`: opener of an answer that begins without a literal opener, `begins`: its possible first bytes. `printed`:
      the same for untaught syntaxes, tried after all markers. `loose`: opens a call in any form, tried last.
    - `nodes`: the nodes of each syntax, and after them one that allows only another block or the end. `begun`: openers
      that end a short field of an untaught syntax. `quoted`: matches the beginning (group 1) and the end of a call with
      tagged values, as a value may quote it.
    - `firsts`: first bytes of markers, and the backtick. `longest`: length of the longest opener. `untaught`: there are
      untaught syntaxes. `made`: see `prepared_for`.
    """

    text: tuple[Marker, ...]
    inside: tuple[tuple[Marker, ...], ...]
    answer: Opener | None
    begins: bytes
    printed: Opener | None
    loose: Opener | None
    nodes: dict[BlockSyntax, tuple[PlanNode, ...]]
    begun: tuple[bytes, ...]
    quoted: re.Pattern[bytes]
    taught: tuple[Marker, ...]
    calls_inside: bool
    firsts: bytes
    longest: int
    untaught: bool
    made: dict[Callable[[GrammarPlan], Any], Any] = field(default_factory=dict, compare=False)

    def prepared_for(self, kind: Callable[[GrammarPlan], T]) -> T:
        """Returns `kind(self)`, the plan in the form of a scanner, created once."""
        if kind not in self.made:
            self.made[kind] = kind(self)
        found: T = self.made[kind]
        return found


@lru_cache(maxsize=256)  # a pure function of frozen values, and run for every answer
def plan(grammar: Grammar, reasoning: tuple[tuple[str, str], ...], scan_calls: bool) -> GrammarPlan:
    """Returns the plan of `grammar` with these pairs of reasoning tags. Untaught syntaxes that conflict with others are
    left out.

    Raises `ValueError` for literals that would make the result depend on the splitting of the text: a marker inside
    another one (except at its end), an opener inside its own closer where both are looked for, or a branch that begins
    like another.
    """
    taught = [syntax for syntax in grammar.syntaxes if not syntax.untaught]
    untaught = [syntax for syntax in grammar.syntaxes if syntax.untaught and not syntax.loose]
    loose = [syntax for syntax in grammar.syntaxes if syntax.loose]
    begins = _begun([*taught, *(syntax for syntax in untaught if syntax.anchor == "after")])
    nodes = {syntax: _plan_nodes(syntax, begins) for syntax in taught}
    openers = _openers(taught, nodes)
    marks = tuple(Marker(opener.literal, opener.anchor, opener) for opener in openers if opener.literal)
    if not all(opener and closer for opener, closer in reasoning):
        raise ValueError("reasoning tags must not be empty")
    tags = tuple(Marker(opener.encode(), "start", reasoning=index) for index, (opener, _) in enumerate(reasoning))
    text = (*tags, *marks)
    inside = tuple((Marker(closer.encode()), *(marks if scan_calls else ())) for _, closer in reasoning)
    held = [
        (syntax.opener.encode(), syntax.closer.encode())
        for syntax in taught
        if syntax.opener and syntax.closer and not syntax.first_keys
    ]
    for literals in (*({marker.literal for marker in markers} for markers in (text, *inside)), *map(set, held)):
        for one in literals:
            # At the very end of another one it is allowed: the marker that begins first counts.
            if any(one in other[:-1] for other in literals if other != one):
                raise ValueError(f"{one.decode()!r} is part of another marker: {sorted(m.decode() for m in literals)}")
    if len({marker.literal for marker in text}) < len(text):
        raise ValueError("two markers are the same")
    apart = _apart(untaught, [marker.literal.decode() for marker in text])
    begun = tuple(dict.fromkeys((*begins, *_begun(apart))))
    nodes |= {syntax: _plan_nodes(syntax, begun) for syntax in (*apart, *loose)}
    further = _openers(apart, nodes)
    lines = tuple(
        Marker(branch.literal, opener.anchor, opener)
        for opener in further
        if not opener.literal and opener.anchor == "margin"
        for branch in opener.first.branches
    )
    text = (*text, *(Marker(opener.literal, opener.anchor, opener) for opener in further if opener.literal), *lines)
    firsts = bytes(dict.fromkeys(marker.literal[0] for markers in (text, *inside) for marker in markers))
    firsts = bytes(dict.fromkeys(firsts + TICK)) if firsts or loose else firsts
    if len(firsts) > MAX_FIRSTS:
        raise ValueError(f"the markers begin with more than {MAX_FIRSTS} different bytes")
    answer = _of_answers(openers)
    return GrammarPlan(
        text,
        inside,
        answer,
        _begins(answer.first) if answer is not None else b"",
        _of_answers(further),
        next(iter(_openers(loose, nodes)), None),
        nodes,
        begun,
        quoted_calls((*taught, *apart)),
        marks,
        scan_calls,
        firsts,
        max((len(opener.literal) for opener in (*openers, *further)), default=0),
        bool(apart or loose),
    )


def _begun(syntaxes: Sequence[BlockSyntax]) -> tuple[bytes, ...]:
    """Returns the openers that end a block in which only closers are missing: those of blocks, and of framing behind
    them."""
    openers = (syntax.opener.encode() for syntax in syntaxes if syntax.opener and syntax.anchor != "line")
    return tuple(dict.fromkeys(openers))


@lru_cache(maxsize=64)  # a pure function of frozen values, and most grammars recognise the same syntaxes
def quoted_calls(syntaxes: tuple[BlockSyntax, ...]) -> re.Pattern[bytes]:
    """Returns the pattern of `GrammarPlan.quoted`: the tag of a name before that of the first key or a closer; or a
    closer."""
    begins: dict[str, None] = {}
    firsts: dict[str, None] = {}
    closers: dict[str, None] = {}
    for syntax in syntaxes:
        branches = [branch for node in syntax.nodes for branch in node]
        keys = [branch.literal for branch in branches if branch.field == "key"]
        if not (any(keys) and syntax.closer) or syntax.prefix:
            continue
        named = [index for index, node in enumerate(syntax.nodes) for branch in node if branch.field == "name"]
        begun = [branch.literal for branch in branches if branch.field == "name" or branch.then in named] or [""]
        begins |= dict.fromkeys(_tags(begun if 0 not in named else [*begun, syntax.opener], syntax.opener))
        firsts |= dict.fromkeys(_tags(keys, syntax.opener))
        closers |= dict.fromkeys(_tags([syntax.closer], syntax.opener))
    if not (begins and firsts and closers):
        return re.compile(b"(?!)")
    begin, first, closer = map("|".join, (begins, firsts, closers))
    behind = f"(?:<(?:{first})|(?=<(?:{closer})))"
    # The bracket comes first by itself: a search for it takes a tenth of the time of one for any of the tags.
    return re.compile(f"<(?:((?:{begin})[^<\\s]{{1,128}}+\\s{{0,64}}+{behind})|{closer})".encode())


def _tags(literals: Iterable[str], opener: str) -> Iterator[str]:
    """Yields patterns of tags that end with these literals, without their first bracket. A literal that lacks the
    beginning of its tag follows the opener, perhaps after a bar. Tags with other brackets are left out."""
    for literal in map(str.strip, literals):
        if any(map(str.isalpha, literal)) and (literal[0] == "<" or opener[:1] == "<"):
            before = "" if literal[0] == "<" else f"{re.escape(opener[1:])}[^<>]{{0,4}}"
            yield before + re.escape(literal.removeprefix("<"))


def _openers(syntaxes: Sequence[BlockSyntax], nodes: Mapping[BlockSyntax, tuple[PlanNode, ...]]) -> list[Opener]:
    by_opener: dict[tuple[str, Anchor], list[BlockSyntax]] = {}
    for syntax in syntaxes:
        lines = syntax.untaught and (syntax.loose or syntax.anchor == "margin")
        if not syntax.opener and syntax.anchor != "answer" and not lines:
            raise ValueError("a syntax without an opener needs anchor='answer'")
        if syntax.opener and syntax.anchor == "answer":
            raise ValueError("anchor='answer' is for syntaxes without an opener")
        by_opener.setdefault((syntax.opener, syntax.anchor), []).append(syntax)
    return [
        Opener(opener.encode(), anchor, tuple(found), _merged([nodes[syntax][0] for syntax in found]))
        for (opener, anchor), found in by_opener.items()
    ]


def _of_answers(openers: Sequence[Opener]) -> Opener | None:
    return next((opener for opener in openers if opener.anchor == "answer"), None)


def _apart(untaught: Sequence[BlockSyntax], markers: Sequence[str]) -> list[BlockSyntax]:
    """Returns the untaught syntaxes that can be distinguished from the taught `markers` and from each other; earlier
    ones take precedence. A taught marker may begin with, or equal, an untaught one."""
    found: list[BlockSyntax] = []
    literals: dict[str, Anchor] = {}
    firsts: dict[tuple[str, Anchor], PlanNode] = {}
    for syntax in untaught:
        opener = syntax.opener
        if any(opener and (marker in opener[:-1] or opener in marker[1:-1]) for marker in markers):
            continue
        if opener and any(
            anchor != syntax.anchor if other == opener else (other in opener[:-1] or opener in other[:-1])
            for other, anchor in literals.items()
        ):
            continue
        if (
            opener
            and syntax.closer
            and not syntax.first_keys
            and (opener in syntax.closer[:-1] or syntax.closer in opener[:-1])
        ):
            continue
        first = _own_nodes(syntax)[0][0]
        try:
            firsts[opener, syntax.anchor] = _merged([*filter(None, [firsts.get((opener, syntax.anchor))]), first])
        except ValueError:
            continue
        if opener:
            literals[opener] = syntax.anchor
        found.append(syntax)
    return found


def _begins(node: PlanNode) -> bytes:
    """Returns the bytes with which a node's branches can begin."""
    named = node.otherwise is not None and node.otherwise.read == NAME
    return bytes(dict.fromkeys([*(branch.literal[0] for branch in node.branches), *(NAMED if named else b"")]))


def _plan_nodes(syntax: BlockSyntax, begins: Sequence[bytes]) -> tuple[PlanNode, ...]:
    """Returns the nodes of a syntax, and which of `begins`, the openers of other blocks, may end it at each."""
    nodes, closing = _own_nodes(syntax)
    planned = list(nodes)
    for index, (literals, starts) in closing.items():
        apart = [opener for opener in begins if opener not in starts and not opener.startswith(literals)]
        planned[index] = replace(planned[index], next=tuple(apart))
    return (
        *planned,
        PlanNode((), None, ends=True, free=False, final=False, more=False, next=tuple(begins)),
    )


@lru_cache(maxsize=512)  # a pure function of a frozen value, and most grammars recognise the same syntaxes
def _own_nodes(
    syntax: BlockSyntax,
) -> tuple[tuple[PlanNode, ...], Mapping[int, tuple[tuple[bytes, ...], frozenset[bytes]]]]:
    """Returns the nodes of a syntax by itself, and the literals, and their beginnings, of those at which it may end. A
    bracket after a literal gets its own node, because whitespace may stand between them."""
    nodes = list(syntax.nodes)
    ends, over = _closing(syntax.nodes), _over(syntax.nodes)
    planned: list[PlanNode] = []
    closing: dict[int, tuple[tuple[bytes, ...], frozenset[bytes]]] = {}
    for index, node in enumerate(nodes):  # grows during the loop
        branches: list[PlanBranch] = []
        otherwise: PlanBranch | None = None
        for branch in node:
            if branch.read == "end":
                continue
            read, bracket = _READS[branch.read]
            if branch.literal and bracket:
                nodes.append((Branch(read=branch.read, field=branch.field, then=branch.then),))
                branches.append(
                    _plan_branch(branch.literal, len(branch.literal.encode()), NOTHING, "", len(nodes) - 1, syntax)
                )
            elif branch.literal:
                taken = 0 if branch.ahead else len(branch.literal.encode())
                branches.append(_plan_branch(branch.literal, taken, read, branch.field, branch.then, syntax))
            elif bracket:
                branches.append(_plan_branch(bracket, 0, read, branch.field, branch.then, syntax))
            else:
                otherwise = _plan_branch("", 0, read, branch.field, branch.then, syntax)
            if branch.ahead and (branch.read != "nothing" or branch.then != END):
                raise ValueError(
                    f"{branch.literal!r} ends the block (`ahead`), so nothing can follow it in {syntax.opener!r}"
                )
            if read in (NAME, WORD, PROSE) and (
                branch.then == END or not all(b.literal or _READS[b.read][1] for b in syntax.nodes[branch.then])
            ):
                raise ValueError(f"no literal ends the {branch.read} of {syntax.opener!r}")
        made = _merged([_plan_node(branches, otherwise, ends=any(branch.read == "end" for branch in node))])
        closers = tuple(one.literal for one in branches if one.read == NOTHING and one.then in (END, *ends))
        planned.append(replace(made, final=otherwise is None and _is_over(node, over), closers=closers))
        if index in ends:
            literals = tuple(one.literal for one in branches)
            starts = frozenset(literal[:end] for literal in literals for end in range(1, len(literal) + 1))
            closing[index] = literals, starts
    return tuple(planned), closing


def _closing(nodes: Sequence[Node]) -> set[int]:
    """Returns the nodes at which a block may end without another field."""
    return _grown(nodes, lambda node, found: any(b.read == "nothing" and b.then in (END, *found) for b in node))


def _over(nodes: Sequence[Node]) -> set[int]:
    """Returns the nodes at which only closers, or another call, can follow."""
    return _grown(nodes, _is_over)


def _is_over(node: Node, over: Collection[int]) -> bool:
    return all(
        branch.then in (END, *over) if branch.read == "nothing" else branch.field in ("call", "calls")
        for branch in node
        if branch.read != "end"
    )


def _grown(nodes: Sequence[Node], belongs: Callable[[Node, Collection[int]], bool]) -> set[int]:
    """Returns the smallest set of nodes that contains all nodes for which `belongs` is true given that set."""
    found: set[int] = set()
    before = -1
    while before < len(found):
        before = len(found)
        found.update(index for index, node in enumerate(nodes) if belongs(node, found))
    return found


def _plan_branch(literal: str, taken: int, read: int, field: Field, then: int, syntax: BlockSyntax) -> PlanBranch:
    if len(literal.encode()) > LITERAL_BYTES:
        raise ValueError(f"a literal is longer than {LITERAL_BYTES} bytes: {literal[:40]!r}...")
    return PlanBranch(literal.encode(), taken, read, field, then, syntax)


def _plan_node(branches: Sequence[PlanBranch], otherwise: PlanBranch | None, *, ends: bool = False) -> PlanNode:
    return PlanNode(
        tuple(branches),
        otherwise,
        ends=ends or (not branches and otherwise is None),
        free=otherwise is not None and otherwise.read == NOTHING and otherwise.then == END,
        final=False,
        more=any(branch.field == "key" for branch in branches),
    )


def _merged(nodes: Sequence[PlanNode]) -> PlanNode:
    """Returns one node with all branches. Raises `ValueError` if they cannot be distinguished."""
    branches = [branch for node in nodes for branch in node.branches]
    for index, branch in enumerate(branches):
        if any(other.literal.startswith(branch.literal) for number, other in enumerate(branches) if number != index):
            raise ValueError(f"after {branch.syntax.opener!r}, {branch.literal.decode()!r} is ambiguous")
    others = [node.otherwise for node in nodes if node.otherwise is not None]
    if len(others) > 1:
        raise ValueError(f"after {others[0].syntax.opener!r}, any text is ambiguous")
    return _plan_node(branches, others[0] if others else None, ends=any(node.ends for node in nodes))


@lru_cache(maxsize=16)  # a pure function, asked for each block; clients choose the names of up to 128 tools
def heads(syntax: BlockSyntax, names: tuple[str, ...]) -> tuple[bytes, ...]:
    """Returns the sorted beginnings of an object or call that has one of the first keys or `names` (without a list's
    bracket). Untaught forms may also use Python's quotes, and curly ones."""
    quotes = (('"', '"'), ("'", "'"), ("“", "”")) if syntax.untaught else (('"', '"'),)
    keys = [f"{{{left}{key}{right}".encode() for key in syntax.first_keys for left, right in quotes]
    calls = [b"%b%b(" % (wrapper, name.encode("utf-8", "replace")) for name in names for wrapper in _WRAPPERS]
    return tuple(sorted({*keys, *calls}))
