"""Concessions: parts of a request that a server refuses, read from its error message. The request is sent again without
them (R5.9, R28.4).

Rules:

1. Only a refusal of the request itself counts (400, 422), and only if the message names the part. Another status counts
   if the message says that something is not supported, as routers and llama.cpp do: others are about a model or a path,
   or pass. Chat templates, whose errors some engines send with 404 or 500, are the exception.
2. Each concession is made once. If the server names the same part again, its error goes to the client.
3. Limits are read from the server's message. Since a message may repeat the request, a number counts only if it is
   lower than the requested one, and a word only if it is a known one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace as changed
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

from ...errors import GatewayError
from ...formats.engine.rendering import SHORT_NAME_CHARS
from ...model import (
    EMPTY,
    LIKE_SERVER,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Sampling,
    Text,
    ToolResult,
    dataclass,
    replace,
)
from ...protocols.shared.server_errors import is_overflow, read_overflow
from ...tolerances import EFFORT, MAX_TOKENS, REFUSED, TEMPERATURE, TOP_P
from .base import Capabilities
from .fit_history import Tell
from .fit_media import has_images
from .fit_messages import CONTINUE
from .fit_refused import (
    has_bounds,
    has_reasoning,
    has_results,
    is_to_think,
    lacks_reasoning,
    with_adaptive_thinking,
    with_signed_call,
    with_single_texts,
    with_some_reasoning,
    without_bounds,
    without_demand,
    without_key,
    without_reasoning,
    without_scopes,
)
from .refusals import EFFORTS, LIMIT_FIELDS, SAMPLING, UNMODELLED, is_slip, own_words, says

_REFUSALS: Final = frozenset({400, 422})
_STATUSES: Final = _REFUSALS | {404, 413, 415, 500, 501}
_NUMBER: Final = re.compile(r"[a-z][\w.-]*|(?<!\S)-\d+|(?P<number>\d+(?:,\d+)*)", re.IGNORECASE)
"""Matches words, too, because the names of models have numbers."""
_WORD: Final = re.compile(r"['\"`]([a-z]+)['\"`]")


class Field(NamedTuple):
    """A field of requests that a server may refuse. Some stand for one value of a field, such as `stream` that is true.

    `is_sent`: True if a request has it. The server gets requests as if it had `lacks`, its capabilities without the
    field, and as `without` returns them: the same object if nothing is lost for the client, who is told of it otherwise
    (`title`: other words for the field's name). `once`: later requests may have it. `shapes`: the gateway changes the
    answer to a request without it.
    """

    is_sent: Callable[[ModelRequest], bool]
    without: Callable[[ModelRequest], ModelRequest] | None = None
    lacks: Mapping[str, Any] = EMPTY
    title: str = ""
    once: bool = False
    shapes: bool = False


def _with_sampling(request: ModelRequest, **fields: Any) -> ModelRequest:
    return replace(request, sampling=replace(request.sampling, **fields))


def _sampled(name: str, *, shapes: bool = False) -> Field:
    """Returns a field of `Sampling`."""
    unset = {name: getattr(LIKE_SERVER, name)}
    return Field(
        lambda request: getattr(request.sampling, name) != unset[name],
        lambda request: _with_sampling(request, **unset),
        shapes=shapes,
    )


def _unmodelled(name: str) -> Field:
    """Returns a field that says nothing about the answer's content."""
    return Field(
        lambda request: name in request.extra or any(name in fields for fields in request.protocol_fields.values()),
        lambda request: replace(
            request,
            extra=without_key(request.extra, name),
            protocol_fields={scope: without_key(fields, name) for scope, fields in request.protocol_fields.items()},
        ),
    )


def _format(kind: str) -> Field:
    """Returns a type of `response_format`. The prompt describes it instead (`adapt`)."""
    return Field(
        lambda request: request.response_format is not None and request.response_format.get("type") == kind,
        shapes=True,
    )


FIELDS: Final[Mapping[str, Field]] = {
    "high_temperature": Field(
        lambda request: (request.sampling.temperature or 0) > 1,
        lambda request: _with_sampling(request, temperature=1),
        title="temperature above 1",
    ),
    **{name: _sampled(name) for name in SAMPLING},
    "stop": _sampled("stop", shapes=True),
    "thinking_budget": Field(
        lambda request: bool(request.sampling.reasoning_budget), with_adaptive_thinking, title="budget of thinking"
    ),
    "prefill": Field(
        lambda request: any(last.role == "assistant" for last in request.messages[-1:]),
        lambda request: replace(request, messages=(*request.messages, Message("user", (Text(CONTINUE),)))),
        title="turn of its own at the end",
        once=True,  # such as two of them, or one beside thinking that is on by default (llama.cpp)
    ),
    "tool_effort": Field(
        lambda request: bool(request.tools) and request.sampling.reasoning_effort != "none",
        lambda request: _with_sampling(request, reasoning_effort="none"),
        title="reasoning beside tools",
    ),
    "reasoning_effort": _sampled("reasoning_effort"),
    "reasoning_content": Field(has_reasoning, lacks={"reasoning_history": "none"}),
    "missing_reasoning": Field(
        lambda request: any(map(lacks_reasoning, request.messages)),
        lambda request: replace(request, messages=tuple(map(with_some_reasoning, request.messages))),
        title="earlier turns without reasoning",
    ),
    "signatures": Field(has_reasoning, without_reasoning, title="reasoning that it did not sign", once=True),
    "unsigned_calls": Field(
        has_results,
        lambda request: replace(request, messages=tuple(map(with_signed_call, request.messages))),
        title="calls without a signature",
    ),
    "content_parts": Field(
        # Also one text: the client may have sent it as a list.
        lambda request: any(isinstance(part, Text) for message in request.messages for part in message.parts),
        with_single_texts,
        title="content in parts",
    ),
    "schema_bounds": Field(
        has_bounds,
        lambda request: replace(
            request,
            tools=tuple(replace(tool, parameters=without_bounds(tool.parameters)) for tool in request.tools),
        ),
        title="bounds in the schemas of tools",
    ),
    "cache_scope": Field(
        lambda request: without_scopes(request) != request, without_scopes, title="scope of cache_control"
    ),
    "strict": Field(
        lambda request: any(tool.strict is not None for tool in request.tools),
        lambda request: replace(request, tools=tuple(replace(tool, strict=None) for tool in request.tools)),
        title="strict tools",
    ),
    "parallel_tool_calls": Field(
        lambda request: bool(request.tools),  # also true is sent, if the client says so
        lambda request: request if request.parallel_tool_calls else replace(request, parallel_tool_calls=True),
    ),
    "stream_options": Field(lambda request: request.include_usage, lacks={"stream_usage": False}),
    **{
        name: Field(lambda request: request.sampling.max_tokens is not None)  # sent as the other one: `adapt`
        for name in LIMIT_FIELDS
    },
    "tool_choice": Field(
        lambda request: request.tool_choice.forces, without_demand, title="tool_choice that demands a call"
    ),
    **{kind: _format(kind) for kind in ("json_schema", "json_object")},
    "streamed": Field(
        lambda request: request.stream,
        lambda request: replace(request, stream=False),
        title="stream of an answer",
        shapes=True,
    ),
    "whole": Field(
        lambda request: not request.stream,
        lambda request: replace(request, stream=True),
        title="request for a whole answer",
        shapes=True,
    ),
    **{name: _unmodelled(name) for name in UNMODELLED},
}
"""All fields that may be given up, by their names in `refusals`. `tool_choice` is refused only if it demands a call."""

CIRCUMSTANCES: Final[Mapping[str, Callable[[ModelRequest], bool]]] = {
    "tools": lambda request: bool(request.tools),
    "thinking": is_to_think,
    **{name: field.is_sent for name, field in FIELDS.items()},
}
"""What a request may have beside a field, by names in `refusals`. A server that names both may take each alone."""


RoleRule = Literal["alternating", "late_system", "system", "developer", "user_after_tool", "short_ids"]
"""Rules of chat templates: no two messages of one role in a row, no system message after others, no system messages, no
developer messages, no user message right after a result, ids of calls with 9 letters and digits only (Mistral)."""

ROLE_RULES: Final[Mapping[RoleRule, Mapping[str, bool]]] = {
    "alternating": {"merge_roles": True, "late_system": False},
    "late_system": {"late_system": False},
    "system": {"system_role": False},
    "developer": {"developer_role": False},
    "user_after_tool": {"user_after_tool": False},
    "short_ids": {"short_ids": True},
}
"""The capabilities of servers with these rules."""


@dataclass(frozen=True, slots=True)
class Concessions:
    """The parts of a request that a server does not accept.

    `media_once`: an image or a file of this request was refused, not their kind. `word_choice`: `tool_choice` must be a
    word, as with LM Studio. `roles`: refused uses of roles. `most_tokens`: the longest answer that it gives, in tokens;
    `left_tokens`: the tokens left for the answer to one request; 0: a number that only the server knows. `efforts`: the
    levels that it knows. `without`: names of `FIELDS` that it refuses.
    """

    no_images: bool = False
    no_files: bool = False
    media_once: bool = False
    short_names: bool = False
    word_choice: bool = False
    roles: frozenset[RoleRule] = frozenset()
    most_tokens: int | None = None
    left_tokens: int | None = None
    efforts: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


NONE: Final = Concessions()


class Limits(NamedTuple):
    """Limits of a server on sampling. `context`: tokens of prompt and answer together, if known."""

    temperature: float = 2.0
    efforts: tuple[str, ...] = ()
    context: int | None = None


def learn_concession(known: Concessions, fault: GatewayError, sent: ModelRequest) -> Concessions | None:
    """Returns `known` extended by the part that the server names in `fault` as its reason to refuse `sent`; None if it
    names none that can be left out."""
    message, sampling, status = own_words(fault.message), sent.sampling, fault.upstream_status
    if status not in _STATUSES or is_slip(fault):
        return None
    if status not in _REFUSALS and not says("unsupported", message):
        of_template = status == 500 or (status == 404 and says("template", message))
        return _learn_role(known, message, sent) if of_template else None
    # Not compared with `known`: one of several concurrent requests may have taught it since this one was sent.
    if sent.tool_choice.names is not None and status in _REFUSALS and says("choice_form", message):
        return replace(known, word_choice=True)
    if fault.code == "context_length_exceeded" or is_overflow(message):
        left = _left_tokens(message, sampling.max_tokens)
        return None if left is None or known.left_tokens is not None else replace(known, left_tokens=left)
    streams_more = not sent.stream and says("whole", message)  # its limit is one for whole answers (Fireworks)
    if sampling.max_tokens is not None and says("answer_tokens", message) and not streams_more:
        most = _most_said(message.removeprefix(f"The model server answered {status}"), sampling.max_tokens)
        if most is not None and most != known.most_tokens:
            return replace(known, most_tokens=most)
    if says("unsupported", message) or not says("missing", message):
        once = known.media_once or says("one_of_its_kind", message)
        if not known.no_images and says("images", message) and has_images(sent.messages):
            return replace(known, no_images=True, media_once=once)
        if not known.no_files and says("files", message) and has_files(sent.messages):
            return replace(known, no_files=True, media_once=once)
    if not known.short_names and says("long_name", message) and _long_names(sent):
        return replace(known, short_names=True)
    if (further := _learn_role(known, message, sent)) is not None:
        return further
    for name, field in FIELDS.items():
        if name in known.without or not says(name, message) or not field.is_sent(sent):
            continue
        words = tuple(word for word in EFFORTS if word in _WORD.findall(message) and word != sampling.reasoning_effort)
        if name == "reasoning_effort":
            if words and not known.efforts:
                return replace(known, efforts=words)
            if sampling.reasoning_effort not in EFFORTS and not says("unsupported", message):
                continue  # the client's own word
        return replace(known, without=known.without | {name})
    return None


def circumstances(name: str, fault: GatewayError, sent: ModelRequest) -> tuple[str, ...]:
    """Returns the `CIRCUMSTANCES` of `sent` that the server names beside the refused field `name`."""
    return tuple(
        other for other, is_in in CIRCUMSTANCES.items() if other != name and says(other, fault.message) and is_in(sent)
    )


def _learn_role(known: Concessions, message: str, sent: ModelRequest) -> Concessions | None:
    """Returns `known` extended by the use of roles that the server refuses in its message; None if it refuses none."""
    for rule in ROLE_RULES:
        if rule not in known.roles and says(rule, message) and _breaks(rule, sent.messages):
            return replace(known, roles=known.roles | {rule})
    return None


def _breaks(rule: RoleRule, messages: tuple[Message, ...]) -> bool:
    """True if messages may break the rule."""
    roles = [message.role for message in messages]
    match rule:
        case "alternating":
            return len(roles) > 1
        case "late_system":
            return any(before != "system" and role == "system" for before, role in pairwise(roles))
        case "user_after_tool" | "short_ids":
            return any(isinstance(part, ToolResult) for message in messages for part in message.parts)
        case _:
            return rule in roles


def _left_tokens(message: str, limit: int | None) -> int | None:
    """Returns the tokens that a server has left for the answer, if it counts the prompt in its message and a shorter
    answer than `limit`, the requested maximum, would fit; 0 if it has stopped counting."""
    counts = read_overflow(message)
    if limit is None or counts is None or not 0 < counts.window - counts.prompt < limit:
        return None
    # vLLM counts no more tokens of the prompt than are needed to refuse it.
    return 0 if counts.prompt + counts.output == counts.window + 1 else counts.window - counts.prompt


def _most_said(message: str, limit: int) -> int | None:
    """Returns the longest answer that a server gives, if its message contains it. `limit` is the requested maximum."""
    numbers = (int(one["number"].replace(",", "")) for one in _NUMBER.finditer(message) if one["number"])
    return max((number for number in numbers if 16 <= number < limit), default=None)


def has_files(messages: tuple[Message, ...]) -> bool:
    """True if a message, or a result in one, contains an opaque part."""
    return any(_is_file(part) for message in messages for part in message.parts)


def _is_file(part: Part) -> bool:
    return isinstance(part, OpaquePart) or (isinstance(part, ToolResult) and any(map(_is_file, part.parts)))


def _long_names(request: ModelRequest) -> bool:
    return any(len(tool.name) + len(tool.namespace or "") > SHORT_NAME_CHARS - 2 for tool in request.tools)


def reduced_capabilities(takes: Capabilities, given_up: Concessions) -> Capabilities:
    """Returns the capabilities of a server without the parts that it has refused."""
    if given_up is NONE:
        return takes
    fields: dict[str, Any] = {}
    if given_up.no_images:
        fields |= {"images": False, "images_unknown": False}
    if given_up.no_files:
        fields["files"] = False
    if given_up.short_names:
        fields["short_names"] = True
    if given_up.word_choice:
        fields["choice_objects"] = False
    for rule in given_up.roles:
        fields |= ROLE_RULES[rule]
    for name in given_up.without:
        fields |= FIELDS[name].lacks
    if forms := takes.response_format & given_up.without:
        fields["response_format"] = takes.response_format - forms
    return changed(takes, **fields) if fields else takes


def without_refused(request: ModelRequest, refused: frozenset[str], tell: Tell) -> ModelRequest:
    """Returns the request without refused fields, except for those that `reduced_capabilities` covers."""
    for name, field in FIELDS.items() if refused else ():
        if name not in refused or field.without is None or not field.is_sent(request):
            continue
        if (less := field.without(request)) is not request:
            tell(REFUSED, f"the model server takes no {field.title or name}")
            request = less
    return request


def is_usual(sampling: Sampling, limits: Limits) -> bool:
    """True if every server of this protocol accepts this sampling. False means unknown."""
    temperature, top_p, most = sampling.temperature, sampling.top_p, sampling.max_tokens
    return (
        (temperature is None or temperature <= limits.temperature)
        and (top_p is None or top_p <= 1)
        and sampling.reasoning_effort is None
        and (most is None or limits.context is None or most < limits.context)
    )


def fit_sampling(request: ModelRequest, limits: Limits, given_up: Concessions, tell: Tell) -> Sampling:
    """Returns the request's sampling limited to what the server accepts; the same object if nothing changes."""
    sampling = request.sampling
    fields: dict[str, Any] = {}
    temperature = sampling.temperature
    if temperature is not None and temperature > limits.temperature:
        fields["temperature"] = limits.temperature
        tell(TEMPERATURE, f"{temperature:g} became {limits.temperature:g}")
    if sampling.top_p is not None and sampling.top_p > 1:
        fields["top_p"] = 1
        tell(TOP_P, f"{sampling.top_p:g} became 1")
    effort = sampling.reasoning_effort
    efforts = given_up.efforts or limits.efforts
    if effort is not None and (nearest := _nearest(effort, efforts)) != effort:
        fields["reasoning_effort"] = nearest
        tell(EFFORT, f"{effort[:40]!r} became {nearest!r}")
    most = _most_tokens(request, limits, given_up)
    if sampling.max_tokens is not None and most is not None and sampling.max_tokens > most:
        fields["max_tokens"] = most or None
        tell(MAX_TOKENS, f"{sampling.max_tokens} became {most or 'what is left'}")
    return replace(sampling, **fields) if fields else sampling


def _nearest(effort: str, known: tuple[str, ...]) -> str | None:
    """Returns the level in `known` that is nearest to `effort`, the lower one of two. Returns None for `none` if that
    is not known. An unknown level is returned unchanged."""
    if not known or effort in known or effort not in EFFORTS:
        return effort
    at = EFFORTS.index(effort)
    if at == 0:
        return None
    ranked = [word for word in EFFORTS if word in known and word != "none"]
    return min(ranked, key=lambda word: abs(EFFORTS.index(word) - at), default=None)


BYTES_A_TOKEN: Final = 3
"""A cautious estimate for prompts whose tokens were not counted."""


def _most_tokens(request: ModelRequest, limits: Limits, given_up: Concessions) -> int | None:
    """Returns the longest answer that may be requested, in tokens; None if unknown. If the requested limit alone
    exceeds the context, the prompt's size is estimated; the server's error corrects a bad estimate."""
    known = [most for most in (given_up.most_tokens, given_up.left_tokens) if most is not None]
    limit = request.sampling.max_tokens
    if limits.context is not None and limit is not None and limit >= limits.context:
        guessed = min(request.size // BYTES_A_TOKEN, limits.context // 2)
        known.append(max(1, limits.context - guessed - 1))
    return min(known, default=None)
