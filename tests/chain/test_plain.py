"""Plain aiohttp middlewares in a chain, written as for any aiohttp application: what they see, and what becomes of what
they do."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import StreamReader, web

from tests.cases import every
from toolwire import ClientFault, GatewayError, Middleware, Reply
from toolwire.errors import BackendFault
from toolwire.pipeline.chain.middleware import Handler
from toolwire.support.conversion import ConfigError
from toolwire.testing import WireAnswer, run_chain

USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
CALL = 'Yes. <tool_call>{"name":"look","arguments":"{}"}</tool_call>'
PROMPT = ["validation", "output_format", "arguments", "transformation", "injection"]


async def ask(middleware: Any, body: dict[str, Any] | None = None, **options: Any) -> WireAnswer:
    """One request through the chain of one middleware (or several), and what a prompt-mode gateway has."""
    outer = middleware if isinstance(middleware, list) else [middleware]
    asked = {"messages": USER, **(body or {})}
    return await run_chain([*outer, *PROMPT], asked, **{"replies": ["hello"], **options})


def text_of(answer: WireAnswer) -> str:
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        deltas = [frame["choices"][0]["delta"] for frame in answer.frames() if frame != "[DONE]"]
        return "".join(delta.get("content") or "" for delta in deltas)
    return str(answer.json()["choices"][0]["message"]["content"])


def with_answer(change: Callable[[Any], Any]) -> Any:
    """A middleware that calls the rest of the chain and then `change` with its answer; sends what `change` returns, or
    the same answer if that is None."""

    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        changed = change(response)
        if asyncio.iscoroutine(changed):
            changed = await changed
        return response if changed is None else changed

    return middleware


# --- what a middleware may look like --------------------------------------------------------------------------------


async def undecorated(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    response.headers["X-Seen"] = "yes"
    return response


def named_otherwise(_req, next_handler):  # type: ignore[no-untyped-def]
    return undecorated(_req, next_handler)


class Object:
    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await undecorated(request, handler)

    async def method(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await undecorated(request, handler)

    @staticmethod
    async def static(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await undecorated(request, handler)


async def with_more(request: web.Request, handler: Handler, *, name: str = "X-Seen") -> web.StreamResponse:
    response = await handler(request)
    response.headers[name] = "yes"
    return response


def factory(name: str = "X-Seen") -> Any:
    return functools.partial(with_more, name=name)


def wrapping(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


FORMS = {
    "undecorated": undecorated,
    "decorated": web.middleware(with_more),
    "with keywords": with_more,
    "sync": named_otherwise,
    "object": Object(),
    "class": Object,
    "bound method": Object().method,
    "static method": Object.static,
    "partial": functools.partial(with_more, name="X-Seen"),
    "partial of decorated": functools.partial(web.middleware(with_more), name="X-Seen"),
    "wrapped": wrapping(undecorated),
    "factory": factory,
    "factory of an object": lambda: Object(),
    "decorated class": web.middleware(Object),
}


@every("form", FORMS)
async def test_it_may_have_any_form_that_aiohttp_calls(form: str) -> None:
    answer = await ask(FORMS[form])
    assert (answer.status, answer.headers["X-Seen"], text_of(answer)) == (200, "yes", "hello")


async def old_style(app: web.Application, handler: Handler) -> Any:
    raise AssertionError("never called")


async def no_middleware(limit: int = 5) -> None:
    raise AssertionError("never runs")


def needs_options(limit: int, burst: int) -> Any:
    return undecorated


def makes_nothing() -> Any:
    return lambda request: None


class WrongOptions(Middleware):
    Options = int


REFUSED = {
    "options of another kind": (WrongOptions, r"WrongOptions\.Options must be a dataclass"),
    "old style": (old_style, r"'app' and 'handler'"),
    "async, of something else": (no_middleware, r"async, but takes no \(request, handler\)"),
    "options are missing": (needs_options, r"'limit' and 'burst'"),
    "factory of something else": (makes_nothing, r"returned function, which does not take \(request, handler\)"),
    "no callable": (7, r"is a int, not a middleware"),
}


@every("what", REFUSED)
async def test_what_is_none_is_refused_at_the_start(what: str) -> None:
    found, message = REFUSED[what]
    with pytest.raises((TypeError, ConfigError), match=message):
        await ask(found)


# --- the request ----------------------------------------------------------------------------------------------------


async def parsed(request: web.Request) -> bytes:
    assert await request.json() == json.loads(await request.text())
    return await request.read()


async def in_parts(request: web.Request) -> bytes:
    return await request.content.readexactly(5) + await request.read()


async def joined(chunks: AsyncIterable[Any]) -> bytes:
    return b"".join([chunk[0] if isinstance(chunk, tuple) else chunk async for chunk in chunks])


async def encoded(text: Awaitable[str]) -> bytes:
    return (await text).encode()


READERS: dict[str, Callable[[web.Request], Awaitable[bytes]]] = {
    "read": lambda request: request.read(),
    "text": lambda request: encoded(request.text()),
    "json": parsed,
    "content": lambda request: request.content.read(),
    "chunks of a size": lambda request: joined(request.content.iter_chunked(7)),
    "any chunks": lambda request: joined(request.content.iter_any()),
    "chunks of the wire": lambda request: joined(request.content.iter_chunks()),
    "line": lambda request: request.content.readline(),
    "exactly": lambda request: request.content.readexactly(request.content_length or 0),
    "in parts": in_parts,
    "clone": lambda request: request.clone().read(),
}


@every("name", READERS)
async def test_the_body_can_be_read_before_and_after(name: str) -> None:
    """By every reader, as if nobody had read it, and by as many middlewares as there are. It is as it was sent, so that
    signatures can be checked."""
    seen: list[bytes] = []
    reader = READERS[name]

    async def reading(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert request.can_read_body
        assert request.body_exists
        seen.append(await reader(request))
        response = await handler(request)
        seen.append(await reader(request))
        return response

    async def consuming(request: web.Request, handler: Handler) -> web.StreamResponse:
        await request.release()
        return await handler(request)

    class Ours(Middleware):
        async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
            return await reading(request, handler)

    said = "äöü\U0001f600" * 9000
    raw = f'{{"model": "m",  "messages":[{{"role":"user","content":"{said}"}}] }}'.encode()
    answer = await run_chain([reading, consuming, reading, Ours, *PROMPT], raw, replies=["hello"])
    assert (answer.status, text_of(answer)) == (200, "hello")
    assert seen == [raw] * 6
    assert answer.requests[0].messages[-1].text == said


def replace_bytes(request: web.Request, body: bytes) -> web.Request:
    request._read_bytes = body
    return request


def replace_in_a_clone(request: web.Request, body: bytes) -> web.Request:
    clone = request.clone()
    clone._read_bytes = body
    return clone


def stream_of(request: web.Request, body: bytes) -> StreamReader:
    stream = StreamReader(request.protocol, 2**16, loop=asyncio.get_running_loop())
    stream.feed_data(body)
    stream.feed_eof()
    return stream


def replace_the_stream(request: web.Request, body: bytes) -> web.Request:
    clone = request.clone()
    clone._payload = stream_of(request, body)
    return clone


def replace_by_a_new_one(request: web.Request, body: bytes) -> web.Request:
    stream, loop = stream_of(request, body), asyncio.get_running_loop()
    return web.Request(request._message, stream, request.protocol, request.writer, request.task, loop)


@every(("tools", "stream"), [([], True), (TOOLS, False)])
@every("replace", [replace_bytes, replace_in_a_clone, replace_the_stream, replace_by_a_new_one])
async def test_a_body_that_was_replaced_is_the_request(
    replace: Callable[[web.Request, bytes], web.Request], tools: list[Any], stream: bool
) -> None:
    seen: list[Any] = []

    async def rewriting(request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await (request if replace is replace_bytes else request.clone()).json()  # aiohttp clones what is unread
        body["messages"][0]["content"] += " there"
        return await handler(replace(request, json.dumps(body).encode()))

    async def looking(request: web.Request, handler: Handler) -> web.StreamResponse:
        seen.append((await request.json())["messages"])
        return await handler(request)

    body = {"tools": tools, "stream": stream}
    for chain in ([rewriting, looking], [looking, rewriting]):
        answer = await ask(chain, body)
        assert (answer.status, text_of(answer)) == (200, "hello")
        assert answer.requests[0].messages[-1].text == "hi there"
    assert seen == [[{"role": "user", "content": "hi there"}], USER]


async def test_each_try_takes_the_body_that_it_is_given() -> None:
    async def twice(request: web.Request, handler: Handler) -> web.StreamResponse:
        body = await request.clone().json()
        for word in (" once", " again"):
            sent = json.dumps({**body, "messages": [{"role": "user", "content": "hi" + word}]}).encode()
            response = await handler(replace_in_a_clone(request, sent))
        return response

    answer = await ask(twice)
    assert [request.messages[-1].text for request in answer.requests] == ["hi once", "hi again"]


async def test_a_body_that_is_replaced_too_late_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What an outer middleware made of the request would be lost."""

    class Changing(Middleware):
        async def on_request(self, exchange: Any, request: Any) -> Any:
            from dataclasses import replace

            return replace(request, messages=(*request.messages, *request.messages))

    async def rewriting(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await handler(replace_bytes(request, b'{"model":"m","messages":[{"role":"user","content":"new"}]}'))

    answer = await ask([Changing, rewriting])
    assert (answer.status, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "put it further out" in caplog.text
    assert answer.requests == ()


# --- the answer -----------------------------------------------------------------------------------------------------


@every("body", [{}, {"tools": TOOLS}])
async def test_a_whole_answer_is_a_response_with_a_body(body: dict[str, Any]) -> None:
    """Looking at it changes nothing."""
    seen: dict[str, Any] = {}

    def look(response: Any) -> None:
        assert isinstance(response, web.Response)
        assert isinstance(response, Reply)
        assert (response.status, response.reason, response.prepared) == (200, "OK", False)
        assert response.content_type == "application/json"
        assert isinstance(response.body, bytes)
        assert response.text == response.body.decode()
        assert response.content_length == len(response.body)
        seen["body"] = response.body

    reply = [CALL if body else "hello"]
    answer = await ask([with_answer(look), with_answer(look)], body, replies=reply)
    assert answer.body == seen["body"]
    message = answer.json()["choices"][0]["message"]
    assert message["content"] == ("Yes." if body else "hello")
    assert [call["function"]["name"] for call in message.get("tool_calls", ())] == (["look"] if body else [])
    assert answer.headers["X-Usage-Source"] == "estimate" if body else "X-Usage-Source"
    plain = await ask([], body, replies=reply)
    assert {name for name in answer.headers if answer.headers.get(name) != plain.headers.get(name)} <= {
        *("Content-Type", "Date", "X-Request-ID", "X-Request-Id", "Content-Length", "openai-processing-ms")
    }
    if not body:  # the ids of calls differ
        assert {**plain.json(), "id": 0, "created": 0} == {**answer.json(), "id": 0, "created": 0}


def changed(response: Any) -> bytes:
    answer = json.loads(response.text)
    answer["choices"][0]["message"]["content"] += "!"
    return json.dumps(answer).encode()


def set_body(response: Any) -> None:
    response.body = changed(response)


def set_text(response: Any) -> None:
    response.text = changed(response).decode()


def fresh(response: Any) -> web.Response:
    return web.json_response(body=changed(response), headers={"X-Fresh": "yes"})


def fresh_with_the_old_head(response: Any) -> web.Response:
    body = changed(response)
    headers = {**response.headers, "Content-Length": str(len(body))}
    return web.Response(body=body, status=response.status, headers=headers)


@every("change", [set_body, set_text, fresh, fresh_with_the_old_head])
async def test_a_body_that_was_replaced_is_what_everybody_gets(change: Any) -> None:
    """The client, and those further out: plain ones, those with hooks, and who looks on. Limits on use count the tokens
    of an answer that was replaced."""
    seen: list[str] = []
    replacing = with_answer(change)

    class Watching(Middleware):
        async def on_reply(self, exchange: Any, reply: Any) -> Any:
            seen.append("".join(part.text for part in reply.choices[0].parts))
            return reply

    class LookingOn(Middleware):
        def declare(self, exchange: Any, reply: Reply) -> None:
            def see(event: Any) -> None:
                seen.append(getattr(event, "text", ""))

            reply.watch(see)

    answer = await ask([Watching, replacing])
    assert (text_of(answer), seen) == ("hello!", ["hello!"])
    answer = await ask(replacing)
    assert (answer.status, text_of(answer)) == (200, "hello!")
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert ", " in answer.body.decode(), "the middleware's own bytes"
    for chain, text in (([LookingOn, replacing], "hello!"), ([replacing, LookingOn], "hello")):
        seen.clear()
        answer = await ask(chain)
        assert (text_of(answer), "".join(seen)) == ("hello!", text)
    assert text_of(await ask([replacing, replacing, replacing])) == "hello!!!"


@every("stream", [False, True])
async def test_the_head_is_set_on_both_kinds_of_answers(stream: bool) -> None:
    def dress(response: Any) -> None:
        assert not response.prepared
        assert response.content_type == ("text/event-stream" if stream else "application/json")
        if not stream:
            response.content_type = "application/vnd.mine+json"
        response.headers["X-One"] = "1"
        response.headers.add("X-Two", "a")
        response.headers.add("X-Two", "b")
        response.set_cookie("first", "1", httponly=True)
        response.set_cookie("second", "2")
        response.set_status(202)
        response.enable_compression()

    answer = await ask(with_answer(dress), {"stream": stream}, headers={"Accept-Encoding": "gzip"})
    assert (answer.status, answer.headers["X-One"]) == (202, "1")
    assert stream or answer.headers["Content-Type"] == "application/vnd.mine+json"
    assert answer.headers.getall("X-Two") == ["a", "b"]  # type: ignore[attr-defined]
    assert len(answer.headers.getall("Set-Cookie")) == 2  # type: ignore[attr-defined]
    assert answer.headers["Content-Encoding"] == "gzip"
    assert text_of(answer) == "hello"  # the client has unpacked it


async def test_a_stream_has_no_text_and_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    for name, set_it in (("text", False), ("body", False), ("text", True), ("body", True)):

        def look(response: Any, name: str = name, set_it: bool = set_it) -> None:
            assert not isinstance(response, web.Response)
            assert not hasattr(response, name)
            if set_it:
                setattr(response, name, "new")
            getattr(response, name)

        caplog.clear()
        answer = await ask(with_answer(look), {"stream": True})
        assert (answer.status, answer.json()["error"]["code"]) == (500, "internal_error")
        assert f"this answer has no `{name}`" in caplog.text
        assert "`reply.map`" in caplog.text


# --- errors ---------------------------------------------------------------------------------------------------------

REFUSALS = {
    400: ({"tool_choice": "required"}, web.HTTPBadRequest, ClientFault),
    502: ({}, web.HTTPBadGateway, BackendFault),
}
BROKEN = [{"error": {"status": 500, "message": "out of order"}}]


@every(("status", "stream"), [(400, False), (502, True)])
async def test_an_error_is_what_aiohttp_would_raise_and_what_it_was(status: int, stream: bool) -> None:
    body, http, kind = REFUSALS[status]
    seen: list[Any] = []

    async def catching(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            seen.append(error)
            error.headers["X-Caught"] = str(error.status)
            error.set_cookie("caught", "yes")
            raise

    answer = await ask([catching, catching], {**body, "stream": stream}, replies=BROKEN)
    assert len(seen) == 2
    for error in seen:
        assert isinstance(error, http)
        assert isinstance(error, kind)
        assert isinstance(error, GatewayError)
        assert type(error).__name__ == kind.__name__
        assert (error.status, error.status_code, json.loads(error.text or "")) == (status, status, answer.json())
        assert error.message == answer.json()["error"]["message"]
    assert (answer.status, answer.headers["X-Caught"]) == (status, str(status))
    assert answer.headers["Set-Cookie"] == "caught=yes; Path=/"


@pytest.mark.parametrize("returned", [False, True], ids=["raised", "returned"])
async def test_the_error_may_be_answered_otherwise(returned: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")

    async def catching(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if returned:
                return error
            return web.json_response({"mine": error.status}, status=error.status)

    answer = await ask(catching, {"tool_choice": "required"})
    assert answer.status == 400
    assert answer.json().get("mine") == (None if returned else 400)
    assert caplog.records[-1].fields["code"] == "invalid_tool_choice"  # type: ignore[attr-defined]
