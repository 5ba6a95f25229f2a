"""Whole Responses answers, their output items, and what whole and streamed answers share.

Rules:

1. Ids are computed: an item's id follows from the response's id and the item's position, so streams, whole answers and
   stored turns have the same ids. Sequential ids (C1) follow from the request and the order of calls.
2. An answer with a complete call is `completed`, whatever ended it (C18). Otherwise a limit or a filter makes it and
   its last item `incomplete`. A call that was cut off is `incomplete` in both cases.
3. Neighbouring texts are one message item. Text that is only whitespace is left out, unless the answer has nothing else
   (R8.6).
4. All unmodelled fields of a server are written back (`tests/protocols/test_nothing_is_lost.py`), except those that the
   gateway writes itself: ids and states of items, and fields echoed from the client's request.

`write_reply` cannot express further choices, `ReplyChoice.extra` and fields of other protocols. Parts of a message
become messages of their own, and a summary and its reasoning become two items.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ...errors import BackendFault, GatewayError
from ...folding import add_part, has_incomplete_arguments
from ...formats.engine.toolset import NAME_BYTES, note, note_of
from ...model import (
    EMPTY,
    Extra,
    FinishReason,
    Message,
    ModelReply,
    OpaquePart,
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
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..chat.reply import arguments_text, is_whole, text_of
from ..shared.call_deltas import new_call_id
from ..shared.client_tools import ITEM_TYPE
from ..shared.ends import cut_off_reason, finish_words, read_end
from ..shared.noise import LEFT_OUT, NAMELESS, Note, ignore_note, of_item
from ..shared.numbers import MAX_PARTS, too_many, whole_number
from ..shared.wire import nameless_call_fault, read_answer, unreadable_answer
from ..streams import WriteOptions
from .client_tools import item_types, read_client_call
from .ids import derived_id
from .item_writer import call_type, part_fields, write_call, write_reasoning
from .items import PROTOCOL, call_extra, read_assistant_message, read_reasoning, usual_item
from .resource import DEFAULT_TIER, RESOURCE_KEYS, read_fault, read_usage, resource, response_id, write_resource

_NUMBERED: Final = re.compile(r"(?:fc|ctc)_([0-9]{1,9})")
# --- output items ---------------------------------------------------------------------------------------------------


class CallNames:
    """Wire names of the calls of one answer: their ids (C1) and their namespaces (R8.16).

    A model server without namespaces calls a tool by its plain name; if only one namespace has that name, the call gets
    it.
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
        """Returns the call as it is written at this `output_index`, and the id of its item."""
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
        """True if the item of a call of the tool `name` has a type other than `function_call`, such as `shell_call`."""
        return name in self._types or ITEM_TYPE in fields_of(extra, PROTOCOL)

    def result(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns an unmodelled item; the result of a call of this answer gets the call's id on the wire."""
        placed = self._placed.get(payload.get("call_id", ""))
        return payload if placed is None else {**payload, "call_id": placed}


def _groups(tools: Iterable[ToolSpec]) -> dict[str, str | None]:
    """Returns the namespace of each tool name that is unique."""
    groups: dict[str, set[str | None]] = {}
    for tool in tools:
        groups.setdefault(tool.name, set()).add(tool.namespace)
    return {name: next(iter(spaces)) for name, spaces in groups.items() if len(spaces) == 1}


def _highest(conversation: Iterable[Message]) -> int:
    """Returns the highest sequential id among the calls and results of a conversation; 0 if there is none."""
    ids = (ident for message in conversation for part in message.parts for ident in _ids(part))
    matches = (_NUMBERED.fullmatch(ident) for ident in ids if isinstance(ident, str))
    return max((int(match[1]) for match in matches if match), default=0)


def _ids(part: Part) -> tuple[object, ...]:
    """Returns the ids in a part of a conversation, including unmodelled parts."""
    match part:
        case ToolUse():
            return part.call_id, part.item_id
        case ToolResult():
            return (part.call_id,)
        case OpaquePart(payload=Mapping() as payload):
            return payload.get("call_id"), payload.get("id")
        case _:
            return ()


SUMMARIES: Final = frozenset({"auto", "concise", "detailed"})
"""Values of `reasoning.summary` that request a summary."""
Origins = list[list[Part]]
"""For each item of an answer, the parts that it was made from."""


def output_items(
    parts: Iterable[Part],
    options: WriteOptions,
    ident: str,
    *,
    cut: bool = False,
    reason: str | None = None,
    origins: Origins | None = None,
) -> list[dict[str, Any]]:
    """Returns the items of an answer that ended for `reason`. None: it broke off, so whitespace may not be all there
    is, and a last call with half its arguments is left out. `cut`: the last item is `incomplete`, unless it is a call.
    The origins of the items are added to `origins`."""
    shown = list(_shown(parts, options, is_finished=reason is not None))
    if cut and shown and isinstance(last_shown := shown[-1][0], ToolUse):
        cut = False  # a call ends with its block, and begins only after everything before it has ended
        if reason is None and has_incomplete_arguments(last_shown):
            shown.pop()
    if origins is not None:
        origins += [sources for _, sources in shown]
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
                item_id = derived_id("message", ident, index)
                items.append(message_item(item_id, [content_part(part)], status, item_fields(part.extra)))
            case Reasoning():
                part = replace(part, extra=as_shown(part.extra, options))
                item_id = derived_id("reasoning", ident, index)
                items.append(write_reasoning(part, item_id, status if last else None))
            case OpaquePart():
                payload = part.payload if names is None else names.result(part.payload)
                items.append(opaque_item(payload, ident, index))
            case _:
                raise TypeError(f"{type(part).__name__} has no place in a reply")
    return items


def _shown(parts: Iterable[Part], options: WriteOptions, is_finished: bool) -> Iterator[tuple[Part, list[Part]]]:
    """Yields the parts that become items (rule 3, R7.8), each with the parts it was made from."""
    merged: list[tuple[Part, list[Part]]] = []
    for part in parts:
        if isinstance(part, Reasoning) and options.reasoning_field in ("inline", "drop"):
            if options.reasoning_field == "drop" or not part.text:
                continue
            part = Text(f"{options.reasoning_tags[0]}{part.text}{options.reasoning_tags[1]}")
        if isinstance(part, OpaquePart) and not is_item(part):
            continue
        if isinstance(part, Reasoning) and not (part.text or fields_of(part.extra, PROTOCOL)):
            continue
        source = part
        if isinstance(part, Text | Refusal):
            if not part.text:
                continue
            if part.extra:
                # fields of other protocols must not keep texts apart
                own = scoped(PROTOCOL, fields_of(part.extra, PROTOCOL))
                part = part if own == part.extra else replace(part, extra=own)
        last = merged[-1][0] if merged else None
        if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
            merged[-1] = (Text(last.text + part.text), [*merged[-1][1], source])
        else:
            merged.append((part, [source]))
    has_content = False
    for number, (part, sources) in enumerate(merged):
        blank = isinstance(part, Text) and not part.text.strip(SPACE) and not part.extra
        if blank and (has_content or not is_finished or number < len(merged) - 1):
            continue
        has_content = has_content or not isinstance(part, Reasoning)
        yield part, sources


def as_shown(extra: Extra, options: WriteOptions) -> Extra:
    """Returns the fields of a reasoning item. Its text is marked as summary if the client asks for one (R28.3) and the
    server did not make one. In a stored response an item's id must lead to the response, so the server's id is
    removed."""
    fields = fields_of(extra, PROTOCOL)
    if "id" in fields and options.conversation is not None and options.body.get("store") is not False:
        extra = {**extra, PROTOCOL: {key: value for key, value in fields.items() if key != "id"}}
    reasoning = options.body.get("reasoning")
    asked = reasoning.get("summary") or reasoning.get("generate_summary") if isinstance(reasoning, Mapping) else None
    if asked not in SUMMARIES or fields_of(extra, PROTOCOL).get("continues"):
        return extra
    return merged(extra, {PROTOCOL: {"summary": True}})


def is_item(part: OpaquePart) -> bool:
    """True if an unmodelled part is an output item of this protocol, False if it is a frame of a stream."""
    kind = part.payload.get("type") if isinstance(part.payload, Mapping) else None
    return part.protocol == PROTOCOL and isinstance(kind, str) and not kind.startswith("response.")


def opaque_item(payload: Mapping[str, Any], ident: str, index: int) -> dict[str, Any]:
    """Returns an unmodelled output item, with an id if it has none."""
    return {"id": derived_id(payload["type"], ident, index), **payload}


def message_item(
    item_id: str, content: Sequence[Mapping[str, Any]], status: str, fields: Mapping[str, Any] = EMPTY
) -> dict[str, Any]:
    """Returns an assistant message. `fields` are the unmodelled ones."""
    own = {"id": item_id, "type": "message", "status": status, "content": list(content), "role": "assistant"}
    return {**fields, **own} if fields else own


def item_fields(extra: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the unmodelled fields of the message item around a text, from the text's `extra`."""
    fields: Mapping[str, Any] = fields_of(extra, PROTOCOL).get("item", EMPTY)
    return fields


def content_part(part: Text | Refusal) -> dict[str, Any]:
    """Returns the only content part of a message."""
    text = valid_text(part.text)
    if isinstance(part, Text):
        own: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    else:
        own = {"type": "refusal", "refusal": text}
    return {**own, **part_fields(part)}


# --- whole answers --------------------------------------------------------------------------------------------------


def outcome(reason: str, called: bool, options: WriteOptions) -> tuple[Literal["completed", "incomplete"], str | None]:
    """Returns `status`, and the reason in `incomplete_details`, of an answer that ended for `reason` (rule 2)."""
    word = None if called else finish_words(reason).responses
    return ("completed", None) if word is None else ("incomplete", word)


@dataclass(frozen=True, slots=True)
class Finished:
    """The response object of an answer and its JSON, made once for the store and the client. `origins` are the origins
    of its output items."""

    reply: ModelReply
    shown: Mapping[str, Any]
    written: bytes
    origins: Origins


def write_reply(reply: ModelReply, options: WriteOptions) -> bytes:
    """Returns the body of a whole answer (R8.5)."""
    return write_finished(reply, options).written


def write_finished(reply: ModelReply, options: WriteOptions) -> Finished:
    """Returns the response object of a whole answer, or of a finished stream, with its JSON; cached in `options`."""
    known: Finished | None = options.made.get(write_finished)
    if known is None or known.reply is not reply:
        origins: Origins = []
        shown = finished(reply, options, origins)
        known = options.made[write_finished] = Finished(reply, shown, write_resource(shown, options), origins)
    return known


def written_as(shown: Mapping[str, Any], options: WriteOptions) -> bytes:
    """Returns the JSON of a response object; reuses the JSON that was written for the store."""
    known: Finished | None = options.made.get(write_finished)
    return known.written if known is not None and known.shown == shown else write_resource(shown, options)


def finished(reply: ModelReply, options: WriteOptions, origins: Origins | None = None) -> dict[str, Any]:
    """Returns the response object of a whole answer. `completed_at` is that of `reply.extra`, or now; null if the
    answer is incomplete. The origins of its output are added to `origins`."""
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
    """Returns the time of an answer's completion in Unix seconds; now if it is unknown."""
    completed_at = extra.get("completed_at")
    return completed_at if isinstance(completed_at, int) else int(time.time())


def broken_off(
    reply: ModelReply,
    options: WriteOptions,
    status: Literal["failed", "cancelled"],
    error: GatewayError | None = None,
    origins: Origins | None = None,
) -> dict[str, Any]:
    """Returns the response object of an answer that broke off after `reply` (see `toolwire.folding.Folding.reply`). The
    origins of its output are added to `origins`."""
    ident = response_id(reply.id)
    parts = reply.choices[0].parts if reply.choices else ()
    output = output_items(parts, options, ident, cut=True, origins=origins)
    return resource(options, ident, status, output, error=error)


def read_reply(body: bytes, note: Note = ignore_note) -> ModelReply:
    """Returns the reply in a whole answer. Raises `BackendFault` `upstream_invalid_response`, or the error that the
    body holds."""
    answer = read_answer(body)
    error = read_fault(answer) or failure(answer)
    if error is not None:
        raise error
    output = answer.get("output")
    if not isinstance(output, list):
        raise unreadable_answer("The model server's answer has no output", answer)
    if len(output) > MAX_PARTS:
        raise too_many("items", MAX_PARTS)
    if not output and answer.get("status") in ("queued", "in_progress"):
        raise unreadable_answer("The model server's response is not finished; its status is", answer["status"])
    parts: list[Part] = []
    lacks_name = False
    for item in output:
        if not isinstance(item, dict):
            continue
        if (kind := of_item(item)) is not None:
            note(LEFT_OUT, kind)
            continue
        if item.get("type") == "custom_tool_call" and item.get("status") == "incomplete":
            continue  # half a text looks like a whole one (C18)
        for part in read_output_item(item):
            if isinstance(part, ToolUse) and not part.name.strip(SPACE):
                lacks_name = True
                note(NAMELESS, "")
            else:
                add_part(parts, part)
    if lacks_name and not parts and finish_reason(answer) in FinishReason.WHOLE:
        raise nameless_call_fault()
    return ModelReply(
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        created=whole_number(answer.get("created_at")),
        choices=(ReplyChoice(tuple(parts), finish_reason(answer, note), probabilities(*_message_parts(output))),),
        usage=read_usage(answer.get("usage")),
        extra=finish_extra(answer),
    )


def _message_parts(output: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the content parts of all messages."""
    for item in output:
        content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        yield from (part for part in (content if isinstance(content, list) else ()) if isinstance(part, dict))


def probabilities(*content_parts: Mapping[str, Any]) -> Extra:
    """Returns the token probabilities in content parts as an `extra` in Chat's form, whose entries are the same."""
    lists = (part["logprobs"] for part in content_parts if isinstance(part.get("logprobs"), list))
    tokens = [token for tokens in lists for token in tokens]
    return {"logprobs": {"content": tokens, "refusal": None}} if tokens else EMPTY


def read_output_item(item: Mapping[str, Any]) -> list[Part]:
    """Returns the parts of an output item of a model server; `OpaquePart` for an unknown item."""
    item = usual_item(item)
    match item.get("type"):
        case "message":
            if not isinstance(item.get("content"), list):
                item = {**item, "content": ()}
            return read_assistant_message(item, follows=False)
        case "function_call" | "custom_tool_call":
            return [read_output_call(item)]
        case "reasoning":
            return read_reasoning(item)
        case _:
            use = read_client_call(item, text_of(item.get("id")) or None)
            return [OpaquePart(PROTOCOL, item) if use is None else replace(use, item_id=None)]


def read_output_call(item: Mapping[str, Any]) -> ToolUse:
    """Returns a call of a model server, in which any field may be missing."""
    call_id = text_of(item.get("call_id")) or text_of(item.get("id")) or new_call_id()
    namespace = text_of(item.get("namespace")) or None
    name, extra = text_of(item.get("name")), call_extra(item)
    if item.get("type") == "custom_tool_call":
        return ToolUse(call_id, name, text_of(item.get("input")), "custom", namespace, extra=extra)
    arguments = arguments_text(item.get("arguments"))
    whole_text = arguments if arguments.strip(SPACE) else "" if item.get("status") == "incomplete" else "{}"
    return ToolUse(call_id, name, whole_text, "function", namespace, extra=extra)


def finish_reason(answer: Mapping[str, Any], note: Note = ignore_note, *, incomplete: bool = False) -> str:
    """Returns the `FinishReason` of a server's answer. `incomplete`: the event's name says so, for an answer without a
    status. Raises `BackendFault` for a reason that is an error."""
    details = answer.get("incomplete_details")
    word = text_of(details.get("reason")) if isinstance(details, Mapping) else ""
    if answer.get("status", "incomplete" if incomplete or word else None) != "incomplete":
        return "stop"
    return cut_off_reason(read_end(word, note)) if word else "length"


def finish_extra(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the fields of a server's response object that are stored in the reply's `extra`."""
    completed_at = whole_number(answer.get("completed_at"))
    tier = answer.get("service_tier")
    fields = {key: value for key, value in answer.items() if key not in RESOURCE_KEYS and value is not None}
    if isinstance(tier, str) and tier != DEFAULT_TIER:
        fields["service_tier"] = tier
    extra = scoped(PROTOCOL, fields)
    return {**extra, "completed_at": completed_at} if completed_at else extra


def failure(answer: Mapping[str, Any]) -> GatewayError | None:
    """Returns the fault of a response object that failed or was cancelled without an error; None for others."""
    if answer.get("status") in ("failed", "cancelled"):
        return BackendFault(f"The model server's response has the status {answer['status']}.")
    return None
