"""Reasoning comes back to the server that wants it, through every client protocol (R28.3)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import product
from typing import Any

import pytest

from tests.e2e.agent import block
from tests.e2e.conftest import post, read_config, serving
from tests.e2e.meaning import RESPONSES
from tests.e2e.reasoning_servers import (
    CLIENTS,
    SAID,
    SERVERS,
    TURNS,
    AgentsClient,
    Anthropic,
    ChatClient,
    Client,
    ContentResponses,
    DeepSeek,
    MessagesClient,
    OmittingClient,
    OpenAI,
    OpenRouter,
    ResponsesClient,
    Server,
    before,
    found,
    thought,
)
from tests.protocols import responses_wires
from toolwire.config import GatewayConfig
from toolwire.support.conversion import ConfigError
from toolwire.support.seals import BEGINNING
from toolwire.testing import Upstream

SECRET = "0123456789abcdef0123456789abcdef"
kinds = pytest.mark.parametrize("kind", SERVERS, ids=lambda kind: kind.__name__)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@kinds
async def test_every_server_gets_its_reasoning_from_every_client(kind: type[Server]) -> None:
    """R28.3: each refuses a history that lacks what it gave."""
    server = kind()
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        for number, client in enumerate(CLIENTS, SERVERS.index(kind)):
            assert await client(stream=number % 2 > 0).run(gateway) == SAID, client
            assert server.faults == []


# --- never to another server ----------------------------------------------------------------------------------------


def opaque(body: Any) -> list[str]:
    """What of a body only one server can have made."""
    marks = ("sig-", "enc-", "gs-", "EqQB", "red-", "gAAAA", BEGINNING[:-1])
    return [text for text in found(body, lambda one: isinstance(one, str)) if text.startswith(marks)]


def two(first: Server, second: Server, ups: tuple[Upstream, Upstream], **sections: Any) -> GatewayConfig:
    """A gateway with a route to each of two servers, by the models `one` and `two`."""
    names = {"one": (first, ups[0]), "two": (second, ups[1])}
    backends = {
        name: {"kind": server.kind, "url": up.url, "identify_s": None, **server.facts}
        for name, (server, up) in names.items()
    }
    routes = [{"model": name, "backend": name} for name in names]
    return read_config({"backends": backends, "routes": routes, "defaults": {"mode": "native"}, **sections})


def listening(kind: type[Server]) -> Server:
    """A server of this kind that takes everything."""
    server = kind("two")
    server.fault = lambda turn, held: None  # type: ignore[method-assign]
    return server


@pytest.mark.parametrize("same", [True, False], ids=["same kind", "another kind"])
@kinds
async def test_another_server_gets_nothing_opaque(kind: type[Server], same: bool) -> None:
    """R28.3: a client that goes on with another model takes none of it along, and none is lost for the way back."""
    first, second = kind("one"), listening(kind if same else DeepSeek)
    turn = SERVERS.index(kind) + same  # in pairs: of the clients every other one
    async with (
        Upstream([first]) as one,
        Upstream([second]) as other,
        serving(two(first, second, (one, other))) as gateway,
    ):
        for number, client in enumerate(CLIENTS[turn % 2 :: 2]):
            speaking = client(stream=bool(turn // 2 + number & 1), model="one")
            await speaking.ask(gateway)
            history = list(speaking.history)
            speaking.model = "two"
            await speaking.ask(gateway)
            speaking.model, speaking.history = "one", history
            assert await speaking.run(gateway) == SAID, client
            assert first.faults == []
            assert opaque(second.bodies[-1]) == [], client
            assert len(second.bodies) == number + 1


@kinds
async def test_servers_of_one_route_get_their_own_only(kind: type[Server]) -> None:
    """R28.3: the same where another server of the route answers the next turn."""
    first, second = listening(kind), listening(kind)
    first.name = "one"
    async with Upstream([first]) as one, Upstream([second]) as other:
        routes = [{"model": "*", "backends": ["one", "two"], "balance": "round_robin"}]
        config = two(first, second, (one, other), routes=routes)
        async with serving(config) as gateway:
            for number, client in enumerate(CLIENTS, SERVERS.index(kind)):
                await client(stream=number % 2 > 0).run(gateway)
    for server, foreign in ((first, "two"), (second, "one")):
        assert server.bodies
        assert [text for body in server.bodies for text in opaque(body) if foreign in text or BEGINNING in text] == []


# --- values that cannot be opened -----------------------------------------------------------------------------------


def forged(value: Any) -> Any:
    """The same JSON value, each sealed text with another last byte of what it holds."""
    if isinstance(value, str) and value.startswith(BEGINNING):
        return value[:-8] + ("A" if value[-8] != "A" else "B") + value[-7:]
    if isinstance(value, dict):
        return {key: forged(item) for key, item in value.items()}
    return [forged(item) for item in value] if isinstance(value, list) else value


def replaced(pattern: str, by: str) -> Callable[[Any], Any]:
    return lambda history: json.loads(re.sub(pattern, by, json.dumps(history)))


UNOPENED: dict[str, Callable[[Any], Any]] = {
    "forged": forged,
    "cut": replaced(f'({BEGINNING}.{{20}})[^"]*', r"\1"),
    "no base64": replaced(f'({BEGINNING})[^"]*', r"\1ü…"),
    **dict.fromkeys(("another key", "another route", "another gateway"), list),
}
"""What may have become of a value, or of the request that brings it; and of the history."""


@pytest.mark.parametrize("client", CLIENTS, ids=lambda kind: kind.__name__)
async def test_what_cannot_be_opened_is_left_out(client: type[Client], caplog: pytest.LogCaptureFixture) -> None:
    """R28.3: the session goes on without it; one warning says so by its name."""
    kind = DeepSeek if issubclass(client, ResponsesClient | OmittingClient) else OpenRouter
    if client is AgentsClient:
        kind = OpenRouter
    first, second = listening(kind), listening(kind)
    keys = {"auth": {"keys": ["key-one", "key-two"]}, "server": {"secret": SECRET}}
    async with Upstream([first]) as one, Upstream([second]) as other:
        config = two(first, second, (one, other), **keys)
        elsewhere = two(first, second, (one, other), **{**keys, "server": {"secret": SECRET[::-1]}})
        async with serving(config) as gateway, serving(elsewhere) as another:
            for number, how in enumerate(UNOPENED, CLIENTS.index(client)):
                speaking = client(stream=number % 2 > 0, model="one", headers={"Authorization": "Bearer key-one"})
                await speaking.ask(gateway)
                assert [text for text in opaque(speaking.history) if text.startswith(BEGINNING)]
                match how:
                    case "another key":
                        speaking.headers = {"Authorization": "Bearer key-two"}
                    case "another route":
                        speaking.model = "two"
                    case "another gateway":
                        pass
                    case _:
                        speaking.history = UNOPENED[how](speaking.history)
                asked = (second if how == "another route" else first).bodies
                asked.clear()
                caplog.clear()
                await speaking.ask(another if how == "another gateway" else gateway)
                assert [opaque(body) for body in asked] == [[]], how
                assert sum("reasoning_dropped" in record.getMessage() for record in caplog.records) == 1, how


async def test_each_key_gets_its_own_back() -> None:
    """R28.3: what was sealed for a key is opened for it."""
    server = DeepSeek()
    keys = {"auth": {"keys": ["key-one", "key-two"]}}
    async with Upstream([server]) as up, serving(before(server, up, **keys)) as gateway:
        for key in ("key-one", "key-two"):
            client = ResponsesClient(stream=False, headers={"Authorization": f"Bearer {key}"})
            assert await client.run(gateway) == SAID
    assert server.faults == []


def test_a_short_secret_is_refused() -> None:
    """R28.3: whoever could guess it could write reasoning."""
    with pytest.raises(ConfigError, match=r"server.secret: expected at least 32 characters, got 5"):
        read_config({"backends": {"m": {"kind": "mock"}}, "server": {"secret": "short"}})


# --- the gateway's own signature ------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("alone", [True, False], ids=["passing", "adapted"])
async def test_no_server_gets_the_gateways_own_signature(stream: bool, alone: bool) -> None:
    """R28.3: thinking of a server without signatures is no thinking of Anthropic's."""
    first, second = DeepSeek("one"), Anthropic("two")
    second.fault = lambda turn, held: None  # type: ignore[method-assign]
    async with AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(Upstream([server])) for server in (first, second)]
        async with serving(two(first, second, (one, other))) as gateway:
            client = MessagesClient(stream=stream, model="one")
            await client.ask(gateway)
            assert client.history[1]["content"][0]["signature"]
            client.model = "two"
            tools = {} if alone else {"tools": client.body()["tools"]}
            await client.ask(gateway, **tools)
    [body] = second.bodies
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]


# --- names, summaries, turns of reasoning only ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DeepSeek, Anthropic, ContentResponses], ids=lambda kind: kind.__name__)
async def test_a_client_that_asks_for_a_summary_gets_one(kind: type[Server]) -> None:
    """R28.3: reasoning is shown in the events of summaries, which are what such clients look at."""
    server = kind()
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        for summary, stream in (("auto", False), ("auto", True), ("concise", False), ("detailed", True)):
            client = ResponsesClient(stream=stream)
            wish = {"reasoning": {"summary": summary}}
            await client.ask(gateway, **wish)
            item = client.history[1]
            assert item["summary"] == [{"type": "summary_text", "text": thought(0)}], (summary, stream)
            body = {"model": "m", "stream": True, "input": "hi", **wish}
            events = responses_wires.payloads((await post(gateway, body, path=RESPONSES)).body)
            kinds = [event["type"] for event in events if "reasoning" in event["type"]]
            assert kinds[0] == "response.reasoning_summary_part.added"
            assert set(kinds[1:-2]) == {"response.reasoning_summary_text.delta"}
            assert kinds[-2:] == ["response.reasoning_summary_text.done", "response.reasoning_summary_part.done"]
            assert await client.run(gateway, **wish) == SAID, (summary, stream)
            assert server.faults == []


ONLY_REASONING: dict[type[Client], list[Any]] = {
    ChatClient: [{"role": "assistant", "content": None, "reasoning_content": "Hm."}],
    ResponsesClient: [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}],
    MessagesClient: [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]}],
}


@kinds
async def test_a_turn_of_reasoning_only_is_no_turn(kind: type[Server]) -> None:
    """R28.3: no server gets a message without content and calls."""
    server = listening(kind)
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        for client, turn in ONLY_REASONING.items():
            speaking = client(stream=False)
            speaking.history += [*turn, {"role": "user", "content": "Go on."}]
            await speaking.ask(gateway)
    assert len(server.bodies) == len(ONLY_REASONING)
    said = [one for body in server.bodies for one in body.get("messages", ()) if one["role"] == "assistant"]
    assert [message for message in said if not message.get("content") and not message.get("tool_calls")] == []


@pytest.mark.parametrize("kind", [DeepSeek, OpenRouter, Anthropic, OpenAI], ids=lambda kind: kind.__name__)
async def test_a_kept_conversation_has_its_reasoning(kind: type[Server]) -> None:
    """R28.3, R12.3: also where the gateway keeps the history, and the secret is another one by then."""
    server = kind()
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        for stream in (False, True):
            client = AgentsClient(stream=stream)
            more: dict[str, Any] = {"store": True}
            for _ in range(TURNS + 1):
                before_turn = len(client.history)
                text = await client.ask(gateway, **more)
                assert len(client.history) > before_turn
                client.history = [client.history[-1]]
                more["previous_response_id"] = client.ident
            assert text == SAID, stream
            assert server.faults == []


@both
async def test_the_text_of_reasoning_is_sealed_for_a_client_that_asks(stream: bool) -> None:
    """R28.3: also that of a server without opaque fields. It reports token counts, and no reasoning is searched for in
    text: so the stage is the first one that needs the events of a whole answer."""

    class Counting(DeepSeek):
        def answer(self, turn: int, streamed: bool) -> bytes:
            answer = super().answer(turn, streamed)
            counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
            return answer if streamed else json.dumps({**json.loads(answer), "usage": counts}).encode()

    server = Counting()
    body = {"model": "m", "input": "hi", "stream": stream, "include": ["reasoning.encrypted_content"]}
    defaults = {"mode": "native", "reasoning": {"tags": None}}
    async with Upstream([server]) as up, serving(before(server, up, defaults=defaults)) as gateway:
        answer = (await post(gateway, body, path=RESPONSES)).body
    response = responses_wires.payloads(answer)[-1]["response"] if stream else json.loads(answer)
    [item] = [item for item in response["output"] if item["type"] == "reasoning"]
    assert item["encrypted_content"].startswith(BEGINNING)


class ReferringClient(AgentsClient):
    """Brings only the ids of items back, as the AI SDK does."""

    include = False

    def brought(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"type": "item_reference", "id": item["id"]}


@kinds
async def test_items_that_are_referred_to_have_their_reasoning(kind: type[Server]) -> None:
    """R28.3, R8.2: also reasoning of which the client got no text."""
    server = kind()
    async with Upstream([server]) as up, serving(before(server, up)) as gateway:
        for stream in (False, True):
            assert await ReferringClient(stream=stream).run(gateway, store=True) == SAID, stream
            assert server.faults == []


async def test_taught_tools_keep_reasoning() -> None:
    """R28.3: in prompt mode, the reasoning of the turns before is in their messages."""

    class Text(DeepSeek):
        def message(self, turn: int) -> dict[str, Any]:
            return {"content": block("read", {"path": f"{turn}.txt"}), self.field: thought(turn)}

        def deltas(self, turn: int) -> list[dict[str, Any]]:
            return [{"role": "assistant", self.field: thought(turn)}, {"content": self.message(turn)["content"]}]

        def fault(self, turn: int, held: Any) -> str | None:
            got = held.get(self.field)
            return None if got == thought(turn) else f"expected {thought(turn)}, got {got}"

    server = Text()
    async with Upstream([server]) as up, serving(before(server, up, defaults={"mode": "prompt"})) as gateway:
        for client, stream in product((ResponsesClient, ChatClient, OmittingClient), (False, True)):
            assert await client(stream=stream).run(gateway) == SAID, (client, stream)
            assert server.faults == []
