"""The gateway's keys for its model servers, which the servers repeat: no client, no log and no capture gets to see
one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.e2e.conftest import CHAT, function, get, post, read_config, serving
from tests.e2e.responses_answers import RESPONSES
from tests.e2e.speaking import JSON, SSE
from tests.e2e.test_capture import captured_of
from tests.waiting import GUARD_S
from toolwire.extras.capture.files import read_capture
from toolwire.testing import Answer, Asked, Refuse, Script, Upstream, WireAnswer, chunk, frame, listing

KEY = "Zq3v9Kx81LmN02pQrStU4w/6"
HEADER_KEY = "a-token-in-a-header-0042"
OTHERS_KEY = "the-key-of-another-server-77"
TOOL = function("read_file", path="string")
HEL = chunk({"role": "assistant", "content": "Hel"})
DONE = frame("[DONE]")
SAYS: dict[str, str] = {"its key": KEY, "a header's": HEADER_KEY, "another server's": OTHERS_KEY}


WAYS: list[tuple[str, list[Any], bool]] = [
    (path, tools, stream) for path, tools in ((CHAT, []), (CHAT, [TOOL]), (RESPONSES, [])) for stream in (False, True)
]


def _split(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def answers(said: str) -> Iterator[tuple[str, Script]]:
    """Ways to repeat it: in errors of all kinds, and in answers."""
    error = {"error": {"message": f"no such key: Bearer {said} at http://127.0.0.1:45883/v1", "code": 401}}
    bare = {"object": "error", "message": f"Incorrect API key: {said}", "code": 401}
    for status in (400, 401, 500):
        yield f"error {status}", Refuse(status, body=orjson.dumps(error))
        yield f"plain {status}", Refuse(status, body=f"bad key {said}".encode())

    def packed(frames: list[Any], whole: Any) -> Script:
        def turn(asked: Asked) -> Answer:
            if asked.json.get("stream"):
                steps = [item if isinstance(item, bytes) else frame(item) for item in frames]
                return Answer([*steps, DONE], headers=SSE)
            return Answer([orjson.dumps(whole)], headers=JSON)

        return turn

    for name, value in (("error", error), ("bare error", bare), ("detail", {"detail": f"bad {said}"})):
        yield f"200 {name}", packed([value], value)
        yield f"200 {name}, late", packed([HEL, value, chunk({"content": "late"}, "stop")], value)
        yield f"200 {name}, event", packed([b"event: error\n" + frame(value)], value)
    answer = {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": f"Hel {said}."}}]}
    for size in (len(said), 3):
        pieces = [chunk({"content": piece}) for piece in _split(said, size)]
        yield f"text by {size}", packed([HEL, *pieces, chunk({"content": "late"}), chunk({}, "stop")], answer)


@pytest.mark.parametrize("form", SAYS)
async def test_a_key_that_a_server_repeats(form: str, caplog: pytest.LogCaptureFixture) -> None:
    said = SAYS[form]
    caplog.set_level(logging.DEBUG)
    async with asyncio.timeout(GUARD_S), Upstream() as upstream:
        config = read_config(
            {
                "backends": {
                    "up": {"url": upstream.url, "api_key": KEY, "headers": {"X-Gateway-Token": HEADER_KEY}},
                    "elsewhere": {"url": "http://127.0.0.1:9", "api_key": OTHERS_KEY},
                },
                "routes": [{"model": "m", "backend": "up"}, {"model": "n", "backend": "elsewhere"}],
                "capture": 1,
            }
        )
        async with serving(config) as server:
            for number, (name, script) in enumerate(answers(said), [*SAYS].index(form)):
                upstream.script = [script]
                # All ways of the first form, of the others one in turn.
                for path, tools, stream in WAYS if said == KEY else WAYS[number % len(WAYS) :][:1]:
                    asked = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"input": "hi"}
                    answer = await post(server, {**asked, "tools": tools, "stream": stream}, path=path)
                    check(answer, said, name)
            upstream.script = [dict(answers(said))["text by 3"]]
            await post(
                server,
                {"messages": [{"role": "user", "content": "hi"}], "stream": True},
                headers={"X-Request-Id": "mine"},
            )
            captured = await captured_of(server, "mine")
        for secret in (said, KEY, HEADER_KEY, OTHERS_KEY):
            assert secret.encode() not in captured
            assert secret not in caplog.text
    received = read_capture(captured).bytes_of("received")
    assert b"Hel" in received
    assert b"late" not in received


def check(answer: WireAnswer, said: str, name: str) -> None:
    shown = answer.body.decode()
    assert said not in shown, name
    assert "45883" not in shown, name
    assert "late" not in shown, name
    assert "error" in shown, name
    pieces = [f["choices"][0]["delta"].get("content") or "" for f in _chunks(answer)]
    assert said not in "".join(pieces), name


def _chunks(answer: WireAnswer) -> list[Any]:
    if not answer.headers["Content-Type"].startswith("text/event-stream"):
        return []
    return [value for value in answer.frames() if isinstance(value, dict) and value.get("choices")]


async def test_no_name_of_a_model_is_a_key() -> None:
    async with Upstream() as upstream:
        upstream.listing = listing("m", f"deployment-{KEY}", "n")
        async with serving(read_config({"backends": {"up": {"url": upstream.url, "api_key": KEY}}})) as server:
            shown = [entry["id"] for entry in (await get(server, "/v1/models")).json()["data"]]
    assert shown == ["m", "n"]
