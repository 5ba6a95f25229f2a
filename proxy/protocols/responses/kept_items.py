"""Items as a client is shown them again: those of a request are listed, and made of kept messages they are those that
the client saw, field for field.

The law of this module: `mended(made, difference(given, made))` is `given`, for any two lists of items. So nothing has
to be known of the many ways in which items can say the same (`items.py` lists them): what messages say is made of them,
and what they do not say (most often an id that the client gave) is the difference, which is kept beside them. Equal as
JSON: the order of an item's fields is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...model import Message, ModelRequest, Opaque, Part, ToolResult, ToolUse
from ..base import WriteOptions
from ..wire import dump
from .ids import PREFIXES, derived_id
from .items import PROTOCOL, Reading, read_call, write_result
from .reply import Origins, output_items

Items = Sequence[Mapping[str, Any]]
AtPlace = Callable[[Mapping[str, Any], int], Mapping[str, Any]]
"""An item as it is at a place of the whole list: an id may follow from that."""

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
    if kind in PREFIXES:
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
                reading.call(replace(read_call(item, item["id"]), extra=extra))
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


# --- what messages do not say ---------------------------------------------------------------------------------------


def difference(given: Items, made: Items, at_place: AtPlace) -> Mapping[str, Any] | None:
    """What has to be kept to make `given` of `made` again; None if they are equal, each as it is `at_place`.

    `fields`: by place, the fields that an item has beside or otherwise; one that is null it has not. `items`: by place,
    those that were not made. Where it is not as simple as that, `all` of them.
    """
    fields: dict[str, Mapping[str, Any]] = {}
    items: dict[str, Mapping[str, Any]] = {}
    count = 0
    for place, item in enumerate(given):
        other = made[count] if count < len(made) else None
        if item == other:
            count += 1
            continue
        item = at_place(item, place)
        if other is None or not _alike(item, other):
            items[str(place)] = item
            continue
        mine = at_place(other, place)
        count += 1
        if item != mine:
            unsaid = {key: value for key, value in item.items() if key not in mine or value != mine[key]}
            if None in unsaid.values():
                return _all(given, at_place)
            fields[str(place)] = {**unsaid, **{key: None for key in mine if key not in item}}
    if count < len(made):
        return _all(given, at_place)
    return {name: kept for name, kept in (("fields", fields), ("items", items)) if kept} or None


def _all(items: Items, at_place: AtPlace) -> Mapping[str, Any]:
    return {"all": [at_place(item, place) for place, item in enumerate(items)]}


def mended(made: Items, told: Mapping[str, Any] | None, at_place: AtPlace) -> list[Mapping[str, Any]]:
    """What `difference` was told of: the items as they were given."""
    if told is None:
        return [at_place(item, place) for place, item in enumerate(made)]
    if "all" in told:
        return list(told["all"])
    fields, items = told.get("fields", {}), told.get("items", {})
    rest = iter(made)
    whole: list[Mapping[str, Any]] = []
    for place in range(len(made) + len(items)):
        key = str(place)
        if key in items:
            whole.append(items[key])
            continue
        item = at_place(next(rest), place)
        if key in fields:
            other = fields[key]
            item = {name: value for name, value in {**item, **other}.items() if value is not None or name not in other}
        whole.append(item)
    return whole


def as_made(item: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    """For items that say their place themselves."""
    return item


def _alike(item: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether one may have been made for the other."""
    return all(item.get(key) == other.get(key) for key in ("type", "role", "call_id"))
