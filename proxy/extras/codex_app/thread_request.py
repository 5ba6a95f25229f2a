"""Converts a model request to the parameters of an app-server, which gets a new thread for each request (R10.11).

Rules:

1. The server's own tools are switched off one by one (R1.9). A read-only sandbox alone would let the model read all
   files of the machine.
2. Without offered tools, as in `prompt` mode, the whole conversation is sent as one text, followed by its images. The
   heading of a turn contains a mark that occurs in no message, so a message cannot imitate a turn.
3. With offered tools, as in `native` mode, the conversation is sent as items and the tools as dynamic tools.
4. A dynamic tool is renamed if the server would silently drop its name or refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from ...config import CodexConfig
from ...model import Image, Message, ModelRequest, OpaquePart, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from ...protocols.shared.call_ids import at_most
from ...protocols.shared.wire import dump, dump_in_pieces

WHOLE_RESULTS: Final = 1_000_000_000
"""Token limit for a tool's result, so that the server does not truncate long ones."""

RESERVED: Final = frozenset(
    [
        "apply_patch",
        "close_agent",
        "create_goal",
        "exec_command",
        "get_goal",
        "image_generation",
        "list_agents",
        "list_mcp_resource_templates",
        "list_mcp_resources",
        "local_shell",
        "multi_agent_v1",
        "read_mcp_resource",
        "request_permissions",
        "request_user_input",
        "resume_agent",
        "send_input",
        "shell",
        "shell_command",
        "spawn_agent",
        "tool_search",
        "tool_suggest",
        "update_goal",
        "update_plan",
        "view_image",
        "wait_agent",
        "web_search",
        "write_stdin",
    ]
)
"""Names of the server's own tools. The model decides which of them it reserves."""

CALL_ID_CHARS: Final = 64
"""Maximum length of a call id, as the model's server (Responses) requires (R24.2a)."""

_PREFIX: Final = "client_"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK: Final = "==="


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRequest:
    """The parameters for one request: of `thread/start`, the items to inject into the thread, and of `turn/start`, both
    without the thread's id. `names` maps the server's names of the tools to the client's. The larger parts may be JSON
    fragments."""

    thread: Any
    items: Any
    turn: Mapping[str, Any]
    names: Mapping[str, str]

    def written(self) -> ThreadRequest:
        """Returns these parameters with the larger parts serialised to JSON; for large requests, in a thread."""
        return replace(
            self,
            thread=orjson.Fragment(dump_in_pieces(self.thread)),
            items=orjson.Fragment(dump_in_pieces(self.items)) if self.items else (),
            turn={**self.turn, "input": orjson.Fragment(dump_in_pieces(self.turn["input"]))},
        )


def thread_request(
    request: ModelRequest, config: CodexConfig, folder: str | None, servers: Iterable[str]
) -> ThreadRequest:
    """Returns the parameters for `request`. `folder`: working directory of the thread. `servers`: names of the server's
    own MCP servers."""
    schema, form = _form(request.response_format)
    thread: dict[str, Any] = {
        "model": request.model,
        "ephemeral": True,
        "approvalPolicy": "never",
        "sandbox": "read-only",
        "baseInstructions": _joined(config.instructions, form),
        "config": settings(config, servers),
    }
    if folder is not None:
        thread["cwd"] = folder
    turn: dict[str, Any] = {}
    if request.sampling.reasoning_effort is not None:
        turn["effort"] = request.sampling.reasoning_effort
    if schema is not None:
        turn["outputSchema"] = schema
    if not request.tools:
        return ThreadRequest(thread=thread, items=(), turn={**turn, "input": transcript(request.messages)}, names={})
    names = tool_aliases(tool.name for tool in request.tools)
    instructions, messages = _instructions(request.messages)
    thread |= {
        "baseInstructions": _joined(instructions, form),
        "experimentalRawEvents": True,
        "dynamicTools": [
            {
                "type": "function",
                "name": names[tool.name],
                "description": tool.description or "",
                "inputSchema": dict(tool.parameters or {"type": "object", "properties": {}}),
            }
            for tool in request.callable_tools
        ],
    }
    earlier, last = _split(messages)
    items = [item for message in earlier for item in _items(message, names)]
    return ThreadRequest(
        thread=thread,
        items=items,
        turn={**turn, "input": last},
        names={alias: name for name, alias in names.items()},
    )


def settings(config: CodexConfig, servers: Iterable[str]) -> dict[str, Any]:
    """Returns the configuration of a thread (rule 1). The server silently ignores unknown settings, so
    `tests/backends/codex_app` checks what its model gets."""
    off = {
        "web_search": "live" if config.web_search else "disabled",
        "include_environment_context": config.shell,
        "include_permissions_instructions": config.shell,
        "include_apps_instructions": False,
        "include_collaboration_mode_instructions": False,
        "project_doc_max_bytes": 0,
        "skills": {"include_instructions": False},
        "features": {
            "shell_tool": config.shell,
            "view_image": config.view_image,
            **dict.fromkeys(
                ("apps", "goals", "hooks", "image_generation", "memories", "multi_agent", "plugins"), False
            ),
        },
        "tools": {"experimental_request_user_input": {"enabled": False}},
        "tool_output_token_limit": WHOLE_RESULTS,
        "thread_unload_delay_secs": 0,
    }
    if not config.mcp_servers:
        off["mcp_servers"] = {name: {"enabled": False} for name in servers}
    return _overridden(off, config.config)


def _overridden(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(first)
    for key, value in second.items():
        known = out.get(key)
        out[key] = _overridden(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return out


def _form(form: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Returns the schema that the server enforces (strict ones only), and instructions for any other response
    format."""
    kind = None if form is None else form.get("type")
    if form is None or kind not in ("json_object", "json_schema"):
        return None, ""
    described = form.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    if kind == "json_object" or schema is None:
        return None, "The answer must be one JSON object and nothing else."
    if isinstance(described, Mapping) and described.get("strict") is True:
        return schema, ""
    return None, f"The answer must be JSON that fits this JSON Schema, and nothing else: {dump(schema).decode()}"


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


# --- as one text ----------------------------------------------------------------------------------------------------


def transcript(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Returns the conversation as one text item, followed by its images (rule 2). A single user message has no
    heading."""
    images: list[Image] = []
    texts = [_plain_text(message.parts, images) for message in messages]
    if len(messages) == 1 and messages[0].role == "user":
        text = texts[0]
    else:
        mark = _MARK
        while any(mark in text for text in texts):
            mark += "="
        text = "\n\n".join(f"{mark} {m.role}\n{body}" for m, body in zip(messages, texts, strict=True))
    return [{"type": "text", "text": text}, *({"type": "image", "url": image.url} for image in images)]


def _plain_text(parts: Iterable[Part], images: list[Image]) -> str:
    pieces = []
    for part in parts:
        match part:
            case Text() | Refusal():
                pieces.append(part.text)
            case Image():
                images.append(part)
                pieces.append(f"[image {len(images)}]")
            case ToolUse():
                pieces.append(f"[function_call call_id={part.call_id} name={part.name} arguments={part.arguments}]")
            case ToolResult():
                pieces.append(f"[function_call_output call_id={part.call_id} output={_plain_text(part.parts, images)}]")
            case OpaquePart() | Reasoning():
                pass
    return "\n".join(pieces)


# --- as items -------------------------------------------------------------------------------------------------------


def tool_aliases(names: Iterable[str]) -> dict[str, str]:
    """Maps each tool to its unique name at the server, which is the same name where possible (rule 4)."""
    wanted = {name: _NOT_IN_NAMES.sub("_", name) for name in names}
    out = {name: name for name, plain in wanted.items() if plain == name and name not in RESERVED}
    taken = set(out)
    for name, plain in wanted.items():
        if name in out:
            continue
        alias = plain
        number = 1
        while alias in RESERVED or alias in taken:
            alias = f"{_PREFIX}{plain}" if number == 1 else f"{_PREFIX}{number}_{plain}"
            number += 1
        taken.add(alias)
        out[name] = alias
    return out


def _instructions(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Splits the conversation into the text of its initial system messages and the other messages."""
    number = 0
    while number < len(messages) and messages[number].role in ("system", "developer"):
        number += 1
    return _joined(*(message.text for message in messages[:number])), messages[number:]


def _split(messages: Sequence[Message]) -> tuple[Sequence[Message], list[dict[str, Any]]]:
    """Splits the messages into the history and the last user message, as input of a turn."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or not all(isinstance(part, Text | Image) for part in last.parts):
        return messages, []
    content: list[dict[str, Any]] = [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image", "url": part.url}
        for part in last.parts
        if isinstance(part, Text | Image)
    ]
    return messages[:-1], content


def _items(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a message as Responses items."""
    out: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    role = "developer" if message.role == "system" else "user" if message.role == "tool" else message.role

    def flush_message() -> None:
        if content:
            out.append({"type": "message", "role": role, "content": list(content)})
            content.clear()

    for part in message.parts:
        match part:
            case Text() | Refusal():
                kind = "output_text" if role == "assistant" else "input_text"
                content.append({"type": kind, "text": part.text})
            case Image():
                content.append({"type": "input_image", "image_url": part.url})
            case ToolUse():
                flush_message()
                name = names.get(part.name, _NOT_IN_NAMES.sub("_", part.name))
                call = {"call_id": at_most(CALL_ID_CHARS, part.call_id), "name": name, "arguments": part.arguments}
                out.append({"type": "function_call", **call})
            case ToolResult():
                flush_message()
                call_id = at_most(CALL_ID_CHARS, part.call_id)
                out.append({"type": "function_call_output", "call_id": call_id, "output": _output(part.parts)})
            case OpaquePart() | Reasoning():
                pass
    flush_message()
    return out


def _output(parts: Iterable[Part]) -> Any:
    items: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text() | Refusal():
                items.append({"type": "input_text", "text": part.text})
            case Image():
                items.append({"type": "input_image", "image_url": part.url})
            case OpaquePart():
                items.append({"type": "input_text", "text": dump(part.payload).decode()})
            case _:
                pass
    if any(item["type"] == "input_image" for item in items):
        return items
    return "".join(item["text"] for item in items)
