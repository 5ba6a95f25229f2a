"""The model's classes: values, immutable for the type checker, and here (see `conftest.py`)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from proxy.model import Message, ModelRequest, Text, ToolChoice


def test_nothing_is_assigned_to() -> None:
    request = ModelRequest("m", (Message("user", (Text("hello"),)),))
    with pytest.raises(FrozenInstanceError):
        request.model = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        request.unknown = "field"  # type: ignore[attr-defined]
    assert replace(request, model="other").model == "other"
    assert request.model == "m"


def test_they_are_compared_and_looked_up_by_value() -> None:
    first, second = (Message("user", (Text(text),)) for text in ("hello", "".join(["hel", "lo"])))
    assert first == second
    assert first is not second
    assert {ToolChoice("named", "f"): 1}[ToolChoice("named", "f")] == 1
    assert ToolChoice("named", "f") != ToolChoice("named", "g")
