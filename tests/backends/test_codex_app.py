"""The parts of `codex_app_server` by themselves: lines, names, texts, and what is said of a turn. Together:
`tests/e2e/test_codex_app.py`."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tests.cases import every
from toolwire.config import CodexConfig
from toolwire.configuration.settings import load
from toolwire.errors import BackendFault, GatewayError
from toolwire.events import Event, Finish, Start
from toolwire.extras.codex_app.answer import TurnEvents, read_usage
from toolwire.extras.codex_app.rpc import RpcConnection
from toolwire.extras.codex_app.stdio import ProcessTransport
from toolwire.extras.codex_app.thread_request import RESERVED, thread_request, tool_aliases, transcript
from toolwire.extras.codex_app.transport import Transport, TransportBroken
from toolwire.folding import fold
from toolwire.model import Image, Message, ModelRequest, Part, Reasoning, Text, ToolResult, ToolSpec, ToolUse
from toolwire.stream_grammar import check
from toolwire.support.conversion import ConfigError
from toolwire.support.environment import environment
from toolwire.support.lines import HEAD_BYTES, LOGGED_LINES, LOGGED_PER_S, LineSplitter, OversizedLine, log_lines
from toolwire.upstream.servers.private_data import NOTHING

# --- lines ------------------------------------------------------------------------------------------------------------


@every("seed", range(20))
def test_lines_are_the_same_however_they_are_cut(seed: int) -> None:
    """Those that are too large come as their beginning, once."""
    rng = random.Random(seed)
    lines = [bytes(rng.choices(b"abc", k=rng.choice([0, 1, 5, 20, 21, 40]))) for _ in range(30)]
    data = b"\n".join(lines) + b"\n"
    splitter, got = LineSplitter(20), []
    while data:
        size = rng.choice([1, 3, 17, 100])
        got += splitter.feed(data[:size])
        data = data[size:]
    assert len(got) == len(lines)
    for line, found in zip(lines, got, strict=True):
        if len(line) <= 20:
            assert found == line
        else:
            assert isinstance(found, OversizedLine)
            assert line.startswith(found.head[:20])


def test_of_a_line_that_is_too_large_only_its_head_is_kept() -> None:
    splitter = LineSplitter(100_000)
    got = [found for _ in range(100) for found in splitter.feed(b"x" * 10_000)]
    (found,) = [*got, *splitter.feed(b"\n")]
    assert isinstance(found, OversizedLine)
    assert found.head == b"x" * HEAD_BYTES
    assert splitter.feed(b"next\n") == [b"next"]


async def test_lines_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.chain([0.0] * 151, itertools.repeat(LOGGED_PER_S + 1))
    monkeypatch.setattr("toolwire.support.lines.time", SimpleNamespace(monotonic=lambda: next(clock)))
    stream = asyncio.StreamReader()
    stream.feed_data(b"".join(b"line %d\n \r\n\n" % n for n in range(LOGGED_LINES + 50)) + b"x" * 9000 + b"\nlast\n")
    stream.feed_data(b"more\n" * (LOGGED_LINES + 5))
    stream.feed_eof()
    logged: list[bytes] = []
    left_out: list[int] = []
    await log_lines(stream, 8192, logged.append, left_out.append)
    assert logged[:LOGGED_LINES] == [b"line %d" % n for n in range(LOGGED_LINES)]
    assert logged[LOGGED_LINES:][:2] == [b"x" * HEAD_BYTES, b"last"], "a minute later"
    assert len(logged) == 2 * LOGGED_LINES
    assert left_out == [50, 7]


# --- a process --------------------------------------------------------------------------------------------------------


async def test_a_process_that_does_not_read_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held for it is bounded; and it is killed in the end."""
    monkeypatch.setattr("toolwire.extras.codex_app.stdio.GRACE_S", 0.1)
    monkeypatch.setattr("toolwire.extras.codex_app.stdio.MOST_UNSENT", 1_000_000)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    )
    transport = await ProcessTransport.start(
        "up", [sys.executable, "-I", "-S", "-c", code], env={}, folder=".", frame_bytes=1000, private=NOTHING
    )
    frames = transport.frames()
    assert await anext(frames) == b"on"
    with pytest.raises(TransportBroken):
        all(transport.send(b"x" * 100_000) is None for _ in range(100))
    await frames.aclose()  # type: ignore[attr-defined]  # a generator
    await transport.close()
    await transport.close()
    assert await transport.wait_ended() is None


async def test_a_program_that_is_not_there_may_be_later_or_elsewhere() -> None:
    with pytest.raises(BackendFault) as caught:
        await ProcessTransport.start("up", ["/no/such"], env={}, folder=".", frame_bytes=1, private=NOTHING)
    assert caught.value.transient


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert environment({"A": "1"}, (), proxies=False).items() >= {"A": "1", "PATH": "/bin"}.items()
    assert {"OPENAI_API_KEY", "https_proxy"}.isdisjoint(environment({}, (), proxies=False))
    assert {"OPENAI_API_KEY", "https_proxy"} <= environment({}, ["OPENAI_API_KEY"], proxies=True).keys()
    assert environment({"PATH": "/own"}, (), proxies=False)["PATH"] == "/own"


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_every_tool_has_a_name_of_its_own() -> None:
    """None that the server keeps to itself, refuses, or has twice; the same one wherever that is possible."""
    names = [
        "read_file",
        "exec_command",
        "client_exec_command",
        "a.b",
        "a_b",
        "a b",
        *sorted(RESERVED - {"exec_command"}),
        "größe",
    ]
    aliases = tool_aliases(names)
    assert [aliases[name] for name in ("read_file", "client_exec_command", "a_b")] == [
        "read_file",
        "client_exec_command",
        "a_b",
    ]
    assert len(set(aliases.values())) == len(names) == len(aliases)
    assert RESERVED.isdisjoint(aliases.values())
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", alias) for alias in aliases.values())


TALK = (
    Message("system", (Text("Be good."),)),
    Message("user", (Text("Look: "), Image("data:1"), Text("and"))),
    Message("assistant", (Text("I do."), ToolUse("c1", "read", '{"a": 1}'))),
    Message("tool", (ToolResult("c1", (Text("seven"), Image("data:2"))),)),
)


def test_a_transcript() -> None:
    """One text, and the images behind it in their order."""
    text, *images = transcript(TALK)
    assert images == [{"type": "image", "url": "data:1"}, {"type": "image", "url": "data:2"}]
    assert text["text"] == (
        "=== system\nBe good.\n\n=== user\nLook: \n[image 1]\nand\n\n"
        '=== assistant\nI do.\n[function_call call_id=c1 name=read arguments={"a": 1}]\n\n'
        "=== tool\n[function_call_output call_id=c1 output=seven\n[image 2]]"
    )


def test_what_is_large_is_written_the_same() -> None:
    request = ModelRequest("m", TALK, (ToolSpec("read", "d", {"type": "object"}), ToolSpec("exec_command")))
    asked = thread_request(request, CodexConfig(), "/x", ["evil"])
    written = asked.written()
    for value, other in ((asked.thread, written.thread), (asked.items, written.items), (asked.turn, written.turn)):
        assert orjson.loads(orjson.dumps(other)) == orjson.loads(orjson.dumps(value))
    assert asked.thread["config"]["mcp_servers"] == {"evil": {"enabled": False}}
    assert asked.names == {"read": "read", "client_exec_command": "exec_command"}


def test_a_form_is_enforced_or_asked_for() -> None:
    """Codex makes every schema a strict one."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    for strict, tools in itertools.product((True, False), ((), (ToolSpec("read"),))):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}
        asked = thread_request(ModelRequest("m", TALK, tools, response_format=form), CodexConfig(), None, [])
        assert asked.turn.get("outputSchema") == (schema if strict else None)
        assert ('"properties"' in asked.thread["baseInstructions"]) is not strict
    asked = thread_request(ModelRequest("m", TALK, response_format={"type": "json_object"}), CodexConfig(), None, [])
    assert "one JSON object" in asked.thread["baseInstructions"]


def test_ids_of_calls_are_not_too_long() -> None:
    """A call and its result keep the same, and two calls two."""
    ids = ["x" * 200, "x" * 199 + "y", "c1"]
    uses = Message("assistant", tuple(ToolUse(ident, "read", "{}") for ident in ids))
    results = Message("tool", tuple(ToolResult(ident, (Text("r"),)) for ident in ids))
    items = thread_request(ModelRequest("m", (uses, results), (ToolSpec("read"),)), CodexConfig(), None, []).items
    calls, outputs = [item["call_id"] for item in items[:3]], [item["call_id"] for item in items[3:]]
    assert calls == outputs
    assert len(set(calls)) == 3
    assert max(map(len, calls)) <= 64
    assert calls[2] == "c1"


def test_own_keys_win() -> None:
    config = CodexConfig(config={"model_provider": "x", "features": {"shell_tool": True}})
    settings = thread_request(ModelRequest("m", TALK), config, None, []).thread["config"]
    assert (settings["model_provider"], settings["features"]["shell_tool"]) == ("x", True)
    assert settings["features"]["goals"] is False


# --- what is said of a turn -------------------------------------------------------------------------------------------


def note(method: str, **params: Any) -> Mapping[str, Any]:
    return {"method": method, "params": params}


def delta(item: str, text: str) -> Mapping[str, Any]:
    return note("item/agentMessage/delta", itemId=item, delta=text)


def thought(item: str, text: str, form: str = "textDelta") -> Mapping[str, Any]:
    return note(f"item/reasoning/{form}", itemId=item, delta=text)


def done(item: str, text: str, kind: str = "agentMessage") -> Mapping[str, Any]:
    words = {"text": text} if kind == "agentMessage" else {"summary": [text], "content": []}
    return note("item/completed", item={"type": kind, "id": item, **words})


def end(status: str = "completed", **turn: Any) -> Mapping[str, Any]:
    return note("turn/completed", turn={"status": status, **turn})


def said(messages: Sequence[Mapping[str, Any]], *, whole: bool = False) -> list[tuple[str, str]]:
    """The parts of the answer, after its events were found in order."""
    turn = TurnEvents({}, NOTHING, whole=whole)
    events: list[Event] = [Start("", "m", 0)]
    for message in messages:
        events += turn.feed(message)
    check(events)
    return [(type(part).__name__, part.text) for part in fold(events).choices[0].parts]  # type: ignore[union-attr]


def test_text_that_the_end_of_the_turn_repeats_is_said_once() -> None:
    last = end(items=[{"type": "agentMessage", "id": "1", "text": "Hello"}])
    for before in ([], [delta("1", "Hello")], [delta("1", "Hel"), done("1", "Hello")]):
        assert said([*before, last]) == [("Text", "Hello")]


def test_items_of_one_id_one_after_the_other() -> None:
    """Ids are the model's, which may use one again."""
    begun = note("item/started", item={"type": "agentMessage", "id": "1", "text": ""})
    assert said([begun, delta("1", "a"), done("1", "a"), begun, done("1", "bc"), end()]) == [("Text", "abc")]


def test_thoughts_are_told_in_one_form() -> None:
    messages = [
        note("item/reasoning/summaryPartAdded", itemId="r", summaryIndex=0),
        thought("r", "a", "summaryTextDelta"),
        note("item/reasoning/summaryPartAdded", itemId="r", summaryIndex=1),
        thought("r", "b", "summaryTextDelta"),
        thought("r", "RAW"),
        done("r", "a", "reasoning"),
        delta("1", "Yes."),
        end(),
    ]
    assert said(messages) == [("Reasoning", "a\n\nb"), ("Text", "Yes.")]
    assert said([done("r", "all", "reasoning"), delta("1", "x"), end()]) == [("Reasoning", "all"), ("Text", "x")]


ODD: list[Mapping[str, Any]] = [
    note("item/completed", item=None),
    note("item/completed", item={"type": "agentMessage"}),
    note("item/completed", item={"type": "reasoning", "id": 1, "content": "x"}),
    note("item/agentMessage/delta", itemId=None, delta=None),
    note("item/agentMessage/delta", delta=7),
    note("thread/tokenUsage/updated", tokenUsage=None),
    note("thread/tokenUsage/updated", tokenUsage={"total": {"inputTokens": "many", "outputTokens": -1}}),
    note("rawResponseItem/completed", item=None),
    note("rawResponse/completed"),
    note("item/tool/call", tool=None),
    note("what/ever", item={"type": "agentMessage", "id": "1", "text": "x"}),
]


def test_what_is_odd_is_left_out() -> None:
    for some in itertools.permutations(ODD, 2):
        turn = TurnEvents({"read": "read"}, NOTHING, whole=False)
        events = [event for message in (*some, delta("1", "Yes."), end()) for event in turn.feed(message)]
        assert isinstance(events[-1], Finish)


@pytest.mark.parametrize(
    "last",
    [end("failed"), end("failed", error="x"), end("interrupted"), end("new"), end(status=None), note("turn/completed")],  # type: ignore[arg-type]
)
def test_an_end_that_is_none_is_an_error(last: Mapping[str, Any]) -> None:
    with pytest.raises(GatewayError):
        said([delta("1", "Half"), last])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ({"message": "The key is wrong."}, "The key is wrong."),
        ("The key is wrong.", "The key is wrong."),
        ({"message": "Incomplete response returned, reason: max_output_tokens"}, None),  # the end of the answer
    ],
)
def test_an_error_of_a_turn_is_told_unless_it_is_an_end(error: Any, told: str | None) -> None:
    turn = TurnEvents({}, NOTHING, whole=False)
    assert turn.feed(note("error", error=error, willRetry=False)) == []
    assert turn.failing is None if told is None else turn.failing is not None and told in turn.failing.message


def test_counts() -> None:
    usage = read_usage({"inputTokens": 3, "outputTokens": 2, "cachedInputTokens": 1, "reasoningOutputTokens": 1})
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens) == (3, 2, 1, 1)
    assert read_usage({"inputTokens": 0, "outputTokens": 0}) is None
    assert read_usage(None) is None


# --- corners: item x neighbour x way of coming x end ------------------------------------------------------------------

Item = Mapping[str, Any]

ITEMS: dict[str, Callable[[int], tuple[Item, Part]]] = {
    "text": lambda n: ({"type": "agentMessage", "id": f"i{n}", "text": f"text {n}"}, Text(f"text {n}")),
    "thought": lambda n: ({"type": "reasoning", "id": f"i{n}", "content": [f"one {n}", "two"], "summary": []}, Reasoning(f"one {n}\n\ntwo")),
    "summary": lambda n: ({"type": "reasoning", "id": f"i{n}", "content": [], "summary": [f"sum {n}"]}, Reasoning(f"sum {n}")),
}  # fmt: skip


def deltas(item: Item) -> list[Item]:
    """The deltas of an item, four characters at a time, with an empty one behind each."""
    kind = {"agentMessage": "item/agentMessage/delta", "reasoning": "item/reasoning/textDelta"}[item["type"]]
    text = item.get("text") or "\n\n".join(item.get("content") or ())
    if item.get("summary"):
        kind, text = "item/reasoning/summaryTextDelta", "\n\n".join(item["summary"])
    pieces = [text[at : at + 4] for at in range(0, len(text), 4)]
    return [note(kind, itemId=item["id"], delta=piece) for whole in pieces for piece in (whole, "")]


def usual(item: Item) -> list[Item]:
    """Begun, said, and completed."""
    return [note("item/started", item=item), *deltas(item), note("item/completed", item=item)]


def only_completed(item: Item) -> list[Item]:
    """The whole item at once."""
    return [note("item/completed", item=item)]


def half_said(item: Item) -> list[Item]:
    """The first deltas; of a message the whole item says the rest."""
    said = deltas(item)
    return [*(said[:2] if item["type"] == "agentMessage" else said), note("item/completed", item=item)]


def unannounced(item: Item) -> list[Item]:
    """Deltas only."""
    return deltas(item)


WAYS = [usual, only_completed, half_said, unannounced]
USED = note("thread/tokenUsage/updated", tokenUsage={"total": {"inputTokens": 3, "outputTokens": 4}})
DONE = note("turn/completed", turn={"status": "completed", "items": []})
NAMES = {"gateway_f": "f"}


def called(n: int) -> Item:
    item = {"type": "function_call", "name": "gateway_f", "call_id": f"c{n}", "arguments": f'{{"a":{n}}}'}
    return note("rawResponseItem/completed", item=item)


def told(*messages: Item, whole: bool = False) -> tuple[list[Event], TurnEvents]:
    """The stream that these notifications amount to."""
    turn = TurnEvents(NAMES, NOTHING, whole=whole)
    events: list[Event] = [Start("id", "m", 1)]
    for one in messages:
        if not turn.over:
            events += turn.feed(one)
    if turn.over:
        check(events)
    return events, turn


@every("way", WAYS)
@every("second", ITEMS)
@every("first", ITEMS)
def test_items_say_what_they_say_alone(first: str, second: str, way: Callable[[Item], list[Item]]) -> None:
    made = [ITEMS[name](n) for n, name in enumerate((first, second, first))]
    events, turn = told(*(one for item, _ in made for one in way(item)), USED, DONE)
    reply = fold(events)
    wanted = [part for _, part in made]
    assert joined(list(reply.choices[0].parts)) == joined(wanted)
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 4)
    assert turn.has_text == ("text" in (first, second))


def joined(parts: list[Part]) -> list[tuple[type, str]]:
    """Neighbours of one kind as one: where one text ends nobody says."""
    out: list[tuple[type, str]] = []
    for part in parts:
        assert isinstance(part, Text | Reasoning)
        if out and out[-1][0] is type(part):
            out[-1] = (type(part), out[-1][1] + part.text)
        else:
            out.append((type(part), part.text))
    return out


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", [None, *ITEMS])
def test_calls_end_the_answer_behind_what_was_said(name: str | None, count: int) -> None:
    item = usual(ITEMS[name](0)[0]) if name else []
    usage = {"inputTokens": 3, "outputTokens": 4}
    for ends in ([note("rawResponse/completed", usage=usage)], [DONE]):
        events, turn = told(*item, *map(called, range(count)), *ends)
        assert turn.over
        if ends == [DONE]:
            continue  # its calls were never to be run
        reply = fold(events)
        assert list(reply.calls) == [ToolUse(f"c{n}", "f", f'{{"a":{n}}}') for n in range(count)]
        assert (reply.choices[0].reason, reply.usage and reply.usage.output_tokens) == ("tool_calls", 4)


@every("way", [usual, only_completed, unannounced])
@every("whole", [True, False])
@every("again", ITEMS)
@every("name", ITEMS)
def test_what_begins_anew_is_never_joined_to_what_came_before(
    name: str, again: str, whole: bool, way: Callable[[Item], list[Item]]
) -> None:
    item, part = ITEMS[again](0)
    retry = note("error", error={"message": "cut"}, willRetry=True)
    before = [*deltas(ITEMS[name](0)[0])[:2], retry]
    if name == "text" and not whole:
        with pytest.raises(GatewayError):
            told(*before)
        return
    forgotten = len(told(*before, whole=whole)[0]) if whole else 0
    events, turn = told(*before, *way(item), DONE, whole=whole)
    assert turn.restarts == whole
    reply = fold([Start("id", "m", 1), *events[forgotten:]] if whole else events)
    assert reply.choices[0].parts[-1] == part


# --- what is configured -----------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "needs `command"),
    "both": ({"command": ["codex"], "url": "ws://127.0.0.1:1"}, "either `command` or `url`"),
    "http": ({"url": "http://127.0.0.1:1"}, "ws://"),
    "a key for a process": ({"command": ["codex"], "api_key": "x"}, "codex.env"),
    "no program": ({"command": [""]}, "expected a program"),
    "another kind": ({"kind": "openai_chat", "url": "http://127.0.0.1:1", "command": ["codex"]}, "only the kind"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    backend, said_of_it = MISTAKES[name]
    with pytest.raises(ConfigError, match=re.escape(said_of_it)):
        load(None, env={}, overrides={"backends": {"up": {"kind": "codex_app_server", **backend}}})


def test_both_spellings_are_read() -> None:
    for place in (
        {"command": ["codex", "app-server"]},
        {"url": "ws://127.0.0.1:4500"},
        {"url": "wss://codex.example.org/x"},
    ):
        load(None, env={}, overrides={"backends": {"up": {"kind": "codex_app_server", **place}}})


# --- the connection -------------------------------------------------------------------------------------------------


class Silent(Transport):
    """A server that answers no request, and says `said` when one comes."""

    def __init__(self, *said: bytes) -> None:
        self._said = said
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, frame: bytes) -> None:
        for one in self._said:
            self._frames.put_nowait(one)

    async def frames(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._frames.get()

    async def close(self) -> None:
        pass


@every("said, alive", [((), False), ((b'{"method":"turn/started","params":{}}',), True)])
async def test_a_request_without_an_answer_ends_a_connection_that_is_silent(
    said: tuple[bytes, ...], alive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says something else works at another request, and is not cut off."""
    monkeypatch.setattr("toolwire.extras.codex_app.rpc.ANSWER_S", 0.2)
    connection = RpcConnection("codex", Silent(*said))
    try:
        with pytest.raises(BackendFault) as caught:
            await connection.request("turn/start", {})
        assert caught.value.code == "upstream_timeout"
        assert connection.alive is alive
    finally:
        await connection.close()
