"""A whole answer that is sent unread fails as one that is converted: the same errors, whatever form they have. One that
comes as a stream, or the reverse, is converted like any other."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.e2e.conftest import CHAT, gateway_before, post
from tests.e2e.meaning import BODIES, MESSAGES, RESPONSES, chunks_of, said
from tests.e2e.speaking import JSON, SSE
from tests.e2e.test_cut_calls import KINDS
from tests.e2e.test_odd_shapes import FIRST, USE, of, resource, whole_chat, whole_message
from toolwire.testing import Answer, chunk, frame

SAID = {"role": "assistant", "content": "Hel"}


def choice(**fields: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "message": SAID, "finish_reason": "stop", **fields}]}


BILL = {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}
ERRORS: dict[str, list[tuple[Any, int]]] = {
    CHAT: [
        ({"id": "x", "choices": None, **BILL}, 502),
        ({"id": "x", "choices": [], **BILL}, 502),
        ({"id": "x", "choices": "none", **BILL}, 502),
        ({"id": "x", "choices": [], "base_resp": {"status_code": 429, "status_msg": "slow down"}}, 429),
        ({"result": {"response": "Hello"}, "success": True, "errors": []}, 502),
        (resource(), 502),
        (choice(error={"code": 429, "message": "slow down"}, finish_reason="error"), 429),
        (choice(error={"code": 400, "message": "no such sampler"}), 400),
        (choice(finish_reason="network_error"), 502),
        (whole_chat(of(id="x", name="", arguments="{}")), 502),
    ],
    RESPONSES: [
        ({**resource(), "status": "failed"}, 502),
        ({**resource(FIRST), "status": "cancelled"}, 502),
        ({**resource(FIRST), "status": "incomplete", "incomplete_details": {"reason": "error"}}, 502),
        ({**resource(FIRST), "output": "none"}, 502),
        ({**resource(), "status": "queued"}, 502),
        (resource({**FIRST, "name": None}), 502),
        (choice(), 502),
    ],
    MESSAGES: [
        (whole_message({**USE, "name": ""}), 502),
        (whole_message({"type": "text", "text": "Hel"}, end="malformed_tool_use"), 502),
        ({"base_resp": {"status_code": 429, "status_msg": "slow down"}}, 429),
        (choice(), 502),
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", ERRORS)
@pytest.mark.parametrize("blank", [b":", b": "])
async def test_an_error_in_a_whole_answer_is_one(path: str, blank: bytes) -> None:
    now = Answer()
    with_tools = {key: value for key, value in BODIES[path].items() if key not in ("stop", "odd")}
    bare = {key: value for key, value in with_tools.items() if key not in ("tools", "thinking")}
    async with gateway_before(
        [lambda asked: now],
        backend={"kind": KINDS[path], "breaker": {"failures": 0}},
        store={"kind": "none"},
        defaults={"mode": "native"},
    ) as (server, _):
        for sent, status in ERRORS[path]:
            now = Answer([orjson.dumps(sent).replace(b'":', b'"' + blank)], headers=JSON)
            relayed, converted = [await post(server, body, path=path) for body in (bare, with_tools)]
            assert (relayed.status, converted.status) == (status, status), (sent, relayed.body, converted.body)
            assert relayed.json()["error"] == converted.json()["error"], sent


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"\xef\xbb\xbf" + orjson.dumps(choice()), choice()),
        (orjson.dumps(choice()).replace(b"Hel", b"caf\xe9"), choice(message={**SAID, "content": "caf\ufffd"})),
        (orjson.dumps(choice(logprobs=7)).replace(b"7", b"NaN"), choice(logprobs=None)),
        (orjson.dumps(choice()).replace(b"Hel", b"\\ud83d"), choice(message={**SAID, "content": "\ufffd"})),
    ],
)
async def test_a_client_gets_json_that_it_can_read(sent: bytes, shown: Any) -> None:
    """R6.5. Where the gateway reads what strict clients do not."""
    async with gateway_before([Answer([sent], headers=JSON)]) as (server, _):
        answer = await post(server, {"messages": BODIES[CHAT]["messages"]})
        assert orjson.loads(answer.body) == shown


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_in_the_other_form_has_counts(stream: bool) -> None:
    """R11.3. Its bytes are the gateway's, so the counts that its server left out are not 0."""
    whole = Answer([orjson.dumps(choice())], headers=JSON)
    frames = Answer([frame(chunk({"content": "Hel"})), frame(chunk({}, "stop")), frame("[DONE]")], headers=SSE)
    body = {"messages": BODIES[CHAT]["messages"], "stream": stream}
    asked = {**body, "stream_options": {"include_usage": True}} if stream else body
    async with gateway_before([whole if stream else frames]) as (server, _):
        answer = await post(server, asked)
        usage = chunks_of(answer)[-1]["usage"] if stream else answer.json()["usage"]
        assert min(usage["prompt_tokens"], usage["completion_tokens"]) > 0, answer.body
        assert said(CHAT, answer, stream)[0] == "Hel"
