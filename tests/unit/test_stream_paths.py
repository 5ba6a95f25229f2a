"""The paths: the gate gives byte for byte what events give, and is taken only where nobody wants the text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.cases import every
from tests.chunks import reads
from tests.options import route_options
from tests.unit.test_reply import runner
from toolwire.config import LimitsConfig, ReasoningConfig, RouteOptions
from toolwire.errors import ClientFault
from toolwire.events import Event, Kind
from toolwire.folding import Folding
from toolwire.formats.engine.results import Escapes
from toolwire.formats.families import bare_json, deepseek, harmony, hermes, pythonic, qwen, sentinel
from toolwire.formats.recognised import auto
from toolwire.model import Message, ModelRequest, Text, ToolChoice, ToolSpec
from toolwire.pipeline.answers.mapping import MapStage
from toolwire.pipeline.answers.stage_chain import StageChain
from toolwire.pipeline.answers.stages import FinishStage, Stage, WatchStage
from toolwire.pipeline.paths.stream_paths import FastPath, Transcode, allows_fast_path
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.preopened import PreopenedMemory, PreopenedReasoning, kind_of
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.pipeline.transforms.block_texts import UnwrapStage
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.messages.writer import MessagesWriter
from toolwire.protocols.responses.writer import ResponsesWriter
from toolwire.protocols.streams import WriteOptions
from toolwire.record import AccessRecord
from toolwire.testing import chunk, frame
from toolwire.upstream.servers.private_data import NOTHING

FRAME_BYTES = 4096
REQUEST = ModelRequest("m", (Message("user", (Text("hi"),)),))
OPTIONS = {
    "default": RouteOptions(),
    "no trim": route_options(trim="none"),
    "thinking first": RouteOptions(reasoning=ReasoningConfig(preopened=True)),
    "thinking is text": RouteOptions(reasoning=ReasoningConfig(field="inline")),
    "stop after a call": route_options(stop_after_call=True),
    "calls as they come": route_options(argument_streaming=0),
}
FAMILIES = (sentinel, hermes, bare_json, harmony, auto)
FORMATS = {
    format.name: format
    for format in (*(family.FORMAT for family in FAMILIES), qwen.QWEN3_CODER, pythonic.PYTHONIC, deepseek.V31)
}
WRITERS: dict[str, Any] = {"chat": ChatWriter, "responses": ResponsesWriter, "messages": MessagesWriter}
_IDS = re.compile(rb'((?:call|chatcmpl|resp|msg|fc|rs|ctc|toolu)[-_]|"completed_at":)[0-9a-f]{8,}')


def beginning(learned: str) -> PreopenedReasoning | None:
    """What a route knows of where its answers begin: nothing that it may ask for, nothing yet, or that it is inside of
    these tags."""
    if not learned:
        return None
    known = PreopenedMemory()
    if learned != "nothing":
        known.put(kind_of("", "up", REQUEST), ("<think>", "</think>"))
    return PreopenedReasoning("r", known, lambda: ("up", REQUEST), AccessRecord(), whole=False)


def pair(
    options: str, style: str, client: str, *, parallel: bool = True, scanned: bool = True, learned: str = ""
) -> tuple[tuple[Transcode, Folding, Folding], tuple[FastPath, Folding, Folding]]:
    """The same path twice, once by events, once with the gate, each with what its watchers have added up."""
    route = OPTIONS[options]

    def parts() -> tuple[ChatReader, StageChain, Any, Folding, Folding]:
        before, after = Folding(), Folding()
        offer = OfferedTools((ToolSpec("f"),), ToolChoice(), parallel, FORMATS[style], (ToolSpec("f"),))
        live = route.calls.argument_streaming == 0
        after_ms = (lambda: 0) if live else None
        begins = beginning(learned)
        scan = ScanStage(offer, route, LimitsConfig(), lambda name: None, stream_after=after_ms, preopened=begins)
        edges = MapStage(lambda event: event, Kind.EDGES | Kind.FINISHED_CALL, None, live=live)
        stages: list[Stage | FinishStage] = [WatchStage(before.feed, None), *([scan] if scanned else []), edges]
        writer = WRITERS[client](WriteOptions(request=REQUEST, created=1, reasoning_field=route.reasoning.field))
        return ChatReader(FRAME_BYTES), StageChain([*stages, WatchStage(after.feed, None)]), writer, before, after

    reader, chain, writer, *seen = parts()
    plain = (Transcode(reader, chain, writer), seen[0], seen[1])
    reader, chain, writer, *seen = parts()
    return plain, (FastPath(reader, chain, writer, NOTHING, FRAME_BYTES), seen[0], seen[1])


def told(seen: Folding) -> tuple[Any, ...]:
    """What was seen, ids excepted."""
    if seen.start is None:
        return (seen.fault,)
    reply = seen.reply()
    parts = [_IDS.sub(rb"\1", repr(choice).encode()) for choice in reply.choices]
    return parts, seen.fault, reply.usage


def masked(data: bytes) -> bytes:
    return _IDS.sub(rb"\1", data)


@settings(max_examples=100)
@given(
    stream=reads(),
    options=st.sampled_from(list(OPTIONS)),
    style=st.sampled_from(["sentinel", *FORMATS]),
    client=st.sampled_from(list(WRITERS)),
    more=st.fixed_dictionaries(
        {
            "parallel": st.booleans(),
            "scanned": st.sampled_from([True, True, True, False]),
            "learned": st.sampled_from(["", "nothing", "thinking first"]),
        }
    ),
    beat=st.integers(0, 20),
)
def test_the_gate_gives_what_events_give(
    stream: list[bytes], options: str, style: str, client: str, more: Any, beat: int
) -> None:
    (plain, *plain_seen), (gated, *gate_seen) = pair(options, style, client, **more)
    passed = 0
    for number, data in enumerate(stream):
        expected = plain.feed(data)
        got = gated.feed(data)
        passed += gated._gate.passed
        assert masked(got) == masked(expected)
        assert (gated.has_sent, gated.over) == (plain.has_sent, plain.over)
        if number == beat:
            assert masked(gated.keepalive()) == masked(plain.keepalive())
    if not plain.over:
        assert masked(gated.finish()) == masked(plain.finish())
    event(f"{client}: {'some' if passed else 'none'} passed")
    (gate_before, gate_after), (plain_before, plain_after) = gate_seen, plain_seen
    assert told(gate_after) == told(plain_after)
    # If a stage ended it, what the same read held after that is not looked at.
    if gated.drained or not gated.over:
        assert told(gate_before) == told(plain_before)
        assert gated.drained == plain.drained


def text_frames(*texts: str) -> bytes:
    return b"".join(frame(chunk({"content": text})) for text in texts)


@every("client", WRITERS)
def test_plain_text_passes_unread(client: str) -> None:
    """The law above would also hold for a gate that is always shut."""
    (plain, *_), (gated, *_) = pair("default", "sentinel", client)
    for texts, passed in (
        (("Hello",), 0),
        ((" world", ".", " 日本", " So", " it"), 5),
        ((" goes ", '"on"\n\n', "and \\", " on"), 9),
    ):
        data = text_frames(*texts)
        assert masked(gated.feed(data)) == masked(plain.feed(data))
        assert gated._gate.passed == passed


@every("client", WRITERS)
def test_reasoning_that_repeats_its_details_does_not_pass(client: str) -> None:
    (plain, *_), (gated, *_) = pair("default", "sentinel", client)
    for text in ("so", " it", " goes"):
        for delta in ({"reasoning_details": [{"type": "reasoning.text", "text": text}]}, {"reasoning": text}):
            assert masked(gated.feed(frame(chunk(delta)))) == masked(plain.feed(frame(chunk(delta))))
    assert gated._gate.passed == 0


def test_a_call_shuts_the_gate_until_text_follows() -> None:
    _, (gated, *_) = pair("default", "sentinel", "chat")
    call = '<tool_call>{"name":"f","arguments":"{}"}</tool_call>'
    for texts, passed in ((("Hello", " there"), 1), ((call,), 0), (("And", " then", " more"), 2)):
        gated.feed(text_frames(*texts))
        assert gated._gate.passed == passed


class Own(Stage):
    def feed(self, events: list[Event]) -> list[Event]:
        return events


class Later(Own):
    ignores_text = True


def test_who_wants_text_shuts_the_gate() -> None:
    async def settle(last: Event) -> Event:
        return last

    def mapped(kind: Kind) -> MapStage:
        return MapStage(lambda event: event, kind, None)

    offer = OfferedTools((), ToolChoice(), True, sentinel.FORMAT, ())
    scan = ScanStage(offer, RouteOptions(), LimitsConfig(), lambda name: None)
    repeated = Escapes()
    repeated.note_results(sentinel.FORMAT.results, 10)
    wants = Kind.FINISHED_CALL | Kind.EDGES | Kind.OPAQUE | Kind.CALL
    watch, finish = WatchStage(lambda event: None, None), FinishStage(settle, None)
    fine: list[Stage | FinishStage] = [scan, Later(), watch, UnwrapStage(repeated), finish, mapped(wants)]
    assert allows_fast_path(StageChain(fine))
    assert allows_fast_path(StageChain([]))
    for kind in (Kind.TEXT, Kind.REASONING, Kind.ALL):
        assert not allows_fast_path(StageChain([*fine, mapped(kind)]))
    assert not allows_fast_path(StageChain([*fine, scan]))
    assert not allows_fast_path(StageChain([Own()]))


def test_a_watcher_that_breaks_ends_the_stream_with_its_fault() -> None:
    refusal = ClientFault("No such words.")

    def refuse(event: Event) -> None:
        if getattr(event, "text", "") == " world":
            raise refusal

    chain = StageChain([WatchStage(refuse, runner(skip=False))])
    writer = ChatWriter(WriteOptions(request=REQUEST, created=1))
    gated = FastPath(ChatReader(FRAME_BYTES), chain, writer, NOTHING, FRAME_BYTES)
    gated.feed(text_frames("Hello", " world"))
    with pytest.raises(ClientFault):
        gated.feed(frame(chunk({}, "stop")))
    assert b"No such words." in gated.fail(refusal)
