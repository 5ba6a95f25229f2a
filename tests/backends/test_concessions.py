"""Concessions that are read from a server's error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import every
from toolwire.errors import ClientFault
from toolwire.model import Image, Message, ModelRequest, OpaquePart, Reasoning, Sampling, Text, ToolChoice, ToolSpec
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.concessions import NONE, Concessions, learn_concession, reduced_capabilities

REQUEST = ModelRequest(
    "m",
    (Message("user", (Text("weather?"),)),),
    tools=(ToolSpec("weather", "", {"type": "object"}),),
    tool_choice=ToolChoice("named", "weather"),
)


FULL = ModelRequest(
    "m",
    (
        Message("user", (Image("data:,x"), OpaquePart("messages", {"type": "document"}))),
        Message("assistant", (Reasoning("Hm."), Text("a"))),
        Message("developer", (Text("d"),)),
    ),
    sampling=Sampling(seed=1, max_tokens=32000),
)
"""A request with much that a server may refuse."""


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


@every(
    "message",
    [
        "The model `ByteDance/Seed-OSS-36B` does not exist",
        "model 'llama3.2-vision' not found",
        "No endpoints found for meta/llama-vision. Contact support.",
        "File not found: file_1",
        "Cannot POST /documents/chat/completions",
        "Unknown url. See the developer documentation.",
    ],
)
def test_what_is_not_there_is_no_refusal_of_a_part(message: str) -> None:
    """A 404 about a model, a path or a file. A request without the file would be answered, without it."""
    assert learn_concession(NONE, refusal(message, 404), FULL) is None


@every(
    "message, conceded",
    [
        (
            "Unsupported parameter: 'max_completion_tokens' is not supported with this model. Use 'max_tokens' instead.",
            Concessions(without=frozenset({"max_completion_tokens"})),
        ),
        (
            "Unsupported parameter: 'max_tokens' is not supported with gpt-5-2025-08-07. Use 'max_completion_tokens'.",
            Concessions(without=frozenset({"max_tokens"})),
        ),
        ("The model gpt-5-2025-08-07 takes max_tokens between 1-8192", Concessions(most_tokens=8192)),
        ("This model doesn't support image input", Concessions(no_images=True)),
        ("Missing `reasoning_content` field in the assistant message at message index 1.", None),
        ("Missing reasoning_content in the assistant message", None),
    ],
)
def test_what_a_message_names(message: str, conceded: Concessions | None) -> None:
    """Not the field that it advises, the date of a model, and a field that it wants."""
    for status in (400, 404) if "image" in message else (400,):
        assert learn_concession(NONE, refusal(message, status), FULL) == conceded
