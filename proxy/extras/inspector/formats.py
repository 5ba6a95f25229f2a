"""Reads the text of an answer again in every format, without calling a model: "read again as..." (R25.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...formats.base import ToolFormat
from ...registry import Registries
from ..capture.files import CapturedExchange
from .answer import COVER, ServerAnswer, read_text
from .bounds import FORMATS_CHARS
from .captured_request import CapturedRequest, read_captured_request
from .rounds import rounds_of


def read_in_all_formats(captured: CapturedExchange, plugins: Registries) -> dict[str, Any]:
    """Returns the result of reading the last answer's text in each format, without recognition of other formats; the
    exchange's own format is first."""
    asked = read_captured_request(captured, plugins)
    text = next((one.answer.text for one in reversed(list(rounds_of(captured, asked)))), "")
    left_out = max(0, len(text) - FORMATS_CHARS)
    text = text[:FORMATS_CHARS]
    names = sorted(plugins.formats.names(), key=lambda name: (name != asked.format, name))
    results: dict[int, dict[str, Any]] = {}
    for name in names:
        one = plugins.formats.get(name)
        if id(one) not in results:  # else another name of one that was read
            results[id(one)] = {"format": name, "chosen": name == asked.format, **_read(text, one, asked)}
    return {"text": text, "left_out_chars": left_out, "formats": list(results.values())}


def _read(text: str, format_: ToolFormat, asked: CapturedRequest) -> dict[str, Any]:
    options = replace(asked.options, calls=replace(asked.options.calls, recognise="taught"))
    answer = read_text(text, replace(asked, options=options, offer=replace(asked.offer, format=format_)))
    return {
        "calls": [{"name": call.name, "arguments": COVER(call.arguments)} for call in answer.calls],
        "judgements": [judgement.words for judgement in answer.judgements],
        "text": _of_kind(answer, "text", "refused"),
        "reasoning": _of_kind(answer, "reasoning"),
    }


def _of_kind(answer: ServerAnswer, *kinds: str) -> str:
    return "".join(answer.text[span.begin : span.end] for span in answer.spans if span.kind in kinds)
