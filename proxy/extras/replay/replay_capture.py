"""Shows captures: each backend response step by step, and whether the client would get the same response again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from ...errors import quote
from ...protocols.base import ServerSide
from ...record import CallDecision
from ...registry import registries
from ...support.conversion import ConfigError
from ..capture.files import CapturedExchange, RecordedCall
from ..capture.recording import Chunks, RecordingError, recorded_protocol
from ..capture.verdict import decisions_of
from ..inspector.view import UNREADABLE
from .reproduction import Reproduction, reproduce
from .steps import Recording, Summary, show, show_json


@dataclass(slots=True)
class Outcome:
    """The results of showing captures."""

    summaries: list[Summary] = field(default_factory=list)
    reproductions: list[Reproduction] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """True if there is a bug: a result depends on how a recording is split, events are invalid, or the response
        differs."""
        differs = any(not again.same and not again.left_out for again in self.reproductions)
        return differs or any(found.broken or found.different for found in self.summaries)


def show_captures(
    captures: Iterable[CapturedExchange], *, format: str | None, chunks: Chunks, outcome: Outcome, as_json: bool
) -> Iterator[str]:
    """Yields the lines of the captures, one after the other, and fills `outcome`. Raises `RecordingError` for a capture
    that no gateway has written."""
    for number, captured in enumerate(captures):
        if number and not as_json:
            yield ""
        try:
            yield from _shown(captured, format, chunks, outcome, as_json)
        except UNREADABLE as error:
            raise RecordingError(f"the capture cannot be read: {error}") from error


def _shown(
    captured: CapturedExchange, format: str | None, chunks: Chunks, outcome: Outcome, as_json: bool
) -> Iterator[str]:
    head = captured.head
    chosen = (
        format or captured.end.get("format") or head.get("config", {}).get("defaults", {}).get("format", "sentinel")
    )
    if not as_json:
        shown = {name: head.get(name, "unknown") for name in ("request_id", "time", "toolwire", "scanner", "path")}
        yield "request {request_id} at {time}, toolwire {toolwire}, scanner {scanner}".format(**shown)
        yield f"{shown['path']} ended with status {captured.end.get('status')} {captured.end.get('code', '')}".rstrip()
    else:
        yield _json({"request_id": head.get("request_id")})
    kind = (head.get("backend") or {}).get("kind")
    protocol = recorded_protocol(kind, registries())
    for call in captured.calls:
        if not as_json:
            yield f"call {call.number}: {_described(call)}"
        recording = readable(call, protocol)
        if recording:
            found = Summary()
            outcome.summaries.append(found)
            yield from (show_json if as_json else show)(recording, format=chosen, chunks=chunks, found=found, kind=kind)
        for decision in decisions_of(call.entries):
            yield _json(_plain(decision)) if as_json else f"decided: {_brief(decision)}"
    yield from _reproduced(captured, outcome, as_json)


def _plain(decision: CallDecision) -> dict[str, object]:
    fields = {name: getattr(decision, name) for name in ("name", "why", "notes", "start", "end")}
    return {"decided": decision.kind, **{name: value for name, value in fields.items() if value not in (None, "", ())}}


def _brief(decision: CallDecision) -> str:
    where = "" if decision.start is None else f"bytes {decision.start} to {decision.end}"
    notes = f"({', '.join(decision.notes)})" if decision.notes else ""
    name = "" if decision.name is None else quote(decision.name)
    return ", ".join(filter(None, (decision.kind, name, f"{where} {notes}".strip(), decision.why)))


def _reproduced(captured: CapturedExchange, outcome: Outcome, as_json: bool) -> Iterator[str]:
    try:
        again = reproduce(captured)
    except (RecordingError, ConfigError) as error:
        yield _json({"reproduced": None, "because": str(error)}) if as_json else f"cannot be run again: {error}"
        return
    outcome.reproductions.append(again)
    if as_json:
        yield _json({"reproduced": again.same, "left_out": again.left_out, "status": again.status})
        return
    if again.left_out:
        yield f"left out of the replay: {', '.join(again.left_out)}"
    if again.same:
        yield f"the answer to the client is the same again, {len(again.recorded)} bytes"
    elif again.difference is not None:
        at, before, now = again.difference
        yield f"the answer to the client is DIFFERENT from byte {at} on"
        yield f"  recorded  {before!r}"
        yield f"  again     {now!r}"


def readable(call: RecordedCall, protocol: ServerSide) -> Recording:
    """Returns the part of a response that the scanner reads: the reads of a stream, or the text of a whole answer."""
    if call.status != 200:
        return b""
    if call.streamed:
        return [read.data for read in call.all("received")]
    body = call.bytes_of("received")
    try:
        return protocol.read_reply(body).text.encode(errors="surrogatepass")
    except Exception:  # not an answer: its bytes are shown
        return body


def _described(call: RecordedCall) -> str:
    size, reads, failed = len(call.bytes_of("received")), len(call.all("received")), call.first("failed")
    status = f"status {call.status}, {size} bytes in {reads} reads" if call.status else "no answer"
    return f"{status}, then {failed['code']}: {failed['message']}" if failed else status


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
