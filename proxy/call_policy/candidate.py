"""A call before it is emitted: the tool it may mean, and its arguments in the form that the tool takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..config import CallsConfig
from ..formats.engine.rendering import by_prompt_name, prompt_parameters
from ..formats.engine.toolset import NAME_BYTES, note, note_of
from ..model import ModelRequest, ToolChoice, ToolSpec
from ..repair.relaxed_json import read_json
from ..scan._grammar import valid_text
from ..support.duplicate_keys import each_key_once
from .coercion import CoercionKind
from .json_calls import raw_string, read_nearly
from .written import ParsedArguments, WrittenCall

JUDGED: Final = 64
"""After this many calls of a block, no further ones are judged if one is wrong already, except those whose mistakes are
strict: the block is no call then."""


@dataclass(slots=True)
class CandidateCall:
    """A call that could be read and that names a callable tool. What was done to it (`repaired`, `coerced`,
    `unwrapped`) is counted when the call is sent."""

    name: str
    arguments: str
    tool: ToolSpec | None
    strict: bool
    repaired: Collection[str]
    unwrapped: bool
    call_id: str | None
    source: str | None
    coerced: tuple[CoercionKind, ...] = ()

    @property
    def is_custom(self) -> bool:
        """True if `arguments` is free text."""
        return self.tool is not None and self.tool.kind == "custom"


class ToolNames(NamedTuple):
    """The tools by the names that the model knows, and the names that may be called (`allowed`; None allows any).
    `callable` are the callable tools' names in their order. `strict` is True if any tool is strict. `gateways`: see
    `are_gateways`."""

    known: Mapping[str, ToolSpec]
    allowed: frozenset[str] | None
    callable: tuple[str, ...] = ()
    strict: bool = False
    gateways: bool = False

    def may_be_called(self, name: str) -> bool:
        """Returns True if a call may have this name."""
        return bool(name) and (self.allowed is None or name in self.allowed)


def are_gateways(tools: Iterable[ToolSpec]) -> bool:
    """Returns True if the gateway runs all tools (and there are some). A call of any other name then goes to the
    gateway too, which tells the model that there is no such tool (R15.5)."""
    ours = [tool.server for tool in tools if tool.kind != "hosted"]
    return bool(ours) and all(ours)


def names_on_offer(tools: Sequence[ToolSpec] | None, choice: ToolChoice) -> ToolNames:
    """Returns the callable names of `tools` under `choice`; with `tools` None every name is callable. Cached with the
    `ToolSet`."""
    if tools is None:
        return ToolNames({}, None)
    key = (names_on_offer, choice.mode, choice.name, choice.allowed)
    noted: ToolNames | None = note_of(tools, key)
    if noted is not None:
        return noted
    known = by_prompt_name(tools)
    # `ModelRequest` owns the rule for which tools may be called.
    wanted = {id(tool) for tool in ModelRequest("", (), tuple(tools), choice).callable_tools}
    callable_ = tuple(name for name, tool in known.items() if id(tool) in wanted)
    strict = any(tool.strict is True for tool in tools)
    names = ToolNames(known, frozenset(callable_), callable_, strict, are_gateways(tools))
    return note(tools, key, names, NAME_BYTES * len(tools))


def parse_arguments(
    written: WrittenCall, tool: ToolSpec | None, options: CallsConfig, *, strict: bool
) -> ParsedArguments:
    """Returns the arguments of a call; for a custom tool, its free text. Raises `ValueError` if they cannot be read."""
    custom = tool is not None and tool.kind == "custom"
    try:
        found = written.arguments.settle(
            None if tool is None else prompt_parameters(tool),
            repair=options.repair == "safe" and not strict,
            objects=options.sentinel_arguments != "string",
        )
        arguments = each_key_once(found.text)  # checks must see what the client will read
        return found._replace(text=custom_input(arguments) if custom else arguments)
    except ValueError:
        raw = raw_string(written.arguments) if custom else None
        text = None if raw is None else free_text(valid_text(raw))
        if text is None:
            raise
        return ParsedArguments(text)


# --- free text of custom tools ----------------------------------------------------------------------------------------


_ATTEMPT: Final = re.compile(r"""\s*\{\s*["']?input["']?\s*:""")
"""The beginning of a custom tool's arguments that were meant to be the taught object `{"input": TEXT}`."""


def custom_input(arguments: str) -> str:
    """Returns the text in a custom tool's `arguments`. Raises `ValueError` if there is no string `input`."""
    value = read_json(arguments)
    text = value.get("input") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError("its arguments hold no string `input`")
    return valid_text(text)


def free_text(raw: str) -> str | None:
    """Returns a custom tool's text if the model wrote it without the object around it, or None if the text is a
    (broken) object."""
    if not raw.strip() or _ATTEMPT.match(raw):
        return None
    try:
        value, *_ = read_nearly(raw, True)
    except ValueError:
        return raw
    return None if isinstance(value, dict) else raw
