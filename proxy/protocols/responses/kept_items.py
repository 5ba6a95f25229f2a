"""Items as a client is shown them again: those of a request are listed, and made of kept messages they are those that
the client saw, as far as messages say them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...model import Message, ModelRequest, Opaque, Part, ToolResult, ToolUse, merged
from ..base import WriteOptions
from ..wire import dump
from .ids import PREFIXES, derived_id
from .items import PROTOCOL, Reading, read_call, write_result
from .reply import Origins, output_items

Items = Sequence[Mapping[str, Any]]

_WITH_STATUS: Final = PREFIXES.keys() - {"mcp_list_tools", "mcp_approval_request", "mcp_approval_response"}
"""Types of items that are shown with a `status`."""
_PLAIN: Final = WriteOptions(request=ModelRequest("", ()), created=0)
"""What was shown is made as nobody asked for anything in particular."""


# --- items of a request ---------------------------------------------------------------------------------------------


def listed(item: Mapping[str, Any], response_id: str, index: int) -> Mapping[str, Any]:
    """An item, which has a `type`, as `GET /v1/responses/{id}/input_items` lists it at this place: with `id` and
    `status`, content is always parts. Ids that the client gave stay; the others are derived. Idempotent."""
    kind = item["type"]
    shown = {key: value for key, value in item.items() if value is not None}
    if kind == "item_reference":
        return shown
    shown["id"] = item.get("id") or derived_id(kind, response_id, index, given=True)
    if kind == "message":
        shown["content"] = _listed_content(item.get("content"), item["role"])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item["output"]
        if not isinstance(output, str | list):
            shown["output"] = dump(output).decode()
    elif kind == "reasoning":
        shown.setdefault("summary", [])
        return shown
    if kind in _WITH_STATUS:
        shown.setdefault("status", "completed")
    return shown


def _listed_content(content: str | Iterable[Mapping[str, Any]] | None, role: str) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return [
        {"annotations": [], "logprobs": [], **part}
        if part["type"] == "output_text"
        else {"detail": "auto", **part}
        if part["type"] == "input_image"
        else part
        for part in content or ()
    ]


# --- messages of an answer ------------------------------------------------------------------------------------------


def answered(shown: Items, origins: Origins) -> tuple[Message, ...]:
    """The messages that the output of an answer amounts to. `origins` are for each item the parts that it shows: from
    them comes what the item does not say, the fields of other protocols; without any it is read from the item alone."""
    reading = Reading()
    for item, parts in zip(shown, origins, strict=True):
        match parts:
            case [ToolUse(extra=extra)]:  # by the name and the id that the client knows
                use = read_call(item, item["id"])
                reading.call(replace(use, extra=merged(use.extra, extra)))
            case [] | [Opaque()]:
                reading.take(item)
            case _:
                reading.said(parts)
    return reading.end()


# --- items of messages ----------------------------------------------------------------------------------------------


def made_output(messages: Sequence[Message], ident: str) -> list[dict[str, Any]]:
    """The items of an answer, as far as its messages say them."""
    return output_items(_flat(messages), _PLAIN, ident, reason="stop") if messages else []


def _flat(messages: Sequence[Message]) -> Iterator[Part]:
    """The parts of an answer, in which a result is an item that is not modelled."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield Opaque(PROTOCOL, {**write_result(part), "status": "completed"})
            else:
                yield part
