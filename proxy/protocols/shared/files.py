"""Conversion of files in conversations (PDF, documents) between protocols (R28.4). No protocol's reader models files:
they are `OpaquePart` parts."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...model import EMPTY, OpaquePart, dataclass

PDF: Final = "application/pdf"
_UNKNOWN: Final = "application/octet-stream"
_DATA_URL: Final = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)
_TEXTS: Final = re.compile(
    r"text/.*|application/(?:json|xml|x-yaml|yaml|javascript|toml|x-sh|sql|csv)|.*\+(?:json|xml)"
)
_ENDINGS: Final[Mapping[str, str]] = {
    "pdf": PDF,
    **dict.fromkeys(
        ("txt", "md", "csv", "log", "py", "js", "ts", "html", "css", "yaml", "yml", "toml", "sh"), "text/plain"
    ),
    "json": "application/json",
    "xml": "application/xml",
}

OTHER_MEDIA: Final[Mapping[str, str]] = {
    "input_image": "image",
    "image_url": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "input_video": "video",
    "video_url": "video",
    "container_upload": "file",
}
"""Other types of parts with an image, audio, video or file. They must not be dropped silently."""


CONTENT_TYPES: Final = frozenset({"file", "input_file", "document", *OTHER_MEDIA})
"""All types of parts whose content is not text."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file. One of `data` (base64), `url`, `text` and `file_id` holds its content; only the server to which the file
    was uploaded knows a `file_id`."""

    name: str | None
    media_type: str
    data: str | None = None
    url: str | None = None
    text: str | None = None
    file_id: str | None = None

    @property
    def shown_name(self) -> str:
        """Name of the file for people and models, at most 200 characters."""
        return (self.name or self.media_type)[:200]

    def bytes(self) -> bytes | None:
        """Returns the file's bytes, if they came with the request and are valid base64; otherwise None."""
        try:
            return None if self.data is None else b64decode(self.data)
        except (binascii.Error, ValueError):
            return None

    def as_text(self) -> str | None:
        """Returns the file's text; None if its type is not text or its bytes are missing."""
        if self.text is not None:
            return self.text
        if _TEXTS.fullmatch(self.media_type) is None or (data := self.bytes()) is None:
            return None
        return data.decode("utf-8", "replace")


def read_file(part: OpaquePart) -> FileContent | None:
    """Returns the file in a part of any protocol; None if it holds none."""
    payload = part.payload if isinstance(part.payload, Mapping) else EMPTY
    match payload:
        case {"type": "file", "file": Mapping() as file}:
            return _named(file)
        case {"type": "input_file"}:
            return _named(payload)
        case {"type": "document"}:
            return _document(payload)
        case {"type": "search_result", "content": list(blocks)}:
            name, source = _text(payload.get("title")), _text(payload.get("source"))
            return FileContent(name or source, "text/plain", text=_joined([{"text": source}, *blocks]))
        case {"type": "compaction", "content": str(text)} if text:
            return FileContent("summary of the conversation", "text/plain", text=text)
        case _:
            return None


def _named(file: Mapping[str, Any]) -> FileContent:
    """Returns a file from OpenAI's object."""
    name, data, url, ident = (_text(file.get(key)) for key in ("filename", "file_data", "file_url", "file_id"))
    media = _ENDINGS.get((name or url or "").rsplit(".", 1)[-1].lower(), _UNKNOWN)
    if data is not None and (match := _DATA_URL.fullmatch(data)) is not None:
        media, data = match[1] or media, match[2]
    elif data is not None and data.startswith("JVBERi0"):
        media = PDF
    return FileContent(name, media, data=data, url=url, file_id=ident)


def _document(block: Mapping[str, Any]) -> FileContent:
    name = _text(block.get("title"))
    source: Any = block.get("source")
    about = {"text": block.get("context")}
    match source:
        case {"type": "base64", "data": str(data)}:
            return FileContent(name, _text(source.get("media_type")) or PDF, data=data)
        case {"type": "url", "url": str(url)}:
            return FileContent(name, PDF, url=url)
        case {"type": "text", "data": str(text)}:
            return FileContent(name, "text/plain", text=_joined([about, {"text": text}]))
        case {"type": "content", "content": content}:
            blocks = [{"text": content}] if isinstance(content, str) else content if isinstance(content, list) else []
            return FileContent(name, "text/plain", text=_joined([about, *blocks]))
        case {"type": "file", "file_id": str(ident)}:
            return FileContent(name, _UNKNOWN, file_id=ident)
        case _:
            return FileContent(name, _UNKNOWN)


def _joined(blocks: list[Any]) -> str:
    texts = [one.get("text") for one in blocks if isinstance(one, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def write_file(file: FileContent, protocol: str) -> OpaquePart | None:
    """Returns the part of a protocol that holds this file; None if the protocol cannot hold it."""
    payload = _WRITERS[protocol](file) if protocol in _WRITERS else None
    return None if payload is None else OpaquePart(protocol, payload)


def _data_url(file: FileContent) -> str:
    return f"data:{file.media_type};base64,{file.data}"


def _chat(file: FileContent) -> dict[str, Any] | None:
    if file.data is None:
        return None
    return {"type": "file", "file": {"filename": file.name or "file.pdf", "file_data": _data_url(file)}}


def _responses(file: FileContent) -> dict[str, Any] | None:
    if file.data is not None:
        return {"type": "input_file", "filename": file.name or "file.pdf", "file_data": _data_url(file)}
    return {"type": "input_file", "file_url": file.url} if file.url is not None else None


def _messages(file: FileContent) -> dict[str, Any] | None:
    title = {"title": file.name} if file.name else {}
    if file.data is not None and file.media_type == PDF:
        return {"type": "document", "source": {"type": "base64", "media_type": PDF, "data": file.data}, **title}
    return {"type": "document", "source": {"type": "url", "url": file.url}, **title} if file.url is not None else None


_WRITERS: Final[Mapping[str, Callable[[FileContent], dict[str, Any] | None]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
}
