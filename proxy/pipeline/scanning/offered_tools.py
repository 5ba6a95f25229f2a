"""The tools that a model was taught, for all code that looks for calls in its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...formats.base import ToolFormat
from ...model import ToolChoice, ToolSpec


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that the model was taught. The injection sets them, and all stages that look for calls read them.

    `tools` may be called. `known` are all tools of that request: a call of a tool that may not be called is judged by
    that tool's own strictness (R9.2). `made` caches values derived from the offer, under a key of each user. Requests
    with the same tools share one offer.
    """

    tools: tuple[ToolSpec, ...]
    choice: ToolChoice
    parallel: bool
    format: ToolFormat
    known: tuple[ToolSpec, ...]
    made: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)
