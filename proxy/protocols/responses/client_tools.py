"""The tools of Responses that the client runs, and the items of their calls and results (R28.5, R28.1).

Rules:

1. Inside of the gateway a call is a `ToolUse` like any other, whose arguments are an object as the tool's parameters
   say. `ITEM_TYPE` in its `extra` says which item it is, also in that of a result; the other fields of the item stand
   beside.
2. An item that is written fits the published types, whatever the model wrote: clients read them with schemas of their
   own. What does not fit is left out, and a call without a command, a file or an action does nothing.
3. A shell in a container is run by the server that has it: that tool, its calls and their results stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolwire.model import EMPTY, Image, Opaque, Part, Text, ToolResult, ToolSpec, ToolUse, fields_of
from toolwire.protocols.shared.client_tools import ITEM_TYPE, Published, integer, schema, several, text, word
from toolwire.protocols.shared.wire import dump, load, whole
from toolwire.scan._grammar import SPACE

PROTOCOL: Final = "responses"
SEARCH: Final = "tool_search"
"""The type of the client's search for tools, and its name."""
SHELL: Final = "shell"
COMPUTER: Final = "computer"
PREVIEW: Final = "computer_use_preview"

Object = Mapping[str, Any]
Frame = tuple[str, dict[str, Any]]
"""The type of an event and its fields, without its place."""

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
            SEARCH,
            "Search for further tools. What is found can be called afterwards.",
            schema({"query": _TEXTS}),
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
"""Published descriptions and parameters, by type; the type is the name of the tool."""


def client_tool(tool: Object) -> ToolSpec | None:
    """The function that a tool of the client stands for; None if the client does not run it, or not this one."""
    kind = tool["type"]
    known = PUBLISHED.get(kind)
    if known is None or not _is_clients(tool):
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
    """Sentence that names the skills in the folders of a local environment."""
    skills = environment.get("skills") if isinstance(environment, Mapping) else None
    listed = [skill for skill in (skills if isinstance(skills, list) else ()) if isinstance(skill, Mapping)]
    if listed:
        yield " There are skills: folders with a file `SKILL.md` that says how to do something. Read it before."
    for skill in listed:
        yield f"\n- {skill.get('name')} ({skill.get('path')}): {skill.get('description')}"


def _is_clients(value: Object) -> bool:
    """Whether the client runs a tool, or made a call, of a type that others may run as well."""
    kind = value.get("type")
    if kind in (SEARCH, f"{SEARCH}_call", f"{SEARCH}_output"):
        return value.get("execution") == "client"
    environment = value.get("environment")
    return not (isinstance(environment, Mapping) and str(environment.get("type")).startswith("container"))


def chosen_tool(kind: str, tools: tuple[ToolSpec, ...]) -> str:
    """The name of the tool that a `tool_choice` of this type means: the computer has several."""
    if kind.startswith(COMPUTER) and not any(tool.name == kind for tool in tools):
        return next((tool.name for tool in tools if tool.name in (COMPUTER, PREVIEW)), kind)
    return kind


# --- calls ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """How the calls of a tool are written. `fields`: those of an item that hold arguments. `write` makes them of
    arguments, which may be anything, and `read` the other way, or gives None. `blank` is what of them is shown before
    the frames of `stream`."""

    fields: frozenset[str]
    write: Callable[[Object], dict[str, Any]]
    read: Callable[[Object], tuple[str, Object] | None]
    blank: Callable[[dict[str, Any]], dict[str, Any]] = dict
    stream: Callable[[dict[str, Any]], Iterator[Frame]] = lambda fields: iter(())


def _text(value: Any) -> str | None:
    return whole(value) if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _object(value: Any) -> Object | None:
    return value if isinstance(value, Mapping) else None


def _texts(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [whole(one) for one in listed if isinstance(one, str)]


def _present(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _write_shell(given: Object) -> dict[str, Any]:
    limits = {key: _integer(given.get(key)) for key in ("timeout_ms", "max_output_length")}
    action = {"commands": _texts(given.get("commands")) or ["true"], **limits}
    return {"action": action, "environment": {"type": "local"}}


def _blank_shell(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "action": {**fields["action"], "commands": []}}


def _stream_shell(fields: dict[str, Any]) -> Iterator[Frame]:
    for index, command in enumerate(fields["action"]["commands"]):
        place = {"command_index": index}
        yield "response.shell_call_command.added", {**place, "command": ""}
        yield "response.shell_call_command.delta", {**place, "delta": command}
        yield "response.shell_call_command.done", {**place, "command": command}


def _write_local_shell(given: Object) -> dict[str, Any]:
    env = _object(given.get("env")) or EMPTY
    rest = {key: _text(given.get(key)) for key in ("user", "working_directory")}
    action = {
        "type": "exec",
        "command": _texts(given.get("command")) or ["true"],
        "env": {whole(key): whole(value) for key, value in env.items() if isinstance(value, str)},
        **_present(**rest, timeout_ms=_integer(given.get("timeout_ms"))),
    }
    return {"action": action}


def _read_action(name: str) -> Callable[[Object], tuple[str, Object] | None]:
    def read(item: Object) -> tuple[str, Object] | None:
        action = _object(item.get("action"))
        if action is None:
            return None
        kept = {key: value for key, value in action.items() if value is not None and (key, value) != ("env", {})}
        if kept.get("type") == "exec":
            del kept["type"]
        return name, kept

    return read


def _write_patch(given: Object) -> dict[str, Any]:
    kind = given.get("type")
    kind = kind if kind in ("create_file", "delete_file") else "update_file"
    diff = {} if kind == "delete_file" else {"diff": _text(given.get("diff")) or ""}
    return {"operation": {"type": kind, "path": _text(given.get("path")) or "", **diff}}


def _read_patch(item: Object) -> tuple[str, Object] | None:
    operation = _object(item.get("operation"))
    return None if operation is None else ("apply_patch", operation)


def _blank_patch(fields: dict[str, Any]) -> dict[str, Any]:
    operation = fields["operation"]
    return {"operation": {**operation, "diff": ""} if "diff" in operation else operation}


_BUTTONS: Final = ("left", "right", "wheel", "back", "forward")
_POINTED: Final = ("click", "double_click", "move", "scroll")


def _action(given: Any) -> dict[str, Any] | None:
    """An action as the types have it; None if it is none."""
    if not isinstance(given, Mapping):
        return None
    kind = given.get("type")
    keys = _texts(given["keys"]) if given.get("keys") else None
    point = {key: _whole_number(given.get(key)) for key in ("x", "y")}
    match kind:
        case "screenshot" | "wait":
            return {"type": kind}
        case "type" if isinstance(given.get("text"), str):
            return {"type": kind, "text": whole(given["text"])}
        case "keypress" if keys:
            return {"type": kind, "keys": keys}
        case "drag" if isinstance(given.get("path"), list):
            points = [{key: _whole_number(one.get(key)) for key in ("x", "y")} for one in given["path"] if _object(one)]
            if points and all(None not in one.values() for one in points):
                return {"type": kind, "path": points, **_present(keys=keys)}
        case str() if kind in _POINTED and None not in point.values():
            more: dict[str, Any] = _present(keys=keys)
            if kind == "click":
                more["button"] = given.get("button") if given.get("button") in _BUTTONS else "left"
            elif kind == "double_click":
                more["keys"] = keys
            elif kind == "scroll":
                more |= {key: _whole_number(given.get(key)) or 0 for key in ("scroll_x", "scroll_y")}
            return {"type": kind, **point, **more}
    return None


def _whole_number(value: Any) -> int | None:
    return int(value) if type(value) in (int, float) and abs(value) < 1_000_000 else None


def _write_computer(given: Object) -> dict[str, Any]:
    listed = given.get("actions")
    if listed is None:
        return {"action": _action(given) or {"type": "screenshot"}, "pending_safety_checks": []}
    actions = [action for one in (listed if isinstance(listed, list) else ()) if (action := _action(one)) is not None]
    return {"actions": actions or [{"type": "screenshot"}], "pending_safety_checks": []}


def _read_computer(item: Object) -> tuple[str, Object] | None:
    if isinstance(item.get("actions"), list):
        return COMPUTER, {"actions": item["actions"]}
    action = _object(item.get("action"))
    return None if action is None else (PREVIEW, action)


def _read_search(item: Object) -> tuple[str, Object] | None:
    given = item.get("arguments")
    if isinstance(given, str):
        return SEARCH, _loaded(given)
    return SEARCH, given if isinstance(given, Mapping) else {}


FORMS: Final[Mapping[str, Form]] = {
    f"{SEARCH}_call": Form(
        frozenset({"arguments"}),
        lambda given: {"arguments": given, "execution": "client"},
        _read_search,
        lambda fields: {**fields, "arguments": {}},
    ),
    "shell_call": Form(frozenset({"action"}), _write_shell, _read_action(SHELL), _blank_shell, _stream_shell),
    "local_shell_call": Form(frozenset({"action"}), _write_local_shell, _read_action("local_shell")),
    "apply_patch_call": Form(frozenset({"operation"}), _write_patch, _read_patch, _blank_patch),
    "computer_call": Form(frozenset({"action", "actions"}), _write_computer, _read_computer),
}
"""The forms of calls, by the types of their items."""
KEPT_FIELDS: Final = frozenset(
    {ITEM_TYPE, "environment", "pending_safety_checks", "acknowledged_safety_checks", "execution", "caller"}
    | {"created_by", "output", "max_output_length", "status", "id"}
)
"""Fields of the `extra` of a call or a result that every server knows which has the tool."""
OUTPUTS: Final = frozenset(
    {f"{SEARCH}_output", "shell_call_output", "local_shell_call_output", "apply_patch_call_output"}
    | {"computer_call_output"}
)
"""The types of the items of results."""
_NAMED: Final = frozenset({"type", "id", "call_id"})
_NAMING: Final = _NAMED | {"status"}


def item_types(tools: tuple[ToolSpec, ...]) -> Mapping[str, str]:
    """The types of the items of calls, by the names of those tools that have their own."""
    return {
        tool.name: "computer_call" if tool.name == PREVIEW else f"{tool.name}_call"
        for tool in tools
        if tool.kind == "function"
        and tool.name in PUBLISHED
        and fields_of(tool.extra, PROTOCOL).get("type") == tool.name
    }


def item_type(use: ToolUse | ToolResult) -> str | None:
    """The type of the item of a call or a result, if it has one of its own."""
    kind = fields_of(use.extra, PROTOCOL).get(ITEM_TYPE) if use.extra else None
    return kind if kind in FORMS or kind in OUTPUTS else None


def read_client_call(item: Object, call_id: str | None = None) -> ToolUse | None:
    """The call in an item; None if it is none of these. `call_id` stands in for one that is missing."""
    kind = item.get("type")
    form = FORMS.get(kind) if isinstance(kind, str) else None
    ident = item.get("call_id")
    ident = ident if isinstance(ident, str) and ident else call_id
    if form is None or ident is None or not _is_clients(item) or (read := form.read(item)) is None:
        return None
    known = _NAMING | form.fields
    rest = {key: value for key, value in item.items() if key not in known and value is not None}
    extra = {PROTOCOL: {ITEM_TYPE: kind, **rest}}
    return ToolUse(ident, read[0], dump(read[1]).decode(), item_id=_text(item.get("id")), extra=extra)


def call_fields(use: ToolUse, kind: str) -> dict[str, Any]:
    """The fields of an item of this type that hold the arguments of a call."""
    return FORMS[kind].write(_loaded(use.arguments))


def _loaded(arguments: str) -> Object:
    """Arguments as an object; an empty one if they are none."""
    try:
        value = load(arguments) if arguments.strip(SPACE) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}


def status_of(kind: str, status: str | None) -> str:
    """The status that an item of this type may have."""
    return "in_progress" if status == "incomplete" and kind == "apply_patch_call" else status or "completed"


# --- results --------------------------------------------------------------------------------------------------------


def read_output(item: Object, call: Callable[[str], ToolUse | None]) -> ToolResult | None:
    """The result in an item; None if it is none of these. `call` finds the call of an id."""
    kind, ident = item.get("type"), item.get("call_id")
    by_id = not isinstance(ident, str)
    ident = item.get("id") if by_id and kind == "local_shell_call_output" else ident
    if kind not in OUTPUTS or not isinstance(ident, str) or not ident or not _is_clients(item):
        return None
    use = call(ident)
    rest = {key: value for key, value in item.items() if key not in _NAMED and value is not None}
    extra = {PROTOCOL: {ITEM_TYPE: kind, **rest, **({"id": ident} if by_id else EMPTY)}}
    if kind == f"{SEARCH}_output":
        del extra[PROTOCOL]["tools"]
        return ToolResult(ident, (Text(found_text(item.get("tools") or ())),), SEARCH, extra=extra)
    parts, failed = result_parts(item)
    return ToolResult(use.call_id if use else ident, parts, use.name if use else None, failed, extra=extra)


def result_parts(item: Object) -> tuple[tuple[Part, ...], bool]:
    """Text of a result for the model, and whether the tool failed."""
    output, kind = item.get("output"), item["type"]
    if kind == "computer_call_output" and isinstance(output, Mapping):
        url = output.get("image_url")
        return ((Image(url),) if isinstance(url, str) else (Opaque(PROTOCOL, output),)), False
    if kind == "shell_call_output" and isinstance(output, list):
        said = [_shell_text(one) for one in output if isinstance(one, Mapping)]
        return (Text("\n\n".join(said) or "No output."),), False
    failed = kind == "apply_patch_call_output" and item.get("status") == "failed"
    if output is None or output == "":
        said_so = "Failed." if failed else "Done." if kind == "apply_patch_call_output" else "No output."
        return (Text(said_so),), failed
    return (Text(output if isinstance(output, str) else dump(output).decode()),), failed


def _shell_text(chunk: Object) -> str:
    """Text of one command: its output and how it ended."""
    outcome = _object(chunk.get("outcome")) or EMPTY
    printed, errors = _text(chunk.get("stdout")) or "", _text(chunk.get("stderr")) or ""
    lines = [printed.rstrip("\n")] if printed else []
    if errors:
        lines.append(f"stderr:\n{errors}".rstrip("\n"))
    lines.append("[timed out]" if outcome.get("type") == "timeout" else f"[exit code {outcome.get('exit_code', 0)}]")
    return "\n".join(lines)


def write_output(result: ToolResult, kind: str) -> dict[str, Any]:
    """The item of a result: its output as it was received, or what the parts say now."""
    fields = {key: value for key, value in fields_of(result.extra, PROTOCOL).items() if key != ITEM_TYPE}
    named = EMPTY if "id" in fields else {"call_id": result.call_id}
    item = {"status": "completed", **fields, "type": kind, **named}
    if kind == f"{SEARCH}_output":
        return {**item, "tools": []}  # they are on offer
    if result_parts(item)[0] == result.parts:
        return item
    said = "\n".join(part.text for part in result.parts if isinstance(part, Text))
    if kind == "shell_call_output":
        exit_code = {"type": "exit", "exit_code": int(result.is_error)}
        return {**item, "output": [{"stdout": said, "stderr": "", "outcome": exit_code}]}
    image = next((part for part in result.parts if isinstance(part, Image)), None)
    if kind == "computer_call_output":
        shown = {} if image is None else {"image_url": image.url}
        return {**item, "output": {"type": "computer_screenshot", **shown}}
    return {**item, "output": said}


def found_text(tools: Iterable[Mapping[str, Any]]) -> str:
    """The names of the tools that a search has found, for the model: what they are it sees where all are listed."""
    names = list(_names(tools, ""))
    return f"Found: {', '.join(names)}. They can be called now." if names else "No tool was found."


def _names(tools: Iterable[Mapping[str, Any]], group: str) -> Iterator[str]:
    for tool in tools:
        name = tool.get("name")
        if tool.get("type") == "namespace":
            yield from _names(tool.get("tools") or (), f"{name}__")
        elif isinstance(name, str) or isinstance(name := (tool.get("function") or EMPTY).get("name"), str):
            yield f"{group}{name}"
