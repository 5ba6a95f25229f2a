"""What the two scanners share: grammars, decisions, limits and state names. Plain data; nothing here scans.

Rules of this module:

1. A format is data. `Grammar` says what a call block looks like; the scanner has no branch that asks for a format's
   name.
2. The scanner finds blocks, a `CallPolicy` decides what they are: repair, unknown names, strictness, number of calls
   and all counting are the call policy's (R9), so both twins stay free of policy.
3. Tables live here and nowhere else, so the twins cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, Protocol

from toolwire.errors import GatewayError
from toolwire.model import CallKind
from toolwire.repair.characters import SPACE as SPACE
from toolwire.repair.characters import valid_text as valid_text

BLOCK_BYTES: Final = 1024 * 1024
"""Default bound of one block, tags included, in bytes of UTF-8 (`limits.block_bytes`)."""

FRAME_BYTES: Final = 8 * 1024 * 1024
"""Default bound of one SSE frame in bytes (`limits.frame_bytes`)."""

MAX_FIRSTS: Final = 16
"""How many different bytes the markers of one scanner may begin with."""

MAX_DEPTH: Final = 1000
"""Nesting beyond which a body counts as malformed: no JSON parser in use here reads deeper."""

FENCE: Final = "```"
"""A Markdown fence: tolerated around a body where `BlockSyntax.fence` says so."""

Anchor = Literal["anywhere", "line", "margin", "answer", "after", "start"]
Framing = Literal["mark", "start", "head"]
Why = Literal["end", "truncated", "oversize"]

TEXT: Final = 0
REASONING: Final = 1
LEAD: Final = 2
KEY: Final = 3
BODY: Final = 4
TAIL: Final = 5
BROKEN: Final = 6
HELD: Final = 7
DONE: Final = 8

STATES: Final = ("text", "reasoning", "lead", "key", "body", "tail", "broken", "held", "done")
"""Names of the scanner's states, for `CallScanner.state`:

`text`, `reasoning`  outside blocks;
`lead`    after an opener, nothing read yet: whitespace, or the fence around a body;
`key`     inside an object, before its first key is known (syntaxes with `first_keys`);
`body`    inside a field;
`tail`    between fields: whitespace, then one of the literals that may come;
`broken`  the body is not what the syntax says: the first literal closer ends the block;
`held`    a strict tool is on offer and the opener is followed by something else than a body: held for the call policy;
`done`    finished, or stopped by a fault.
"""

Read = Literal[
    "nothing", "name", "word", "text", "object", "array", "list", "call", "braces", "printed", "loose", "end"
]
"""How a field ends.

`name`    at the first literal that may follow; letters, digits, `_-.:/` and what is not ASCII, whitespace at its ends;
`word`    at the first literal that may follow; at most `WORD_BYTES`, and nothing but whitespace behind a line end in
          it;
`text`    at the first literal that may follow, if the block can go on behind it up to its next field or its end,
          whitespace aside; else the literal is data;
`object`, `array`  a JSON value: by depth, outside strings;
`list`    `[...]` with calls as Python writes them, or with JSON: by depth, outside strings;
`call`    `name(...)` as Python writes it: by depth, outside strings;
`braces`  `{...}` with strings between two `BlockSyntax.quote`: by depth, outside strings;
`printed`  as it begins: an object whose first key is one of `BlockSyntax.first_keys`, in either kind of quotes; a call
          as Python writes it of a tool that may be called, perhaps awaited or printed; or a list of such things;
`loose`   with the answer, if it begins like a call of a tool on offer in whatever form (`loose_head.py`): the
          one branch of an untaught syntax without an opener;
`end`     with the answer: beside this one other branches may stand.
"""

ValueKind = Literal["text", "json", "unsure"]
"""What a value in tags is, as far as its beginning and its type tell."""

Field = Literal["", "name", "id", "key", "value", "arguments", "call", "calls", "said"]
"""What a field is for whoever assembles the call: nothing (it is passed over), a name, an id, an argument's key or
value, all arguments, a whole call, several calls; or `said`: no part of a call, text if the block holds none."""

END: Final = -1
"""The block ends here."""

WORD_BYTES: Final = 256
"""Bound of a field that is a `word`: names are short, and prose behind a mere mention must not be held back for
long."""

LITERAL_BYTES: Final = 256
"""Bound of a literal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One way in which a block may go on: a literal, then a field, then the node of index `then` in the body.

    Without a literal: what begins with the bracket of `read`; a read without one (`nothing`, `name`, `word`, `text`,
    `call`) is taken where no other branch fits, a `text` with the whitespace before it.
    """

    literal: str = ""
    read: Read = "nothing"
    field: Field = ""
    then: int = END
    ahead: bool = False
    """The block ends in front of the literal, which is read again as what it is outside of blocks."""


Node = tuple[Branch, ...]
"""What may come between two fields, whitespace before it. A node behind a `name`, `word` or `text` has only branches
that begin with a literal or a bracket. A node without branches is the end of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared, and looked up, as the very same object
class BlockSyntax:
    """One way in which a block of calls is written: an opener, and nodes and fields up to `END`.

    `opener` and `closer` are literal text. An empty `opener` (with `anchor` `answer`, untaught also `margin`) means
    that the body itself begins the block: with a literal, a bracket or a `name`. `body` are its nodes, the first one
    right behind the opener; none means one JSON object or several, then the closer; if that is empty one, and the end
    of the answer. `closer` is also what ends a body that is broken; without one such a block is text. Where only
    closers are missing behind a field with content, the opener of another block ends this one.
    A block whose body has no field is framing and vanishes; `ends_section`: so does whitespace between a block and this
    one. `framing` is what an opener with nothing behind it means then: a `mark` vanishes where it frames something
    (`surroundings.py`), and so does a `start`, which something follows that a mark before it frames. A `head` is the
    whole block, and vanishes unless it is mentioned. `anchor`: where an opener counts: `anywhere`; `line`, at the start
    of a line (or of the answer, or right after a block); `margin`, the same, indentation aside; `answer`, only before
    any other visible text; `after`, only after a block, with nothing but whitespace between.
    `first_keys`: if given, an object whose first key is another one is ordinary text, and is released at once; the same
    for the first object of an array. `fence`: a Markdown fence may stand around the first field.

    The rest is for whoever assembles calls. `arguments` is the form of the arguments that is taught: JSON itself, or a
    string that holds its text (both are read, C2). `names` and `parameters` are the keys of a call's object under which
    its name and its arguments stand; no `names`: its only key is its name. `quote` stands around strings in `braces`.
    `framed`: one newline on either side of a value is no part of it; and a value that begins with one ends without one,
    or without its closer, only if what follows is as the template writes it: tags up to one that `>` and a newline end,
    or up to the end of the answer or another block. `entities`: names and keys are written with `&quot;`, `&lt;` and
    `&amp;`. `prefix` stands before every tag of arguments that are elements with names of their own, which may hold
    each other. `family` tells the formats apart where several are looked for at once. `untaught`: nobody asked the
    model for this form, so that a block in it is a call only if it passes the call policy's test (R23.1), and stands
    neither in inline code nor in a fence; else it is ordinary text. What can be read as taught is; and an untaught
    syntax that cannot be told from a taught one is left out.
    """

    opener: str
    closer: str = ""
    anchor: Anchor = "anywhere"
    body: tuple[Node, ...] = ()
    first_keys: tuple[str, ...] = ()
    fence: bool = False
    ends_section: bool = False
    framing: Framing = "mark"
    arguments: Literal["string", "object"] = "object"
    names: tuple[str, ...] = ("name",)
    parameters: tuple[str, ...] = ("arguments",)
    quote: str = ""
    framed: bool = False
    entities: bool = False
    prefix: str = ""
    family: str = ""
    untaught: bool = False

    @property
    def nodes(self) -> tuple[Node, ...]:
        """`body`, spelled out."""
        if self.body:
            return self.body
        call = Branch(read="object", field="call", then=1)
        return ((call,), (Branch(literal=self.closer), call) if self.closer else ())

    @property
    def loose(self) -> bool:
        """It is read as `loose`."""
        return len(self.body) == 1 and self.body[0][0].read == "loose"

    @property
    def whole(self) -> Field | None:
        """The field that takes all of a body, if that is what the syntax says."""
        if any(branch.literal and branch.read != "nothing" for branch in self.nodes[0]):
            return None
        fields = {branch.field for node in self.nodes for branch in node if branch.read != "nothing"}
        return next(iter(fields)) if fields <= {"call", "calls"} and len(fields) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared, and cached, as the very same object
class Grammar:
    """What call blocks look like: one syntax, or several that may occur side by side (tried in this order).

    Syntaxes with the same opener are told apart by what comes behind it. `reasoning` are the tags around reasoning that
    models of this format write. `families`: after a block with calls that is of one of them its grammar counts.
    `exclusive`: after one that is of none of them only syntaxes of its own family count. `calls_in_reasoning`: these
    models call from inside reasoning as well.
    """

    syntaxes: tuple[BlockSyntax, ...]
    reasoning: tuple[tuple[str, str], ...] = ()
    exclusive: bool = False
    families: Mapping[str, Grammar] | None = None
    calls_in_reasoning: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Every literal that a scanner would take for markup in an answer that copies data, without repeats: what opens
        or closes a block, ends a string in one, or stands around reasoning, that of `families` included. Prompt text
        escapes them in data (R5.6). A closer without a letter (a Markdown fence) is none: where it closes something,
        what stands before it decides, and so is what counts behind a call alone. An opener without one that counts at
        the beginning of a line is one there."""
        literals: list[str] = []
        for grammar in self._all:
            literals += (text for tags in grammar.reasoning for text in tags)
            for syntax in grammar.syntaxes:
                opener = _worded(syntax.opener) if syntax.anchor == "after" else (syntax.opener,)
                literals += (*opener, *_worded(syntax.closer))
        lines = {syntax.opener for grammar in self._all for syntax in grammar.syntaxes if syntax.anchor == "line"}
        return tuple(
            f"\n{text}" if text in lines and not _worded(text) else text
            for text in _stripped((*literals, *self.value_ends))
        )

    @property
    def value_ends(self) -> tuple[str, ...]:
        """What a string that stands in a block as it is must not hold: `BlockSyntax.quote`, the literals with which a
        `text` ends, those that may follow these, and those that may stand in place of the value."""
        ends: list[str] = []
        for syntax in (syntax for grammar in self._all for syntax in grammar.syntaxes):
            ends.append(syntax.quote)
            for node in syntax.nodes:
                for branch in (branch for branch in node if branch.read == "text"):
                    for end in syntax.nodes[branch.then]:
                        ends.append(end.literal)
                        if end.read == "nothing" and end.then != END:
                            ends += (text for behind in syntax.nodes[end.then] for text in _worded(behind.literal))
                    if branch.field == "value" and not branch.literal:
                        ends += (other.literal for other in node)
        return _stripped(ends)

    @property
    def _all(self) -> tuple[Grammar, ...]:
        return (self, *(self.families or {}).values())


def _worded(literal: str) -> tuple[str, ...]:
    """The literal, if it has a letter."""
    return (literal,) if any(map(str.isalpha, literal)) else ()


def _stripped(literals: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in literals if text.strip()))


@lru_cache(maxsize=64)  # a pure function of frozen values, and run in the middle of an answer
def only(grammar: Grammar, family: str) -> Grammar:
    """What counts after a call of this family."""
    if grammar.families is not None and family in grammar.families:
        return grammar.families[family]
    if not grammar.exclusive:
        return grammar
    return replace(grammar, syntaxes=tuple(syntax for syntax in grammar.syntaxes if syntax.family == family))


@lru_cache(maxsize=64)
def without_calls(grammar: Grammar) -> Grammar:
    """What is looked for where nothing can be called: reasoning and framing."""
    frames = (
        syntax for syntax in grammar.syntaxes if all(b.field in ("", "said") for node in syntax.nodes for b in node)
    )
    return replace(grammar, syntaxes=tuple(frames))


@dataclass(frozen=True, slots=True)
class Found:
    """A call that a call policy accepted. `arguments` is JSON text. `source` is the text in which the model wrote just
    this call where a block holds several; None means the whole block."""

    name: str
    call_id: str
    arguments: str
    kind: CallKind = "function"
    namespace: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A block that ended, for the call policy. `body` is the text between opener and closer, `pieces` its fields with
    their texts in order; those of a broken body reach as far as it was understood, the last one to the closer. `closed`
    is False if the answer ended, or another block began, where only closers were missing (R6.8, option `unclosed`).
    `broken`: it is not what its syntax says. `opened` is the call that was opened while the block came (R6.13), its
    first one: a call behind which another one was opened is a block of its own, and so is what is left in the end."""

    syntax: BlockSyntax
    body: str
    pieces: tuple[tuple[Field, str], ...]
    closed: bool = True
    broken: bool = False
    opened: Found | None = None

    @property
    def reasoning(self) -> str:
        """What the model `said` first, in an answer that is a block."""
        first = self.pieces[:1] if not self.syntax.opener else ()
        return first[0][1].strip(SPACE) if first and first[0][0] == "said" else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a block. Exactly one of four:

    `error` set: the answer breaks off with it. `calls` not empty: these calls. `drop`: the block vanishes, but counts
    as recognised where whitespace is trimmed. None of these: the block is visible text, `replacement` or, if that is
    None, just as the model wrote it. `before`: so many of its first characters are text that stands before the calls.
    `reasoning`: the model's reasoning, a block of its own before the calls.
    """

    calls: tuple[Found, ...] = ()
    drop: bool = False
    replacement: str | None = None
    error: GatewayError | None = None
    before: int = 0
    reasoning: str = ""


AS_TEXT: Final = Decision()
DROPPED: Final = Decision(drop=True)


class CallPolicy(Protocol):
    """Decides about blocks (R9). Called in order of appearance; must not raise."""

    @property
    def strict(self) -> bool:
        """Any tool on offer is strict. Then an opener without a body is held, see state `held`."""

    def block(self, block: Block) -> Decision:
        """CallPolicy a block that ended. It may be malformed."""

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """Take note of an untaught block without an opener that turned out to be none behind `begun`: it is text."""

    unwrap: bool
    """Arguments may be an object also where a string that holds one is taught (C2)."""

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The names that may be called, for syntaxes that begin with one; none if any may."""

    def may_call(self, name: str, untaught: bool) -> bool:
        """Whether an object without markers that gives itself this name may be a call, or a near miss (R23.4).
        `untaught`: its form was not taught."""

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> Found | None:
        """Whether a call may be given out while it comes (R6.13), when these pieces are known, a name among them, and
        its arguments begin. If so the call, without arguments; it will be judged as `opened`."""

    def argument(self, syntax: BlockSyntax, opened: Found, key: str, value: str) -> str:
        """A member of an opened call's arguments as it will stand in their JSON text, from the pieces `key` and
        `value`."""

    def value_kind(self, syntax: BlockSyntax, opened: Found, key: str, begun: str) -> tuple[str, ValueKind]:
        """The key of a member of an opened call's arguments as it will stand in their JSON text, colon included, and
        what the value is that begins like this: `text`, a string that holds the piece as it is; `json`, if it is any;
        `unsure`, seen later."""

    def withdrawn(self, opened: Found) -> GatewayError:
        """The error for a call that was opened and did not become what was given out of it."""

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        """CallPolicy a block that has no end. `why`: the answer ended (`end`), the backend stopped for length
        (`truncated`: never a call, C18), or the block is larger than `limits.block_bytes` (`oversize`, R6.9)."""


class FrameTooLarge(ValueError):
    """A server-sent event is larger than the framer's `frame_bytes`. The framer takes nothing more after this."""


def too_large(frame_bytes: int) -> FrameTooLarge:
    """The error of a framer with that bound: one wording for both twins."""
    return FrameTooLarge(f"a server-sent event is larger than {frame_bytes} bytes")
