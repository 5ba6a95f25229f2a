"""What is known of a call before it is emitted: which tool may be meant, and its arguments as that tool takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolwire.call_policy.coercion import CoercionKind
from toolwire.call_policy.custom import custom_input, free_text
from toolwire.call_policy.json_calls import raw_string
from toolwire.call_policy.written import Settled, Written
from toolwire.config import CallsConfig
from toolwire.formats.engine.rendering import by_prompt_name, prompt_parameters
from toolwire.formats.engine.toolset import NAME_BYTES, note, note_of
from toolwire.model import ModelRequest, ToolChoice, ToolSpec
from toolwire.scan._grammar import valid_text
from toolwire.support.duplicate_keys import each_key_once


@dataclass(slots=True)
class Candidate:
    """A call that reads well. `repaired` and `coerced` (how) and `unwrapped` say what is to be counted once it is
    emitted."""

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
        """`arguments` is free text."""
        return self.tool is not None and self.tool.kind == "custom"


class Names(NamedTuple):
    """The tools by the names under which the model knows them, and the names that may be called; None: any.
    `callable`: those of the tools, in their order. `strict`: one of the tools is. `gateways`: see `are_gateways`."""

    known: Mapping[str, ToolSpec]
    allowed: frozenset[str] | None
    callable: tuple[str, ...] = ()
    strict: bool = False
    gateways: bool = False

    def may_be_called(self, name: str) -> bool:
        """Whether a call may have this name."""
        return bool(name) and (self.allowed is None or name in self.allowed)


def are_gateways(tools: Iterable[ToolSpec]) -> bool:
    """There are tools, and the gateway runs all of them: then a call of any other name was made to the gateway as well,
    and it is the gateway that says so to the model (R15.5)."""
    ours = [tool.server for tool in tools if tool.kind != "hosted"]
    return bool(ours) and all(ours)


def names_on_offer(tools: Sequence[ToolSpec] | None, choice: ToolChoice) -> Names:
    """The names of `tools` under `choice`; None: nothing is known of the tools. Noted with a `ToolSet`."""
    if tools is None:
        return Names({}, None)
    key = (names_on_offer, choice.mode, choice.name, choice.allowed)
    noted: Names | None = note_of(tools, key)
    if noted is not None:
        return noted
    known = by_prompt_name(tools)
    # The request says which of its tools may be called, so that this rule stands in one place.
    wanted = {id(tool) for tool in ModelRequest("", (), tuple(tools), choice).callable_tools}
    callable_ = tuple(name for name, tool in known.items() if id(tool) in wanted)
    strict = any(tool.strict is True for tool in tools)
    names = Names(known, frozenset(callable_), callable_, strict, are_gateways(tools))
    return note(tools, key, names, NAME_BYTES * len(tools))


def settled(written: Written, tool: ToolSpec | None, options: CallsConfig, *, strict: bool) -> Settled:
    """The arguments of a call; of a custom tool the text for it. Raises `ValueError`."""
    custom = tool is not None and tool.kind == "custom"
    try:
        found = written.arguments.settle(
            None if tool is None else prompt_parameters(tool),
            repair=options.repair == "safe" and not strict,
            objects=options.sentinel_arguments != "string",
        )
        arguments = each_key_once(found.text)  # what is judged is what a client reads
        return found._replace(text=custom_input(arguments) if custom else arguments)
    except ValueError:
        raw = raw_string(written.arguments) if custom else None
        text = None if raw is None else free_text(valid_text(raw))
        if text is None:
            raise
        return Settled(text)
