"""Tools that the client runs and sends by their types (R28.5): what is taught, and every item of theirs, both ways."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Literal, get_args

import orjson
import pytest
from anthropic.types import browser_member_name, computer_member_name
from anthropic.types.beta.beta_memory_tool_20250818_command import BetaMemoryTool20250818Command
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseComputerToolCall,
    ResponseFunctionShellToolCall,
)
from openai.types.responses.response_output_item import LocalShellCall
from pydantic import TypeAdapter

from tests.cases import every
from tests.protocols.responses_wires import accumulate, check_event
from toolwire.folding import fold, unfold
from toolwire.known.past import Past
from toolwire.middlewares.forwarding import _knows_tools
from toolwire.model import (
    Image,
    ModelReply,
    ModelRequest,
    Origin,
    ReplyChoice,
    Text,
    ToolResult,
    ToolSpec,
    ToolUse,
    Usage,
    replace,
)
from toolwire.protocols.messages.client_tools import TOOLSETS, VERSIONS, client_tools
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.responses.request_writer import write_request
from toolwire.protocols.streams import WriteOptions
from toolwire.schemas.schema import check_tool_schema
from toolwire.upstream.servers.base import Capabilities

TYPES = {
    "shell": ResponseFunctionShellToolCall,
    "local_shell": LocalShellCall,
    "apply_patch": ResponseApplyPatchToolCall,
    "computer": ResponseComputerToolCall,
    "computer_use_preview": ResponseComputerToolCall,
}
TOOLS: list[Mapping[str, Any]] = [{"type": kind} for kind in TYPES]
HI = {"type": "message", "role": "user", "content": "hi"}


def request(*items: Any, **more: Any) -> ModelRequest:
    body = {"model": "m", "input": [*items, HI], "tools": TOOLS, **more}
    return ResponsesProtocol().read_request(body, orjson.dumps(body))


def asked(*tools: Any, **more: Any) -> ModelRequest:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": tools, **more}
    return MessagesProtocol().read_request(body, orjson.dumps(body))


# --- what is taught -------------------------------------------------------------------------------------------------


def model_of(module: str) -> Any:
    """The typed model in a module of `anthropic.types`."""
    found = importlib.import_module(f"anthropic.types.{module}")
    return getattr(found, found.__all__[0])


@pytest.mark.parametrize("family", ["computer", "browser"])
def test_a_toolset_has_the_members_and_parameters_that_are_published(family: str) -> None:
    members = {"computer": computer_member_name.ComputerMemberName, "browser": browser_member_name.BrowserMemberName}
    taught = {tool.name: tool.parameters for tool in TOOLSETS[family]}
    assert set(taught) == set(get_args(members[family]))
    for name, parameters in taught.items():
        published = TypeAdapter(model_of(f"{family}_{name}_input")).json_schema(by_alias=True)
        assert set(parameters["properties"]) == set(published["properties"]), name
        assert set(parameters.get("required", ())) == set(published.get("required", ())), name


def test_memory_has_the_commands_that_are_published() -> None:
    kinds = get_args(get_args(BetaMemoryTool20250818Command)[0])
    memory = VERSIONS["memory"]["20250818"].parameters["properties"]
    assert set(memory["command"]["enum"]) == {get_args(kind.model_fields["command"].annotation)[0] for kind in kinds}
    assert set(memory) == {field for kind in kinds for field in kind.model_fields}


@every(
    "tool", [*request().tools, *(t for f in VERSIONS for v in VERSIONS[f] for t in client_tools({"type": f"{f}_{v}"}))]
)
def test_what_is_taught_is_a_schema(tool: ToolSpec) -> None:
    assert tool.kind == "function"
    assert tool.description
    assert tool.parameters is not None
    check_tool_schema(tool.parameters)


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("bash_20241022", "bash", {"command", "restart"}),
        ("bash_20991231", "bash", {"command", "restart"}),
        ("text_editor_20241022", "str_replace_editor", {"undo_edit"}),
        ("text_editor_20250429", "str_replace_based_edit_tool", {"insert_text"}),
        ("text_editor_20990101", "str_replace_based_edit_tool", {"insert_text"}),
        ("computer_20240101", "computer", {"coordinate"}),
        ("computer_20250301", "computer", {"scroll_amount"}),
        ("computer_20990101", "computer", {"region"}),
    ],
)
def test_a_version_that_is_not_known_is_the_one_before(kind: str, name: str, words: set[str]) -> None:
    (tool,) = asked({"type": kind, "display_width_px": 8, "display_height_px": 6}).tools
    assert (tool.name, tool.kind) == (name, "function")
    assert all(word in json.dumps(tool.parameters) for word in words)
    assert ("8 pixels wide" in (tool.description or "")) is True


def test_a_toolset_is_one_entry_and_many_tools() -> None:
    entry = {"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}, "wait": {"enabled": True}}}
    got = asked(entry, {"type": "bash_20250124", "name": "bash"}, entry)
    names = [(tool.namespace, tool.name) for tool in got.tools]
    assert ("computer", "zoom") not in names
    assert ("computer", "wait") in names
    assert (None, "bash") in names
    assert MessagesProtocol().write_request(asked(entry))["tools"] == [entry]


def test_what_servers_run_stays_as_it_is() -> None:
    container = {"type": "shell", "environment": {"type": "container_auto"}}
    got = request(tools=[container, {"type": "tool_search"}, {"type": "web_search"}])
    assert {tool.kind for tool in got.tools} == {"hosted"}
    assert {tool.kind for tool in asked({"type": "web_search_20250305"}, {"type": "bash_code"}).tools} == {"hosted"}
    assert write_request(got)["tools"][0] == container


def test_skills_of_the_shell_are_named() -> None:
    skills = [{"name": "pdf", "path": "/s/pdf", "description": "Reads PDF."}, {"name": "odd"}, "x"]
    for given, said in (
        (skills, "- pdf (/s/pdf): Reads PDF."),
        ([], "how it ended."),
        ("x", "how it ended."),
        (None, ""),
    ):
        (tool,) = request(tools=[{"type": "shell", "environment": {"type": "local", "skills": given}}]).tools
        assert said in (tool.description or "")


def test_a_choice_of_a_toolset_is_one_of_its_members() -> None:
    wait = {"name": "wait", "input_schema": {"type": "object"}, "defer_loading": True}
    got = asked({"type": "computer_toolset_20260801"}, wait, tool_choice={"type": "tool", "name": "computer"})
    assert got.tool_choice.mode == "required"
    assert {tool.namespace for tool in got.callable_tools} == {"computer"}
    assert len(got.callable_tools) == len(TOOLSETS["computer"])
    assert MessagesProtocol().write_request(got)["tool_choice"] == {"type": "any"}


def test_two_of_one_name_end_nothing() -> None:
    """What has a schema counts; else the first."""
    own = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
    got = request(tools=[{"type": "shell"}, own, {"type": "local_shell"}, {"type": "local_shell"}])
    assert [(tool.name, tool.kind) for tool in got.tools] == [
        ("shell", "hosted"),
        ("shell", "function"),
        ("local_shell", "function"),
        ("local_shell", "hosted"),
    ]
    assert got.tools[1].parameters == {"type": "object"}
    bash, edit = {"type": "bash_20250124", "name": "bash"}, {"name": "bash", "input_schema": {"type": "object"}}
    assert [tool.kind for tool in asked(bash, edit).tools] == ["hosted", "function"]
    screen = {"type": "computer_toolset_20260801"}
    assert len(asked(screen, screen).tools) == len(TOOLSETS["computer"])


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "shell"}, "shell"),
        ({"type": "apply_patch"}, "apply_patch"),
        ({"type": "computer_use_preview"}, "computer_use_preview"),
        ({"type": "computer_use"}, "computer"),
        ({"type": "function", "name": "local_shell"}, "local_shell"),
    ],
)
def test_a_choice_names_them(choice: Any, name: str) -> None:
    got = request(tool_choice=choice)
    assert (got.tool_choice.mode, got.tool_choice.name) == ("named", name)
    assert write_request(got)["tool_choice"] == {"type": name}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [choice, {"type": "web_search"}]}
    got = request(tool_choice=allowed)
    assert got.tool_choice.allowed == (name,)
    assert write_request(got)["tool_choice"]["tools"] == [{"type": name}]


# --- calls of the model ---------------------------------------------------------------------------------------------

ACTIONS = [
    {"type": "click", "x": 1, "y": 2, "button": "right", "keys": ["SHIFT"]},
    {"type": "double_click", "x": 1, "y": 2, "keys": None},
    {"type": "drag", "path": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]},
    {"type": "keypress", "keys": ["CTRL", "C"]},
    {"type": "move", "x": 1, "y": 2},
    {"type": "screenshot"},
    {"type": "scroll", "x": 1, "y": 2, "scroll_x": 0, "scroll_y": -3},
    {"type": "type", "text": "hü"},
    {"type": "wait"},
]
NOTHING = {"type": "screenshot"}
SHELL = {"timeout_ms": None, "max_output_length": None}
Name = Literal["shell", "local_shell", "apply_patch", "computer", "computer_use_preview"]
FIELDS = {"apply_patch": "operation", "computer": "actions"}
"""The field of an item that says what is to be done; `action` of all others."""


def patch(kind: str, path: str, *diff: str) -> dict[str, Any]:
    return {"type": kind, "path": path, **({"diff": diff[0]} if diff else {})}


def executed(command: list[str], env: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"type": "exec", "command": command, "env": env, **more}


LIMITED = {"commands": ["a"], "timeout_ms": 5, "max_output_length": 0}
CREATED = patch("create_file", "a", "+ü")
CLICK = {"type": "click", "x": 1, "y": 2, "button": "left"}
WHERE = {"timeout_ms": 7, "user": "u", "working_directory": "/x"}
CALLS: list[tuple[Name, Any, Any]] = [
    ("shell", {"commands": ["ls", "echo ü"]}, {**SHELL, "commands": ["ls", "echo ü"]}),
    ("shell", LIMITED, LIMITED),
    ("shell", {"commands": "ls", "timeout_ms": "5", "odd": 1}, {**SHELL, "commands": ["ls"]}),
    *(("shell", odd, {**SHELL, "commands": ["true"]}) for odd in ({"commands": [1, None]}, "not JSON", ["ls"])),
    ("local_shell", {"command": ["ls"], "env": {"A": "b", "C": 1}, **WHERE}, executed(["ls"], {"A": "b"}, **WHERE)),
    ("local_shell", {"command": None}, executed(["true"], {})),
    ("apply_patch", CREATED, CREATED),
    ("apply_patch", patch("delete_file", "a", ""), patch("delete_file", "a")),
    ("apply_patch", {"type": "move", "path": 1}, patch("update_file", "", "")),
    ("apply_patch", {"operation": CREATED}, CREATED),
    ("shell", {"action": {"type": "exec", **LIMITED}}, LIMITED),
    ("local_shell", {"action": executed(["ls"], {})}, executed(["ls"], {})),
    ("computer_use_preview", {"action": CLICK}, CLICK),
    ("computer", {"actions": ACTIONS}, ACTIONS),
    ("computer", {"actions": [{"type": "click", "x": 1.0, "y": 2}, {"type": "hop"}, 1]}, [CLICK]),
    *(
        ("computer", {"actions": odd}, [NOTHING])
        for odd in ([], "x", [{"type": "drag", "path": [{"x": 1}]}, {"type": "keypress", "keys": []}])
    ),
    *(("computer_use_preview", action, action) for action in ACTIONS),
    ("computer_use_preview", {"type": "click", "x": None, "y": 1}, NOTHING),
    ("computer_use_preview", {"type": "scroll", "x": 1, "y": 1}, {**ACTIONS[6], "y": 1, "scroll_y": 0}),
]


def output(parts: tuple[Any, ...], reason: str = "tool_calls") -> list[Any]:
    """The items of an answer, which are the same whole and streamed, in pieces of any size; each event as it is
    published."""
    protocol = ResponsesProtocol()
    options = WriteOptions(request=request(), created=1)
    reply = ModelReply("resp_1", "m", 1, (ReplyChoice(parts, reason),), Usage(1, 1))
    items = json.loads(protocol.write_reply(reply, options))["output"]
    events = [
        json.loads(line[6:])
        for line in protocol.writer(options).feed(unfold(reply)).split(b"\n")
        if line[:6] == b"data: "
    ]
    for event in events:
        check_event(event)
    added = accumulate(events)
    assert added == items
    return list(items)


@every(("name", "arguments", "done"), CALLS)
def test_a_call_is_an_item_of_the_published_type(name: str, arguments: Any, done: Any) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    before, item = output((Text("Now."), ToolUse("c1", name, text)))
    assert before["type"] == "message"
    kind = "computer_call" if name.startswith("computer") else f"{name}_call"
    assert (item["type"], item["call_id"], item["status"]) == (kind, "c1", "completed")
    assert item[FIELDS.get(name, "action")] == done
    TYPES[name].model_validate(item, strict=True)
    read_back = request(item).messages[0].parts[0]
    assert isinstance(read_back, ToolUse)
    assert (read_back.name, read_back.call_id, read_back.item_id) == (name, "c1", item["id"])
    again = write_request(request(item))["input"][0]
    assert again == item


@pytest.mark.parametrize("name", TYPES)
def test_a_call_that_was_cut_off_does_nothing(name: str) -> None:
    (item,) = output((ToolUse("c1", name, '{"commands":["rm'),), reason="length")
    assert item["status"] == ("in_progress" if name == "apply_patch" else "incomplete")
    TYPES[name].model_validate(item, strict=True)
    assert "rm" not in json.dumps(item)


def test_a_function_of_such_a_name_is_a_function() -> None:
    tool = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
    options = WriteOptions(request=request(tools=[tool]), created=1)
    reply = ModelReply("resp_1", "m", 1, (ReplyChoice((ToolUse("c", "shell", "{}"),), "tool_calls"),), Usage(1, 1))
    (item,) = json.loads(ResponsesProtocol().write_reply(reply, options))["output"]
    assert (item["type"], item["name"]) == ("function_call", "shell")


# --- calls of a server ----------------------------------------------------------------------------------------------

ITEMS: list[dict[str, Any]] = [
    {"type": "shell_call", "action": {**SHELL, "commands": ["ls"]}, "environment": {"type": "local"}, "created_by": "x"},
    {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {"A": "b"}}},
    {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a", "diff": "+x"}},
    {"type": "computer_call", "actions": ACTIONS, "pending_safety_checks": [{"id": "s", "code": "c", "message": "m"}]},
    {"type": "computer_call", "action": ACTIONS[0], "pending_safety_checks": []},
]  # fmt: skip


@every("size", [1, 7, 4096])
@every("item", [{"id": "i1", "call_id": "c1", "status": "completed", **item} for item in ITEMS])
def test_a_server_calls_them(item: dict[str, Any], size: int) -> None:
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        {"type": "response.shell_call_command.done", "output_index": 0, "command_index": 0, "command": "ls"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    ]
    data = b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)
    whole = ResponsesProtocol().read_reply(
        orjson.dumps({"id": "r", "model": "m", "created_at": 1, "status": "completed", "output": [item]})
    )
    reader = ResponsesProtocol().reader(frame_bytes=1 << 20)
    got = [event for at in range(0, len(data), size) for event in reader.feed(data[at : at + size])]
    assert fold([*got, *reader.finish()]).choices[0].parts == whole.choices[0].parts
    (use,) = whole.calls
    assert (use.call_id, use.kind) == ("c1", "function")
    (shown,) = output((use,))
    assert {**shown, "id": "i1"} == item


def test_a_server_that_runs_the_shell_itself_is_not_asked_for() -> None:
    environment = {"type": "container_reference", "container_id": "c"}
    item = {"type": "shell_call", "id": "i", "call_id": "c", "action": {"commands": ["ls"]}, "environment": environment}
    body = {"id": "r", "model": "m", "created_at": 1, "status": "completed", "output": [item]}
    assert ResponsesProtocol().read_reply(orjson.dumps(body)).calls == ()


@every(
    ("item", "shown"),
    [
        (
            {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a", "diff": None}},
            {"type": "delete_file", "path": "a"},
        ),
        (
            {"type": "computer_call", "actions": [{"type": "click", "x": 1, "y": 2, "button": "left", "keys": None}]},
            {"actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}]},
        ),
        (
            {"type": "computer_call", "action": {"type": "wait", "keys": None}},
            {"type": "wait"},
        ),
        ({"type": "shell_call", "action": {**SHELL, "commands": ["ls"]}}, {"commands": ["ls"]}),
    ],
)
def test_a_null_of_an_earlier_call_is_not_shown_to_the_model(item: dict[str, Any], shown: Any) -> None:
    """SDKs send fields back that they have set to null themselves."""
    (use,) = request({"call_id": "c1", **item}).messages[0].parts
    assert isinstance(use, ToolUse)
    assert json.loads(use.arguments) == shown


# --- results --------------------------------------------------------------------------------------------------------

PNG = "data:image/png;base64,AAAA"
EXIT = {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
LATE = {"stdout": "", "stderr": "slow", "outcome": {"type": "timeout"}}


def result(kind: str, output: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": f"{kind}_call_output", **({} if output is None else {"output": output}), **fields}


SCREEN = {"type": "computer_screenshot", "image_url": PNG}
LONG = "a\n[exit code 0]\n\nstderr:\nslow\n[timed out]"
RESULTS: list[tuple[dict[str, Any], Any, bool]] = [
    (result("shell", [EXIT]), Text("a\n[exit code 0]"), False),
    (result("shell", [EXIT, LATE], max_output_length=9), Text(LONG), False),
    (result("shell", []), Text("No output."), False),
    (result("shell", "a"), Text("a"), False),
    (result("shell", [{}]), Text("[exit code 0]"), False),
    (result("shell", [{"outcome": {"type": "exit", "exit_code": None}}]), Text("[exit code 0]"), False),
    (result("local_shell", '{"a":1}'), Text('{"a":1}'), False),
    (result("local_shell", {"a": 1}), Text('{"a":1}'), False),
    (result("local_shell", ""), Text("No output."), False),
    (result("apply_patch", status="completed"), Text("Done."), False),
    (result("apply_patch", status="failed"), Text("Failed."), True),
    (result("apply_patch", "no such file", status="failed"), Text("no such file"), True),
    (result("computer", SCREEN, acknowledged_safety_checks=[{"id": "s"}]), Image(PNG), False),
]


@every(("item", "said", "failed"), RESULTS)
def test_a_result_is_read_and_written_as_it_was(item: dict[str, Any], said: Any, failed: bool) -> None:
    item = {"call_id": "c1", **item}
    call = {**ITEMS[0], "id": "i1", "call_id": "c1", "status": "completed"}
    got = request(call, item)
    (result,) = got.messages[1].parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name, result.parts, result.is_error) == ("c1", "shell", (said,), failed)
    assert write_request(got)["input"][1] == {"status": "completed", **item}


def test_a_result_names_its_call_by_the_item() -> None:
    call = {**ITEMS[1], "id": "lsh_1", "call_id": "c1", "status": "completed"}
    item = {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"}
    got = request(call, item)
    (result,) = got.messages[1].parts
    assert isinstance(result, ToolResult)
    assert (result.call_id, result.name) == ("c1", "local_shell")
    assert write_request(got)["input"][1] == {**item, "status": "completed"}


def test_a_call_without_a_call_id_is_named_by_its_item() -> None:
    """As Codex reads and sends `local_shell_call`."""
    item = {"type": "local_shell_call_output", "id": "lsh_1", "output": "x"}
    call, result, _ = request({**ITEMS[1], "id": "lsh_1", "call_id": None}, item).messages
    assert [part.call_id for part in (*call.parts, *result.parts)] == ["lsh_1", "lsh_1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "item", [{"type": kind} for kind in ("shell_call", "shell_call_output", "computer_call", "apply_patch_call_output")]
)
def test_an_item_that_says_too_little_ends_nothing(item: dict[str, Any]) -> None:
    assert write_request(request(item))["input"][0] == item


def test_what_one_server_knows_is_not_held_against_another() -> None:
    """A conversation goes on at another server, which may not have the client's tools."""
    wire = ResponsesProtocol()
    body = {"model": "m", "input": "hi", "tools": [{"type": "local_shell"}]}
    request = wire.read_request(body, orjson.dumps(body))
    past = Past(0)
    for has in (True, False, True):
        backend = SimpleNamespace(capabilities=Capabilities(client_tools=has), protocol=wire)
        member: Any = SimpleNamespace(
            endpoint=SimpleNamespace(config=SimpleNamespace(tool_types=None), backend=backend)
        )
        past = Past(0, past)
        assert _knows_tools(replace(request, origin=Origin("responses", b"", past)), member) is has
