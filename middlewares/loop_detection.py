"""Detects clients whose model makes the same call turn after turn, or calls without end (R15.11).

It reads the conversation of the request, including stored turns, so it must come after `conversation`. Calls that the
gateway itself ran are ignored. It is left out of the chain if neither `loop_detect.repeats` nor
`limits.calls_per_conversation` is set.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from toolwire.errors import ClientFault, quote
from toolwire.model import Message, ModelRequest, Text, ToolUse
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.tool_memory import HiddenCalls
from toolwire.record import AccessField

LOG: Final = logging.getLogger("toolwire.loop_detection")

NOTICE: Final = (
    "You have called `{name}` with the same arguments {times} times in a row. Do not repeat this call: its result will not change."
    " Go on with what you know, or say what is missing."
)

_Key = tuple[str, str]


class LoopDetection(Middleware):
    """Tells the model that it repeats itself, or refuses the request."""

    proxied_requests = "stands_aside"
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("loops", "The model makes the same call turn after turn (`loop_detect`)."),
    )

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        return not place.route.options.loop_detect.repeats and place.config.limits.calls_per_conversation is None

    @classmethod
    def stands_behind(cls, place: ChainPlace) -> Mapping[str, str]:
        return {"conversation": "which loads the turns that it checks"}

    @classmethod
    def asked_for_by(cls, place: ChainPlace) -> str | None:
        return "loop_detect.repeats" if place.route.options.loop_detect.repeats else None

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Returns the request, with a notice if the model repeats a call. Raises `ClientFault` `tool_loop_detected` or
        `too_many_tool_calls`."""
        most = exchange.route.limits.calls_per_conversation
        hidden: HiddenCalls = exchange.state.get(HiddenCalls, HiddenCalls())
        messages = hidden.without(request.messages)
        if most is not None:
            made = sum(isinstance(part, ToolUse) for message in messages for part in message.parts)
            if made > most:
                raise ClientFault(
                    f"The conversation has {made} tool calls; the most is {most}.",
                    code="too_many_tool_calls",
                    hint="Begin a new conversation, or raise `limits.calls_per_conversation`.",
                )
        options = exchange.route.options.loop_detect
        call = repeated(messages, options.repeats) if options.repeats else None
        if call is None:
            return request
        name, _ = call
        exchange.record.count("loops")
        LOG.warning("request %s: %s was called %d times in a row", exchange.id, quote(name), options.repeats)
        if options.policy == "fail":
            raise ClientFault(
                f"The model called {quote(name)} with the same arguments in {options.repeats} turns in a row.",
                code="tool_loop_detected",
                hint="Change the conversation, or set `loop_detect.policy: notice` for the route.",
            )
        notice = Message("user", (Text(NOTICE.format(name=name, times=options.repeats)),))
        return replace(request, messages=(*request.messages, notice))


def repeated(messages: Iterable[Message], repeats: int) -> _Key | None:
    """Returns a call (name and arguments) that each of the last `repeats` assistant turns made; None if there
    is none."""
    turns = [message for message in messages if message.role == "assistant"][-repeats:]
    if len(turns) < repeats:
        return None
    last, *before = ({_key(part): None for part in turn.parts if isinstance(part, ToolUse)} for turn in reversed(turns))
    return next((call for call in last if all(call in turn for turn in before)), None)


def _key(use: ToolUse) -> _Key:
    """Returns a key that is equal for equal calls: order and spaces of the JSON do not matter."""
    try:
        arguments = json.dumps(json.loads(use.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = use.arguments
    return use.name, arguments
