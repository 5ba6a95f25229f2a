"""Prompts that are too large, refused before a model server is asked.

Counts what the model would get to read: every text of the messages, and the definitions of the tools. Behind
`conversation` the earlier turns are part of it. Tokens are an estimate in the route's encoding (R11.4); a limit on
characters costs less and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from toolwire.errors import ClientFault
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.exchange import Exchange
from toolwire.upstream.servers.usage import Estimator, request_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptGuardOptions:
    """The most that a prompt may have, of each kind; null means no limit. At least one must be set."""

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
    """Refuses prompts beyond a limit with `context_length_exceeded`, as a model server would."""

    Options: ClassVar[type] = PromptGuardOptions

    def __init__(self, options: PromptGuardOptions, *, name: str | None = None) -> None:
        super().__init__(options, name=name)
        self._estimators: dict[str, Estimator] = {}

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        """See `Middleware.on_request`. Raises `ClientFault` `context_length_exceeded`."""
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
    return ClientFault(
        f"The prompt has {size}; at most {limit} are allowed here.",
        code="context_length_exceeded",
        param="messages" if exchange.protocol.whole_history else "input",
        hint="Send fewer or shorter messages, or fewer tools.",
    )
