"""Observers see an answer to its end and change no byte of it, on every path. An observer may end the answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import orjson
from hypothesis import given

from tests.cases import every
from tests.chunks import reads
from tests.e2e.conftest import USER, post, serving, upstream_config
from tests.unit.test_reply import runner
from toolwire.errors import BackendFault, ClientFault
from toolwire.events import Delta, Event, Fault, Finish, Kind
from toolwire.model import Message, ModelRequest, Text
from toolwire.pipeline.answers.stage_chain import StageChain
from toolwire.pipeline.answers.stages import FinishStage, WatchStage
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.paths.relay import Relay
from toolwire.pipeline.paths.relay_path import RelayPath, SideReader
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.streams import WriteOptions
from toolwire.registry import registries
from toolwire.testing import Answer, Asked, Script, Upstream, chunk, frame
from toolwire.upstream.client.connections import disconnected

FRAME_BYTES = 4096
WRITE = WriteOptions(request=ModelRequest("m", (Message("user", (Text("hi"),)),)), created=1)
DONE = b"data: [DONE]\n\n"
END = re.compile(rb"data: ?\[DONE\]")


class Seen:
    """What was seen: the text, and the events at which it waited."""

    def __init__(self) -> None:
        self.text = ""
        self.last: list[Event] = []

    def see(self, event: Event) -> None:
        if isinstance(event, Delta):
            self.text += event.text

    async def settle(self, last: Event) -> None:
        await asyncio.sleep(0)
        self.last.append(last)


async def passed(pieces: Sequence[bytes], seen: Seen | None, error: BackendFault | None = None) -> tuple[bytes, bytes]:
    """What goes out of these bytes: before who looks on has done with the last event, and after."""
    side = None
    if seen is not None:
        owner = runner(skip=False)
        stages = [WatchStage(seen.see, owner), FinishStage(seen.settle, owner, changes=False)]
        side = SideReader(ChatReader(FRAME_BYTES), StageChain(stages))
    path = RelayPath(Relay(ChatProtocol(), FRAME_BYTES), ChatWriter(WRITE), side)
    out = b""
    for piece in pieces:
        out += path.feed(piece)
        if path.over:
            break
    if not path.over:
        out += path.finish(error)
    return out, await path.settle()


@given(stream=reads())
def test_law_looking_on_changes_no_byte(stream: list[bytes]) -> None:
    seen = Seen()
    plain, seen_too = (b"".join(asyncio.run(passed(stream, looks))) for looks in (None, seen))
    # Bytes after the end may be lost.
    assert plain == seen_too or (plain.startswith(seen_too) and END.search(seen_too))
    assert len(seen.last) <= 1


TEXT = frame(chunk({"content": "Hello"}))
USAGE = frame({**chunk({}), "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})


@every(
    "pieces",
    [
        [TEXT + frame(chunk({}, "stop")) + USAGE + DONE],
        [TEXT, frame(chunk({}, "stop")), USAGE, DONE],
        [TEXT, frame(chunk({}, "stop")), USAGE],
    ],
)
@every("cut", [False, True])
async def test_the_end_waits_for_who_looks_on(pieces: list[bytes], cut: bool) -> None:
    """Also if the connection broke off behind it."""
    seen = Seen()
    before, after = await passed(pieces, seen, disconnected() if cut else None)
    assert DONE not in before
    assert after.endswith(DONE)
    assert before + after == b"".join(pieces) + (b"" if DONE in pieces[-1] else DONE)
    (last,) = seen.last
    assert isinstance(last, Finish)
    assert last.usage is not None
    assert (seen.text, last.usage.total_tokens) == ("Hello", 9)


@every("broken", [False, True])
async def test_a_fault_is_seen_once(broken: bool) -> None:
    seen = Seen()
    error = frame({"error": {"message": "no memory"}})
    fault = disconnected() if broken else None
    before, after = await passed([TEXT] if broken else [TEXT, error], seen, fault)
    assert before == TEXT
    assert b'"error"' in after
    assert after.endswith(DONE)
    (last,) = seen.last
    assert isinstance(last, Fault)


CHOICE: dict[str, Any] = {
    "index": 0,
    "message": {"role": "assistant", "content": "a", "annotations": []},
    "logprobs": {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]},
    "finish_reason": "stop",
}
COUNTS = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
BODY = {**chunk({}), "object": "chat.completion", "timings": {"x": 1.0}, "choices": [CHOICE], "usage": COUNTS}


def turn(asked: Asked) -> Answer:
    """What no gateway would write in the same way."""
    if asked.json.get("stream"):
        frames = [frame({**chunk({"content": "a"}), "timings": {"x": 1.0}}), frame(chunk({}, "stop")), USAGE, DONE]
        return Answer(frames, headers={"Content-Type": "text/event-stream"})
    return Answer([orjson.dumps(BODY)], headers={"Content-Type": "application/json"})


class LooksOn(Middleware):
    seen: list[Seen]

    def declare(self, exchange: Any, reply: Any) -> None:
        self.seen.append(Seen())
        reply.watch(self.seen[-1].see)
        reply.finish(self.seen[-1].settle, changes=False)


class Loud(Middleware):
    wants = Kind.TEXT

    def on_event(self, exchange: Any, event: Any) -> Any:
        return Delta(event.block, event.text.upper()) if isinstance(event, Delta) else event


@every(
    ("stream", "chain"),
    [(False, ["looks"]), (True, ["looks"]), (True, ["looks", "loud"]), (False, ["loud", "looks"])],
)
async def test_through_the_gateway(stream: bool, chain: list[str]) -> None:
    """It sees the answer as it is at its place in the chain, and the client gets what it would get without."""
    plugins = registries()
    looks = type("Here", (LooksOn,), {"seen": []})
    plugins.middlewares.register("looks", looks)
    plugins.middlewares.register("loud", Loud)
    script: list[Script] = [turn, turn]
    async with Upstream(script) as upstream:
        bodies = []
        for names in ([name for name in chain if name != "looks"], chain):
            config = upstream_config(upstream.url, chain=[*names, "forwarding"])
            async with serving(config, plugins) as server:
                options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
                bodies.append((await post(server, {"messages": USER, **options})).body)
    (seen,) = looks.seen  # type: ignore[attr-defined]
    assert b'"timings"' in bodies[0]  # what the server says beside is passed on, touched or not
    assert masked(bodies[0]) == masked(bodies[1])
    assert bodies[0] == bodies[1] or "loud" in chain
    assert seen.text == ("A" if chain == ["looks", "loud"] else "a")
    (last,) = seen.last
    assert last.usage.total_tokens == (9 if stream else 8)


def masked(body: bytes) -> bytes:
    """Without the id and the time of an answer that is written anew."""
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", body)


class Refuses(Middleware):
    """Looks on, and ends the answer: at some text, or at the end of it."""

    at = "text"
    error: Exception = KeyError("boom")

    def declare(self, exchange: Any, reply: Any) -> None:
        if self.at == "text":
            reply.watch(self.see)
        else:
            reply.finish(self.settle, changes=False)
        reply.finish(self.later, changes=False)

    def see(self, event: Event) -> None:
        if isinstance(event, Delta):
            raise self.error

    async def settle(self, last: Event) -> None:
        raise self.error

    async def later(self, last: Event) -> None:
        """The end is parked here, also if it is a fault."""


@every(("stream", "at"), [(False, "text"), (True, "end"), (True, "text")])
@every(
    ("error", "on_failure", "status", "code"),
    [
        (KeyError("boom"), "fail", 500, "internal_error"),
        (KeyError("boom"), "skip", 200, None),
        (ClientFault("No such words.", code="invalid_value"), "skip", 400, "invalid_value"),
    ],
)
async def test_who_looks_on_may_end_an_answer_that_passes(
    stream: bool, at: str, error: Exception, on_failure: Any, status: int, code: str | None
) -> None:
    plugins = registries()
    plugins.middlewares.register("refuses", type("Here", (Refuses,), {"at": at, "error": error}))
    script: list[Script] = [turn]
    async with Upstream(script) as upstream:
        entry = {"use": "refuses", "on_failure": on_failure}
        async with serving(upstream_config(upstream.url, chain=[entry, "forwarding"]), plugins) as server:
            answer = await post(server, {"messages": USER, "stream": stream})
    begun = answer.status == 200 and stream
    said = [frame["error"]["code"] for frame in answer.frames() if "error" in frame] if begun else []
    if code is not None and said:
        assert said == [code]  # something had gone out already
        assert answer.body.endswith(DONE)
    else:
        assert answer.status == status
        assert (orjson.loads(answer.body)["error"]["code"] if status != 200 else None) == code
    if code is None:
        assert b'"timings"' in answer.body


async def test_what_breaks_in_the_first_read_becomes_a_status() -> None:
    seen = Seen()
    seen.see = refuse  # type: ignore[method-assign,assignment]
    before, after = await passed([TEXT + frame(chunk({}, "stop")) + DONE], seen)
    assert before == b""
    assert b"No such words." in after
    assert isinstance(seen.last[0], Fault)


def refuse(event: Event) -> None:
    if isinstance(event, Delta):
        raise ClientFault("No such words.")
