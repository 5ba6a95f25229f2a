"""The client-run tools of Responses, and the items of their calls and results (R28.5, R28.1).

Rules:

1. Inside the gateway such a call is an ordinary `ToolUse` with an object of the tool's parameters as arguments.
   `ITEM_TYPE` in the `extra` of a call or a result holds the type of its item; the other fields of the item stand next
   to it.
2. A written item fits the published types whatever the model wrote, because clients validate it. Values that do not fit
   are left out; a call without a command, a file or an action becomes one without effect.
3. A shell in a container is run by its server: that tool, its calls and their results are not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...model import EMPTY, Image, OpaquePart, Part, Text, ToolResult, ToolSpec, ToolUse, fields_of
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ...support.decoding import present
from ..shared.client_tools import ITEM_TYPE, Published, integer, schema, several, text, word
from ..shared.wire import dump, fields_in, load, rest_of

PROTOCOL: Final = "responses"
SEARCH: Final = "tool_search"
"""Type and name of the client's search for tools."""
SHELL: Final = "shell"
COMPUTER: Final = "computer"
PREVIEW: Final = "computer_use_preview"

Object = Mapping[str, Any]
Frame = tuple[str, dict[str, Any]]
"""The type of an event and its fields, without the item's position."""

# --- the tools ------------------------------------------------------------------------------------------------------

_TEXTS: Final = {"type": "string"}
_TIMEOUT: Final = {"timeout_ms": integer("Milliseconds after which it is stopped.")}
_X_Y: Final = {"x": integer("Pixels from the left."), "y": integer("Pixels from the top.")}
_KEYS: Final = several(_TEXTS, "For `keypress`: the keys, such as `CTRL` and `C`. Else keys that are held meanwhile.")
_ACTION: Final = schema(
    {"type": word("click double_click drag keypress move screenshot scroll type wait", "What to do.")},
    {
        "x": integer("For clicks, `move` and `scroll`: pixels from the left."),
        "y": integer("For clicks, `move` and `scroll`: pixels from the top."),
        "button": word("left right wheel back forward", "For `click`."),
        "path": several(schema(_X_Y), "For `drag`: the points that it goes through."),
        "scroll_x": integer("For `scroll`: pixels to the right, or to the left if negative."),
        "scroll_y": integer("For `scroll`: pixels down, or up if negative."),
        "keys": _KEYS,
        "text": text("For `type`: the text."),
    },
)
_USES_COMPUTER: Final = (
    "Use a computer by its screen, mouse and keyboard. The result is a screenshot, taken afterwards. Begin with the "
    "action `screenshot` to see the screen."
)

PUBLISHED: Final[Mapping[str, Published]] = {
    tool.name: tool
    for tool in (
        Published(
            SEARCH, "Search for further tools. What is found can be called afterwards.", schema({"query": _TEXTS})
        ),
        Published(
            SHELL,
            "Run commands in a shell. The result has for each what it printed and how it ended.",
            schema(
                {"commands": several(_TEXTS, "The commands, each a whole line for the shell. They may run at once.")},
                {**_TIMEOUT, "max_output_length": integer("How many characters of the output to return at most.")},
            ),
        ),
        Published(
            "local_shell",
            "Run a program and return what it printed. There is no shell unless one is run: for pipes, variables and "
            'the like use ["bash", "-lc", "the line"].',
            schema(
                {"command": several(_TEXTS, "The program and its arguments.")},
                {
                    "working_directory": text("The folder to run it in."),
                    "env": {
                        "type": "object",
                        "additionalProperties": _TEXTS,
                        "description": "Further environment variables.",
                    },
                    **_TIMEOUT,
                    "user": text("The user to run it as."),
                },
            ),
        ),
        Published(
            "apply_patch",
            "Create, change or delete one file. In `diff` each line begins with a mark. For `create_file` all lines "
            "begin with `+`. For `update_file` there are one or more sections; each begins with a line `@@`, which may "
            "name a line that stands above, such as `@@ def main():`. Its lines begin with a space if they stay, with "
            "`-` if they are removed, with `+` if they are new. Around a change stand about three lines that stay, "
            "exactly as they are in the file. There are no line numbers and no names of files. `delete_file` has no "
            "diff.",
            schema(
                {
                    "type": word("create_file update_file delete_file", "What to do."),
                    "path": text("Path of the file, relative to the workspace."),
                },
                {"diff": text("The lines, with their marks.")},
            ),
        ),
        Published(COMPUTER, _USES_COMPUTER, schema({"actions": several(_ACTION, "The actions, one after the other.")})),
        Published(PREVIEW, _USES_COMPUTER, _ACTION),
    )
}
"""Published descriptions and parameters by type, which is also the tool's name."""


def client_tool(tool: Object) -> ToolSpec | None:
    """Returns the function that a client tool stands for; None if the client does not run it, or its type is
    unknown."""
    kind = tool["type"]
    known = PUBLISHED.get(kind)
    if known is None or not _is_run_by_client(tool):
        return None
    about, parameters = known.description, known.parameters
    if kind == SEARCH:
        about = _text(tool.get("description")) or about
        parameters = _object(tool.get("parameters")) or parameters
    elif kind == SHELL:
        about += "".join(_skills(tool.get("environment")))
    width, height = tool.get("display_width"), tool.get("display_height")
    if kind == PREVIEW and type(width) is type(height) is int:
        about = f"{about} It is {width} pixels wide and {height} high."
    return ToolSpec(kind, about, parameters, extra={PROTOCOL: tool})


def _skills(environment: Any) -> Iterator[str]:
    """Yields a description of the skills in the folders of a local environment."""
    skills = environment.get("skills") if isinstance(environment, Mapping) else None
    listed = [skill for skill in (skills if isinstance(skills, list) else ()) if isinstance(skill, Mapping)]
    if listed:
        yield " There are skills: folders with a file `SKILL.md` that says how to do something. Read it before."
    for skill in listed:
        yield f"\n- {skill.get('name')} ({skill.get('path')}): {skill.get('description')}"


def _is_run_by_client(value: Object) -> bool:
    """True if the client runs this tool or made this call, of a type that servers may run as well."""
    kind = value.get("type")
    if kind in (SEARCH, f"{SEARCH}_call", f"{SEARCH}_output"):
        return value.get("execution") == "client"
    environment = value.get("environment")
    return not (isinstance(environment, Mapping) and str(environment.get("type")).startswith("container"))


def chosen_tool(kind: str, tools: tuple[ToolSpec, ...]) -> str:
    """Returns the name of the tool that a `tool_choice` of this type selects; the computer has several types."""
    if kind.startswith(COMPUTER) and not any(tool.name == kind for tool in tools):
        return next((tool.name for tool in tools if tool.name in (COMPUTER, PREVIEW)), kind)
    return kind


# --- calls ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """The written form of a tool's calls. `fields` are the item's fields for arguments. `write` makes them from any
    arguments; `read` makes arguments from them, or returns None. `blank` makes the fields of the first event, and
    `stream` the frames after it."""

    fields: frozenset[str]
    write: Callable[[Object], dict[str, Any]]
    read: Callable[[Object], tuple[str, Object] | None]
    blank: Callable[[dict[str, Any]], dict[str, Any]] = dict
    stream: Callable[[dict[str, Any]], Iterator[Frame]] = lambda fields: iter(())


def _text(value: Any) -> str | None:
    return valid_text(value) if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _object(value: Any) -> Object | None:
    return value if isinstance(value, Mapping) else None


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [valid_text(one) for one in listed if isinstance(one, str)]


def _write_shell(arguments: Object) -> dict[str, Any]:
    limits = {key: _integer(arguments.get(key)) for key in ("timeout_ms", "max_output_length")}
    action = {"commands": _texts(arguments.get("commands")) or ["true"], **limits}
    return {"action": action, "environment": {"type": "local"}}


def _blank_shell(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "action": {**fields["action"], "commands": []}}


def _stream_shell(fields: dict[str, Any]) -> Iterator[Frame]:
    for index, command in enumerate(fields["action"]["commands"]):
        place = {"command_index": index}
        yield "response.shell_call_command.added", {**place, "command": ""}
        yield "response.shell_call_command.delta", {**place, "delta": command}
        yield "response.shell_call_command.done", {**place, "command": command}


def _write_local_shell(arguments: Object) -> dict[str, Any]:
    env = _object(arguments.get("env")) or EMPTY
    rest = {key: _text(arguments.get(key)) for key in ("user", "working_directory")}
    action = {
        "type": "exec",
        "command": _texts(arguments.get("command")) or ["true"],
        "env": {valid_text(key): valid_text(value) for key, value in env.items() if isinstance(value, str)},
        **present(**rest, timeout_ms=_integer(arguments.get("timeout_ms"))),
    }
    return {"action": action}


def _read_action(name: str) -> Callable[[Object], tuple[str, Object] | None]:
    def read(item: Object) -> tuple[str, Object] | None:
        action = _object(item.get("action"))
        if action is None:
            return None
        arguments = {key: value for key, value in action.items() if value is not None and (key, value) != ("env", {})}
        if arguments.get("type") == "exec":
            del arguments["type"]
        return name, arguments

    return read


def _write_patch(arguments: Object) -> dict[str, Any]:
    kind = arguments.get("type")
    kind = kind if kind in ("create_file", "delete_file") else "update_file"
    diff = {} if kind == "delete_file" else {"diff": _text(arguments.get("diff")) or ""}
    return {"operation": {"type": kind, "path": _text(arguments.get("path")) or "", **diff}}


def _read_patch(item: Object) -> tuple[str, Object] | None:
    operation = _object(item.get("operation"))
    return None if operation is None else ("apply_patch", rest_of(operation, frozenset()))


def _blank_patch(fields: dict[str, Any]) -> dict[str, Any]:
    operation = fields["operation"]
    return {"operation": {**operation, "diff": ""} if "diff" in operation else operation}


_BUTTONS: Final = ("left", "right", "wheel", "back", "forward")
_POINTED: Final = ("click", "double_click", "move", "scroll")


def _action(arguments: Any) -> dict[str, Any] | None:
    """Returns an action in its published form; None if it does not fit."""
    if not isinstance(arguments, Mapping):
        return None
    kind = arguments.get("type")
    keys = _texts(arguments["keys"]) if arguments.get("keys") else None
    point = {key: _whole_number(arguments.get(key)) for key in ("x", "y")}
    match kind:
        case "screenshot" | "wait":
            return {"type": kind}
        case "type" if isinstance(arguments.get("text"), str):
            return {"type": kind, "text": valid_text(arguments["text"])}
        case "keypress" if keys:
            return {"type": kind, "keys": keys}
        case "drag" if isinstance(arguments.get("path"), list):
            points = [
                {key: _whole_number(one.get(key)) for key in ("x", "y")} for one in arguments["path"] if _object(one)
            ]
            if points and all(None not in one.values() for one in points):
                return {"type": kind, "path": points, **present(keys=keys)}
        case str() if kind in _POINTED and None not in point.values():
            more: dict[str, Any] = present(keys=keys)
            if kind == "click":
                more["button"] = arguments.get("button") if arguments.get("button") in _BUTTONS else "left"
            elif kind == "double_click":
                more["keys"] = keys
            elif kind == "scroll":
                more |= {key: _whole_number(arguments.get(key)) or 0 for key in ("scroll_x", "scroll_y")}
            return {"type": kind, **point, **more}
    return None


def _whole_number(value: Any) -> int | None:
    return int(value) if type(value) in (int, float) and abs(value) < 1_000_000 else None


def _write_computer(arguments: Object) -> dict[str, Any]:
    listed = arguments.get("actions")
    if listed is None:
        return {"action": _action(arguments) or {"type": "screenshot"}, "pending_safety_checks": []}
    actions = [action for one in (listed if isinstance(listed, list) else ()) if (action := _action(one)) is not None]
    return {"actions": actions or [{"type": "screenshot"}], "pending_safety_checks": []}


def _read_computer(item: Object) -> tuple[str, Object] | None:
    if isinstance(item.get("actions"), list):
        return COMPUTER, {"actions": [rest_of(fields_in(action), frozenset()) for action in item["actions"]]}
    action = _object(item.get("action"))
    return None if action is None else (PREVIEW, rest_of(action, frozenset()))


def _read_search(item: Object) -> tuple[str, Object] | None:
    arguments = item.get("arguments")
    if isinstance(arguments, str):
        return SEARCH, _loaded(arguments)
    return SEARCH, fields_in(arguments)


FORMS: Final[Mapping[str, Form]] = {
    f"{SEARCH}_call": Form(
        frozenset({"arguments"}),
        lambda arguments: {"arguments": arguments, "execution": "client"},
        _read_search,
        lambda fields: {**fields, "arguments": {}},
    ),
    "shell_call": Form(frozenset({"action"}), _write_shell, _read_action(SHELL), _blank_shell, _stream_shell),
    "local_shell_call": Form(frozenset({"action"}), _write_local_shell, _read_action("local_shell")),
    "apply_patch_call": Form(frozenset({"operation"}), _write_patch, _read_patch, _blank_patch),
    "computer_call": Form(frozenset({"action", "actions"}), _write_computer, _read_computer),
}
"""The forms of calls by the types of their items."""
_NESTS: Final = frozenset({"action", "operation"})
"""Fields of items that no tool has as an argument."""
KEPT_FIELDS: Final = frozenset(
    {ITEM_TYPE, "environment", "pending_safety_checks", "acknowledged_safety_checks", "execution", "caller"}
    | {"created_by", "output", "max_output_length", "status", "id"}
)
"""Fields in the `extra` of a call or a result that every server with the tool knows."""
OUTPUTS: Final = frozenset(
    {f"{SEARCH}_output", "shell_call_output", "local_shell_call_output", "apply_patch_call_output"}
    | {"computer_call_output"}
)
"""Types of the items of results."""
_NAMED: Final = frozenset({"type", "id", "call_id"})
_NAMING: Final = _NAMED | {"status"}


def item_types(tools: tuple[ToolSpec, ...]) -> Mapping[str, str]:
    """Returns the item types of calls by tool name, for the tools whose calls have their own type."""
    return {
        tool.name: "computer_call" if tool.name == PREVIEW else f"{tool.name}_call"
        for tool in tools
        if tool.kind == "function"
        and tool.name in PUBLISHED
        and fields_of(tool.extra, PROTOCOL).get("type") == tool.name
    }


def item_type(use: ToolUse | ToolResult) -> str | None:
    """Returns the item type of a call or a result; None if it has no type of its own."""
    kind = fields_of(use.extra, PROTOCOL).get(ITEM_TYPE) if use.extra else None
    return kind if kind in FORMS or kind in OUTPUTS else None


def read_client_call(item: Object, call_id: str | None = None) -> ToolUse | None:
    """Returns the call in an item; None if the item is not the call of a client-run tool. `call_id` is used if the item
    has none."""
    kind = item.get("type")
    form = FORMS.get(kind) if isinstance(kind, str) else None
    ident = item.get("call_id")
    ident = ident if isinstance(ident, str) and ident else call_id
    if form is None or ident is None or not _is_run_by_client(item) or (read := form.read(item)) is None:
        return None
    known = _NAMING | form.fields
    rest = {key: value for key, value in item.items() if key not in known and value is not None}
    extra = {PROTOCOL: {ITEM_TYPE: kind, **rest}}
    return ToolUse(ident, read[0], dump(read[1]).decode(), item_id=_text(item.get("id")), extra=extra)


def call_fields(use: ToolUse, kind: str) -> dict[str, Any]:
    """Returns the fields with a call's arguments, for an item of this type. They may be nested in its field, as models
    know them from the item."""
    form, arguments = FORMS[kind], _loaded(use.arguments)
    nested = (_object(arguments.get(name)) for name in form.fields & _NESTS)
    return form.write(next(filter(None, nested), arguments))


def _loaded(arguments: str) -> Object:
    """Returns arguments as an object; an empty one if they are not an object."""
    try:
        value = load(arguments) if arguments.strip(SPACE) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def status_of(kind: str, status: str | None) -> str:
    """Returns a status that items of this type can have."""
    return "in_progress" if status == "incomplete" and kind == "apply_patch_call" else status or "completed"


# --- results --------------------------------------------------------------------------------------------------------


def read_output(item: Object, call: Callable[[str], ToolUse | None]) -> ToolResult | None:
    """Returns the result in an item; None if the item is not the result of a client-run tool. `call` finds a call by
    its id."""
    kind, ident = item.get("type"), item.get("call_id")
    by_id = not isinstance(ident, str)
    ident = item.get("id") if by_id and kind == "local_shell_call_output" else ident
    if kind not in OUTPUTS or not isinstance(ident, str) or not ident or not _is_run_by_client(item):
        return None
    use = call(ident)
    rest = {key: value for key, value in item.items() if key not in _NAMED and value is not None}
    extra = {PROTOCOL: {ITEM_TYPE: kind, **rest, **({"id": ident} if by_id else EMPTY)}}
    if kind == f"{SEARCH}_output":
        del extra[PROTOCOL]["tools"]
        return ToolResult(ident, (Text(search_result_text(item.get("tools") or ())),), SEARCH, extra=extra)
    parts, failed = result_parts(item)
    return ToolResult(use.call_id if use else ident, parts, use.name if use else None, failed, extra=extra)


def result_parts(item: Object) -> tuple[tuple[Part, ...], bool]:
    """Returns the parts of a result for the model, and whether the tool failed."""
    output, kind = item.get("output"), item["type"]
    if kind == "computer_call_output" and isinstance(output, Mapping):
        url = output.get("image_url")
        return ((Image(url),) if isinstance(url, str) else (OpaquePart(PROTOCOL, output),)), False
    if kind == "shell_call_output" and isinstance(output, list):
        texts = [_shell_text(one) for one in output if isinstance(one, Mapping)]
        return (Text("\n\n".join(texts) or "No output."),), False
    failed = kind == "apply_patch_call_output" and item.get("status") == "failed"
    if output is None or output == "":
        status_text = "Failed." if failed else "Done." if kind == "apply_patch_call_output" else "No output."
        return (Text(status_text),), failed
    return (Text(output if isinstance(output, str) else dump(output).decode()),), failed


def _shell_text(chunk: Object) -> str:
    """Returns the text of one command: its output and how it ended."""
    outcome = _object(chunk.get("outcome")) or EMPTY
    printed, errors = _text(chunk.get("stdout")) or "", _text(chunk.get("stderr")) or ""
    lines = [printed.rstrip("\n")] if printed else []
    if errors:
        lines.append(f"stderr:\n{errors}".rstrip("\n"))
    lines.append("[timed out]" if outcome.get("type") == "timeout" else f"[exit code {outcome.get('exit_code') or 0}]")
    return "\n".join(lines)


def write_output(result: ToolResult, kind: str) -> dict[str, Any]:
    """Returns the item of a result, with its output as received, or made from the parts if they were changed."""
    fields = {key: value for key, value in fields_of(result.extra, PROTOCOL).items() if key != ITEM_TYPE}
    named = EMPTY if "id" in fields else {"call_id": result.call_id}
    item = {"status": "completed", **fields, "type": kind, **named}
    if kind == f"{SEARCH}_output":
        return {**item, "tools": []}  # the found tools are already on offer
    if result_parts(item)[0] == result.parts:
        return item
    output = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    if kind == "shell_call_output":
        exit_code = {"type": "exit", "exit_code": int(result.is_error)}
        return {**item, "output": [{"stdout": output, "stderr": "", "outcome": exit_code}]}
    image = next((part for part in result.parts if isinstance(part, Image)), None)
    if kind == "computer_call_output":
        shown = {} if image is None else {"image_url": image.url}
        return {**item, "output": {"type": "computer_screenshot", **shown}}
    return {**item, "output": output}


def search_result_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """Returns a text for the model with the names of the tools that a search found. Their descriptions are in the list
    of tools."""
    names = list(_names(tools, ""))
    return f"Found: {', '.join(names)}. They can be called now." if names else "No tool was found."


def _names(tools: Iterable[Mapping[str, Any]], group: str) -> Iterator[str]:
    for tool in tools:
        name = tool.get("name")
        if tool.get("type") == "namespace":
            yield from _names(tool.get("tools") or (), f"{name}__")
        elif isinstance(name, str) or isinstance(name := (tool.get("function") or EMPTY).get("name"), str):
            yield f"{group}{name}"
