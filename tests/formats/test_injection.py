"""The injection middleware: when it acts, what it notes, and when a call is enforced (R1.6, R3.9, R10.10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from middlewares.injection import Injection, InjectionOptions
from proxy.backends.base import Capabilities
from proxy.config import LimitsConfig, PromptConfig, ReasoningConfig, RouteConfig, RouteOptions
from proxy.errors import ClientFault
from proxy.exchange import Exchange
from proxy.formats import bare_json, hermes, sentinel
from proxy.formats.base import ToolFormat
from proxy.model import Message, ModelRequest, Origin, Text, ToolChoice, ToolResult, ToolSpec, ToolUse
from proxy.observability.telemetry import AccessRecord
from proxy.offload import OFFLOAD_BYTES
from proxy.prompt import DEFAULT_TEMPLATE, NEVER
from proxy.protocols.chat import ChatProtocol
from proxy.routing import Route
from proxy.targets.targets import Targets
from tests.formats.cases import FORMATS, SEARCH, WEATHER
from tests.formats.sampler import Grammar

REQUIRED = ToolChoice("required")


class Model:
    """A backend of which only the profile matters."""

    def __init__(self, constrain: str) -> None:
        self.capabilities = Capabilities(constrain=constrain)


def exchange_for(
    asked: ModelRequest, tool_format: ToolFormat = sentinel.FORMAT, feature: str = "none", **options: Any
) -> Exchange:
    async def chain(request: object) -> Any:
        raise AssertionError

    targets = cast(Targets, Model(feature))
    route = Route(RouteConfig(), RouteOptions(**options), targets, tool_format, LimitsConfig(), chain)
    return Exchange("req", ChatProtocol(), route, asked, asked, {}, AccessRecord())


def request(*tools: ToolSpec, **more: Any) -> ModelRequest:
    return ModelRequest("m", (Message("user", (Text("hi"),)),), tools, **more)


async def injected(asked: ModelRequest, *args: Any, **options: Any) -> tuple[ModelRequest, Exchange]:
    exchange = exchange_for(asked, *args, **options)
    return await Injection().on_request(exchange, asked), exchange


async def test_native_routes_are_left_alone() -> None:
    asked = request(WEATHER)
    changed, exchange = await injected(asked, mode="native")
    assert changed is asked
    assert exchange.offer is None


async def test_a_request_without_tools_is_left_alone() -> None:
    asked = request()
    changed, exchange = await injected(asked)
    assert changed is asked
    assert exchange.offer is None


async def test_what_was_taught_is_noted() -> None:
    asked = request(WEATHER, SEARCH, tool_choice=ToolChoice(allowed=("search",)), parallel_tool_calls=False)
    changed, exchange = await injected(asked, hermes.FORMAT)
    offer = exchange.offer
    assert offer is not None
    assert (offer.tools, offer.choice, offer.parallel, offer.format) == (
        (SEARCH,), asked.tool_choice, False, hermes.FORMAT,
    )  # fmt: skip
    assert changed.tools == ()
    assert changed.messages[0].role == "system"
    assert hermes.FORMAT.instructions in changed.messages[0].text
    assert changed.constraint is None


async def test_history_is_flattened_without_tools_and_nothing_is_offered() -> None:
    asked = ModelRequest(
        "m", (Message("assistant", (ToolUse("a", "t", "{}"),)), Message("tool", (ToolResult("a", (Text("x"),)),)))
    )
    changed, exchange = await injected(asked)
    assert [message.role for message in changed.messages] == ["assistant", "user"]
    assert exchange.offer is None


async def test_none_offers_nothing() -> None:
    changed, exchange = await injected(request(WEATHER, tool_choice=ToolChoice("none")))
    assert changed.messages[0].text == NEVER
    assert exchange.offer is None


@pytest.mark.parametrize("tool_format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize(
    ("choice", "constrain", "feature", "wanted"),
    [
        (REQUIRED, "auto", "gbnf", True),
        (ToolChoice("named", "search"), "auto", "guided", True),
        (REQUIRED, "required", "ebnf", True),
        (ToolChoice(), "auto", "gbnf", False),
        (REQUIRED, "off", "gbnf", False),
        (REQUIRED, "auto", "none", False),
    ],
)
async def test_a_call_is_enforced_where_it_is_demanded_and_can_be(
    tool_format: ToolFormat, choice: ToolChoice, constrain: str, feature: str, wanted: bool
) -> None:
    changed, exchange = await injected(
        request(WEATHER, SEARCH, tool_choice=choice), tool_format, feature, constrain=constrain
    )
    assert (changed.constraint is not None) is wanted
    if changed.constraint is not None:
        assert exchange.offer is not None
        assert [tool.name for tool in changed.constraint.calls] == [tool.name for tool in exchange.offer.tools]
        Grammar(changed.constraint.gbnf)  # it can be read


@pytest.mark.parametrize("feature", ["json_schema", "format"])
async def test_a_schema_only_enforces_bare_json(feature: str) -> None:
    asked = request(ToolSpec("patch", kind="custom"), tool_choice=REQUIRED)
    changed, _ = await injected(asked, sentinel.FORMAT, feature)
    assert changed.constraint is None
    changed, _ = await injected(asked, bare_json.FORMAT, feature)
    assert changed.constraint is not None
    (tool,) = changed.constraint.calls
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["input"]


async def test_a_named_choice_allows_one_call() -> None:
    for choice, several in ((ToolChoice("named", "search"), False), (REQUIRED, True)):
        changed, _ = await injected(request(SEARCH, tool_choice=choice), sentinel.FORMAT, "gbnf")
        assert changed.constraint is not None
        assert ("{0,7}" in changed.constraint.gbnf.splitlines()[0]) is several


async def test_bounds_are_options() -> None:
    asked = request(
        ToolSpec("t", None, {"type": "object", "properties": {"s": {"type": "string"}}}), tool_choice=REQUIRED
    )
    middleware = Injection(InjectionOptions(string_chars=33, calls=1))
    changed = await middleware.on_request(exchange_for(asked, sentinel.FORMAT, "gbnf"), asked)
    assert changed.constraint is not None
    assert "{0,33}" in changed.constraint.gbnf
    assert "{0,7}" not in changed.constraint.gbnf


@pytest.mark.parametrize(
    ("feature", "options"),
    [("none", {}), ("json_schema", {}), ("gbnf", {"reasoning": ReasoningConfig(preopened=True)})],
)
async def test_required_enforcement_that_is_impossible_is_an_error(feature: str, options: dict[str, Any]) -> None:
    asked = request(WEATHER, tool_choice=REQUIRED)
    with pytest.raises(ClientFault) as caught:
        await injected(asked, sentinel.FORMAT, feature, constrain="required", **options)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unsupported_parameter", "tool_choice")
    changed, _ = await injected(asked, sentinel.FORMAT, feature, constrain="auto", **options)
    assert changed.constraint is None


async def test_equal_tools_are_rendered_once() -> None:
    rendered: list[int] = []

    def render_tools(tools: Any) -> str:
        rendered.append(len(tools))
        return sentinel.FORMAT.render_tools(tools)

    counting = ToolFormat(
        name="counting",
        grammar=sentinel.GRAMMAR,
        instructions="",
        render_tools=render_tools,
        render_call=sentinel.FORMAT.render_call,
        render_result=sentinel.FORMAT.render_result,
    )
    middleware = Injection()
    texts = set()
    for text in ("one", "two"):
        tool = ToolSpec("t", None, json.loads('{"type":"object","properties":{"a":{},"b":{}}}'))
        asked = ModelRequest("m", (Message("user", (Text(text),)),), (tool,), tool_choice=REQUIRED)
        changed = await middleware.on_request(exchange_for(asked, counting, "gbnf"), asked)
        assert changed.constraint is None  # this format has no grammar
        texts.add(changed.messages[0].text)
    assert rendered == [1]
    assert len(texts) == 1


async def test_large_requests_give_the_same_result() -> None:
    asked = request(WEATHER)
    large = request(WEATHER, origin=Origin("chat", b" " * (OFFLOAD_BYTES + 1)))
    small_result, _ = await injected(asked)
    large_result, exchange = await injected(large)
    assert large_result.messages == small_result.messages
    assert exchange.offer is not None


async def test_a_template_file_is_used(tmp_path: Path) -> None:
    file = tmp_path / "template.txt"
    file.write_text("Werkzeuge:\n" + DEFAULT_TEMPLATE, "utf-8")
    asked = request(WEATHER)
    middleware = Injection()
    prompt = PromptConfig(template_file=str(file), placement="user")
    for _ in range(2):  # read once: the second request does without the file
        changed = await middleware.on_request(exchange_for(asked, prompt=prompt), asked)
        assert changed.messages[0].text.startswith("Werkzeuge:\n# Tools")
        file.unlink(missing_ok=True)
