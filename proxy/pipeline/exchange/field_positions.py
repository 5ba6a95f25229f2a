"""The positions of request fields in the client's body, for the `param` of errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...model import ToolSpec
from .request_state import Exchange


class FieldPositions:
    """Finds where request fields stand in the client's body: paths such as `messages[2].tool_calls[0].id`.

    The body is inspected, not assumed: a tool may have either shape (R3.1), stand in the deprecated `functions`, or
    inside a group; messages stand in `messages` or `input`. Nothing is computed before it is needed, because most
    requests have no fault.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._body = body = exchange.body
        self._client = exchange.protocol
        self._messages = "input" if "messages" not in body and "input" in body else "messages"

    @property
    def choice(self) -> str:
        """The position of the tool choice, as a `param`."""
        deprecated = self._body.get("tool_choice") is None and self._body.get("function_call") is not None
        return "function_call" if deprecated else "tool_choice"

    @property
    def form(self) -> str:
        """The position of the response format, as a `param`."""
        return "response_format" if self._body.get("response_format") is not None else "text.format"

    def tool(self, tool: ToolSpec, index: int, field: str) -> str:
        """Returns the position of a field of a tool. An absent field gets the position where the client's shape has
        it."""
        path = self._tools.get(id(tool.received))
        inner = tool.received.get(tool.kind)
        if field == "parameters" and "input_schema" in tool.received:
            field = "input_schema"
        if tool.received.get(field) is None and isinstance(inner, Mapping):
            return f"{path or f'tools[{index}]'}.{tool.kind}.{field}"
        return f"{path or f'tools[{index}]'}.{field}"

    @cached_property
    def _tools(self) -> dict[int, str]:
        """The position of each tool object of the body, by identity."""
        places: dict[int, str] = {}
        todo: list[tuple[str, Any]] = [(name, self._body.get(name)) for name in ("functions", "tools")]
        while todo:
            path, items = todo.pop()
            for number, item in enumerate(items if isinstance(items, list) else ()):
                places.setdefault(id(item), f"{path}[{number}]")
                if isinstance(item, Mapping) and item.get("type") == "namespace":
                    todo.append((f"{path}[{number}].tools", item.get("tools")))
        return places

    def message(self, index: int) -> str:
        """Returns the position of the message with this index, such as `messages[2]`."""
        return f"{self._messages}[{self._client.item_of(self._body, index)}]"

    def call_id(self, index: int, number: int) -> str:
        """Returns the position of the id of the `number`-th call of a message."""
        item = self._item(index)
        if item.get("tool_calls"):
            return f"{self.message(index)}.tool_calls[{number}].id"
        place = self._block(item, "tool_use", number)
        if place is not None:
            return f"{self.message(index)}.{place}.id"
        return f"{self.message(index)}.call_id" if "call_id" in item else self.message(index)

    def result_id(self, index: int, number: int = 0) -> str:
        """Returns the position of the call id in the `number`-th result of a message."""
        place = self._block(self._item(index), "tool_result", number)
        if place is not None:
            return f"{self.message(index)}.{place}.tool_use_id"
        field = "call_id" if "call_id" in self._item(index) else "tool_call_id"
        return f"{self.message(index)}.{field}"

    def image(self, index: int) -> str:
        """Returns the position of the first image of a message."""
        if self._messages == "input":
            return self.content("input_image")
        content = self._item(index).get("content")
        for number, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping) and part.get("type") in ("image_url", "input_image", "image"):
                return f"{self.message(index)}.content[{number}]"
        return f"{self.message(index)}.content"

    def content(self, kind: str) -> str:
        """Returns the position of the first content part of type `kind` in the body; that of all messages if there is
        none. Takes no message number, because several items of `input` can become one message."""
        items = self._body.get(self._messages)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if not isinstance(item, Mapping):
                continue
            if item.get("type") == kind:
                return f"{self._messages}[{index}]"
            for field in ("content", "output"):
                inner = item.get(field)
                for number, part in enumerate(inner if isinstance(inner, list) else ()):
                    if isinstance(part, Mapping) and part.get("type") == kind:
                        return f"{self._messages}[{index}].{field}[{number}]"
        return self._messages

    def _item(self, index: int) -> Mapping[str, Any]:
        items = self._body.get(self._messages)
        index = self._client.item_of(self._body, index)
        item = items[index] if isinstance(items, list) and 0 <= index < len(items) else None
        return item if isinstance(item, Mapping) else {}

    def _block(self, item: Mapping[str, Any], kind: str, number: int) -> str | None:
        """Returns the position of the `number`-th block of a type in a message's content; None if it has none."""
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        places = [at for at, block in enumerate(blocks) if isinstance(block, Mapping) and block.get("type") == kind]
        return f"content[{places[number]}]" if number < len(places) else None
