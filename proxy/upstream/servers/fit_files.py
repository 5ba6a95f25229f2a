"""Adapts files to one backend (R28.4): sends them in the form of its protocol, as their text, or as a note.

Rules: see `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Final

from ...model import Message, OpaquePart, Part, Text, ToolResult, replace
from ...protocols.base import ServerSide
from ...protocols.shared.files import OTHER_MEDIA, FileContent, read_file, write_file
from ...tolerances import FILES, FILES_TEXT, IMAGES
from .base import Capabilities
from .fit_history import Tell
from .fit_media import IMAGE_OMITTED, with_notes

MAX_CHARS: Final = 400_000
"""Maximum number of characters of a file's text."""


def fit_files(
    messages: tuple[Message, ...], takes: Capabilities, wire: ServerSide | None, tell: Tell
) -> tuple[Message, ...]:
    """Returns messages whose files, images by id, audio and video are in a form that this backend takes. Returns the
    same object if nothing has to change."""
    return changed_parts(messages, lambda part, in_result: _fitted(part, in_result, takes, wire, tell))


def as_text_or_note(part: OpaquePart, tell: Tell) -> Part:
    """Returns a part with a file or another medium as text: its content if that is text, else a note. Any other part is
    returned unchanged."""
    file = read_file(part)
    if file is not None:
        return file_as_text(file, file.as_text(), tell)
    kind = part.payload.get("type") if isinstance(part.payload, Mapping) else None
    medium = OTHER_MEDIA.get(kind) if isinstance(kind, str) else None
    if medium is None:
        return part
    if medium == "image":
        tell(IMAGES, "the model server cannot get an image by this id")
        return Text(IMAGE_OMITTED)
    tell(FILES, f"the model server takes no {medium}")
    return Text(f"[{medium} omitted: this model takes none]")


def file_as_text(file: FileContent, text: str | None, tell: Tell) -> Text:
    """Returns a file as a text part: its `text`, or a note if that is None."""
    if text is None:
        tell(FILES, f"the model server takes no {file.media_type[:80]}")
        return Text(f"[file omitted: {file.shown_name}: this model takes no such files]")
    tell(FILES_TEXT, f"the text of {file.media_type[:80]}")
    rest = f"\n[{len(text) - MAX_CHARS} more characters omitted]" if len(text) > MAX_CHARS else ""
    return Text(f"[file: {file.shown_name}]\n{text[:MAX_CHARS]}{rest}\n[end of file]")


def is_sent(part: OpaquePart, in_result: bool, takes: Capabilities, wire: ServerSide | None) -> bool:
    """True if a file (`in_result`: in a tool result) can be sent to the server as a file."""
    if wire is None or takes.files is False or (in_result and wire.results_are_text):
        return False
    if part.protocol == wire.name:
        return True
    file = read_file(part) if takes.files is True or wire.files else None
    return file is not None and write_file(file, wire.name) is not None


def files_in(messages: Iterable[Message]) -> Iterator[tuple[OpaquePart, FileContent, bool]]:
    """Yields the files in messages: the part, its content, and True if it is in a result."""
    for message in messages:
        for part in message.parts:
            inside = part.parts if isinstance(part, ToolResult) else (part,)
            for candidate in inside:
                if isinstance(candidate, OpaquePart) and (file := read_file(candidate)) is not None:
                    yield candidate, file, isinstance(part, ToolResult)


def _fitted(part: OpaquePart, in_result: bool, takes: Capabilities, wire: ServerSide | None, tell: Tell) -> Part:
    if is_sent(part, in_result, takes, wire):
        assert wire is not None
        file = None if part.protocol == wire.name else read_file(part)
        return (None if file is None else write_file(file, wire.name)) or part
    return as_text_or_note(part, tell)


def changed_parts(messages: tuple[Message, ...], change: Callable[[OpaquePart, bool], Part]) -> tuple[Message, ...]:
    """Returns the messages with each opaque part, also in results, replaced by `change(part, in_result)`."""

    def one(part: Part) -> Part:
        if isinstance(part, OpaquePart):
            return change(part, False)
        if isinstance(part, ToolResult) and any(isinstance(inner, OpaquePart) for inner in part.parts):
            parts = with_notes(
                part.parts, lambda inner: change(inner, True) if isinstance(inner, OpaquePart) else inner
            )
            return part if all(map(is_, parts, part.parts)) else replace(part, parts=parts)
        return part

    out = []
    for message in messages:
        parts = with_notes(message.parts, one)
        out.append(message if all(map(is_, parts, message.parts)) else replace(message, parts=parts))
    return messages if all(map(is_, out, messages)) else tuple(out)
