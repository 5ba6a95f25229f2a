"""Rows of the list: question, session, format, and requests that never were exchanges (R35.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tests.cases import every
from tests.e2e.conftest import post, read_config
from tests.inspector.inspected import CALL, MESSAGES, RESPONSES, WEATHER, answering, asked, inspecting
from toolwire.extras.capture.files import read_capture
from toolwire.extras.capture.heading import QUESTION_CHARS, question_of, session_of
from toolwire.extras.capture.recording import RecordingError
from toolwire.extras.replay.reproduction import reproduced
from toolwire.model import Message, ModelRequest, Text
from toolwire.testing import Say

KEY = "tw-a-key-that-is-long-0123456789"


def request(*said: tuple[str, str], **fields: Any) -> ModelRequest:
    messages = tuple(Message(role, (Text(text),)) for role, text in said)  # type: ignore[arg-type]
    return ModelRequest("m", messages, **fields)


REMINDER = "<system-reminder>\nToday is Friday.\n</system-reminder>\n\n"
QUESTIONS: list[tuple[ModelRequest, str]] = [
    (request(), ""),
    (request(("system", "Be kind.")), ""),
    (request(("user", "first"), ("assistant", "yes"), ("user", " the \n last  one ")), "the last one"),
    (request(("user", "a question"), ("user", REMINDER)), "a question"),
    (request(("user", REMINDER)), " ".join(REMINDER.split())),
    (request(("user", "<b> is bold, is it?")), "<b> is bold, is it?"),
    (request(("user", "x" * 10_000)), "x" * (QUESTION_CHARS - 1) + "…"),
    (ModelRequest("m", (Message("user", (Text(REMINDER), Text("read it"), Text(REMINDER))),)), "read it"),
]


def test_the_question_is_what_the_user_said_last() -> None:
    for asking, question in QUESTIONS:
        assert question_of(asking, lambda value: value) == question, asking


USER = '{"device_id":"0","session_id":"s-1"}'
SESSIONS: list[tuple[Mapping[str, str], Mapping[str, Any], str]] = [
    ({}, {}, ""),
    ({"session-id": "codex"}, {"metadata": {"user_id": USER}}, "codex"),
    ({"session_id": "older"}, {}, "older"),
    ({"x-claude-code-session-id": "claude"}, {}, "claude"),
    ({"x-session-id": "opencode"}, {}, "opencode"),
    ({"session-id": " "}, {"client_metadata": {"session_id": "s-2"}}, "s-2"),
    ({}, {"metadata": {"user_id": USER}}, "s-1"),
    ({}, {"metadata": {"user_id": "user_ab_account__session_c-d"}}, "c-d"),
    ({}, {"metadata": {"user_id": "somebody"}}, ""),
    ({}, {"metadata": {"user_id": "{}"}}, ""),
    ({}, {"metadata": {"user_id": "{"}}, ""),
    ({}, {"metadata": {"user_id": "[1]"}}, ""),
    ({}, {"metadata": {"session_id": 5}}, ""),
    ({}, {"metadata": "x", "prompt_cache_key": "key"}, "key"),
    ({}, {"prompt_cache_key": 5}, ""),
]


def test_the_session_is_the_clients() -> None:
    for headers, fields, session in SESSIONS:
        for asking in (request(extra=fields), request(protocol_fields={"messages": fields})):
            assert session_of(headers, asking, lambda value: value) == session, (headers, fields)


@every(
    ("path", "headers", "fields"),
    [
        (RESPONSES, {"session-id": "s-1"}, {}),
        (RESPONSES, {}, {"prompt_cache_key": "s-1"}),
        (MESSAGES, {"X-Claude-Code-Session-Id": "s-1"}, {}),
        (MESSAGES, {}, {"metadata": {"user_id": USER}}),
        ("/v1/chat/completions", {"x-session-id": "s-1"}, {}),
    ],
)
async def test_every_client_is_recognised(path: str, headers: dict[str, str], fields: dict[str, Any]) -> None:
    async with answering(Say(CALL)) as (gateway, _):
        _, view = await gateway.ask(asked(path, WEATHER, text="how warm is it?", **fields), path, **headers)
        (row,) = await gateway.rows()
    assert (row["session"], row["question"], row["called"]) == ("s-1", "how warm is it?", ["weather"])
    assert (view["head"]["session"], view["head"]["question"]) == ("s-1", "how warm is it?")


@every(
    ("options", "text", "read_as"),
    [
        ({}, CALL, "hermes"),
        ({}, "no", "auto"),
        ({"format": "mistral"}, CALL, "hermes"),
        ({"format": "hermes"}, "no", "hermes"),
        ({"format": "hermes"}, '```json\n{"name": "weather", "arguments": {"city": "Paris"}}\n```', "fence"),
        ({"mode": "native"}, "no", ""),
    ],
)
async def test_the_format_is_the_one_that_was_read(options: dict[str, Any], text: str, read_as: str) -> None:
    async with answering(Say(text), defaults={**options, "bad_answers": {"reask": 0}}) as (gateway, _):
        await gateway.ask(asked("/v1/chat/completions", WEATHER))
        (row,) = await gateway.rows()
    assert row["read_as"] == read_as


async def test_secrets_are_covered() -> None:
    async with answering(Say("no")) as (gateway, _):
        await gateway.ask(asked(text=f"my key is {KEY}"), **{"session-id": KEY})
        (row,) = await gateway.rows()
    assert KEY not in orjson.dumps(row).decode()
    assert row["question"].startswith("my key is ***")


async def test_requests_that_were_refused_or_passed_through_are_listed() -> None:
    sent = {"Content-Type": "application/json"}
    async with answering(Say("hello"), server={"pass_through": ["/v1/embeddings"]}) as (gateway, _):
        for path, body in (
            ("/v1/chat/completions", b"{"),
            ("/v1/chat/completions", b'{"model": "m"}'),
            ("/v1/v1/responses", b"{}"),
            ("/v1/embeddings", b'{"model": "m", "input": "x"}'),
        ):
            await gateway.fetch("POST", path, data=body, headers=sent)
        await gateway.fetch("PUT", "/v1/chat/completions")
        await gateway.fetch("GET", "/inspect/api/exchanges/none")
        rows = await gateway.rows()
        for row in rows:
            assert (await gateway.get(f"exchanges/{row['exchange_id']}"))[1]["why"] == row["why"]
        content = (await gateway.fetch("GET", f"/inspect/api/exchanges/{rows[3]['exchange_id']}/capture")).body
    assert b'\\"input\\": \\"x\\"' in content
    with pytest.raises(RecordingError, match="passed through unread at /v1/embeddings"):
        await reproduced(read_capture(content))
    assert [(row["status"], row["code"], row["path"]) for row in rows] == [
        (400, "invalid_json", "/v1/chat/completions"),
        (400, "missing_required_parameter", "/v1/chat/completions"),
        (404, "not_found", "/v1/v1/responses"),
        (200, None, "/v1/embeddings"),
        (405, "method_not_allowed", "/v1/chat/completions"),
    ]
    assert [row["verdict"] for row in rows] == ["refused", "refused", "refused", None, "refused"]
    assert (
        rows[1]["why"]
        == "The gateway refused the request: Missing required parameter: 'messages' (missing_required_parameter)."
    )


async def test_a_model_that_is_not_served() -> None:
    routes = [{"model": "m", "backend": "up"}]
    async with answering(Say("hello"), routes=routes, defaults={"requests": {"unknown_model": "error"}}) as (
        gateway,
        _,
    ):
        got = await post(gateway.server, {**asked(), "model": "gpt-9"})
        (row,) = await gateway.rows()
    assert (got.status, row["status"], row["model"], row["verdict"]) == (404, 404, "gpt-9", "refused")
    assert "gpt-9" in row["why"]


async def test_only_an_admin_sees_requests_without_a_valid_key() -> None:
    keys = [{"key": KEY, "name": "her"}, {"key": f"{KEY}-admin", "name": "admin", "admin": True}]
    config = {"inspect": True, "backends": {"mock": {"kind": "mock", "script": ["hello"]}}, "auth": {"keys": keys}}
    wrong = "tw-wrong-key-0123456789abcdef"
    async with inspecting(read_config(config)) as gateway:
        await post(gateway.server, asked(), headers={"Authorization": f"Bearer {wrong}"})
        await post(gateway.server, {**asked(), "messages": 5}, headers={"Authorization": f"Bearer {KEY}"})
        hers = await gateway.rows(Authorization=f"Bearer {KEY}")
        everyones = await gateway.rows(Authorization=f"Bearer {KEY}-admin")
    assert [row["code"] for row in hers] == ["invalid_type"]
    assert [row["code"] for row in everyones] == ["invalid_api_key", "invalid_type"]
    assert wrong not in orjson.dumps(everyones).decode()
