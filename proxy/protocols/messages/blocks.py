"""Content blocks of Messages and parts of the model, both ways: in requests, in whole answers, at the edges of streamed
blocks.

Rules:

1. Total: a block that this table does not name is `Opaque`. A client's blocks had their shape checked; of a server's
   anything may be missing.
2. What a block says beside is its part's `extra` under `messages`, and written back. Null is absent.
3. Text that is empty and of which nothing is said is no part: servers refuse such a block.
4. A document that is plain text is text for everybody; its block is put together again for this protocol.
5. A thought that the gateway signed, or nobody, is shown to no server.

What cannot be expressed: `Image.detail`, `ToolUse.item_id`, fields and parts of other protocols (in a
result the latter are their JSON text).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from toolwire.model import (
    EMPTY,
    Extra,
    Image,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolResult,
    ToolUse,
    fields_of,
    scoped,
)
from toolwire.protocols.messages.ids import is_own_signature, server_id, signature_of, wire_id
from toolwire.protocols.shared.client_tools import TOOLSET
from toolwire.protocols.shared.wire import dump, load, whole
from toolwire.scan._grammar import SPACE

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
PART_FIELDS: Final = frozenset(
    {"cache_control", "citations", "caller", "document", "source", "title", "context", TOOLSET}
)
"""What a part may have beside that every server knows."""
_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def rest_of(value: Mapping[str, Any], known: frozenset[str]) -> Mapping[str, Any]:
    """What is not modelled. Nulls are absent."""
    if value.keys() <= known:
        return EMPTY
    return {key: item for key, item in value.items() if key not in known and item is not None} or EMPTY


def block_extra(block: Mapping[str, Any], known: frozenset[str]) -> Extra:
    """What a block says beside."""
    return scoped(PROTOCOL, rest_of(block, known))


# --- read -----------------------------------------------------------------------------------------------------------


def read_content(content: Any, names: Mapping[str, str] = EMPTY) -> tuple[Part, ...]:
    """Content, a string or blocks, as parts. `names` are the tools of earlier calls, by id."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    blocks = content if isinstance(content, list) else ()
    parts = (read_block(block, names) for block in blocks if isinstance(block, Mapping))
    return tuple(part for part in parts if part is not None)


def read_block(block: Mapping[str, Any], names: Mapping[str, str] = EMPTY) -> Part | None:
    """One block; None if it says nothing."""
    match block:
        case {"type": "text", "text": str(text)}:
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
        case {"type": "document", "source": {"type": "text", "data": str(text)} as source} if text:
            shown = {**block, "source": rest_of(source, frozenset({"data"}))}
            return Text(text, {PROTOCOL: {"document": shown}})
        case _:
            return Opaque(PROTOCOL, block)


def arguments_of(value: Any) -> str:
    """The `input` of a call as text. A server may have written it as one."""
    if isinstance(value, str) and is_object(value):
        return value
    return "{}" if value is None else dump(value).decode()


def _image_extra(block: Mapping[str, Any], source: Mapping[str, Any], known: frozenset[str]) -> Extra:
    rest = dict(rest_of(block, _IMAGE))
    if inside := rest_of(source, known):
        rest["source"] = inside
    return scoped(PROTOCOL, rest)


# --- write ----------------------------------------------------------------------------------------------------------


def write_content(blocks: list[Mapping[str, Any]]) -> Any:
    """Blocks as content: a single bare text as a string."""
    if len(blocks) == 1 and blocks[0].keys() == TEXT and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def request_blocks(parts: Iterable[Part]) -> Iterator[Mapping[str, Any]]:
    """The blocks of a message for a server: nothing that it would refuse."""
    for part in parts:
        if isinstance(part, Reasoning) and not _is_a_servers(part):
            continue
        if isinstance(part, Text | Refusal) and not part.text.strip(SPACE) and not fields_of(part.extra, PROTOCOL):
            continue
        block = write_block(part, server_id)
        if block is not None:
            yield block


def write_block(part: Part, name: Callable[[str], str] = wire_id) -> Mapping[str, Any] | None:
    """One block; None for what has no place here. `name` gives the ids of calls."""
    match part:
        case Text():
            return _write_text(part)
        case Refusal():
            return {"type": "text", "text": whole(part.text), **fields_of(part.extra, PROTOCOL)}
        case Reasoning():
            return write_thought(part)
        case ToolUse():
            fields = call_fields(part.namespace, part.extra)
            return {"type": "tool_use", "id": name(part.call_id), "name": part.name, "input": input_of(part), **fields}
        case ToolResult():
            return _write_result(part, name)
        case Image():
            return _write_image(part)
        case Opaque(protocol="messages", payload=Mapping() as block) if "type" in block:
            return block
        case _:
            return None


def call_fields(group: str | None, extra: Extra) -> Mapping[str, Any]:
    """Fields of a `tool_use` beside the call. A call of a toolset names the toolset and its caller."""
    fields = fields_of(extra, PROTOCOL)
    return fields if group is None or TOOLSET in fields else {"caller": {"type": "direct"}, TOOLSET: group, **fields}


def _write_text(part: Text) -> Mapping[str, Any]:
    fields = fields_of(part.extra, PROTOCOL)
    document = fields.get("document")
    if isinstance(document, Mapping):
        source = document.get("source")
        source = source if isinstance(source, Mapping) else EMPTY
        return {**document, "source": {**source, "type": "text", "data": whole(part.text)}}
    return {"type": "text", "text": whole(part.text), **fields}


def write_thought(part: Reasoning) -> Mapping[str, Any]:
    """A thought, signed by the gateway if no server did."""
    fields = fields_of(part.extra, PROTOCOL)
    if "data" in fields and not part.text:
        return {"type": "redacted_thinking", **fields}
    text = whole(part.text)
    return {"type": "thinking", "thinking": text, "signature": signature_of(text), **fields}


def _is_a_servers(part: Reasoning) -> bool:
    """Whether a Messages server made a thought, and wants to see it again."""
    fields = fields_of(part.extra, PROTOCOL)
    return "data" in fields or ("signature" in fields and not is_own_signature(fields["signature"]))


def _write_result(result: ToolResult, name: Callable[[str], str]) -> Mapping[str, Any]:
    written: dict[str, Any] = {"type": "tool_result", "tool_use_id": name(result.call_id)}
    blocks: list[Mapping[str, Any]] = []
    for part in result.parts:
        block = write_block(part, name)
        if block is None and isinstance(part, Opaque):
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
    inside = fields.get("source")
    inside = inside if isinstance(inside, Mapping) else EMPTY
    found = _DATA_URL.fullmatch(image.url)
    source = (
        {"type": "url", "url": image.url}
        if found is None
        else {"type": "base64", "media_type": found[1], "data": found[2]}
    )
    return {**fields, "type": "image", "source": {**source, **inside}}


def input_of(use: ToolUse) -> Any:
    """The arguments of a call as the object that they have to be. What is none stands under `input`, as free text does
    where it is taught."""
    if use.kind == "custom":
        return {"input": whole(use.arguments)}
    if not use.arguments.strip(SPACE):
        return {}
    try:
        value = load(use.arguments)
    except ValueError:
        value = whole(use.arguments)
    return value if isinstance(value, dict) else {"input": value}


def is_object(text: str) -> bool:
    """Whether arguments begin as an object does."""
    return text.lstrip(SPACE).startswith("{")


def as_object(text: str, custom: bool) -> str:
    """Arguments that are no object, as the text of one: what `input_of` says of them."""
    return dump(input_of(ToolUse("", "", text, "custom" if custom else "function"))).decode()
