"""Assembles the calls of a block from its fields, in every encoding that a syntax can describe.

Rules of this module:

1. This module says what is a call and what its arguments are. The call policy (`policy.py`) says whether it may be
   called.
2. Two steps, because arguments may depend on the tool's schema and strictness: `assemble` finds the names,
   `WrittenArguments.settle` then the arguments.
3. JSON arguments keep the model's text: they are slices of it, or the string that contains them, never loaded and
   dumped. Other arguments are written as compact JSON, keys in the order of their first appearance.
4. Work is linear in the body. The only exception raised is `ValueError`, which says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from ..repair.literals import (
    MAX_VALUES,
    PythonCall,
    braces_value,
    json_string,
    python_call,
    python_calls,
    python_value,
    without_wrapping,
)
from ..repair.relaxed_json import RepairKind, parses, read_json, skip_space
from ..scan._grammar import SPACE, Block, BlockSyntax, Field, ValueKind
from .elements import Element, element_value, read_elements, text_value
from .json_calls import TextArguments, is_message, json_calls, quick_call, read_nearly, said_beside
from .tags import key_of, name_of, unframed
from .untyped import ParameterTypes, Types, kind_of_value, typed_value
from .written import NAMESPACE, ParsedArguments, UnreadableArguments, WrittenArguments, WrittenCall, object_text

MAX_PIECES: Final = 2 * MAX_VALUES
"""A block with more fields (keys and values counted separately) is malformed."""

_NUMBERED: Final = re.compile(r"(.+):[0-9]+", re.DOTALL)

_BROKEN: Final = "it is not written as its format says"


@dataclass(slots=True)
class Assembly:
    """The calls of a block. If JSON had to be repaired, `flaw` says what was wrong with it (R9.1) and `repaired` how it
    was repaired. `message`: they are in a whole message. `said`: reasoning and text beside them, or among their
    arguments."""

    calls: list[WrittenCall]
    flaw: str | None = None
    repaired: tuple[RepairKind, ...] = ()
    message: bool = False
    said: tuple[tuple[str, str], ...] = ()


def assemble(block: Block, *, repair: bool) -> Assembly:
    """Returns the calls that the fields of a block describe. With `repair`, almost valid JSON is read too. Raises
    `ValueError` if the block is malformed."""
    pieces = block.pieces
    if len(pieces) == 1 and pieces[0][0] == "call":  # the usual case
        call = quick_call(pieces[0][1], block.syntax)
        if call is not None:
            call.source = None
            return Assembly([call])
    if not pieces:
        raise ValueError(_BROKEN)
    if pieces[0][0] == "said":
        block = replace(block, pieces=tuple(piece for piece in pieces if piece[0] != "said"))
        return assemble(block, repair=repair)
    if len(pieces) > MAX_PIECES:
        raise ValueError(f"it has more than {MAX_PIECES} fields")
    if any(field in ("call", "calls") for field, _ in pieces):
        return _whole_calls(block, repair)
    return Assembly(list(_tagged_calls(block)))


def begin_call(syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> WrittenCall:
    """Returns the call that these fields (which include a name) begin. Its arguments are not readable yet."""
    if syntax.whole is not None:
        return WrittenCall(pieces[0][1], UnreadableArguments(_BROKEN))
    *_, call = _tagged_calls(Block(syntax, "", pieces))
    return call


def member(syntax: BlockSyntax, key: str, value: str, known: ParameterTypes) -> str:
    """Returns one tagged argument as a JSON member (`"key":value`), exactly as `TaggedArguments.settle` will write
    it."""
    name, types = key_of(key, syntax)
    types = types or known.of(name)
    text = unframed(value) if syntax.framed else value
    return f"{json_string(name)}:{text_value(text, types) if syntax.prefix else typed_value(text, types)}"


def begin_member(syntax: BlockSyntax, key: str, begun: str, known: ParameterTypes) -> tuple[str, ValueKind]:
    """Returns the start of `member` (key and colon) and the kind of a value that starts with `begun`. `begun` has no
    line end that only frames the value (`BlockSyntax.framed`)."""
    name, types = key_of(key, syntax)
    return f"{json_string(name)}:", kind_of_value(begun, types or known.of(name))


# --- arguments in each encoding -------------------------------------------------------------------------------------


@dataclass(slots=True)
class BracesArguments:
    """Arguments as an object in braces whose strings stand between two `quote` tokens, or as plain JSON."""

    text: str
    quote: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        text = self.text.strip(SPACE)
        if text[:1] != "{":
            raise ValueError("its arguments are no object")
        return ParsedArguments(text if parses(text) else braces_value(text, self.quote, bare=repair))


@dataclass(slots=True)
class PythonArguments:
    """Arguments as in a Python call: keyword arguments, preceded by positional values that get the names of the tool's
    parameters in order. A single positional object that cannot be the first parameter holds all arguments."""

    call: PythonCall

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        values = self.call.keywords
        if positional := self.call.positional:
            known = ParameterTypes(parameters)
            names = known.names
            if not values and len(positional) == 1 and _holds_all(positional[0], known):
                return ParsedArguments(positional[0])
            if len(positional) > len(names):
                raise ValueError("it has arguments without a name")
            placed = dict(zip(names, positional, strict=False))
            if twice := placed.keys() & values.keys():
                raise ValueError(f"it has two values for {', '.join(sorted(twice))}")
            values = placed | values
        return ParsedArguments(object_text(values.items()))


def _holds_all(value: str, known: ParameterTypes) -> bool:
    """Returns True if `value` is an object of known parameters while the first parameter cannot be an object."""
    if value[:1] != "{" or not known.names:
        return False
    keys, first = read_json(value).keys(), known.of(known.names[0])
    return bool(keys) and keys <= set(known.names) and first is not None and "object" not in first


@dataclass(slots=True)
class TaggedArguments:
    """Arguments as keys and values in tags. The last of equal keys wins (R9.10)."""

    values: list[tuple[str, str, Types | None]]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        known = ParameterTypes(parameters)
        last = {key: (text, types) for key, text, types in self.values}
        return ParsedArguments(
            object_text((key, typed_value(text, types or known.of(key))) for key, (text, types) in last.items())
        )


@dataclass(slots=True)
class ElementArguments:
    """Arguments that are elements named after them: first the ones with text only, then nested ones. The last of equal
    names wins."""

    values: list[tuple[str, str, Types | None]]
    nested: list[Element]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        known = ParameterTypes(parameters)
        members = [(key, text_value(text, known.of(key))) for key, text, _ in self.values]
        members += [(e.name, element_value(e, known.of(e.name), known.inside(e.name))) for e in self.nested]
        return ParsedArguments(object_text(dict(members).items()))


# --- whole calls: JSON and Python -----------------------------------------------------------------------------------


def _whole_calls(block: Block, repair: bool) -> Assembly:
    """Returns the calls of a block whose fields are whole calls or lists of calls. Raises `ValueError`."""
    syntax = block.syntax
    assembly = Assembly([])
    said: list[tuple[str, str]] = []
    stray = block.body.count("}") > sum(text.count("}") for _, text in block.pieces)
    for field, text in block.pieces:
        if field not in ("call", "calls"):
            raise ValueError(_BROKEN)
        if is_line(syntax):
            assembly.calls.append(line_call(text))
            continue
        if _is_python(text, syntax):
            literal = syntax.untaught  # a model that was not taught Python calls may be writing a program
            if literal:
                text = without_wrapping(text)
            listed = text.lstrip(SPACE)[:1] == "["
            calls = python_calls(text, literal=literal) if listed else [python_call(text, literal=literal)]
            for made in calls:
                bare = made.name.rpartition(".")[2]  # Gemini writes `default_api.` before names
                assembly.calls.append(WrittenCall(made.name, PythonArguments(made), source=made.source, alias=bare))
            continue
        if _own_syntax(syntax):
            text = _as_json(text)
        call = quick_call(text, syntax)
        if call is not None:
            assembly.calls.append(call)
            continue
        try:
            value, text, flaw, kinds = read_nearly(text, repair)
        except ValueError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        # Without a closer a missing bracket may mean that the answer broke off: only a complete object counts.
        if "brackets" in kinds and not block.closed:
            raise ValueError(f"it is not valid JSON: {flaw}")
        assembly.flaw = assembly.flaw or flaw
        assembly.repaired += kinds
        assembly.message = assembly.message or any(map(is_message, value if isinstance(value, list) else (value,)))
        said.append(said_beside(value))
        assembly.calls += json_calls(value, text, syntax, listed=field == "calls", cut=stray or "brackets" in kinds)
    assembly.said = tuple(said)
    if len(assembly.calls) == 1:
        assembly.calls[0].source = None
    return assembly


def _is_python(text: str, syntax: BlockSyntax) -> bool:
    if not _own_syntax(syntax):
        return False
    start = skip_space(text)
    if text[start : start + 1] == "[":
        start = skip_space(text, start + 1)
    return text[start : start + 1] not in ("{", '"', "`", "]", "")


def _as_json(text: str) -> str:
    """Returns a Python dict, or list of dicts, as JSON; other text and JSON unchanged."""
    if parses(text):
        return text
    try:
        return python_value(text)
    except ValueError:
        return text


@lru_cache(maxsize=256)  # a pure function of a frozen value; there are few
def _own_syntax(syntax: BlockSyntax) -> bool:
    return any(branch.read in ("call", "list", "printed") for node in syntax.nodes for branch in node)


# --- calls in tags --------------------------------------------------------------------------------------------------


class _Draft:
    """A call in tags, as far as it has been read."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.call_id: str | None = None
        self.text: str | None = None
        self.values: list[tuple[str, str, Types | None]] = []
        self.key: tuple[str, Types | None] | None = None
        self.broken = False

    def is_over(self, field: Field) -> bool:
        """Returns True if a field of this kind belongs to the next call."""
        if field not in ("name", "id"):
            return False
        taken = self.name if field == "name" else self.call_id
        return taken is not None or self.text is not None or self.key is not None or bool(self.values)

    def take(self, field: Field, text: str, syntax: BlockSyntax) -> None:
        if field == "name":
            self.name = name_of(text, syntax)
        elif field == "id":
            self.call_id = text.strip()
        elif field == "arguments" and self.text is None:
            self.text = text
        elif field == "key" and self.key is None:
            self.key = key_of(text, syntax)
        elif field == "value" and self.key is not None:
            name, types = self.key
            self.values.append((name, unframed(text) if syntax.framed else text, types))
            self.key = None
        else:
            self.broken = True

    def written(self, syntax: BlockSyntax) -> WrittenCall:
        name, call_id = self.name, self.call_id
        if name is None and call_id is not None:  # `functions.NAME:IDX` is name and id in one
            numbered = _NUMBERED.fullmatch(call_id)
            name = numbered[1] if numbered else call_id
            call_id = call_id if numbered else None
        arguments: WrittenArguments
        if syntax.prefix and not self.broken and self.key is None:
            arguments = self._elements(syntax.prefix)
        elif self.broken or self.key is not None or (self.text is not None and self.values):
            arguments = UnreadableArguments(_BROKEN)
        elif self.text is None:
            arguments = TaggedArguments(self.values)
        elif syntax.quote:
            arguments = BracesArguments(self.text, syntax.quote)
        else:
            arguments = TextArguments(self.text, syntax.arguments)
        name = name or ""
        space, _, bare = name.rpartition(":")  # Gemma writes namespaces before a name
        otherwise = WrittenCall(bare, arguments, call_id) if space and bare else None
        return WrittenCall(name, arguments, call_id, alias=name.removeprefix(NAMESPACE), otherwise=otherwise)

    def _elements(self, prefix: str) -> WrittenArguments:
        """Returns the arguments as elements. Text after the last value continues inside the first tag of that value."""
        if self.text is None:
            return ElementArguments(self.values, [])
        if not self.values:
            return TextArguments(self.text, "object")
        *values, (key, value, _) = self.values
        try:
            nested = read_elements(f"{prefix}<{key}>{value}{prefix}{self.text}", prefix)
        except ValueError as error:
            return UnreadableArguments(str(error))
        return ElementArguments(values, nested)


def _tagged_calls(block: Block) -> Iterator[WrittenCall]:
    """Yields the calls of a block with names and arguments in separate fields. Raises `ValueError` if not even the name
    is certain."""
    syntax, pieces = block.syntax, block.pieces
    last = pieces[-1][0]
    if block.broken and last in ("name", "id"):
        raise ValueError(_BROKEN)  # not even its name is certain
    draft = _Draft()
    for field, text in pieces:
        if draft.is_over(field):
            yield draft.written(syntax)
            draft = _Draft()
        draft.take(field, text, syntax)
    draft.broken = draft.broken or (block.broken and last != "arguments")
    yield draft.written(syntax)


# --- calls as command lines: a name, then a JSON object or the text of the first argument (CWM) -----------------------


_NAMED: Final = re.compile(r"[ \t\r\n]*(?:function>[ \t\r\n]*)?([\w.:/-]+)(?:>|(?=[ \t\r\n])|\Z)[ \t\r\n]*")
"""The tool's name at the beginning of a line, after the word `function>` or without it."""
_MEMBER: Final = re.compile(r"\{\s{0,16}\"([^\"\\]{1,256})\"\s{0,16}:")
_UNKNOWN: Final = "command"
"""The argument of an unknown tool. Models of this format were trained on tools that run commands."""


@lru_cache(maxsize=256)  # a pure function of a frozen value; there are few
def is_line(syntax: BlockSyntax) -> bool:
    """Returns True if the calls of a syntax are command lines."""
    return any(branch.read == "text" and branch.field == "call" for node in syntax.nodes for branch in node)


def line_call(text: str) -> WrittenCall:
    """Returns the call in a line. Raises `ValueError` if the line does not begin with a name."""
    named = _NAMED.match(text)
    if named is None:
        raise ValueError("it begins with no name")
    return WrittenCall(named[1], LineArguments(text[named.end() :].rstrip(SPACE)))


@dataclass(slots=True)
class LineArguments:
    """The rest of a command line as arguments: a JSON object with parameters of the tool, or the value of its first
    required (else first declared) parameter. Broken JSON that names a parameter is an error."""

    text: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> ParsedArguments:
        known = ParameterTypes(parameters)
        own = {*known.names, *known.required}
        if self.text[:1] == "{" and parses(self.text):
            keys = read_json(self.text).keys()
            if not keys or not own or not keys.isdisjoint(own):
                return ParsedArguments(self.text)
        elif (member := _MEMBER.match(self.text)) is not None and member[1] in own:
            raise ValueError("its arguments are no JSON")
        if not self.text:
            return ParsedArguments("{}")
        names = [name for name in known.names if name in known.required] or known.names
        if not names:
            return ParsedArguments(object_text([(_UNKNOWN, json_string(self.text))]))
        return ParsedArguments(object_text([(names[0], typed_value(self.text, known.of(names[0])))]))
