"""Facts of real servers: which one it is, which stop sequence matched, what was counted (R29.5, R29.6, R29.7)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, USER, Gateway, post, read_config, serving, upstream_config, wait_for_servers
from tests.e2e.engines import models, page
from tests.e2e.recorded_engines import LLAMACPP, SGLANG, SMG, TRANSFORMERS, VLLM, VLLM_ROUTER, answered, pages
from tests.e2e.test_stop_sequences import text_of
from tests.protocols.messages_wires import accumulate
from tests.protocols.wires import frame
from toolwire.pipeline.exchange.routing import ROUTER
from toolwire.testing import Answer, Say, Upstream

both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
MESSAGES = "/v1/messages"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_servers(monkeypatch, 60.0)


async def identity(gateway: Gateway, listing: Any, **backend: Any) -> Any:
    """What is known of a server after the first request."""
    async with Upstream() as server:
        server.listing = listing
        running = await gateway(read_config({"backends": {"gpu": {"url": server.url, **backend}}}))
        await post(running, {"model": "m", "messages": USER})
        (route,) = running.app[ROUTER].routes
        endpoint = route.pool.every[0].endpoint
        return endpoint.identity, endpoint.backend.capabilities


@pytest.mark.parametrize(
    ("engine", "known", "version", "context"),
    [
        (VLLM, "vllm", "0.32.0", 4096),
        (SGLANG, "sglang", "0.5.23", 4096),
        (LLAMACPP, "llamacpp", "b0-unknown", 4096),
        (TRANSFORMERS, "transformers", None, None),
        (VLLM_ROUTER, "vllm", "0.32.0", 4096),
        (SMG, None, None, None),
    ],
)
async def test_a_server_is_known_from_the_start(
    gateway: Gateway, engine: str, known: str | None, version: str | None, context: int | None
) -> None:
    """R29.7: engine, version and context, of routers as far as they pass on what their servers say."""
    said, _ = await identity(gateway, pages(engine))
    assert (said.engine, said.version) == (known, version)
    assert [served.context for served in said.models] == [context]


async def test_a_router_names_the_engine_of_its_servers_where_it_passes_their_paths_on(gateway: Gateway) -> None:
    """smg lists models as its own and passes `/get_model_info` on, which only SGLang has; behind another engine the
    configuration names it (R29.7)."""
    listed = models("self_hosted", "qwen05")
    model_info = {"model_path": "/models/qwen05", "is_generation": True, "has_image_understanding": False}

    def router(asked: Any) -> Any:
        if asked.path == "/v1/models":
            return page(listed)
        return page(model_info) if asked.path == "/get_model_info" else page({"error": {"code": "unknown_url"}}, 404)

    said, takes = await identity(gateway, router)
    assert (said.engine, takes.constrain, takes.names_stop) == ("sglang", "ebnf", True)
    _, takes = await identity(gateway, pages(SMG), preset="vllm")
    assert (takes.constrain, takes.names_stop) == ("guided", True)


async def test_what_looks_a_little_like_transformers_serve_is_not_it(gateway: Gateway) -> None:
    """A router of llama.cpp says as well whether models are loaded, and services have lists of the same fields."""
    for more in ({"status": {"value": "loaded"}, "in_cache": True}, {"status": "loaded"}, {}):
        said, _ = await identity(gateway, lambda asked, more=more: page(models("local", "m", **more)))
        assert said.engine is None


async def test_the_context_of_a_model_that_ollama_has_loaded(gateway: Gateway) -> None:
    """Ollama gives a model less than it was trained with, and lists what it gave (R29.7)."""
    listed = {
        "/v1/models": models("library", "a:1b", "b:1b"),
        "/api/version": {"version": "0.12.6"},
        "/api/ps": {"models": [{"name": "a:1b", "context_length": 4096}, {"name": "b:1b", "context_length": "x"}, 7]},
    }
    said, _ = await identity(gateway, lambda asked: page(listed.get(asked.path)))
    assert (said.engine, [served.context for served in said.models]) == ("ollama", [4096, None])


# --- stop sequences -------------------------------------------------------------------------------------------------

SGLANG_STREAM = Answer(
    [
        *(
            frame({"choices": [{"index": 0, "delta": delta, "finish_reason": reason, "matched_stop": matched}]})
            for delta, reason, matched in (
                ({"role": "assistant", "content": ""}, None, None),
                ({"content": "1, 2, 3, 4, "}, None, None),
                ({"reasoning_content": None}, "stop", "5"),
            )
        ),
        b"data: [DONE]\n\n",
    ],
    headers={"Content-Type": "text/event-stream"},
)
"""A stream in its shape: none with a stop sequence was recorded."""


@both
@pytest.mark.parametrize(("engine", "preset"), [(VLLM, "vllm"), (SGLANG, "sglang")])
async def test_a_server_that_names_the_sequence_gets_it(engine: str, preset: str, stream: bool) -> None:
    """R29.5: the client of another protocol is told what the server said, and the server stops by itself."""
    said = SGLANG_STREAM if stream and engine == SGLANG else answered(engine, "stop_stream" if stream else "stop")
    body = {"max_tokens": 32, "messages": USER, "stop_sequences": ["5"], "stream": stream}
    async with Upstream([said]) as up, serving(upstream_config(up.url, backend={"preset": preset})) as server:
        answer = await post(server, body, path=MESSAGES)
    assert up.posts[0].json["stop"] in ("5", ["5"])
    message = accumulate(answer.body) if stream else answer.json()
    assert message["content"] == [{"type": "text", "text": "1, 2, 3, 4, "}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "5")
    if not stream:
        assert message["usage"]["output_tokens"] == 13


@both
@pytest.mark.parametrize(("kind", "own"), [("openai_completions", "\nUser:"), ("openai_chat", "<|eot|>")])
async def test_a_sequence_that_is_not_the_clients_is_not_named(kind: str, own: str, stream: bool) -> None:
    """One that the gateway sends itself, and one that the server has for its model."""
    choice = {"index": 0, "finish_reason": "stop", "stop_reason": own}
    whole = page({"choices": [{**choice, "text": "hi", "message": {"role": "assistant", "content": "hi"}}]})
    streamed = Answer(
        [frame({"choices": [{**choice, "text": "hi", "delta": {"content": "hi"}}]}), b"data: [DONE]\n\n"],
        headers={"Content-Type": "text/event-stream"},
    )
    body = {"max_tokens": 32, "messages": USER, "stop_sequences": ["5"], "stream": stream}
    backend = {"preset": "vllm", "kind": kind}
    async with (
        Upstream([streamed if stream else whole]) as up,
        serving(upstream_config(up.url, backend=backend)) as server,
    ):
        answer = await post(server, body, path=MESSAGES)
    message = accumulate(answer.body) if stream else answer.json()
    assert message["content"] == [{"type": "text", "text": "hi"}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert "5" in up.posts[0].json["stop"]


@both
async def test_an_answer_that_no_sequence_ended_names_none(stream: bool) -> None:
    """SGLang gives the token that ended it in the same field."""
    said = answered(SGLANG, "text_stream_usage" if stream else "stop_20")
    body = {"max_tokens": 32, "messages": USER, "stop_sequences": ["5"], "stream": stream}
    async with Upstream([said]) as up, serving(upstream_config(up.url, backend={"preset": "sglang"})) as server:
        answer = await post(server, body, path=MESSAGES)
    message = accumulate(answer.body) if stream else answer.json()
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)


@pytest.mark.parametrize(("preset", "takes"), [("vllm", 4), ("sglang", 6), ("transformers", 0), ("llamacpp", 6)])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_what_a_server_cannot_apply_is_not_sent(preset: str, takes: int, path: str) -> None:
    """vLLM refuses more than four; `transformers serve` would leave the sequence in the text; llama.cpp would not say
    to a Messages client which one it was."""
    asked = [f"#{number}" for number in (range(6) if path == MESSAGES else range(2, 6))]
    key = "stop_sequences" if path == MESSAGES else "stop"
    expected = 0 if preset == "llamacpp" and path == MESSAGES else takes
    body = {"max_tokens": 32, "messages": USER, key: asked}
    async with (
        Upstream([Say("One #5 two")]) as up,
        serving(upstream_config(up.url, backend={"preset": preset})) as server,
    ):
        answer = await post(server, body, path=path)
    assert (up.posts[0].json.get("stop") or []) == asked[:expected]
    if expected < len(asked):
        text = answer.json()["content"][0]["text"] if path == MESSAGES else text_of(answer, stream=False)[0]
        assert text == "One "
        assert path != MESSAGES or answer.json()["stop_sequence"] == "#5"


# --- counts ---------------------------------------------------------------------------------------------------------


def usage_in(event: Any) -> Any:
    """What an event says of the tokens, wherever its protocol has it."""
    places = (event, event.get("message"), event.get("response")) if isinstance(event, dict) else ()
    return next((place["usage"] for place in places if place and place.get("usage")), None)


STREAMS = [
    (VLLM, "text_stream_usage"),
    (VLLM, "text_stream_usage_continuous"),
    (SGLANG, "text_stream_usage"),
    (LLAMACPP, "text_stream_usage_continuous"),
    (TRANSFORMERS, "text_stream_usage"),
]


@every("recorded, way", first_and_in_turn(STREAMS, product((CHAT, MESSAGES, "/v1/responses"), (False, True))))
async def test_what_the_server_counted_is_logged_and_told(
    caplog: pytest.LogCaptureFixture, recorded: tuple[str, str], way: tuple[str, bool]
) -> None:
    """R29.6, also where bytes pass: a chat client that asked for nothing the gateway has to write. With limits they are
    read on the side."""
    (engine, name), (path, limited) = recorded, way
    caplog.clear()
    caplog.set_level("INFO", "toolwire.access")
    asked = {"messages": USER, "stream_options": {"include_usage": True}}
    body = {"input": "hi"} if path == "/v1/responses" else asked if path != MESSAGES else {"messages": USER}
    config = {"rate_limits": {"per_key": {"tokens_per_min": 1000}}} if limited else {}
    async with Upstream([answered(engine, name)]) as up, serving(upstream_config(up.url, **config)) as server:
        answer = await post(server, {"max_tokens": 32, "stream": True, **body}, path=path)
    (line,) = (record for record in caplog.records if record.name == "toolwire.access")
    fields = vars(line)["fields"]
    assert (fields["input_tokens"], fields["output_tokens"], fields["usage_source"]) == (35, 2, "backend")
    counts: dict[str, Any] = {}
    for event in answer.frames():
        counts |= usage_in(event) or {}
    read = counts.get("prompt_tokens") or counts["input_tokens"] + counts.get("cache_read_input_tokens", 0)
    assert (read, counts.get("completion_tokens") or counts["output_tokens"]) == (35, 2)
