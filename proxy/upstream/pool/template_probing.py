"""Probes whether a model's own chat template can teach the tools while the gateway reads the answer (R31.2,
docs/adr/0046).

Rules:

1. The request has one tool and does not name it. If the answer's text names the tool, the template wrote the tool into
   the prompt, and the server returned the text as the model wrote it.
2. Otherwise the prompt's token counts with and without the tool show whether the tool was in the prompt. That is enough
   only for an engine that is known not to change the text.
3. A call in a field of its own means that the server parses the answer itself, so the gateway cannot.
4. The result is a verdict, stored like the others (`verdicts.py`): for each backend and model, for `verdict_s`, until
   the server's identity changes. Each model is probed once, by one worker. After a server error the next probe may
   begin after `AGAIN_S`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from ...errors import GatewayError, quote
from ...model import Message, ModelReply, ModelRequest, Sampling, Text, ToolChoice, replace
from ...support.tasks import cancel_all
from ..servers.adapt import adapt
from ..servers.base import TokenCounter
from ..servers.presets import LEAVES_TEXT, preset_of
from .probing import TOOL, ProbeResult, answer_to, result_of_error
from .server import UpstreamServer
from .verdicts import MOST, Cause, Verdict, Verdicts

LOG: Final = logging.getLogger("toolwire.tool_mode")

ASKED: Final = Message("user", (Text("Call the tool that you were given, with the value true. Write nothing else."),))
MAX_TOKENS: Final = 512
"""Maximum tokens of a probe's answer: enough for short reasoning and a call. The probe may delay a client's request at
a busy server."""
PROBE_S: Final = 60.0
"""Time limit of a probe; a slower server shows nothing."""
AGAIN_S: Final = 60.0
"""Minimum time between two probes of a model."""
LEAST_TOKENS: Final = 8
"""The probe's tool takes at least this many tokens in any template that writes it."""

WORDS: Final[dict[Cause, str]] = {
    "called": "its chat template teaches the tools, and its text comes back as it wrote it (`mode: template`)",
    "shown": "its chat template writes the tools into the prompt, and the server leaves its text alone (`mode: template`)",
    "unseen": "its chat template does not write the tools into the prompt",
    "read": "the server reads the calls in its text itself",
    "refused": "the server refuses tools",
    "silent": "it did not call the tool that its chat template shows",
}
"""Log texts for the verdicts of template probes."""


class TemplateProbes:
    """The template probes of one application, and their verdicts."""

    def __init__(self, verdicts: Verdicts | None = None) -> None:
        self._verdicts = verdicts or Verdicts()
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._began: dict[tuple[str, str], float] = {}

    def known(self, endpoint: UpstreamServer, model: str) -> Verdict | None:
        """Returns the verdict on a model that `endpoint` knows by this name; None if no probe had a result."""
        return self._verdicts.find(endpoint.name, _served_name(endpoint, model), endpoint.server)

    def begin(self, endpoint: UpstreamServer, model: str, *, special_tokens: bool) -> asyncio.Task[None] | None:
        """Begins to probe a model of a started server, unless that was done recently. Returns the task of the running
        probe, or None. `special_tokens`: the markers of its calls are special tokens."""
        model = _served_name(endpoint, model)
        key = endpoint.name, model
        running = self._running.get(key)
        if running is not None:
            return running
        now = time.monotonic()
        began = self._began.get(key)
        if (began is not None and now - began < AGAIN_S) or not self._verdicts.claim(*key, AGAIN_S):
            return None
        if len(self._began) >= MOST:
            del self._began[next(iter(self._began))]
        self._began[key] = now
        task = self._running[key] = asyncio.create_task(self._probe(endpoint, model, special_tokens))
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def close(self) -> None:
        """Cancels all probes."""
        await cancel_all(self._running.values())

    async def _probe(self, endpoint: UpstreamServer, model: str, special_tokens: bool) -> None:
        try:
            async with asyncio.timeout(PROBE_S):
                result = await probe_template(endpoint, model, special_tokens=special_tokens)
        except TimeoutError:
            result = ProbeResult(None, None, f"it took longer than {PROBE_S:g} s")
        except Exception:  # an error of a plug-in
            LOG.exception("backend %s cannot be probed", quote(endpoint.name))
            return
        if result.mode is None or result.cause is None:
            LOG.info(
                "backend %s, model %s: the probe showed nothing: %s", quote(endpoint.name), quote(model), result.said
            )
            return
        self._verdicts.keep(
            endpoint.name, model, result.mode, result.cause, endpoint.config.verdict_s, endpoint.server, quiet=True
        )
        LOG.info("backend %s, model %s: %s", quote(endpoint.name), quote(model), WORDS[result.cause])

    def shown(self) -> dict[str, dict[str, dict[str, object]]]:
        """Returns all valid verdicts by backend and model, for `/ready`."""
        return self._verdicts.shown()


def _served_name(endpoint: UpstreamServer, model: str) -> str:
    """Returns the server's own name for the model that answers to `model`, so that a model with many names is probed
    once."""
    served = None if endpoint.identity is None else endpoint.identity.find(model)
    return model if served is None else served.name


async def probe_template(endpoint: UpstreamServer, model: str, *, special_tokens: bool) -> ProbeResult:
    """Asks a started server whether the chat template of its `model` can teach tools. Never raises errors of the
    server."""
    takes = endpoint.backend.capabilities
    request = ModelRequest(
        model,
        (ASKED,),
        (TOOL,),
        ToolChoice(takes.template_choice),
        sampling=Sampling(max_tokens=MAX_TOKENS),
        special_tokens=special_tokens,
    )
    try:
        reply = await answer_to(endpoint, request)
    except GatewayError as error:
        return result_of_error(error)
    if reply.calls:
        return ProbeResult("prompt", "read")
    if TOOL.name in reply.text:
        return ProbeResult("template", "called")
    tokens = await _tool_tokens(endpoint, request, reply)
    if tokens is None:
        return ProbeResult(
            None, None, "its answer does not name the tool, and it does not count the tokens of a prompt"
        )
    if tokens < LEAST_TOKENS:
        return ProbeResult("prompt", "unseen")
    known = endpoint.identity
    if takes.template_choice == "none" and preset_of(endpoint.config, known) in LEAVES_TEXT:
        return ProbeResult("template", "shown")
    return ProbeResult("prompt", "silent")


async def _tool_tokens(endpoint: UpstreamServer, request: ModelRequest, reply: ModelReply) -> int | None:
    """Returns how many tokens the tool of `request` takes in its prompt; None if the server does not count. Uses the
    usage of answers (`reply`, and a second one of one token), or else the server's counting path."""
    bare = replace(request, tools=(), tool_choice=ToolChoice("none"), sampling=Sampling(max_tokens=1))
    usage = reply.usage
    try:
        if usage is not None and usage.missing in (None, "output"):
            other = (await answer_to(endpoint, bare)).usage
            if other is not None and other.missing in (None, "output"):
                return usage.input_tokens - other.input_tokens
        backend = endpoint.backend
        if not isinstance(backend, TokenCounter):
            return None
        counts = [
            await backend.count(adapt(one, backend.capabilities, wire=backend.protocol)) for one in (request, bare)
        ]
    except GatewayError:
        return None
    with_tool, without = counts
    return None if with_tool is None or without is None else with_tool - without
