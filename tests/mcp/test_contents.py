"""Results of MCP as parts for a model."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types

from tests.cases import every
from toolwire.extras.mcp import contents
from toolwire.extras.mcp.contents import parts_of


def parts(*blocks: Any, most: int = 1000, hide: Any = lambda text: text, **more: Any) -> list[dict[str, str]]:
    result = types.CallToolResult.model_validate({"content": list(blocks), **more})
    return parts_of(result, most=most, hide=hide)[0]


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def image(data: str = "AAAA", kind: str = "image/png") -> dict[str, str]:
    return {"type": "image", "data": data, "mimeType": kind}


def test_texts_are_lines() -> None:
    assert parts(text("a"), text("b")) == [{"text": "a\nb"}]
    assert parts() == []


def test_structured_content_is_never_said_twice() -> None:
    assert parts(structuredContent={"a": "ü"}) == [{"text": '{"a":"ü"}'}]
    assert parts(text('{"a": 1}'), structuredContent={"a": 1}) == [{"text": '{"a": 1}'}]


def test_images_stand_where_they_stood() -> None:
    found = parts(text("a"), image(), image(kind="IMAGE/JPEG"), text("b"))
    assert found == [
        {"text": "a\n"},
        {"image": "data:image/png;base64,AAAA"},
        {"image": "data:image/jpeg;base64,AAAA"},
        {"text": "\nb"},
    ]


@every("block", [image(kind="image/svg+xml"), image("<script>"), image(kind='image/png"},{"x":"'), image("")])
def test_images_that_no_model_takes(block: Any) -> None:
    (part,) = parts(block)
    assert part["text"].startswith("[image omitted: image/")
    assert '"' not in part["text"]


def test_images_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_IMAGE_BYTES", 60)
    found = parts(image("A" * 16), image("A" * 400), image("A" * 16))
    assert [list(part) for part in found] == [["image"], ["text"], ["text"]]


def test_what_is_no_text() -> None:
    resource = {"uri": "a://b", "mimeType": "text/plain"}
    found = parts(
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "a://d", "name": "doc", "description": "a document"},
        {"type": "resource", "resource": {**resource, "text": "inside"}},
        {"type": "resource", "resource": {**resource, "mimeType": "application/pdf", "blob": "AAAA"}},
    )
    assert found == [
        {
            "text": "[audio omitted: audio/wav]\n[resource doc](a://d): a document\ninside\n"
            "[resource a://b omitted: application/pdf, about 3 bytes]"
        }
    ]
    assert parts({"type": "resource", "resource": {"uri": "a://b", "mimeType": "image/png", "blob": "AAAA"}}) == [
        {"image": "data:image/png;base64,AAAA"}
    ]


def test_texts_are_bounded_together() -> None:
    result = types.CallToolResult.model_validate({"content": [text("x" * 30), image(), text("y" * 30)]})
    found, whole = parts_of(result, most=40, hide=lambda text: text)
    assert whole == 62
    assert sum(len(part.get("text", "")) for part in found) == 40
    assert [list(part) for part in found] == [["text"], ["image"], ["text"]]


def test_secrets_are_hidden_before_the_cut() -> None:
    found = parts(text("x" * 8 + "sesame"), most=10, hide=lambda text: text.replace("sesame", "[hidden]"))
    assert found == [{"text": "xxxxxxxx[h"}]
