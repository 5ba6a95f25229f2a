"""Files made fit for one backend (R28.4): sent in its own protocol's words, as their text, or as a note.

Rules: those of `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import Final

from toolwire.model import Message, OpaquePart, Part, PlainMessages, Text, ToolResult, replace
from toolwire.protocols.base import ServerSide
from toolwire.protocols.shared.files import OTHER_MEDIA, FileContent, read_file, write_file
from toolwire.tolerances import FILES, FILES_TEXT, IMAGES
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.fit_history import Tell
from toolwire.upstream.servers.fit_media import IMAGE_OMITTED

MAX_CHARS: Final = 400_000
"""Of the text of a file."""


def fit_files(
    messages: tuple[Message, ...], takes: Capabilities, wire: ServerSide | None, tell: Tell
) -> tuple[Message, ...]:
    """Files, images by id, sounds and films as this backend can take them. The same object if all can stay."""
    return changed_parts(messages, lambda part, in_result: _fitted(part, in_result, takes, wire, tell))


def in_words(part: OpaquePart, tell: Tell) -> Part:
    """A part that holds something which is no text as a text, where nothing else will do. Any other part stays."""
    file = read_file(part)
    if file is not None:
        return file_in_words(file, file.as_text(), tell)
    kind = part.payload.get("type") if isinstance(part.payload, Mapping) else None
    medium = OTHER_MEDIA.get(kind) if isinstance(kind, str) else None
    if medium is None:
        return part
    if medium == "image":
        tell(IMAGES, "the model server cannot get an image by this id")
        return Text(IMAGE_OMITTED)
    tell(FILES, f"the model server takes no {medium}")
    return Text(f"[{medium} omitted: this model takes none]")


def file_in_words(file: FileContent, text: str | None, tell: Tell) -> Text:
    """A file as its text, or as a note if nobody knows that."""
    if text is None:
        tell(FILES, f"the model server takes no {file.media_type[:80]}")
        return Text(f"[file omitted: {file.shown_name}: this model takes no such files]")
    tell(FILES_TEXT, f"the text of {file.media_type[:80]}")
    rest = f"\n[{len(text) - MAX_CHARS} more characters omitted]" if len(text) > MAX_CHARS else ""
    return Text(f"[file: {file.shown_name}]\n{text[:MAX_CHARS]}{rest}\n[end of file]")


def is_sent(part: OpaquePart, in_result: bool, takes: Capabilities, wire: ServerSide | None) -> bool:
    """Whether a file, in a result or not, goes to the server as a file, if its protocol has a place for it."""
    if wire is None or takes.files is False or (in_result and wire.results_are_text):
        return False
    return part.protocol == wire.name or takes.files is True or wire.files


def files_in(messages: Iterable[Message]) -> Iterator[tuple[OpaquePart, FileContent, bool]]:
    """The files in messages, each with its part and whether it stands in a result."""
    if type(messages) is PlainMessages:
        return
    for message in messages:
        for part in message.parts:
            inside = part.parts if isinstance(part, ToolResult) else (part,)
            for one in inside:
                if isinstance(one, OpaquePart) and (file := read_file(one)) is not None:
                    yield one, file, isinstance(part, ToolResult)


def _fitted(part: OpaquePart, in_result: bool, takes: Capabilities, wire: ServerSide | None, tell: Tell) -> Part:
    if is_sent(part, in_result, takes, wire):
        assert wire is not None
        if part.protocol == wire.name:
            return part
        file = read_file(part)
        written = None if file is None else write_file(file, wire.name)
        if written is not None:
            return written
    return in_words(part, tell)


def changed_parts(messages: tuple[Message, ...], change: Callable[[OpaquePart, bool], Part]) -> tuple[Message, ...]:
    """The messages with each part that is not modelled, also in results, as `change` has it, which
    is told whether it stands in a result."""

    def one(part: Part) -> Part:
        if isinstance(part, OpaquePart):
            return change(part, False)
        if isinstance(part, ToolResult) and any(isinstance(inner, OpaquePart) for inner in part.parts):
            parts = tuple(change(inner, True) if isinstance(inner, OpaquePart) else inner for inner in part.parts)
            return part if all(map(is_, parts, part.parts)) else replace(part, parts=parts)
        return part

    out = []
    for message in messages:
        parts = tuple(map(one, message.parts))
        out.append(message if all(map(is_, parts, message.parts)) else replace(message, parts=parts))
    return messages if all(map(is_, out, messages)) else tuple(out)
