"""Claude Code's needs from every kind of server: overflows in Anthropic's words, failed results (R28.6), compaction."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

from tests.cases import every
from tests.e2e.conftest import Gateway, post, upstream_config
from tests.e2e.meaning import MESSAGES
from tests.e2e.speaking import SSE
from toolwire.testing import Answer, Refuse, Upstream, frame

KINDS = ("openai_chat", "openai_responses", "anthropic_messages", "openai_completions")
VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested 4000 output tokens and your prompt"
    " contains at least 97 input tokens, for a total of at least 4097 tokens."
)
LLAMACPP = "request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it"
OVERFLOWS = [
    (LLAMACPP, "prompt is too long: 6030 tokens > 4096 maximum"),
    (VLLM, "input length and `max_tokens` exceed context limit: 97 + 4000 > 4096, decrease input length or"),
    ("Your input exceeds the context window of this model.", "prompt is too long: Your input exceeds the context"),
]
READ = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}


def config(kind: str, url: str, mode: str = "native") -> Any:
    backend = {"kind": kind, **({"preset": "generic"} if kind == "openai_chat" else {})}
    mode = "prompt" if kind == "openai_completions" else mode
    return upstream_config(url, backend=backend, defaults={"mode": mode})


def asked(*messages: Any, **fields: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "hi"}, *messages]
    return {"model": "m", "max_tokens": 4000, "messages": said, **fields}


def refusal(kind: str, status: int, said: str) -> Answer:
    error = {"type": "invalid_request_error", "message": said}
    envelope = {"type": "error"} if kind == "anthropic_messages" else {}
    return Refuse(status, body=json.dumps({**envelope, "error": error}).encode())


def broken_stream(kind: str, said: str) -> Answer:
    error = {"type": "invalid_request_error", "message": said}
    if kind in ("openai_responses", "anthropic_messages"):
        return Answer([b"event: error\n" + frame({"type": "error", "error": error})], headers=SSE)
    return Answer([frame({"error": error})], headers=SSE)


@every("kind", KINDS)
async def test_an_overflow_is_said_in_anthropics_words(gateway: Gateway, kind: str) -> None:
    async with Upstream() as upstream:
        started = await gateway(config(kind, upstream.url))
        for status, (said, words), stream in product((400, 413, 500), OVERFLOWS, (False, True)):
            upstream.script = [refusal(kind, status, said)]
            answer = await post(started, asked(stream=stream), path=MESSAGES)
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["type"]) == (400, "invalid_request_error"), (status, said)
            assert error["message"].startswith(words)
        upstream.script = [broken_stream(kind, LLAMACPP)]
        answer = await post(started, asked(stream=True), path=MESSAGES)
        assert b"prompt is too long: 6030 tokens > 4096 maximum" in answer.body


FAILED = [
    ("no such file", "Error: no such file"),
    ("Error: no such file", "Error: no such file"),
    ([{"type": "text", "text": "no such file"}], "Error: no such file"),
    ([], "Error: "),
]


@every("mode", ["native", "prompt"])
@every("kind", KINDS)
async def test_a_failed_result_reaches_the_model(gateway: Gateway, kind: str, mode: str) -> None:
    async with Upstream([refusal(kind, 400, "no")]) as upstream:
        started = await gateway(config(kind, upstream.url, mode))
        for content, told in FAILED:
            use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": True}
            body = asked({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}, tools=[READ])
            await post(started, body, path=MESSAGES)
            sent = upstream.posts[-1].json
            if kind == "anthropic_messages" and mode == "native":
                assert sent["messages"][-1]["content"] == [result]
            else:
                assert told.strip() in json.dumps(sent), content
                assert json.dumps(sent).count("Error: ") == 1, content


async def test_a_compaction_is_refused_where_no_server_makes_one(gateway: Gateway) -> None:
    """The client would take an ordinary answer for the block that it asked for. Counting ignores the field."""
    server = await gateway(script=["Hello."])
    body = asked(compaction={"type": "summarize"})
    assert (await post(server, body, path=f"{MESSAGES}/count_tokens")).status == 200
    error = await post(server, body, path=MESSAGES)
    assert error.status == 400
    assert "'compaction' is not supported" in error.json()["error"]["message"]
