"""Answers that real engines gave (R29.1, R29.3), read, whole and streamed: nothing of them is noise or of an unknown
end, whatever their stream says is an answer or a named error, and as bytes they pass as they came."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from proxy.errors import ClientFault, GatewayError
from proxy.events import Fault, Finish, Start
from proxy.pipeline.relay import Relay
from proxy.protocols.base import ServerSide
from proxy.protocols.chat.protocol import ChatProtocol
from proxy.protocols.completions import CompletionsProtocol
from proxy.protocols.messages.protocol import MessagesProtocol
from proxy.protocols.responses.protocol import ResponsesProtocol
from tests.protocols.published import SHARED

ENGINES: Final = SHARED / "engines"
PROTOCOLS: Final[dict[str, ServerSide]] = {
    "/v1/chat/completions": ChatProtocol(),
    "/v1/completions": CompletionsProtocol(),
    "/v1/messages": MessagesProtocol(),
    "/v1/responses": ResponsesProtocol(),
}


@cache
def recorded() -> tuple[tuple[Path, ServerSide, dict[str, Any]], ...]:
    """Each answer with status 200 at one of these paths, and the protocol it is in."""
    found = []
    for path in sorted(ENGINES.glob("*/*.json")):
        said = orjson.loads(path.read_bytes())
        protocol = PROTOCOLS.get(said.get("request", {}).get("path", ""))
        if protocol is not None and said.get("status") == 200:
            found.append((path, protocol, said))
    if not found:
        pytest.skip(f"no recorded answers at {ENGINES}; set TOOLWIRE_SHARED")
    return tuple(found)


def test_streams() -> None:
    for path, protocol, _ in recorded():
        stream = path.with_suffix(".sse")
        if not stream.exists():
            continue
        data, noted = stream.read_bytes(), list[tuple[str, str]]()
        reader = protocol.reader(frame_bytes=1 << 20, note=lambda *one, noted=noted: noted.append(one))  # type: ignore[misc]
        events = [*reader.feed(data), *reader.finish()]
        assert not noted, path
        last = events[-1]
        if b'data: {"error"' not in data:
            assert isinstance(last, Finish), (path, last)
            relay = Relay(protocol, 1 << 20)
            assert (relay.feed(data) + relay.finish()).startswith(data), path  # `[DONE]` may be added
            continue
        assert isinstance(last, Fault), path
        refused = b'"code": 400' in data
        assert isinstance(last.error, ClientFault) == refused, path
        assert (last.error.upstream_status, last.error.status) == ((400, 400) if refused else (500, 502)), path
        assert [type(one) for one in events[:-1]] in ([], [Start]), path


def test_whole_answers() -> None:
    for path, protocol, said in recorded():
        body, noted = said["body"], list[tuple[str, str]]()
        if not isinstance(body, dict) or path.with_suffix(".sse").exists():
            continue
        try:
            reply = protocol.read_reply(orjson.dumps(body), note=lambda *one, noted=noted: noted.append(one))  # type: ignore[misc]
        except GatewayError as error:
            pytest.fail(f"{path}: {error.message}")
        assert reply.choices, path
        assert not noted, path
