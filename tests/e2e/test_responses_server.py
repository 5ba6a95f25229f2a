"""A server that speaks Responses, behind clients of each protocol: what it is asked, to the byte, and what its answers
mean, whatever it leaves out; and its healthy streams, which pass as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from tests.cases import every
from tests.e2e.conftest import CHAT, function, get, post, serving, upstream_config
from tests.e2e.meaning import MESSAGES, RESPONSES, Told, ended, every_client, failed, history, meant
from tests.e2e.speaking import JSON, SSE
from tests.e2e.speaking import speaking as speaking_by
from tests.protocols.responses_wires import RESPONSES as WIRE
from tests.protocols.responses_wires import frame, options
from toolwire.config import GatewayConfig
from toolwire.model import ModelReply, Reasoning, ReplyChoice, Text, ToolUse, Usage, scoped
from toolwire.testing import Answer, Asked, Refuse, Upstream, WireAnswer

GOLDEN_STREAMS = Path(__file__).parents[1] / "golden"
THOUGHT = Reasoning("hm", scoped("responses", {"encrypted_content": "c2VjcmV0", "id": "rs_up"}))
CALL = ToolUse("call_up", "read", '{"path":"a"}')
USAGE = Usage(9, 4, 2, reasoning_tokens=1)
CALLING = ModelReply(
    "resp_up", "up", 1, (ReplyChoice((THOUGHT, Text("Reading."), CALL), "tool_calls"),), USAGE, {"completed_at": 2}
)
TEXT = ModelReply("resp_up", "up", 1, (ReplyChoice((Text("Hello."),), "stop"),), USAGE, {"completed_at": 2})
PASSING = {"input": "hi", "store": False, "stream": True}
"""Nothing is to be done but to hand bytes on."""


def whole(resource: Any) -> Answer:
    return Answer([resource if isinstance(resource, bytes) else orjson.dumps(resource)], headers=JSON, framing="length")


def streamed(data: bytes, pieces: int = 1) -> Answer:
    size = -(-len(data) // pieces)
    return Answer([data[at : at + size] for at in range(0, len(data), size)], headers=SSE)


def speaking(reply: ModelReply, *, contrary: bool = False) -> Callable[[Asked], Answer]:
    """A Responses server; a contrary one streams what is not to be, and the other way round."""
    return speaking_by(WIRE, reply, options=options(), contrary=contrary)


def saying(*items: dict[str, Any], events: bytes | None = None, **fields: Any) -> Callable[[Asked], Answer]:
    """A server that answers with these items; streamed it gives `events`, or no more than its last event."""
    resource = {
        "id": "resp_up",
        "object": "response",
        "status": "completed",
        "model": "up",
        "output": [*items],
        **fields,
    }
    end = frame({"type": f"response.{resource['status']}", "response": resource})

    def answer(asked: Asked) -> Answer:
        return streamed((events or b"") + end) if asked.json.get("stream") else whole(resource)

    return answer


def behind(
    up: Upstream, mode: str = "native", *, backend: dict[str, Any] | None = None, **defaults: Any
) -> GatewayConfig:
    told = {"kind": "openai_responses", "api_key": "k1", **(backend or {})}
    return upstream_config(up.url, backend=told, defaults={"mode": mode, **defaults})


READ = function("read", path="string")["function"]
TOOLS: dict[str, Any] = {
    CHAT: [{"type": "function", "function": READ}],
    RESPONSES: [{"type": "function", **READ}],
    MESSAGES: [{"name": "read", "description": "Does read.", "input_schema": READ["parameters"]}],
}


def body(path: str, stream: bool = False, **fields: Any) -> dict[str, Any]:
    """A request of one text, with the tool `read`."""
    if path == RESPONSES:
        asked: dict[str, Any] = {"input": "hi"}
    else:
        asked = {"messages": [{"role": "user", "content": "hi"}]}
        if path == MESSAGES:
            asked["max_tokens"] = 64
        elif stream:
            asked["stream_options"] = {"include_usage": True}
    return {**asked, "tools": TOOLS[path], "stream": stream, **fields}


async def ask(
    answer: Any, asked: dict[str, Any], *, path: str, mode: str = "native", backend: Any = None, **defaults: Any
) -> tuple[WireAnswer, Upstream]:
    async with Upstream([answer]) as up, serving(behind(up, mode, backend=backend, **defaults)) as server:
        return await post(server, asked, path=path), up


async def ask_all(answer: Any, asking: Any = body, **how: Any) -> list[Told]:
    """The same of every client, whole and streamed."""
    return await every_client(answer, behind, asking, **how)


# --- what it means --------------------------------------------------------------------------------------------------


@every("contrary", [False, True])
async def test_an_answer_means_the_same_to_each_client(contrary: bool) -> None:
    answers = await ask_all(speaking(CALLING, contrary=contrary))
    unkept = await ask_all(
        speaking(CALLING, contrary=contrary), lambda *way: body(*way, store=False), paths=[RESPONSES]
    )
    for path, stream, answer, asked in answers + unkept:
        assert meant(path, answer, stream) == ("Reading.", [("read", {"path": "a"})], "hm", 9)
        assert ended(path, answer, stream) == "tool_calls"
        assert (asked.path, asked.headers["authorization"]) == ("/v1/responses", "Bearer k1")
        assert (asked.json["store"], asked.json["tools"][0]["name"]) == (False, "read")
    assert len(answers) == len({id(told.asked) for told in answers}), "each is asked once"


MESSAGE = {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
FUNCTION = {"type": "function_call", "id": "f1", "call_id": "call_up", "name": "read", "arguments": '{"path":"a"}'}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}


def done(*items: dict[str, Any]) -> bytes:
    """Events that say no more than that items are done."""
    return b"".join(
        frame({"type": "response.output_item.done", "output_index": index, "item": item})
        for index, item in enumerate(items)
    )


async def test_a_built_in_tool_is_seen_at_work() -> None:
    """Also where calls are looked for in the text beside it."""
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**SEARCH, "status": "in_progress"}}
    kinds = [f"response.web_search_call.{how}" for how in ("in_progress", "searching", "completed")]
    going_on = [{"type": kind, "output_index": 0, "item_id": "ws_1"} for kind in kinds]
    events = b"".join(map(frame, [begun, *going_on])) + done(SEARCH)
    asked = body(RESPONSES, stream=True, tools=[*TOOLS[RESPONSES], {"type": "web_search"}])
    answer, up = await ask(saying(SEARCH, MESSAGE, FUNCTION, events=BEGUN + events), asked, path=RESPONSES)
    seen = answer.frames()
    assert [event["type"] for event in seen[2:7]] == [begun["type"], *kinds, "response.output_item.done"]
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    assert seen[6]["item"] == seen[-1]["response"]["output"][0] == SEARCH
    assert up.requests[0].json["tools"] == asked["tools"]


@every("mode", ["prompt", "native"])
async def test_what_it_thinks_between_tags_is_no_text_where_the_answer_is_written_anew(mode: str) -> None:
    """R7.8, also without tools. Only bytes that pass keep such text as it is (R1.6)."""
    says = speaking(replace(TEXT, choices=(ReplyChoice((Text("<think>Let me see.</think>Hello."),), "stop"),)))
    async with Upstream([says]) as up, serving(behind(up, mode)) as server:
        for stream in (False, True):
            answer = await post(server, {"input": "hi", "stream": stream}, path=RESPONSES)
            resource = answer.frames()[-1]["response"] if stream else answer.json()
            said = [(item["type"], item["content"][0]["text"]) for item in resource["output"]]
            assert said == [("reasoning", "Let me see."), ("message", "Hello.")]
            assert answer.body.count(b"event: response.reasoning_text.done") == stream
            if mode == "native":
                answer = await post(server, {**PASSING, "stream": stream}, path=RESPONSES)
                assert b"<think>Let me see.</think>Hello." in answer.body


# --- bytes that pass ------------------------------------------------------------------------------------------------


async def test_healthy_answers_pass_as_they_are() -> None:
    """The end of a stream is `response.completed`, or `response.incomplete`: nothing was broken off, and nothing is
    added. What stands behind it does not count."""
    complete, incomplete = (
        (GOLDEN_STREAMS / f"responses-{name}.sse").read_bytes() for name in ("all-kinds", "incomplete")
    )
    late = b'data: {"type":"error","error":{"message":"late"}}\n\ndata: [DONE]\n\n'
    cases = [(streamed(data, pieces), data) for data in (complete, incomplete) for pieces in (1, 7, 400)]
    cases.append((streamed(complete + late), complete))
    reply = WIRE.write_reply(CALLING, options())
    cases.append((whole(reply), reply))
    async with Upstream([answer for answer, _ in cases]) as up, serving(behind(up)) as server:
        for number, (_, wanted) in enumerate(cases):
            asked = {"model": "m", **PASSING, "stream": wanted is not reply, "odd": {"kept": 1}}
            answer = await post(server, asked, path=RESPONSES)
            assert (answer.status, answer.body) == (200, wanted), f"case {number}"
            assert up.requests[-1].json == asked, "the client's own bytes"
    assert len(up.requests) == len(cases)


# --- errors ---------------------------------------------------------------------------------------------------------

BURNT = "Burnt at 10.0.0.7:80."
NESTED = {
    "type": "error",
    "sequence_number": 2,
    "error": {"type": "server_error", "code": "server_error", "message": BURNT},
}
FLAT = {"type": "error", "sequence_number": 2, "code": "server_error", "message": BURNT, "param": None}
FAILED = {
    "type": "response.failed",
    "response": {"id": "resp_up", "status": "failed", "error": {"code": "server_error", "message": BURNT}},
}
BEGUN = frame({"type": "response.created", "response": {"id": "resp_up", "status": "in_progress", "output": []}})
SPEAKING = frame({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"})


@every("late", [False, True])
@every("error", [NESTED, FLAT, FAILED])
async def test_an_error_in_a_stream(error: dict[str, Any], late: bool) -> None:
    """Before anything was said it is a status, and said once after."""
    data = BEGUN + (SPEAKING if late else b"") + frame(error)
    for path, _, answer, _ in await ask_all(streamed(data), lambda *way: body(*way, store=False), streams=[True]):
        assert answer.status == (200 if late else 502)
        assert failed(path, answer, True) == "Burnt at [address]."
        assert answer.body.count(b'"type":"response.created"') == (late and path == RESPONSES)


CODES = {
    "rate_limit_exceeded": (429, 429),
    "insufficient_quota": (429, 429),
    "server_is_overloaded": (503, 529),
    "invalid_prompt": (400, 400),
    "image_too_large": (400, 400),
    "context_length_exceeded": (400, 400),
    "vector_store_timeout": (502, 502),
}


@every("code", CODES)
async def test_what_a_failed_response_means(code: str) -> None:
    """Nothing was said, so it has the status that it would have had as one. Messages has another for one of them."""
    resource = {**FAILED["response"], "error": {"code": code, "message": "Burnt."}}

    def fails(asked: Asked) -> Answer:
        return (
            streamed(BEGUN + frame({**FAILED, "response": resource})) if asked.json.get("stream") else whole(resource)
        )

    for path, stream, answer, _ in await ask_all(fails):
        assert answer.status == CODES[code][path == MESSAGES]
        assert "Burnt." in failed(path, answer, stream)


async def test_another_try_where_that_may_help() -> None:
    retry = {"attempts": 2, "backoff_s": 0}
    async with Upstream([whole(FAILED["response"]), speaking(TEXT)]) as up, serving(behind(up, retry=retry)) as server:
        answer = await post(server, body(CHAT))
    assert meant(CHAT, answer, False)[0] == "Hello."
    assert len(up.requests) == 2


@every(
    ("status", "told", "code"),
    [(404, "model_not_found", "model_not_found"), (400, "context_length_exceeded", "context_length_exceeded")],
)
async def test_its_refusals(status: int, told: str, code: str) -> None:
    error = {"message": "No such thing.", "type": "invalid_request_error", "param": "model", "code": told}
    for path, stream, answer, _ in await ask_all(Refuse(status, body=orjson.dumps({"error": error}))):
        assert answer.status == status
        assert "No such thing." in failed(path, answer, stream)
        assert path == MESSAGES or answer.json()["error"]["code"] == code


# --- what it is asked -----------------------------------------------------------------------------------------------

HISTORY: dict[str, dict[str, Any]] = {
    CHAT: {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}]},
            {"role": "assistant", "content": "Reading.", "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "b"},
        ],
        "tools": TOOLS[CHAT],
        "tool_choice": {"type": "function", "function": {"name": "read"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 5,
        "temperature": 1.5,
        "seed": 7,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "metadata": {"a": "b"},
        "user": "me",
        "verbosity": "low",
        "logprobs": True,
        "top_logprobs": 2,
        "prediction": {"type": "content", "content": "x"},
    },
    MESSAGES: {
        "max_tokens": 64,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Reading."}, {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "b"}]},
        ],
        "tools": TOOLS[MESSAGES],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "metadata": {"user_id": "u"},
        "output_config": {"effort": "high"},
    },
    RESPONSES: {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}, {"type": "input_file", "file_id": "file_1"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
            {"type": "reasoning", "id": "rs_2", "summary": []},
            {"type": "item_reference", "id": "rs_3"},
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [{"type": "output_text", "text": "Reading.", "annotations": [{"type": "file_citation", "file_id": "file_1", "index": 0, "filename": "a"}]}]},
            {"type": "function_call", "id": "call_mine", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "b"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": "*** a"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
            {**SEARCH},
        ],
        "tools": [*TOOLS[RESPONSES], {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}}, {"type": "web_search", "filters": {"allowed_domains": ["x"]}}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
        "max_output_tokens": 20,
        "odd": 1,
    },
}  # fmt: skip

_IMAGE = '{"type":"input_image","image_url":"data:image/png;base64,AA=="'
_TOOL = '{"type":"function","name":"read","description":"Does read.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}'
GOLDEN: dict[str, str] = {
    CHAT: '{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Look:"},' + _IMAGE + ',"detail":"low"}]},'
    '{"type":"message","role":"assistant","content":"Reading."},{"type":"function_call","arguments":"{\\"path\\":\\"a\\"}","call_id":"call_1","name":"read"},'
    '{"type":"function_call_output","call_id":"call_1","output":"b"}],"store":false,"tools":[' + _TOOL + ',"strict":false}],"tool_choice":{"type":"function","name":"read"},'
    '"parallel_tool_calls":false,"instructions":"Be brief.","metadata":{"a":"b"},"user":"me","top_logprobs":2,"temperature":1.5,"max_output_tokens":16,"reasoning":{"effort":"low"},'
    '"text":{"verbosity":"low","format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"include":["message.output_text.logprobs","reasoning.encrypted_content"]}',
    MESSAGES: '{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Look:"},' + _IMAGE + '}]},'
    '{"type":"message","role":"assistant","content":"Reading."},'
    '{"type":"function_call","arguments":"{\\"path\\":\\"a\\"}","call_id":"toolu_1","name":"read"},{"type":"function_call_output","call_id":"toolu_1","output":"b"}],'
    '"store":false,"tools":[' + _TOOL + ',"strict":false}],"tool_choice":"required","parallel_tool_calls":false,"instructions":"Be brief.","max_output_tokens":64,"reasoning":{"effort":"high"},"include":["reasoning.encrypted_content"]}',
}  # fmt: skip


@every("path", GOLDEN)
async def test_the_bytes_that_another_client_asks_for(path: str) -> None:
    answer, up = await ask(speaking(TEXT), HISTORY[path], path=path, backend={"preset": "openai"})
    assert answer.status == 200, answer.body
    assert up.requests[0].body.decode() == GOLDEN[path]


async def test_a_clients_own_body_is_for_a_server_that_keeps_nothing() -> None:
    """Without what only a server could understand that had kept what came before. Who says himself that nothing is to
    be kept knows what he sends: his bytes pass."""
    asked = {
        **HISTORY[RESPONSES],
        "input": [i for i in HISTORY[RESPONSES]["input"] if i.get("type") != "item_reference"],
    }
    items = asked["input"] = [{"type": "message", **item} for item in asked["input"]]
    call = {key: value for key, value in items[4].items() if key != "id"}
    for told in ({}, {"store": True}, {"store": None}):
        answer, up = await ask(speaking(TEXT), {**asked, **told}, path=RESPONSES, backend={"images": "true"})
        assert answer.status == 200, answer.body
        sent = up.requests[0].json
        assert sent == {"model": "m", **asked, "input": [*items[:2], items[3], call, *items[5:]], "store": False}
    raw = orjson.dumps({"model": "m", **asked, "store": False})
    async with Upstream([speaking(TEXT)]) as up, serving(behind(up, backend={"images": "true"})) as server:
        await post(server, raw, path=RESPONSES)
    assert up.requests[0].body == raw


async def test_ids_that_are_too_long_for_it() -> None:
    """Two calls never get one id, and a result has that of its call."""
    long = [f"call_{'x' * 60}{number}" for number in range(2)]
    calls = [(ident, "read", {}, "b") for ident in long]
    for path, _, answer, asked in await ask_all(
        speaking(TEXT),
        lambda path, stream: {**body(path, stream), **history(path, calls)},
        paths=(CHAT, MESSAGES),
        streams=[False],
    ):
        assert answer.status == 200, answer.body
        ids = [item["call_id"] for item in asked.json["input"] if "call_id" in item]
        assert ids[:2] == ids[2:], path
        assert len(set(ids)) == 2
        assert all(len(ident) <= 64 for ident in ids)


@every("stream", [False, True])
async def test_the_gateway_keeps_the_conversation(stream: bool) -> None:
    """The next turn has all of the one before: thoughts that only the server can read, built-in tools and what they
    did, free-form calls under a preset that knows them; and `GET` shows what the client saw."""
    thought = {"type": "reasoning", "id": "rs_up", "summary": [], "encrypted_content": "c2VjcmV0"}
    call = {"type": "custom_tool_call", "id": "ctc_up", "call_id": "call_up", "name": "patch", "input": "*** a"}
    spoken = {**MESSAGE, "content": [{"type": "output_text", "text": "Found.", "annotations": [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}]}]}  # fmt: skip
    tools = HISTORY[RESPONSES]["tools"]
    first = {"input": "Search.", "tools": tools, "stream": stream, "include": ["reasoning.encrypted_content"]}
    async with Upstream([saying(thought, SEARCH, spoken, call), speaking(TEXT)]) as up:
        config = behind(up, backend={"preset": "openai"})
        async with serving(config) as server:
            answer = await post(server, first, path=RESPONSES)
            shown = answer.frames()[-1]["response"] if stream else answer.json()
            output = {"type": "custom_tool_call_output", "call_id": shown["output"][-1]["call_id"], "output": "done"}
            again = {"previous_response_id": shown["id"], "input": [output], "tools": tools, "odd": 1}
            reference = [{"type": "item_reference", "id": "rs_of_nobody"}, {"role": "user", "content": "Go on."}]
            answered = await post(server, again, path=RESPONSES)
            more = {"previous_response_id": answered.json()["id"], "input": reference}
            assert (await post(server, more, path=RESPONSES)).status == 200
            kept = (await get(server, f"{RESPONSES}/{shown['id']}")).json()
    assert kept == shown
    assert [item["type"] for item in shown["output"]] == ["reasoning", "web_search_call", "message", "custom_tool_call"]
    assert shown["output"][1] == SEARCH
    sent = up.requests[1].json
    assert sent["input"] == [
        {"type": "message", "role": "user", "content": "Search."},
        thought,
        SEARCH,
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", **spoken["content"][0]}]},
        {
            "type": "custom_tool_call",
            "id": shown["output"][3]["id"],
            "call_id": "call_up",
            "input": "*** a",
            "name": "patch",
        },
        {"type": "custom_tool_call_output", "call_id": "call_up", "output": "done"},
    ]
    assert sent["tools"] == tools
    assert "previous_response_id" not in sent
    assert "odd" not in sent
    assert [item["type"] for item in up.requests[2].json["input"]][-1] == "message"
    assert [asked.json["store"] for asked in up.requests] == [False] * 3
