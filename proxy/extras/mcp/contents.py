"""What a server gave back for a call, as parts for a model: texts and images. Runs in the host.

| MCP | for the model |
| --- | --- |
| text | as it is; several are joined by a line's end |
| structured content | its compact JSON, where there is no other content: servers repeat it as text |
| image | an image, of a kind that models take; else a note |
| link to a resource | its name, address and description |
| embedded resource | its text; of bytes a note, of an image the image |
| audio, anything else | a note |

All texts together have at most so many characters, and the images of a result so many bytes: beyond, an image is a
note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import mcp_types as types

from toolwire.extras.mcp.frames import MAX_IMAGE_BYTES

IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")

Part = dict[str, str]
"""`{"text": ...}`, or `{"image": "data:..."}`."""


def parts_of(result: types.CallToolResult, *, most: int, hide: Callable[[str], str]) -> tuple[list[Part], int]:
    """The parts of a result, with at most `most` characters of text, and how many characters there were. `hide` takes
    the secrets out of a text."""
    found = list(_joined(_parts(result)))
    texts = [hide(part["text"]) if "text" in part else None for part in found]
    whole = sum(len(text) for text in texts if text is not None)
    out: list[Part] = []
    left, image_bytes = most, MAX_IMAGE_BYTES
    for part, text in zip(found, texts, strict=True):
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
    """Neighbouring texts as one, and each on lines of its own."""
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
            said = [f"[resource {block.title or block.name}]({block.uri})", block.description or ""]
            return {"text": ": ".join(filter(None, said))}
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


def _kind(said: str | None) -> str:
    """What a server calls a kind of content, as a short word."""
    return re.sub(r"[^\w/+.-]", "", said or "")[:64] or "unknown kind"


def text_of(parts: Sequence[Part]) -> str:
    """The texts alone, for those who show nothing else."""
    return "".join(part.get("text", "[image]") for part in parts)
