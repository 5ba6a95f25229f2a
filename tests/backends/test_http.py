"""HTTP backends over real sockets: what is sent, what comes back, failures (R10.5 to R10.9), time limits (R10.3), and
connections that are kept (R10.4). Silence, and more of connections: `test_wire_client.py`."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.backends.conftest import Connect, ask, bytes_of, events_of, fault_of
from tests.backends.peers import CHUNKED
from tests.cases import every
from toolwire.config import BackendConfig, GatewayConfig, LimitsConfig, Pool, Timeouts
from toolwire.configuration.checks import check_values
from toolwire.errors import BackendFault, GatewayError
from toolwire.events import Finish
from toolwire.folding import fold
from toolwire.model import Usage
from toolwire.registry import usual_server
from toolwire.support.conversion import ConfigError
from toolwire.testing import Answer, Raw, Refuse, Say, Upstream, chunk, frame
from toolwire.upstream.client.wire_client import WireClient
from toolwire.upstream.servers.http import HttpBackend, base_url

# --- what is sent ---------------------------------------------------------------------------------------------------


@every(
    ("given", "base"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        ("https://h/api", "https://h/api/v1"),
        ("https://h/api/v3", "https://h/api/v3"),
        ("https://h/v1beta/openai/", "https://h/v1beta/openai"),
        ("http://[::1]:8080", "http://[::1]:8080/v1"),
    ],
)
def test_base_url(given: str, base: str) -> None:
    assert str(base_url(given, "/chat/completions")) == base


@every("given", ["h:1", "ftp://h", "", "http://", "http://a..b", f"http://{'a' * 64}.example:80/v1"])
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        base_url(given, "/chat/completions")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@host:80/v1?key=secret#secret", "https://host:80/v1"),
        ("http://user:12/secret@host", ""),
        ("http://user:12/se@cret@host/v1", ""),
        ("http://user:12?secret@host", ""),
        ("http://user:12#secret@host", ""),
        ("http://user:secret@[::1", ""),
        (None, ""),
    ],
)
def test_an_address_in_a_message_has_no_secret(url: str | None, shown: str) -> None:
    assert BackendConfig(url=url).public_url == shown


def test_a_backend_needs_a_url() -> None:
    with pytest.raises(ValueError, match="url"):
        HttpBackend("b", BackendConfig(), LimitsConfig(), usual_server())


def test_a_kind_of_server_without_a_url_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"backends\.b\.url: required for the kind 'openai_responses'"):
        check_values(GatewayConfig(backends={"b": BackendConfig(kind="openai_responses")}))


async def test_the_request_on_the_wire(server: Upstream, connect: Connect) -> None:
    server.script = [Say("ok")]
    backend = await connect(api_key="k1", headers={"X-Team": "blue"})
    await events_of(backend)
    asked = server.requests[0]
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.json["messages"] == [{"role": "user", "content": "hi"}]
    assert asked.json["stream"] is True
    assert asked.json["stream_options"] == {"include_usage": True}
    wanted = {
        "authorization": "Bearer k1",
        "x-team": "blue",
        "x-request-id": "r",
        "content-type": "application/json",
        "accept-encoding": "identity",
        "accept": "text/event-stream",
    }
    assert {name: asked.headers.get(name) for name in wanted} == wanted


async def test_headers_of_a_middleware(server: Upstream, connect: Connect) -> None:
    """R35.2. They stand beside those of the configuration; one that is sent anyway would be there twice."""
    server.script = [Say("ok")]
    backend = await connect(api_key="k1", headers={"X-Team": "blue"})
    await events_of(backend, server_headers={"X-Key": "ada"})
    assert fold(await events_of(backend)).text == "ok"
    assert [(asked.headers.get("x-team"), asked.headers.get("x-key")) for asked in server.requests] == [
        ("blue", "ada"),
        ("blue", None),
    ]
    for name in ("authorization", "X-team", "Content-Type", "X-Request-Id", "Host"):
        with pytest.raises(ValueError, match=f"a middleware set '{name.lower()}', a header that backend 'up' sends"):
            await events_of(backend, server_headers={name: "x"})
    with pytest.raises(ValueError, match="not an HTTP header"):
        await events_of(backend, server_headers={"X-Key": "a\r\nX-Evil: b"})
    assert len(server.requests) == 2


# --- what comes back ------------------------------------------------------------------------------------------------


async def test_proxy_variables_are_ignored(server: Upstream, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.script = [Say("ok")]
    assert isinstance((await events_of(await connect(trust_env=False)))[-1], Finish)
    assert "authorization" not in server.requests[0].headers


async def test_a_whole_answer(server: Upstream, connect: Connect) -> None:
    server.script = [Say("Hello", usage=(5, 2))]
    backend = await connect()
    source = await backend.open(ask(stream=False), request_id="r")
    reply = await source.reply()
    assert (reply.text, reply.usage) == ("Hello", Usage(5, 2))
    source = await backend.open(ask(stream=False), request_id="r")
    assert orjson.loads(await source.body())["choices"][0]["message"]["content"] == "Hello"


async def test_a_server_that_does_not_stream(server: Upstream, connect: Connect) -> None:
    whole = Say("Hello")

    def answer(asked: Any) -> Answer:
        asked.body = b"{}"
        return whole(asked)

    server.script = [answer]
    backend = await connect()
    assert fold(await events_of(backend)).text == "Hello"
    source = await backend.open(ask(), request_id="r")
    data = await bytes_of(source)
    assert b'"content":"Hello"' in data
    assert data.endswith(b"data: [DONE]\n\n")


async def test_a_server_that_streams_unasked(server: Upstream, connect: Connect) -> None:
    def answer(asked: Any) -> Answer:
        asked.body = b'{"stream":true}'
        return Say("Hel", "lo")(asked)

    server.script = [answer]
    backend = await connect()
    source = await backend.open(ask(stream=False), request_id="r")
    assert (await source.reply()).text == "Hello"
    source = await backend.open(ask(stream=False), request_id="r")
    assert orjson.loads(await source.body())["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stream_with_the_label_of_a_whole_answer(server: Upstream, connect: Connect, stream: bool) -> None:
    frames = [frame(chunk({"content": "Hel"})), frame(chunk({"content": "lo"}, "stop")), frame("[DONE]")]
    server.script = [streamed(*frames, kind="application/json")]
    backend = await connect()
    source = await backend.open(ask(stream=stream), request_id="r")
    if stream:
        assert await bytes_of(source) == b"".join(frames)
        assert fold(await events_of(backend)).text == "Hello"
    else:
        assert orjson.loads(await source.body())["choices"][0]["message"]["content"] == "Hello"
        source = await backend.open(ask(stream=False), request_id="r")
        parts = [part async for part in source.body_in_parts()]
        assert orjson.loads(b"".join(parts))["choices"][0]["message"]["content"] == "Hello"


# --- statuses and failures ------------------------------------------------------------------------------------------


async def test_a_refusal(server: Upstream, connect: Connect) -> None:
    """Neither an address nor the key reaches the client. Every status: `test_upstream_errors.py`."""
    backend = await connect(api_key="topsecret123")
    said = "the reason at http://10.0.0.1:1/, bad key topsecret123"
    server.script = [Refuse(429, said, headers={"Retry-After": "7"})]
    for stream in (True, False):
        with pytest.raises(GatewayError) as caught:
            await backend.open(ask(stream=stream), request_id="r")
        error = caught.value
        assert (error.status, error.code, error.headers) == (429, "rate_limit_exceeded", {"Retry-After": "7"})
        assert "the reason at [address]" in error.message
        assert "topsecret123" not in error.message


async def test_redirects_are_not_followed(server: Upstream, connect: Connect) -> None:
    server.script = [Refuse(307, headers={"Location": f"{server.url}/elsewhere"})]
    with pytest.raises(BackendFault, match="redirect"):
        await (await connect()).open(ask(), request_id="r")
    assert len(server.requests) == 1


RAW: dict[bytes, str] = {
    b"": "upstream_disconnected",
    b"HTTP/1.1 200": "upstream_disconnected",
    b"\x00\x01 garbage\r\n\r\n": "upstream_invalid_response",
    b"SSH-2.0-OpenSSH_9.2\r\n": "upstream_invalid_response",
    b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n": "upstream_invalid_response",
}
STATUS_LINES = (
    *(b"HTTP/1.1 000 OK", b"HTTP/1.1 000", b"HTTP/1.1 099 No", b"HTTP/1.1 600 No", b"HTTP/1.1 999 No"),
    *(b"HTTP/1.1 20 No", b"HTTP/1.1 2000 OK", b"HTTP/1.1 abc OK", b"HTTP/1.1 2x0 OK", b"HTTP/1.1 -200 OK"),
    *(b"HTTP/1.1 \xd9\xa2\xd9\xa0\xd9\xa0 OK", b"HTTP/9.9 200 OK", b"HTTP/2.0 200 OK", b"HTTP/2 200 OK"),
    *(b"HTTP/0.9 200 OK", b"HTTP/1.2 200 OK", b"ICY 200 OK"),
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x",
)
REST = b"\r\nContent-Type: text/event-stream\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n"


async def test_no_http_answer(server: Upstream, connect: Connect) -> None:
    """At once: nothing here waits for a limit of time. On a new connection, so nothing is sent twice."""
    cases = [(Raw(raw), code) for raw, code in RAW.items()]
    cases += [(Raw(line + REST, hang=True), "upstream_invalid_response") for line in STATUS_LINES]
    for number, (raw, code) in enumerate(cases, 1):
        server.script = [raw]
        backend = await connect(timeouts=Timeouts(first_byte_s=None, idle_s=None))
        with pytest.raises(BackendFault) as caught:
            await backend.open(ask(), request_id="r")
        assert (caught.value.status, caught.value.code) == (502, code), raw
        assert len(server.requests) == number, raw


def streamed(*steps: bytes, kind: str = "text/event-stream", **more: Any) -> Answer:
    return Answer(list(steps), headers={"Content-Type": kind}, **more)


A_FRAME = frame(chunk({"content": "a"}))
REFUSAL = {"message": "out of memory on 10.0.0.7", "type": "server_error", "code": None}
BROKEN: dict[str, tuple[Any, str]] = {
    "cut": (Say("Hel", cut=True), "upstream_disconnected"),
    "cut inside a frame": (streamed(A_FRAME[:20], cut=True), "upstream_disconnected"),
    "just stops": (streamed(A_FRAME), "upstream_disconnected"),
    "an error": (streamed(frame({"error": REFUSAL})), "upstream_error"),
    "no JSON": (streamed(b"data: {nonsense\n\n"), "upstream_invalid_response"),
    "a web page": (streamed(b"<html></html>", kind="text/html"), "upstream_invalid_response"),
    "too large a frame": (Say("x" * 5000), "upstream_invalid_response"),
}


async def test_broken_streams(server: Upstream, connect: Connect) -> None:
    for name, (answer, code) in BROKEN.items():
        server.script = [answer]
        error = await fault_of(await connect(LimitsConfig(frame_bytes=4000)))
        assert (error.status, error.code) == (502, code), name
        assert name != "an error" or "out of memory on [address]" in error.message
    server.script = [streamed(orjson.dumps({"error": REFUSAL}), kind="application/json", framing="length")]
    source = await (await connect()).open(ask(stream=False), request_id="r")
    with pytest.raises(BackendFault, match=r"out of memory on \[address\]"):  # in a whole answer as well
        await source.reply()


async def test_a_whole_answer_that_is_too_large(server: Upstream, connect: Connect) -> None:
    server.script = [Say("x" * 5000)]
    source = await (await connect(LimitsConfig(reply_bytes=4000))).open(ask(stream=False), request_id="r")
    with pytest.raises(BackendFault, match="4000 bytes"):
        await source.body()
    await source.close()


# --- health ---------------------------------------------------------------------------------------------------------


async def test_ready_and_models(server: Upstream, connect: Connect) -> None:
    backend = await connect()
    assert await backend.ready()
    assert server.looks[-1].path == "/v1/models"
    assert await backend.models() == ["m", "n"]
    assert await (await connect(health_path="/health")).ready()
    assert server.looks[-1].path == "/health"


async def test_not_ready(connect: Connect) -> None:
    async with Upstream() as gone:
        url = gone.url
    backend = await connect(url=url)
    assert not await backend.ready()
    with pytest.raises(BackendFault) as caught:
        await backend.models()
    assert (caught.value.code, caught.value.message) == ("upstream_disconnected", "The model server cannot be reached.")


NO_LISTS: dict[str, tuple[Answer, str]] = {
    "no key": (Answer([b"no"], status=401), "upstream_auth"),
    "no path": (Answer([b"404 page not found"], status=404), "upstream_error"),
    "led elsewhere": (Answer([b"there"], status=302, headers={"Location": "/v1/models"}), "upstream_error"),
    "failing": (Answer([b"{}"], status=500), "upstream_error"),
    "a page": (Answer([b"<html>router</html>"], headers={"Content-Type": "text/html"}), "upstream_invalid_response"),
    "nothing": (Answer([]), "upstream_invalid_response"),
    "something else": (Answer([b'{"status":"ok"}']), "upstream_invalid_response"),
    "null": (Answer([b"null"]), "upstream_invalid_response"),
    "no list": (Answer([b'{"data":{"id":"m"}}']), "upstream_invalid_response"),
    "too much": (Answer([b" " * 70_000]), "upstream_invalid_response"),
    "cut": (Answer([b'{"data":[{"id'], cut=True), "upstream_disconnected"),
    "no HTTP": (Raw(b"hello\r\n\r\n"), "upstream_invalid_response"),
}


async def test_no_list_of_models_is_no_empty_one(server: Upstream, connect: Connect) -> None:
    backend = await connect(limits=LimitsConfig(frame_bytes=65_536))
    for name, (answer, code) in NO_LISTS.items():
        server.listing = answer
        with pytest.raises(BackendFault) as caught:
            await backend.models()
        assert caught.value.code == code, name
        assert "127.0.0.1" not in caught.value.message


async def test_lists_of_models(server: Upstream, connect: Connect) -> None:
    backend = await connect()
    more = asyncio.Event()
    for steps, names in (
        ([b'{"object":"list","data":[]}'], []),
        ([b'{"object":"list","data":null}'], []),
        ([b'[{"id":"a"},{"id":3},"b",{"id":"c"}]'], ["a", "c"]),
        ([b'{"data":[{"id":"a"},', more, b'{"id":"b"}]}'], ["a", "b"]),  # in pieces
    ):
        server.listing = Answer(steps)
        asyncio.get_running_loop().call_later(0.02, more.set)
        assert await backend.models() == names, steps


async def test_a_server_that_has_no_list_says_so_in_its_configuration(server: Upstream, connect: Connect) -> None:
    server.listing = Answer([b"404"], status=404)
    assert await (await connect(health_path="/health")).models() == []


async def test_a_backend_must_be_started() -> None:
    backend = HttpBackend("b", BackendConfig(url="http://127.0.0.1:1"), LimitsConfig(), usual_server())
    await backend.close()
    with pytest.raises(RuntimeError, match="not started"):
        await backend.open(ask(), request_id="r")


@pytest.mark.parametrize(
    "config", [{"api_key": "secret\n"}, {"headers": {"X-A": "secret\x00"}}, {"headers": {"X A": "secret"}}]
)
async def test_headers_that_cannot_be_sent_are_refused_at_the_start(connect: Connect, config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not an HTTP header") as caught:
        await connect(**config)
    assert "secret" not in str(caught.value)


# --- time limits ----------------------------------------------------------------------------------------------------


async def overdue(backend: HttpBackend) -> GatewayError:
    """Returns the error of a limit: in the stream, or before it where the machine paused for so long."""
    try:
        return await fault_of(backend)
    except BackendFault as fault:
        return fault


async def test_time_limit_for_the_first_byte_of_the_body(server: Upstream, connect: Connect) -> None:
    server.script = [Answer(headers={"Content-Type": "text/event-stream"}, hang=True)]
    error = await overdue(await connect(timeouts=Timeouts(first_byte_s=0.2, idle_s=60)))
    assert (error.status, error.code) == (504, "upstream_timeout")
    assert "first byte" in error.message


async def test_a_reader_that_takes_its_time_is_not_the_servers_silence(server: Upstream, connect: Connect) -> None:
    server.script = [Answer([b": x\n\n"], headers={"Content-Type": "text/event-stream"}, hang=True)]
    backend = await connect(timeouts=Timeouts(idle_s=0))
    source = await backend.open(ask(), request_id="r")
    reads = source._answer.reads()
    await anext(reads)
    assert isinstance(backend.client, WireClient)
    for _ in range(3):
        backend.client.patrol()  # the timer, while nobody reads: a limit of nothing has passed long ago
    with pytest.raises(BackendFault, match="idle"):
        await anext(reads)
    await source.close()


async def test_time_limit_for_everything(server: Upstream, connect: Connect) -> None:
    server.script = [Answer([b": x\n\n"], headers={"Content-Type": "text/event-stream"}, hang=True)]
    assert "total" in (await overdue(await connect(timeouts=Timeouts(total_s=0.2)))).message
    server.script = [Raw(hang=True)]
    with pytest.raises(BackendFault, match="total"):
        await (await connect(timeouts=Timeouts(total_s=0.05))).open(ask(), request_id="r")


# --- connections -------------------------------------------------------------------------------------


async def test_time_limit_for_connecting(connect: Connect) -> None:
    # A listening socket whose queue is full does not answer: the kernel drops further connection requests.
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]
        try:
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            backend = await connect(url=f"http://127.0.0.1:{port}", timeouts=Timeouts(connect_s=0.1))
            with pytest.raises(BackendFault, match="connecting") as caught:
                await backend.open(ask(), request_id="r")
            assert (caught.value.status, caught.value.code) == (504, "upstream_timeout")
        finally:
            for client in waiting:
                client.close()


async def test_a_refusal_does_not_keep_its_connection_busy(server: Upstream, connect: Connect) -> None:
    server.script = [Refuse(500), Say("a")]
    backend = await connect(pool=Pool(connections=1))
    with pytest.raises(BackendFault):
        await backend.open(ask(), request_id="r")
    await events_of(backend)


async def test_a_kept_connection_that_dies_after_its_first_byte_is_not_replaced(
    server: Upstream, connect: Connect
) -> None:
    server.script = [Say("a"), Raw(CHUNKED[:1]), Say("b")]
    backend = await connect()
    await events_of(backend)
    with pytest.raises(BackendFault) as caught:
        await backend.open(ask(), request_id="r")
    assert caught.value.code == "upstream_disconnected"
    assert len(server.requests) == 2
