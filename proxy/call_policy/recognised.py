"""Calls in a form that nobody taught: what tells them from ordinary text (R23.1).

Rules of this module:

1. Such a call names exactly a tool that may be called, and its arguments settle as those of any other call and fit the
   tool's schema, whether or not the tool is strict. Where nothing is known of the tools, the arguments only have to
   settle.
2. All calls of a block pass, or it holds none.
3. Judged is what comes out: where the route mends arguments of the wrong type (R23.3), they are mended first.
4. Whoever tells what a tool takes does not call it: the tool's definition is no call, though its schema may fit itself,
   nor is a template, in which dots or a word in angle brackets stand for a value.
5. A tool whose schema cannot be used cannot be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Literal, get_args

from toolwire.call_policy.assembly import Assembly, assemble
from toolwire.call_policy.candidate import Candidate, Names, settled
from toolwire.call_policy.coercion import Coerced, coerce
from toolwire.call_policy.json_calls import MemberArguments
from toolwire.call_policy.near import NearMiss, is_template, misfit, recites, stands_for_values, tool_of, unreadable
from toolwire.call_policy.recovery import NoCall, recover
from toolwire.call_policy.untyped import ParameterTypes
from toolwire.call_policy.written import Written
from toolwire.config import CallsConfig, LimitsConfig
from toolwire.errors import quote
from toolwire.formats.engine.recognition import RECOVERED
from toolwire.formats.engine.rendering import prompt_name, prompt_parameters
from toolwire.model import ToolSpec
from toolwire.repair.repair import read_json
from toolwire.scan._grammar import SPACE, Block, BlockSyntax
from toolwire.schemas.schema import SchemaProblem, ToolSchema, compile_schema

Schemas = Callable[[ToolSpec], ToolSchema]
"""The checker for a tool. Raises `SchemaProblem`."""

Reason = Literal["name", "arguments", "schema", "definition"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
"""Why a block that names a tool on offer is no call: another call in it names none, its arguments cannot be read, they
do not fit the schema, or it is the definition of the tool."""


def checker(tool: ToolSpec, *, limits: LimitsConfig) -> ToolSchema:
    """A `Schemas`."""
    return compile_schema(tool.parameters, limits)


_TOKEN: Final = re.compile(r"<[|｜][^<>|｜]++[|｜]>")
"""A control token inside of a longer literal."""

RECITED: Final = "The model wrote the definition of the tool {} in place of a call."

_RECOVERED: Final = BlockSyntax(opener=RECOVERED)


class Unrecognised(ValueError):
    """A block that names a tool on offer fails the test. `near` is the near miss that it is, if it is one (R23.4)."""

    def __init__(self, reason: Reason, near: NearMiss | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.near = near


class Recogniser:
    """Finds the calls of one answer in blocks whose form was not taught."""

    def __init__(self, options: CallsConfig, schemas: Schemas) -> None:
        self._options = options
        self._schemas = schemas
        self._compiled: dict[str, ToolSchema | None] = {}
        # The last block in a known form that names a tool and is no call: it is read once more, as a damaged one.
        self._refused = ""

    def calls(self, block: Block, names: Names) -> list[Candidate]:
        """The calls in a block; none if it is text. Raises `Unrecognised`: text as well, but a tool on offer is
        named."""
        options = self._options
        if not block.closed and options.unclosed != "repair":
            return []
        if _swallows(block) and (by_schema := self._by_schema(block, names)):
            return by_schema
        try:
            found = assemble(block, repair=options.repair == "safe")
        except ValueError as error:
            detail = f"The model's tool call cannot be read: {error}."
            miss = unreadable(detail, block.syntax, block.body, names, pieces=block.pieces)
            if miss is None:
                return []
            self._refused = block.body
            raise Unrecognised("arguments", miss) from None
        calls: list[Candidate] = []
        flaws: list[Unrecognised] = []
        named = False
        for written in found.calls:
            try:
                call = self._call(written, found, names, block)
            except Unrecognised as unrecognised:
                named = named or unrecognised.reason != "name" or unrecognised.near is not None
                flaws.append(unrecognised)
                continue
            named = True
            calls.append(call)
        if flaws and named:
            self._refused = block.body
            raise _together(flaws, calls)
        return calls

    def recovered(self, block: Block, names: Names) -> tuple[list[Candidate], int]:
        """The calls in a damaged or unknown form that a block ends with, and how many characters stand before them.
        Raises `Unrecognised`: it is text, and names a tool on offer where calls name one. Not if that was said of the
        same text already: one attempt counts once."""
        try:
            return self._recovered(block, names)
        except Unrecognised:
            if self._refused and self._refused in block.body:
                return [], 0
            raise

    def _recovered(self, block: Block, names: Names) -> tuple[list[Candidate], int]:
        text = block.body
        takes = {
            name: tool
            for name in names.callable
            if (tool := names.known.get(name)) is not None and tool.kind != "custom"
        }
        try:
            found = recover(text, takes, lambda name: ParameterTypes(prompt_parameters(takes[name])))
        except NoCall as none:
            miss = unreadable("The model's tool call cannot be read.", block.syntax, text, names, named=none.name)
            if none.name is None and miss is None:
                return [], 0
            raise Unrecognised("arguments", miss) from None
        block = Block(_RECOVERED, text[found.before :], ())
        return [self._call(written, Assembly([]), names, block) for written in found.calls], found.before

    def _by_schema(self, block: Block, names: Names) -> list[Candidate]:
        """The calls of a block as the schemas of the tools read it, if they do."""
        whole = f"{block.syntax.opener}{block.body}{block.syntax.closer}"
        try:
            return self.recovered(replace(block, syntax=_RECOVERED, body=whole), names)[0]
        except Unrecognised:
            return []

    def _call(self, written: Written, found: Assembly, names: Names, block: Block) -> Candidate:
        """The first reading of a call that passes. Raises `Unrecognised`."""
        syntax, body = block.syntax, block.body
        flaw: Unrecognised | None = None
        for reading in _readings(written):
            if not names.may_be_called(reading.name):
                continue
            tool = names.known.get(reading.name)
            strict = tool is not None and tool.strict is True
            try:
                if strict and found.flaw is not None:
                    raise ValueError(found.flaw)
                arguments, repaired, unwrapped = settled(reading, tool, self._options, strict=strict)
                if (repaired or found.repaired) and is_template(body):
                    raise Unrecognised("arguments")
                fitting = self._fitting(reading, tool, arguments, block)
            except Unrecognised as unrecognised:
                flaw = flaw or unrecognised
                continue
            except ValueError as error:
                if _recites(reading, tool):
                    flaw = flaw or Unrecognised("definition", _recited(reading, block))
                    continue
                detail = f"The model's call of {quote(reading.name)} is malformed: {error}."
                flaw = flaw or Unrecognised("arguments", misfit(detail, syntax, body, reading))
                continue
            mended = dict.fromkeys((*found.repaired, *repaired, *(() if block.closed else ("closer",))))
            call_id, source = reading.call_id, reading.source
            return Candidate(
                reading.name, fitting.text, tool, strict, mended, unwrapped, call_id, source, fitting.kinds
            )
        raise flaw or Unrecognised("name", _misspelt(written, names, block))

    def _fitting(self, reading: Written, tool: ToolSpec | None, arguments: str, block: Block) -> Coerced:
        """The arguments as they come out, and how they were mended. Raises `Unrecognised`."""
        if tool is None or tool.kind == "custom":
            return Coerced(arguments, ())
        if _defines(reading, tool, arguments):
            raise Unrecognised("definition", _recited(reading, block) if _recites(reading, tool) else None)
        if stands_for_values(arguments):
            raise Unrecognised("arguments")
        schema = self._schema(tool)
        if schema is None:
            raise Unrecognised("schema")
        flaw = schema.check(arguments)
        if flaw is None:
            return Coerced(arguments, ())
        mends = self._options.coerce != "off" and tool.strict is not True
        mended = coerce(arguments, schema) if mends else None
        if mended is None or schema.check(mended.text) is not None:
            detail = f"The model's call of {quote(reading.name)} does not fit the tool's schema: {flaw}"
            keys = _only_arguments(arguments, tool)
            raise Unrecognised("schema", misfit(detail, block.syntax, block.body, reading, fits_keys=keys))
        return mended

    def _schema(self, tool: ToolSpec) -> ToolSchema | None:
        name = prompt_name(tool)
        if name not in self._compiled:
            try:
                self._compiled[name] = self._schemas(tool)
            except SchemaProblem:
                self._compiled[name] = None
        return self._compiled[name]


def _swallows(block: Block) -> bool:
    """A key or a value holds a tag of the form that it stands in: perhaps one was lost."""
    texts = [text for field, text in block.pieces if field in ("key", "value") and "<" in text]
    if not texts:
        return False
    literals = {branch.literal.strip(SPACE) for node in block.syntax.body for branch in node}
    tags = {literal for literal in literals if literal.startswith("<") and len(literal) > len("</s>")}
    tags.update(token for literal in literals for token in _TOKEN.findall(literal))
    return any(tag in text for text in texts for tag in tags)


def _together(flaws: list[Unrecognised], calls: list[Candidate]) -> Unrecognised:
    """What a block fails with that holds these flaws beside these calls. Several definitions are a list of tools that
    was asked for, and no attempt."""
    first = flaws[0]
    if sum(flaw.reason == "definition" for flaw in flaws) > 1:
        first.near = None
    elif first.near is not None:
        others = [flaw.near.tools for flaw in flaws[1:] if flaw.near is not None]
        first.near = first.near.beside(*others, [call.name for call in calls])
    return first


def _misspelt(written: Written, names: Names, block: Block) -> NearMiss | None:
    """The near miss that the call of a name is which is one edit away from that of a tool; None if it is none."""
    for reading in _readings(written):
        meant = tool_of(reading.name, names) if reading.name else None
        if meant is not None:
            detail = (
                f"The model called the tool {quote(reading.name)}, which is not on offer. Its name is {quote(meant)}."
            )
            return misfit(detail, block.syntax, block.body, replace(reading, name=meant))
    return None


def _recites(reading: Written, tool: ToolSpec | None) -> bool:
    return tool is not None and recites(reading, lambda: ParameterTypes(prompt_parameters(tool)).names)


def _recited(reading: Written, block: Block) -> NearMiss:
    return NearMiss(RECITED.format(quote(reading.name)), (reading.name,), block.body, "alone")


def _readings(written: Written) -> Iterator[Written]:
    """All that a call can mean, each under the name that it has then, best first."""
    reading: Written | None = written
    while reading is not None:
        yield reading
        if reading.alias is not None and reading.alias != reading.name:
            yield replace(reading, name=reading.alias)
        reading = reading.otherwise


def _only_arguments(text: str, tool: ToolSpec) -> bool:
    """There are some, and the tool knows them all by name."""
    value = read_json(text)
    return (
        isinstance(value, dict) and bool(value) and value.keys() <= set(ParameterTypes(prompt_parameters(tool)).names)
    )


def _defines(reading: Written, tool: ToolSpec, arguments: str) -> bool:
    """It is what a list of tools says of the tool: a schema stands where the arguments would be, or a description
    beside none."""
    value = read_json(arguments)
    if not isinstance(value, dict):
        return False
    declared = ParameterTypes(prompt_parameters(tool)).names
    if value.get("type") == "object" and isinstance(value.get("properties"), dict):
        return "type" not in declared and "properties" not in declared
    return not value and isinstance(reading.arguments, MemberArguments) and "description" in reading.arguments.members
