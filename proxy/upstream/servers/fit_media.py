"""Adapts images to one backend (R5.9, R28.4): keeps them, moves them, or replaces them by a note.

Rules: see `toolwire.upstream.servers.adapt`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from ...errors import ClientFault
from ...model import Image, Message, Part, Text, ToolResult, replace
from ...tolerances import IMAGES, IMAGES_MOVED
from .base import Capabilities
from .fit_history import Tell
from .fit_messages import joined

IMAGE_OMITTED: Final = "[image omitted: this model takes no images]"
SHOWN_BELOW: Final = "[image: it follows in the next user message]"


def has_images(messages: Iterable[Message]) -> bool:
    """True if a message, or a result in one, contains an image."""
    return any(_has_image(message.parts) for message in messages)


def refused_images(where: str) -> ClientFault:
    """Returns the error for images that the operator wants to be refused. `where` is the parameter's path."""
    return ClientFault(
        "This model's server takes no images.",
        code="unsupported_content",
        param=where,
        hint="Send text only, or set `images: true` or `images: false` for the backend.",
    )


def fit_images(messages: tuple[Message, ...], takes: Capabilities, tell: Tell) -> tuple[Message, ...]:
    """Keeps images, replaces them by a note, or refuses them (R5.9), also in results. Raises `ClientFault`."""
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


def without_images_of(roles: Container[str], messages: tuple[Message, ...], tell: Tell) -> tuple[Message, ...]:
    """Replaces images in messages of these roles by a note. Returns the same object if there are none."""
    found = next((m for m in messages if m.role in roles and _has_image(m.parts)), None)
    if found is None:
        return messages
    tell(IMAGES, f"the model server takes no images in messages of the role {found.role}")
    return tuple(replace(m, parts=_without_images(m.parts)) if m.role in roles else m for m in messages)


def images_after_results(messages: tuple[Message, ...], tell: Tell) -> tuple[Message, ...]:
    """Moves images from results to a user message after the results of their turn, in order and each with a label. For
    servers that accept only text as a result. Returns the same object if there are no such images."""
    if not any(isinstance(part, ToolResult) and _has_image(part.parts) for m in messages for part in m.parts):
        return messages
    tell(IMAGES_MOVED, "the model server takes only text as a result")
    out: list[Message] = []
    moved: list[Part] = []
    for message in messages:
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        if moved and not results:
            out.append(Message("user", tuple(moved)))
            moved = []
        rest: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult) and _has_image(part.parts):
                images = [inner for inner in part.parts if isinstance(inner, Image)]
                texts = with_notes(part.parts, lambda inner: Text(SHOWN_BELOW) if isinstance(inner, Image) else inner)
                for number, image in enumerate(images, 1):
                    moved += [Text(_label(part, number, len(images))), image]
                part = replace(part, parts=texts)
            rest.append(part)
        if moved and len(results) < len(rest):  # the message also has parts of the user
            rest = [*results_of(rest), *moved, *(part for part in rest if not isinstance(part, ToolResult))]
            moved = []
        out.append(replace(message, parts=tuple(rest)) if results else message)
    if moved:
        out.append(Message("user", tuple(moved)))
    return tuple(out)


def results_of(parts: Iterable[Part]) -> list[Part]:
    """Returns the tool results among `parts`."""
    return [part for part in parts if isinstance(part, ToolResult)]


def _label(result: ToolResult, number: int, images: int) -> str:
    which = f"image {number} of {images}" if images > 1 else "image"
    name = f" of the tool {result.name}" if result.name else ""
    return f"[{which} in the result{name}, call {result.call_id}]"


def _has_image(parts: Iterable[Part]) -> bool:
    return any(isinstance(p, Image) or (isinstance(p, ToolResult) and _has_image(p.parts)) for p in parts)


def _without_images(parts: Iterable[Part]) -> tuple[Part, ...]:
    def one(part: Part) -> Part:
        if isinstance(part, ToolResult):
            return replace(part, parts=_without_images(part.parts))
        return Text(IMAGE_OMITTED) if isinstance(part, Image) else part

    return with_notes(parts, one)


def with_notes(parts: Iterable[Part], change: Callable[[Part], Part]) -> tuple[Part, ...]:
    """Returns the parts as `change` returns them. Blank lines separate a text in place of another part from the texts
    beside it."""
    groups: list[list[Part]] = [[]]
    for part in parts:
        changed = change(part)
        if changed is not part and isinstance(changed, Text):
            groups += [changed], []
        else:
            groups[-1].append(changed)
    return joined(groups)
