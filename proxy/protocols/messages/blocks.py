"""Conversion between content blocks of Messages and parts of the model, in both directions: in requests, whole answers
and the edges of streamed blocks.

Rules:

1. Everything is accepted: an unknown block is `OpaquePart`. A client's blocks had their form checked; in a
   server's block any field may be missing.
2. Unmodelled fields of a block are its part's `extra` under `messages`, and are written back. Null counts as absent.
3. Empty text without other fields is left out: servers refuse such a block.
4. A plain text document is text in other protocols; for this protocol its block is restored.
5. Reasoning that the gateway signed, or that has no signature, is not sent to servers.

It cannot express: `Image.detail`, `ToolUse.item_id`, fields and parts of other protocols (in a result such parts become
JSON text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ...model import (
    EMPTY,
    Extra,
    Image,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    fields_of,
    scoped,
)
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.client_tools import TOOLSET
from ..shared.wire import dump, fields_in, load, rest_of
from .ids import is_own_signature, server_id, signature_of, wire_id

PROTOCOL: Final = "messages"

TEXT: Final = frozenset({"type", "text"})
_IMAGE: Final = frozenset({"type", "source"})
_BASE64: Final = frozenset({"type", "media_type", "data"})
_URL: Final = frozenset({"type", "url"})
THINKING: Final = frozenset({"type", "thinking"})
REDACTED: Final = frozenset({"type"})
CALL: Final = frozenset({"type", "id", "name", "input"})
_RESULT: Final = frozenset({"type", "tool_use_id", "content", "is_error"})
_PLAIN: Final = frozenset({"type", "media_type", "data"})
TOOL_CHANGES: Final = "tool_changes"
"""Field of a summary's block: the tools that came and went in the messages that it stands for."""
PART_FIELDS: Final = frozenset(
    {"cache_control", "citations", "caller", "document", "source", "title", "context", TOOLSET}
)
"""Additional fields of a part that every server knows."""
_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def block_extra(block: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """Returns the `extra` with a block's unmodelled fields."""
    return scoped(PROTOCOL, rest_of(block, known))


# --- read -----------------------------------------------------------------------------------------------------------


def read_content(content: Any, names: Mapping[str, str] = EMPTY) -> tuple[Part, ...]:
    """Returns the parts of a message's content, which is a string or a list of blocks. `names` are the tools of earlier
    calls, by call id."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks = content if isinstance(content, list) else ()
    parts = (read_block(block, names) for block in blocks if isinstance(block, Mapping))
    return tuple(part for part in parts if part is not None)


def read_block(block: Mapping[str, Any], names: Mapping[str, str] = EMPTY) -> Part | None:
    """Returns the part of one block; None if it is empty."""
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            extra = block_extra(block, TEXT)
            return Text(text, extra) if text or extra else None
        case {"type": "thinking", "thinking": str(text)}:
            extra = block_extra(block, THINKING)
            return Reasoning(text, extra) if text or extra else None
        case {"type": "redacted_thinking", "data": str()}:
            return Reasoning("", block_extra(block, REDACTED))
        case {"type": "tool_use", "id": str(call_id), "name": str(name)}:
            group = block.get(TOOLSET)
            group = group if isinstance(group, str) else None
            extra = block_extra(block, CALL)
            return ToolUse(call_id, name, arguments_of(block.get("input")), namespace=group, extra=extra)
        case {"type": "tool_result", "tool_use_id": str(call_id)}:
            parts = read_content(block.get("content"))
            failed = block.get("is_error") is True
            return ToolResult(call_id, parts, names.get(call_id), failed, extra=block_extra(block, _RESULT))
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)} as source}:
            return Image(f"data:{kind};base64,{data}", extra=_image_extra(block, source, _BASE64))
        case {"type": "image", "source": {"type": "url", "url": str(url)} as source}:
            return Image(url, extra=_image_extra(block, source, _URL))
        case {"type": "document", "source": {"type": "text", "data": str(text)} as source} if text and not block.get(
            "context"
        ):
            shown = {**block, "source": rest_of(source, frozenset({"data"}))}
            return Text(text, {PROTOCOL: {"document": shown}})
        case _:
            return OpaquePart(PROTOCOL, block)


def arguments_of(value: Any) -> str:
    """Returns the `input` of a call as JSON text. Some servers send it as text already."""
    if isinstance(value, str) and begins_as_object(value):
        return value
    return "{}" if value is None else dump(value).decode()


def _image_extra(block: Mapping[str, Any], source: Mapping[str, Any], known: frozenset[str]) -> Extra:
    rest = dict(rest_of(block, _IMAGE))
    if inside := rest_of(source, known):
        rest["source"] = inside
    return scoped(PROTOCOL, rest)


# --- write ----------------------------------------------------------------------------------------------------------


def write_content(blocks: list[Mapping[str, Any]]) -> Any:
    """Returns blocks as content: a single plain text becomes a string."""
    if len(blocks) == 1 and blocks[0].keys() == TEXT and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def request_blocks(parts: Iterable[Part]) -> Iterator[Mapping[str, Any]]:
    """Yields the blocks of a message for a server, without those that servers refuse and without tool changes, which
    are in the request's tools already."""
    for part in parts:
        if isinstance(part, Reasoning) and not _has_server_signature(part):
            continue
        if isinstance(part, Text | Refusal) and not part.text.strip(SPACE) and not fields_of(part.extra, PROTOCOL):
            continue
        block = write_block(part, server_id)
        if block is not None:
            yield block if TOOL_CHANGES not in block else {k: v for k, v in block.items() if k != TOOL_CHANGES}


def write_block(part: Part, name: Callable[[str], str] = wire_id) -> Mapping[str, Any] | None:
    """Returns the block of a part; None if the protocol cannot express it. `name` makes the wire ids of calls."""
    match part:
        case Text():
            return _write_text(part)
        case Refusal():
            return {"type": "text", "text": valid_text(part.text), **fields_of(part.extra, PROTOCOL)}
        case Reasoning():
            return write_reasoning(part)
        case ToolUse():
            fields = call_fields(part.namespace, part.extra)
            return {"type": "tool_use", "id": name(part.call_id), "name": part.name, "input": input_of(part), **fields}
        case ToolResult():
            return _write_result(part, name)
        case Image():
            return _write_image(part)
        case OpaquePart(protocol="messages", payload=Mapping() as block) if "type" in block:
            return block
        case _:
            return None


def call_fields(group: str | None, extra: Extra) -> Mapping[str, Any]:
    """Returns the additional fields of a `tool_use` block. A call of a toolset gets the toolset's name and a caller."""
    fields = fields_of(extra, PROTOCOL)
    return fields if group is None or TOOLSET in fields else {"caller": {"type": "direct"}, TOOLSET: group, **fields}


def _write_text(part: Text) -> Mapping[str, Any]:
    fields = fields_of(part.extra, PROTOCOL)
    document = fields.get("document")
    if isinstance(document, Mapping):
        return {
            **document,
            "source": {**fields_in(document.get("source")), "type": "text", "data": valid_text(part.text)},
        }
    return {"type": "text", "text": valid_text(part.text), **fields}


def write_reasoning(part: Reasoning) -> Mapping[str, Any]:
    """Returns the block of reasoning, signed by the gateway if no server signed it."""
    fields = fields_of(part.extra, PROTOCOL)
    if "data" in fields and not part.text:
        return {"type": "redacted_thinking", **fields}
    text = valid_text(part.text)
    return {"type": "thinking", "thinking": text, "signature": signature_of(text), **fields}


def _has_server_signature(part: Reasoning) -> bool:
    """True if reasoning has the signature of a Messages server, which needs it back."""
    fields = fields_of(part.extra, PROTOCOL)
    return "data" in fields or ("signature" in fields and not is_own_signature(fields["signature"]))


def _write_result(result: ToolResult, name: Callable[[str], str]) -> Mapping[str, Any]:
    written: dict[str, Any] = {"type": "tool_result", "tool_use_id": name(result.call_id)}
    blocks: list[Mapping[str, Any]] = []
    for part in result.parts:
        block = write_block(part, name)
        if block is None and isinstance(part, OpaquePart):
            block = {"type": "text", "text": dump(part.payload).decode()}
        if block is not None:
            blocks.append(block)
    if blocks:
        written["content"] = write_content(blocks)
    if result.is_error:
        written["is_error"] = True
    return {**written, **fields_of(result.extra, PROTOCOL)}


def _write_image(image: Image) -> Mapping[str, Any]:
    fields = fields_of(image.extra, PROTOCOL)
    inside = fields_in(fields.get("source"))
    match = _DATA_URL.fullmatch(image.url)
    source = (
        {"type": "url", "url": image.url}
        if match is None
        else {"type": "base64", "media_type": match[1], "data": match[2]}
    )
    return {**fields, "type": "image", "source": {**source, **inside}}


def input_of(use: ToolUse) -> Any:
    """Returns the arguments of a call as an object. Anything else is put under `input`, the key under which free text
    is taught to models."""
    if use.kind == "custom":
        return {"input": valid_text(use.arguments)}
    if not use.arguments.strip(SPACE):
        return {}
    try:
        value = load(use.arguments)
    except ValueError:
        value = valid_text(use.arguments)
    return value if isinstance(value, dict) else {"input": value}


def begins_as_object(text: str) -> bool:
    """True if arguments begin like an object."""
    return text.lstrip(SPACE).startswith("{")


def as_object(text: str, custom: bool) -> str:
    """Returns arguments that are not an object as the JSON text of one, see `input_of`."""
    return dump(input_of(ToolUse("", "", text, "custom" if custom else "function"))).decode()
