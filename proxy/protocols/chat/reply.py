"""Whole Chat Completions answers, and the words that whole and streamed answers share.

Rules:

1. `finish_reason` is computed from what was really emitted (R7.4), in `finish_word` and nowhere else.
2. Text that is only whitespace counts as none where calls stand beside it (R6.6, R7.2).
3. Parts are read in the order reasoning, text, refusal, calls; the body of a whole answer has no other order.

4. What a server says beside is written back, every field of it (`tests/protocols/test_nothing_is_lost.py`): of the
   body, of a choice, of its message (under `message` in `ReplyChoice.extra`), of its calls and of the counts. What is
   the gateway's own is `id`, `created`, `model`.

What `write_reply` cannot express: order between those kinds, fields of other protocols, item ids and namespaces of
calls. Content in parts becomes one text; parts that are neither text nor thinking are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal
from uuid import uuid4

from ...errors import BackendFault, ClientFault, GatewayError, quote
from ...events import BlockKind
from ...folding import is_half
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
from ...scan._grammar import SPACE
from .. import overflow
from ..base import WriteOptions
from ..call_deltas import new_call_id
from ..ends import of_cut, read_end, told
from ..in_band import fault_of
from ..noise import NAMELESS, Note, unnoted
from ..numbers import MAX_CALLS, MAX_CHOICES, index_of, rest_of_counts, too_many, usage_of, whole_number, with_rest
from ..wire import dump, dumper, nameless, read_answer, shorten, unfinished, unreadable, whole
from .opaque import REASONING, joined, opaque_of, without
from .request_writer import write_call
from .unmodelled import PROTOCOL, call_extra

_ONLY_OBJECTS: Final = frozenset({dict})

PASSED: Final = ("system_fingerprint", "service_tier")
"""Top-level fields of an answer that stand in every chunk of a stream, when they are strings."""

_PLAIN_MESSAGE: Final = frozenset({"role", "content"})
KNOWN: Final = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation"})
"""Top-level fields that are modelled; and noise that hides how long a chunk is."""
CHOICE: Final = frozenset({"index", "message", "delta", "text", "finish_reason", "logprobs"})
MESSAGE: Final = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *REASONING})
CALL: Final = frozenset({"index", "id", "type", "function", "custom"})
_MATCHED: Final = ("stop_reason", "matched_stop")
"""Where vLLM and SGLang say which stop sequence matched."""
_COUNTS: Final[Mapping[str, Any]] = {
    "prompt_tokens": None,
    "completion_tokens": None,
    "total_tokens": None,
    "prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": None},
    "completion_tokens_details": {"reasoning_tokens": None},
}
"""The counts that are modelled."""
_TOTALS: Final = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
"""Those that are not part of another."""

AN_ANSWER: Final = "a choice"
"""What a choice is called in the fault of one with a wrong index."""

Prose = Literal[BlockKind.TEXT, BlockKind.REASONING, BlockKind.REFUSAL]


# --- read -----------------------------------------------------------------------------------------------------------


def read_reply(body: bytes, choices: int = MAX_CHOICES, note: Note = unnoted) -> ModelReply:
    """A whole answer, with at most so many `choices`. Raises `BackendFault` `upstream_invalid_response`, or the error
    that the body holds."""
    answer = read_answer(body)
    beside: Mapping[str, Any] = EMPTY
    if not answer.keys() <= KNOWN or answer.get("object") == "error":
        error = read_error(answer)
        if error is not None:
            raise error
        beside = top_level(answer)
    given = answer.get("choices")
    if not isinstance(given, list) or not given or not _ONLY_OBJECTS.issuperset(map(type, given)):
        raise unreadable("The model server's answer has no choices", answer)
    ordered = _in_order(given, choices)
    read = tuple([_read_choice(choice, note) for choice in ordered])
    if not any(choice.parts for choice in read) and any(map(_lacks_names, read, ordered)):
        raise nameless()
    return ModelReply(
        id=text_of(answer.get("id")),
        model=text_of(answer.get("model")),
        created=whole_number(answer.get("created")),
        choices=read,
        usage=read_usage(answer.get("usage")),
        extra=scoped(PROTOCOL, beside) if beside else EMPTY,
    )


def _in_order(choices: list[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """The choices by their index, or as they come if two have the same; one that a server left out is empty."""
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
        message = {"content": choice.get("text")}  # the older text protocol
    if message.keys() <= _PLAIN_MESSAGE and type(text := message.get("content")) is str:
        return ReplyChoice(
            (Text(text),) if text else (), _reason_of(choice, note), choice_extra(choice, EMPTY)
        )  # most answers
    texts: dict[Prose, str] = {}
    for kind, piece in prose(message):
        texts[kind] = texts.get(kind, "") + piece
    parts: list[Part] = []
    rest = rest_of(message, MESSAGE)
    opaque = opaque_of(rest) if rest else EMPTY
    if texts.get(BlockKind.REASONING) or opaque:
        parts.append(Reasoning(texts.get(BlockKind.REASONING, ""), scoped(PROTOCOL, opaque)))
    if texts.get(BlockKind.TEXT):
        parts.append(Text(texts[BlockKind.TEXT]))
    if texts.get(BlockKind.REFUSAL):
        parts.append(Refusal(texts[BlockKind.REFUSAL]))
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        calls = []
    if message.get("function_call"):
        calls = [*calls, {"function": message["function_call"]}]
    if len(calls) > MAX_CALLS:
        raise too_many("calls", MAX_CALLS)
    reason = _reason_of(choice, note)
    said = bool(choice.get("finish_reason"))
    ended = said and reason in FinishReason.WHOLE
    uses = [_read_call(call, ended=ended) for call in calls if isinstance(call, dict)]
    named = [use for use in uses if use.name.strip(SPACE)]  # R29.2
    for _ in range(len(uses) - len(named)):
        note(NAMELESS, "")
    whole = [use for use in named if said or not use.arguments.strip(SPACE) or not is_half(use)]
    if named and not whole:
        raise unfinished()
    if reason not in FinishReason.WHOLE and any(map(is_half, whole)):
        reason = of_cut(reason)
    parts += whole
    return ReplyChoice(tuple(parts), reason, choice_extra(choice, without(rest, opaque)))


def rest_of(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """What is not modelled, and says something: neither null nor empty."""
    if value.keys() <= known:
        return EMPTY
    return {key: item for key, item in value.items() if key not in known and (item or item in (0, False))} or EMPTY


def choice_extra(choice: Mapping[str, Any], message: Mapping[str, Any]) -> Extra:
    """The `extra` of an answer; `message` is what is not modelled of its message."""
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
    word = choice.get("finish_reason")
    return read_end(word, note) if word and isinstance(word, str) else "stop"


def probabilities(logprobs: Any) -> Mapping[str, Any]:
    """What a choice says of the probabilities of its tokens, as an `extra`; in the form of Chat also where it comes in
    that of the older text protocol."""
    if isinstance(logprobs, dict) and isinstance(tokens := logprobs.get("tokens"), list):
        chances, others = (_padded(logprobs.get(key), len(tokens)) for key in ("token_logprobs", "top_logprobs"))
        logprobs = {
            "content": [
                {
                    **_token(token, chance),
                    "top_logprobs": [_token(*one) for one in top.items()] if isinstance(top, dict) else [],
                }
                for token, chance, top in zip(tokens, chances, others, strict=True)
            ],
            "refusal": None,
        }
    return {"logprobs": logprobs}


def _padded(values: Any, size: int) -> list[Any]:
    known = values[:size] if isinstance(values, list) else []
    return known + [None] * (size - len(known))


def _token(token: Any, chance: Any) -> dict[str, Any]:
    """One token; its chance is null at the beginning of a text, which Chat cannot say."""
    text = text_of(token)
    number = isinstance(chance, int | float) and not isinstance(chance, bool)
    return {"token": text, "logprob": chance if number else 0.0, "bytes": list(text.encode(errors="replace"))}


def _lacks_names(choice: ReplyChoice, wire: Mapping[str, Any]) -> bool:
    """Whether all that a choice has is calls without a name, which no limit cut off."""
    message = wire.get("message")
    called = isinstance(message, dict) and bool(message.get("tool_calls") or message.get("function_call"))
    return called and not choice.parts and choice.reason in FinishReason.WHOLE


def _read_call(call: Mapping[str, Any], *, ended: bool) -> ToolUse:
    """`ended`: its server says why the answer ended, and that is no limit. Else no arguments may be arguments that did
    not come."""
    call_id = text_of(call.get("id")) or new_call_id()
    custom = call.get("custom")
    if isinstance(custom, dict):
        extra = reply_call_extra(call, "custom")
        return ToolUse(call_id, text_of(custom.get("name")), text_of(custom.get("input")), "custom", extra=extra)
    function = call.get("function")
    if not isinstance(function, dict):
        function = {}
    arguments = arguments_text(function.get("arguments"))
    if not arguments.strip(SPACE):
        arguments = "{}" if ended else ""
    extra = reply_call_extra(call, "function")
    return ToolUse(call_id, text_of(function.get("name")), arguments, extra=extra)


_CALLED: Final = frozenset({"name", "arguments", "input"})


def reply_call_extra(call: Mapping[str, Any], kind: str) -> Extra:
    """What a server says beside a call; its index is the gateway's own word."""
    inner = call.get(kind)
    if call.keys() <= CALL and (not isinstance(inner, dict) or inner.keys() <= _CALLED):
        return EMPTY  # most calls
    return call_extra({key: value for key, value in call.items() if key != "index"}, kind)


def prose(source: Mapping[str, Any]) -> Iterator[tuple[Prose, str]]:
    """The texts of a message or a delta, in the order of rule 3. Content parts other than text and thinking have no
    place in a streamed answer and are not given."""
    for key in REASONING:
        thought = source.get(key)
        if thought and isinstance(thought, str):
            yield BlockKind.REASONING, thought
            break  # servers that fill two of them say the same in both
    content = source.get("content")
    if isinstance(content, str):
        yield BlockKind.TEXT, content
    elif isinstance(content, list):
        for part in content:
            match part:
                case {"type": "text", "text": str(text)}:
                    yield BlockKind.TEXT, text
                case {"type": "thinking", "thinking": str(text)}:
                    yield BlockKind.REASONING, text
                case {"type": "thinking", "thinking": list(pieces)}:
                    for piece in pieces:
                        if isinstance(piece, dict):
                            yield BlockKind.REASONING, text_of(piece.get("text"))
                case _:
                    pass
    refusal = source.get("refusal")
    if refusal and isinstance(refusal, str):
        yield BlockKind.REFUSAL, refusal


def arguments_text(value: Any) -> str:
    """The arguments of a call as text: servers send a string, an object, or nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value).decode()


def text_of(value: Any) -> str:
    """`value` if it is a string, else nothing."""
    return value if isinstance(value, str) else ""


def top_level(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The top-level fields that are not modelled."""
    return rest_of(answer, KNOWN)


def read_usage(usage: Any) -> Usage | None:
    """Token counts. None if a server gives none, or such as cannot be. Where it gives one of the two and their sum, the
    other is the difference."""
    if not isinstance(usage, dict):
        return None
    given, written, total = usage.get("prompt_tokens"), usage.get("completion_tokens"), usage.get("total_tokens")
    if type(total) is int:
        if written is None and type(given) is int and total >= given:
            written = total - given
        elif given is None and type(written) is int and total >= written:
            given = total - written
    if usage.keys() <= _TOTALS:
        return usage_of(given, written)
    prompt = usage.get("prompt_tokens_details")
    completion = usage.get("completion_tokens_details")
    prompt = prompt if isinstance(prompt, dict) else {}
    completion = completion if isinstance(completion, dict) else {}
    return usage_of(
        given,
        written,
        cached=prompt.get("cached_tokens"),
        stored=prompt.get("cache_write_tokens"),
        thought=completion.get("reasoning_tokens"),
        extra=scoped(PROTOCOL, rest_of_counts(usage, _COUNTS)),
    )


def read_error(answer: Mapping[str, Any]) -> GatewayError | None:
    """The error in a body or a frame, or None if it holds none. The server's message is kept, shortened (R10.8)."""
    error = answer.get("error")
    if not error and answer.get("object") == "error":
        error = answer
    if not error and answer.get("detail") and "choices" not in answer:
        detail = answer["detail"]
        error = detail if isinstance(detail, str) else {"message": dump(detail).decode()}
    if not error:
        return None
    words: tuple[str, ...] = ()
    message = ""
    if isinstance(error, dict):
        words = text_of(error.get("code")), text_of(error.get("type"))
        message = text_of(error.get("message"))
    elif isinstance(error, str):
        message = error
    message = shorten(message) or f"The model server reported {quote(error)}."
    if not overflow.CODES.isdisjoint(words) or overflow.is_overflow(message):
        return ClientFault(message, code="context_length_exceeded", param="messages")
    return fault_of(error, message) if isinstance(error, dict) else BackendFault(message)


# --- write ----------------------------------------------------------------------------------------------------------


def write_reply(reply: ModelReply, options: WriteOptions) -> bytes:
    """The body of a whole answer (R7.1)."""
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
        body = {**beside, **body, **passed(rest), **answer}
    if usage.missing == "both":
        del body["usage"]
    return dumper(options.large)(body)


def _write_choice(index: int, choice: ReplyChoice, options: WriteOptions) -> dict[str, Any]:
    text = thoughts = refusal = ""
    uses: list[ToolUse] = []
    opaque: Mapping[str, Any] = EMPTY
    for part in choice.parts:
        if isinstance(part, Text):
            text += part.text
        elif isinstance(part, ToolUse):
            uses.append(part)
        elif isinstance(part, Reasoning):
            opaque = joined(opaque, fields_of(part.extra, PROTOCOL)) if part.extra else opaque
            if not part.text:
                continue
            thoughts += part.text
            if options.reasoning_field == "inline":
                text += part.text.join(options.reasoning_tags)
        elif isinstance(part, Refusal):
            refusal += part.text
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal or None}
    if thoughts:
        message |= dict.fromkeys(reasoning_keys(options.reasoning_field), thoughts)
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
    """The keys of a message or delta that hold reasoning under `reasoning.field` (R7.8)."""
    return {"both": ("reasoning_content", "reasoning"), "inline": (), "drop": ()}.get(field, (field,))


def finish_word(reason: str, called: bool, options: WriteOptions) -> str:
    """The `finish_reason` of an answer that ended for `reason` and did or did not hold calls (R7.4, C18, C21)."""
    if called:
        named = options.named_stop and options.request.tool_choice.mode == "named"
        return "stop" if named else "tool_calls"
    return told(reason).chat


def is_whole(use: ToolUse, reason: str) -> bool:
    """Whether a call of an answer that ended for `reason` was not cut off (C18)."""
    return reason in FinishReason.WHOLE or not is_half(use)


def reply_id(given: str) -> str:
    """The id of the answer: the backend's if it has OpenAI's form, else a new one."""
    return given if given.startswith("chatcmpl-") else f"chatcmpl-{uuid4().hex}"


def passed(fields: Mapping[str, Any]) -> dict[str, str]:
    """What of the fields that are not modelled stands in every chunk."""
    return {key: whole(fields[key]) for key in PASSED if isinstance(fields.get(key), str)}


def write_usage(usage: Usage) -> dict[str, Any]:
    """The `usage` object, details included (R11.1)."""
    written: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    return with_rest(written, fields_of(usage.extra, PROTOCOL)) if usage.extra else written
