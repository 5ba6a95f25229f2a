"""Reasoning that the prompt opened: an answer with a closing tag and no opening tag (R6.7).

Templates of thinking models put the opening tag into the prompt, so that the answer begins inside the reasoning block:
`...\n</think>\n\nanswer` (DeepSeek R1, QwQ, Qwen3), or `...</think>answer` (DeepSeek V3.1, GLM, Magistral with its own
tags). Without that knowledge the reasoning would be taken for text. This module finds it out from the answer itself,
and a route remembers it for the next answers.

Rules:

1. A closing tag counts only in visible text, and only if nothing was opened before it: not in arguments of a call, not
   after an opening tag of any pair of the route, and not after reasoning that the server has marked itself.
2. The tag is where templates and models write it: at the start of a line, directly after a word, or after the end of a
   sentence. The text after it does not continue a sentence: no comma, no small letter after a blank. Some text follows
   the tag: the whole answer never becomes reasoning.
3. The tag is not quoted: not in a fence, inline code, quotation marks, brackets, a JSON string, an indented block or a
   list.
4. A tag that also ends calls or messages does not count (`<|end|>`, `<|im_end|>`, `<|end_message|>`, `<|eom|>`).
5. If a tag meets these rules, the answer is read as if it began with the opening tag. A call before the closing tag is
   reasoning, as in any reasoning block (`reasoning.scan_calls`). Text that a stream has already sent stays.
6. A route remembers this for the server, the model, the client's key, and everything in the request that may switch
   reasoning on and off. Each worker has its own memory, until the configuration is reloaded. It is forgotten when an
   answer begins with an opening tag, or ends without a closing one. Such an answer is read as if nothing had been
   learned. Text that a stream has already sent as reasoning is scanned and sent again, up to `limits.block_bytes`;
   otherwise an answer or a call would be lost. An answer that was cut off by its limit of length proves nothing: its
   stream stays reasoning, and a whole answer is text.
7. `reasoning.preopened` in the configuration takes precedence: if it is set, nothing is searched and nothing learned.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

from ...config import ReasoningConfig
from ...errors import quote
from ...events import BlockKind, Delta, Event, Open
from ...model import ModelRequest
from ...scan._grammar import SPACE, BlockSyntax, Grammar
from ...scanner import reasoning_tags
from ...support import legible

if TYPE_CHECKING:
    from ...record import AccessRecord

K = TypeVar("K")
V = TypeVar("V")

LOG: Final = logging.getLogger("toolwire.reasoning")

Pair = tuple[str, str]
"""An opening and a closing tag of reasoning."""

Outcome = Literal["moved", "shown", "known", "repeated"]
"""The result for reasoning that the prompt opened. `moved`: it became reasoning. `shown`: a stream had sent it as text.
`known`: the route knew it before. `repeated`: the route assumed it wrongly, and text that a stream had sent as
reasoning was sent again."""

OUTCOMES: Final = ("moved", "shown", "known", "repeated")

MAX_LEARNED: Final = 256
"""Maximum number of kinds of requests that a route remembers."""

HEAD_CHARS: Final = 256
"""Characters that a stream holds back at most until it is known whether it begins with a tag."""

MAX_TRIED: Final = 16
"""Maximum number of closing tags of one answer that are checked."""

LINE_CHARS: Final = 4096
"""Characters of the line that are checked on either side of a tag."""

SHOWN_CHARS: Final = 100

BLOCK: Final = "\n\N{OBJECT REPLACEMENT CHARACTER}\n"
"""Placeholder for a block that is not text, on a line of its own."""

SWITCHES: Final = (
    "chat_template_kwargs",
    "enable_thinking",
    "include_reasoning",
    "reasoning",
    "reasoning_effort",
    "think",
    "thinking",
    "thinking_budget",
)
"""Request fields with which servers let clients switch reasoning on and off."""

_ENDS: Final = ".!?…。！？．"
"""Ends of a sentence."""
_CLOSING: Final = "\"'”’»)]}*_`"
"""Characters that may follow the end of a sentence."""
_GOES_ON: Final = ",.;:?)]}»”’、，。；：？）」』"
"""Characters with which a sentence continues or ends, and no answer begins."""
_AROUND: Final = {
    **{mark: mark for mark in "\"'`*_~|"},
    "(": ")",
    "[": "]",
    "{": "}",
    "<": ">",
    "“": "”",
    "‘": "’",
    "«": "»",
    "„": "“",
    "「": "」",
    "『": "』",
    "（": "）",
}
_QUOTES: Final = (("“", "”"), ("„", "“"), ("«", "»"), ("「", "」"), ("『", "』"))
_IN_APOSTROPHES: Final = re.compile(r"(?:^|[\s(\[{:,=])'[^']*\Z")
_APOSTROPHE_ENDS: Final = re.compile(r"[^']*'(?:$|[\s)\]},.;:])")
_FENCE: Final = re.compile(r"^[ \t>]*(`{3,}|~{3,})[ \t]*([^\n]*)$", re.MULTILINE)
_LIST: Final = re.compile(r"[ \t>]*\d+[.)]")


# --- evidence in an answer --------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def pairs_of(grammar: Grammar, config: ReasoningConfig) -> tuple[Pair, ...]:
    """Returns the pairs of a route's tags whose closing tag only ends reasoning (rule 4). Returns none if the
    configuration decides how answers begin (rule 7)."""
    if config.preopened is not None:
        return ()
    ends_more = {literal for syntax in grammar.syntaxes for literal in _ending_more(syntax)}
    return tuple(pair for pair in reasoning_tags(grammar, config) if pair[1] not in ends_more)


def _ending_more(syntax: BlockSyntax) -> Iterator[str]:
    """Yields the literals of a syntax that end more than reasoning: control tokens, and all of one that has fields."""
    branches = [branch for node in syntax.nodes for branch in node]
    has_fields = any(branch.field for branch in branches)
    for literal in (syntax.opener, syntax.closer, *(branch.literal for branch in branches)):
        if has_fields or literal.startswith("<|"):
            yield literal


class ReasoningTags(NamedTuple):
    """The opening and closing tags of some pairs, the first characters of the closing tags, and the beginnings of all
    tags up to `size` characters, the length of the shortest tag."""

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    firsts: frozenset[str]
    size: int
    starts: frozenset[str]


@lru_cache(maxsize=256)
def marks_of(pairs: tuple[Pair, ...]) -> ReasoningTags:
    """Returns the tags of these pairs."""
    tags = [tag for pair in pairs for tag in pair]
    size = min(map(len, tags), default=0)
    starts = frozenset(tag[:end] for tag in tags for end in range(1, size + 1))
    openers, closers = tuple(opener for opener, _ in pairs), tuple(closer for _, closer in pairs)
    return ReasoningTags(openers, closers, frozenset(closer[0] for closer in closers), size, starts)


@lru_cache(maxsize=256)
def keep_closing_tags(grammar: Grammar, config: ReasoningConfig) -> Grammar:
    """Returns the grammar without syntaxes for these closing tags, so that a scanner leaves them in the text."""
    closers = {closer for _, closer in pairs_of(grammar, config)}
    return replace(grammar, syntaxes=tuple(syntax for syntax in grammar.syntaxes if syntax.opener not in closers))


def may_be_preopened(text: str, pairs: Iterable[Pair]) -> bool:
    """Returns True if the text has a closing tag, and no opening tag before it."""
    pairs = tuple(pairs)
    closed = -1
    for _, closer in pairs:
        at = text.find(closer)
        if at >= 0 and (closed < 0 or at < closed):
            closed = at
    return closed >= 0 and all(text.find(opener, 0, closed) < 0 for opener, _ in pairs)


def text_before_reasoning(events: Iterable[Event]) -> str:
    """Returns the text of an answer up to the first reasoning block that was opened, with `BLOCK` for a call."""
    pieces: list[str] = []
    texts: set[int] = set()
    for event in events:
        if isinstance(event, Delta) and event.block in texts:
            pieces.append(event.text)
        elif isinstance(event, Open) and event.kind is BlockKind.TEXT:
            texts.add(event.block)
        elif isinstance(event, Open):
            pieces.append(BLOCK)
            if event.kind is BlockKind.REASONING:
                break
    return "".join(pieces)


def closes_thoughts(text: str, pairs: Iterable[Pair]) -> Pair | None:
    """Returns the pair of the first closing tag that ends reasoning which the prompt opened (rules 2 and 3); None if
    there is none. `text` is the visible text of an answer."""
    of = {closer: pair for pair in reversed(tuple(pairs)) for closer in (pair[1],)}
    if not of:
        return None
    found = re.compile("|".join(re.escape(closer) for closer in sorted(of, key=len, reverse=True)))
    end_of_text = len(text.rstrip())
    fences: list[re.Match[str]] | None = None
    for _, match in zip(range(MAX_TRIED), found.finditer(text)):  # noqa: B905  # the shorter one limits the loop
        at, end = match.span()
        if end >= end_of_text:
            return None
        if not _stands_apart(text, at, end):
            continue
        if fences is None:
            fences = list(_FENCE.finditer(text))
        if not _is_fenced(fences, at):
            return of[match.group()]
    return None


def closes_at_once(head: str, pairs: Iterable[Pair]) -> Pair | None:
    """Returns the pair of the closing tag with which a stream begins, if it ends reasoning; else None. See
    `is_undecided`."""
    head = head[:HEAD_CHARS]
    word = head.lstrip(SPACE)
    for pair in pairs:
        if word.startswith(pair[1]):
            at, end = len(head) - len(word), len(head) - len(word) + len(pair[1])
            return pair if head[end:].strip() and _stands_apart(head, at, end) else None
    return None


def _stands_apart(text: str, at: int, end: int) -> bool:
    """Returns True if the tag from `at` to `end` is at a place where templates and models write it (rule 2)."""
    begins, ends = max(text.rfind("\n", 0, at) + 1, at - LINE_CHARS), text.find("\n", end)
    head, tail = text[begins:at], text[end : min(len(text) if ends < 0 else ends, end + LINE_CHARS)]
    if _goes_on(tail) or _is_quoted(head, tail):
        return False
    before = head.rstrip()
    if not before:
        return len(head) < 4 and "\t" not in head  # four spaces or a tab begin a block of code
    if before == head:
        return True
    return before.rstrip(_CLOSING)[-1:] in tuple(_ENDS) and not _LIST.fullmatch(before)


def _goes_on(tail: str) -> bool:
    """Returns True if the text after a tag continues a sentence."""
    rest = tail.lstrip()
    return bool(rest) and (rest[0] in _GOES_ON or (rest != tail and rest[0].islower()))


def _is_quoted(head: str, tail: str) -> bool:
    """Returns True if a quotation or bracket opens in `head`, before a tag on its line, and closes in `tail`, after
    it."""
    if head and tail and _AROUND.get(head[-1]) == tail[0]:
        return True
    if head.count("`") % 2 and "`" in tail:
        return True
    if (head.count('"') - head.count('\\"')) % 2 and '"' in tail:
        return True
    if any(head.rfind(opens) > head.rfind(closes) and closes in tail for opens, closes in _QUOTES):
        return True
    return bool(_IN_APOSTROPHES.search(head) and _APOSTROPHE_ENDS.match(tail))


def _is_fenced(fences: Iterable[re.Match[str]], at: int) -> bool:
    """Returns True if `at` is inside a closed fence. A fence with an info string only opens."""
    opened: str | None = None
    for fence in fences:
        mark, words = fence.groups()
        if fence.start() > at:
            return opened is not None and not words.strip() and mark.startswith(opened)
        if opened is None:
            opened = mark
        elif mark.startswith(opened) and not words.strip():
            opened = None
    return False


# --- knowledge of a route -------------------------------------------------------------------------------------------


class PreopenedMemory:
    """The knowledge of one route about how answers begin. For each kind of request it holds the tags inside which
    answers begin, or None if they do not."""

    def __init__(self) -> None:
        self._lock = Lock()  # answers may be scanned in threads
        self.known: OrderedDict[bytes, Pair | None] = OrderedDict()
        self._told: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.known)

    def pair(self, kind: bytes) -> Pair | None:
        """Returns the tags inside which answers to this kind of request begin; None if they do not, or if it is
        unknown."""
        with self._lock:
            if kind not in self.known:
                return None
            self.known.move_to_end(kind)
            return self.known[kind]

    def put(self, kind: bytes, pair: Pair | None) -> None:
        """Stores the tags for this kind of request."""
        with self._lock:
            _keep(self.known, kind, pair)

    def is_first_time(self, what: str) -> bool:
        """Returns True if it is called with this text for the first time, so that each log line is written once."""
        with self._lock:
            new = what not in self._told
            _keep(self._told, what, None)
            return new


def _keep(values: OrderedDict[K, V], key: K, value: V) -> None:
    values[key] = value
    values.move_to_end(key)
    if len(values) > MAX_LEARNED:
        values.popitem(last=False)


def kind_of(owner: str, backend: str, request: ModelRequest) -> bytes:
    """Returns a hash of everything that may change how answers begin: the server, the model, and the switches of
    reasoning. An enforced call leaves no room for reasoning, and an answer that continues an assistant message has no
    beginning. The client (`Exchange.owner`) is included, so that one client's answers never change another's."""
    switches = [(name, request.extra[name]) for name in SWITCHES if name in request.extra]
    effort = request.sampling.reasoning_effort
    enforced = request.constraint is not None and not request.constraint.free
    goes_on = bool(request.messages) and request.messages[-1].role == "assistant"
    kind = repr((owner, backend, request.model, effort, enforced, goes_on, switches))
    return sha256(kind.encode("utf-8", "surrogatepass")).digest()


class PreopenedReasoning:
    """Knowledge about the beginning of one answer. `asked` returns the name of the answering server and its request, or
    None if no server was asked; nothing is learned then. `whole`: the client, `owner`, gets a whole answer."""

    def __init__(
        self,
        route: str,
        learned: PreopenedMemory,
        asked: Callable[[], tuple[str, ModelRequest] | None],
        record: AccessRecord,
        *,
        whole: bool,
        owner: str = "",
    ) -> None:
        self.whole = whole
        self._owner = owner
        self._route = route
        self._learned = learned
        self._asked = asked
        self._record = record
        self._kind: bytes | None = None

    @property
    def pair(self) -> Pair | None:
        """The tags inside which the answer begins, as far as the route has learned it; else None."""
        kind = self._kind_of_answer() if self._learned.known else None
        return None if kind is None else self._learned.pair(kind)

    def found(self, pair: Pair, outcome: Outcome) -> None:
        """Notes that the answer began inside `pair`."""
        self.count(outcome)
        kind = self._kind_of_answer()
        if kind is None:
            return
        self._learned.put(kind, pair)
        whose = self._whose()
        if self._learned.is_first_time(whose):
            LOG.warning(
                "%s begin inside %s, which the prompt opens: from now on, text before %s is reasoning. "
                "Set `reasoning.preopened: true` for the route to have this from the first answer on.",
                whose,
                *pair,
            )

    def wrong(self, pair: Pair) -> None:
        """Notes that the answer did not begin inside `pair`, although others did."""
        kind = self._kind_of_answer()
        if kind is not None and self._learned.pair(kind) == pair:
            self._learned.put(kind, None)
            whose = self._whose()
            if self._learned.is_first_time(f"not {whose}"):
                LOG.info(
                    "%s do not always begin inside %s. The gateway forgets this until an answer begins so again.",
                    whose,
                    pair[0],
                )

    def count(self, outcome: Outcome) -> None:
        """Counts the outcome in the access line and the metrics."""
        self._record.count("unopened_reasoning")
        self._record.label("unopened_reasoning", outcome)

    def _kind_of_answer(self) -> bytes | None:
        if self._kind is None and (asked := self._asked()) is not None:
            self._kind = kind_of(self._owner, *asked)
        return self._kind

    def _whose(self) -> str:
        asked = self._asked()
        backend, model = ("", "") if asked is None else (asked[0], asked[1].model)
        return f"Route {_shown(self._route)}: answers of {_shown(model)} at backend {_shown(backend)}"


def _shown(name: str) -> str:
    name = name if len(name) <= SHOWN_CHARS else name[:SHOWN_CHARS] + "…"
    return legible.visible(quote(name))


# --- the beginning of a stream --------------------------------------------------------------------------------------


def is_undecided(head: str, learned: Pair | None, pairs: Iterable[Pair]) -> bool:
    """Returns True if more of a stream is needed to know how it begins. With `learned` an opening tag decides,
    otherwise a closing one."""
    if len(head) >= HEAD_CHARS:
        return False
    word = head.lstrip(SPACE)
    if not word:
        return True
    if learned is not None:
        return any(opener.startswith(word) and opener != word for opener, _ in pairs)
    return any(
        closer.startswith(word) or (word.startswith(closer) and word[len(closer) :].isspace()) for _, closer in pairs
    )
