"""Corners of the scanner: what stands before a call x the form of the call x what stands behind it x where the deltas
are cut. Where a delta ends says nothing about what begins."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.cases import every
from tests.parse.conftest import some
from toolwire.events import Event
from toolwire.scanner import open_scanner
from toolwire.stream_grammar import normalise

CALL = '{"name":"f","arguments":{"a":1}}'
FORMS = {
    "bare_json": CALL,
    "functionary": '>>>f\n{"a": 1}',
    "xlam": f"```json\n[{CALL}]\n```",
    "fenced_json": f"```json\n{CALL}\n```",
    "sentinel": f"<tool_call>\n{CALL}\n</tool_call>",
    "hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "llama3_json": '{"name": "f", "parameters": {"a": 1}}',
    "pythonic": "[f(a=1)]",
    "mistral": f"[TOOL_CALLS][{CALL}]",
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "deepseek_v31": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a":1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
}
BEFORE = [
    *("", " ", "\n", "word", "word ", "word\n", "word\n\n", "word\n  ", "`", "word `", "```\n", "word\n```\n"),
    *("> ", "- "),
]
BEHIND = ["", "\n", " word", "\nword", "`", "\n```", "\n```\nword"]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    }
]


def scanned(twin: ModuleType, form: str, pieces: list[str]) -> list[Any]:
    """What comes of these deltas, call ids aside."""
    scanner = open_scanner(form, TOOLS, scanner=twin.CallScanner)
    events: list[Event] = [event for piece in pieces for event in scanner.feed(piece)]
    return [without_id(event) for event in normalise([*events, *scanner.finish()])]


def without_id(event: Any) -> Any:
    return repr(event).replace(getattr(event, "call_id", None) or "?", "id") if hasattr(event, "call_id") else event


@every("before", BEFORE)
@every("form", FORMS)
def test_a_seam_says_nothing(twin: ModuleType, form: str, before: str) -> None:
    for behind in some(twin, BEHIND):
        whole = scanned(twin, form, [before + FORMS[form] + behind])
        for pieces in (
            [before, FORMS[form], behind],
            [before + FORMS[form][:2], FORMS[form][2:] + behind],
            [before, FORMS[form] + behind],
            list(before + FORMS[form] + behind),
        ):
            assert scanned(twin, form, [piece for piece in pieces if piece]) == whole, (pieces, behind)
