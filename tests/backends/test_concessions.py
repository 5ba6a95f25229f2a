"""Concessions that are read from a server's error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cases import every
from toolwire.errors import ClientFault
from toolwire.model import (
    Attempt,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Reasoning,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
)
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.concessions import (
    NONE,
    Concessions,
    learn_concession,
    reduced_capabilities,
    without_refused,
)

ONE_IMAGE = Concessions(no_images=True, media_once=True)
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
    sampling=Sampling(temperature=0.7, top_p=0.9, top_k=40, seed=1, max_tokens=32000, presence_penalty=0.5),
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
    "message, status",
    [
        ("File file_1 not found", 400),
        ("The file with id file_1 does not exist or has expired.", 400),
        ("Error while downloading file. Upstream status code: 403.", 400),
        ("Unable to fetch the image at the given URL", 400),
        ("Failed to retrieve image_url: connection timed out", 422),
        ("Internal error: worker 3 died (seed=1, temperature=0)", 500),
        ("CUDA error in image encoder, file encoder.py", 500),
        ("tool_choice worker crashed", 500),
        ("Payload too large for file buffer", 413),
    ],
)
def test_what_is_missing_or_passes_is_no_refusal_of_a_part(message: str, status: int) -> None:
    """The client learns of it, and later requests keep the part."""
    sent = replace(FULL, tools=REQUEST.tools, tool_choice=ToolChoice("required"))
    assert learn_concession(NONE, refusal(message, status), sent) is None


@every(
    "message, refused",
    [
        (
            "Invalid schema for response_format 'n': 'additionalProperties' is required to be false, 'x' is not permitted.",
            False,
        ),
        (
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            False,
        ),
        ("Failed to generate JSON. Please adjust your prompt.", False),
        ("response_format.json_schema.schema: unknown field 'patternProperties'", False),
        ("Invalid value for 'response_format.json_schema.name': must be a string", False),
        ("The response_format json_schema name must be at most 64 characters", False),
        ("json_schema with recursion is not supported", False),
        ("Unsupported json_schema keyword: not", False),
        ("Unsupported MIME type: text/x-foo", False),
        ("This model does not support response_format json_schema. Use json_object.", True),
        ("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", True),
        ("response_format: unknown variant `json_schema`, expected `text` or `json_object`", True),
        ("{'loc': ['body', 'response_format', 'type'], 'msg': \"Input should be 'text' or 'json_object'\"}", True),
        ("Function calling with a response mime type: 'application/json' is unsupported", True),
        ("json mode cannot be combined with tool/function calling", True),
        ("property 'response_format' is unsupported", True),
    ],
)
def test_a_format_is_refused_if_its_kind_is(message: str, refused: bool) -> None:
    """A schema that is wrong is the client's mistake."""
    sent = replace(REQUEST, response_format={"type": "json_schema", "json_schema": {"schema": {}}})
    wanted = Concessions(without=frozenset({"json_schema"})) if refused else None
    assert learn_concession(NONE, refusal(message), sent) == wanted


@every("message", ["Stream options are not supported", "Upstream stream error, model not available"])
def test_not_every_message_about_streams_refuses_them(message: str) -> None:
    assert learn_concession(NONE, refusal(message), replace(REQUEST, stream=True, tool_choice=ToolChoice())) is None


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
        ("Requests with max_tokens > 4096 must have stream=true", Concessions(without=frozenset({"whole"}))),
        ("This model doesn't support image input", Concessions(no_images=True)),
        ("Fetching image URLs is not supported", Concessions(no_images=True)),
        ("this model is missing data required for image input", Concessions(no_images=True)),
        ("messages.0.content.0.image.source.base64: image exceeds 5 MB maximum", ONE_IMAGE),
        ("Could not process image", ONE_IMAGE),
        *(
            (words, ONE_IMAGE)
            for words in (
                "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png'].",
                "Expected a base64-encoded data URL with an image MIME type, but got empty base64-encoded bytes.",
                "messages.0.content.1.image.source.base64.media_type: Input should be 'image/jpeg' or 'image/png'",
                "The image was specified using the image/png media type, but the image appears to be a image/jpeg image",
                "Invalid request: unsupported image format",
                "Prompt contains 4 image tokens, but 3 images were given",
                "Image could not be loaded from url",
                "The image length and width do not meet the model restrictions.",
            )
        ),
        ("The document has no pages.", Concessions(no_files=True, media_once=True)),
        ("The PDF specified is password protected.", Concessions(no_files=True, media_once=True)),
        ("At most 1 image(s) may be provided in one request.", ONE_IMAGE),
        ("At most 0 image(s) may be provided in one request.", Concessions(no_images=True)),
        ("The model server answered 400: could not reserve the context window", None),
        *(
            (words, None)
            for words in (
                "temperature must be non-negative, got -1.0.",
                "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3.0 instead.",
                "top_p must be in (0, 1], got 0.0.",
                "top_k must be 0 (disable), or at least 1, got -5.",
                "presence_penalty must be in [-2, 2], got 3.0.",
                "seed: Input should be a valid integer",
                "Invalid temperature value, the valid range of temperature is [0, 2]",
                '[{"type":"less_than_equal","loc":["body","top_p"],"msg":"Input should be less than or equal to 1"}]',
                "[{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required', 'input': {'top_p': 0.9, 'seed': 1}}]",
                "1 validation error\n  Input should be a valid string [type=string_type, input_value='seed, image, files']",
            )
        ),
        *(
            (words, Concessions(without=frozenset({name})))
            for words, name in (
                ("invalid temperature: only 0.6 is allowed for this model", "temperature"),
                ("`temperature` may only be set to 1 when thinking is enabled.", "temperature"),
                ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
                ("`top_p` must be greater than or equal to 0.95 or unset when thinking is enabled.", "top_p"),
                ("#: extraneous key [top_k] is not permitted, please reformat your input and try again.", "top_k"),
                ("Argument not supported on this model: presencePenalty", "presence_penalty"),
            )
        ),
        ("request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it", None),
        ("The input (6030 tokens) is longer than the model's context length (4096 tokens).", None),
        ("invalid params, context window exceeds limit (2013)", None),
        ("max_tokens must be at least 1, got -95.", None),
        ("Missing `reasoning_content` field in the assistant message at message index 1.", None),
        ("Missing reasoning_content in the assistant message", None),
        ("Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760.", None),
    ],
)
def test_what_a_message_names(message: str, conceded: Concessions | None) -> None:
    """Not the field that it advises, the date of a model, its status, and a field that it wants."""
    for status in (400, 404, 500) if "image" in message and ("support" in message or "required" in message) else (400,):
        assert learn_concession(NONE, refusal(message, status), FULL) == conceded


@every("texts, lost", [("a", False), ("ab", True)])
def test_content_in_parts_is_told_where_there_are_several(texts: str, lost: bool) -> None:
    """A list with one text is written as a string in any case."""
    told: list[str] = []
    content = (*map(Text, texts), Attempt("c") if lost else Image("data:image/png;base64,iVBORw0KGgo="))
    sent = without_refused(
        ModelRequest("m", (Message("user", content), Message("tool", (ToolResult("c1", content),)))),
        frozenset({"content_parts"}),
        lambda name, detail: told.append(detail),
    )
    kept = (Text("a\n\nb\n\nc"),) if lost else content
    assert [message.parts for message in sent.messages] == [kept, (ToolResult("c1", kept),)]
    assert told == ["the model server takes no content in parts"] * lost
