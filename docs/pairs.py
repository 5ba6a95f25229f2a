"""The page `docs/reference/pairs.md`: what a client of each protocol gets, whatever its server speaks.

`ENDS` is what `tests/e2e/test_every_pair.py` sees on the wire, in front of every kind of backend in every mode: a kind
that differs anywhere fails there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from toolwire.registry import BACKENDS, CLIENT_PROTOCOLS, SERVER_PROTOCOLS, usual_server

NAMES: Final[Mapping[str, str]] = {"chat": "Chat Completions", "responses": "Responses", "messages": "Messages"}
"""Of client protocols."""

OUTCOMES: Final[Mapping[str, str]] = {
    "text": "writes text",
    "one call": "writes text and calls a tool",
    "several calls": "calls two tools at once",
    "an error": "fails with status 500",
    "a cut": "is cut off",
}
"""What the model does."""

FAULTS: Final = frozenset({"an error", "a cut"})
"""Outcomes that stand on the page of faults."""

ONLY_TAUGHT: Final = frozenset({"openai_completions"})
"""Kinds that have no place for tools."""

ALWAYS_READ: Final = frozenset({"codex_app_server"})
"""Kinds that read calls themselves whenever they are given tools."""

_ERRORS: Final[Mapping[str, str]] = {
    "chat": "502 `upstream_error`",
    "responses": "502 `upstream_error`",
    "messages": "502 `api_error`",
}
_CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "chat": ("`finish_reason` `tool_calls`", "`finish_reason` `tool_calls`, then `[DONE]`"),
    "responses": ("`status` `completed`", "`response.completed`"),
    "messages": ("`stop_reason` `tool_use`", "`stop_reason` `tool_use`, then `message_stop`"),
}
ENDS: Final[Mapping[str, Mapping[str, tuple[str, str]]]] = {
    "text": {
        "chat": ("`finish_reason` `stop`", "`finish_reason` `stop`, then `[DONE]`"),
        "responses": ("`status` `completed`", "`response.completed`"),
        "messages": ("`stop_reason` `end_turn`", "`stop_reason` `end_turn`, then `message_stop`"),
    },
    "one call": _CALLS,
    "several calls": _CALLS,
    "an error": {name: (error, error) for name, error in _ERRORS.items()},
    "a cut": {
        "chat": ("502 `upstream_disconnected`", "a frame with `error` `upstream_disconnected`, then `[DONE]`"),
        "responses": ("502 `upstream_disconnected`", "`error` `upstream_disconnected`, then `response.failed`"),
        "messages": ("502 `api_error`", "`error` `api_error`"),
    },
}
"""By outcome and client protocol: how a whole answer ends, and a streamed one."""


def modes_of(kind: str) -> tuple[str, ...]:
    """The modes in which a kind of backend is used."""
    if kind in ONLY_TAUGHT:
        return ("prompt",)
    return ("prompt", "native") if kind in ALWAYS_READ else ("prompt", "template", "native")


def page() -> str:
    """The page."""
    names = [NAMES.get(name, name) for name in CLIENT_PROTOCOLS]
    out = [
        "# Every client before every server\n",
        "Both sides translate to [one model of requests and answers](../explanation/how-it-works.md).",
        "`tests/e2e/test_every_pair.py` tries each cell, and [faults](faults.md), in front of each server.\n",
        "## What the client gets\n",
        f"| The model | | {' | '.join(names)} |",
        f"| --- | --- |{' --- |' * len(names)}",
        *_outcomes(),
        "\n## From which servers\n",
        "| `kind` | `mode` | Path | Bytes may pass to clients of |",
        "| --- | --- | --- | --- |",
        *_kinds(),
    ]
    return "\n".join(out) + "\n"


def _outcomes() -> Iterator[str]:
    """A line for each result."""
    rows: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for outcome, does in OUTCOMES.items():
        if outcome in FAULTS:
            continue
        for stream, how in enumerate(("whole", "streamed")):
            cells = tuple(ENDS[outcome][name][stream] for name in CLIENT_PROTOCOLS)
            rows.setdefault(cells, []).append((does, how))
    for cells, cases in rows.items():
        does, how = (", or ".join(dict.fromkeys(words)) for words in zip(*cases, strict=True))
        yield f"| {does} | {how} | {' | '.join(cells)} |"


def _kinds() -> Iterator[str]:
    for kind in SERVER_PROTOCOLS:
        wire = usual_server(kind)
        passes = NAMES.get(wire.name, "-") if wire.name in CLIENT_PROTOCOLS else "-"
        yield f"| `{kind}` | {_words(modes_of(kind))} | `/v1{wire.path}` | {passes} |"
    for kind in BACKENDS:
        yield f"| `{kind}` | {_words(modes_of(kind))} | - | - |"


def _words(modes: tuple[str, ...]) -> str:
    return ", ".join(f"`{mode}`" for mode in modes)
