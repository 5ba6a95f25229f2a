"""Retries for servers that accept `tool_choice` only as a word, such as LM Studio. A named tool is demanded by sending
that tool alone, with `required` (R24.1).

Rules:

1. That a server needs this follows from its preset or configuration, or from a refusal; then the request is sent again
   with a word. A refusal is compared with the form of this very request, not with lessons learned since, so that each
   of several concurrent requests is retried.
2. A refusal becomes a lesson (`toolwire.upstream.pool.lessons`).
"""

from __future__ import annotations

from ...errors import GatewayError
from ..servers.upstream_errors import refuses_choice_form
from .lessons import Lessons
from .server_pool import WeightedServer


class ChoiceRetries:
    """The servers to which one request of `owner`, which names tools, is sent with a word as `tool_choice`. Implements
    `RetryWithLess`."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._in_words: set[WeightedServer] = set()
        self._asked: dict[WeightedServer, tuple[Lessons, str]] = {}
        self._refused: set[WeightedServer] = set()

    def applies(self, member: WeightedServer, model: str) -> bool:
        """True if `member` gets a word as `tool_choice` for `model`."""
        endpoint = member.endpoint
        lessons, _ = self._asked[member] = endpoint.lessons, model
        known = lessons and lessons.knows(self._owner, model, "choice_objects")
        if known or not endpoint.backend.capabilities.choice_objects:
            self._in_words.add(member)
        return member in self._in_words

    def should_retry(self, member: WeightedServer, fault: GatewayError) -> bool:
        """True if `member`, which failed with `fault`, gets the request again with less."""
        if member in self._in_words or not refuses_choice_form(fault):
            return False
        self._in_words.add(member)
        self._refused.add(member)
        return True

    def accepted(self, member: WeightedServer) -> None:
        """See `RetryWithLess`. The refusal becomes a lesson."""
        if member in self._refused:
            lessons, model = self._asked[member]
            lessons.learn(self._owner, model, "choice_objects")
