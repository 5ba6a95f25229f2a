"""Servers that take no `tool_choice` but a word, such as LM Studio: a tool that is named there is demanded by sending
that one alone and `required` (R24.1).

Rules:

1. That a server is so says its preset or its configuration, or its refusal; then the same request is sent once more in
   words. A refusal is judged by the form in which this request was sent, not by what was learned since: of requests
   that are under way together each is refused, and each is sent again.
2. What a refusal teaches counts for later requests of the same owner only: a server's message may repeat what a client
   wrote (R33.6).
"""

from __future__ import annotations

from ..backends.upstream_errors import refuses_choice_form
from ..errors import GatewayError
from .pool import WeightedEndpoint


class ChoiceInWords:
    """The servers that one request of `owner`, which names tools, asks with a word. See `proxy.endpoints.attempts`."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._in_words: set[WeightedEndpoint] = set()

    def applies(self, member: WeightedEndpoint) -> bool:
        """Whether `member`, which is asked now, gets a word."""
        endpoint = member.endpoint
        if self._owner in endpoint.choice_in_words or not endpoint.backend.capabilities.choice_objects:
            self._in_words.add(member)
        return member in self._in_words

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again in that way."""
        if member in self._in_words or not refuses_choice_form(fault):
            return False
        self._in_words.add(member)
        member.endpoint.choice_in_words.add(self._owner)
        return True

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
