"""Block syntaxes as the readers of blocks follow them: the values of a `GrammarPlan` in slots, which have C types when
compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from .._grammar import KEY_CLOSER

if TYPE_CHECKING:
    from .._grammar import BlockSyntax
    from .._plan import GrammarPlan, Opener, PlanBranch, PlanNode

_KEY_CLOSER: Final = KEY_CLOSER.encode()


class Form:
    """A `BlockSyntax` with its nodes. `keyed`: it has `first_keys`."""

    __slots__ = ("closer", "framed", "keyed", "nodes", "quote", "syntax")

    def __init__(self, syntax: BlockSyntax) -> None:
        self.syntax = syntax
        self.closer = syntax.closer.encode()
        self.quote = syntax.quote.encode()
        self.keyed = bool(syntax.first_keys)
        self.framed = syntax.framed
        self.nodes: tuple[FormNode, ...] = ()


class FormBranch:
    """A `PlanBranch`. `size` is the length of its literal."""

    __slots__ = ("field", "form", "literal", "read", "size", "taken", "then")

    def __init__(self, branch: PlanBranch, forms: Mapping[BlockSyntax, Form]) -> None:
        self.literal = branch.literal
        self.size = len(branch.literal)
        self.taken = branch.taken
        self.read = branch.read
        self.field = branch.field
        self.then = branch.then
        self.form = forms[branch.syntax]


class FormNode:
    """A `PlanNode`. `firsts` is 1 for the first bytes of its literals. `keyed`: it has a branch at the closing tag of
    the key (`KEY_CLOSER`), which is not among `branches`."""

    __slots__ = (
        *("_firsts", "_forms", "_keyed", "branches", "closers", "ends", "final", "firsts", "free", "keyed", "more"),
        *("next", "otherwise"),
    )

    def __init__(self, node: PlanNode, forms: Mapping[BlockSyntax, Form]) -> None:
        keyed = [branch for branch in node.branches if branch.literal == _KEY_CLOSER]
        self.branches = tuple([FormBranch(branch, forms) for branch in node.branches if branch not in keyed])
        self.keyed = bool(keyed)
        self._keyed = keyed[0] if keyed else None
        self._forms = forms
        self.otherwise = None if node.otherwise is None else FormBranch(node.otherwise, forms)
        self.ends = node.ends
        self.free = node.free
        self.final = node.final
        self.more = node.more
        self.closers = node.closers
        self.next = node.next
        self._firsts = first_bytes([branch.literal for branch in node.branches])
        self.firsts = self._firsts  # when compiled, a pointer into it

    def closing(self, closer: bytes) -> FormBranch:
        """Returns the branch at the closing tag of a value's key, if the node is `keyed`."""
        assert self._keyed is not None
        return FormBranch(replace(self._keyed, literal=closer, taken=len(closer)), self._forms)


class FormOpener:
    """An `Opener`. `form` is the first of its syntaxes. `at_lines`: it may follow indentation only."""

    __slots__ = ("at_lines", "fence", "first", "form", "frames", "inner", "literal", "loose", "untaught")

    def __init__(self, opener: Opener, forms: Mapping[BlockSyntax, Form]) -> None:
        self.literal = opener.literal
        self.form = forms[opener.syntaxes[0]]
        self.first = FormNode(opener.first, forms)
        self.fence = any(syntax.fence for syntax in opener.syntaxes)
        self.frames = opener.frames
        self.inner = opener.inner
        self.untaught = opener.untaught
        self.loose = opener.loose
        self.at_lines = opener.anchor == "margin"


class Forms:
    """The syntaxes and openers of a plan. `begun` are the openers that end a short field of an untaught syntax,
    `begins` is 1 for their first bytes. `quoted`, `taught`, `loose` and `untaught`: see `GrammarPlan`."""

    __slots__ = ("_begins", "_forms", "_openers", "begins", "begun", "loose", "quoted", "taught", "untaught")

    def __init__(self, plan: GrammarPlan) -> None:
        self.begun = plan.begun
        self.quoted = plan.quoted
        self._begins = first_bytes(plan.begun)
        self.begins = self._begins  # when compiled, a pointer into it
        self._forms = {syntax: Form(syntax) for syntax in plan.nodes}
        for syntax, nodes in plan.nodes.items():
            _fill(self._forms[syntax], nodes, self._forms)
        self._openers: dict[int, FormOpener] = {}
        self.taught = tuple([self.opener(marker.opens) for marker in plan.taught if marker.opens is not None])
        self.loose = None if plan.loose is None else self.opener(plan.loose)
        self.untaught = plan.untaught

    def opener(self, opener: Opener) -> FormOpener:
        """Returns the opener of the plan in this form, always the same object."""
        made = self._openers.get(id(opener))
        if made is None:
            made = self._openers[id(opener)] = FormOpener(opener, self._forms)
        return made


def _fill(form: Form, nodes: Iterable[PlanNode], forms: Mapping[BlockSyntax, Form]) -> None:
    form.nodes = tuple([FormNode(node, forms) for node in nodes])


def first_bytes(literals: Iterable[bytes]) -> bytes:
    """Returns 256 bytes, of which those are 1 with which one of `literals` begins."""
    firsts = bytearray(256)
    for literal in literals:
        firsts[literal[0]] = 1
    return bytes(firsts)
