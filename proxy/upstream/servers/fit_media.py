"""Images and files made fit for one backend (R5.9, R28.4): sent as they are, moved, or replaced by a note.

Rules: those of `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolwire.errors import ClientFault
from toolwire.model import Image, Message, Part, PlainMessages, Text, ToolResult, replace
from toolwire.tolerances import IMAGES, IMAGES_MOVED
from toolwire.upstream.servers.base import Capabilities
from toolwire.upstream.servers.fit_history import Tell

IMAGE_OMITTED: Final = "[image omitted: this model takes no images]"
SHOWN_BELOW: Final = "[image: it follows in the next user message]"


def has_images(messages: Iterable[Message]) -> bool:
    """Whether one of them, or a result in one, holds an image."""
    return type(messages) is not PlainMessages and any(_has_image(message.parts) for message in messages)


def refused_images(where: str) -> ClientFault:
    """The error where the operator wants images refused."""
    return ClientFault(
        "This model's server takes no images.",
        code="unsupported_content",
        param=where,
        hint="Send text only, or set `images: true` or `images: false` for the backend.",
    )


def fit_images(messages: tuple[Message, ...], takes: Capabilities, tell: Tell) -> tuple[Message, ...]:
    """Images kept, replaced by a note, or refused (R5.9). Looks into results as well. Raises `ClientFault`."""
    if takes.images or takes.images_unknown or not has_images(messages):
        return messages
    if takes.refuse_images:
        index = next(i for i, message in enumerate(messages) if _has_image(message.parts))
        raise refused_images(f"messages[{index}].content")
    tell(IMAGES, "the model server takes no images")
    return tuple(
        replace(message, parts=_without_images(message.parts)) if _has_image(message.parts) else message
        for message in messages
    )


def images_behind_results(messages: tuple[Message, ...], tell: Tell) -> tuple[Message, ...]:
    """Images of results in a message of the user behind the results of their turn, in order, each with a label: for
    servers that take nothing but text as a result. The same object if there are none."""
    if not any(isinstance(part, ToolResult) and _has_image(part.parts) for m in messages for part in m.parts):
        return messages
    tell(IMAGES_MOVED, "the model server takes only text as a result")
    out: list[Message] = []
    held: list[Part] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if held and not results:
            out.append(Message("user", tuple(held)))
            held = []
        rest: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult) and _has_image(part.parts):
                images = [inner for inner in part.parts if isinstance(inner, Image)]
                said = [Text(SHOWN_BELOW) if isinstance(inner, Image) else inner for inner in part.parts]
                for number, image in enumerate(images, 1):
                    held += [Text(_label(part, number, len(images))), image]
                part = replace(part, parts=tuple(said))
            rest.append(part)
        if held and len(results) < len(rest):  # what the user says in the same message
            rest = [*results_of(rest), *held, *(part for part in rest if not isinstance(part, ToolResult))]
            held = []
        out.append(replace(message, parts=tuple(rest)) if results else message)
    if held:
        out.append(Message("user", tuple(held)))
    return tuple(out)


def results_of(parts: Iterable[Part]) -> list[Part]:
    """The results among parts."""
    return [part for part in parts if isinstance(part, ToolResult)]


def _label(result: ToolResult, number: int, images: int) -> str:
    which = f"image {number} of {images}" if images > 1 else "image"
    name = f" of the tool {result.name}" if result.name else ""
    return f"[{which} in the result{name}, call {result.call_id}]"


def _has_image(parts: Iterable[Part]) -> bool:
    return any(isinstance(p, Image) or (isinstance(p, ToolResult) and _has_image(p.parts)) for p in parts)


def _without_images(parts: Iterable[Part]) -> tuple[Part, ...]:
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Image):
            out.append(Text(IMAGE_OMITTED))
        elif isinstance(part, ToolResult):
            out.append(replace(part, parts=_without_images(part.parts)))
        else:
            out.append(part)
    return tuple(out)
