"""Servers that take no `tool_choice` but a word, such as LM Studio: a tool that is named there is demanded by sending
that one alone and `required` (R24.1).

That a server is so says its preset or its configuration, or its refusal; then the same request is sent once more, and
the next ones are sent so at once.
"""

from __future__ import annotations

from ..backends.upstream_errors import refuses_choice_form
from ..errors import GatewayError
from .pool import WeightedEndpoint


def in_words(member: WeightedEndpoint) -> bool:
    """Whether this server gets a word."""
    endpoint = member.endpoint
    return endpoint.choice_in_words or not endpoint.backend.capabilities.choice_objects


class ChoiceInWords:
    """Of one request that names tools: the servers that are asked with a word. See `proxy.endpoints.attempts`."""

    def is_careful(self, member: WeightedEndpoint) -> bool:
        """Whether the beginning of its answer may say that it refuses: only a status does."""
        return False

    def relaxes(self, member: WeightedEndpoint, fault: GatewayError) -> bool:
        """Whether `member`, which failed with `fault`, is to be asked again in that way."""
        if in_words(member) or not refuses_choice_form(fault):
            return False
        member.endpoint.choice_in_words = True
        return True

    def accepted(self, member: WeightedEndpoint) -> None:
        """The answer of `member` has begun."""
