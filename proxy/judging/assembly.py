"""From the fields of a block to the calls that stand in it, in every encoding that a shape can describe.

Rules of this module:

1. What is a call and what are its arguments is said here; whether it may be called is the judge's (`judge.py`).
2. Two steps, because arguments may need the tool's schema and its strictness: `assemble` gives names, `Arguments.settle`
   then the arguments.
3. JSON texts stay texts: arguments are slices of what the model wrote, or the string it wrote them in; never loaded and
   dumped. Where they are not JSON they are written as compact JSON, keys in the order in which they first appear.
4. Work is linear in the body. Nothing but `ValueError` is raised, with what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol

import orjson

from .._grammar import SPACE, Block, Field, Shape, ValueKind, valid_text
from .elements import Element, element_value, read_elements, text_value
from .literals import MAX_VALUES, PythonCall, braces_value, json_string, python_call, python_calls
from .repair import MAX_DEPTH, RepairKind, compact_json, parses, read_json, read_value, repair_json, skip_space
from .tags import key_of, name_of, unframed
from .untyped import ParameterTypes, Types, kind_of_value, typed_value

MAX_PIECES: Final = 2 * MAX_VALUES
"""A block with more fields, keys and values alike, is malformed."""

_NUMBERED: Final = re.compile(r"(.+):[0-9]+", re.DOTALL)
_HARMONY: Final = "functions."
"""What harmony and Kimi write before the name of any function."""

_BROKEN: Final = "it is not written as its format says"


class Settled(NamedTuple):
    """Arguments as JSON text, how they were repaired (R9.3), and whether an object stood where a string is taught (C2)."""

    text: str
    repaired: tuple[RepairKind, ...] = ()
    unwrapped: bool = False


class Arguments(Protocol):
    """The arguments of a call, as they were written."""

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """The arguments of a tool with this schema (None: unknown). `repair` what is nearly JSON; take `objects` where a
        string is taught. Raises `ValueError`."""


@dataclass(slots=True)
class Written:
    """A call as a model wrote it. `name` is empty if it has none. `source` is its own text where a block holds several.
    `alias` is what it means if there is no tool of its full name."""

    name: str
    arguments: Arguments
    call_id: str | None = None
    source: str | None = None
    alias: str | None = None


@dataclass(slots=True)
class Assembly:
    """The calls of a block. If JSON had to be repaired to find them, `flaw` says what was wrong with it (R9.1), and `repaired`
    what was done."""

    calls: list[Written]
    flaw: str | None = None
    repaired: tuple[RepairKind, ...] = ()


def assemble(block: Block, *, repair: bool) -> Assembly:
    """The calls that the fields of a block describe; `repair` JSON that is nearly right. Raises `ValueError`."""
    pieces = block.pieces
    if len(pieces) == 1 and pieces[0][0] == "call":  # nearly always
        call = _quick_call(pieces[0][1], block.shape)
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


def begun(shape: Shape, pieces: tuple[tuple[Field, str], ...]) -> Written:
    """The call that these fields begin, a name among them. Its arguments are not there yet."""
    if shape.whole is not None:
        return Written(pieces[0][1], Unreadable(_BROKEN))
    *_, call = _tagged_calls(Block(shape, "", pieces))
    return call


def member(shape: Shape, key: str, value: str, known: ParameterTypes) -> str:
    """One of a call's tagged arguments, from the pieces `key` and `value`, as it will stand in `TaggedArguments.settle`."""
    name, types = key_of(key, shape)
    types = types or known.of(name)
    text = unframed(value) if shape.framed else value
    return f"{json_string(name)}:{text_value(text, types) if shape.prefix else typed_value(text, types)}"


def begun_member(shape: Shape, key: str, begun: str, known: ParameterTypes) -> tuple[str, ValueKind]:
    """The beginning of `member`, key and colon, and what the value is that begins like this (without its framing)."""
    name, types = key_of(key, shape)
    return f"{json_string(name)}:", kind_of_value(begun, types or known.of(name))


def settle_arguments(text: str, *, repair: bool) -> tuple[str, tuple[RepairKind, ...]]:
    """Arguments given as a string, as JSON text, and how they had to be repaired (R9.3, R9.5).

    Text that parses is returned as it is; blank text means no arguments. Raises `ValueError` with what is wrong.
    """
    if not text.strip():
        return "{}", ()
    if parses(text):
        return text, ()
    _, repaired, _, kinds = _read(text, repair)
    return repaired, kinds


def unread_arguments(arguments: Arguments) -> str | None:
    """The text of arguments that should be JSON and cannot be settled; None for arguments of another form."""
    match arguments:
        case JsonArguments(value=str(text)) | JsonArguments(text=text) | TextArguments(text=text):
            return text
        case _:
            return None


# --- arguments in each encoding -------------------------------------------------------------------------------------


@dataclass(slots=True)
class JsonArguments:
    """A value that JSON holds, with its exact text. `taught` is the form that is asked for."""

    value: Any
    text: str
    taught: Literal["string", "object"]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        value = self.value
        if value is None:
            return Settled("{}")
        if isinstance(value, str):
            try:
                return Settled(*settle_arguments(valid_text(value), repair=repair))
            except ValueError as error:
                raise ValueError(f"its arguments are not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise ValueError("its arguments are neither a string nor an object")
        if self.taught == "object":
            return Settled(self.text)
        if not objects:
            raise ValueError("its arguments are an object where a string is required")
        return Settled(compact_json(self.text), unwrapped=True)


@dataclass(slots=True)
class TextArguments:
    """Text that should be JSON."""

    text: str
    taught: Literal["string", "object"]

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        text = self.text.strip(SPACE)
        if not text:
            return Settled("{}")
        if self.taught == "object" and text[0] == "{" and parses(text):
            return Settled(text)
        try:
            value, text, _, kinds = _read(text, repair)
        except ValueError as error:
            raise ValueError(f"its arguments are not valid JSON: {error}") from None
        settled = JsonArguments(value, text, self.taught).settle(parameters, repair=repair, objects=objects)
        return settled._replace(repaired=kinds + settled.repaired) if kinds else settled


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
        return Settled(text if parses(text) else braces_value(text, self.quote))


@dataclass(slots=True)
class PythonArguments:
    """Keywords, and before them values that are named by the order of the tool's parameters."""

    call: PythonCall

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        values = self.call.keywords
        if positional := self.call.positional:
            names = ParameterTypes(parameters).names
            if len(positional) > len(names):
                raise ValueError("it has arguments without a name")
            values = dict(zip(names, positional, strict=False)) | values
        return Settled(_object(values.items()))


@dataclass(slots=True)
class TaggedArguments:
    """Keys and values in tags. Of equal keys the last one wins (R9.10); where the call was given out while it came (`sent`) they
    all stand there, and the same is up to whoever reads the JSON."""

    values: list[tuple[str, str, Types | None]]
    sent: bool = False

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        known = ParameterTypes(parameters)
        members = [(key, (text, types)) for key, text, types in self.values]
        chosen = members if self.sent else dict(members).items()
        return Settled(_object((key, typed_value(text, types or known.of(key))) for key, (text, types) in chosen))


@dataclass(slots=True)
class ElementArguments:
    """Elements of their own names: those that hold only text, then the others. Of equal names the last one wins."""

    values: list[tuple[str, str, Types | None]]
    nested: list[Element]
    sent: bool = False

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        known = ParameterTypes(parameters)
        members = [(key, text_value(text, known.of(key))) for key, text, _ in self.values]
        members += [(e.name, element_value(e, known.of(e.name), known.inside(e.name))) for e in self.nested]
        return Settled(_object(members if self.sent else dict(members).items()))


@dataclass(slots=True)
class Unreadable:
    """Arguments that cannot be read, and why."""

    flaw: str

    def settle(self, parameters: Mapping[str, Any] | None, *, repair: bool, objects: bool) -> Settled:
        """See `Arguments`."""
        raise ValueError(self.flaw)


def _object(members: Iterable[tuple[str, str]]) -> str:
    """An object of JSON texts."""
    return f"{{{','.join([f'{json_string(key)}:{text}' for key, text in members])}}}"


# --- whole calls: JSON and Python -----------------------------------------------------------------------------------


def _whole_calls(block: Block, repair: bool) -> Assembly:
    """The calls of a block whose fields are whole calls, or lists of them."""
    shape = block.shape
    found = Assembly([])
    for field, text in block.pieces:
        if field not in ("call", "calls"):
            raise ValueError(_BROKEN)
        if _is_python(text, shape):
            calls = python_calls(text) if text.lstrip(SPACE)[:1] == "[" else [python_call(text)]
            found.calls += [Written(call.name, PythonArguments(call), source=call.source) for call in calls]
            continue
        call = _quick_call(text, shape)
        if call is not None:
            found.calls.append(call)
            continue
        try:
            value, text, flaw, kinds = _read(text, repair)
        except ValueError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        # Without a closer a missing bracket may mean that the answer broke off: only a complete object counts.
        if "brackets" in kinds and not block.closed:
            raise ValueError(f"it is not valid JSON: {flaw}")
        found.flaw = found.flaw or flaw
        found.repaired += kinds
        found.calls += _json_calls(value, text, shape, listed=field == "calls", cut="brackets" in kinds)
    if len(found.calls) == 1:
        found.calls[0].source = None
    return found


def _is_python(text: str, shape: Shape) -> bool:
    if not _own_syntax(shape):
        return False
    start = skip_space(text)
    if text[start : start + 1] == "[":
        start = skip_space(text, start + 1)
    return text[start : start + 1] not in ("{", '"', "`", "]", "")


@lru_cache(maxsize=256)  # a pure function of a frozen value; there are few
def _own_syntax(shape: Shape) -> bool:
    return any(branch.read in ("call", "list") for place in shape.places for branch in place)


@lru_cache(maxsize=256)
def _head(shape: Shape) -> re.Pattern[str]:
    """A call in JSON as it nearly always begins: its name, then the key of its arguments, and no others."""
    name = r'"([^"\\\x00-\x1f]*)"'
    tokens: tuple[str, ...] = (r"\{", name, ":")
    if shape.names:
        names, keys = ("|".join(map(re.escape, keys)) for keys in (shape.names, shape.parameters))
        tokens = (r"\{", f'"(?:{names})"', ":", name, ",", f'"(?:{keys})"', ":")
    space = f"[{SPACE}]*"
    return re.compile(space + space.join(tokens) + space)


def _quick_call(text: str, shape: Shape) -> Written | None:
    """The call that is written in JSON as nearly always, or None: then it has to be read properly. What stands between the
    head and the last brace is one JSON value, so that the whole is JSON and has no other members."""
    head = _head(shape).match(text)
    end = text.rfind("}")
    if head is None or skip_space(text, end + 1) != len(text):
        return None
    inner = text[head.end() : end].rstrip(SPACE)
    if inner.count("{") + inner.count("[") >= MAX_DEPTH:
        return None
    try:
        value = orjson.loads(inner)
    except orjson.JSONDecodeError:
        return None
    return Written(head[1], JsonArguments(value, inner, shape.arguments), None, text)


def _read(text: str, repair: bool) -> tuple[Any, str, str | None, tuple[RepairKind, ...]]:
    """The value of a JSON text, the text, and if that had to be repaired what was wrong and how. Raises `ValueError`."""
    try:
        return read_json(text), text, None, ()
    except ValueError as error:
        found = repair_json(text) if repair else None
        if found is None:
            raise
        return read_json(found[0]), found[0], str(error), found[1]


def _json_calls(value: Any, text: str, shape: Shape, *, listed: bool, cut: bool) -> Iterator[Written]:
    """The calls in JSON: an object, an object with `tool_calls`, or an array if `listed`."""
    if isinstance(value, dict):
        members = _members(text)
        if "tool_calls" not in value or not shape.names or any(name in value for name in shape.names):
            yield _json_call(members, text, shape, cut)
            return
        value, text = members["tool_calls"]
    elif not listed:
        raise ValueError("it is not a JSON object")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("its calls are not an array of objects")
    for item in _elements(text):
        yield _quick_call(item, shape) or _json_call(_members(item), item, shape, cut)


def _json_call(members: dict[str, _Member], source: str, shape: Shape, cut: bool) -> Written:
    """The call that an object describes. `cut`: it had no end."""
    if not shape.names:
        ((name, arguments),) = members.items() if len(members) == 1 else (("", _ABSENT),)
        return Written(valid_text(name), JsonArguments(*arguments, shape.arguments), source=source)
    inner, text = members.get("function", _ABSENT)
    if isinstance(inner, dict) and not any(name in members for name in shape.names):
        members = _members(text)
    named, _ = next((members[key] for key in shape.names if key in members), _ABSENT)
    name = valid_text(named) if isinstance(named, str) else ""
    written = next((members[key] for key in shape.parameters if key in members), None)
    if written is None and cut:
        return Written(name, Unreadable("it breaks off before its arguments"), source=source)
    return Written(name, JsonArguments(*(written or _ABSENT), shape.arguments), source=source)


# --- calls in tags --------------------------------------------------------------------------------------------------


class _Draft:
    """A call in tags, as far as it was read."""

    def __init__(self, sent: bool) -> None:
        self.sent = sent
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

    def take(self, field: Field, text: str, shape: Shape) -> None:
        if field == "name":
            self.name = name_of(text, shape)
        elif field == "id":
            self.call_id = text.strip()
        elif field == "arguments" and self.text is None:
            self.text = text
        elif field == "key" and self.key is None:
            self.key = key_of(text, shape)
        elif field == "value" and self.key is not None:
            name, types = self.key
            self.values.append((name, unframed(text) if shape.framed else text, types))
            self.key = None
        else:
            self.broken = True

    def written(self, shape: Shape) -> Written:
        name, call_id = self.name, self.call_id
        if name is None and call_id is not None:  # `functions.NAME:IDX`, which is both
            numbered = _NUMBERED.fullmatch(call_id)
            name = numbered[1] if numbered else call_id
            call_id = call_id if numbered else None
        arguments: Arguments
        if shape.prefix and not self.broken and self.key is None:
            arguments = self._elements(shape.prefix)
        elif self.broken or self.key is not None or (self.text is not None and self.values):
            arguments = Unreadable(_BROKEN)
        elif self.text is None:
            arguments = TaggedArguments(self.values, self.sent)
        elif shape.quote:
            arguments = BracesArguments(self.text, shape.quote)
        else:
            arguments = TextArguments(self.text, shape.arguments)
        name = name or ""
        return Written(name, arguments, call_id, alias=name.removeprefix(_HARMONY))

    def _elements(self, prefix: str) -> Arguments:
        """Text behind the last value is what follows the first tag inside of that."""
        if self.text is None:
            return ElementArguments(self.values, [], self.sent)
        if not self.values:
            return TextArguments(self.text, "object")
        *values, (key, value, _) = self.values
        try:
            nested = read_elements(f"{prefix}<{key}>{value}{prefix}{self.text}", prefix)
        except ValueError as error:
            return Unreadable(str(error))
        return ElementArguments(values, nested, self.sent)


def _tagged_calls(block: Block) -> Iterator[Written]:
    """The calls of a block with names and arguments in fields of their own."""
    shape, pieces = block.shape, block.pieces
    last = pieces[-1][0]
    if block.broken and last in ("name", "id"):
        raise ValueError(_BROKEN)  # not even its name is certain
    sent = block.opened is not None
    draft = _Draft(sent)
    for field, text in pieces:
        if draft.is_over(field):
            yield draft.written(shape)
            draft = _Draft(sent)
        draft.take(field, text, shape)
    draft.broken = draft.broken or (block.broken and last != "arguments")
    yield draft.written(shape)


# --- slices of a JSON text ------------------------------------------------------------------------------------------

_Member = tuple[Any, str]
"""A value and the exact text in which it was written."""

_ABSENT: Final[_Member] = (None, "null")


def _members(text: str) -> dict[str, _Member]:
    """The members of a JSON object, each with its exact text. Of equal keys the last one wins (R9.10). `text` must be
    an object that parses."""
    found: dict[str, _Member] = {}
    at = skip_space(text, skip_space(text) + 1)
    while text[at] != "}":
        key, end = read_value(text, at)
        start = skip_space(text, skip_space(text, end) + 1)
        value, end = read_value(text, start)
        found[key] = (value, text[start:end])
        at = _after_comma(text, end)
    return found


def _elements(text: str) -> Iterator[str]:
    """The exact texts of the elements of a JSON array. `text` must be an array that parses."""
    at = skip_space(text, skip_space(text) + 1)
    while text[at] != "]":
        _, end = read_value(text, at)
        yield text[at:end]
        at = _after_comma(text, end)


def _after_comma(text: str, end: int) -> int:
    at = skip_space(text, end)
    return skip_space(text, at + 1) if text[at] == "," else at
