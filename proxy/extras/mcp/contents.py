"""Translates the result of a call into parts for a model: texts and images. Runs in the host.

| MCP | for the model |
| --- | --- |
| text | unchanged; several texts are joined by line ends |
| structured content | its compact JSON, if there is no other content: servers repeat it as text |
| image | an image, if models accept its type; else a note |
| link to a resource | its name, address and description |
| embedded resource | its text; an image if it is one; else a note |
| audio, anything else | a note |

The total length of the texts is limited, and so is the total size of the images; an image beyond the limit becomes a
note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import mcp_types as types

from .frames import MAX_IMAGE_BYTES

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Part = dict[str, str]
"""`{"text": ...}`, or `{"image": "data:..."}`."""


def parts_of(result: types.CallToolResult, *, most: int, hide: Callable[[str], str]) -> tuple[list[Part], int]:
    """Returns the parts of a result, with at most `most` characters of text, and the number of characters before the
    cut. `hide` removes the secrets from a text."""
    parts = list(_joined(_parts(result)))
    texts = [hide(part["text"]) if "text" in part else None for part in parts]
    whole = sum(len(text) for text in texts if text is not None)
    out: list[Part] = []
    left, image_bytes = most, MAX_IMAGE_BYTES
    for part, text in zip(parts, texts, strict=True):
        if text is None:
            image_bytes -= len(part["image"])
            if image_bytes >= 0:
                out.append(part)
                continue
            text = f"[image omitted: more than {MAX_IMAGE_BYTES} bytes of images]"
        if text[:left]:
            out.append({"text": text[:left]})
        left = max(0, left - len(text))
    return out, whole


def _joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Joins neighbouring texts with line ends; a text beside an image begins or ends with a line end."""
    held: list[str] = []
    after_image = False
    for part in parts:
        if "text" in part:
            held.append(part["text"])
            continue
        if held:
            yield {"text": ("\n" if after_image else "") + "\n".join(held) + "\n"}
        held, after_image = [], True
        yield part
    if held:
        yield {"text": ("\n" if after_image else "") + "\n".join(held)}


def _parts(result: types.CallToolResult) -> Iterator[Part]:
    for block in result.content:
        yield _part(block)
    if not result.content and result.structured_content is not None:
        yield {"text": json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":"))}


def _part(block: Any) -> Part:
    match block:
        case types.TextContent():
            return {"text": block.text}
        case types.ImageContent():
            return _image(block.mime_type, block.data) or {"text": f"[image omitted: {_kind(block.mime_type)}]"}
        case types.AudioContent():
            return {"text": f"[audio omitted: {_kind(block.mime_type)}]"}
        case types.ResourceLink():
            words = [f"[resource {block.title or block.name}]({block.uri})", block.description or ""]
            return {"text": ": ".join(filter(None, words))}
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return {"text": resource.text}
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            image = _image(resource.mime_type or "", resource.blob)
            size = len(resource.blob) * 3 // 4
            note = f"[resource {resource.uri} omitted: {_kind(resource.mime_type)}, about {size} bytes]"
            return image or {"text": note}
        case _:
            return {"text": f"[{_kind(getattr(block, 'type', None))} omitted]"}


def _image(kind: str, data: str) -> Part | None:
    kind = kind.strip().lower()
    if kind not in IMAGES or _BASE64.fullmatch(data) is None:
        return None
    return {"image": f"data:{kind};base64,{data}"}


def _kind(kind: str | None) -> str:
    """Returns a server's name for a kind of content, reduced to at most 64 harmless characters."""
    return re.sub(r"[^\w/+.-]", "", kind or "")[:64] or "unknown kind"
