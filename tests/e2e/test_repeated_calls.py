"""Answers under an enforced choice that repeat a call (R30.8): the client gets it once, the server is told to stop, and
different calls stay. Each split and scanner: `tests/unit/test_repeats.py`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, Gateway, post, upstream_config
from tests.e2e.meaning import MESSAGES, RESPONSES, ended, every_client, meant, says
from tests.e2e.test_cut_calls import asking
from tests.waiting import GUARD_S
from toolwire.config import GatewayConfig
from toolwire.model import ToolUse
from toolwire.testing import Say, Upstream


def block(path: str) -> str:
    return f'<tool_call>\n{{"name":"read","arguments":"{{\\"path\\":\\"{path}\\"}}"}}\n</tool_call>\n'


def config(url: str, **options: Any) -> GatewayConfig:
    return upstream_config(url, backend=options.pop("backend", {"preset": "llamacpp"}), defaults=options)


def body(path: str, *, stream: bool, choice: str = "required") -> dict[str, Any]:
    wanted = {"type": {"required": "any"}.get(choice, choice)} if path == MESSAGES else choice
    return {**asking(path, stream), "tool_choice": wanted}


def read(path: str) -> tuple[str, Any]:
    return "read", {"path": path}


def files(sent: bytes) -> list[str]:
    """The files that the calls of an answer name, each once."""
    return [name for name in ("a.txt", "b.txt", "c.txt") if name.encode() in sent]


@every("path, choice, early", [(CHAT, "required", "buffered"), (RESPONSES, "auto", 0), (MESSAGES, "auto", "buffered")])
async def test_a_server_that_goes_on_is_told_to_stop(gateway: Gateway, path: str, choice: str, early: str) -> None:
    pieces = [block("a.txt"), block("b.txt"), block("a.txt"), block("c.txt")]
    async with asyncio.timeout(GUARD_S), Upstream([Say(*pieces, hang=True)]) as upstream:
        server = await gateway(config(upstream.url, argument_streaming=early))
        answer = await post(server, body(path, stream=True, choice=choice), path=path)
        await upstream.posts[0].dropped.wait()
    assert files(answer.body) == ["a.txt", "b.txt"]
    assert meant(path, answer, True)[1] == [read("a.txt"), read("b.txt")]
    assert ended(path, answer, True) == "tool_calls"


@every("finish", ["stop", "length"])
async def test_a_whole_answer(finish: str) -> None:
    text = block("a.txt") * 3 + block("b.txt")[:-30]
    for path, stream, answer, _ in await every_client(
        Say(text, finish=finish, usage=(10, 40)),
        lambda up: config(up.url),
        lambda path, stream: body(path, stream=stream),
    ):
        assert files(answer.body) == ["a.txt"]
        assert meant(path, answer, stream)[1] == [read("a.txt")]
        assert ended(path, answer, stream) == "tool_calls"


async def test_what_nobody_enforces_stays(gateway: Gateway) -> None:
    """The same call twice may be meant."""
    async with Upstream([Say(block("a.txt") * 2)]) as upstream:
        server = await gateway(config(upstream.url, backend={"constrain": "none"}, mode="prompt"))
        answer = await post(server, body(CHAT, stream=True, choice="auto"))
    assert meant(CHAT, answer, True)[1] == [read("a.txt")] * 2


@every("recognise", ["any", "taught"])
async def test_a_server_that_makes_calls_itself(recognise: str) -> None:
    made = [
        ToolUse(f"call_{number}", "read", f'{{"path":"{path}.txt"}}')
        for number, path in enumerate(("a", "b", "b", "c"))
    ]
    for path, _, got, _ in await every_client(
        says("openai_chat", *made),
        lambda up: config(up.url, backend={}, mode="native", recognise=recognise),
        lambda path, stream: body(path, stream=stream),
    ):
        assert files(got.body) == ["a.txt", "b.txt"], path


async def test_it_is_counted(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolwire.access")
    async with Upstream([Say(block("a.txt") * 2, block("c.txt"))]) as upstream:
        server = await gateway(config(upstream.url))
        answer = await post(server, body(CHAT, stream=True))
    assert files(answer.body) == ["a.txt"]
    (line,) = [record for record in caplog.records if record.name == "toolwire.access"]
    fields = vars(line)["fields"]
    assert fields["calls"] == 1
    assert fields["deduped"] in (1, 2), "one behind it may have come with it"
    assert fields["output_tokens"] > 0
