"""The injection middleware: when it acts, what it notes, and when a call is enforced (R1.6, R3.9, R10.10)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cases import every
from tests.formats.cases import SEARCH, WEATHER, every_format
from tests.formats.sampler import Acceptor, Grammar
from tests.options import route_options
from toolwire.config import LimitsConfig, PromptConfig, ReasoningConfig, RouteConfig
from toolwire.errors import ClientFault
from toolwire.formats.base import ToolFormat, whole_answer
from toolwire.formats.engine.toolset import ToolSet
from toolwire.formats.engine.words import COMMON
from toolwire.formats.families import bare_json, hermes, pythonic, sentinel
from toolwire.middlewares.injection import Injection, InjectionOptions
from toolwire.model import Message, ModelRequest, Origin, Text, ToolChoice, ToolResult, ToolSpec, ToolUse
from toolwire.pipeline.exchange.request_state import TOOLS_BY, Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.prompting.prompt import NEVER
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.record import AccessRecord
from toolwire.support.offload import OFFLOAD_BYTES
from toolwire.upstream.pool.server_pool import ServerPool
from toolwire.upstream.servers.base import Capabilities

REQUIRED = ToolChoice("required")


class Model:
    """A backend of which only the profile matters."""

    protocol = None

    def __init__(self, constrain: str) -> None:
        self.capabilities = Capabilities(constrain=constrain)


def exchange_for(
    asked: ModelRequest, tool_format: ToolFormat = sentinel.FORMAT, feature: str = "none", **options: Any
) -> Exchange:
    async def chain(request: object) -> Any:
        raise AssertionError

    pool = cast(ServerPool, Model(feature))
    route = Route(RouteConfig(), route_options(**options), pool, tool_format, LimitsConfig(), chain)
    tools_by = TOOLS_BY.get(route.options.mode, "gateway")
    return Exchange("req", ChatProtocol(), route, asked, asked, {}, AccessRecord(), tools_by=tools_by)


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


async def test_what_is_noted_with_tools_is_for_equal_requests() -> None:
    tools, middleware = ToolSet([WEATHER, SEARCH]), Injection()
    exchange = exchange_for(request(), hermes.FORMAT)
    for choice in (ToolChoice(), REQUIRED, ToolChoice(allowed=("search",))):
        for parallel in (True, False):
            asked = replace(request(), tools=tools, tool_choice=choice, parallel_tool_calls=parallel)
            await middleware.on_request(exchange, asked)
            assert exchange.offer is not None
            assert (exchange.offer.choice, exchange.offer.parallel) == (choice, parallel)


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


@every_format
@every(
    ("choice", "constrain", "feature", "wanted"),
    [
        (REQUIRED, "auto", "gbnf", True),
        (ToolChoice("named", "search"), "auto", "guided", True),
        (REQUIRED, "required", "ebnf", True),
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
        assert (changed.constraint.free, changed.constraint.binding) == (False, constrain == "required")


# --- under `auto` (R23.2) -------------------------------------------------------------------------------------------


@every_format
async def test_under_auto_text_stays_free(tool_format: ToolFormat) -> None:
    asked = request(WEATHER, SEARCH, tool_choice=ToolChoice(allowed=("get_weather",)))
    changed, _ = await injected(asked, tool_format, "gbnf")
    constraint = changed.constraint
    assert constraint is not None
    assert (constraint.free, constraint.binding, constraint.tags) == (True, False, None)
    assert [tool.name for tool in constraint.calls] == ["get_weather"]
    acceptor = Acceptor(Grammar(constraint.gbnf))
    assert acceptor.accepts("No tool is needed.")
    assert acceptor.accepts(tool_format.render_call(ToolUse("c", "get_weather", '{"city":"Oslo"}')))
    assert not acceptor.accepts(tool_format.render_call(ToolUse("c", "get_weather", "{}")))


@every(
    ("feature", "options", "grammar", "tags"),
    [
        ("gbnf", {}, True, False),
        ("gbnf", {"constrain_auto": "off"}, False, False),
        ("gbnf", {"constrain": "off"}, False, False),
        ("gbnf", {"constrain": "off", "constrain_auto": "on"}, True, False),
        ("guided", {}, False, True),  # run over real engines: R32.2
        ("guided", {"constrain_auto": "off"}, False, False),
        ("guided", {"constrain": "off"}, False, False),
        ("ebnf", {}, False, True),
        ("guided_tag", {}, False, True),
        ("structural_tag", {}, False, True),
        ("json_schema", {"constrain_auto": "on"}, False, False),
        ("format", {"constrain_auto": "on"}, False, False),
        ("none", {"constrain_auto": "on"}, False, False),
    ],
)
async def test_where_auto_is_constrained(feature: str, options: dict[str, Any], grammar: bool, tags: bool) -> None:
    changed, _ = await injected(request(WEATHER), hermes.FORMAT, feature, **options)
    constraint = changed.constraint
    assert (bool(constraint and constraint.gbnf), bool(constraint and constraint.tags)) == (grammar, tags)


@pytest.mark.parametrize(
    "more",
    [
        {"tool_choice": ToolChoice("none")},
        {"extra": {"grammar": 'root ::= "x"'}},
        {"extra": {"json_schema": {}}},
        {"extra": {"structured_outputs": {"regex": "x"}}},
    ],
    ids=repr,
)
async def test_what_the_client_says_of_the_answer_comes_first(more: dict[str, Any]) -> None:
    changed, _ = await injected(request(WEATHER, **more), hermes.FORMAT, "gbnf")
    assert changed.constraint is None


async def test_a_format_of_ones_own_that_says_no_layout_is_not_constrained_under_auto() -> None:
    own = replace(hermes.FORMAT, layout=None)
    changed, _ = await injected(request(WEATHER), own, "gbnf")
    assert changed.constraint is None
    changed, _ = await injected(request(WEATHER, tool_choice=REQUIRED), own, "gbnf")
    assert changed.constraint is not None


async def test_thinking_is_part_of_the_grammar_as_the_route_says() -> None:
    call = hermes.FORMAT.render_call(ToolUse("c", "get_weather", '{"city":"Oslo"}'))
    for reasoning, fitting, others in (
        (ReasoningConfig(), ["<think>Hm, <tool_call></think>Hi", f"<think>x</think>{call}"], [f"<tool_call> {call}"]),
        (ReasoningConfig(tags=("[T]", "[/T]")), ["[T]Hm, <tool_call>[/T]Hi"], ["<think>Hm, <tool_call></think>Hi"]),
        (ReasoningConfig(tags=None), ["<think>Hm</think>Hi"], ["<think>Hm, <tool_call></think>Hi"]),
        (ReasoningConfig(scan_calls=True), [f"<think>Hm {call}"], ["<think>Hm, <tool_call></think>Hi"]),
        (ReasoningConfig(preopened=True), ["Hm, <tool_call></think>Hi", f"Hm</think>{call}"], []),
    ):
        changed, _ = await injected(request(WEATHER), hermes.FORMAT, "gbnf", reasoning=reasoning)
        assert changed.constraint is not None
        acceptor = Acceptor(Grammar(changed.constraint.gbnf))
        for text in fitting:
            assert acceptor.accepts(text), text
        for text in others:
            assert not acceptor.accepts(text), text


@pytest.mark.parametrize("feature", ["gbnf", "guided", "ebnf"])
async def test_a_call_can_be_demanded_of_an_answer_that_begins_inside_thinking(feature: str) -> None:
    asked = request(WEATHER, tool_choice=REQUIRED)
    changed, _ = await injected(
        asked, sentinel.FORMAT, feature, constrain="required", reasoning=ReasoningConfig(preopened=True)
    )
    assert changed.constraint is not None
    acceptor = Acceptor(Grammar(changed.constraint.gbnf))
    call = sentinel.FORMAT.render_call(ToolUse("c", "get_weather", '{"city":"Oslo"}'))
    assert acceptor.accepts(f"Hm.</think>\n{call}")
    assert not acceptor.accepts(call)


async def test_equal_tools_have_one_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(*args: Any, **more: Any) -> str:
        made.append("grammar")
        return whole_answer(*args, **more)

    monkeypatch.setattr("toolwire.middlewares.injection.whole_answer", counted)
    middleware, tools = Injection(), ToolSet([WEATHER])
    for kept in (tools, tools, ToolSet([WEATHER])):
        asked = ModelRequest("m", (Message("user", (Text("hi"),)),), kept)
        changed = await middleware.on_request(exchange_for(asked, hermes.FORMAT, "gbnf"), asked)
        assert changed.constraint is not None
    assert made == ["grammar"]


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
    two = sentinel.LAYOUT.calls([ToolUse("a", "search", "{}"), ToolUse("b", "search", "{}")])
    for choice, several in ((ToolChoice("named", "search"), False), (REQUIRED, True)):
        changed, _ = await injected(request(SEARCH, tool_choice=choice), sentinel.FORMAT, "gbnf")
        assert changed.constraint is not None
        assert Acceptor(Grammar(changed.constraint.gbnf)).accepts(two) is several


async def test_bounds_are_options_and_nothing_is_bounded_without() -> None:
    properties = {"s": {"type": "string"}, "l": {"type": "array"}, "n": {"type": "integer"}}
    asked = request(ToolSpec("t", None, {"type": "object", "properties": properties}), tool_choice=REQUIRED)
    for options, bounded in (
        (InjectionOptions(string_chars=33, list_items=2, number_digits=4, calls=1), True),
        (None, False),
    ):
        changed = await Injection(options).on_request(exchange_for(asked, sentinel.FORMAT, "gbnf"), asked)
        assert changed.constraint is not None
        acceptor = Acceptor(Grammar(changed.constraint.gbnf))
        for arguments in ({"s": "x" * 34}, {"l": [1, 2, 3]}, {"n": 12345}):
            use = ToolUse("a", "t", json.dumps(arguments))
            assert acceptor.accepts(sentinel.FORMAT.render_call(use)) is not bounded
        assert acceptor.accepts(sentinel.LAYOUT.calls([ToolUse("a", "t", "{}")] * 2)) is not bounded


@pytest.mark.parametrize(
    ("feature", "tool_format", "options"),
    [
        ("none", sentinel.FORMAT, {}),
        ("json_schema", sentinel.FORMAT, {}),
        ("json_schema", bare_json.FORMAT, {"reasoning": ReasoningConfig(preopened=True)}),
        ("guided_tag", hermes.FORMAT, {"reasoning": ReasoningConfig(preopened=True)}),
        ("structural_tag", pythonic.PYTHONIC, {}),
    ],
)
async def test_required_enforcement_that_is_impossible_is_an_error(
    feature: str, tool_format: ToolFormat, options: dict[str, Any]
) -> None:
    asked = request(WEATHER, tool_choice=REQUIRED)
    with pytest.raises(ClientFault) as caught:
        await injected(asked, tool_format, feature, constrain="required", **options)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unsupported_parameter", "tool_choice")
    changed, _ = await injected(asked, tool_format, feature, constrain="auto", **options)
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
    file.write_text("Werkzeuge:\n" + COMMON, "utf-8")
    asked = request(WEATHER)
    middleware = Injection()
    prompt = PromptConfig(template_file=str(file), placement="user")
    for _ in range(2):  # read once: the second request does without the file
        changed = await middleware.on_request(exchange_for(asked, prompt=prompt), asked)
        assert changed.messages[0].text.startswith("Werkzeuge:\nCall a function only")
        file.unlink(missing_ok=True)
