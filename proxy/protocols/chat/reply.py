"""Whole Chat Completions answers, and what whole and streamed answers share.

Rules:

1. Only `finish_word` computes `finish_reason`, from what was really sent (R7.4).
2. Text that is only whitespace counts as empty next to calls (R6.6, R7.2).
3. Parts are read in the order reasoning, text, refusal, calls; the body of a whole answer has no other order.
4. All unmodelled fields of a server are written back (`tests/protocols/test_nothing_is_lost.py`): those of the body, of
   a choice, of its message (under `message` in `ReplyChoice.extra`), of its calls and of the counts. The gateway writes
   its own `id`, `created` and `model`.

`write_reply` cannot express: order between those kinds, fields of other protocols, item ids and namespaces of calls.
Content in parts becomes one text; parts that are neither text nor reasoning are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from uuid import uuid4

from ...errors import BackendFault, GatewayError, quote
from ...events import BlockKind
from ...folding import has_incomplete_arguments
from ...model import (
    EMPTY,
    Extra,
    FinishReason,
    ModelReply,
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
from ..shared.call_deltas import new_call_id
from ..shared.ends import cut_off_reason, finish_words, read_end
from ..shared.noise import NAMELESS, Note, ignore_note
from ..shared.numbers import (
    MAX_CALLS,
    MAX_CHOICES,
    index_of,
    rest_of_counts,
    too_many,
    usage_of,
    whole_number,
    with_rest,
)
from ..shared.server_errors import OVERFLOW_CODES, error_in, fault_of, is_overflow, overflow_fault
from ..shared.wire import (
    dump,
    dumper,
    fields_in,
    nameless_call_fault,
    read_answer,
    shorten,
    unfinished_call_fault,
    unreadable_answer,
)
from ..streams import WriteOptions
from .extra_fields import CALL_FIELDS, PROTOCOL, REASONING, call_extra, calls_of, join_fields, opaque_of, other_fields
from .request_writer import write_call

_ONLY_OBJECTS: Final = frozenset({dict})

PASSED: Final = ("system_fingerprint", "service_tier")
"""Top-level string fields of an answer that are repeated in every chunk of a stream."""

_PLAIN_MESSAGE: Final = frozenset({"role", "content"})
KNOWN: Final = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
"""Modelled top-level fields, and `obfuscation`, padding that hides the length of a chunk."""
CHOICE: Final = frozenset({"index", "message", "delta", "text", "finish_reason", "logprobs"})
MESSAGE: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *REASONING})
CALL: Final = frozenset({"index", "id", "type", "function", "custom"})
_MATCHED: Final = ("stop_reason", "matched_stop")
"""Fields in which vLLM and SGLang report the stop sequence that matched."""
_COUNTS: Final[Mapping[str, Any]] = {
    "prompt_tokens": None,
    "completion_tokens": None,
    "total_tokens": None,
    "prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": None},
}
"""The modelled counts."""
_TOTALS: Final = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""The counts that are not part of another one."""

AN_ANSWER: Final = "a choice"
"""Name of a choice in the error message for a wrong index."""

_TEXT_PARTS: Final = frozenset({"text", "output_text"})
_REASONING_PARTS: Final = frozenset({"thinking", "reasoning", "reasoning_text"})
_TEXT_KEYS: Final = ("text", "thinking", "reasoning", "content", "summary", "parts", "value")
"""Keys under which content parts of servers hold their text."""

Prose = Literal[BlockKind.TEXT, BlockKind.REASONING, BlockKind.REFUSAL]


# --- read -----------------------------------------------------------------------------------------------------------


def read_reply(body: bytes, choices: int = MAX_CHOICES, note: Note = ignore_note) -> ModelReply:
    """Returns the reply in a whole answer. Raises `BackendFault` `upstream_invalid_response` if it cannot be read or
    has more than `choices` choices, or the error that the body holds."""
    answer = read_answer(body)
    beside: Mapping[str, Any] = EMPTY
    if not answer.keys() <= KNOWN or answer.get("object") == "error":
        error = read_error(answer)
        if error is not None:
            raise error
        beside = rest_of(answer, KNOWN)
    wire_choices = answer.get("choices")
    if not isinstance(wire_choices, list) or not wire_choices or not _ONLY_OBJECTS.issuperset(map(type, wire_choices)):
        raise unreadable_answer("The model server's answer has no choices", answer)
    ordered = _in_order(wire_choices, choices)
    read = tuple([_read_choice(choice, note) for choice in ordered])
    if not any(choice.parts for choice in read) and any(map(_lacks_names, read, ordered)):
        raise nameless_call_fault()
    return ModelReply(
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        created=whole_number(answer.get("created")),
        choices=read,
        usage=read_usage(answer.get("usage")),
        extra=scoped(PROTOCOL, beside) if beside else EMPTY,
    )


def _in_order(choices: list[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Returns the choices by their index, or in their given order if two have the same; a missing one is empty."""
    if len(choices) == 1 and not choices[0].get("index"):
        return choices  # most answers
    if len(choices) > most:
        raise too_many("choices", most)
    placed: dict[int, Mapping[str, Any]] = {}
    for place, choice in enumerate(choices):
        index = index_of(choice.get("index"), most, AN_ANSWER)
        placed[place if index is None else index] = choice
    return choices if len(placed) < len(choices) else [placed.get(index, EMPTY) for index in range(max(placed) + 1)]


def _read_choice(choice: Mapping[str, Any], note: Note) -> ReplyChoice:
    if choice.get("error") and (error := read_error(choice)) is not None:
        raise error
    message = choice.get("message")
    if not isinstance(message, dict):
        message = message_of(choice, "delta")
    if message.keys() <= _PLAIN_MESSAGE and type(text := message.get("content")) is str:
        return ReplyChoice(
            (Text(text),) if text else (), _reason_of(choice, note), choice_extra(choice, EMPTY)
        )  # most answers
    pieces: dict[Prose, list[str]] = {}
    for kind, piece in prose(message):
        pieces.setdefault(kind, []).append(piece)
    texts = {kind: "".join(joined) for kind, joined in pieces.items()}
    parts: list[Part] = []
    rest = rest_of(message, MESSAGE)
    opaque = opaque_of(rest) if rest else EMPTY
    if texts.get(BlockKind.REASONING) or opaque:
        parts.append(Reasoning(texts.get(BlockKind.REASONING, ""), scoped(PROTOCOL, opaque)))
    if texts.get(BlockKind.TEXT):
        parts.append(Text(texts[BlockKind.TEXT]))
    if texts.get(BlockKind.REFUSAL):
        parts.append(Refusal(texts[BlockKind.REFUSAL]))
    calls = calls_of(message)
    if len(calls) > MAX_CALLS:
        raise too_many("calls", MAX_CALLS)
    reason = _reason_of(choice, note)
    has_reason = bool(finish_of(choice))
    ended = has_reason and reason in FinishReason.WHOLE
    uses = [_read_call(call, ended=ended) for call in calls]
    named = [use for use in uses if use.name.strip(SPACE)]  # R29.2
    for _ in range(len(uses) - len(named)):
        note(NAMELESS, "")
    whole = [use for use in named if has_reason or not use.arguments.strip(SPACE) or not has_incomplete_arguments(use)]
    if named and not whole:
        raise unfinished_call_fault()
    if reason not in FinishReason.WHOLE and whole and whole[-1].kind == "custom":
        whole.pop()  # the cut is inside its text, and half a text looks like a whole one (C18)
        reason = cut_off_reason(reason)
    if reason not in FinishReason.WHOLE and any(map(has_incomplete_arguments, whole)):
        reason = cut_off_reason(reason)
    parts += whole
    return ReplyChoice(tuple(parts), reason, choice_extra(choice, other_fields(rest, opaque)))


def rest_of(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """Returns the fields of `value` that are not in `known`, without null and empty ones."""
    if value.keys() <= known:
        return EMPTY
    return {key: item for key, item in value.items() if key not in known and (item or item in (0, False))} or EMPTY


def choice_extra(choice: Mapping[str, Any], message: Mapping[str, Any]) -> Extra:
    """Returns the `extra` of a choice; `message` holds the unmodelled fields of its message."""
    logprobs = choice.get("logprobs")
    extra: dict[str, Any] = {**probabilities(logprobs)} if logprobs else {}
    rest = EMPTY if choice.keys() <= CHOICE else rest_of(choice, CHOICE)
    if rest or message:
        extra[PROTOCOL] = {**rest, "message": message} if message else rest
        matched = next((choice[key] for key in _MATCHED if isinstance(choice.get(key), str)), None) if rest else None
        if matched is not None:
            extra["stop_sequence"] = matched
    return extra or EMPTY


def _reason_of(choice: Mapping[str, Any], note: Note) -> str:
    word = finish_of(choice)
    return read_end(word, note) if word else "stop"


def finish_of(choice: Mapping[str, Any]) -> str:
    """Returns the word for the end of a choice, "" if it has not ended. SGLang's own API puts it into an object."""
    word = choice.get("finish_reason")
    if isinstance(word, str):
        return word
    return text_of(word.get("type")) if isinstance(word, dict) else ""


def probabilities(logprobs: Any) -> Mapping[str, Any]:
    """Returns the token probabilities of a choice as an `extra`, in Chat's form, also if they came in that of the
    legacy text protocol."""
    if isinstance(logprobs, dict) and isinstance(tokens := logprobs.get("tokens"), list):
        token_probabilities, others = (
            _padded(logprobs.get(key), len(tokens)) for key in ("token_logprobs", "top_logprobs")
        )
        logprobs = {
            "content": [
                {
                    **_token(token, chance),
                    "top_logprobs": [_token(*one) for one in top.items()] if isinstance(top, dict) else [],
                }
                for token, chance, top in zip(tokens, token_probabilities, others, strict=True)
            ],
            "refusal": None,
        }
    return {"logprobs": logprobs}


def _padded(values: Any, size: int) -> list[Any]:
    known = values[:size] if isinstance(values, list) else []
    return known + [None] * (size - len(known))


def _token(token: Any, chance: Any) -> dict[str, Any]:
    """Returns one token in Chat's form. The legacy protocol has null as the probability of a text's first token, which
    Chat cannot express."""
    text = text_of(token)
    number = isinstance(chance, int | float) and not isinstance(chance, bool)
    return {"token": text, "logprob": chance if number else 0.0, "bytes": list(text.encode(errors="replace"))}


def _lacks_names(choice: ReplyChoice, wire: Mapping[str, Any]) -> bool:
    """True if a choice consists of calls without a name only and was not cut off by a limit."""
    message = message_of(wire, "message", "delta")
    called = bool(message.get("tool_calls") or message.get("function_call"))
    return called and not choice.parts and choice.reason in FinishReason.WHOLE


def _read_call(call: Mapping[str, Any], *, ended: bool) -> ToolUse:
    """Returns the call in `call`. `ended`: the server sent a finish reason that is no limit. Otherwise empty arguments
    may be arguments that did not arrive, so they stay empty."""
    call_id = text_of(call.get("id")) or new_call_id()
    custom = call.get("custom")
    if isinstance(custom, dict):
        extra = reply_call_extra(call, "custom")
        return ToolUse(call_id, text_of(custom.get("name")), text_of(custom.get("input")), "custom", extra=extra)
    function = fields_in(call.get("function"))
    arguments = arguments_text(function.get("arguments"))
    if not arguments.strip(SPACE):
        arguments = "{}" if ended else ""
    extra = reply_call_extra(call, "function")
    return ToolUse(call_id, text_of(function.get("name")), arguments, extra=extra)


def reply_call_extra(call: Mapping[str, Any], kind: str) -> Extra:
    """Returns the unmodelled fields of a call, without its index, which the gateway sets itself."""
    inner = call.get(kind)
    if call.keys() <= CALL and (not isinstance(inner, dict) or inner.keys() <= CALL_FIELDS):
        return EMPTY  # most calls
    return call_extra({key: value for key, value in call.items() if key != "index"}, kind)


def message_of(choice: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Returns the message of a choice, which stands under the first of these keys that holds an object, or is the text
    of the legacy protocol."""
    for key in keys:
        message = choice.get(key)
        if isinstance(message, dict):
            return message
    return {"content": choice.get("text")}


def prose(source: Mapping[str, Any], *, details: bool = True) -> Iterator[tuple[Prose, str]]:
    """Yields the texts of a message or a delta with their kinds, in the order of rule 3. Content parts other than text
    and reasoning are left out. `details`: without a field for reasoning its text is that of `reasoning_details`."""
    for key in REASONING:
        reasoning = source.get(key)
        if reasoning and isinstance(reasoning, str):
            yield BlockKind.REASONING, reasoning
            break  # servers that fill two of them repeat the same text
    else:
        if details and (text := "".join(_texts(source.get("reasoning_details")))):
            yield BlockKind.REASONING, text
    content = source.get("content")
    if isinstance(content, str):
        yield BlockKind.TEXT, content
    elif content:
        for part in content if isinstance(content, list) else (content,):
            kind = text_of(part.get("type", "text")) if isinstance(part, dict) else "text"
            if kind in _TEXT_PARTS:
                for text in _texts(part):
                    yield BlockKind.TEXT, text
            elif kind in _REASONING_PARTS:
                for text in _texts(part):
                    yield BlockKind.REASONING, text
    refusal = source.get("refusal")
    if refusal and isinstance(refusal, str):
        yield BlockKind.REFUSAL, refusal


def _texts(part: Any) -> Iterator[str]:
    """Yields the texts in a content part: itself, or what it holds under the keys of text, one or several."""
    pending = [part]
    while pending:  # a recursion would pass each text up through all levels
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            pending += reversed(value)
        elif isinstance(value, dict):
            pending.append(next((value[key] for key in _TEXT_KEYS if value.get(key)), None))


def arguments_text(value: Any) -> str:
    """Returns the arguments of a call as text; servers send a string, an object, or nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value).decode()


def text_of(value: Any) -> str:
    """Returns `value` if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""


def read_usage(usage: Any) -> Usage | None:
    """Returns the token counts; None if a server sends none or impossible ones. If one of two counts and their sum are
    given, the other is the difference. Some servers use the names of Responses."""
    if not isinstance(usage, dict):
        return None
    prompt_tokens, completion_tokens, total = (
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        usage.get("total_tokens"),
    )
    if prompt_tokens is None and completion_tokens is None:
        prompt_tokens, completion_tokens = usage.get("input_tokens"), usage.get("output_tokens")
    if type(total) is int:
        if completion_tokens is None and type(prompt_tokens) is int and total >= prompt_tokens:
            completion_tokens = total - prompt_tokens
        elif prompt_tokens is None and type(completion_tokens) is int and total >= completion_tokens:
            prompt_tokens = total - completion_tokens
    if usage.keys() <= _TOTALS:
        return usage_of(prompt_tokens, completion_tokens)
    prompt = fields_in(usage.get("prompt_tokens_details"))
    completion = fields_in(usage.get("completion_tokens_details"))
    return usage_of(
        prompt_tokens,
        completion_tokens,
        cached=prompt.get("cached_tokens"),
        stored=prompt.get("cache_write_tokens"),
        reasoning=completion.get("reasoning_tokens"),
        extra=scoped(PROTOCOL, rest_of_counts(usage, _COUNTS)),
    )


def read_error(answer: Mapping[str, Any]) -> GatewayError | None:
    """Returns the error in a body or a frame, or None. It has the server's message, shortened (R10.8)."""
    error = error_in(answer)
    if error is None:
        return None
    words: tuple[str, ...] = ()
    message = error
    if isinstance(error, dict):
        words = text_of(error.get("code")), text_of(error.get("type"))
        message = text_of(error.get("message"))
    message = shorten(message) or f"The model server reported {quote(error)}."
    if not OVERFLOW_CODES.isdisjoint(words) or is_overflow(message):
        return overflow_fault(message, param="messages")
    return fault_of(error, message) if isinstance(error, dict) else BackendFault(message)


# --- write ----------------------------------------------------------------------------------------------------------


def write_reply(reply: ModelReply, options: WriteOptions) -> bytes:
    """Returns the body of a whole answer (R7.1)."""
    usage = reply.usage or Usage()
    body: dict[str, Any] = {
        "id": reply_id(reply.id),
        "object": "chat.completion",
        "created": options.created,
        "model": options.request.model,
        "choices": [_write_choice(index, choice, options) for index, choice in enumerate(reply.choices)],
        "usage": write_usage(usage),
    }
    if reply.extra and (rest := fields_of(reply.extra, PROTOCOL)):
        answer = {"choices": body.pop("choices"), "usage": body.pop("usage")}
        beside = {key: value for key, value in rest.items() if key not in PASSED}
        body = {**beside, **body, **repeated_fields(rest), **answer}
    if usage.missing == "both":
        del body["usage"]
    return dumper(options.large)(body)


def _write_choice(index: int, choice: ReplyChoice, options: WriteOptions) -> dict[str, Any]:
    text = reasoning = refusal = ""
    uses: list[ToolUse] = []
    opaque: Mapping[str, Any] = EMPTY
    for part in choice.parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            uses.append(part)
        elif isinstance(part, Reasoning):
            opaque = join_fields(opaque, fields_of(part.extra, PROTOCOL)) if part.extra else opaque
            if not part.text:
                continue
            reasoning += part.text
            if options.reasoning_field == "inline":
                text += part.text.join(options.reasoning_tags)
        elif isinstance(part, Refusal):
            refusal += part.text
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal or None}
    if reasoning:
        message |= dict.fromkeys(reasoning_keys(options.reasoning_field), reasoning)
    if opaque and options.reasoning_field != "drop":
        message |= opaque
    called = False
    if uses:
        if not text.strip(SPACE):
            message["content"] = None
        message["tool_calls"] = [write_call(use) for use in uses]
        called = choice.reason in FinishReason.WHOLE or any(is_whole(use, choice.reason) for use in uses)
    written: dict[str, Any] = {
        "index": index,
        "message": message,
        "logprobs": None,
        "finish_reason": finish_word(choice.reason, called, options),
    }
    if choice.extra:
        rest = fields_of(choice.extra, PROTOCOL)
        if "message" in rest:
            written["message"] = {**rest["message"], **message}
        written = {**rest, **written, "logprobs": choice.extra.get("logprobs")}
    return written


def reasoning_keys(field: str) -> tuple[str, ...]:
    """Returns the keys of a message or delta that hold reasoning under `reasoning.field` (R7.8)."""
    return {"both": ("reasoning_content", "reasoning"), "inline": (), "drop": ()}.get(field, (field,))


def finish_word(reason: str, called: bool, options: WriteOptions) -> str:
    """Returns the `finish_reason` of an answer that ended for `reason` and has calls or not (R7.4, C18, C21)."""
    if called:
        named = options.named_stop and options.request.tool_choice.mode == "named"
        return "stop" if named else "tool_calls"
    return finish_words(reason).chat


def is_whole(use: ToolUse, reason: str) -> bool:
    """True if a call of an answer that ended for `reason` was not cut off (C18)."""
    return reason in FinishReason.WHOLE or not has_incomplete_arguments(use)


def reply_id(answer_id: str) -> str:
    """Returns the id of the answer: the backend's if it has OpenAI's form, otherwise a new one."""
    return answer_id if answer_id.startswith("chatcmpl-") else f"chatcmpl-{uuid4().hex}"


def repeated_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns the unmodelled fields that are repeated in every chunk."""
    return {key: valid_text(fields[key]) for key in PASSED if isinstance(fields.get(key), str)}


def write_usage(usage: Usage) -> dict[str, Any]:
    """Returns the `usage` object with its details (R11.1)."""
    written: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    return with_rest(written, fields_of(usage.extra, PROTOCOL)) if usage.extra else written
