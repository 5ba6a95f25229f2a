"""A request made fit for a backend (R5.1, R5.8a, R5.9, R5.10, C4, C13, R10.9, R10.10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from tests.cases import every
from toolwire.config import BackendConfig
from toolwire.errors import ClientFault
from toolwire.formats.engine.rendering import CUSTOM_PARAMETERS
from toolwire.model import (
    Constraint,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Reasoning,
    Refusal,
    Sampling,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.upstream.servers.adapt import adapt
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.constraints import call_schema
from toolwire.upstream.servers.fit_media import IMAGE_OMITTED
from toolwire.upstream.servers.fit_messages import CONTINUE
from toolwire.upstream.servers.identity import Identity
from toolwire.upstream.servers.presets import PRESETS, capabilities


def say(role: Any, text: str, **more: Any) -> Message:
    return Message(role, (Text(text),), **more)


def ask(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest("m", messages, **more)


def shape(request: ModelRequest) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in request.messages]


CALL = Message("assistant", (ToolUse("c", "f", "{}"),))
RESULT = Message("tool", (ToolResult("c", (Text("42"),)),))
UNKNOWN = OpaquePart("responses", {"type": "later_item"})
USER, SYSTEM, GO_ON = say("user", "u"), say("system", "s"), ("user", CONTINUE)
FITTED: list[tuple[Capabilities, list[Message], list[tuple[str, str]]]] = [
    # developer messages become system messages only where they must
    (Capabilities(), [say("developer", "d"), USER], [("system", "d"), ("user", "u")]),
    (Capabilities(developer_role=True), [say("developer", "d"), USER], [("developer", "d"), ("user", "u")]),
    # without a system role they head the next user message
    (
        Capabilities(system_role=False),
        [SYSTEM, say("developer", "d"), USER, say("system", "late"), say("assistant", "a")],
        [("user", "s\n\nd\n\nu\n\nlate"), ("assistant", "a"), GO_ON],
    ),
    (Capabilities(system_role=False), [SYSTEM], [("user", "s")]),
    # there is a user message, and it ends with one, unless the server continues what was begun
    (Capabilities(), [SYSTEM], [("system", "s"), GO_ON]),
    (Capabilities(), [SYSTEM, CALL, RESULT], [("system", "s"), GO_ON, ("assistant", ""), ("tool", "")]),
    (Capabilities(), [USER, say("assistant", "a")], [("user", "u"), ("assistant", "a"), GO_ON]),
    (Capabilities(), [USER, SYSTEM, say("developer", "d")], [("user", "u\n\ns\n\nd")]),
    (Capabilities(late_system=True), [USER, SYSTEM], [("user", "u"), ("system", "s")]),
    (
        Capabilities(late_system=True),
        [CALL, RESULT, SYSTEM],
        [GO_ON, ("assistant", ""), ("tool", ""), ("system", "s")],
    ),
    (Capabilities(), [USER, CALL, RESULT, SYSTEM], [("user", "u"), ("assistant", ""), ("tool", ""), ("user", "s")]),
    (
        Capabilities(),
        [USER, say("assistant", "a"), SYSTEM],
        [("user", "u"), ("assistant", "a"), ("system", "s"), GO_ON],
    ),
    (Capabilities(continuation=True), [USER, say("assistant", "a")], [("user", "u"), ("assistant", "a")]),
    # what the server has no form for is no turn
    *((Capabilities(), [Message(role, (UNKNOWN,))], [GO_ON]) for role in ("user", "assistant")),
    (Capabilities(), [Message("assistant", (UNKNOWN, Reasoning("", {"encrypted_content": "x"})))], [GO_ON]),
    (Capabilities(), [SYSTEM, Message("assistant", (UNKNOWN,))], [("system", "s"), GO_ON]),
    (Capabilities(), [USER, Message("assistant", (UNKNOWN,))], [("user", "u")]),
    (
        Capabilities(),
        [USER, Message("assistant", (UNKNOWN, Text("a"), UNKNOWN, Text("b"))), USER],
        [("user", "u"), ("assistant", "ab"), ("user", "u")],
    ),
]  # fmt: skip


@every(("takes", "given", "sent"), FITTED)
def test_messages_in_the_order_that_servers_take(takes: Capabilities, given: Any, sent: Any) -> None:
    assert shape(adapt(ask(*given), takes, wire=ChatProtocol())) == sent


def test_messages_that_fit_are_the_same_objects() -> None:
    for wire, said in ((ChatProtocol(), (Text("a"),)), (ResponsesProtocol(), (UNKNOWN, Text("a")))):
        request = ask(SYSTEM, USER, Message("assistant", said), USER)
        fitted = adapt(request, Capabilities(), wire=wire).messages
        assert all(a is b for a, b in zip(fitted, request.messages, strict=True))


@pytest.mark.parametrize(("known", "anywhere"), [(False, True), (None, False)])
def test_late_system_messages_go_where_every_template_takes_them(known: bool | None, anywhere: bool) -> None:
    """Into the user message that follows, else behind the one before; never between a call and its result."""
    takes = Capabilities(late_system=known)
    late = say("system", "late")

    def fitted(*messages: Message) -> list[tuple[str, str]]:
        return shape(adapt(ask(SYSTEM, *messages), takes, late_system=anywhere))

    assert fitted(say("user", "a"), late, say("assistant", "b"), say("user", "c")) == [
        ("system", "s"), ("user", "a\n\nlate"), ("assistant", "b"), ("user", "c"),
    ]  # fmt: skip
    assert fitted(say("user", "a"), say("assistant", "b"), late, say("user", "c"))[-1] == ("user", "late\n\nc")
    assert [role for role, _ in fitted(say("user", "a"), CALL, late, RESULT)] == [
        "system", "user", "assistant", "tool", "user",
    ]  # fmt: skip


def test_a_file_in_a_result_is_a_note() -> None:
    """No model reads base64, and a megabyte of it leaves no room for anything else."""
    data = "JVBERi0xLjcK" * 1000
    source = {"type": "base64", "media_type": "application/pdf", "data": data}
    pdf = OpaquePart(
        "messages", {"type": "document", "title": "a b", "source": source, "more": ["x" * 5000, " y" * 3000]}
    )
    result = Message("tool", (ToolResult("c", (Text("See:"), pdf, Text(""), pdf, Text("Then."))),))
    part = adapt(ask(USER, CALL, result), Capabilities(), wire=ChatProtocol()).messages[-1].parts[0]
    assert isinstance(part, ToolResult)
    (text,) = part.parts
    assert isinstance(text, Text)
    note = "[file omitted: a b: this model takes no such files]"
    assert text.text == f"See:\n\n{note}\n\n{note}\n\nThen."


def test_late_system_messages_stay_where_they_are_taken() -> None:
    request = ask(say("user", "a"), say("system", "late"), say("user", "b"))
    for known, anywhere in ((True, False), (None, True)):
        assert adapt(request, Capabilities(late_system=known), late_system=anywhere) is request


TEMPLATES = {
    "{{ raise_exception('System message must be at the beginning.') }}": False,
    '{{ raise_exception("System role not supported") }}': False,
    "{{ raise_exception('Only user and assistant roles are supported!') }}": False,
    "{{ raise_exception('No user query found in messages.') }}": None,
    "{{ message['content'] }}": None,
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_says_that_it_refuses_them(template: str) -> None:
    said = Identity(engine="llamacpp", template=template)
    config = BackendConfig(url="http://x")
    assert capabilities(config, said).late_system is TEMPLATES[template]
    assert capabilities(replace(config, late_system=True), said).late_system is True
    assert capabilities(replace(config, preset="openai")).late_system is True


def test_system_text_before_an_image_stays_a_part_of_its_own() -> None:
    picture = Message("user", (Image("data:x"), Text("what?")))
    [message] = adapt(ask(say("system", "s"), picture), Capabilities(system_role=False, images=True)).messages
    assert message.parts == (Text("s"), Image("data:x"), Text("what?"))


def test_neighbours_are_merged_but_tool_results_are_not() -> None:
    takes = Capabilities(merge_roles=True)
    results = [Message("tool", (ToolResult(c, (Text(c),)),)) for c in "ab"]
    request = ask(say("user", "1"), say("user", "2", name="n"), say("assistant", "a"), *results)
    out = adapt(request, takes).messages
    assert [m.role for m in out] == ["user", "assistant", "tool", "tool"]
    assert out[0].text == "1\n\n2"
    assert out[0].name is None


def test_images_are_kept_dropped_or_refused() -> None:
    nested = Message("tool", (ToolResult("c", (Text("see"), Image("u"))),))
    request = ask(say("user", "hi"), Message("user", (Text("a"), Image("u"), Text("b"))), nested)
    assert adapt(request, Capabilities(images=True)).messages == request.messages
    dropped = adapt(request, Capabilities()).messages
    assert dropped[0] is request.messages[0]
    assert dropped[1].parts == (Text(f"a\n\n{IMAGE_OMITTED}\n\nb"),)
    assert dropped[2].parts == (ToolResult("c", (Text(f"see\n\n{IMAGE_OMITTED}"),)),)
    with pytest.raises(ClientFault) as caught:
        adapt(request, Capabilities(refuse_images=True))
    assert (caught.value.status, caught.value.code, caught.value.param) == (
        400,
        "unsupported_content",
        "messages[1].content",
    )


@pytest.mark.parametrize(("wire", "role"), [(ResponsesProtocol(), "assistant"), (MessagesProtocol(), "system")])
def test_images_where_the_protocol_has_none_are_notes(wire: Any, role: Any) -> None:
    asked = ask(Message(role, (Text("a"), Image("data:,x"))), Message("user", (Image("data:,y"),)))
    first, user = adapt(asked, Capabilities(images=True), wire=wire).messages[-2:]
    assert (first.text, user.parts) == (f"a\n\n{IMAGE_OMITTED}", (Image("data:,y"),))


def test_neighbouring_texts_are_one() -> None:
    """R5.9: many servers take only a plain string, in messages and in results."""
    result = ToolResult("c", (Text("d"), Text("e")))
    images = (Text("a"), Text("b"), Image("u"), Text("c"))
    cached = Text("s", {"messages": {"cache_control": {"type": "ephemeral"}}})  # another protocol's field
    request = ask(Message("system", (cached, Text("t"))), Message("user", images), CALL, Message("tool", (result,)))
    parts = [message.parts for message in adapt(request, Capabilities(images=True), wire=ChatProtocol()).messages]
    assert parts == [(Text("st"),), (Text("ab"), Image("u"), Text("c")), CALL.parts, (ToolResult("c", (Text("de"),)),)]


def test_a_refusal_is_text_where_templates_show_nothing_else() -> None:
    said = ask(USER, Message("assistant", (Refusal("no"),)), USER)
    assert adapt(said, Capabilities(), wire=ChatProtocol()).messages[1].parts == (Text("no"),)
    assert adapt(said, Capabilities(), wire=ResponsesProtocol()).messages[1].parts == (Refusal("no"),)


def test_what_is_unknown_in_a_result_is_its_text() -> None:
    result = Message("tool", (ToolResult("c", (Text("a "), OpaquePart("responses", {"b": 1}))),))
    assert adapt(ask(USER, CALL, result), Capabilities(), wire=ChatProtocol()).messages[2].parts == (
        ToolResult("c", (Text('a {"b":1}'),)),
    )


@every(
    ("preset", "policy", "kept"),
    [
        ("vllm", "drop", {}),
        ("vllm", "list", {"top_k": 5}),
        ("generic", "list", {}),
        ("vllm", "all", {"top_k": 5, "wild": 1}),
    ],
)
def test_unknown_fields(preset: str, policy: Any, kept: dict[str, Any]) -> None:
    request = ask(USER, extra={"top_k": 5, "wild": 1})
    assert dict(adapt(request, PRESETS[preset], forward_unknown=policy).extra) == kept


@pytest.mark.parametrize(
    ("policy", "listed", "kept"),
    [("drop", "cache_control", {}), ("list", "other", {}), ("list", "cache_control", {"cache_control": 1}), ("all", "other", {"cache_control": 1})],
)  # fmt: skip
def test_unknown_fields_of_parts(policy: Any, listed: str, kept: dict[str, Any]) -> None:
    extra = {"chat": {"cache_control": 1}, "messages": {"cache_control": 2}}
    asked = ask(
        Message("user", (Text("a", extra), Text("b"), Image("u", extra=extra))),
        Message("assistant", (Reasoning("hm", extra), ToolUse("c", "f", "{}", extra=extra))),
        Message("tool", (ToolResult("c", (Text("ok", extra),), extra=extra),)),
    )
    takes = Capabilities(images=True, extra_parameters=frozenset({listed}))
    user, assistant, tool = adapt(asked, takes, forward_unknown=policy, wire=ChatProtocol()).messages
    texts = [Text("a", {"chat": kept}), Text("b")] if kept else [Text("ab")]
    said = {"chat": kept} if kept else {}
    assert user.parts == (*texts, Image("u", extra=said))
    assert assistant.parts == (Reasoning("hm", extra), ToolUse("c", "f", "{}", extra=said))
    assert tool.parts == (ToolResult("c", (Text("ok", said),), extra=said),)


CITED = {"annotations": [{"type": "url_citation"}]}


@every("policy", ["drop", "list", "all"])
@every(
    ("wire", "known", "wild"),
    [
        (ResponsesProtocol(), {**CITED, "item": {"phase": "commentary"}}, {**CITED, "item": {"phase": "commentary", "x": 1}, "x": 1}),
        (ResponsesProtocol(), {"item": {}}, {"item": {"x": 1}}),
        (MessagesProtocol(), {"cache_control": {"type": "ephemeral"}}, {"cache_control": {"type": "ephemeral"}, "x": 1}),
        (MessagesProtocol(), {"document": {"type": "document"}}, {"document": {"type": "document"}, "x": 1}),
    ],
)  # fmt: skip
def test_fields_that_the_protocol_itself_knows_are_not_unknown(policy: Any, wire: Any, known: Any, wild: Any) -> None:
    """Whatever is listed (C4)."""
    asked = ask(Message("user", (Text("a", {wire.name: wild, "chat": {"y": 1}}), Text("b", {wire.name: known}))))
    (user,) = adapt(asked, Capabilities(), forward_unknown=policy, wire=wire).messages
    first, second = user.parts
    assert first == Text("a", {wire.name: wild if policy == "all" else known})
    assert second == Text("b", {wire.name: known})


@pytest.mark.parametrize(("wire", "kept"), [(ChatProtocol(), ["f"]), (ResponsesProtocol(), ["web_search", "f"])])
def test_hosted_tools_are_for_servers_of_the_protocol_that_they_came_in(wire: Any, kept: list[str]) -> None:
    hosted = ToolSpec("web_search", kind="hosted", extra={"responses": {"type": "web_search"}})
    choice = ToolChoice("named", "web_search")
    fitted = adapt(ask(USER, tools=(hosted, ToolSpec("f")), tool_choice=choice), Capabilities(), wire=wire)
    assert [tool.name for tool in fitted.tools] == kept
    assert fitted.tool_choice == (choice if "web_search" in kept else ToolChoice())


def test_what_a_part_says_in_this_protocol_alone_is_kept_as_it_is() -> None:
    asked = ask(Message("user", (Text("a", {"chat": {"x": 1}}),)))
    takes = Capabilities(extra_parameters=frozenset({"x"}))
    assert adapt(asked, takes, wire=ChatProtocol()) is asked


@pytest.mark.parametrize(("policy", "listed", "kept"), [("drop", True, None), ("list", True, 5), ("list", False, None), ("all", False, 5)])  # fmt: skip
def test_top_k_is_for_those_who_know_it(policy: Any, listed: bool, kept: int | None) -> None:
    takes = Capabilities(extra_parameters=frozenset({"top_k"} if listed else ()))
    asked = ask(USER, sampling=Sampling(top_k=5))
    assert adapt(asked, takes, forward_unknown=policy).sampling.top_k == kept


def test_fields_of_the_protocol_go_to_every_server_that_speaks_it() -> None:
    asked = ask(USER, stream=True, protocol_fields={"responses": {"include": [1], "stream_options": {}}})
    assert adapt(asked, Capabilities(), wire=ResponsesProtocol()).protocol_fields is asked.protocol_fields
    silent = Capabilities(stream_usage=False)
    assert adapt(asked, silent, wire=ResponsesProtocol()).protocol_fields == {"responses": {"include": [1]}}
    alone = ask(USER, stream=True, protocol_fields={"chat": {"stream_options": {"x": 1}}})
    assert adapt(alone, silent, wire=ChatProtocol()).protocol_fields == {}


def test_parameters_that_are_not_listed_are_left_out() -> None:
    """Also counts, which not every server gives."""
    sampling = Sampling(reasoning_effort="high", n=3, seed=1)
    request = ask(USER, sampling=sampling, response_format={"type": "json_object"}, stream=True)
    bare = adapt(request, Capabilities(response_format=False, stream_usage=False))
    assert bare.sampling == Sampling(seed=1)
    assert (bare.response_format, bare.include_usage) == (None, False)
    full = adapt(request, Capabilities(reasoning_effort=True, multiple_choices=True))
    assert full.sampling == request.sampling
    assert (full.response_format, full.include_usage) == (request.response_format, True)
    assert not adapt(replace(request, stream=False), Capabilities()).include_usage


TOOL = ToolSpec(
    "f", parameters={"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
)
OTHER = ToolSpec("g")


@pytest.mark.parametrize(
    ("feature", "fields"),
    [
        ("gbnf", {"grammar": 'root ::= "x"'}),
        ("guided", {"structured_outputs": {"grammar": 'root ::= "x"'}}),
        ("ebnf", {"ebnf": 'root ::= "x"'}),
        ("format", {"format": call_schema([TOOL, OTHER])}),
        ("none", {}),
    ],
)
def test_constraint_becomes_the_servers_own_field(feature: str, fields: dict[str, Any]) -> None:
    request = ask(
        say("user", "u"),
        constraint=Constraint('root ::= "x"', (TOOL, OTHER)),
        response_format={"type": "json_object"},
    )
    out = adapt(request, Capabilities(constrain=feature))
    assert out.constraint is None
    assert dict(out.extra) == fields
    assert out.response_format == (request.response_format if feature == "none" else None)


def test_constraint_as_json_schema() -> None:
    request = ask(USER, constraint=Constraint("", (TOOL,)))
    out = adapt(request, PRESETS["ollama"])
    assert out.response_format is not None
    assert out.response_format["json_schema"]["schema"] == call_schema([TOOL])


@pytest.mark.parametrize("tools", [[TOOL], [OTHER, TOOL]])
def test_call_schema_means_a_call_of_one_of_the_tools(tools: list[ToolSpec]) -> None:
    validator = jsonschema.Draft202012Validator(call_schema(tools))
    assert validator.is_valid({"name": "f", "arguments": {"x": 1}})
    assert not validator.is_valid({"name": "f", "arguments": {"x": "1"}})  # the reference still points home
    assert not validator.is_valid({"name": "h", "arguments": {}})
    assert validator.is_valid({"name": "g", "arguments": {}}) is (OTHER in tools)


def test_the_configuration_wins_over_the_preset() -> None:
    takes = capabilities(
        BackendConfig(preset="vllm", images="false", constrain="none", extra_parameters=("a",), stream_usage=False)
    )
    assert (takes.images, takes.refuse_images, takes.constrain, takes.stream_usage) == (False, False, "none", False)
    assert capabilities(BackendConfig(preset="vllm", images="error")).refuse_images
    assert takes.extra_parameters == {"a"}
    assert takes.reasoning_effort is True
    assert capabilities(BackendConfig(images="true")).images is True
    assert capabilities(BackendConfig()) == Capabilities(images_unknown=True)


@pytest.mark.parametrize("wrong", [BackendConfig(preset="gpt"), BackendConfig(constrain="magic")])
def test_unknown_words_are_refused(wrong: BackendConfig) -> None:
    with pytest.raises(ValueError, match="one of"):
        capabilities(wrong)


# --- tools that are not plain functions (R3.8, R8.9, R8.16) ---------------------------------------------------------

PLAIN = ToolSpec("plain", parameters={"type": "object", "properties": {}})
FREE = ToolSpec("free", "Takes text.", kind="custom", extra={"chat": {"type": "custom", "name": "free"}})
GROUPED = ToolSpec("plain", namespace="group")
FREE_GROUPED = ToolSpec("free", kind="custom", namespace="group")
HOSTED = ToolSpec("web_search", kind="hosted", extra={"chat": {"type": "web_search"}})
TOOLS = (PLAIN, FREE, GROUPED, FREE_GROUPED, HOSTED)
WITH_CUSTOM = Capabilities(tool_types=frozenset({"function", "custom"}))


def test_a_server_gets_tools_that_it_knows() -> None:
    adapted = adapt(ask(USER, tools=TOOLS), Capabilities())
    assert [(tool.name, tool.kind, tool.namespace) for tool in adapted.tools] == [
        ("plain", "function", None),
        ("free", "function", None),
        ("group__plain", "function", None),
        ("group__free", "function", None),
    ]
    assert adapted.tools[0] is PLAIN
    assert adapted.tools[1].parameters == adapted.tools[3].parameters == CUSTOM_PARAMETERS
    assert adapted.tools[1].description == "Takes text."
    adapted = adapt(ask(USER, tools=TOOLS), WITH_CUSTOM)
    assert [(tool.name, tool.kind) for tool in adapted.tools] == [
        ("plain", "function"),
        ("free", "custom"),
        ("group__plain", "function"),
        ("group__free", "custom"),
    ]
    assert adapted.tools[1] is FREE
    searches = Capabilities(tool_types=frozenset({"function", "web_search"}))
    assert adapt(ask(USER, tools=TOOLS), searches).tools[-1] is HOSTED


@every(
    ("parameters", "strict"),
    [
        ({"required": ["a"]}, True),
        ({}, None),
        ({"required": ["a"], "anyOf": [{"properties": {"b": {}}}]}, None),
        ({"required": ["a"], "dependencies": {"default": {"properties": {"b": {}}}}}, None),
        ({"required": ["a"], "dependencies": {"default": ["a"]}}, True),
        ({"required": ["a"], "default": {"properties": {"b": {}}}}, True),
    ],
)
def test_tools_with_optional_properties_are_not_strict_where_all_are_required(parameters: Any, strict: Any) -> None:
    tool = ToolSpec("f", None, {"type": "object", "properties": {"a": {}}, **parameters}, strict=True)
    assert adapt(ask(USER, tools=(tool,)), Capabilities(), wire=ChatProtocol()).tools[0].strict is strict


def test_earlier_calls_follow_their_tools() -> None:
    said = Message(
        "assistant",
        (
            ToolUse("c1", "plain", '{"a": 1}'),
            ToolUse("c2", "free", 'x "y"', "custom"),
            ToolUse("c3", "plain", "{}", namespace="group"),
            ToolUse("c4", "free", "z", "custom", "group"),
        ),
    )
    result = Message("tool", (ToolResult("c2", (Text("ok"),), kind="custom"),))
    request = ask(USER, said, result, tools=TOOLS)
    assert adapt(request, Capabilities()).messages[1].parts == (
        ToolUse("c1", "plain", '{"a": 1}'),
        ToolUse("c2", "free", '{"input":"x \\"y\\""}'),
        ToolUse("c3", "group__plain", "{}"),
        ToolUse("c4", "group__free", '{"input":"z"}'),
    )
    assert adapt(request, WITH_CUSTOM).messages[1].parts[1] is said.parts[1]


@pytest.mark.parametrize(
    ("choice", "tools", "fitted"),
    [
        (ToolChoice("required"), TOOLS, ToolChoice("required")),
        (ToolChoice("named", "plain"), (PLAIN,), ToolChoice("named", "plain")),
        (ToolChoice("named", "plain"), (GROUPED,), ToolChoice("named", "group__plain")),
        (ToolChoice("named", "web_search"), (PLAIN, HOSTED), ToolChoice()),
        (
            ToolChoice("auto", allowed=("plain", "web_search")),
            TOOLS,
            ToolChoice("auto", allowed=("plain", "group__plain")),
        ),
    ],
)
def test_a_choice_names_what_is_there(choice: ToolChoice, tools: tuple[ToolSpec, ...], fitted: ToolChoice) -> None:
    assert adapt(ask(USER, tools=tools, tool_choice=choice), Capabilities()).tool_choice == fitted
