"""Calls in a form that was not taught, and how they differ from ordinary text (R23.1).

Rules of this module:

1. Such a call has exactly the name of a callable tool, and its arguments can be read and fit the tool's schema, strict
   or not. If the tools are unknown, the arguments only have to be readable.
2. A block counts only if all its calls pass.
3. The final arguments are checked: if the route converts wrong types (R23.3), that happens first.
4. Text that describes a tool is not a call: neither the tool's definition, even if its schema fits, nor a template with
   dots or words in angle brackets as values.
5. A whole message is a call only if it is the whole answer: behind other text it shows what a conversation looks like.
6. A tool with an unusable schema cannot be recognised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import filterfalse
from typing import Final, Literal, get_args

from ..config import CallsConfig, LimitsConfig
from ..errors import quote
from ..formats.engine.rendering import prompt_name, prompt_parameters
from ..formats.recognised.recognition import RECOVERED
from ..model import ToolSpec
from ..repair.relaxed_json import read_json
from ..scan._grammar import SPACE, Block, BlockSyntax
from ..scan.first_key import CONTENT, THOUGHTS
from ..schemas.schema import SchemaProblem, ToolSchema, compile_schema
from .assembly import Assembly, assemble
from .candidate import JUDGED, CandidateCall, ToolNames, parse_arguments
from .coercion import CoercedArguments, coerce
from .json_calls import MemberArguments
from .near import NearMiss, is_template, is_tool_definition, misfit, stands_for_values, tool_of, unreadable_block
from .recovery import recover
from .tagged_text import NoCall
from .untyped import ParameterTypes
from .written import WrittenCall

Schemas = Callable[[ToolSpec], ToolSchema]
"""Returns the compiled schema of a tool. Raises `SchemaProblem`."""

Reason = Literal["name", "arguments", "schema", "definition"]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
"""Why a block that names a tool on offer is not a call: another call in it names no tool, its arguments cannot be read,
they do not fit the schema, or it is the definition of the tool."""


def checker(tool: ToolSpec, *, limits: LimitsConfig) -> ToolSchema:
    """Compiles the schema of a tool; the default `Schemas`. Raises `SchemaProblem`."""
    return compile_schema(tool.parameters, limits)


_TOKEN: Final = re.compile(r"<[|｜][^<>|｜]++[|｜]>")
"""A control token inside a longer literal."""

RECITED: Final = "The model wrote the definition of the tool {} in place of a call."

_RECOVERED: Final = BlockSyntax(opener=RECOVERED)

_SILENT: Final = ("", "")
"""Nothing beside the calls."""


class Unrecognised(ValueError):
    """A block names a tool on offer but is not a call. `near` is the near miss, if it is one (R23.4)."""

    def __init__(self, reason: Reason, near: NearMiss | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.near = near


class Recogniser:
    """Finds calls in those blocks of one answer whose form was not taught."""

    def __init__(self, options: CallsConfig, schemas: Schemas) -> None:
        self._options = options
        self._schemas = schemas
        self._compiled: dict[str, ToolSchema | None] = {}
        # The last block in a known form that named a tool and was no call, or that is a message. `recovered` will see
        # its text again.
        self._refused = ""
        self._compared = 0  # names that no tool has

    def calls(self, block: Block, names: ToolNames) -> tuple[list[CandidateCall], tuple[str, str]]:
        """Returns the calls in a block, and the reasoning and text beside them; no calls if it is text. Raises
        `Unrecognised` if it is text that names a tool on offer."""
        options = self._options
        if not block.closed and options.unclosed != "repair":
            return [], _SILENT
        if _swallows(block) and (by_schema := self._by_schema(block, names)):
            return by_schema, _SILENT
        try:
            assembly = assemble(block, repair=options.repair == "safe")
        except ValueError as error:
            detail = f"The model's tool call cannot be read: {error}."
            miss = unreadable_block(detail, block.syntax, block.body, names, pieces=block.pieces)
            if miss is None:
                return [], _SILENT
            self._refused = block.body
            raise Unrecognised("arguments", miss) from None
        if assembly.message and not (block.first or block.syntax.opener):
            self._refused = block.body
            return [], _SILENT
        calls: list[CandidateCall] = []
        flaws: list[Unrecognised] = []
        named = False
        for written in assembly.calls:
            if flaws and len(flaws) + len(calls) >= JUDGED:
                break
            try:
                call = self._call(written, assembly, names, block)
            except Unrecognised as unrecognised:
                named = named or unrecognised.reason != "name" or unrecognised.near is not None
                flaws.append(unrecognised)
                continue
            named = True
            calls.append(call)
        if flaws and named:
            self._refused = block.body
            raise _together(flaws, calls)
        return calls, _beside(calls, assembly.said)

    def recovered(self, block: Block, names: ToolNames) -> tuple[list[CandidateCall], int]:
        """Returns the calls in a damaged or unknown form at the end of a block, and the number of characters before
        them. Raises `Unrecognised` if it is text that names a tool where calls name one, unless that was already raised
        for the same text: one attempt counts once."""
        try:
            return self._recovered(block, names)
        except Unrecognised:
            if self._refused and self._refused in block.body:
                return [], 0
            raise

    def _recovered(self, block: Block, names: ToolNames) -> tuple[list[CandidateCall], int]:
        text = block.body
        callable_tools = {
            name: tool
            for name in names.callable
            if (tool := names.known.get(name)) is not None and tool.kind != "custom"
        }
        try:
            calls, before = recover(
                text, callable_tools, lambda name: ParameterTypes(prompt_parameters(callable_tools[name]))
            )
        except NoCall as none:
            miss = unreadable_block("The model's tool call cannot be read.", block.syntax, text, names, named=none.name)
            if none.name is None and miss is None:
                return [], 0
            raise Unrecognised("arguments", miss) from None
        block = Block(_RECOVERED, text[before:], ())
        return [self._call(written, Assembly([]), names, block) for written in calls], before

    def _by_schema(self, block: Block, names: ToolNames) -> list[CandidateCall]:
        """Returns the calls of a block as read with the help of the tools' schemas; none if that fails."""
        whole = f"{block.syntax.opener}{block.body}{block.syntax.closer}"
        try:
            return self.recovered(replace(block, syntax=_RECOVERED, body=whole), names)[0]
        except Unrecognised:
            return []

    def _call(self, written: WrittenCall, assembly: Assembly, names: ToolNames, block: Block) -> CandidateCall:
        """Returns the first reading of a call that passes. Raises `Unrecognised`."""
        syntax, body = block.syntax, block.body
        flaw: Unrecognised | None = None
        for reading in _readings(written):
            if not names.may_be_called(reading.name):
                continue
            tool = names.known.get(reading.name)
            strict = tool is not None and tool.strict is True
            try:
                if strict and assembly.flaw is not None:
                    raise ValueError(assembly.flaw)
                arguments, repaired, unwrapped = parse_arguments(reading, tool, self._options, strict=strict)
                if (repaired or assembly.repaired) and is_template(body):
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
            mended = dict.fromkeys((*assembly.repaired, *repaired, *(() if block.closed else ("closer",))))
            call_id, source = reading.call_id, reading.source
            return CandidateCall(
                reading.name, fitting.text, tool, strict, mended, unwrapped, call_id, source, fitting.kinds
            )
        if flaw is None:
            self._compared += 1
            flaw = Unrecognised("name", _misspelt(written, names, block) if self._compared <= JUDGED else None)
        raise flaw

    def _fitting(self, reading: WrittenCall, tool: ToolSpec | None, arguments: str, block: Block) -> CoercedArguments:
        """Returns the final arguments and how they were converted. Raises `Unrecognised`."""
        if tool is None or tool.kind == "custom":
            return CoercedArguments(arguments, ())
        if _defines(reading, tool, arguments):
            raise Unrecognised("definition", _recited(reading, block) if _recites(reading, tool) else None)
        if stands_for_values(arguments):
            raise Unrecognised("arguments")
        schema = self._schema(tool)
        if schema is None:
            raise Unrecognised("schema")
        flaw = schema.check(arguments)
        if flaw is None:
            return CoercedArguments(arguments, ())
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


def _beside(calls: list[CandidateCall], said: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    """Returns the reasoning and the text that were found beside calls, without those that are arguments of a call."""
    if not any(map(any, said)):
        return _SILENT
    given = [read_json(call.arguments) for call in calls if not call.is_custom]
    own = [arguments.get(key) for arguments in given for key in (*THOUGHTS, CONTENT)]
    used = {"", *(text for text in own if isinstance(text, str))}
    thoughts, contents = (filterfalse(used.__contains__, texts) for texts in zip(*said, strict=True))
    return "\n\n".join(thoughts), "\n\n".join(contents)


def _swallows(block: Block) -> bool:
    """Returns True if a key or value contains a tag of its own syntax without its partner: another tag may be missing.
    Pairs of tags, an opening one first and a closing one last, belong to a call that the value quotes."""
    texts = [text for field, text in block.pieces if field in ("key", "value") and "<" in text]
    if not texts:
        return False
    literals = {branch.literal.strip(SPACE) for node in block.syntax.body for branch in node}
    tags = {literal for literal in literals if literal.startswith("<") and len(literal) > len("</s>")}
    tags.update(token for literal in literals for token in _TOKEN.findall(literal))
    names = {tag.strip("</=>").partition(" ")[0] for tag in tags if any(tag in text for text in texts)}
    return any(_is_unpaired(text, f"<{name}", f"</{name}") for text in texts for name in names)


def _is_unpaired(text: str, begin: str, end: str) -> bool:
    if text.count(begin) != text.count(end):
        return True
    return text.find(end) < text.find(begin) or text.rfind(end) < text.rfind(begin)


def _together(flaws: list[Unrecognised], calls: list[CandidateCall]) -> Unrecognised:
    """Returns the exception for a block with these flaws beside these calls. Several definitions are a list of tools,
    which was probably requested, so they are no near miss."""
    first = flaws[0]
    if sum(flaw.reason == "definition" for flaw in flaws) > 1:
        first.near = None
    elif first.near is not None:
        others = [flaw.near.tools for flaw in flaws[1:] if flaw.near is not None]
        first.near = first.near.beside(*others, [call.name for call in calls])
    return first


def _misspelt(written: WrittenCall, names: ToolNames, block: Block) -> NearMiss | None:
    """Returns the near miss for a call whose name is one edit away from a tool's name, or None."""
    for reading in _readings(written):
        meant = tool_of(reading.name, names) if reading.name else None
        if meant is not None:
            detail = (
                f"The model called the tool {quote(reading.name)}, which is not on offer. Its name is {quote(meant)}."
            )
            return misfit(detail, block.syntax, block.body, replace(reading, name=meant))
    return None


def _recites(reading: WrittenCall, tool: ToolSpec | None) -> bool:
    return tool is not None and is_tool_definition(reading, lambda: ParameterTypes(prompt_parameters(tool)).names)


def _recited(reading: WrittenCall, block: Block) -> NearMiss:
    return NearMiss(RECITED.format(quote(reading.name)), (reading.name,), block.body, "alone")


def _readings(written: WrittenCall) -> Iterator[WrittenCall]:
    """Yields all readings of a call, each with its name, best first."""
    reading: WrittenCall | None = written
    while reading is not None:
        yield reading
        if reading.alias is not None and reading.alias != reading.name:
            yield replace(reading, name=reading.alias)
        reading = reading.otherwise


def _only_arguments(text: str, tool: ToolSpec) -> bool:
    """Returns True if there are arguments and all their names are parameters of the tool."""
    value = read_json(text)
    return (
        isinstance(value, dict) and bool(value) and value.keys() <= set(ParameterTypes(prompt_parameters(tool)).names)
    )


def _defines(reading: WrittenCall, tool: ToolSpec, arguments: str) -> bool:
    """Returns True if the text is the tool's definition: a schema in place of arguments, or a description without
    arguments."""
    value = read_json(arguments)
    if not isinstance(value, dict):
        return False
    declared = ParameterTypes(prompt_parameters(tool)).names
    if value.get("type") == "object" and isinstance(value.get("properties"), dict):
        return "type" not in declared and "properties" not in declared
    return not value and isinstance(reading.arguments, MemberArguments) and "description" in reading.arguments.members
