"""Reads blocks in the taught form: the calls in them, or the reason why there is none (R9).

"Strict" is the named tool's own `strict: true`. If a block names no tool on offer, it is strict if any tool is (C28).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from ..config import CallsConfig
from ..errors import quote
from ..formats.engine.rendering import prompt_parameters
from ..model import ToolSpec
from ..repair.relaxed_json import read_json
from ..scan._grammar import Block, BlockSyntax, Field
from .assembly import Assembly, assemble
from .candidate import JUDGED, CandidateCall, ToolNames, parse_arguments
from .json_calls import raw_arguments
from .near import (
    NearMiss,
    is_marked,
    is_template,
    is_tool_definition,
    means_call,
    misfit,
    near_name,
    unreadable_block,
)
from .recognised import RECITED
from .untyped import ParameterTypes
from .written import WrittenCall

FailureCode = Literal["malformed_tool_arguments", "invalid_tool_arguments", "unknown_tool_call"]


@dataclass(eq=False)
class Rejected(Exception):
    """The block is not a call: text if soft, a failure if `strict`. `counter` is counted either way, with the label
    `reason`. `near` is the near miss, if it is one. `name` is the called name if no tool on offer has it."""

    code: FailureCode
    detail: str
    _: KW_ONLY
    strict: bool
    counter: str | None = None
    reason: str | None = None
    near: NearMiss | None = None
    name: str | None = None


class TaughtReader:
    """Reads the blocks of one answer that are in the taught form. `offered` are the names of the tools, `count` is
    called with the name of a counter."""

    def __init__(self, offered: ToolNames, options: CallsConfig, count: Callable[[str], object]) -> None:
        self.offered = offered
        self._options = options
        self._count = count
        self._compared = 0

    def meant(self, *names: str | None) -> str | None:
        """Returns the tool that the first of these names means if it is a slip, or None. Only the first unknown names
        of an answer are compared, because each takes a millisecond beside thousands of tools."""
        self._compared += 1
        known, allowed, *_ = self.offered
        return near_name(names, known, allowed or ()) if self._compared <= JUDGED else None

    def read(self, block: Block) -> Sequence[CandidateCall]:
        """Returns the calls in a block. Raises `Rejected`: the first strict failure, else the first soft one."""
        options = self._options
        if not block.closed and options.unclosed != "repair":
            detail = "The closing tag of the model's tool call is missing."
            rejected = self.unreadable(detail, "unclosed", block.syntax, block.body, block.pieces)
            rejected.strict = options.unclosed == "error"
            raise rejected
        try:
            assembly = assemble(block, repair=options.repair == "safe")
        except ValueError as error:
            detail = f"The model's tool call cannot be read: {error}."
            raise self.unreadable(detail, "unreadable", block.syntax, block.body, block.pieces) from None
        if not assembly.calls and block.syntax.opener and not block.syntax.first_keys:
            return []  # an empty list between its own tags
        if not assembly.calls:
            raise Rejected("malformed_tool_arguments", "The model's tool call is empty.", strict=False)
        calls: list[CandidateCall] = []
        failures: list[Rejected] = []
        for written in assembly.calls:
            if failures and len(failures) + len(calls) >= JUDGED:
                if not self.offered.strict or any(failure.strict for failure in failures):
                    break
                if not self._is_strict(written):
                    continue
            try:
                calls.append(self._call(written, assembly, block))
            except Rejected as rejected:
                unknown = self._unknown(written, rejected, block)
                if unknown is not None:
                    calls.append(unknown)
                    continue
                failures.append(rejected)
        if failures:
            first = next((failure for failure in failures if failure.strict), failures[0])
            near = [failure.near for failure in failures if failure is not first and failure.near is not None]
            if first.near is not None and first.near.place == "alone" and near:
                first.near = None  # a list of tools, probably requested
            elif first.near is not None:
                first.near = first.near.beside(*(miss.tools for miss in near), [call.name for call in calls])
            raise first
        return calls

    def named(self, written: WrittenCall) -> tuple[WrittenCall, ToolSpec | None, bool]:
        """Returns the call as read by `reading_on_offer`, its tool (None if all names may be called and this one is
        unknown), and whether it is strict. Raises `Rejected` if its name may not be called."""
        known, allowed, *_ = self.offered
        written = reading_on_offer(written, known)
        name = written.name
        if not name:
            detail = "The model's tool call has no name."
            raise Rejected("unknown_tool_call", detail, strict=self.offered.strict, counter="unknown_names")
        tool = known.get(name)
        strict = self.offered.strict if tool is None else tool.strict is True
        if allowed is not None and name not in allowed:
            detail = f"The model called the tool {quote(name)}, which is not on offer."
            meant = self.meant(name, written.alias)
            near = None if meant is None else NearMiss(f"{detail} Its name is {quote(meant)}.", (meant,))
            raise Rejected("unknown_tool_call", detail, strict=strict, counter="unknown_names", near=near, name=name)
        return written, tool, strict

    def _is_strict(self, written: WrittenCall) -> bool:
        """True if a mistake in the call is strict, for an offer with strict tools."""
        known = self.offered.known
        tool = known.get(reading_on_offer(written, known).name)
        return tool is None or tool.strict is True

    def unreadable(
        self,
        detail: str,
        reason: str,
        syntax: BlockSyntax,
        body: str,
        pieces: Sequence[tuple[Field, str]] = (),
        *,
        ended: bool = True,
    ) -> Rejected:
        """Returns the exception for a block that cannot be read, or has no end (`ended` False)."""
        near = unreadable_block(detail, syntax, body, self.offered, pieces=pieces, ended=ended)
        counter, strict = "parse_failures", self.offered.strict
        return Rejected("malformed_tool_arguments", detail, strict=strict, counter=counter, reason=reason, near=near)

    def _call(self, written: WrittenCall, assembly: Assembly, block: Block) -> CandidateCall:
        """Returns the call of a callable tool with its arguments. Raises `Rejected`."""
        try:
            return self._read_call(written, assembly, block)
        except Rejected as rejected:
            if (near := rejected.near) is not None and near.place != "alone":
                miss = misfit(near.why, block.syntax, block.body, written)
                rejected.near = None if miss is None else replace(miss, tools=near.tools)
            raise

    def _read_call(self, written: WrittenCall, assembly: Assembly, block: Block) -> CandidateCall:
        ended = not (block.more and written is assembly.calls[-1])
        written, tool, strict = self.named(written)
        name = written.name
        if tool is not None and is_tool_definition(written, lambda: ParameterTypes(prompt_parameters(tool)).names):
            detail = RECITED.format(quote(name))
            near = NearMiss(detail, (name,), block.body, "alone")
            raise Rejected(
                "malformed_tool_arguments",
                detail,
                strict=strict,
                counter="parse_failures",
                reason="arguments",
                near=near,
            )
        try:
            if strict and assembly.flaw is not None:
                raise ValueError(assembly.flaw)
            arguments, repaired, unwrapped = parse_arguments(written, tool, self._options, strict=strict)
            if (repaired or assembly.repaired) and is_template(block.body):
                raise ValueError("it is a template")
            if tool is not None and tool.kind != "custom" and not ended:
                missing = ParameterTypes(prompt_parameters(tool)).required - read_json(arguments).keys()
                if missing:
                    raise ValueError(f"it ended before {', '.join(sorted(missing))}")
        except ValueError as error:
            unread = raw_arguments(written.arguments) if tool is not None and tool.server else None
            if unread is not None:  # the gateway runs this tool and tells the model what is wrong (R15.5)
                return CandidateCall(name, unread, tool, False, (), False, written.call_id, written.source)
            detail = f"The model's call of {quote(name)} is malformed: {error}."
            raise Rejected(
                "malformed_tool_arguments",
                detail,
                strict=strict,
                counter="parse_failures",
                reason="arguments",
                near=NearMiss(detail, (name,)),
            ) from None
        mended = dict.fromkeys((*assembly.repaired, *repaired, *(() if block.closed else ("closer",))))
        return CandidateCall(name, arguments, tool, strict, mended, unwrapped, written.call_id, written.source)

    def _unknown(self, written: WrittenCall, rejected: Rejected, block: Block) -> CandidateCall | None:
        """Returns the call of an unknown tool if the gateway runs all tools (it will tell the model), else None."""
        name, syntax = rejected.name, block.syntax
        if name is None or not self.offered.gateways or not means_call(syntax, block.body, written):
            return None
        try:
            arguments = parse_arguments(written, None, self._options, strict=False).text
        except ValueError:
            if not is_marked(syntax):
                return None
            arguments = raw_arguments(written.arguments) or ""
        self._count("unknown_names")
        return CandidateCall(name, arguments, None, False, (), False, written.call_id, written.source)


# --- heads of calls ---------------------------------------------------------------------------------------------------


def has_object_calls(syntax: BlockSyntax) -> bool:
    """Returns True if the calls of this syntax are JSON objects or Python calls."""
    return any(branch.field in ("call", "calls") for node in syntax.nodes for branch in node)


def is_only_a_name(syntax: BlockSyntax, body: str) -> bool:
    """Returns True if a syntax without an opener has matched only a word so far, which may be the start of ordinary
    text."""
    if syntax.opener:
        return False
    begun = [branch.then for node in syntax.body[:1] for branch in node if branch.read == "name" and not branch.literal]
    return bool(begun) and not any(
        (branch.literal or ("[" if branch.read in ("array", "list") else "{")) in body
        for then in begun
        for branch in syntax.body[then]
    )


def reading_on_offer(written: WrittenCall, known: Mapping[str, ToolSpec]) -> WrittenCall:
    """Returns the first of a call's possible readings (`written`, its `alias`, its `otherwise`) that names a known
    tool, else `written`."""
    reading: WrittenCall | None = written
    while reading is not None and reading.name not in known:
        tool = None if reading.alias is None else known.get(reading.alias)
        if reading.slipped and tool is not None and tool.strict is True:
            return reading
        if reading.alias is not None and (tool is not None or reading.otherwise is None):
            return replace(reading, name=reading.alias)
        reading = reading.otherwise
    return written if reading is None else reading
