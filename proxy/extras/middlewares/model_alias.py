"""Renames models in requests to the model server.

The route was chosen by the client's name, so this changes only the name sent to the server and used by `format: auto`;
to change the route, use its `model` and `aliases`. The client sees the name that it requested. A route's
`upstream_model` overrides this, because it is applied last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import ClassVar

from ...events import Event, Kind
from ...model import ModelRequest
from ...pipeline.answers.reply import Reply
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAliasOptions:
    """`models`: patterns of the clients' names, and the name that is sent instead; the first match counts."""

    models: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("`models` is empty: give at least one name and its replacement")
        for pattern, name in self.models.items():
            if not name:
                raise ValueError(f"`models`: the name for {pattern!r} is empty")


class ModelAlias(Middleware):
    """Sends a different model name than the client did."""

    Options: ClassVar[type] = ModelAliasOptions

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        for pattern, name in self.options.models.items():
            if fnmatchcase(request.model, pattern):
                return request if name == request.model else replace(request, model=name)
        return request

    def declare(self, exchange: Exchange, reply: Reply) -> None:
        """Declares a stage if the model was renamed, because an answer that is forwarded unread would show the other
        name."""
        if exchange.request.model != exchange.received.model:
            reply.map(_same, Kind.EDGES)


def _same(event: Event) -> Event:
    return event
