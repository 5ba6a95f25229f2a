"""A request of the model, as an app-server is asked: a thread of its own for each (R10.11).

Rules:

1. The server's own tools are off, each by its own switch (R1.9): a read-only sandbox alone lets the model read every
   file of the machine.
2. Without tools on offer, as in `prompt` mode, the whole conversation is one text, with its images behind it. The
   heading of a turn is a line that occurs in no message, so that no message can hold a turn of another.
3. With tools on offer, as in `native` mode, the conversation is sent as items and the tools as dynamic ones.
4. A dynamic tool whose name the server would drop in silence, or does not take, has another name there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from toolwire.config import CodexConfig
from toolwire.model import Image, Message, ModelRequest, OpaquePart, Part, Reasoning, Refusal, Text, ToolResult, ToolUse
from toolwire.protocols.shared.call_ids import at_most
from toolwire.protocols.shared.wire import dump, dump_in_pieces

WHOLE_RESULTS: Final = 1_000_000_000
"""Tokens of a tool's result; the server else cuts long ones in the middle."""

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
"""Names of the server's own tools: which of them it keeps to itself depends on the model."""

CALL_ID_CHARS: Final = 64
"""What the model's server takes, which speaks Responses (R24.2a)."""

_PREFIX: Final = "client_"
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARK: Final = "==="


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is sent for one request: the parameters of `thread/start`, the items that are put into the thread, and the
    parameters of `turn/start`, both without the thread's id. `names`: of the tools, as the server has them, the
    client's. The larger parts may be JSON already."""

    thread: Any
    items: Any
    turn: Mapping[str, Any]
    names: Mapping[str, str]

    def written(self) -> Question:
        """The same as JSON, for megabytes and a thread."""
        return replace(
            self,
            thread=orjson.Fragment(dump_in_pieces(self.thread)),
            items=orjson.Fragment(dump_in_pieces(self.items)) if self.items else (),
            turn={**self.turn, "input": orjson.Fragment(dump_in_pieces(self.turn["input"]))},
        )


def question(request: ModelRequest, config: CodexConfig, folder: str | None, servers: Iterable[str]) -> Question:
    """What `request` amounts to. `folder`: where the thread is at home. `servers`: the names of the server's own MCP
    servers."""
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
        return Question(thread=thread, items=(), turn={**turn, "input": transcript(request.messages)}, names={})
    names = named(tool.name for tool in request.tools)
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
    return Question(
        thread=thread,
        items=items,
        turn={**turn, "input": last},
        names={alias: name for name, alias in names.items()},
    )


def settings(config: CodexConfig, servers: Iterable[str]) -> dict[str, Any]:
    """The configuration of a thread: what is off and what is on (rule 1). The server leaves out in silence what it does
    not know; what it knows is seen in what its model gets (`tests/backends/codex_app`)."""
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
    return _over(off, config.config)


def _over(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(first)
    for key, value in second.items():
        known = out.get(key)
        out[key] = _over(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return out


def _form(form: Mapping[str, Any] | None) -> tuple[Any, str]:
    """The schema that the server enforces, which are strict ones; any other form is asked for in words."""
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
    """The conversation as one text item, and its images as one item each (rule 2). What the user says alone stands
    without heading."""
    images: list[Image] = []
    texts = [_said(message.parts, images) for message in messages]
    if len(messages) == 1 and messages[0].role == "user":
        text = texts[0]
    else:
        mark = _MARK
        while any(mark in text for text in texts):
            mark += "="
        text = "\n\n".join(f"{mark} {m.role}\n{said}" for m, said in zip(messages, texts, strict=True))
    return [{"type": "text", "text": text}, *({"type": "image", "url": image.url} for image in images)]


def _said(parts: Iterable[Part], images: list[Image]) -> str:
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
                pieces.append(f"[function_call_output call_id={part.call_id} output={_said(part.parts, images)}]")
            case OpaquePart() | Reasoning():
                pass
    return "\n".join(pieces)


# --- as items -------------------------------------------------------------------------------------------------------


def named(names: Iterable[str]) -> dict[str, str]:
    """By tool, its name at the server: the same one where it can be (rule 4), and for no two the same."""
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
    """What the conversation begins with, and the rest of it."""
    number = 0
    while number < len(messages) and messages[number].role in ("system", "developer"):
        number += 1
    return _joined(*(message.text for message in messages[:number])), messages[number:]


def _split(messages: Sequence[Message]) -> tuple[Sequence[Message], list[dict[str, Any]]]:
    """What is history, and what the user asks now, as input of a turn."""
    last = messages[-1] if messages else None
    if last is None or last.role != "user" or not all(isinstance(part, Text | Image) for part in last.parts):
        return messages, []
    asked: list[dict[str, Any]] = [
        {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": "image", "url": part.url}
        for part in last.parts
        if isinstance(part, Text | Image)
    ]
    return messages[:-1], asked


def _items(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """A message as items of Responses."""
    out: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    role = "developer" if message.role == "system" else "user" if message.role == "tool" else message.role

    def say() -> None:
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
                say()
                name = names.get(part.name, _NOT_IN_NAMES.sub("_", part.name))
                call = {"call_id": at_most(CALL_ID_CHARS, part.call_id), "name": name, "arguments": part.arguments}
                out.append({"type": "function_call", **call})
            case ToolResult():
                say()
                call_id = at_most(CALL_ID_CHARS, part.call_id)
                out.append({"type": "function_call_output", "call_id": call_id, "output": _output(part.parts)})
            case OpaquePart() | Reasoning():
                pass
    say()
    return out


def _output(parts: Iterable[Part]) -> Any:
    found: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text() | Refusal():
                found.append({"type": "input_text", "text": part.text})
            case Image():
                found.append({"type": "input_image", "image_url": part.url})
            case OpaquePart():
                found.append({"type": "input_text", "text": dump(part.payload).decode()})
            case _:
                pass
    if any(item["type"] == "input_image" for item in found):
        return found
    return "".join(item["text"] for item in found)
