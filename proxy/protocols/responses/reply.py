"""Whole Responses answers, their output items, and the words that whole and streamed answers share.

Rules:

1. Ids are pure: an item's id follows from the response's id and its place, so a stream, a whole answer and whoever
   stores a turn have the same without asking each other. Sequential ids (C1) follow from the request and the order of
   calls.
2. An answer with a whole call is `completed`, whatever ended it (C18). Else a limit or a filter makes it `incomplete`,
   and its last item too. A call that a limit cut off is `incomplete` in either.
3. Neighbouring texts are one message item; text that is only whitespace is none, unless there is nothing else (R8.6).

4. What a model server says beside is written back, every field of it (`tests/protocols/test_nothing_is_lost.py`), but
   for what the gateway says itself: ids and states of items, and what is echoed from the client's request.

What `write_reply` cannot express: further choices, `ReplyChoice.extra` and fields of other protocols. Parts of a
message become messages, and a summary and the thinking that it is of are two items.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from toolwire.errors import BackendFault, GatewayError
from toolwire.folding import add_part, is_half
from toolwire.formats.engine.toolset import NAME_BYTES, note, note_of
from toolwire.model import (
    EMPTY,
    Extra,
    FinishReason,
    Message,
    ModelReply,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
    Usage,
    fields_of,
    merged,
    scoped,
)
from toolwire.protocols.base import WriteOptions
from toolwire.protocols.chat.reply import arguments_text, is_whole, text_of
from toolwire.protocols.responses.client_tools import item_types, read_client_call
from toolwire.protocols.responses.errors import read_fault
from toolwire.protocols.responses.ids import derived_id
from toolwire.protocols.responses.items import (
    PROTOCOL,
    call_extra,
    call_type,
    part_fields,
    read_reasoning,
    read_said,
    write_call,
    write_reasoning,
)
from toolwire.protocols.responses.resource import (
    DEFAULT_TIER,
    RESOURCE_KEYS,
    read_usage,
    resource,
    response_id,
    write_resource,
)
from toolwire.protocols.shared.call_deltas import new_call_id
from toolwire.protocols.shared.client_tools import ITEM_TYPE
from toolwire.protocols.shared.ends import of_cut, read_end, told
from toolwire.protocols.shared.noise import LEFT_OUT, NAMELESS, Note, of_item, unnoted
from toolwire.protocols.shared.numbers import MAX_PARTS, too_many, whole_number
from toolwire.protocols.shared.wire import nameless, read_answer, unreadable, whole
from toolwire.scan._grammar import SPACE

_NUMBERED: Final = re.compile(r"(?:fc|ctc)_([0-9]{1,9})")
# --- output items ---------------------------------------------------------------------------------------------------


class CallNames:
    """How the calls of one answer are named on the wire: their ids (C1) and their groups (R8.16).

    A model server that knows no groups calls a tool by its plain name; if only one group has it, that one is meant.
    """

    def __init__(self, options: WriteOptions, ident: str) -> None:
        self._ident = ident
        self._sequential = options.responses.ids == "sequential"
        self._last = 0
        if self._sequential:
            self._last = _highest(options.request.messages if options.conversation is None else options.conversation)
        self._placed: dict[str, str] = {}
        tools = options.request.tools
        self._groups = note_of(tools, CallNames) or note(tools, CallNames, _groups(tools), NAME_BYTES * len(tools))
        self._types = item_types(tools)

    def place(self, use: ToolUse, index: int) -> tuple[ToolUse, str]:
        """The call as it is written at this `output_index`, and the id of its item."""
        if use.namespace is None and self._groups.get(use.name) is not None:
            use = replace(use, namespace=self._groups[use.name])
        if use.kind == "function" and (own := self._types.get(use.name)) is not None:
            use = replace(use, extra=merged({PROTOCOL: {ITEM_TYPE: own}}, use.extra))
        kind = call_type(use)
        if not self._sequential:
            return use, derived_id(kind, self._ident, index)
        self._last += 1
        ident = self._placed[use.call_id] = f"{'ctc' if use.kind == 'custom' else 'fc'}_{self._last:03d}"
        return replace(use, call_id=ident), ident

    def is_own_item(self, name: str | None, extra: Extra) -> bool:
        """Whether a call is an item of a type of its own."""
        return name in self._types or ITEM_TYPE in fields_of(extra, PROTOCOL)

    def result(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """An item that is not modelled; if it is the result of a call of this answer, with the id that the call has."""
        placed = self._placed.get(payload.get("call_id", ""))
        return payload if placed is None else {**payload, "call_id": placed}


def _groups(tools: Iterable[ToolSpec]) -> dict[str, str | None]:
    """The group of each name that only one has."""
    groups: dict[str, set[str | None]] = {}
    for tool in tools:
        groups.setdefault(tool.name, set()).add(tool.namespace)
    return {name: next(iter(spaces)) for name, spaces in groups.items() if len(spaces) == 1}


def _highest(conversation: Iterable[Message]) -> int:
    """The highest sequential id among the calls and results of a conversation, 0 if there is none."""
    ids = (ident for message in conversation for part in message.parts for ident in _ids(part))
    found = (_NUMBERED.fullmatch(ident) for ident in ids if isinstance(ident, str))
    return max((int(match[1]) for match in found if match), default=0)


def _ids(part: Part) -> tuple[object, ...]:
    """The ids in a part of a conversation, also in one of a kind that is not modelled."""
    match part:
        case ToolUse():
            return part.call_id, part.item_id
        case ToolResult():
            return (part.call_id,)
        case Opaque(payload=Mapping() as payload):
            return payload.get("call_id"), payload.get("id")
        case _:
            return ()


SUMMARIES: Final = frozenset({"auto", "concise", "detailed"})
"""The values of `reasoning.summary` that ask for one."""
Origins = list[list[Part]]
"""For each item of an answer the parts that it shows, as they were: without what is only of the item."""


def output_items(
    parts: Iterable[Part],
    options: WriteOptions,
    ident: str,
    *,
    cut: bool = False,
    reason: str | None = None,
    origins: Origins | None = None,
) -> list[dict[str, Any]]:
    """The items of an answer that ended for `reason`. None: it did not end, so whitespace is not all there is, and a
    last call with half its arguments is left out. `cut`: a last item that is no call is `incomplete`. `origins` takes
    those of the items."""
    shown = list(_shown(parts, options, over=reason is not None))
    if cut and shown and isinstance(last_shown := shown[-1][0], ToolUse):
        cut = False  # a call is ended with its block, and what stands before it when it begins
        if reason is None and is_half(last_shown):
            shown.pop()
    if origins is not None:
        origins += [given for _, given in shown]
    names: CallNames | None = None
    items: list[dict[str, Any]] = []
    for number, (part, _) in enumerate(shown):
        last = cut and number == len(shown) - 1
        index = len(items)
        status = "incomplete" if last else "completed"
        match part:
            case ToolUse():
                names = names or CallNames(options, ident)
                use, item_id = names.place(part, index)
                items.append(write_call(use, item_id, "completed" if is_whole(use, reason or "") else "incomplete"))
            case Text() | Refusal():
                content = text_part(whole(part.text)) if isinstance(part, Text) else refusal_part(whole(part.text))
                if part.extra:
                    content |= part_fields(part)
                item_id = derived_id("message", ident, index)
                items.append(message_item(item_id, [content], status, item_fields(part.extra) if part.extra else EMPTY))
            case Reasoning():
                part = replace(part, extra=as_shown(part.extra, options))
                item_id = derived_id("reasoning", ident, index)
                items.append(write_reasoning(part, item_id, status if last else None))
            case Opaque():
                payload = part.payload if names is None else names.result(part.payload)
                items.append(opaque_item(payload, ident, index))
            case _:
                raise TypeError(f"{type(part).__name__} has no place in a reply")
    return items


def _shown(parts: Iterable[Part], options: WriteOptions, over: bool) -> Iterator[tuple[Part, list[Part]]]:
    """The parts that become items (rule 3, R7.8), and of what they were made."""
    merged: list[tuple[Part, list[Part]]] = []
    for part in parts:
        if isinstance(part, Reasoning) and options.reasoning_field in ("inline", "drop"):
            if options.reasoning_field == "drop" or not part.text:
                continue
            part = Text(f"{options.reasoning_tags[0]}{part.text}{options.reasoning_tags[1]}")
        if isinstance(part, Opaque) and not is_item(part):
            continue
        if isinstance(part, Reasoning) and not (part.text or fields_of(part.extra, PROTOCOL)):
            continue
        given = part
        if isinstance(part, Text | Refusal):
            if not part.text:
                continue
            if part.extra:
                own = scoped(PROTOCOL, fields_of(part.extra, PROTOCOL))  # what others say of it keeps no texts apart
                part = part if own == part.extra else replace(part, extra=own)
        last = merged[-1][0] if merged else None
        if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
            merged[-1] = (Text(last.text + part.text), [*merged[-1][1], given])
        else:
            merged.append((part, [given]))
    said = False
    for number, (part, given_parts) in enumerate(merged):
        blank = isinstance(part, Text) and not part.text.strip(SPACE) and not part.extra
        if blank and (said or not over or number < len(merged) - 1):
            continue
        said = said or not isinstance(part, Reasoning)
        yield part, given_parts


def as_shown(extra: Extra, options: WriteOptions) -> Extra:
    """Fields of a reasoning item: its text is a summary if the client asks for one (R28.3), unless its server has
    summed it up itself. Of a response that is kept, the id of an item leads to it, so it is not its server's."""
    fields = fields_of(extra, PROTOCOL)
    if "id" in fields and options.conversation is not None and options.body.get("store") is not False:
        extra = {**extra, PROTOCOL: {key: value for key, value in fields.items() if key != "id"}}
    reasoning = options.body.get("reasoning")
    asked = reasoning.get("summary") or reasoning.get("generate_summary") if isinstance(reasoning, Mapping) else None
    if asked not in SUMMARIES or fields_of(extra, PROTOCOL).get("continues"):
        return extra
    return merged(extra, {PROTOCOL: {"summary": True}})


def is_item(part: Opaque) -> bool:
    """Whether an unmodelled part is an output item of this protocol, and not a frame of a stream."""
    kind = part.payload.get("type") if isinstance(part.payload, Mapping) else None
    return part.protocol == PROTOCOL and isinstance(kind, str) and not kind.startswith("response.")


def opaque_item(payload: Mapping[str, Any], ident: str, index: int) -> dict[str, Any]:
    """An output item that is not modelled, with its own id if it has one."""
    return {"id": derived_id(payload["type"], ident, index), **payload}


def message_item(
    item_id: str, content: Sequence[Mapping[str, Any]], status: str, fields: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """A message of the assistant. `fields` are those that are not modelled."""
    own = {"id": item_id, "type": "message", "status": status, "content": list(content), "role": "assistant"}
    return {**fields, **own} if fields else own


def item_fields(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fields of the message that a text stands in."""
    fields: Mapping[str, Any] = fields_of(extra, PROTOCOL).get("item", EMPTY)
    return fields


def text_part(text: str) -> dict[str, Any]:
    """The one content part of a message of text."""
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def refusal_part(text: str) -> dict[str, Any]:
    """The one content part of a message that declines."""
    return {"type": "refusal", "refusal": text}


# --- whole answers --------------------------------------------------------------------------------------------------


def outcome(reason: str, called: bool, options: WriteOptions) -> tuple[Literal["completed", "incomplete"], str | None]:
    """`status`, and the reason in `incomplete_details`, of an answer that ended for `reason` (rule 2)."""
    word = None if called else told(reason).responses
    return ("completed", None) if word is None else ("incomplete", word)


@dataclass(frozen=True, slots=True)
class Finished:
    """The resource of an answer and its JSON, made once for the store and for the client. `origins` are those of its
    output."""

    reply: ModelReply
    shown: Mapping[str, Any]
    written: bytes
    origins: Origins


def write_reply(reply: ModelReply, options: WriteOptions) -> bytes:
    """The body of a whole answer (R8.5)."""
    return write_finished(reply, options).written


def write_finished(reply: ModelReply, options: WriteOptions) -> Finished:
    """A whole answer, or what a stream amounts to."""
    known: Finished | None = options.made.get(write_finished)
    if known is None or known.reply is not reply:
        origins: Origins = []
        shown = finished(reply, options, origins)
        known = options.made[write_finished] = Finished(reply, shown, write_resource(shown, options), origins)
    return known


def written_as(shown: Mapping[str, Any], options: WriteOptions) -> bytes:
    """The JSON of a resource, which may have been written for the store."""
    known: Finished | None = options.made.get(write_finished)
    return known.written if known is not None and known.shown == shown else write_resource(shown, options)


def finished(reply: ModelReply, options: WriteOptions, origins: Origins | None = None) -> dict[str, Any]:
    """The resource of a whole answer. `completed_at` is that of `reply.extra`, else now; null if it is incomplete.
    `origins` takes those of its output."""
    ident = response_id(reply.id)
    choice = reply.choices[0] if reply.choices else ReplyChoice(())
    called = any(isinstance(part, ToolUse) and is_whole(part, choice.reason) for part in choice.parts)
    status, reason = outcome(choice.reason, called, options)
    return resource(
        options,
        ident,
        status,
        output_items(choice.parts, options, ident, cut=status == "incomplete", reason=choice.reason, origins=origins),
        usage=reply.usage or Usage(),
        reason=reason,
        completed_at=end_time(reply.extra) if status == "completed" else None,
        fields=fields_of(reply.extra, PROTOCOL),
    )


def end_time(extra: Mapping[str, Any]) -> int:
    """When an answer was completed, Unix seconds."""
    given = extra.get("completed_at")
    return given if isinstance(given, int) else int(time.time())


def broken_off(
    reply: ModelReply,
    options: WriteOptions,
    status: Literal["failed", "cancelled"],
    error: GatewayError | None = None,
    origins: Origins | None = None,
) -> dict[str, Any]:
    """The resource of an answer that broke off after `reply` (see `toolwire.folding.Folding.reply`). `origins` takes
    those of its output."""
    ident = response_id(reply.id)
    parts = reply.choices[0].parts if reply.choices else ()
    output = output_items(parts, options, ident, cut=True, origins=origins)
    return resource(options, ident, status, output, error=error)


def read_reply(body: bytes, note: Note = unnoted) -> ModelReply:
    """A whole answer. Raises `BackendFault` `upstream_invalid_response`, or the error that the body holds."""
    answer = read_answer(body)
    error = read_fault(answer) or failure(answer)
    if error is not None:
        raise error
    output = answer.get("output")
    if not isinstance(output, list):
        raise unreadable("The model server's answer has no output", answer)
    if len(output) > MAX_PARTS:
        raise too_many("items", MAX_PARTS)
    if not output and answer.get("status") in ("queued", "in_progress"):
        raise unreadable("The model server's response is not finished; its status is", answer["status"])
    parts: list[Part] = []
    lacks_name = False
    for item in output:
        if not isinstance(item, dict):
            continue
        if (kind := of_item(item)) is not None:
            note(LEFT_OUT, kind)
            continue
        for part in read_output_item(item):
            if isinstance(part, ToolUse) and not part.name.strip(SPACE):
                lacks_name = True
                note(NAMELESS, "")
            else:
                add_part(parts, part)
    if lacks_name and not parts and finish_reason(answer) in FinishReason.WHOLE:
        raise nameless()
    return ModelReply(
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        created=whole_number(answer.get("created_at")),
        choices=(ReplyChoice(tuple(parts), finish_reason(answer, note), probabilities(*_spoken(output))),),
        usage=read_usage(answer.get("usage")),
        extra=finish_extra(answer),
    )


def _spoken(output: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """The content parts of all messages."""
    for item in output:
        content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))


def probabilities(*said: Mapping[str, Any]) -> Extra:
    """What is said of the probabilities of tokens, as an `extra` in Chat's form, whose entries are the same."""
    lists = (part["logprobs"] for part in said if isinstance(part.get("logprobs"), list))
    tokens = [token for tokens in lists for token in tokens]
    return {"logprobs": {"content": tokens, "refusal": None}} if tokens else EMPTY


def read_output_item(item: Mapping[str, Any]) -> list[Part]:
    """The parts of an output item of a model server; `Opaque` if it is none that is known."""
    match item.get("type"):
        case "message":
            if not isinstance(item.get("content"), list):
                item = {**item, "content": ()}
            return read_said(item, follows=False)
        case "function_call" | "custom_tool_call":
            return [read_output_call(item)]
        case "reasoning":
            return read_reasoning(item)
        case _:
            use = read_client_call(item, text_of(item.get("id")) or None)
            return [Opaque(PROTOCOL, item) if use is None else replace(use, item_id=None)]


def read_output_call(item: Mapping[str, Any]) -> ToolUse:
    """A call of a model server, which may have left out anything."""
    call_id = text_of(item.get("call_id")) or text_of(item.get("id")) or new_call_id()
    namespace = text_of(item.get("namespace")) or None
    name, extra = text_of(item.get("name")), call_extra(item)
    if item.get("type") == "custom_tool_call":
        return ToolUse(call_id, name, text_of(item.get("input")), "custom", namespace, extra=extra)
    arguments = arguments_text(item.get("arguments"))
    whole_text = arguments if arguments.strip(SPACE) else "" if item.get("status") == "incomplete" else "{}"
    return ToolUse(call_id, name, whole_text, "function", namespace, extra=extra)


def finish_reason(answer: Mapping[str, Any], note: Note = unnoted, *, incomplete: bool = False) -> str:
    """Why a model server's answer ended, in the words of the model. `incomplete`: the event says so, if the status says
    nothing. Raises `BackendFault` for an end that is an error."""
    details = answer.get("incomplete_details")
    word = text_of(details.get("reason")) if isinstance(details, Mapping) else ""
    if answer.get("status", "incomplete" if incomplete or word else None) != "incomplete":
        return "stop"
    return of_cut(read_end(word, note)) if word else "length"


def finish_extra(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of a model server's resource is kept beside the answer."""
    completed_at = whole_number(answer.get("completed_at"))
    tier = answer.get("service_tier")
    fields = {key: value for key, value in answer.items() if key not in RESOURCE_KEYS and value is not None}
    if isinstance(tier, str) and tier != DEFAULT_TIER:
        fields["service_tier"] = tier
    extra = scoped(PROTOCOL, fields)
    return {**extra, "completed_at": completed_at} if completed_at else extra


def failure(answer: Mapping[str, Any]) -> GatewayError | None:
    """The fault of a resource that says it failed or was cancelled without saying why."""
    if answer.get("status") in ("failed", "cancelled"):
        return BackendFault(f"The model server's response has the status {answer['status']}.")
    return None
