"""Every client protocol in front of every kind of backend: each cell of the table in `docs/pairs.py`.

A kind is tried as soon as it is registered: what speaks a protocol over HTTP is scripted in its own words, written by
its own server side, so nothing here knows one by its name. Any other needs a double (`DOUBLES`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp.test_utils import TestServer

from docs.pairs import ENDS, OUTCOMES, modes_of
from tests import codex_double
from tests.e2e.agent import block
from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.meaning import PATHS, RESPONSES, asking, chunks_of, failed, meant
from tests.e2e.speaking import JSON, OPTIONS, SSE, speaking
from tests.waiting import GUARD_S
from toolwire.events import BlockKind, Delta, Open, Start
from toolwire.model import ModelReply, ReplyChoice, Text, ToolUse, Usage
from toolwire.protocols.base import ServerSide
from toolwire.registry import BACKENDS, CLIENT_PROTOCOLS, SERVER_PROTOCOLS, usual_server
from toolwire.testing import Answer, Asked, Refuse, Upstream, WireAnswer

CALLS: Final[dict[str, list[tuple[str, Any]]]] = {
    "text": [],
    "one call": [("read", {"path": 'ü "a"\\\n'})],
    "several calls": [("read", {"path": "a"}), ("read", {"path": "b"})],
}
"""What the model calls, by outcome."""
SAID: Final = {"text": "Hello, wörld.", "one call": "Reading.", "several calls": ""}
PIECE: Final = "Half an ans"


# --- servers --------------------------------------------------------------------------------------------------------


def over_http(wire: ServerSide, outcome: str, mode: str) -> Callable[[Asked], Answer]:
    """A server that speaks this protocol."""
    if outcome in CALLS:
        return speaking(wire, reply(outcome, mode))

    def answer(asked: Asked) -> Answer:
        if outcome == "an error":
            return Refuse(500, "Burnt.")
        if asked.json.get("stream") is True:
            begun = [Start("", "m", 1), Open(0, BlockKind.TEXT), Delta(0, PIECE)]
            return Answer([wire.writer(OPTIONS).feed(begun)], headers=SSE, cut=True)
        whole = wire.write_reply(reply("text", "prompt"), OPTIONS)
        return Answer([whole[: len(whole) // 2]], headers=JSON, cut=True)

    return answer


def reply(outcome: str, mode: str) -> ModelReply:
    """What the model answers: its calls as such, or as text."""
    calls = CALLS[outcome]
    if mode == "native":
        uses = [
            ToolUse(f"call_{number}", name, orjson.dumps(given).decode()) for number, (name, given) in enumerate(calls)
        ]
        parts = (*([Text(SAID[outcome])] if SAID[outcome] else ()), *uses)
        return ModelReply("", "m", 1, (ReplyChoice(parts, "tool_calls" if uses else "stop"),), Usage(9, 4))
    return ModelReply("", "m", 1, (ReplyChoice((Text(taught(outcome)),), "stop"),), Usage(9, 4))


def taught(outcome: str) -> str:
    return "\n".join([*([SAID[outcome]] if SAID[outcome] else ()), *(block(*call) for call in CALLS[outcome])])


def mock(outcome: str, mode: str, folder: Path) -> dict[str, Any]:
    """The same of the mock: its section of the configuration."""
    match outcome:
        case "an error":
            turn: dict[str, Any] = {"error": {"status": 500, "message": "Burnt."}}
        case "a cut":
            turn = {"text": PIECE + "wer", "error": {"after": len(PIECE)}}
        case _ if mode != "native":
            turn = {"text": taught(outcome)}
        case _:
            calls = [{"name": name, "arguments": given} for name, given in CALLS[outcome]]
            turn = {"text": SAID[outcome], "calls": calls}
    return {"script": [{"usage": {"input": 9, "output": 4}, **turn}]}


def codex(outcome: str, mode: str, folder: Path) -> dict[str, Any]:
    """And of a Codex app-server, behind the pipes of a process."""
    counts = {"totalTokens": 13, "inputTokens": 9, "outputTokens": 4}
    match outcome:
        case "an error":
            turn: list[Any] = [{"fail": {"message": "Burnt."}}]
        case "a cut":
            turn = [PIECE, {"die": 1}]
        case _ if mode != "native":
            turn = [taught(outcome)]
        case _:
            turn = [SAID[outcome], {"close": True}] if SAID[outcome] else []
            made = enumerate(CALLS[outcome])
            turn += [{"call": [f"call_{at}", name, orjson.dumps(given).decode()]} for at, (name, given) in made]
            turn += [{"called": True, "usage": counts}, {"wait": True}] if CALLS[outcome] else []
    if outcome in CALLS and (mode == "prompt" or not CALLS[outcome]):
        turn.append({"usage": {**counts, "cachedInputTokens": 0, "reasoningOutputTokens": 0}})
    return {"command": codex_double.behind_pipes({"turns": [turn]}, folder), "timeouts": {"connect_s": GUARD_S}}


DOUBLES: Final[dict[str, Callable[[str, str, Path], dict[str, Any]]]] = {"mock": mock, "codex_app_server": codex}
"""Of kinds that do not speak over HTTP."""


# --- cells ----------------------------------------------------------------------------------------------------------

KINDS: Final = (*SERVER_PROTOCOLS, *BACKENDS)
ROWS: Final = [(kind, mode, outcome) for kind in KINDS for mode in modes_of(kind) for outcome in OUTCOMES]


@asynccontextmanager
async def gateway(kind: str, mode: str, outcome: str, folder: Path) -> AsyncIterator[TestServer]:
    """A gateway in front of a server of this kind."""
    async with AsyncExitStack() as stack:
        if kind in SERVER_PROTOCOLS:
            turn = over_http(usual_server(kind), outcome, mode)
            section = {"url": (await stack.enter_async_context(Upstream([turn]))).url}
        else:
            section = DOUBLES[kind](outcome, mode, folder)
        config = read_config({"backends": {"up": {"kind": kind, **section}}, "defaults": {"mode": mode}})
        yield await stack.enter_async_context(serving(config))


def body(client: str, stream: bool) -> dict[str, Any]:
    return asking(PATHS[client], stream)


@pytest.mark.parametrize(("kind", "mode", "outcome"), ROWS)
async def test_the_cells_of_a_row(
    kind: str, mode: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolwire.extras.codex_app.rpc.ANSWER_S", GUARD_S)  # a slow machine starts a process late
    async with gateway(kind, mode, outcome, tmp_path) as server:
        for client, stream in product(CLIENT_PROTOCOLS, (False, True)):
            check(kind, outcome, client, stream, await post(server, body(client, stream), path=PATHS[client]))


def check(kind: str, outcome: str, client: str, stream: bool, answer: WireAnswer) -> None:
    path = PATHS[client]
    wanted = ENDS[outcome][client][stream]
    if kind == "mock":  # there is nothing that could be cut: it says that it fails
        wanted = wanted.replace("upstream_disconnected", "upstream_error")
    assert end_of(path, answer, stream) == wanted, (client, stream)
    if outcome in CALLS:
        text, *rest = meant(path, answer, stream)
        assert [text.strip(), *rest] == [SAID[outcome], CALLS[outcome], "", 9], (client, stream)
    elif outcome == "an error":
        assert "Burnt." in failed(path, answer, stream), (client, stream)
    else:
        assert failed(path, answer, stream), (client, stream)
        assert not stream or so_far(path, answer) == PIECE, (client, stream)


def so_far(path: str, answer: WireAnswer) -> str:
    """The text of a stream that broke off."""
    if path == CHAT:
        return "".join(c["delta"].get("content") or "" for one in chunks_of(answer) for c in one.get("choices", ()))
    kind = "response.output_text.delta" if path == RESPONSES else "content_block_delta"
    deltas = [frame["delta"] for frame in answer.frames() if frame["type"] == kind]
    return "".join(delta if path == RESPONSES else delta["text"] for delta in deltas)


def end_of(path: str, answer: WireAnswer, stream: bool) -> str:
    """How an answer ended, in the words of the table."""
    if answer.status != 200:
        error = answer.json()["error"]
        return f"{answer.status} `{error.get('code') or error['type']}`"
    if not stream:
        whole = answer.json()
        match path:
            case "/v1/chat/completions":
                return f"`finish_reason` `{whole['choices'][0]['finish_reason']}`"
            case "/v1/responses":
                return f"`status` `{whole['status']}`"
        return f"`stop_reason` `{whole['stop_reason']}`"
    *before, last = answer.frames()
    match path:
        case "/v1/chat/completions":
            ends = [
                f"`finish_reason` `{c['finish_reason']}`"
                for f in before
                for c in f.get("choices", ())
                if c["finish_reason"]
            ]
            ends += [f"a frame with `error` `{frame['error']['code']}`" for frame in before if "error" in frame]
            return f"{', '.join(ends)}, then `{last}`"
        case "/v1/responses":
            errors = [f"`error` `{frame['error']['code']}`, then " for frame in before if frame["type"] == "error"]
            return f"{''.join(errors)}`{last['type']}`"
    ends = [
        f"`stop_reason` `{frame['delta']['stop_reason']}`, then "
        for frame in before
        if frame["type"] == "message_delta"
    ]
    return f"{''.join(ends)}`{last['type']}`" + (f" `{last['error']['type']}`" if last["type"] == "error" else "")


def test_every_protocol_and_kind_is_in_the_table() -> None:
    assert set(PATHS) == set(CLIENT_PROTOCOLS)
    assert all(set(row) == set(CLIENT_PROTOCOLS) for row in ENDS.values())
    assert set(ENDS) == set(OUTCOMES)
    assert set(DOUBLES) == set(BACKENDS)
