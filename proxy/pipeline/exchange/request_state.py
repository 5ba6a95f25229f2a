"""Everything about one client request, from the first byte read to the last byte written.

Rule: per-request state lives here and nowhere else. A middleware instance serves all requests of an application at
once, and stores its data about one request in `Exchange.state` under its own class.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from aiohttp import web

from ...call_policy.near import NearMiss
from ...errors import GatewayError
from ...model import EMPTY, Message, ModelRequest
from ...protocols.streams import WriteOptions
from ...record import AccessRecord

if TYPE_CHECKING:
    from ...formats.engine.results import Escapes
    from ...ingress.auth import ApiKey
    from ...protocols.base import ClientSide
    from ..answers.reply import Reply
    from ..conversations.background_run import BackgroundRun
    from ..scanning.offered_tools import OfferedTools
    from .routing import Route

LOG: Final = logging.getLogger("toolwire")


ToolsBy = Literal["server", "gateway", "template"]
"""The side that teaches tools and reads calls (docs/adr/0046). `server`: the server does both. `gateway`: the gateway
does both. `template`: the model's chat template in the server teaches, and the gateway reads."""

TOOLS_BY: Final[Mapping[str, ToolsBy]] = {"native": "server", "template": "template"}
"""The side that does tools by the mode of a route; `gateway` for all other modes, until `tool_mode` has chosen."""


@dataclass(slots=True)
class Exchange:
    """One client request.

    `id` is the request id (R17.7). `received` is the request as the client sent it, with the tools of the turns that it
    continues; `request` is the current one and is replaced by every middleware that changes something. `body` is the
    parsed JSON of the client, `owner` a hash of its key (empty without keys), `key` what is known of it, `conversation`
    are its messages with those of earlier turns (None until they were loaded), `created` the answer's time in Unix
    seconds.
    `offer` are the tools that the model was taught (None: no tools were injected), `escapes` the escapes in that
    prompt, `near` the near misses of the current answer. `state` belongs to middlewares, one entry per class. `replies`
    are all replies so far; the end of the exchange closes them. `over`: the exchange has ended.
    `only_counted`: only the tokens are counted, and no server is asked. `aside`: the answer belongs to no conversation.
    `failure` is the error with which it ended. `tools_by`: the side that does tools. `constrained`: the server enforces
    calls. `headers` are those of the client's request. `background`: the answer continues without its client.
    """

    id: str
    protocol: ClientSide
    route: Route
    received: ModelRequest
    request: ModelRequest
    body: Mapping[str, Any]
    record: AccessRecord
    owner: str = ""
    key: ApiKey | None = None
    conversation: tuple[Message, ...] | None = None
    created: int = field(default_factory=lambda: int(time.time()))
    offer: OfferedTools | None = None
    escapes: Escapes | None = None
    near: list[tuple[int, NearMiss]] = field(default_factory=list)
    state: dict[type, Any] = field(default_factory=dict)
    replies: list[Reply] = field(default_factory=list)
    over: bool = False
    only_counted: bool = False
    aside: bool = False
    constrained: bool = False
    failure: GatewayError | None = None
    endings: list[Callable[[], None]] = field(default_factory=list)
    tools_by: ToolsBy = "gateway"
    headers: Mapping[str, str] = EMPTY
    background: BackgroundRun | None = None
    _options: WriteOptions | None = field(default=None, init=False, repr=False)

    @property
    def untouched(self) -> bool:
        """True if no middleware has changed the request (R1.6)."""
        return self.request is self.received

    def nearly(self, choice: int, miss: NearMiss) -> None:
        """Notes a near miss in answer number `choice`, unless an overlapping text is already noted."""
        if any(known == choice and earlier.overlaps(miss) for known, earlier in self.near):
            return
        self.near.append((choice, miss))
        self.record.count("near_misses")

    def at_end(self, function: Callable[[], None]) -> None:
        """Registers `function` for the end of the exchange, whether it succeeded or failed. Functions run in reverse
        order, or at once if the exchange is over. Nothing can be sent any more then. An exception is logged."""
        self.endings.append(function)
        if self.over:
            self._call_endings()

    async def end(self) -> None:
        """Ends the exchange: runs the functions of `at_end` and closes every reply, even if closing another one fails
        or is cancelled. Empties both lists, because only the garbage collector could free their reference cycles."""
        self.over = True
        if self.endings:
            self._call_endings()
        while self.replies:
            reply = self.replies.pop(0)
            self.record.waited += reply.waited_s
            try:
                await reply.close()
            except BaseException:
                await self.end()
                raise

    def note(self, reply: Reply) -> bool:
        """Adds to `replies`. Returns True if the caller has to call `end` for it, because the exchange was already
        over: a middleware ignored its cancellation."""
        if reply in self.replies:
            return False
        self.replies.append(reply)
        return self.over

    def _call_endings(self) -> None:
        while self.endings:
            try:
                self.endings.pop()()
            except Exception:
                LOG.exception("exchange %s: a function registered for its end failed", self.id)

    def write_options(self) -> WriteOptions:
        """Returns the options for writing this answer. They are the same on the wire and in the store."""
        known = self._options
        if known is None or known.body is not self.body or known.conversation is not self.conversation:
            options = self.route.options
            known = self._options = WriteOptions(
                request=self.received,
                conversation=self.conversation,
                created=self.created,
                body=self.body,
                reasoning_field=options.reasoning.field,
                named_stop=options.calls.named_stop,
                reasoning_tags=options.reasoning.tags or ("<think>", "</think>"),
                responses=options.responses,
            )
        return known


EXCHANGE: Final = web.RequestKey("toolwire.exchange", Exchange)
"""The key of the exchange in an aiohttp request: `request[EXCHANGE]`."""
