"""Responses over real sockets, event for event: every kind of answer of a model server that only writes text, whole and
streamed, and requests of real clients. What holds for all of them is in `responses_answers`; here stands what each must
say. Answers of servers that do tools by themselves: `test_every_pair.py`, `tests/protocols/test_corners_*.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from tests.cases import every, named
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, gateway_before, post, upstream_config
from tests.e2e.responses_answers import PUBLISHED, RESPONSES, Said, ask, of_stream, of_whole, outline, tool
from tests.protocols.published import SHARED, captured_responses_requests, published_schema, validator
from toolwire.testing import Say, Upstream

READ = tool("read_file", path="string")
WRITE = tool("write_file", path="string", content="string")
LIST = tool("list_files")
TOOLS = [READ, WRITE, LIST]
PATCH = {"type": "custom", "name": "apply_patch", "description": "Applies a patch."}
GROUPS = [{"type": "namespace", "name": name, "description": name, "tools": [READ]} for name in ("a", "b")]
HOSTED = [
    {"type": "web_search"},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "mcp", "server_label": "files", "server_url": "https://example.com/mcp"},
    {"type": "image_generation"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
]
ODD = 'ü 🚀 日本語 \u2028 "quoted" \\ </tool_call> \t'
A = block("read_file", {"path": "a.txt"})
B = block("write_file", {"path": "b.txt", "content": ODD})
CALL_A: Said = ("call", "read_file", '{"path": "a.txt"}')
CALL_B: Said = ("call", "write_file", json.dumps({"path": "b.txt", "content": ODD}, ensure_ascii=False))

NAMED = {"type": "function", "name": "read_file"}


def test_the_published_schemas_are_there() -> None:
    """Without them the tests below check less, and this one says so."""
    if not PUBLISHED:
        pytest.skip(f"the published schemas are not at {SHARED}; set TOOLWIRE_SHARED")
    jsonschema.Draft202012Validator.check_schema(published_schema("ResponseStreamEvent"))
    with pytest.raises(jsonschema_rs.ValidationError):
        validator("ResponseStreamEvent").validate({"type": "response.output_text.delta", "sequence_number": "1"})


# --- answers of a server that only writes text ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a model writes, and what the client must get. `reason` is that of an incomplete answer."""

    text: str
    got: list[Said]
    request: dict[str, Any] = field(default_factory=lambda: {"tools": TOOLS})
    finish: str = "stop"
    reason: str | None = None


CASES = {
    "text": Case(text=f"Hello, {ODD}", got=[("text", f"Hello, {ODD}")], request={}),
    "nothing": Case(text="", got=[]),
    "only white": Case(text=" \n", got=[("text", " \n")]),
    "a call": Case(text=A, got=[CALL_A]),
    "text all around": Case(
        text=f"One.\n{A}\nTwo. {B}\n\nThree.",
        got=[("text", "One."), CALL_A, ("text", "\nTwo."), CALL_B, ("text", "\nThree.")],
    ),
    "parallel": Case(text=f"{A}\n{B}\n{A}", got=[CALL_A, CALL_B, CALL_A]),
    "not parallel": Case(text=f"{A}\n{B}", got=[CALL_A], request={"tools": TOOLS, "parallel_tool_calls": False}),
    "thinking": Case(
        text=f"<think>Hm. {A}</think>Yes.\n{A}", got=[("reasoning", f"Hm. {A}"), ("text", "Yes."), CALL_A]
    ),
    "no call is allowed": Case(text=A, got=[("text", A)], request={"tools": TOOLS, "tool_choice": "none"}),
    "no tools": Case(text=f"{A} and {B}", got=[("text", f"{A} and {B}")], request={}),
    "custom": Case(
        text=block("apply_patch", {"input": f"*** Begin\n+{ODD}\n"}),
        got=[("custom", "apply_patch", f"*** Begin\n+{ODD}\n")],
        request={"tools": [READ, PATCH]},
    ),
    "named": Case(text=A, got=[CALL_A], request={"tools": TOOLS, "tool_choice": NAMED}),
    "named, another": Case(text=B, got=[("text", B)], request={"tools": TOOLS, "tool_choice": NAMED}),
    "allowed": Case(
        text=f"{A} {B}",
        got=[CALL_A, ("text", B)],
        request={"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
    ),
    "groups": Case(
        text=block("b__read_file", {"path": "1"}) + block("a__read_file", {"path": "2"}) + A,
        got=[("call", "b", "read_file", '{"path": "1"}'), ("call", "a", "read_file", '{"path": "2"}'), CALL_A],
        request={"tools": [*GROUPS, READ]},
    ),
    "hosted": Case(text=A, got=[CALL_A], request={"tools": [*HOSTED, READ]}),
    "length": Case(text="Half an", got=[("text", "Half an")], finish="length", reason="max_output_tokens"),
    "length inside a call": Case(
        text=f"One. {A[:40]}", got=[("text", "One.")], finish="length", reason="max_output_tokens"
    ),
    "length after a call": Case(text=f"{A} and", got=[CALL_A, ("text", "and")], finish="length"),
    "a filter": Case(text="I", got=[("text", "I")], finish="content_filter", reason="content_filter"),
}


async def test_every_answer() -> None:
    texts = {name: [case.text[i : i + 5] for i in range(0, len(case.text), 5)] for name, case in CASES.items()}
    script = [Say(*texts[name], finish=case.finish) for name, case in CASES.items() for _ in (False, True)]
    async with gateway_before(script, defaults={"bad_answers": {"choice_miss": "pass"}}) as (server, _):
        for name, case in CASES.items():
            for stream in (False, True):
                answer = await ask(server, input=f"<{name}>", stream=stream, **case.request)
                with named({"name": name, "stream": stream}):
                    resource = of_stream(answer).resource if stream else of_whole(answer)
                    assert outline(resource) == case.got
                    check_end(resource, case.reason)


def check_end(resource: Any, reason: str | None) -> None:
    """How an answer ended, and what is there only at the end (R8.12, R11.1)."""
    assert resource["error"] is None
    statuses = [item["status"] for item in resource["output"] if "status" in item]
    if reason is None:
        assert (resource["status"], resource["incomplete_details"]) == ("completed", None)
        assert resource["completed_at"] >= resource["created_at"]
        assert set(statuses) <= {"completed"}
    else:
        assert (resource["status"], resource["incomplete_details"]) == ("incomplete", {"reason": reason})
        assert resource["completed_at"] is None
        assert statuses[-1:] in ([], ["incomplete"])
    usage = resource["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"]
    assert set(usage["input_tokens_details"]) == {"cached_tokens", "cache_write_tokens"}
    assert set(usage["output_tokens_details"]) == {"reasoning_tokens"}


# --- options ----------------------------------------------------------------------------------------------------------


async def test_tools_in_chats_shape_are_echoed_in_that_of_responses(gateway: Gateway) -> None:
    """R3.1, also inside of a group."""
    chats = {"type": "function", "function": {"name": "read_file", "description": "Reads.", "parameters": {}}}
    flat = {"type": "function", "name": "read_file", "description": "Reads.", "parameters": {}}
    server = await gateway(script=["ok"])
    made = of_whole(await ask(server, tools=[chats, {**GROUPS[0], "tools": [chats]}]))
    assert made["tools"] == [{**flat, "strict": None}, {**GROUPS[0], "tools": [flat]}]


async def test_the_end_is_as_it_is_asked_for(gateway: Gateway) -> None:
    """C38: one `[DONE]` after the terminal event, and no `error` before it; without the options it is the other way
    round, which `of_stream` checks."""
    server = await gateway(script=["Hello."], responses={"done_marker": True})
    answer = await ask(server, stream=True)
    assert of_stream(answer, marker=True).resource["status"] == "completed"
    async with Upstream([Say("Hel", cut=True)]) as upstream:
        config = upstream_config(upstream.url, defaults={"responses": {"done_marker": True, "error_event": False}})
        answer = await ask(await gateway(config), stream=True)
    got = of_stream(answer, marker=True)
    assert got.resource["error"]["message"].startswith("upstream_disconnected: ")
    assert "error" not in got.kinds


# --- real clients -----------------------------------------------------------------------------------------------------

CAPTURED = captured_responses_requests()


def body_of(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_bytes())
    return value.get("body", value)


def test_there_are_captured_requests() -> None:
    if not SHARED.exists():
        pytest.skip(f"no captured requests at {SHARED}; set TOOLWIRE_SHARED")
    assert any("codex-" in path.name for path in CAPTURED)
    assert len(CAPTURED) >= 10


@every("mode", ["prompt", "native"])
async def test_every_captured_request_is_served(mode: str) -> None:
    """As it was sent, streamed if it asked for that. To a server that only writes text nothing goes out that a strict
    template would refuse, and every result goes out once (R5.8, R5.11)."""
    async with gateway_before([Say("ok")], defaults={"mode": mode}) as (server, upstream):
        for path in CAPTURED:
            body = body_of(path)
            answer = await post(server, without_previous(body), path=RESPONSES)
            with named({"path": path}):
                resource = of_stream(answer).resource if body.get("stream") else of_whole(answer)
                assert (resource["status"], outline(resource)) == ("completed", [("text", "ok")])
                assert resource["store"] == (body.get("store") is not False)
                assert len(resource["tools"]) == len(body.get("tools") or ())
                if mode == "prompt":
                    fits_texts(body, upstream.requests[-1].json)


def fits_texts(body: dict[str, Any], sent: dict[str, Any]) -> None:
    assert set(sent) <= {"model", "messages", "stream", "stream_options", "temperature", "top_p", "max_tokens"} | {
        "max_completion_tokens", "reasoning_effort", "response_format",
    }  # fmt: skip
    assert {message["role"] for message in sent["messages"]} <= {"system", "user", "assistant"}
    assert not any("tool_calls" in message for message in sent["messages"])
    assert sent["messages"][-1]["role"] == "user"
    transcript = json.dumps(sent["messages"])
    outputs = [item for item in body["input"] if "output" in item] if isinstance(body["input"], list) else []
    assert transcript.count("<tool_response") == len(outputs)


def without_previous(body: dict[str, Any]) -> dict[str, Any]:
    """A recording names a response that only the server of that day knew."""
    return {key: value for key, value in body.items() if key != "previous_response_id"}
