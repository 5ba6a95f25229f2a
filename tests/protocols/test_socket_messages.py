"""Messages and errors of Responses over WebSocket, as values (R28.2)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from toolwire.errors import ClientFault
from toolwire.protocols.shared.socket_messages import error_event, named, read_create

ERROR = {"type": "x", "code": "rate_limit_exceeded", "message": "No.", "param": None}


def event(status: int | None, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    return orjson.loads(error_event(status, raw, headers))


@pytest.mark.parametrize("body", [{"error": ERROR}, {"type": "error", "error": ERROR, "sequence_number": 3}, ERROR])
def test_an_error_is_nested_and_has_a_status(body: Any) -> None:
    assert event(418, body) == {"type": "error", "status": 418, "error": ERROR}
    assert event(None, body)["status"] == 429


@pytest.mark.parametrize("body", [b"no JSON \xff", b"[1]", b'{"error":"Away."}', b'{"error":7}', b""])
def test_somebody_elses_words_are_an_error_as_well(body: bytes) -> None:
    made = event(503, body)
    assert (made["status"], made["error"]["code"], made["error"].keys()) == (503, "internal_error", ERROR.keys())
    assert isinstance(made["error"]["message"], str)
    assert event(None, body)["status"] == 500


def test_a_code_that_is_no_text_is_no_code_of_ours() -> None:
    assert event(None, {"error": {"code": 429, "message": "No."}})["status"] == 500


def test_headers_of_limits_are_in_it() -> None:
    headers = {"Retry-After": "3", "x-ratelimit-remaining-requests": "0", "Server": "s"}
    told = {"retry-after": "3", "x-ratelimit-remaining-requests": "0"}
    made = event(429, {"error": ERROR}, **headers)
    assert (made["headers"], made["error"]["headers"]) == (told, told)


def test_the_lane_stands_in_each_event() -> None:
    assert orjson.loads(named(b'{"type":"a"}', 'q"\n')) == {"stream_id": 'q"\n', "type": "a"}
    assert named(b'{"type":"a"}', None) == b'{"type":"a"}'


def test_a_message_is_the_body_of_a_request() -> None:
    given = {"type": "response.create", "stream": False, "stream_id": "a", "generate": True, "input": "hi", "x": 1}
    create = read_create(given)
    assert create.body == {"input": "hi", "x": 1, "stream": True}
    assert create.stream_id == "a"
    assert read_create({"type": "response.create", "generate": False}).body == {"generate": False, "stream": True}


@pytest.mark.parametrize("kind", ["response.steer", 7, {}, "", None])
def test_other_messages_are_refused(kind: Any) -> None:
    with pytest.raises(ClientFault) as fault:
        read_create({"type": kind})
    assert fault.value.param == "type"
