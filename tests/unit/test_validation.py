"""The validation middleware, driven directly: every rule with its status, code and param, in the client's own shape."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.options import route_options
from toolwire.config import LimitsConfig, RouteConfig
from toolwire.errors import ClientFault
from toolwire.middlewares.validation import Validation
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.record import AccessRecord
from toolwire.schemas.schema import ToolSchemas
from toolwire.upstream.servers.base import Capabilities

CHAT = ChatProtocol()
ASK = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def tool(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


def flat(name: str = "f", **fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, **fields}


def calls(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": i} for i in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {**RESULT, "tool_call_id": call_id}


@dataclass
class FakePool:
    name: str = "fake"
    capabilities: Capabilities = field(default_factory=Capabilities)
    protocol: Any = CHAT


class Case:
    """One middleware and one route, asked again and again."""

    def __init__(
        self,
        *,
        takes: Mapping[str, Any] | None = None,
        limits: LimitsConfig | None = None,
        speaks: Any = CHAT,
        protocol: Any = CHAT,
        **options: Any,
    ) -> None:
        self.middleware = Validation()
        self.protocol = protocol
        self.route = Route(
            config=RouteConfig(),
            options=route_options(**options),
            pool=FakePool(capabilities=Capabilities(**(takes or {})), protocol=speaks),  # type: ignore[arg-type]
            format=None,  # type: ignore[arg-type]  # the validation knows no formats
            limits=limits or LimitsConfig(),
            chains={},
        )

    def exchange(self, *messages: Any, **body: Any) -> Exchange:
        raw = orjson.dumps({"model": "m", "messages": messages or (ASK,), **body})
        parsed = orjson.loads(raw)
        request = CHAT.read_request(parsed, raw)
        return Exchange("req_1", self.protocol, self.route, request, request, parsed, AccessRecord())

    def passes(self, *messages: Any, **body: Any) -> Exchange:
        exchange = self.exchange(*messages, **body)
        assert asyncio.run(self.middleware.on_request(exchange, exchange.request)) is exchange.request
        return exchange

    def fault(self, *messages: Any, **body: Any) -> tuple[str, str | None]:
        """The code and param of the first fault, found by the reader or by the middleware."""
        with pytest.raises(ClientFault) as caught:
            self.passes(*messages, **body)
        error = caught.value
        assert (error.status, error.type) == (400, "invalid_request_error")
        assert len(error.message) > 20
        return error.code, error.param


SCHEMA = "invalid_tool_schema"


# --- what is refused, and what is not --------------------------------------------------------------------------------

IDLE = {"logprobs": False, "audio": None, "modalities": ["text"], "prediction": None, "logit_bias": {}, "store": True}
CHOICE = ("invalid_tool_choice", "tool_choice")
STRICT = {"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False}
MIXED = {"type": "function", "strict": True, "function": {"name": "f", "parameters": {"type": "object"}}}
BARE = tool(parameters={"type": "object", "additionalProperties": False}, strict=True)
ABC = [tool(name) for name in "abc"]
NOPE = {"type": "function", "function": {"name": "nope"}}
ANSWERED = [ASK, calls("a"), result("a")]
SEVERAL = {"takes": {"multiple_choices": True}}
LIKELY = {"takes": {"extra_parameters": frozenset({"logprobs"})}, "speaks": None}
STRICTLY, RELAXED = {"validation": "strict"}, {"tool_names": "relaxed"}
FEW = {"limits": LimitsConfig(tools_max=3)}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [flat(name) for name in names]}}


@every(
    ("case", "body", "expected"),
    [
        # Duplicates point at the second (C29).
        ({}, {"tools": [tool("a"), tool("b"), flat("a")]}, (SCHEMA, "tools[2].name")),
        ({}, {"tools": [tool("a"), {"type": "custom", "custom": {"name": "a"}}]}, (SCHEMA, "tools[1].custom.name")),
        # The deprecated `functions`.
        ({}, {"functions": [{"name": "a"}, {"name": "a b"}]}, (SCHEMA, "functions[1].name")),
        ({}, {"functions": [{"name": "a", "parameters": {"type": "array"}}]}, (SCHEMA, "functions[0].parameters.type")),
        # Strict tools, and strict validation, which wants parameters and knows of no parallel strict calls (C9).
        ({}, {"tools": [tool(parameters=STRICT, strict=True)]}, (SCHEMA, "tools[0].function.parameters.required")),
        ({}, {"tools": [MIXED]}, (SCHEMA, "tools[0].function.parameters.additionalProperties")),
        (STRICTLY, {"tools": [tool()]}, (SCHEMA, "tools[0].function.parameters")),
        (STRICTLY, {"tools": [flat()]}, (SCHEMA, "tools[0].parameters")),
        (STRICTLY, {"tools": [BARE], "parallel_tool_calls": True}, ("invalid_value", "parallel_tool_calls")),
        (RELAXED, {"tools": [tool("a b")]}, (SCHEMA, "tools[0].function.name")),
        # Choices.
        ({}, {"tools": [tool()], "tool_choice": NOPE}, CHOICE),
        ({}, {"tool_choice": NOPE}, CHOICE),
        ({}, {"tool_choice": "required"}, CHOICE),
        ({}, {"tools": [], "tool_choice": "required"}, CHOICE),
        ({}, {"tools": [tool()], "tool_choice": allowed("auto", "f", "nope")}, CHOICE),
        ({}, {"tools": [tool()], "tool_choice": allowed("required")}, CHOICE),
        ({}, {"functions": [{"name": "f"}], "function_call": {"name": "nope"}}, (CHOICE[0], "function_call")),
        (FEW, {"tools": ABC, "tool_choice": allowed("auto", "a", "b", "c", "a")}, CHOICE),
        # Probabilities do not survive a scan. Answers without end have a bound where they are read.
        (LIKELY, {"tools": [tool()], "logprobs": True}, ("unsupported_parameter", "logprobs")),
        ({}, {"tools": [tool()], "n": 2}, ("unsupported_parameter", "n")),
        ({"speaks": None}, {"n": 2}, ("unsupported_parameter", "n")),
        (SEVERAL, {"tools": [tool()], "n": 129}, ("invalid_value", "n")),
        ({"unsupported": "ignore"}, {"tools": [tool()], "n": 129}, ("invalid_value", "n")),
    ],
)
def test_what_is_refused(case: Any, body: Any, expected: tuple[str, str]) -> None:
    assert Case(**case).fault(**body) == expected


@every(
    ("case", "messages", "body"),
    [
        # Ordinary requests.
        ({}, [], {}),
        ({}, [ASK, calls("a", "b"), result("a"), result("b")], {"tools": [tool(), flat("g")]}),
        ({}, [], {"tools": [], "tool_choice": "auto"}),
        ({}, [], {"tool_choice": "none"}),
        ({}, [], {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
        ({}, [], {"tools": [tool(parameters=None), {"type": "web_search"}, {"type": "web_search"}]}),
        # Names of the route and the protocol; tools that are not strict, and strict validation.
        (RELAXED, [], {"tools": [tool("server/mcp:x.y")]}),
        ({}, [], {"tools": [flat("x" * 128)]}),
        ({}, [], {"tools": [tool(parameters=STRICT), tool("g", parameters=STRICT, strict=False), tool("h", strict=True)]}),
        (STRICTLY, [], {"tools": [tool(parameters={})]}),
        (STRICTLY, [], {"tools": [BARE]}),
        (STRICTLY, [], {"tools": [BARE], "parallel_tool_calls": False}),
        (STRICTLY, [], {"tools": [tool(parameters={})], "parallel_tool_calls": True}),
        ({}, [], {"tools": [BARE], "parallel_tool_calls": True}),
        # Choices.
        ({}, [], {"tools": [tool()], "tool_choice": allowed("required", "f")}),
        ({}, [], {"tools": [tool()], "tool_choice": "required"}),
        ({"mode": "native"}, [], {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
        (FEW, [], {"tools": ABC, "tool_choice": allowed("auto", "a", "b", "c")}),
        # Probabilities, and fields that ask for nothing.
        (LIKELY, [], {"logprobs": True}),
        (LIKELY, [], {"tools": [tool()], "tool_choice": "none", "logprobs": True}),
        ({}, [], {"tools": [tool()], **IDLE}),
        ({}, [], {"tools": [tool()], "made_up": 1, "top_logprobs": 0}),
        # Several answers: Chat and completions alike. Bytes that pass are the server's affair.
        *(({}, [], {"n": n}) for n in (1, None, 10**6)),
        *(
            ({"speaks": speaks}, messages, asked)
            for speaks in (CHAT, CompletionsProtocol())
            for messages, asked in (([], {"n": 2}), ([], {"logprobs": True}), (ANSWERED, {"n": 2, "logprobs": True}))
        ),
        (SEVERAL, [], {"n": 2}),
        (SEVERAL, [], {"tools": [tool()], "n": 128}),
        ({"unsupported": "ignore"}, [], {"n": 2}),
    ],
)  # fmt: skip
def test_what_passes_untouched(case: Any, messages: list[Any], body: Any) -> None:
    Case(**case).passes(*messages, **body)


def test_a_name_that_would_do_on_another_route_says_so() -> None:
    with pytest.raises(ClientFault, match="tool_names: relaxed"):
        Case().passes(tools=[tool("server/mcp:x.y")])


# --- tools ----------------------------------------------------------------------------------------------------------


@every("name", ["a b", "x" * 129, "ä", "", "a.b", "a\n"])
def test_names(name: str) -> None:
    assert Case().fault(tools=[tool(), tool(name)]) == (SCHEMA, "tools[1].function.name")
    assert Case().fault(tools=[flat(name)]) == (SCHEMA, "tools[0].name")


@every(
    ("parameters", "where"),
    [
        ({"type": "array"}, ".type"),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, ".properties.a.type"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/x"}}}, ".properties.a.$ref"),
        ({"properties": {"a b": {"minLength": -1}}}, '.properties["a b"].minLength'),
        ({"description": "x" * 300_000}, ""),
    ],
)
def test_schemas(parameters: Any, where: str) -> None:
    tools = [tool("a"), tool("b", parameters=parameters)]
    assert Case().fault(tools=tools) == (SCHEMA, f"tools[1].function.parameters{where}")
    assert Case().fault(tools=[flat("b", parameters=parameters)]) == (SCHEMA, f"tools[0].parameters{where}")


def test_number_of_tools(caplog: pytest.LogCaptureFixture) -> None:
    case = Case(limits=LimitsConfig(tools_warn=2, tools_max=3))
    with caplog.at_level("WARNING"):
        case.passes(tools=[tool("a"), tool("b")])
        assert not caplog.records
        case.passes(tools=[tool("a"), tool("b"), tool("c")])
        assert "3 tools" in caplog.text
    assert case.fault(tools=[tool(n) for n in "abcd"]) == (SCHEMA, "tools")
    assert LimitsConfig().tools_max == 2048


@every(
    ("parameters", "shown"),
    [
        ({"$ref": "#"}, {"$ref": "#"}),
        ({"properties": {"a": {"type": "any", "description": None}}}, {"properties": {"a": {}}}),
        ({"properties": {"a": {"$ref": "#/$defs/Gone"}}}, {"properties": {"a": {}}}),
        ({"patternProperties": {"^(?!x)": {}}}, {"patternProperties": {"^(?!x)": {}}}),
    ],
)
def test_schemas_that_cannot_be_checked(parameters: Any, shown: Any) -> None:
    """R28.4: the tool stays, and what cannot be checked of it is not."""
    case = Case()
    exchange = case.exchange(tools=[tool("a"), tool("b", parameters=parameters)])
    for _ in range(2):  # the second time it is known
        request = asyncio.run(case.middleware.on_request(exchange, exchange.request))
        assert [one.parameters for one in request.tools] == [None, shown]
        assert exchange.record.tolerances == ["schema_unchecked"]
        assert exchange.state[ToolSchemas]["b"].check('{"a": 1}') is None


def test_other_kinds_are_noted_and_never_refused(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        Case().passes(tools=[{"type": "web_search"}, {"type": "mcp", "server_label": "a b"}, tool()])
    said = 'request req_1: hosted tools are not simulated: "web_search, a b"'
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("WARNING", said)]


def test_compiled_schemas_are_left_for_others() -> None:
    exchange = Case().passes(tools=[tool("a", parameters={"required": ["x"]}), tool("b"), {"type": "web_search"}])
    schemas = exchange.state[ToolSchemas]
    assert list(schemas) == ["a", "b"]
    assert schemas["a"].check("{}") == '`$`: "x" is a required property.'


def test_a_duplicate_is_found_although_the_schemas_are_known() -> None:
    case = Case()
    case.passes(tools=[tool("a")])
    assert case.fault(tools=[tool("a"), tool("a")]) == (SCHEMA, "tools[1].function.name")
    case.passes(tools=[tool("a")])


# --- fields the route cannot honour ---------------------------------------------------------------------------------

ASKS = {
    "logprobs": True,
    "audio": {"voice": "alloy", "format": "wav"},
    "modalities": ["text", "audio"],
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
    "logit_bias": {"50256": -100},
}


@every("name", ASKS)
def test_unsupported_fields(name: str) -> None:
    asks = {name: ASKS[name]}
    assert Case().fault(tools=[tool()], **asks) == ("unsupported_parameter", name)
    told = [ASK, calls("a"), result("a")]
    if name == "logprobs":
        Case().passes(*told, **asks)  # without tools it is asked for it
    else:
        assert Case().fault(*told, **asks) == ("unsupported_parameter", name)
    Case(unsupported="ignore").passes(tools=[tool()], **asks)
    Case().passes(**asks)  # passed through: the backend decides
    assert Case(speaks=None).fault(**asks) == ("unsupported_parameter", name)
    Case(mode="native").passes(tools=[tool()], **asks)


@every("name", sorted(ASKS.keys() - {"logprobs"}))
def test_fields_that_the_backend_takes(name: str) -> None:
    asks = {name: ASKS[name]}
    takes = {"extra_parameters": frozenset({name})}
    Case(takes=takes).passes(tools=[tool()], **asks)
    Case(forward_unknown="all").passes(tools=[tool()], **asks)
    assert Case(takes=takes, forward_unknown="drop").fault(tools=[tool()], **asks) == ("unsupported_parameter", name)


# --- the conversation -----------------------------------------------------------------------------------------------

CALL_ID = "invalid_tool_call_id"
ORDER = "invalid_message_order"


@every(
    ("messages", "expected"),
    [
        ([ASK, calls("a", "a")], (CALL_ID, "messages[1].tool_calls[1].id")),
        ([ASK, calls("a"), result("a"), calls("b", "a")], (CALL_ID, "messages[3].tool_calls[1].id")),
        ([ASK, calls("")], (CALL_ID, "messages[1].tool_calls[0].id")),
        ([ASK, calls("x" * 257)], (CALL_ID, "messages[1].tool_calls[0].id")),
        ([ASK, calls("a"), result("b")], (CALL_ID, "messages[2].tool_call_id")),
        ([ASK, calls("a"), result("a"), result("b"), calls("b")], (CALL_ID, "messages[3].tool_call_id")),
        ([ASK, result("a")], (ORDER, "messages[1]")),
        ([result("a"), calls("a")], (ORDER, "messages[0]")),
        ([ASK, {"role": "assistant", "content": "x", "tool_calls": []}, result("a")], (ORDER, "messages[2]")),
    ],
)
def test_calls_and_results(messages: list[Any], expected: tuple[str, str]) -> None:
    assert Case(validation="strict").fault(*messages) == expected
    if expected[1].endswith("].id"):
        assert Case().fault(*messages) == expected
    else:  # a result without its call is shown (R28.4)
        exchange = Case().passes(*messages)
        assert exchange.record.tolerances == ["result_without_call"]


def test_conversations_that_are_fine() -> None:
    case = Case()
    for messages in (
        [ASK, calls("x" * 256)],
        [ASK, calls("a", "b"), result("b"), result("a"), ASK, calls("c"), result("c")],
        [ASK, calls("a")],
        [ASK, calls("a"), ASK],
        [ASK, calls("a"), result("a"), result("a")],
        [ASK, calls("a"), {**result("a"), "content": ""}],
    ):
        assert not case.passes(*messages).record.counts["moved_results"]


def test_results_away_from_their_calls() -> None:
    messages = [ASK, calls("a", "b"), result("b"), ASK, result("a"), calls("c"), result("c")]
    exchange = Case().passes(*messages)
    assert exchange.record.counts["moved_results"] == 1
    assert Case(validation="strict").fault(*messages) == (ORDER, "messages[4]")
    crossed = [ASK, calls("a"), calls("b"), result("a"), result("b")]
    assert Case().passes(*crossed).record.counts["moved_results"] == 1
    assert Case(validation="strict").fault(*crossed) == (ORDER, "messages[3]")


# --- images ---------------------------------------------------------------------------------------------------------


def test_images() -> None:
    shown = {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "see"}, IMAGE]}
    refusing = Case(takes={"refuse_images": True})
    assert refusing.fault(ASK, shown) == ("unsupported_content", "messages[1].content[2]")
    for takes in ({}, {"images": True}, {"images_unknown": True}):
        Case(takes=takes).passes(shown)
        Case(takes=takes).passes(shown, tools=[tool()])
        Case(takes=takes, speaks=None).passes(shown)
    answered = [ASK, calls("a"), {"role": "tool", "tool_call_id": "a", "content": [IMAGE]}]
    assert refusing.fault(*answered) == ("unsupported_content", "messages[2].content[0]")


# --- order ----------------------------------------------------------------------------------------------------------


def test_the_first_fault_is_reported() -> None:
    body: dict[str, Any] = {
        "n": 2,
        "tools": [tool("a b"), tool("c")],
        "tool_choice": {"type": "function", "function": {"name": "x"}},
    }
    image = {"role": "user", "content": [IMAGE]}
    messages = [ASK, result("a"), image]
    case = Case(validation="strict", takes={"refuse_images": True})
    assert case.fault(*messages, **body) == ("unsupported_parameter", "n")
    del body["n"]
    assert case.fault(*messages, **body) == (SCHEMA, "tools[0].function.name")
    body["tools"] = [tool("c", parameters={})]
    assert case.fault(*messages, **body) == CHOICE
    del body["tool_choice"]
    assert case.fault(*messages, **body) == (ORDER, "messages[1]")
    assert case.fault(ASK, image, **body) == ("unsupported_content", "messages[1].content[0]")


def test_messages_name_what_was_sent_and_shorten_it() -> None:
    case = Case()
    exchange = case.exchange(tools=[tool("no name " * 1_000)])
    with pytest.raises(ClientFault) as caught:
        asyncio.run(case.middleware.on_request(exchange, exchange.request))
    assert '"no name no name' in caught.value.message
    assert len(caught.value.message) < 400
