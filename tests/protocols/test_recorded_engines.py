"""Answers that real engines gave (R29.1, R29.3, R29.8), all of them, read whole and streamed: nothing of them is noise
or of an unknown end, whatever their stream says is an answer or a named error, and as bytes they pass as they came. A
refusal has the status and the code of what it is, and a page says what a server is."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.protocols.corners import read_by
from tests.protocols.published import SHARED
from toolwire.errors import ClientFault, GatewayError
from toolwire.events import Fault, Finish, Start
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.upstream.servers.identity import PROBES, Identity, read_listed
from toolwire.upstream.servers.refusals import refuses_tools
from toolwire.upstream.servers.upstream_errors import read_refusal

ENGINES: Final = SHARED / "engines"
PROTOCOLS: Final[dict[str, ServerSide]] = {
    "/v1/chat/completions": ChatProtocol(),
    "/v1/completions": CompletionsProtocol(),
    "/v1/messages": MessagesProtocol(),
    "/v1/responses": ResponsesProtocol(),
}


@cache
def everything() -> tuple[tuple[Path, dict[str, Any]], ...]:
    """Each recorded answer."""
    found = [(path, orjson.loads(path.read_bytes())) for path in sorted(ENGINES.glob("*/*.json"))]
    if not found:
        pytest.skip(f"no recorded answers at {ENGINES}; set TOOLWIRE_SHARED")
    return tuple(found)


def recorded(ok: bool = True) -> list[tuple[Path, ServerSide, dict[str, Any]]]:
    """Each answer at one of these paths, with status 200 or with another one, and the protocol it is in."""
    return [
        (path, protocol, said)
        for path, said in everything()
        if (protocol := PROTOCOLS.get(said["request"]["path"])) is not None and (said["status"] == 200) is ok
    ]


def test_streams() -> None:
    for path, protocol, _ in recorded():
        stream = path.with_suffix(".sse")
        if not stream.exists():
            continue
        data, noted = stream.read_bytes(), list[tuple[str, str]]()
        reader = protocol.reader(frame_bytes=1 << 20, note=lambda *one, noted=noted: noted.append(one))  # type: ignore[misc]
        events = read_by(reader, data)
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


def test_streams_that_an_engine_ended_with_an_error() -> None:
    """A refused grammar is the client's, an engine that was killed is not; what came before it is kept apart."""
    found = {path.stem: path.read_bytes() for path in ENGINES.glob("*/*.http")}
    if not found:
        pytest.skip(f"no recorded answers at {ENGINES}; set TOOLWIRE_SHARED")
    for name, data in found.items():
        reader = PROTOCOLS["/v1/chat/completions"].reader(frame_bytes=1 << 20)
        *before, last = read_by(reader, data.replace(b"\r\n", b"\n").partition(b"\n\n")[2])
        assert isinstance(last, Fault), name
        assert last.error.status == (400 if "bad" in name else 502), name
        assert not any(isinstance(event, Finish) for event in before), name


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


def wanted(name: str, status: int, text: str) -> tuple[int, str]:
    """Status and code for a client, of a refusal that was recorded under this name."""
    if "too_long" in name:
        return 400, "context_length_exceeded"
    if name.endswith("unknown_model"):
        return 404, "model_not_found"
    if status in (400, 422) or (status == 500 and ("--jinja" in text or "Unsupported tool type" in text)):
        return 400, "upstream_rejected"
    return 502, "upstream_error"


def test_refusals() -> None:
    """Also which of them are about tools, so that a route whose mode may change asks in another way."""
    seen = set()
    for path, protocol, said in recorded(ok=False):
        body = said["body"] if isinstance(said["body"], str) else orjson.dumps(said["body"]).decode()
        error = read_refusal(said["status"], said["headers"], body.encode(), read=protocol.read_refusal)
        assert (error.status, error.code) == wanted(path.stem, said["status"], body), (path, error.message)
        assert error.message, path
        assert error.upstream_status == said["status"], path
        assert error.transient is (said["status"] == 500 and error.code == "upstream_error"), path
        assert not {"Traceback", 'File "'} & {*error.message.split()}, path
        without = path.parent.name.endswith(("-plain", "-nojinja")) and path.stem.startswith(
            ("tools_auto", "tools_required")
        )
        assert refuses_tools(error) or not without, path
        seen.add(error.code)
    assert seen == {"context_length_exceeded", "model_not_found", "upstream_rejected", "upstream_error"}


def test_pages_that_say_what_a_server_is() -> None:
    """Each page, whoever has it, is read by every reader of such pages; a foreign one says nothing wrong."""
    engines = {"vllm-0": "vllm", "sglang": "sglang", "llamac": "llamacpp", "transf": "transformers", "vllm-r": "vllm"}
    pages = [(path, said) for path, said in everything() if said["request"]["path"] not in PROTOCOLS]
    for path, said in pages:
        known = engines.get(path.parent.name[:6])
        listed = read_listed(said["body"])
        assert listed.engine in (None, known), path
        if said["status"] != 200:
            continue
        for probe in PROBES:
            found = probe.read(said["body"], Identity())
            assert found is None or found.engine == known or path.stem not in probe.path, (path, probe.path)


def test_all_that_was_recorded_is_looked_at() -> None:
    """Answers, refusals and pages are everything; each stream stands beside its request."""
    pages = [path for path, said in everything() if said["request"]["path"] not in PROTOCOLS]
    assert len(recorded()) + len(recorded(ok=False)) + len(pages) == len(everything())
    assert all(path.with_suffix(".json").exists() for path in ENGINES.glob("*/*.sse"))
