"""Concessions that are read from a server's error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolwire.errors import ClientFault
from toolwire.model import Message, ModelRequest, Text, ToolChoice, ToolSpec
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.concessions import NONE, Concessions, learn_concession, reduced_capabilities

REQUEST = ModelRequest(
    "m",
    (Message("user", (Text("weather?"),)),),
    tools=(ToolSpec("weather", "", {"type": "object"}),),
    tool_choice=ToolChoice("named", "weather"),
)


def refusal(message: str, status: int = 400) -> ClientFault:
    fault = ClientFault(message, code="upstream_rejected")
    fault.upstream_status = status
    return fault


@pytest.mark.parametrize("known", [NONE, Concessions(word_choice=True)])
def test_a_choice_as_a_word_is_conceded_also_if_another_request_has_just_learned_it(known: Concessions) -> None:
    """Several requests may be under way with an object when the first refusal teaches the server's lesson."""
    fault = refusal("Invalid tool_choice type: 'object'. Supported string values: none, auto, required")
    learned = learn_concession(known, fault, REQUEST)
    assert learned == Concessions(word_choice=True)
    assert not reduced_capabilities(Capabilities(), learned).choice_objects
    as_word = replace(REQUEST, tool_choice=ToolChoice("required"))
    assert learn_concession(learned, fault, as_word) is None
