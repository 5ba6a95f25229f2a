"""Probes with one small request whether a model of a server calls tools natively (R24.1, `mode: auto`).

Rules:

1. The request has one tool, asks for its call in words, and leaves the choice to the model. Most clients ask like this,
   and servers without a tool parser differ here.
2. A call of that tool, a refusal of tools, and a complete answer without a call are verdicts. A server error or a
   truncated answer shows nothing.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final, NamedTuple

from ...errors import GatewayError, quote
from ...model import FinishReason, Message, ModelReply, ModelRequest, Sampling, Text, ToolSpec
from ..servers.adapt import adapt
from ..servers.refusals import refuses_all_tools
from .server import UpstreamServer
from .verdicts import Cause, Mode

LOG: Final = logging.getLogger("toolwire.tool_mode")

TOOL: Final = ToolSpec(
    "report_ready",
    "Reports whether you are ready.",
    {
        "type": "object",
        "properties": {"ready": {"type": "boolean"}},
        "required": ["ready"],
        "additionalProperties": False,
    },
)
ASKED: Final = Message("user", (Text("Call the tool report_ready with ready set to true. Write nothing else."),))
MAX_TOKENS: Final = 1024
"""Maximum tokens of a probe's answer: enough for a model that reasons before it calls."""


class ProbeResult(NamedTuple):
    """The result of a probe. `mode` is None if it has shown nothing. `said` is the server's refusal, or the reason why
    there was no result."""

    mode: Mode | None
    cause: Cause | None
    said: str = ""


def result_of_error(error: GatewayError) -> ProbeResult:
    """Returns the result of a probe that the server answered with an error."""
    if refuses_all_tools(error):
        return ProbeResult("prompt", "refused", error.message)
    return ProbeResult(None, None, error.message)


async def answer_to(endpoint: UpstreamServer, request: ModelRequest) -> ModelReply:
    """Returns the whole answer to one of the gateway's own requests. Raises `GatewayError`."""
    backend = endpoint.backend
    source = await backend.open(
        adapt(request, backend.capabilities, wire=backend.protocol), request_id=f"probe-{uuid.uuid4().hex}"
    )
    try:
        return await source.reply()
    finally:
        await source.close()


async def probe(endpoint: UpstreamServer, model: str) -> ProbeResult:
    """Asks a started server for a tool call of its `model`. Never raises errors of the server."""
    request = ModelRequest(model, (ASKED,), (TOOL,), sampling=Sampling(max_tokens=MAX_TOKENS))
    try:
        reply = await answer_to(endpoint, request)
    except GatewayError as error:
        LOG.info("backend %s, model %s: the probe failed: %s", quote(endpoint.name), quote(model), error.message)
        return result_of_error(error)
    if any(call.name == TOOL.name for call in reply.calls):
        return ProbeResult("native", "called")
    if any(choice.reason == FinishReason.LENGTH for choice in reply.choices):
        return ProbeResult(None, None, "its answer was cut off")
    return ProbeResult("prompt", "silent")
