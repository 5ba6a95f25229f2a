"""One exchange in three lanes: the prompt, the model's output, and the client's response (R25.1).

It is computed from a capture on request, so it is the same for a running exchange, an ended one and a file. Offsets
into texts count UTF-16 code units, like JavaScript; times are seconds since the exchange began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

import orjson

from ...protocols.base import ServerSide
from ...protocols.shared.wire import BOUNDS
from ...registry import Registries
from ...support.bounded_json import loads
from ..capture.files import CapturedExchange, Entry
from .answer import COVER, MadeCall, ServerAnswer
from .bounds import SHOWN_CHARS
from .captured_request import latest_notes, read_captured_request
from .judgements import Judgement
from .output import SentCall, read_output
from .prompt import Prompt, read_prompt
from .ring import make_row
from .rounds import Round, rounds_of

_FACTS: Final[Mapping[str, str]] = {
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens of the answer",
    "reasoning_tokens": "tokens of reasoning",
    "scanned_bytes": "bytes searched for calls",
    "first_byte_ms": "ms to the first byte",
    "total_ms": "ms in total",
    "backend_ms": "ms waiting for servers",
}
"""Labels of fields of the access line; other fields are shown with their names."""

_ELSEWHERE: Final = frozenset(
    (
        *("status", "code", "stream", "model", "route", "backend", "format", "tool_mode", "tool_names", "form"),
        *("verdict", "why", "called"),
    )
)
"""Fields that the page shows in other places."""


Places = Mapping[int, int]
"""The index of each judgement in the list of all judgements, by `id()` of the judgement."""

UNREADABLE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that reading an invalid capture may raise."""


def view(captured: CapturedExchange, plugins: Registries) -> dict[str, Any]:
    """Returns the exchange as JSON."""
    asked = read_captured_request(captured, plugins)
    head, end = captured.head, latest_notes(captured)
    running = not captured.end and "so_far" in head
    rounds = list(rounds_of(captured, asked))
    judgements = [judgement for one in rounds for judgement in (*one.answer.judgements, *one.judgements)]
    places = {id(judgement): place for place, judgement in enumerate(judgements)}
    calls = [(one.call.number, call) for one in rounds for call in one.answer.calls]
    sides = plugins.client_sides().sides
    row = make_row(head, end, began(captured))
    return {
        "id": head.get("request_id"),
        "exchange_id": head.get("exchange_id"),
        "row": {**row, "running": running},
        "at": row["at"],
        "running": running,
        "left_out_bytes": head.get("left_out_bytes", 0),
        "status": end.get("status", 0),
        "code": end.get("code"),
        "why": end.get("why"),
        "verdict": end.get("verdict"),
        "seconds": max((entry.at for entry in captured.entries), default=0.0),
        "head": {
            "path": head.get("path"),
            "api": head.get("endpoint"),
            "model": head.get("model"),
            "route": head.get("route"),
            "backend": end.get("backend"),
            "format": asked.format,
            "read_as": row["read_as"],
            "session": row["session"],
            "question": row["question"],
            "tool_mode": end.get("tool_mode") or (asked.options.mode if "config" in head else None),
            "client": row["client"],
            "scanner": head.get("scanner"),
            "version": head.get("toolwire"),
        },
        "request": _request(captured),
        "rounds": [_round(one, _prompt(read_prompt(one.call, sides, asked)), places) for one in rounds],
        "calls": [_call(number, call, places) for number, call in calls],
        "judgements": [_judgement(judgement) for judgement in judgements],
        "client": _client(captured, _reader(head.get("endpoint"), plugins), [call for _, call in calls]),
        "tools": [_tool(entry) for entry in captured.entries if entry.kind == "tool"],
        "facts": _facts(end),
    }


def _facts(end: Mapping[str, Any]) -> list[list[Any]]:
    return [[_FACTS.get(name, name.replace("_", " ")), value] for name, value in end.items() if name not in _ELSEWHERE]


def began(captured: CapturedExchange) -> float:
    """Returns the start of an exchange in Unix time; 0 if its capture does not contain it."""
    try:
        return datetime.fromisoformat(captured.head.get("time", "")).timestamp()
    except (ValueError, TypeError):
        return 0.0


def _round(one: Round, prompt: dict[str, Any], places: Places) -> dict[str, Any]:
    call = one.call
    answered = call.all("answered")
    return {
        "number": call.number,
        "backend": call.first("sent").get("backend"),
        "at": call.entries[0].at,
        "answered_at": answered[0].at if answered else None,
        "ended_at": call.entries[-1].at,
        "status": call.status,
        "failed": call.first("failed") or None,
        "prompt": prompt,
        "raw": {"streamed": call.streamed, **_raw(one.answer, places)},
        "frames": [{"at": read.at, "data": read.data.decode(errors="replace")} for read in call.all("received")],
    }


def _prompt(prompt: Prompt) -> dict[str, Any]:
    return {
        "messages": [
            {
                "role": message.role,
                "spans": [{"text": piece.text, "kind": piece.kind, "tools": piece.tools} for piece in message.pieces],
            }
            for message in prompt.messages
        ],
        "tools": prompt.tools,
        "parameters": prompt.parameters,
    }


def _raw(answer: ServerAnswer, places: Places) -> dict[str, Any]:
    units = _utf16(answer.text)
    spans: list[dict[str, Any]] = []
    for span in answer.spans:
        one: dict[str, Any] = {"from": units(span.begin), "to": units(span.end), "kind": span.kind}
        if span.call is not None:
            one["call"] = span.call
        if span.judgements:
            one["judgement"] = places[id(span.judgements[0])]
        spans.append(one)
    steps = [
        {
            "at": step.at,
            "upto": units(step.upto),
            "released": units(step.released),
            "state": step.state,
            "held": units(step.upto) - units(step.released),
        }
        for step in answer.steps
    ]
    return {"text": answer.text, "spans": spans, "steps": steps}


def _utf16(text: str) -> Callable[[int], int]:
    """Returns a function that converts character offsets to offsets in UTF-16 code units."""
    if text.isascii() or max(text) <= "\uffff":
        return lambda place: place
    places = [0, *accumulate(1 + (char > "\uffff") for char in text)]
    return places.__getitem__


def _call(number: int, call: MadeCall, places: Places) -> dict[str, Any]:
    return {
        "n": call.n,
        "round": number,
        "name": call.name,
        "arguments": COVER(call.arguments),
        "judgements": [places[id(judgement)] for judgement in call.judgements],
    }


def _judgement(judgement: Judgement) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": judgement.kind, "words": judgement.words, "round": judgement.round}
    return fields | ({"call": judgement.calls[0]} if judgement.calls else {})


def _client(captured: CapturedExchange, reader: ServerSide | None, calls: Sequence[MadeCall]) -> dict[str, Any]:
    output = [entry for entry in captured.entries if entry.kind == "output"]
    streamed = bool(output) and output[0].data.lstrip()[:1] not in (b"{", b"[")
    events, sent = read_output(output, reader, streamed=streamed)
    numbers = _numbers(sent, calls)
    return {
        "streamed": streamed,
        "bytes": sum(len(entry.data) for entry in output),
        "events": [
            {
                "at": event.at,
                "name": event.name,
                "data": event.data,
                "brief": event.brief,
                "calls": [numbers[call] for call in event.calls if numbers[call] is not None],
            }
            for event in events
        ],
    }


def _numbers(sent: Sequence[SentCall], made: Sequence[MadeCall]) -> list[int | None]:
    """Returns for each call that the client got the number of the model's call, or None: the last one with the same
    text, because discarded answers come first, else the last with the same name. Ids cannot be compared: reading an
    answer again creates new ones."""
    same: dict[tuple[str, str], list[MadeCall]] = {}
    named: dict[str, list[MadeCall]] = {}
    for one in made:
        same.setdefault((one.name, one.arguments), []).append(one)
        named.setdefault(one.name, []).append(one)
    taken: set[int] = set()
    numbers: list[int | None] = []
    for call in reversed(sent):
        found = None
        for free in (same.get((call.name, call.arguments), []), named.get(call.name, [])):
            while found is None and free:
                last = free.pop()
                found = None if id(last) in taken else last
        if found is not None:
            taken.add(id(found))
        numbers.append(None if found is None else found.n)
    return numbers[::-1]


def _reader(endpoint: Any, plugins: Registries) -> ServerSide | None:
    """Returns the reader of responses in this protocol; None if it is unknown."""
    servers = (plugins.servers.get(name)() for name in plugins.servers.names())
    return next((server for server in servers if server.name == endpoint), None)


def _request(captured: CapturedExchange) -> dict[str, Any]:
    raw = captured.bytes_of("request")
    try:
        if len(raw) > SHOWN_CHARS:
            raise ValueError
        text = orjson.dumps(loads(raw, BOUNDS), option=orjson.OPT_INDENT_2).decode()
    except ValueError:
        text = raw.decode(errors="replace")
    if len(text) > SHOWN_CHARS:
        text = f"{text[:SHOWN_CHARS]}\n… {len(text) - SHOWN_CHARS} more characters are not shown."
    return {"text": text, "bytes": len(raw)}


def _tool(entry: Entry) -> dict[str, Any]:
    fields = dict(entry.fields)
    return {"from": entry.at - fields.pop("seconds", 0.0), "to": entry.at, **fields}
