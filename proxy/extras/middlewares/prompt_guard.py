"""Refuses prompts that are too large before a model server is called.

Counts the text that the model would read: all texts of the messages, and the definitions of the tools. After
`conversation` the earlier turns are included. Tokens are estimated in the route's encoding (R11.4); a limit of
characters is cheaper and exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import ClientFault
from ...model import ModelRequest
from ...pipeline.chain.middleware import Middleware
from ...pipeline.exchange.request_state import Exchange
from ...protocols.shared.server_errors import overflow_fault
from ...upstream.servers.usage import Estimator, request_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGuardOptions:
    """The limits of a prompt; null means no limit. At least one must be set."""

    messages: int | None = None
    characters: int | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.messages, self.characters, self.tokens) if limit is not None]
        if not limits:
            raise ValueError("set at least one of `messages`, `characters`, `tokens`")
        if min(limits) < 1:
            raise ValueError("a limit must be at least 1")


class PromptGuard(Middleware):
    """Refuses prompts beyond a limit with `context_length_exceeded`, like a model server."""

    Options: ClassVar[type] = PromptGuardOptions

    def __init__(self, options: PromptGuardOptions, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._estimators: dict[str, Estimator] = {}

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """Returns the request if it keeps the limits. Raises `ClientFault` `context_length_exceeded`."""
        limits = self.options
        if limits.messages is not None and len(request.messages) > limits.messages:
            raise _too_large(exchange, f"{len(request.messages)} messages", limits.messages)
        if limits.characters is not None:
            characters = sum(map(len, request_texts(request)))
            if characters > limits.characters:
                raise _too_large(exchange, f"{characters} characters", limits.characters)
        if limits.tokens is not None:
            tokens = await self._estimator(exchange.route.options.usage.encoding).count_request(request)
            if tokens > limits.tokens:
                raise _too_large(exchange, f"about {tokens} tokens", limits.tokens)
        return request

    def _estimator(self, encoding: str) -> Estimator:
        known = self._estimators.get(encoding)
        if known is None:
            known = self._estimators[encoding] = Estimator(encoding)
        return known


def _too_large(exchange: Exchange, size: str, limit: int) -> ClientFault:
    return overflow_fault(
        f"The prompt has {size}; at most {limit} are allowed here.",
        param="messages" if exchange.protocol.whole_history else "input",
        hint="Send fewer or shorter messages, or fewer tools.",
    )
