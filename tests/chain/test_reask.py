"""Asking the model again after a strict failure or without a demanded call (R9.8, R9.9), for each protocol and mode,
streamed and not: what the model is told, what the client gets, and that every attempt's usage counts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson
import pytest

from tests.e2e.conftest import CHAT
from tests.e2e.meaning import RESPONSES, ended, said
from tests.options import in_sections
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.model import ModelRequest, Text
from toolwire.testing import ScriptedBackend, WireAnswer, run_chain
from toolwire.upstream.servers.mock import ScriptedTurn

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
GOOD = '{"path":"a"}'
MADE = [{"path": "a"}]
BAD = '{"path":1}'
USED = {"input": 10, "output": 3}

PATHS = pytest.mark.parametrize("path", [CHAT, RESPONSES], ids=["chat", "responses"])
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EACH = [(CHAT, False, "prompt"), (CHAT, True, "native"), (RESPONSES, False, "native"), (RESPONSES, True, "prompt")]
"""Path, stream and mode: each pair of values once."""
IN_PAIRS = pytest.mark.parametrize(("path", "stream", "mode"), EACH)


class Turns(ScriptedBackend):
    """A model that gives one answer after the other, whatever it is asked."""

    def __init__(self, *turns: Any) -> None:
        super().__init__(turns)
        self._left = list(self._turns)

    def choose(self, request: ModelRequest, number: int) -> ScriptedTurn:
        """See `MockBackend`."""
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


def calls(mode: str, arguments: str, name: str = "look") -> dict[str, Any]:
    """A turn with one call."""
    if mode == "native":
        return {"calls": [{"name": name, "arguments": arguments}], "usage": USED}
    block = orjson.dumps({"name": name, "arguments": arguments}).decode()
    return {"text": f"<tool_call>{block}</tool_call>", "usage": USED}


def says(text: str) -> dict[str, Any]:
    return {"text": text, "usage": USED}


def body(path: str, *, stream: bool, strict: bool = True, choice: Any = "auto") -> dict[str, Any]:
    tool: dict[str, Any] = {"name": "look", "parameters": SCHEMA, "strict": strict}
    if path == CHAT:
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
        asked["tools"] = [{"type": "function", "function": tool}]
        asked["stream_options"] = {"include_usage": True} if stream else None
    else:
        asked = {"input": "hi", "tools": [{"type": "function", **tool}]}
    return {**asked, "tool_choice": choice, "stream": stream}


def config(**options: Any) -> GatewayConfig:
    backends = {"m": {"kind": "mock"}}
    return load(
        None, env={}, overrides={"store": {"kind": "memory"}, "backends": backends, "defaults": in_sections(options)}
    )


class Seen(NamedTuple):
    """What the client got, in no protocol's words."""

    status: int
    text: str = ""
    calls: Sequence[Any] = ()
    usage: tuple[int, int] = (0, 0)
    error: str | None = None


def seen_by(path: str, answer: WireAnswer, stream: bool) -> Seen:
    if answer.status != 200:
        return Seen(answer.status, error=answer.json()["error"]["code"])
    ended(path, answer, stream)
    whole: Any = answer.json() if not stream else answer.frames()[-2 if path == CHAT else -1]
    if stream:
        begun = b'"role":"assistant"' if path == CHAT else b'"type":"response.created"'
        assert answer.body.count(begun) == 1
    counts = whole.get("response", whole)["usage"]
    words = ("prompt_tokens", "completion_tokens") if path == CHAT else ("input_tokens", "output_tokens")
    text, made, _ = said(path, answer, stream)
    return Seen(200, text, [arguments for _, arguments in made], (counts[words[0]], counts[words[1]]))


async def ask(
    turns: Sequence[Any],
    path: str,
    *,
    stream: bool,
    mode: str,
    strict: bool = True,
    choice: Any = "auto",
    **options: Any,
) -> tuple[Seen, Turns]:
    backend = Turns(*turns)
    sent = body(path, stream=stream, strict=strict, choice=choice)
    answer = await run_chain(config(mode=mode, **options), sent, backend=backend, path=path)
    return seen_by(path, answer, stream), backend


def told(request: ModelRequest) -> list[tuple[str, str]]:
    """The messages behind the first question."""
    words = [(m.role, "".join(p.text for p in m.parts if isinstance(p, Text))) for m in request.messages]
    return words[[role for role, _ in words].index("user") + 1 :]


@PATHS
@WAYS
@pytest.mark.parametrize("mode", ["prompt", "native"])
async def test_every_attempt_is_told_of_those_before(path: str, stream: bool, mode: str) -> None:
    turns = [calls(mode, BAD), calls(mode, GOOD, "loook"), calls(mode, GOOD)]
    seen, backend = await ask(turns, path, stream=stream, mode=mode, reask=3)
    assert seen == Seen(200, "", MADE, (30, 9))
    assert [len(told(request)) for request in backend.requests] == [0, 2, 4]
    (role, wrote), (other, why), _, (_, then) = told(backend.requests[2])
    assert (role, other) == ("assistant", "user")
    assert '"look"' in wrote
    assert "path" in wrote
    assert "does not fit the tool's schema" in why
    assert "not on offer" in then


@PATHS
@WAYS
async def test_a_failure_that_would_be_text_is_asked_again(path: str, stream: bool) -> None:
    options = {"reask": 1, "strict_failure": "assistant_message"}
    turns = [calls("prompt", BAD), calls("prompt", GOOD)]
    seen, backend = await ask(turns, path, stream=stream, mode="prompt", **options)
    assert (seen.text, seen.calls) == ("", MADE)
    assert "does not fit" in told(backend.requests[1])[1][1]
    seen, _ = await ask(turns[:1], path, stream=stream, mode="prompt", **options)
    assert seen.text.startswith("[tool call rejected: invalid_tool_arguments:")
    assert seen.usage == (20, 6)


@IN_PAIRS
@pytest.mark.parametrize("options", [{}, {"reask": 1}, {"reask": 1, "choice_miss": "error"}])
async def test_a_missing_call_is_asked_for(path: str, stream: bool, mode: str, options: dict[str, Any]) -> None:
    turns = [says("No."), calls(mode, GOOD)]
    asked = {"strict": False, "choice": "required", "constrain": "off", **options}
    seen, backend = await ask(turns, path, stream=stream, mode=mode, **asked)
    assert (seen.text, seen.calls, seen.usage) == ("", MADE, (20, 6))
    assert told(backend.requests[1])[0] == ("assistant", "No.")
    assert "A tool has to be called." in told(backend.requests[1])[1][1]


@PATHS
@WAYS
@pytest.mark.parametrize(
    ("options", "times", "status"),
    [
        ({}, 2, 200),
        ({"choice_miss": "reask", "reask": 3}, 4, 200),
        ({"choice_miss": "error", "reask": 1}, 2, 500),
        ({"choice_miss": "pass"}, 1, 200),
    ],
)
async def test_a_call_that_stays_away(path: str, stream: bool, options: Any, times: int, status: int) -> None:
    asked = {"strict": False, "choice": "required", "constrain": "off", **options}
    seen, backend = await ask([says("No.")], path, stream=stream, mode="prompt", **asked)
    assert (seen.status, len(backend.requests)) == (status, times)
    if status == 200:
        assert (seen.text, seen.usage) == ("No.", (10 * times, 3 * times))
    else:
        assert seen.error == "tool_choice_not_satisfied"


@WAYS
async def test_what_a_client_has_seen_is_not_replaced(stream: bool) -> None:
    """R9.9: reasoning is streamed, and then the answer stands; a whole one can still be replaced."""
    turns = [{"reasoning": "Hm.", "text": "No.", "usage": USED}, calls("prompt", GOOD)]
    asked = {"strict": False, "choice": "required", "constrain": "off"}
    seen, backend = await ask(turns, CHAT, stream=stream, mode="prompt", **asked)
    assert (seen.text, seen.calls, len(backend.requests)) == (("No.", [], 1) if stream else ("", MADE, 2))


async def test_a_call_of_another_tool_is_no_missing_call() -> None:
    """Without `reask` only prose is asked for again: a call that a server made is judged by its own rules."""
    turns = [calls("native", GOOD, "other"), calls("native", GOOD)]
    seen, backend = await ask(turns, CHAT, stream=False, mode="native", strict=False, choice="required")
    assert (seen.status, len(backend.requests)) == (200, 1)


async def test_the_log_says_what_would_make_the_model_call(caplog: pytest.LogCaptureFixture) -> None:
    asked = {"strict": False, "choice": "required", "constrain": "off", "choice_miss": "pass"}
    for mode, remedy in (("prompt", "`format: bare_json`"), ("native", "`mode: text`")):
        caplog.clear()
        await ask([says("No.")], CHAT, stream=False, mode=mode, **asked)
        (line,) = [record.getMessage() for record in caplog.records if "required call" in record.getMessage()]
        assert remedy in line


@WAYS
async def test_a_server_that_fails_fails(stream: bool) -> None:
    """A broken server is no bad answer: `retry` is about it."""
    turns = [{"text": "x", "error": {"after": 1, "status": 500}}]
    seen, backend = await ask(turns, CHAT, stream=stream, mode="prompt", reask=3, retry={"attempts": 1})
    assert (seen.status, seen.error, len(backend.requests)) == (502, "upstream_error", 1)


async def test_what_was_thrown_away_is_not_counted_as_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire")
    both = {"text": calls("prompt", GOOD)["text"] + calls("prompt", BAD)["text"], "usage": USED}
    seen, _ = await ask([both, calls("prompt", GOOD)], CHAT, stream=True, mode="prompt", reask=1)
    assert seen.calls == MADE
    (access,) = [record for record in caplog.records if record.name == "toolwire.access"]
    fields = vars(access)["fields"]
    assert (fields["calls"], fields["reasks"], fields["strict_failures"]) == (1, 1, 1)
    assert (fields["input_tokens"], fields["output_tokens"]) == (20, 6)
    assert sum(record.name == "toolwire.reask" for record in caplog.records) == 1
