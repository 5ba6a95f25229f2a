"""Finished calls against what was offered (R9.2 to R9.5, R9.9), event by event."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.cases import every
from tests.options import route_options
from toolwire.config import LimitsConfig, RouteConfig
from toolwire.errors import BackendFault, ModelFault
from toolwire.events import BlockStatus, Call, Event, Fault, Finish, Start, text_block
from toolwire.formats.base import ToolFormat
from toolwire.middlewares.arguments import Arguments
from toolwire.model import ModelRequest, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.answers.reply import Reply
from toolwire.pipeline.exchange.request_state import EXCHANGE, Exchange
from toolwire.pipeline.exchange.routing import Route
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.protocols.base import ClientSide
from toolwire.record import AccessRecord
from toolwire.schemas.schema import ToolSchemas, compile_schema
from toolwire.upstream.pool.server_pool import ServerPool

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
READ = ToolSpec("read", parameters=SCHEMA)
STRICT = ToolSpec("write", parameters=SCHEMA, strict=True)
FOUND = "<tool_call>...</tool_call>"
"""The source of a call that was found in text."""
FREE = ToolSpec("free")
GOOD = '{"path": "a"}'


def exchange(
    *tools: ToolSpec,
    choice: ToolChoice | None = None,
    parallel: bool = True,
    taught: Sequence[ToolSpec] | None = None,
    **options: Any,
) -> Exchange:
    """An exchange as the middleware finds it; with `taught`, one in prompt mode."""
    request = ModelRequest("m", (), tools or (READ, STRICT, FREE), choice or ToolChoice(), parallel_tool_calls=parallel)
    no_format, no_pool = cast(ToolFormat, None), cast(ServerPool, None)
    route = Route(RouteConfig(), route_options(**options), no_pool, no_format, LimitsConfig(), chains={})
    made = Exchange("req-1", cast(ClientSide, None), route, request, request, {}, AccessRecord())
    if taught is not None:
        made.offer = OfferedTools(tuple(taught), request.tool_choice, parallel, no_format, request.tools)
    return made


def call(
    name: str,
    arguments: str,
    *,
    source: str | None = None,
    status: BlockStatus = "complete",
    choice: int = 0,
    kind: Any = "function",
) -> Call:
    return Call(3, ToolUse("call_1", name, arguments, kind), choice=choice, status=status, source=source)


def run(at: Exchange, event: Event) -> Any:
    return Arguments().on_event(at, event)


def refusal(at: Exchange, event: Event) -> ModelFault:
    """The error that ends the answer."""
    with pytest.raises(ModelFault) as caught:
        run(at, event)
    return caught.value


# --- the schema (R9.4) ----------------------------------------------------------------------------------------------


def test_what_is_judged_is_what_a_client_reads() -> None:
    """A key that occurs twice has the value that was judged, whatever a client makes of two."""
    at = exchange()
    assert run(at, call("read", '{"path": "x", "p\\u0061th": "y"}')) == call("read", '{"path":"y"}')
    assert at.record.counts == {"calls": 1}


def test_arguments_of_a_servers_call_are_bounded() -> None:
    at = exchange()
    most = at.route.limits.block_bytes
    events = run(at, call("read", '{"path": "' + "x" * most + '"}'))
    assert at.record.counts["parse_failures"] == 1
    assert not isinstance(events, Call)


BAD = ["{}", '{"path": "a", "more": 1}', "[]", "null", '"x"', '{"path": "a", "limit": 1.5}']


@pytest.mark.parametrize("arguments", BAD)
@pytest.mark.parametrize("source", [None, FOUND])
def test_what_does_not_fit_a_soft_tool_is_warned_about(
    arguments: str, source: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    at = exchange()
    event = call("read", arguments, source=source)
    with caplog.at_level(logging.WARNING, "toolwire.arguments"):
        assert run(at, event) is event
    assert at.record.counts["schema_warnings"] == 1
    (line,) = caplog.messages
    assert "req-1" in line
    assert "invalid_tool_arguments" in line


@pytest.mark.parametrize("source", [None, FOUND])
def test_what_can_only_mean_one_thing_is_mended(source: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """R23.3. What else is wrong is still warned about."""
    at = exchange()
    found = run(at, call("read", '{"path": 7,  "limit": "5"}', source=source))
    assert found == call("read", '{"path": "7",  "limit": 5}', source=source)
    assert at.record.counts == {"coerced": 1} | ({"calls": 1} if source is None else {})
    assert at.record.labelled == {("coerced", "number"): 1, ("coerced", "string"): 1}
    assert not caplog.records
    found = run(at, call("read", '{"path": 7, "more": 1}', source=source))
    assert found.use.arguments == '{"path": "7", "more": 1}'
    assert (at.record.counts["coerced"], at.record.counts["schema_warnings"]) == (2, 1)


def test_what_is_not_mended() -> None:
    event = call("read", '{"path": 7}', source=FOUND)
    at = exchange(coerce="off")
    assert run(at, event) is event
    assert at.record.counts == {"schema_warnings": 1}
    at, event = exchange(), call("read", '{"path": 7}', source="")
    assert run(at, event) is event, "it was given out while it came"
    assert at.record.counts == {"schema_warnings": 1}
    assert refusal(exchange(), call("write", '{"path": 7}')).code == "invalid_tool_arguments", "the tool is strict"


def test_calls_of_server_side_tools_are_mended() -> None:
    """What is left is for whoever runs it to say (R15.5)."""
    ours = ToolSpec("ours", parameters=SCHEMA, server=True)
    at = exchange(ours)
    assert run(at, call("ours", '{"path": 7}')) == call("ours", '{"path": "7"}')
    assert run(at, call("ours", '{"limit": "x"')).use.arguments == '{"limit": "x"'
    assert at.record.counts == {"calls": 2, "coerced": 1}


def test_arguments_stay_out_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        run(exchange(), call("read", '{"path": 7, "secret": "hunter2"}'))
    assert "hunter2" not in caplog.text
    assert "secret" not in caplog.text


@every("arguments", [*BAD, '{"path": 7}'])
@every("source", [None, FOUND])
def test_what_does_not_fit_a_strict_tool_is_an_error(arguments: str, source: str | None) -> None:
    at = exchange()
    error = refusal(at, call("write", arguments, source=source))
    assert (error.code, error.status) == ("invalid_tool_arguments", 500)
    assert error.headers == {"x-should-retry": "false"}
    assert '"write"' in error.message
    assert at.record.counts == {"strict_failures": 1}


def test_a_strict_failure_as_a_message() -> None:
    at = exchange(strict_failure="assistant_message")
    events = run(at, call("write", "{}", choice=2))
    text = events[1].text
    assert text.startswith('[tool call rejected: invalid_tool_arguments: The model\'s call of "write" does not fit')
    assert events == text_block(3, text, 2)
    assert at.record.counts == {"strict_failures": 1}


def test_schemas_that_the_validation_compiled_are_used() -> None:
    at = exchange()
    at.state[ToolSchemas] = ToolSchemas(read=compile_schema(None))
    run(at, call("read", "{}"))
    assert at.record.counts == {"calls": 1}


def test_a_schema_that_cannot_be_used_fits_nothing() -> None:
    """Only in a chain without validation."""
    at = exchange(ToolSpec("odd", parameters={"type": "nonsense"}))
    event = call("odd", "{}")
    assert run(at, event) is event
    assert at.record.counts == {"schema_warnings": 1, "calls": 1}
    with pytest.raises(ModelFault, match="cannot be used"):
        run(exchange(ToolSpec("odd", parameters={"type": "nonsense"}, strict=True)), event)


# --- calls of native backends (R9.2, R9.3, R9.5, R2.19) -------------------------------------------------------------


@every("arguments", ["", " \n"])
def test_no_arguments_are_an_empty_object(arguments: str) -> None:
    at = exchange()
    assert run(at, call("free", arguments)) == call("free", "{}")
    assert at.record.counts == {"calls": 1}
    with pytest.raises(ModelFault, match="required"):
        run(exchange(), call("write", arguments))


@every("arguments", ["", " \n"])
def test_arguments_that_are_demanded_and_did_not_come_are_no_call(arguments: str) -> None:
    """R29.2: a reader says `{}` where its server has said that the call is over."""
    at = exchange()
    with pytest.raises(BackendFault, match="ended inside a call"):
        run(at, call("read", arguments))
    run(at, call("read", GOOD))
    assert run(at, call("read", arguments)) is None
    assert at.record.counts == {"calls": 1, "truncated_calls": 1}


def test_malformed_arguments_are_repaired_once_for_soft_tools() -> None:
    at = exchange()
    assert run(at, call("read", "{'path': 'a',}")) == call("read", GOOD)
    assert at.record.counts == {"calls": 1, "repaired": 1}
    assert run(exchange(), call("read", '"{\\"path\\": \\"a\\"}"')) == call("read", GOOD), "quoted once more (R29.2)"
    assert refusal(exchange(), call("write", "{'path': 'a',}")).code == "malformed_tool_arguments"


@every(("options", "arguments"), [({}, "path=a"), ({"repair": "off"}, "{'path': 'a'}")])
def test_what_cannot_be_repaired_becomes_text_and_is_counted(options: Any, arguments: str) -> None:
    at = exchange(**options)
    event = call("read", arguments)
    assert run(at, event) == text_block(event.block, f'{{"name":"read","arguments":"{arguments}"}}')
    assert at.record.counts["parse_failures"] == 1
    assert options or at.record.counts == {"parse_failures": 1, "near_misses": 1}


def test_unknown_names_are_passed_on_and_counted_unless_any_tool_is_strict() -> None:
    at = exchange(READ)
    event = call("other", GOOD)
    assert run(at, event) is event
    assert at.record.counts == {"unknown_names": 1, "calls": 1}
    error = refusal(exchange(READ, STRICT), event)
    assert error.code == "unknown_tool_call"
    assert '"other"' in error.message


def test_names_that_the_choice_excludes() -> None:
    named = ToolChoice("named", "read")
    with pytest.raises(ModelFault, match="not on offer"):
        run(exchange(choice=named), call("write", GOOD))
    at = exchange(choice=named)
    assert run(at, call("free", "{}")) == call("free", "{}")
    assert at.record.counts == {"unknown_names": 1, "calls": 1}


def test_only_one_call_where_parallel_calls_are_off() -> None:
    at = exchange(parallel=False)
    assert run(at, call("free", "{}")) is not None
    assert run(at, call("free", "{}")) is None
    assert run(at, call("write", "{")) is None
    assert run(at, call("free", "{}", choice=1)) is not None, "each answer counts for itself"
    assert at.record.counts == {"calls": 2, "dropped_parallel": 2}


def test_a_call_that_was_cut_off_is_dropped_unless_it_is_whole() -> None:
    at = exchange()
    assert run(at, call("read", '{"path": "a', status="truncated")) is None
    assert run(at, call("write", "", status="truncated")) is None
    assert run(at, call("free", "some text", status="truncated", kind="custom")) is None
    assert at.record.counts == {"truncated_calls": 3}
    assert run(at, call("read", GOOD, status="truncated")) == call("read", GOOD)


def test_the_form_of_calls_from_text_was_judged_before() -> None:
    at = exchange(taught=(READ,), parallel=False)
    event = call("read", GOOD, source=FOUND)
    assert run(at, event) is event
    assert run(at, event) is event
    assert not at.record.counts


def test_a_call_gets_the_clients_words_again() -> None:
    """R8.9, R8.16: a server that knows neither groups nor custom tools was given functions."""
    tools = (
        ToolSpec("read", parameters=SCHEMA, namespace="a"),
        ToolSpec("read", namespace="b"),
        ToolSpec("patch", kind="custom", namespace="b"),
        ToolSpec("free", kind="custom"),
    )
    for name, arguments, use in (
        ("a__read", GOOD, ToolUse("call_1", "read", GOOD, namespace="a")),
        ("b__read", "", ToolUse("call_1", "read", "{}", namespace="b")),
        ("b__patch", '{"input": "x\\n"}', ToolUse("call_1", "patch", "x\n", "custom", "b")),
        ("free", "{'input': 'x'}", ToolUse("call_1", "free", "x", "custom")),
        ("free", "*** Begin\n", ToolUse("call_1", "free", "*** Begin\n", "custom")),
    ):
        assert run(exchange(*tools), call(name, arguments)) == Call(3, use)
    own = call("free", "any text", kind="custom")
    assert run(exchange(*tools), own) is own, "a server that does know them"
    at = exchange(*tools)
    _, delta, _ = run(at, call("free", '{"text": "x"}'))
    assert delta.text == '{"name":"free","arguments":"{\\"text\\": \\"x\\"}"}', "no text in it: nothing is lost"
    assert at.record.counts == {"parse_failures": 1, "near_misses": 1}


def test_schemas_of_equal_names_are_kept_apart() -> None:
    tools = (ToolSpec("read", parameters=SCHEMA, namespace="a"), ToolSpec("read", namespace="b"))
    at = exchange(*tools)
    for use in (ToolUse("call_1", "read", "{}", namespace="b"), ToolUse("call_2", "read", "{}", namespace="a")):
        run(at, Call(3, use, source=FOUND))
    assert at.record.counts == {"schema_warnings": 1}


# --- demanded calls (R9.9) ------------------------------------------------------------------------------------------

REQUIRED, NAMED = ToolChoice("required"), ToolChoice("named", "read")


@every(
    ("choice", "made", "answers", "missed"),
    [
        *((choice, [], 1, 1) for choice in (REQUIRED, NAMED)),
        *((choice, [call("read", GOOD)], 1, 0) for choice in (REQUIRED, NAMED)),
        (NAMED, [call("free", "{}")], 1, 1),
        (REQUIRED, [call("free", "{}")], 2, 1),  # every answer owes the call
        (REQUIRED, [call("free", "{}", choice=1)], 2, 1),
        (None, [Start("r", "m", 0), Fault(BackendFault("gone"))], 1, 0),
    ],
)
def test_a_demanded_call(choice: ToolChoice | None, made: list[Event], answers: int, missed: int) -> None:
    finish = Finish(others=("stop",) * (answers - 1))
    at, stern = exchange(READ, FREE, choice=choice), exchange(READ, FREE, choice=choice, choice_miss="error")
    for event in made:
        assert run(at, event) is event
        run(stern, event)
    assert run(at, finish) is finish
    assert at.record.counts["choice_missed"] == missed
    if missed:
        error = refusal(stern, finish)
        assert error.code == "tool_choice_not_satisfied"
        assert error.headers == {"x-should-retry": "false"}
    else:
        assert run(stern, finish) is finish


# --- as a middleware ------------------------------------------------------------------------------------------------


@every(
    ("at", "mapped"),
    [
        (exchange(), True),
        (exchange(taught=(READ,)), True),
        (exchange(choice=ToolChoice("none")), False),
        (exchange(ToolSpec("web_search", kind="hosted")), False),
    ],
)
async def test_nothing_is_declared_when_no_tool_can_be_called(at: Exchange, mapped: bool) -> None:
    reply = Reply.of([Start("r", "m", 0), Finish()])

    async def handler(request: Any) -> Any:
        return reply

    assert await Arguments()(cast(Any, {EXCHANGE: at}), handler) is reply
    assert bool(reply.stages) == mapped
