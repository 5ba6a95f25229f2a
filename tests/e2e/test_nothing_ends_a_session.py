"""One odd field never ends a client's session (R28.4, R3.2, R3.7, R5.9): odd requests over all client protocols, before
servers of all kinds. Each cell says what must reach the server, and the one warning of it."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import product
from typing import Any, Final, NamedTuple

import orjson
import pytest
from aiohttp.test_utils import TestServer

from tests.cases import every, first_and_in_turn
from tests.e2e.agent import block
from tests.e2e.conftest import gateway_before, get, post, read_config, serving
from tests.e2e.engines import page
from tests.e2e.meaning import PATHS, meant, says
from toolwire.model import Text, ToolUse
from toolwire.testing import Refuse, Upstream, WireAnswer

PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="
PNG: Final = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
NOTE: Final = "[image omitted: this model takes no images]"
SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


class Kind(NamedTuple):
    """A kind of server behind the gateway: its kind, the route's mode, and whether it does tools itself."""

    kind: str
    mode: str

    @property
    def native(self) -> bool:
        return self.mode == "native"


SERVERS: Final = {
    "text": Kind("openai_chat", "prompt"),
    "chat": Kind("openai_chat", "native"),
    "responses": Kind("openai_responses", "native"),
    "messages": Kind("anthropic_messages", "native"),
}
CLIENTS: Final = tuple(PATHS)


class Seen(NamedTuple):
    """An answer, the bodies that reached the server, and the names of the warnings."""

    answer: WireAnswer
    bodies: list[Any]
    told: set[str]

    @property
    def text(self) -> str:
        """The last body as text."""
        return orjson.dumps(self.bodies[-1]).decode()


class Sessions:
    """Clients that ask gateways before servers of each kind. Requests under one configuration share a gateway."""

    def __init__(self, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture) -> None:
        self._stack = stack
        self._caplog = caplog
        self._running: dict[bytes, tuple[Upstream, TestServer]] = {}

    async def __call__(
        self,
        client: str,
        server: str,
        *bodies: Mapping[str, Any],
        status: int = 200,
        script: Any = None,
        backend: Mapping[str, Any] | None = None,
        parts: tuple[Any, ...] = (),
        raw: bytes | None = None,
    ) -> Seen:
        """The last answer, which has this status. With a `script` the gateway and its server are new ones."""
        kind = SERVERS[server]
        key = orjson.dumps([server, dict(backend or {})])
        if script is not None or key not in self._running:
            up = await self._stack.enter_async_context(Upstream(script or [lambda asked: self._says(asked)]))
            section = {"kind": kind.kind, "url": up.url, **(backend or {})}
            config = read_config({"backends": {"up": section}, "defaults": {"mode": kind.mode}})
            self._running[key] = up, await self._stack.enter_async_context(serving(config))
        up, gateway = self._running[key] if script is None else self._running.pop(key)
        self._says = says(kind.kind, *(parts or (Text("ok"),)))
        before = len(up.requests)
        for body in bodies:
            self._caplog.clear()
            sent = whole(client, body) if raw is None else raw
            answer = await post(gateway, sent, path=PATHS[client])
        assert answer.status == status, answer.body
        told = {r.getMessage().split(": ")[1] for r in self._caplog.records if r.name == "toolwire.tolerated"}
        return Seen(answer, [one.json for one in up.requests[before:]], told)


@pytest.fixture
async def ask(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Sessions]:
    caplog.set_level(logging.WARNING, "toolwire.tolerated")
    async with AsyncExitStack() as stack:
        yield Sessions(stack, caplog)


def whole(client: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A request with what its protocol demands."""
    return {"model": "m", **({"max_tokens": 64} if client == "messages" else {}), **body}


def user(client: str, *parts: Any) -> dict[str, Any]:
    """A request in which the user says these parts."""
    turn = {"role": "user", "content": list(parts)}
    return {"input": [turn]} if client == "responses" else {"messages": [turn]}


TEXT: Final = {
    "chat": {"type": "text", "text": "look"},
    "responses": {"type": "input_text", "text": "look"},
    "messages": {"type": "text", "text": "look"},
}
IMAGE: Final = {
    "chat": {"type": "image_url", "image_url": {"url": PIXEL}},
    "responses": {"type": "input_image", "image_url": PIXEL},
    "messages": {"type": "image", "source": PNG},
}
TOOL: Final = {
    "chat": lambda name, schema: {"type": "function", "function": {"name": name, "parameters": schema}},
    "responses": lambda name, schema: {"type": "function", "name": name, "parameters": schema},
    "messages": lambda name, schema: {"name": name, "input_schema": schema},
}


def called(
    client: str,
    *results: Any,
    arguments: Any = None,
    ids: tuple[str, ...] = ("c1",),
    between: Any = None,
    said: bool = True,
) -> dict[str, Any]:
    """A history with calls of `read` and these results, each an id (None: none) and content; `between` stands before
    the results."""
    given = {"path": "a"} if arguments is None else arguments
    text = given if isinstance(given, str) else orjson.dumps(given).decode()
    begin, end = {"role": "user", "content": "go"}, [{"role": "user", "content": "on"}] if said else []
    middle = [] if between is None else [{"role": "user", "content": between}]
    if client == "responses":
        calls = [{"type": "function_call", "call_id": one, "name": "read", "arguments": text} for one in ids]
        outs = [{"type": "function_call_output", "output": c, **({"call_id": i} if i else {})} for i, c in results]
        return {"input": [begin, *calls, *middle, *outs, *end]}
    if client == "messages":
        uses = [{"type": "tool_use", "id": one, "name": "read", "input": given} for one in ids]
        blocks = [{"type": "tool_result", "content": c, **({"tool_use_id": i} if i else {})} for i, c in results]
        answers = [{"role": "user", "content": blocks}] if blocks else []
        return {"messages": [begin, {"role": "assistant", "content": uses}, *middle, *answers, *end]}
    made = [{"id": one, "type": "function", "function": {"name": "read", "arguments": text}} for one in ids]
    tools = [{"role": "tool", "content": c, **({"tool_call_id": i} if i else {})} for i, c in results]
    return {"messages": [begin, {"role": "assistant", "content": None, "tool_calls": made}, *middle, *tools, *end]}


def pairs(server: str, body: Any) -> list[str]:
    """The order of calls, results and other turns that reached a server, as one word each: `call:ID`, `result:ID`,
    `user`, `assistant`."""
    out: list[str] = []
    for turn in body["input" if server == "responses" else "messages"]:
        inside = turn["content"] if server == "messages" else turn.get("tool_calls")
        out += [_word(part) or turn["role"] for part in (inside if isinstance(inside, list) else [turn])]
    return out


def _word(part: Any) -> str | None:
    match part:
        case {"type": "function_call", "call_id": ident} | {"type": "tool_use" | "function", "id": ident}:
            return f"call:{ident}"
        case {"type": "function_call_output", "call_id": ident} | {"tool_use_id": ident} | {"tool_call_id": ident}:
            return f"result:{ident}"
    return None


def cells(*servers: str) -> Any:
    """Every client protocol before these servers."""
    return every(("client", "server"), product(CLIENTS, servers or SERVERS))


def cells_with(name: str, values: Iterable[Any], servers: Sequence[str] = tuple(SERVERS)) -> Any:
    """The first value before each of these servers, the others before one, with the client protocols in turn."""
    rows = enumerate(first_and_in_turn(values, servers))
    cells = [(CLIENTS[number % len(CLIENTS)], server, value) for number, (value, server) in rows]
    return every(("client", "server", name), cells)


NATIVE: Final = ("chat", "responses", "messages")


# --- images ---------------------------------------------------------------------------------------------------------


@cells()
async def test_an_image(ask: Sessions, client: str, server: str) -> None:
    """R5.9: it becomes a note where the model takes none, and goes to a server of which nothing is known."""
    body = user(client, TEXT[client], IMAGE[client])
    seen = await ask(client, server, body, backend={"images": "false"})
    assert NOTE in seen.text
    assert "iVBOR" not in seen.text
    assert seen.told == {"images_omitted"}
    for tools in (None, [], [TOOL[client]("read", SCHEMA)]):
        seen = await ask(client, server, {**body, "tools": tools})
        assert "iVBORw0KGgo=" in seen.text
        assert not seen.told
    turns, earlier = "input" if client == "responses" else "messages", called(client, ("c1", "done"), said=False)
    seen = await ask(client, server, {turns: [*earlier[turns], *body[turns]]})
    assert "iVBORw0KGgo=" in seen.text, "also where earlier calls are written as text"
    seen = await ask(client, server, body, status=400, backend={"images": "error"})
    assert not seen.bodies
    assert "takes no images" in seen.answer.body.decode()


@cells_with(
    "words",
    [
        "At most 0 image(s) may be provided in one request.",
        "model does not support image input",
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "m is not a multimodal model",
        "unknown variant `image_url`, expected `text`",
    ],
)
async def test_a_refusal_of_images_is_answered_with_a_note_and_remembered(
    ask: Sessions, client: str, server: str, words: str
) -> None:
    kind = SERVERS[server].kind
    body = user(client, TEXT[client], IMAGE[client])
    seen = await ask(client, server, body, body, script=[Refuse(400, words), says(kind, Text("ok"))])
    assert ["iVBOR" in orjson.dumps(one).decode() for one in seen.bodies] == [True, False, False]
    assert NOTE in seen.text
    assert seen.told == {"images_omitted"}


@cells(*NATIVE)
async def test_images_in_results(ask: Sessions, client: str, server: str) -> None:
    """They stay where the protocol has pictures in results, else they follow in a user message, in order."""
    content = [TEXT[client], IMAGE[client]]
    body = called(client, ("c1", content), ("c2", content), ids=("c1", "c2"), said=False)
    seen = await ask(client, server, body)
    assert seen.text.count("iVBORw0KGgo=") == 2
    if server != "chat":
        assert not seen.told
        return
    assert seen.told == {"images_moved"}
    assert pairs(server, seen.bodies[-1]) == ["user", "call:c1", "call:c2", "result:c1", "result:c2", "user"]
    shown = seen.bodies[-1]["messages"][-1]["content"]
    assert [part["type"] for part in shown] == ["text", "image_url"] * 2
    assert ["c1" in shown[0]["text"], "c2" in shown[2]["text"]] == [True, True]
    assert all(isinstance(m["content"], str) for m in seen.bodies[-1]["messages"] if m["role"] == "tool")


# --- files ----------------------------------------------------------------------------------------------------------


def pdf(text: str) -> str:
    """A small PDF with this text, as base64."""
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%b\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (table, len(out))
    return base64.b64encode(out + end).decode()


def document(client: str, data: str, media: str = "application/pdf", name: str = "a.pdf") -> dict[str, Any]:
    """A file in the words of a client's protocol."""
    named = {"filename": name, "file_data": f"data:{media};base64,{data}"}
    source = {"type": "base64", "media_type": media, "data": data}
    return {
        "chat": {"type": "file", "file": named},
        "responses": {"type": "input_file", **named},
        "messages": {"type": "document", "title": name, "source": source},
    }[client]


@cells_with("where", ["user", "result"])
async def test_a_pdf(ask: Sessions, client: str, server: str, where: str) -> None:
    data = pdf("Total 42 EUR")
    part = document(client, data)
    body = user(client, TEXT[client], part) if where == "user" else called(client, ("c1", [TEXT[client], part]))
    seen = await ask(client, server, body)
    sent_as_file = data in seen.text
    own = SERVERS[server].kind == SERVERS[client].kind
    if server in ("responses", "messages") or (own and where == "user"):
        assert sent_as_file
        assert not seen.told
    else:
        assert not sent_as_file
        assert "Total 42 EUR" in seen.text
        assert seen.told == {"files_as_text"}


OTHER_FILES: Final = {
    "files_omitted": ("AAAA", "application/zip", "a.zip", "[file omitted: a.zip"),
    "files_as_text": (base64.b64encode(b"seven, eight").decode(), "text/csv", "a.csv", "seven, eight"),
}


@every("told", OTHER_FILES)
@cells()
async def test_other_files_become_text_or_a_note(ask: Sessions, client: str, server: str, told: str) -> None:
    data, media, name, shown = OTHER_FILES[told]
    part = document(client, data, media, name)
    seen = await ask(client, server, user(client, TEXT[client], part), backend={"files": False})
    assert shown in seen.text
    assert seen.told == {told}


TEXTS: Final = {
    "search_result": {"source": "https://x/y", "title": "Prices", "content": [{"type": "text", "text": "42 EUR"}]},
    "compaction": {"content": "42 EUR"},
    "document": {"source": {"type": "text", "data": "42 EUR"}, "context": "Prices"},
    "input_text": {"text": "42 EUR"},
}


@every("server", SERVERS)
@every("kind", TEXTS)
async def test_blocks_that_are_text_reach_every_server(ask: Sessions, server: str, kind: str) -> None:
    seen = await ask("messages", server, user("messages", {"type": kind, **TEXTS[kind]}))
    assert "42 EUR" in seen.text
    assert ("Prices" in seen.text) == (kind in ("search_result", "document"))
    assert "Continue." not in seen.text


async def test_what_a_chat_server_has_no_form_for(ask: Sessions, caplog: pytest.LogCaptureFixture) -> None:
    """Content becomes a note, other items are left out with a notice: nothing is lost in silence."""
    for part, told in (("input_file", "files_omitted"), ("input_image", "images_omitted")):
        seen = await ask("responses", "text", user("responses", {"type": part, "file_id": "file_1"}))
        assert seen.told == {told}
    item = {"type": "shell_call", "action": {}}
    await ask("responses", "text", {"input": [{"role": "user", "content": "hi"}, item]})
    assert "shell_call" in caplog.text


# --- tools ----------------------------------------------------------------------------------------------------------


LONG: Final = ["n" * 127 + "a", "n" * 127 + "b"]


@cells_with("way", list(product((False, True), repeat=2)))
async def test_long_names(ask: Sessions, client: str, server: str, way: tuple[bool, bool]) -> None:
    """R3.2: in calls, in histories and in `tool_choice`; a client always gets its own name back."""
    stream, short = way
    second = LONG[1]
    tools = [TOOL[client](name, SCHEMA) for name in LONG]
    seen = await ask(client, server, {**user(client, TEXT[client]), "tools": tools}, backend={"short_names": short})
    native = SERVERS[server].native
    shortens = short and native
    assert (second in seen.text) != shortens
    assert seen.told == ({"names_shortened"} if shortens else set())
    names = _names(seen.bodies[-1]) if native else LONG
    assert len(set(names)) == 2
    assert all(len(name) <= 64 for name in names) or not shortens
    history = orjson.dumps(called(client, ("c1", "done"), said=False)).replace(b'"read"', orjson.dumps(second))
    choice = {
        "chat": {"type": "function", "function": {"name": second}},
        "responses": {"type": "function", "name": second},
        "messages": {"type": "tool", "name": second},
    }
    body = {**orjson.loads(history), "tools": tools, "tool_choice": choice[client], "stream": stream}
    if client == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    call: Any = ToolUse("c9", names[1], '{"path":"x"}')
    if not native:
        call = Text(block(second, {"path": "x"}))
    seen = await ask(client, server, body, parts=(call,), backend={"short_names": short})
    assert meant(PATHS[client], seen.answer, stream)[1] == [(second, {"path": "x"})]
    if native:
        assert seen.text.count(names[1]) == 3  # on offer, chosen, called


def _names(body: Any) -> list[str]:
    return [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]


ODD_SCHEMAS: Final[dict[str, Any]] = {
    "draft-04 bound": {"type": "object", "properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}},
    "draft-04 id": {"id": "http://x/y#", "$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
    "PCRE": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?i)^abc$"}}},
    "PCRE that is none": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?P<x>a)(?&x)"}}},
    "PCRE of names": {"type": "object", "patternProperties": {"^(?!x_)": {"type": "string"}}},
    "type any": {"type": "object", "properties": {"a": {"type": "any"}}},
    "null description": {"type": "object", "properties": {"a": {"type": "string", "description": None}}},
    "null enum": {"type": "object", "properties": {"a": {"type": "string", "enum": None}}},
    "empty enum": {"type": "object", "properties": {"a": {"type": "string", "enum": []}}},
    "null required": {"type": "object", "properties": {"a": {"type": "string"}}, "required": None},
    "required in the property": {"type": "object", "properties": {"a": {"type": "string", "required": True}}},
    "null properties": {"type": "object", "properties": None},
    "unknown format": {"type": "object", "properties": {"a": {"type": "string", "format": "uint64"}}},
    "lost reference": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Gone"}}},
    "unknown dialect": {"$schema": "https://example.com/schema", "type": "object", "properties": {}},
    "no type": {"properties": {"a": {"type": "string"}}},
    "empty": {},
    "tuple of draft 7": {"properties": {"l": {"items": [{"type": "string"}], "additionalItems": False}}},
    "lists in place of objects": {"properties": {"a": {"type": "", "properties": []}}, "$defs": []},
    "null type": {"type": None, "properties": {"a": {"type": "string"}}},
    "list of types at the root": {"type": ["object", "null"], "properties": {}},
    "null": None,
}


@cells_with("schema", ODD_SCHEMAS)
async def test_an_odd_schema_keeps_its_tool(ask: Sessions, client: str, server: str, schema: str) -> None:
    tools = [TOOL[client]("read", SCHEMA), TOOL[client]("odd", ODD_SCHEMAS[schema])]
    arguments = '{"a":"x"}'
    call: Any = ToolUse("c9", "odd", arguments)
    if not SERVERS[server].native:
        call = Text(block("odd", orjson.loads(arguments)))
    seen = await ask(client, server, {**user(client, TEXT[client]), "tools": tools}, parts=(call,))
    assert "odd" in seen.text
    assert meant(PATHS[client], seen.answer, False)[1] == [("odd", {"a": "x"})]
    assert len(seen.told) <= 1
    if SERVERS[server].native:
        sent = seen.bodies[-1]["tools"][1]
        given = sent.get("input_schema") or (sent.get("function") or sent).get("parameters")
        assert isinstance(given, dict)
        assert given["type"] == "object"


# --- histories ------------------------------------------------------------------------------------------------------


NO_OBJECTS: Final[dict[str, Any]] = {
    '{"path":"a': {"input": '{"path":"a'},
    "read it": {"input": "read it"},
    "[1]": {"input": [1]},
    "": {},
    "null": {},
    '"{\\"path\\":\\"a\\"}"': {"path": "a"},
}


@cells_with("arguments", NO_OBJECTS)
async def test_arguments_that_are_no_object(ask: Sessions, client: str, server: str, arguments: str) -> None:
    seen = await ask(client, server, called(client, ("c1", "done"), arguments=arguments))
    assert "done" in seen.text
    if SERVERS[server].native:
        assert _arguments(server, seen.bodies[-1]) == NO_OBJECTS[arguments]


def _arguments(server: str, body: Any) -> Any:
    """The arguments of the one call, which stands in the second turn."""
    turn = body["input" if server == "responses" else "messages"][1]
    if server == "messages":
        return turn["content"][0]["input"]
    return orjson.loads(turn["arguments"] if server == "responses" else turn["tool_calls"][0]["function"]["arguments"])


@every("server", SERVERS)
@every("client", ["chat", "responses"])
@every("given", [{"path": "a"}, None])
async def test_arguments_that_are_no_text(ask: Sessions, client: str, server: str, given: Any) -> None:
    raw = orjson.dumps(whole(client, called(client, ("c1", "done"), arguments="@")))
    seen = await ask(client, server, {}, raw=raw.replace(b'"@"', orjson.dumps(given)))
    assert seen.told == {"arguments_settled"}
    if SERVERS[server].native:
        assert _arguments(server, seen.bodies[-1]) == (given or {})


@cells_with("call_id", [None, "gone"])
async def test_a_result_without_its_call_is_shown(ask: Sessions, client: str, server: str, call_id: str | None) -> None:
    seen = await ask(client, server, called(client, ("c1", "first"), (call_id, "lost and found")))
    assert "lost and found" in seen.text
    if SERVERS[server].native:
        assert pairs(server, seen.bodies[-1])[:3] == ["user", "call:c1", "result:c1"]
        assert not any("gone" in word for word in pairs(server, seen.bodies[-1]))
        assert seen.told == {"result_without_call"}


@cells()
async def test_results_without_ids_are_those_of_the_calls(ask: Sessions, client: str, server: str) -> None:
    """In order, of the latest calls: an earlier one has no result."""
    key = "input" if client == "responses" else "messages"
    before = called(client, ids=("c0",))
    body = called(client, (None, "one"), (None, "two"), (None, "three"), ids=("c1", "c2"))
    seen = await ask(client, server, {key: [*before[key], *body[key]]})
    assert [word for word in ("one", "two", "three") if word in seen.text] == ["one", "two", "three"]
    assert seen.told >= {"result_without_id", "result_without_call"}
    if SERVERS[server].native:
        calls = [word for word in pairs(server, seen.bodies[-1]) if word not in ("user", "assistant")]
        assert calls == ["call:c0", "result:c0", "call:c1", "call:c2", "result:c1", "result:c2"]


@cells()
async def test_a_result_without_id_is_not_that_of_a_call_with_one(ask: Sessions, client: str, server: str) -> None:
    """Also if the one that names the call comes later."""
    seen = await ask(
        client, server, called(client, (None, "one"), ("c1", "two"), (None, "three"), ids=("c1", "c2", "c3"))
    )
    assert seen.told == {"result_without_id"}
    if SERVERS[server].native:
        calls = [word for word in pairs(server, seen.bodies[-1]) if word.startswith("result")]
        assert calls == ["result:c2", "result:c1", "result:c3"]


MARKS: Final = (
    *([{"id": "c2"}, {"id": "c1"}], [{"name": "write"}, {"name": "read"}], [{"name": "write"}, {}]),
    *([{}, {"tool_call_id": "c1"}], [{}, {"id": "c1"}], [{"name": ""}, {"name": "read", "tool_call_id": "c1"}]),
)


@every("marks", MARKS)
async def test_results_that_name_their_calls_otherwise(ask: Sessions, marks: list[dict[str, str]]) -> None:
    """Qwen-Agent sends the call's id as the `id` of the result."""
    history = called("chat", ids=("c1", "c2"))["messages"]
    history[1]["tool_calls"][1]["function"]["name"] = "write"
    results = [{"role": "tool", "content": "done", **mark} for mark in marks]
    seen = await ask("chat", "chat", {"messages": [*history[:2], *results, *history[2:]]})
    assert pairs("chat", seen.bodies[-1])[1:5] == ["call:c1", "call:c2", "result:c2", "result:c1"]
    assert seen.told == {"result_without_id"}


RESULTS: Final[dict[str, tuple[Any, Any]]] = {
    "result_repeated": ([("c1", "a"), ("c1", "b")], None),
    "result_moved": ([("c1", "a")], "wait"),
    "call_without_result": ([], None),
}


@cells_with("told", RESULTS, NATIVE)
async def test_results_stand_behind_their_calls(ask: Sessions, client: str, server: str, told: str) -> None:
    results, between = RESULTS[told]
    seen = await ask(client, server, called(client, *results, between=between))
    assert pairs(server, seen.bodies[-1])[:4] == ["user", "call:c1", "result:c1", "user"]
    assert all(content in seen.text for _, content in results)
    assert seen.told == {told}


@cells()
async def test_calls_without_results_at_the_end(ask: Sessions, client: str, server: str) -> None:
    seen = await ask(client, server, called(client, said=False))
    if SERVERS[server].native:
        assert "result:c1" in pairs(server, seen.bodies[-1])


@cells()
async def test_odd_content(ask: Sessions, client: str, server: str) -> None:
    """Null, nothing, and parts that nobody knows."""
    odd: list[Any] = [None, "", [], [{"type": "hologram", "x": 1}]]
    turns = [{"role": "user", "content": content} for content in odd] + [{"role": "assistant", "content": None}]
    turns.append({"role": "user", "content": "last"})
    seen = await ask(client, server, {"input" if client == "responses" else "messages": turns})
    assert "content_mended" in seen.told
    assert "last" in seen.text


# --- numbers --------------------------------------------------------------------------------------------------------


@every("client", ["chat", "responses"])
async def test_a_temperature_beyond_the_server(ask: Sessions, client: str) -> None:
    seen = await ask(client, "messages", {**user(client, TEXT[client]), "temperature": 1.5})
    assert (seen.bodies[-1]["temperature"], seen.told) == (1, {"temperature_clamped"})


LIMIT: Final = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
REFUSALS: Final[list[tuple[str, int | None, bool]]] = [
    ("This model's maximum context length is 4096 tokens. However, you requested 100100 tokens (100 in the messages, 100000 in the completion).", 3996, False),
    ("'max_tokens' or 'max_completion_tokens' is too large: 100000. This model's maximum context length is 8192 tokens and your request has 35 input tokens (100000 > 8192 - 35).", 8157, False),
    ("You passed 31073 input tokens and requested 100000 output tokens. However, the model's context length is only 131072 tokens, resulting in a maximum input length of 31072 tokens.", None, False),
    ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.", 16384, True),
    ("The maximum tokens you requested exceeds the model limit of 8192. Try again with a maximum tokens value that is lower than 8192.", 8192, True),
    ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for m", 64000, True),
    ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model", 8192, True),
    ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192, True),
    ("Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 101000 tokens: 1000 tokens from the input messages and 100000 tokens for the completion.", 3096, False),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 1000 `inputs` tokens and 100000 `max_new_tokens`", 3096, False),
    ("input length and `max_tokens` exceed context limit: 1000 + 100000 > 20000, decrease input length or `max_tokens` and try again", 19000, False),
]  # fmt: skip


@cells_with("refusal", REFUSALS)
async def test_a_limit_that_is_refused(
    ask: Sessions, client: str, server: str, refusal: tuple[str, int | None, bool]
) -> None:
    """Asked again with what the server says; what holds for every request is remembered."""
    words, wanted, lasting = refusal
    kind = SERVERS[server].kind
    body = {**user(client, TEXT[client]), LIMIT[client]: 100_000}
    seen = await ask(client, server, body, body, script=[Refuse(400, words), says(kind, Text("ok"))])
    sent = [one.get(LIMIT["chat" if server == "text" else server]) for one in seen.bodies]
    assert sent == [100_000, wanted, wanted if lasting else 100_000]


@every("server", SERVERS)
async def test_a_limit_of_nothing(ask: Sessions, server: str) -> None:
    """Anthropic's way to fill the cache."""
    seen = await ask("messages", server, {**user("messages", TEXT["messages"]), "max_tokens": 0})
    limits = {"messages": {"max_tokens": 0}, "responses": {"max_output_tokens": 16}}
    assert seen.bodies[-1].items() >= limits.get(server, {"max_tokens": 1}).items()


@every("client", CLIENTS)
async def test_half_a_character(ask: Sessions, client: str) -> None:
    """A client cuts its text inside an emoji; every later turn sends the half again."""
    body = {**user(client, {**TEXT[client], "text": r"a HALF \\ud83d b"}), "tools": [TOOL[client]("read", SCHEMA)]}
    raw = orjson.dumps(whole(client, body)).replace(b"HALF", rb"\ud83d\ude00 \ud83d")
    seen = await ask(client, "text", body, raw=raw)
    assert "a 😀 � " in seen.text
    assert r"\\ud83d b" in seen.text
    assert seen.told == {"half_characters"}


async def test_a_context_that_is_known() -> None:
    """A limit beyond all of the context is never sent to a server that has said how large that is."""
    async with gateway_before([says("openai_chat", Text("ok"))], defaults={"mode": "native"}) as (gateway, up):
        up.listing = page({"object": "list", "data": [{"id": "m", "max_model_len": 4096}]})
        for client in CLIENTS:
            body = whole(client, {**user(client, TEXT[client]), LIMIT[client]: 32_000})
            assert (await post(gateway, body, path=PATHS[client])).status == 200
            assert 3000 < up.requests[-1].json["max_tokens"] < 4096, client


@every("client", ["chat", "responses"])
@every(
    ("server", "effort", "wanted"),
    [
        ("messages", "minimal", "low"),
        ("messages", "none", None),
        ("responses", "max", "xhigh"),
        ("messages", "high", "high"),
    ],
)
async def test_an_effort_beyond_the_server(
    ask: Sessions, client: str, server: str, effort: str, wanted: str | None
) -> None:
    said = {"reasoning": {"effort": effort}} if client == "responses" else {"reasoning_effort": effort}
    seen = await ask(client, server, {**user(client, TEXT[client]), **said}, backend={"reasoning_effort": True})
    sent = seen.bodies[-1].get("output_config" if server == "messages" else "reasoning") or {}
    assert sent.get("effort") == wanted
    assert seen.told == (set() if effort == wanted else {"effort_clamped"})


async def test_an_effort_that_is_refused(ask: Sessions) -> None:
    words = "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low', 'medium', and 'high'."
    body = {**user("chat", TEXT["chat"]), "reasoning_effort": "minimal"}
    seen = await ask("chat", "chat", body, body, script=[Refuse(400, words), says("openai_chat", Text("ok"))])
    assert [one["reasoning_effort"] for one in seen.bodies] == ["minimal", "low", "low"]


@cells()
async def test_a_parameter_that_is_refused(ask: Sessions, client: str, server: str) -> None:
    words = "Unsupported value: 'temperature' does not support 0.7 with this model. Only the default (1) value is supported."
    body = {**user(client, TEXT[client]), "temperature": 0.7}
    kind = SERVERS[server].kind
    seen = await ask(client, server, body, body, script=[Refuse(400, words), says(kind, Text("ok"))])
    assert ["temperature" in one for one in seen.bodies] == [True, False, False]
    assert seen.told == {"parameter_refused"}


@every("client", ["chat", "responses"])
async def test_a_temperature_that_is_refused_as_too_high(ask: Sessions, client: str) -> None:
    """One in the server's range is sent later."""
    high, low = ({**user(client, TEXT[client]), "temperature": one} for one in (1.5, 0.7))
    words = "<400> InternalError.Algo.InvalidParameter: The parameter `temperature` must be in range [0.0, 1.0)"
    seen = await ask(client, "chat", high, high, low, script=[Refuse(400, words), says("openai_chat", Text("ok"))])
    assert [one["temperature"] for one in seen.bodies] == [1.5, 1, 1, 0.7]


@cells(*NATIVE)
async def test_a_value_that_is_wrong_is_the_clients_fault(ask: Sessions, client: str, server: str) -> None:
    words = "top_p must be in (0, 1], got 0.0."
    body = {**user(client, TEXT[client]), "top_p": 0}
    seen = await ask(client, server, body, status=400, script=[Refuse(400, words)])
    assert [one["top_p"] for one in seen.bodies] == [0]
    assert words in seen.answer.body.decode()


# --- what is said of it ---------------------------------------------------------------------------------------------


async def test_a_tolerance_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """In the access line and in the metrics, once for each request."""
    caplog.set_level(logging.INFO, "toolwire.access")
    async with gateway_before([says("openai_chat", Text("ok"))], backend={"images": "false"}) as (gateway, _):
        await post(gateway, whole("chat", user("chat", IMAGE["chat"], IMAGE["chat"])))
        metrics = await get(gateway, "/metrics")
    assert b'toolwire_tolerated_total{what="images_omitted"} 1' in metrics.body
    [line] = [record for record in caplog.records if record.name == "toolwire.access"]
    assert "images_omitted" in str(vars(line))
