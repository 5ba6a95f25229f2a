"""From the fields of a block to the calls that stand in it, in every encoding that a syntax can describe.

Rules of this module:

1. What is a call and what are its arguments is said here; whether it may be called is the call policy's (`policy.py`).
2. Two steps, because arguments may need the tool's schema and its strictness: `assemble` gives names,
   `Arguments.settle` then the arguments.
3. JSON texts stay texts: arguments are slices of what the model wrote, or the string it wrote them in; never loaded and
   dumped. Where they are not JSON they are written as compact JSON, keys in the order in which they first appear.
4. Work is linear in the body. Nothing but `ValueError` is raised, with what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from toolwire.call_policy.elements import Element, element_value, read_elements, text_value
from toolwire.call_policy.json_calls import TextArguments, json_calls, quick_call, read_nearly
from toolwire.call_policy.lines import is_line, line_call
from toolwire.call_policy.tags import key_of, name_of, unframed
from toolwire.call_policy.untyped import ParameterTypes, Types, kind_of_value, typed_value
from toolwire.call_policy.written import Arguments, Settled, Unreadable, Written, object_text
from toolwire.repair.literals import (
    MAX_VALUES,
    PythonCall,
    braces_value,
    json_string,
    python_call,
    python_calls,
    python_value,
    without_wrapping,
)
from toolwire.repair.repair import RepairKind, parses, read_json, skip_space
from toolwire.scan._grammar import SPACE, Block, BlockSyntax, Field, ValueKind

MAX_PIECES: Final = 2 * MAX_VALUES
"""A block with more fields, keys and values alike, is malformed."""

_NUMBERED: Final = re.compile(r"(.+):[0-9]+", re.DOTALL)
_HARMONY: Final = "functions."
"""What harmony and Kimi write before the name of any function."""

_BROKEN: Final = "it is not written as its format says"


@dataclass(slots=True)
class Assembly:
    """The calls of a block. If JSON had to be repaired to find them, `flaw` says what was wrong with it (R9.1), and
    `repaired` what was done."""

    calls: list[Written]
    flaw: str | None = None
    repaired: tuple[RepairKind, ...] = ()


def assemble(block: Block, *, repair: bool) -> Assembly:
    """The calls that the fields of a block describe; `repair` JSON that is nearly right. Raises `ValueError`."""
    pieces = block.pieces
    if len(pieces) == 1 and pieces[0][0] == "call":  # nearly always
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


def begun(syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> Written:
    """The call that these fields begin, a name among them. Its arguments are not there yet."""
    if syntax.whole is not None:
        return Written(pieces[0][1], Unreadable(_BROKEN))
    *_, call = _tagged_calls(Block(syntax, "", pieces))
    return call


def member(syntax: BlockSyntax, key: str, value: str, known: ParameterTypes) -> str:
    """One of a call's tagged arguments, from the pieces `key` and `value`, as it will stand in
    `TaggedArguments.settle`."""
    name, types = key_of(key, syntax)
    types = types or known.of(name)
    text = unframed(value) if syntax.framed else value
    return f"{json_string(name)}:{text_value(text, types) if syntax.prefix else typed_value(text, types)}"


def begun_member(syntax: BlockSyntax, key: str, begun: str, known: ParameterTypes) -> tuple[str, ValueKind]:
    """The beginning of `member`, key and colon, and what the value is that begins like this (without its framing)."""
    name, types = key_of(key, syntax)
    return f"{json_string(name)}:", kind_of_value(begun, types or known.of(name))


# --- arguments in each encoding -------------------------------------------------------------------------------------


@dataclass(slots=True)
class BracesArguments:
    """An object in braces, with strings between two `quote`; or JSON after all."""

    text: str
    quote: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        text = self.text.strip(SPACE)
        if text[:1] != "{":
            raise ValueError("its arguments are no object")
        return Settled(text if parses(text) else braces_value(text, self.quote, bare=repair))


@dataclass(slots=True)
class PythonArguments:
    """Keywords, and before them values that are named by the order of the tool's parameters; or one object with all
    arguments, if it can be none of them."""

    call: PythonCall

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        values = self.call.keywords
        if positional := self.call.positional:
            known = ParameterTypes(parameters)
            names = known.names
            if not values and len(positional) == 1 and _holds_all(positional[0], known):
                return Settled(positional[0])
            if len(positional) > len(names):
                raise ValueError("it has arguments without a name")
            placed = dict(zip(names, positional, strict=False))
            if twice := placed.keys() & values.keys():
                raise ValueError(f"it has two values for {', '.join(sorted(twice))}")
            values = placed | values
        return Settled(object_text(values.items()))


def _holds_all(value: str, known: ParameterTypes) -> bool:
    """An object of known parameters stands where the first of them cannot be an object."""
    if value[:1] != "{" or not known.names:
        return False
    keys, first = read_json(value).keys(), known.of(known.names[0])
    return bool(keys) and keys <= set(known.names) and first is not None and "object" not in first


@dataclass(slots=True)
class TaggedArguments:
    """Keys and values in tags. Of equal keys the last one wins (R9.10)."""

    values: list[tuple[str, str, Types | None]]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        known = ParameterTypes(parameters)
        last = {key: (text, types) for key, text, types in self.values}
        return Settled(
            object_text((key, typed_value(text, types or known.of(key))) for key, (text, types) in last.items())
        )


@dataclass(slots=True)
class ElementArguments:
    """Elements of their own names: those that hold only text, then the others. Of equal names the last one wins."""

    values: list[tuple[str, str, Types | None]]
    nested: list[Element]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        known = ParameterTypes(parameters)
        members = [(key, text_value(text, known.of(key))) for key, text, _ in self.values]
        members += [(e.name, element_value(e, known.of(e.name), known.inside(e.name))) for e in self.nested]
        return Settled(object_text(dict(members).items()))


# --- whole calls: JSON and Python -----------------------------------------------------------------------------------


def _whole_calls(block: Block, repair: bool) -> Assembly:
    """The calls of a block whose fields are whole calls, or lists of them."""
    syntax = block.syntax
    found = Assembly([])
    for field, text in block.pieces:
        if field not in ("call", "calls"):
            raise ValueError(_BROKEN)
        if is_line(syntax):
            found.calls.append(line_call(text))
            continue
        if _is_python(text, syntax):
            literal = syntax.untaught  # who was asked for calls means them; elsewhere they may be part of a program
            if literal:
                text = without_wrapping(text)
            listed = text.lstrip(SPACE)[:1] == "["
            calls = python_calls(text, literal=literal) if listed else [python_call(text, literal=literal)]
            found.calls += [Written(call.name, PythonArguments(call), source=call.source) for call in calls]
            continue
        if _own_syntax(syntax):
            text = _as_json(text)
        call = quick_call(text, syntax)
        if call is not None:
            found.calls.append(call)
            continue
        try:
            value, text, flaw, kinds = read_nearly(text, repair)
        except ValueError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        # Without a closer a missing bracket may mean that the answer broke off: only a complete object counts.
        if "brackets" in kinds and not block.closed:
            raise ValueError(f"it is not valid JSON: {flaw}")
        found.flaw = found.flaw or flaw
        found.repaired += kinds
        found.calls += json_calls(value, text, syntax, listed=field == "calls", cut="brackets" in kinds)
    if len(found.calls) == 1:
        found.calls[0].source = None
    return found


def _is_python(text: str, syntax: BlockSyntax) -> bool:
    if not _own_syntax(syntax):
        return False
    start = skip_space(text)
    if text[start : start + 1] == "[":
        start = skip_space(text, start + 1)
    return text[start : start + 1] not in ("{", '"', "`", "]", "")


def _as_json(text: str) -> str:
    """JSON for what Python writes as a dict, or a list of dicts; `text` itself if it is neither, or JSON already."""
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
    """A call in tags, as far as it was read."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.call_id: str | None = None
        self.text: str | None = None
        self.values: list[tuple[str, str, Types | None]] = []
        self.key: tuple[str, Types | None] | None = None
        self.broken = False

    def is_over(self, field: Field) -> bool:
        """A field of this kind belongs to the next call."""
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

    def written(self, syntax: BlockSyntax) -> Written:
        name, call_id = self.name, self.call_id
        if name is None and call_id is not None:  # `functions.NAME:IDX`, which is both
            numbered = _NUMBERED.fullmatch(call_id)
            name = numbered[1] if numbered else call_id
            call_id = call_id if numbered else None
        arguments: Arguments
        if syntax.prefix and not self.broken and self.key is None:
            arguments = self._elements(syntax.prefix)
        elif self.broken or self.key is not None or (self.text is not None and self.values):
            arguments = Unreadable(_BROKEN)
        elif self.text is None:
            arguments = TaggedArguments(self.values)
        elif syntax.quote:
            arguments = BracesArguments(self.text, syntax.quote)
        else:
            arguments = TextArguments(self.text, syntax.arguments)
        name = name or ""
        space, _, bare = name.rpartition(":")  # Gemma writes namespaces before a name
        otherwise = Written(bare, arguments, call_id) if space and bare else None
        return Written(name, arguments, call_id, alias=name.removeprefix(_HARMONY), otherwise=otherwise)

    def _elements(self, prefix: str) -> Arguments:
        """Text behind the last value is what follows the first tag inside of that."""
        if self.text is None:
            return ElementArguments(self.values, [])
        if not self.values:
            return TextArguments(self.text, "object")
        *values, (key, value, _) = self.values
        try:
            nested = read_elements(f"{prefix}<{key}>{value}{prefix}{self.text}", prefix)
        except ValueError as error:
            return Unreadable(str(error))
        return ElementArguments(values, nested)


def _tagged_calls(block: Block) -> Iterator[Written]:
    """The calls of a block with names and arguments in fields of their own."""
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
