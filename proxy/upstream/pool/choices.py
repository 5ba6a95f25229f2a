"""Servers that take no `tool_choice` but a word, such as LM Studio: a tool that is named there is demanded by sending
that one alone and `required` (R24.1).

Rules:

1. That a server is so says its preset or its configuration, or its refusal; then the same request is sent once more in
   words. A refusal is judged by the form in which this request was sent, not by what was learned since: of requests
   that are under way together each is refused, and each is sent again.
2. What a refusal teaches is a lesson (`toolwire.upstream.pool.lessons`).
"""

from __future__ import annotations

from toolwire.errors import GatewayError
from toolwire.upstream.pool.lessons import Lessons
from toolwire.upstream.pool.pool import WeightedEndpoint
from toolwire.upstream.servers.upstream_errors import refuses_choice_form


class ChoiceInWords:
    """The servers that one request of `owner`, which names tools, asks with a word. See
    `toolwire.upstream.pool.attempts`."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._in_words: set[WeightedEndpoint] = set()
        self._asked: dict[WeightedEndpoint, tuple[Lessons, str]] = {}
        self._refused: set[WeightedEndpoint] = set()

    def applies(self, member: WeightedEndpoint, model: str) -> bool:
        """Whether `member`, which is asked for `model` now, gets a word."""
        endpoint = member.endpoint
        lessons, _ = self._asked[member] = endpoint.lessons, model
        known = lessons and lessons.knows(self._owner, model, "choice_objects")
        if known or not endpoint.backend.capabilities.choice_objects:
            self._in_words.add(member)
        return member in self._in_words

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again in that way."""
        if member in self._in_words or not refuses_choice_form(fault):
            return False
        self._in_words.add(member)
        self._refused.add(member)
        return True

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
        if member in self._refused:
            lessons, model = self._asked[member]
            lessons.learn(self._owner, model, "choice_objects")
