"""Other names for models, on the way to the model server.

The route has been found by the name that the client sent, so nothing here changes where a request goes; for that a
route has `model` and `aliases`. What is renamed is what the model server is asked for, and by which `format: auto`
goes. The client sees the name that it asked for. A route's `upstream_model` wins, because it is looked at last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import ClassVar

from toolwire.events import Event, Kind
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.chain.reply import Reply
from toolwire.pipeline.exchange.exchange import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAliasOptions:
    """`models`: globs of the clients' names, and the name that is sent instead; the first that fits counts."""

    models: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("`models` is empty: give at least one name and what is sent instead")
        for pattern, name in self.models.items():
            if not name:
                raise ValueError(f"`models`: no name is given for {pattern!r}")


class ModelAlias(Middleware):
    """Sends another model name than the client did."""

    Options: ClassVar[type] = ModelAliasOptions

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`."""
        for pattern, name in self.options.models.items():
            if fnmatchcase(request.model, pattern):
                return request if name == request.model else replace(request, model=name)
        return request

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """See `Middleware.declare`: an answer that went out unread would tell the other name."""
        if exchange.request.model != exchange.received.model:
            reply.map(_same, Kind.EDGES)


def _same(event: Event) -> Event:
    return event
