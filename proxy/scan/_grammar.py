"""Data shared by both scanners: grammars, decisions, limits and state names. Nothing here scans.

Rules of this module:

1. A format is data. `Grammar` describes call blocks; the scanner never asks for a format's name.
2. The scanner finds blocks, and a `BlockPolicy` decides about them. Repair, unknown names, strictness, limits on calls
   and all counting belong to the policy (R9), so that both twins stay free of them.
3. Tables are defined only here, so the twins cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, Protocol

from ..errors import GatewayError
from ..model import CallKind
from ..repair.characters import SPACE as SPACE
from ..repair.characters import valid_text as valid_text
from ..repair.literals import json_string

BLOCK_BYTES: Final = 1024 * 1024
"""Default limit of one block including its tags, in bytes of UTF-8 (`limits.block_bytes`)."""

FRAME_BYTES: Final = 8 * 1024 * 1024
"""Default limit of one SSE frame in bytes (`limits.frame_bytes`)."""

MAX_FIRSTS: Final = 16
"""Maximum number of different first bytes of one scanner's markers."""

MAX_DEPTH: Final = 1000
"""Deeper nested bodies are malformed: no JSON parser in use here reads deeper."""

FENCE: Final = "```"
"""A Markdown fence: allowed around a body if `BlockSyntax.fence` is set."""

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
`lead`    after an opener: only whitespace, or the fence around a body, has been read;
`key`     inside an object whose first key is not known yet (syntaxes with `first_keys`);
`body`    inside a field;
`tail`    between fields: whitespace, then one of the possible literals;
`broken`  the body does not follow the syntax: the first literal closer ends the block;
`held`    a strict tool is on offer and no body follows the opener: held back for the call policy;
`done`    finished, or stopped by a fault.

"""

Read = Literal[
    "nothing", "name", "word", "text", "object", "array", "list", "call", "braces", "printed", "loose", "end"
]
"""How a field ends.

`name`    at the first literal that may follow; letters, digits, `_-.:/` and non-ASCII, with whitespace around;
`word`    at the first literal that may follow; at most `WORD_BYTES`, and only whitespace after a line end in it;
`text`    at the first literal after which the block can continue with its next field or its end (whitespace aside);
          other literals are data;
`object`, `array`  a JSON value: by nesting depth, ignoring strings;
`list`    `[...]` with Python calls or JSON: by nesting depth, ignoring strings;
`call`    `name(...)` in Python: by nesting depth, ignoring strings;
`braces`  `{...}` with strings between two `BlockSyntax.quote`: by nesting depth, ignoring strings;
`printed`  depends on its beginning: an object whose first key is one of `BlockSyntax.first_keys`, in either kind of
          quotes; a Python call of a callable tool, perhaps with `await` or `print`; or a list of these;
`loose`   with the answer, if it begins like a call of a tool on offer in any form (`loose_head.py`). It is the only
          branch of an untaught syntax without an opener;
`end`     with the answer; other branches may stand beside this one.

"""

ValueKind = Literal["text", "json", "unsure"]
"""The kind of a tagged value, as far as its beginning and type tell."""

Field = Literal["", "name", "id", "key", "value", "arguments", "call", "calls", "said"]
"""The meaning of a field: none (skipped), a name, an id, an argument's key or value, all arguments, a whole call,
several calls; or `said`: not part of a call, and text if the block contains no call."""

END: Final = -1
"""Value of `Branch.then`: the block ends here."""

WORD_BYTES: Final = 256
"""Maximum length of a `word` field. Names are short, and text after an opener that is only mentioned must not be held
back for long."""

KEY_CLOSER: Final = "</{key}>"
"""As the literal of a branch behind a value: the closing tag with the name of the value's key. The branch is not taken
if the value has an opening tag of that name."""

LITERAL_BYTES: Final = 256
"""Maximum length of a literal in a grammar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One way to continue a block: a literal, then a field, then the node with index `then` in the body.

    A branch without a literal is taken at the bracket that begins its `read`. If that has no bracket (`nothing`,
    `name`, `word`, `text`, `call`), the branch is taken if no other one fits; a `text` then includes the whitespace
    before it.
    """

    literal: str = ""
    read: Read = "nothing"
    field: Field = ""
    then: int = END
    ahead: bool = False
    """The block ends before the literal, which is read again as text outside the block."""
    slip: bool = False
    """No format teaches it. Data in prompts need no escapes against it, because it ends or begins a value only beside
    other literals, which are escaped."""


_WRONG_CLOSERS: Final = ("</tool_calls>", "</function_call>", "</function>")


def wrong_closers(closer: str) -> tuple[Branch, ...]:
    """Returns branches for the closing tags that models write in place of a call's own."""
    others = (other for other in _WRONG_CLOSERS if other != closer) if closer.startswith("</") else ()
    return tuple(Branch(literal=other, slip=True) for other in others)


Node = tuple[Branch, ...]
"""The possible continuations between two fields, after whitespace. A node after a `name`, `word` or `text` has only
branches that begin with a literal or a bracket. A node without branches is the end of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared, and looked up, as the very same object
class BlockSyntax:
    """One way to write a block of calls: an opener, then nodes and fields up to `END`.

    - `opener` and `closer` are literal text. With an empty `opener` (and `anchor` `answer`, or `margin` if untaught)
      the body itself begins the block, with a literal, a bracket or a `name`.
    - `body` are the nodes; the first one directly follows the opener. An empty body means one or more JSON objects and
      the closer, or, without a closer, one object and the end of the answer.
    - `closer` also ends a broken body; without one a broken block is text. If only closers are missing after a field
      with content, the opener of another block ends this one.
    - `anchor` is where an opener counts: `anywhere`; `line`, at the start of a line (or of the answer, or directly
      after a block); `margin`, the same after indentation; `answer`, only before any other visible text; `after`, only
      after a block, with only whitespace between.
    - A block whose body has no field is framing and is removed. `ends_section`: whitespace between a block and this one
      is removed too. `framing` is the meaning of such an opener, or of the whole end of a section: a `mark` is removed
      where it frames something (`surroundings.py`); a `start` too, and it counts as the content that a mark before it
      frames; a `head` is the whole block, and is removed unless it is only mentioned.
    - `first_keys`: if given, an object with another first key is ordinary text and is released at once; the same holds
      for the first object of an array. `fence`: a Markdown fence may surround the first field.

    The following are used for assembling calls:

    - `arguments` is the taught form of arguments: JSON, or a string that contains JSON (both are read, C2). `names` and
      `parameters` are the keys of a call's name and arguments; without `names` the object's only key is the name.
    - `quote` surrounds strings in `braces`. `entities`: names and keys contain `&quot;`, `&lt;` and `&amp;`.
    - `framed`: one newline on either side of a value does not belong to it. A value that begins with a newline and ends
      without one, or without its closer, ends only if the text after it is as the template writes it: tags up to one
      that is followed by `>` and a newline, or up to the end of the answer or another block.
    - `prefix` precedes every tag of arguments that are (nested) elements named after them.
    - `family` distinguishes formats that are looked for together.
    - `untaught`: the model was not asked for this form. A block is a call only if it passes the call policy's test
      (R23.1) and is neither in inline code nor in a fence; else it is text. Taught syntaxes take precedence, and an
      untaught syntax that cannot be distinguished from a taught one is left out.
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
        """The nodes of the body, also if `body` is empty."""
        if self.body:
            return self.body
        call = Branch(read="object", field="call", then=1)
        if not self.closer:
            return ((call,), ())
        wrong = wrong_closers(self.closer)
        stop = (Branch(literal="</s>", slip=True),) if wrong else ()  # not behind a text: there data would be escaped
        return ((call,), (Branch(literal=self.closer), *wrong, *stop, call))

    @property
    def loose(self) -> bool:
        """True if a block is text that may be a call in any form (`Branch.read` is `loose`)."""
        return len(self.body) == 1 and self.body[0][0].read == "loose"

    @property
    def whole(self) -> Field | None:
        """The field that takes the whole body, or None if the syntax has other fields or literals."""
        if any(branch.literal and branch.read != "nothing" for branch in self.nodes[0]):
            return None
        fields = {branch.field for node in self.nodes for branch in node if branch.read != "nothing"}
        return next(iter(fields)) if fields <= {"call", "calls"} and len(fields) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # compared, and cached, as the very same object
class Grammar:
    """The form of call blocks: one or more syntaxes, tried in this order.

    Syntaxes with the same opener are distinguished by the text after it. `reasoning` are the reasoning tags of this
    format's models. `families`: after a block with calls of one of these families, that family's grammar applies.
    `exclusive`: after a block of another family only syntaxes of that same family apply. `calls_in_reasoning`: these
    models also call inside reasoning.
    """

    syntaxes: tuple[BlockSyntax, ...]
    reasoning: tuple[tuple[str, str], ...] = ()
    exclusive: bool = False
    families: Mapping[str, Grammar] | None = None
    calls_in_reasoning: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """All literals that a scanner would take for markup in an answer that copies data, without duplicates: openers,
        closers, ends of strings in blocks, reasoning tags, including those of `families`. Prompt text escapes them in
        data (R5.6). A closer without a letter (a Markdown fence) is not included, since it only counts inside a block;
        the same holds for literals that only count after a call. An opener without a letter that counts at the start of
        a line is a marker there."""
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
        """Literals that would end an unescaped string in a block: `BlockSyntax.quote`, the literals that end a `text`
        (without slips), those that may follow these (also slips, which may follow a slip), and those that may stand in
        place of the value. If slips end a `text`, openers of blocks may follow them."""
        ends: list[str] = []
        syntaxes = [syntax for grammar in self._all for syntax in grammar.syntaxes]
        for syntax in syntaxes:
            ends.append(syntax.quote)
            for node in syntax.nodes:
                for branch in (branch for branch in node if branch.read == "text" and not branch.slip):
                    if any(end.slip for end in syntax.nodes[branch.then]):
                        ends += (word for other in syntaxes for word in _worded(other.opener))
                    for end in (end for end in syntax.nodes[branch.then] if not end.slip):
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
    """Returns the literal in a tuple if it contains a letter, else an empty tuple."""
    return (literal,) if any(map(str.isalpha, literal)) else ()


def _stripped(literals: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in literals if text.strip()))


@lru_cache(maxsize=64)  # a pure function of frozen values, and run in the middle of an answer
def only(grammar: Grammar, family: str) -> Grammar:
    """Returns the grammar that applies after a call of this family."""
    if grammar.families is not None and family in grammar.families:
        return grammar.families[family]
    if not grammar.exclusive:
        return grammar
    return replace(grammar, syntaxes=tuple(syntax for syntax in grammar.syntaxes if syntax.family == family))


@lru_cache(maxsize=64)
def without_calls(grammar: Grammar) -> Grammar:
    """Returns the grammar for answers that cannot call: only reasoning and framing."""
    frames = (
        syntax for syntax in grammar.syntaxes if all(b.field in ("", "said") for node in syntax.nodes for b in node)
    )
    return replace(grammar, syntaxes=tuple(frames))


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call that a policy accepted. `arguments` is JSON text. `source` is the model's text of this call if a block
    holds several; None means the whole block."""

    name: str
    call_id: str
    arguments: str
    kind: CallKind = "function"
    namespace: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A finished block, for the call policy. `body` is the text between opener and closer, `pieces` its fields with
    their texts in order. In a `broken` body (one that does not follow its syntax) the pieces end where it was last
    understood, and the last piece extends to the closer. `closed` is False if only closers were missing when the answer
    ended or another block began (R6.8, option `unclosed`); `more`: the answer ended where a further argument could have
    begun. `opened` is the block's first call if it was streamed early (R6.13), with the arguments that were sent. If a
    block has several streamed calls, the policy gets each as a block of its own. `first`: no visible text and no block
    precede it."""

    syntax: BlockSyntax
    body: str
    pieces: tuple[tuple[Field, str], ...]
    closed: bool = True
    broken: bool = False
    opened: FoundCall | None = None
    more: bool = False
    first: bool = False

    @property
    def reasoning(self) -> str:
        """The reasoning before the calls, if the whole answer is one block; else ""."""
        first = self.pieces[:1] if not self.syntax.opener else ()
        return first[0][1].strip(SPACE) if first and first[0][0] == "said" else ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about a block. Exactly one of four:

    - `error` set: the answer ends with this error.
    - `calls` not empty: these calls.
    - `drop`: the block is removed, but counts as recognised when whitespace is trimmed.
    - None of these: the block is visible text, `replacement` or (if None) the original text.

    `before` is the number of characters before the calls that are text. `reasoning` is reasoning to emit before the
    calls, and with calls `replacement` is text to emit before them.
    """

    calls: tuple[FoundCall, ...] = ()
    drop: bool = False
    replacement: str | None = None
    error: GatewayError | None = None
    before: int = 0
    reasoning: str = ""


AS_TEXT: Final = Decision()
DROPPED: Final = Decision(drop=True)


class EarlyCall:
    """A call that may be streamed before its block ends (R6.13). The arguments of this one can be sent without
    conditions; call policies derive their own.

    `sends_text`: more text of the current string can be sent without `release`, because it would return all of it.
    """

    sends_text = True

    def __init__(self, call: FoundCall) -> None:
        self._call = call

    def open(self) -> FoundCall | None:
        """Returns the call, without arguments, when it is opened. The policy judges it later as `Block.opened`. Returns
        None if it may no longer be streamed."""
        return self._call

    def release(self, more: bytes) -> bytes:
        """Takes the next bytes of the arguments, and returns those that can be sent now."""
        return more

    def argument(self, syntax: BlockSyntax, key: str, value: str) -> str:
        """Returns one argument as a JSON member (`"key":value`), from the pieces `key` and `value`."""
        return f"{json_string(key)}:{json_string(value)}"

    def value_kind(self, syntax: BlockSyntax, key: str, begun: str) -> tuple[str, ValueKind]:
        """Returns the key of an argument (as JSON, with colon), and the kind of a value that begins with `begun`:
        `text` (a string of exactly this text), `json` (JSON, if valid) or `unsure` (not known yet)."""
        return f"{json_string(key)}:", "text"


class CallSink(Protocol):
    """Sends calls that are streamed before their block ends. Each scanner implements it."""

    def span(self, start: int, stop: int) -> bytes:
        """Returns the bytes between two offsets, which count from the block's first byte."""

    def live_open(self, call: FoundCall) -> int:
        """Opens a call. Returns its block number."""

    def live_say(self, block: int, text: str) -> None:
        """Sends more arguments of an open call."""

    def live_close(self, block: int, status: Literal["complete", "truncated"]) -> None:
        """Ends an open call."""


class BlockPolicy(Protocol):
    """Decides about blocks (R9), in order of appearance. Methods must not raise."""

    @property
    def strict(self) -> bool:
        """True if any tool on offer is strict. Then an opener without a body is held back, see state `held`."""

    def block(self, block: Block) -> Decision:
        """Returns the decision about a finished block, which may be malformed."""

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        """Called for an untaught block without an opener that was not a call after all: its text `begun` is ordinary
        text."""

    unwrap: bool
    """True if arguments may be an object where a string with an object is taught (C2)."""

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The names that may be called, for syntaxes that begin with one; empty if any name may."""

    def may_call(self, name: str, untaught: bool) -> bool:
        """Returns True if an unmarked object with this name may be a call or a near miss (R23.4). `untaught`: its form
        was not taught."""

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> EarlyCall | None:
        """Returns the call if it may be streamed early (R6.13), else None. Called when its arguments begin and `pieces`
        include its name."""

    def withdrawn(self, opened: FoundCall, *, cut: bool) -> GatewayError:
        """Returns the error for an early streamed call whose final arguments differ from what was sent, or, if `cut`,
        for one of a custom tool that was cut off."""

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        """Returns the decision about a block without an end. `why`: the answer ended (`end`), the backend stopped for
        length (`truncated`: never a call, C18), or the block is larger than `limits.block_bytes` (`oversize`, R6.9)."""


class FrameTooLarge(ValueError):
    """A server-sent event is larger than the framer's `frame_bytes`. The framer accepts nothing after this."""


def too_large(frame_bytes: int) -> FrameTooLarge:
    """Returns the error of a framer with this limit; both twins use the same wording."""
    return FrameTooLarge(f"a server-sent event is larger than {frame_bytes} bytes")
