"""What is kept of a conversation is the model's own: nothing of it is lost, and another protocol may go on from it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp.test_utils import TestServer

from tests.e2e.conftest import Gateway, gateway_before, serving, upstream_config
from tests.e2e.engines import page
from tests.e2e.test_conversation import LOOK, ask, client, get, texts
from tests.protocols.tiny import TinyProtocol, TinyWriter
from toolwire.errors import GatewayError
from toolwire.events import Event, Start
from toolwire.model import Message, ModelReply
from toolwire.protocols.base import ProtocolPath
from toolwire.protocols.shared.turn import StoredTurn
from toolwire.protocols.shared.wire import dump
from toolwire.protocols.streams import StreamWriter, WriteOptions
from toolwire.protocols.turn_form import TurnForm
from toolwire.registry import registries
from toolwire.store.encoding import key_of
from toolwire.testing import Answer, Say, Upstream

KEPT = Path(__file__).parents[1] / "store" / "kept"
TINY = "/v1/tiny"
SIGNED = {"google": {"thought_signature": "c2ln"}}


def calling(**fields: Any) -> Answer:
    """A model server that does tools itself, and says something of its call that it wants to see again."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"sky"}'}, **fields}
    message = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    return page({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})


@asynccontextmanager
async def stored(gateway: Gateway, folder: Path, name: str) -> AsyncIterator[tuple[Any, Any, Upstream]]:
    """A client of a gateway whose store has what another process kept."""
    kept = json.loads((KEPT / name).read_bytes())
    path, text = folder / "r.sqlite3", json.dumps(kept).encode()
    async with Upstream([Say("Hello."), Say("Grey.")]) as upstream:
        config = upstream_config(upstream.url, backend={"images": True}, store={"kind": "sqlite", "path": str(path)})
        async with client(await gateway(config)) as session:
            await ask(session, input="hi")  # makes the file
            with closing(sqlite3.connect(path)) as db, db:
                row = (key_of(kept["id"], ""), "", kept["expires"], len(text), text)
                db.execute("INSERT INTO turns (key, owner, expires, bytes, turn) VALUES (?, ?, ?, ?, ?)", row)
            yield session, kept, upstream


async def test_what_a_server_wants_to_see_again_it_sees() -> None:
    """Fields of another protocol, which no item of this one has a place for."""
    async with (
        gateway_before(
            [calling(extra_content=SIGNED), Say("It is blue.")], defaults={"mode": "native", "forward_unknown": "all"}
        ) as (server, upstream),
        client(server) as session,
    ):
        first = await ask(session, input="What colour?", tools=[LOOK])
        text, thought, call = first["output"]
        assert thought["encrypted_content"]
        assert "extra_content" not in json.dumps(first)
        assert await get(session, first["id"]) == first
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}
        await ask(session, input=[result], previous_response_id=first["id"], tools=[LOOK])
    said = upstream.requests[1].json["messages"]
    assert [message["role"] for message in said] == ["user", "assistant", "tool"]
    assert said[1]["content"] == text["content"][0]["text"] == "I look."
    assert said[1]["tool_calls"][0]["extra_content"] == SIGNED


async def test_a_response_that_another_process_kept_goes_on(gateway: Gateway, tmp_path: Path) -> None:
    async with stored(gateway, tmp_path, "response.json") as (session, kept, upstream):
        assert await get(session, kept["id"]) == kept["said"]["resource"]
        listed = await get(session, f"{kept['id']}/input_items?order=asc&limit=100")
        assert listed["data"] == kept["said"]["input"]
        call = kept["said"]["resource"]["output"][-1]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "blue"}
        again = {"type": "item_reference", "id": "msg_mine"}
        last = await ask(session, input=[again, result], previous_response_id=kept["id"], tools=[LOOK])
        assert last["output"][0]["content"][0]["text"] == "Grey."
    said = [(message["role"], str(message["content"])) for message in upstream.requests[1].json["messages"]]
    talk = [role for role, _ in said if role != "system"]
    assert talk == ["user", "assistant", "user", "assistant", "user", "user", "assistant", "user", "assistant", "user"]
    assert "Let me look." in said[-9][1]
    assert said[-1][1] == "<tool_response>\nblue\n</tool_response>"


async def test_what_the_gateways_tools_gave_is_no_response(gateway: Gateway, tmp_path: Path) -> None:
    async with stored(gateway, tmp_path, "tools.json") as (session, kept, _):
        assert (await get(session, kept["id"], 404))["error"]["code"] == "not_found"
        await ask(session, 400, input="hi", previous_response_id=kept["id"])


# --- another protocol -----------------------------------------------------------------------------------------------


class TinyTurns(TurnForm):
    """All that a protocol says of its conversations."""

    previous = "after"

    def new_id(self) -> str:
        return f"tiny_{uuid4().hex}"

    def finished(self, turn: StoredTurn, reply: ModelReply, options: WriteOptions) -> StoredTurn:
        return replace(turn, output=(Message("assistant", reply.choices[0].parts),), status="completed")

    def broken_off(
        self, turn: StoredTurn, reply: ModelReply, options: WriteOptions, status: Any, error: GatewayError | None = None
    ) -> StoredTurn:
        return replace(self.finished(turn, reply, options), status=status)

    def shown(self, turn: StoredTurn) -> dict[str, Any]:
        return {"turn": turn.id, "text": "".join(message.text for message in turn.output)}

    def listed(self, turn: StoredTurn) -> Sequence[Mapping[str, Any]]:
        return [{"who": message.role, "text": message.text} for message in turn.input]


class RememberingTiny(TinyProtocol):
    """Tells its clients how an answer is called."""

    turns = TinyTurns()
    routes = (ProtocolPath("GET", "/tiny/{id}", "toolwire.pipeline.handlers.responses:read"),)

    def writer(self, options: WriteOptions) -> StreamWriter:
        return NamingWriter()

    def write_reply(self, reply: ModelReply, options: WriteOptions) -> bytes:
        return dump({**json.loads(super().write_reply(reply, options)), "turn": reply.id})


class NamingWriter(TinyWriter):
    def _frames(self, event: Event) -> Any:
        if isinstance(event, Start):
            yield dump({"turn": event.response_id})
        yield from super()._frames(event)


@pytest.fixture
async def both() -> AsyncIterator[tuple[TestServer, Upstream]]:
    """A gateway that serves both, in front of a model that only writes text."""
    plugins = registries()
    plugins.clients.register("tiny", RememberingTiny)
    upstream = Upstream([Say("One."), Say("Two."), Say("Three.")])
    async with upstream, serving(upstream_config(upstream.url, store={"kind": "memory"}), plugins) as server:
        yield server, upstream


async def say(session: Any, text: str, after: str | None = None, **more: Any) -> Any:
    body = {"model": "m", "say": [{"who": "user", "text": text}], **({"after": after} if after else {}), **more}
    async with session.post(TINY, json=body) as response:
        assert response.status == 200, await response.text()
        if more.get("stream"):
            frames = (await response.read()).split(b"\n")
            return json.loads(next(line[6:] for line in frames if line.startswith(b"data: ")))
        return await response.json()


@pytest.mark.parametrize("stream", [False, True])
async def test_two_protocols_in_one_conversation(both: tuple[TestServer, Upstream], stream: bool) -> None:
    """Each goes on from what the other kept, and shows it in its own words."""
    server, upstream = both
    async with client(server) as session:
        first = (await say(session, "Count.", stream=stream))["turn"]
        second = await ask(session, input="On.", previous_response_id=first, instructions="Be brief.")
        third = await say(session, "And?", after=second["id"])
        assert third["text"] == "Three."
        shown = await get(session, first)
        assert (shown["id"], shown["object"], shown["status"], shown["model"]) == (first, "response", "completed", "m")
        assert [item["content"][0]["text"] for item in shown["output"]] == ["One."]
        (listed,) = (await get(session, f"{first}/input_items"))["data"]
        assert (listed["role"], listed["content"]) == ("user", [{"type": "input_text", "text": "Count."}])
        async with session.get(f"{TINY}/{second['id']}") as response:
            assert await response.json() == {"turn": second["id"], "text": "Two."}
        async with session.get(f"{TINY}/nope") as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "not_found"
    count = [("user", "Count."), ("assistant", "One."), ("user", "On.")]
    assert texts(upstream.requests[1]) == [("system", "Be brief."), *count]
    assert texts(upstream.requests[2]) == [*count, ("assistant", "Two."), ("user", "And?")]
