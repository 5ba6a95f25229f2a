"""Whole Messages answers, and what whole and streamed answers share.

Rules:

1. Only `stop_fields` computes `stop_reason`, from what was really sent.
2. Neighbouring texts are one block. Text that is only whitespace is left out, unless the answer has nothing else:
   servers refuse such a block when it is sent back.
3. A call that was cut off by a limit is left out: its input would be half an object.
4. Arguments that are an object are written exactly as received: numbers keep their text.
5. All unmodelled fields of a server are written back: those of the body, of blocks, of the counts.

`write_reply` cannot express further choices, and fields and parts of other protocols.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from ...folding import add_part
from ...model import (
    EMPTY,
    Extra,
    FinishReason,
    ModelReply,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolUse,
    Usage,
    fields_of,
    scoped,
)
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..chat.reply import is_whole, text_of
from ..shared.call_deltas import new_call_id
from ..shared.ends import cut_off_reason, finish_words, meaning, read_end
from ..shared.noise import LEFT_OUT, NAMELESS, Note, ignore_note, of_item
from ..shared.numbers import MAX_PARTS, rest_of_counts, too_many, usage_of, with_rest
from ..shared.wire import dumper, nameless_call_fault, read_answer, rest_of, typed_parts, unreadable_answer
from ..streams import WriteOptions
from .blocks import PROTOCOL, begins_as_object, input_of, read_block, write_block
from .errors import read_error
from .ids import message_id

ANSWER: Final = frozenset({"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
_COUNTS: Final[Mapping[str, Any]] = dict.fromkeys(
    ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
)
BYTES_PER_TOKEN: Final = 4


# --- why an answer ended --------------------------------------------------------------------------------------------


def stop_fields(reason: str, extra: Extra, *, called: bool, refused: bool) -> dict[str, Any]:
    """Returns `stop_reason`, `stop_sequence` and the server's unmodelled fields of an answer that ended for `reason`
    (C18)."""
    fields = fields_of(extra, PROTOCOL)
    server_word = fields.get("stop_reason")
    matched = extra.get("stop_sequence") if extra else None
    if called:
        word, matched = "tool_use", None
    elif isinstance(server_word, str) and meaning(server_word) == reason:
        word = server_word
    elif reason == FinishReason.STOP and refused:
        word = "refusal"
    elif reason == FinishReason.STOP and isinstance(matched, str):
        word = "stop_sequence"
    else:
        word = finish_words(reason).messages
    return {**fields, "stop_reason": word, "stop_sequence": matched if word == "stop_sequence" else None}


def read_stop(answer: Mapping[str, Any], note: Note = ignore_note) -> tuple[str, dict[str, Any]]:
    """Returns the finish reason of a server's answer, and its `extra`: the stop sequence that matched, and a
    `stop_reason` that clients get unchanged. Raises `BackendFault` for a reason that is an error."""
    word = text_of(answer.get("stop_reason")) or "end_turn"
    reason = read_end(word, note)
    extra: dict[str, Any] = {}
    matched = answer.get("stop_sequence")
    if isinstance(matched, str):
        extra["stop_sequence"] = matched
    if word == "model_context_window_exceeded":
        extra[PROTOCOL] = {"stop_reason": word}
    return reason, extra


# --- counts ---------------------------------------------------------------------------------------------------------


def write_usage(usage: Usage) -> dict[str, Any]:
    """Returns the `usage` object, in which tokens read from or written to a cache are counted separately."""
    plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
    written: dict[str, Any] = {
        "input_tokens": plain,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        written["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return with_rest(written, fields_of(usage.extra, PROTOCOL)) if usage.extra else written


def read_usage(usage: Any) -> Usage | None:
    """Returns the token counts in a `usage` object; None if there are none or impossible ones."""
    if not isinstance(usage, dict):
        return None
    cached, stored = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    details = usage.get("output_tokens_details")
    reasoning = details.get("thinking_tokens") if isinstance(details, dict) else None
    plain = usage_of(usage.get("input_tokens"), 1, cached=cached, stored=stored)  # 1, as 0 and 0 are no counts
    if plain is None:
        return None
    total = plain.input_tokens + plain.cached_tokens + plain.cache_write_tokens
    known = {**_COUNTS, "output_tokens_details": {"thinking_tokens": None}}
    extra = scoped(PROTOCOL, rest_of_counts(usage, known))
    return usage_of(
        None if plain.missing else total,
        usage.get("output_tokens"),
        cached=cached,
        stored=stored,
        reasoning=reasoning,
        extra=extra,
    )


def first_usage(options: WriteOptions, known: Usage | None) -> dict[str, Any]:
    """Returns the counts of `message_start`: the known ones, or an estimate from the size of the request."""
    if known is None:
        origin = options.request.origin
        known = Usage(max(1, origin.size // BYTES_PER_TOKEN) if origin is not None else 1, 0)
    return write_usage(known)


# --- write ----------------------------------------------------------------------------------------------------------


def write_reply(reply: ModelReply, options: WriteOptions) -> bytes:
    """Returns the body of a whole answer (R14.2)."""
    choice = reply.choices[0] if reply.choices else ReplyChoice(())
    shown = list(shown_parts(choice, options))
    called = any(isinstance(part, ToolUse) for part in shown)
    refused = any(isinstance(part, Refusal) for part in shown)
    content = [block for part in shown if (block := _write(part)) is not None]
    return dumper(options.large)(
        {
            **fields_of(reply.extra, PROTOCOL),
            "id": message_id(reply.id),
            "type": "message",
            "role": "assistant",
            "model": options.request.model,
            "content": content,
            **stop_fields(choice.reason, choice.extra, called=called, refused=refused),
            "usage": write_usage(reply.usage or Usage()),
        }
    )


def _write(part: Part) -> Mapping[str, Any] | None:
    if not isinstance(part, ToolUse) or part.kind == "custom" or not begins_as_object(part.arguments):
        return write_block(part)
    block = write_block(replace(part, arguments=""))
    text = valid_text(part.arguments)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return {**block, "input": input_of(part)} if block is not None else None
    return {**block, "input": orjson.Fragment(text)} if block is not None else None


def shown_parts(choice: ReplyChoice, options: WriteOptions) -> Iterator[Part]:
    """Yields the parts of an answer that are written as content blocks (rules 2 and 3, R7.8)."""
    merged: list[Part] = []
    for part in choice.parts:
        shown = _shown(part, choice.reason, options)
        if shown is not None:
            add_part(merged, shown)
    blank = [isinstance(part, Text) and not part.text.strip(SPACE) and not part.extra for part in merged]
    has_content = False
    for part, empty in zip(merged, blank, strict=True):
        if not empty:
            has_content = has_content or not isinstance(part, Reasoning)
            yield part
    if not has_content and any(blank):
        yield Text("".join(part.text for part in merged if isinstance(part, Text)))


def _shown(part: Part, reason: str, options: WriteOptions) -> Part | None:
    if isinstance(part, ToolUse):
        return part if part.kind == "custom" or is_whole(part, reason) else None
    if isinstance(part, OpaquePart):
        return part if write_block(part) is not None else None
    own = scoped(PROTOCOL, fields_of(part.extra, PROTOCOL))  # fields of other protocols must not keep texts apart
    if isinstance(part, Reasoning):
        how = reasoning_placement(options)
        if how == "inline":
            return Text(f"{options.reasoning_tags[0]}{part.text}{options.reasoning_tags[1]}") if part.text else None
        if how == "drop" or not (part.text or own):
            return None
        return replace(part, extra=own, text=part.text if how == "block" else "")
    if isinstance(part, Text | Refusal):
        return replace(part, extra=own) if part.text or own else None
    return None


def reasoning_placement(options: WriteOptions) -> str:
    """Returns how reasoning is written (R7.8): `block`, `inline`, `drop` (also for a client that disabled thinking), or
    `sealed`, a signature without text, for a client that wants the text `omitted`."""
    if options.request.sampling.reasoning_budget == 0 or options.reasoning_field == "drop":
        return "drop"
    if options.reasoning_field == "inline":
        return "inline"
    return "sealed" if thinking_of(options.request).get("display") == "omitted" else "block"


def thinking_of(request: ModelRequest) -> Mapping[str, Any]:
    """Returns the client's `thinking` object, without its budget."""
    thinking: Mapping[str, Any] = fields_of(request.protocol_fields, PROTOCOL).get("thinking", EMPTY)
    return thinking


# --- read -----------------------------------------------------------------------------------------------------------


def read_reply(body: bytes, note: Note = ignore_note) -> ModelReply:
    """Returns the reply in a whole answer. Raises `BackendFault` `upstream_invalid_response`, or the error that the
    body holds."""
    answer = read_answer(body)
    error = read_error(answer)
    if error is not None:
        raise error
    content = typed_parts(answer.get("content"), "text")
    if not isinstance(content, list):
        raise unreadable_answer("The model server's answer has no content", answer)
    if len(content) > MAX_PARTS:
        raise too_many("blocks", MAX_PARTS)
    parts: list[Part] = []
    reason, extra = read_stop(answer, note)
    for part in _parts(content, note):
        add_part(parts, part)
    if not parts and reason in FinishReason.WHOLE and any(map(is_nameless, content)):
        raise nameless_call_fault()
    if reason not in FinishReason.WHOLE and isinstance(last := content[-1] if content else None, Mapping):
        cut = parts[-1] if parts and last.get("type") == "tool_use" and not last.get("input") else None
        # the received part of its arguments is unknown, so it is half a call, as in a stream (R29.3)
        if isinstance(cut, ToolUse):
            parts[-1] = replace(cut, arguments="")
            reason = cut_off_reason(reason)
    late = rest_of(answer, ANSWER)
    return ModelReply(
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        created=0,
        choices=(ReplyChoice(tuple(parts), reason, extra or EMPTY),),
        usage=read_usage(answer.get("usage")),
        extra=scoped(PROTOCOL, late),
    )


def _parts(content: Iterable[Any], note: Note) -> Iterator[Part]:
    for block in content:
        if not isinstance(block, Mapping):
            continue
        if is_nameless(block):
            note(NAMELESS, "")
            continue
        if (kind := of_item(block)) is not None:
            note(LEFT_OUT, kind)
            continue
        part = read_block(with_id(block))
        if part is not None:
            yield part


def is_nameless(block: Any) -> bool:
    """True for a call without a name, which is dropped (R29.2)."""
    called = isinstance(block, Mapping) and block.get("type") == "tool_use"
    return called and not text_of(block.get("name")).strip(SPACE)


def with_id(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a block; a call without an id gets one."""
    if block.get("type") != "tool_use" or (isinstance(block.get("id"), str) and block["id"]):
        return block
    return {**block, "id": new_call_id()}
