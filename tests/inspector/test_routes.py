"""`/inspect` over real sockets: who may read what, and what hostile requests and files get."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Mapping
from typing import Any

import orjson

from tests.cases import every
from tests.e2e.conftest import CHAT, post, read_config
from tests.e2e.edge import running
from tests.inspector.inspected import (
    CALL,
    MESSAGES,
    RESPONSES,
    WEATHER,
    Inspected,
    answering,
    asked,
    calls,
    inspecting,
    lane,
)
from tests.waiting import GUARD_S
from toolwire.extras.capture.files import read_capture
from toolwire.extras.inspector import routes
from toolwire.extras.inspector.routes import PLACE, POLICY
from toolwire.testing import Say, Upstream

HELLO: dict[str, Any] = {"inspect": True, "backends": {"mock": {"kind": "mock", "script": ["hello"]}}}
HERS, HIS, ADMINS = "tw-her-key-0123456789abcdef", "tw-his-key-0123456789abcdef", "tw-admins-key-0123456789abc"
KEYED: dict[str, Any] = {
    **HELLO,
    "auth": {
        "keys": [
            {"key": HERS, "name": "her"},
            {"key": HIS, "name": "him", "routes": ["other"]},
            {"key": ADMINS, "name": "admin", "admin": True},
        ]
    },
    "routes": [{"model": "m", "backend": "mock"}, {"model": "other", "backend": "mock"}],
}
DATA = [
    ("GET", "setup"),
    ("GET", "feed"),
    ("GET", "exchanges/r"),
    ("GET", "exchanges/r/capture"),
    ("GET", "exchanges/r/formats"),
    ("POST", "view"),
    ("POST", "formats"),
    ("POST", "html"),
    ("POST", "export"),
    ("GET", "overview"),
    ("POST", "check"),
]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# --- the page -------------------------------------------------------------------------------------------------------


async def test_the_page_and_its_files_need_no_key() -> None:
    async with inspecting(read_config(KEYED)) as gateway:
        page = await gateway.fetch("GET", PLACE)
        assert page.status == 200
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        names = [name for name in routes.assets() if name != "index.html"]
        assert names
        for name in names:
            got = await gateway.fetch("GET", f"{PLACE}/{name}")
            assert got.status == 200, name
            assert got.headers["Content-Security-Policy"] == POLICY
            assert got.body == routes.assets()[name]
        assert page.headers["Content-Security-Policy"] == POLICY


async def test_nothing_else_is_a_file_of_the_page() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        for name in ("..%2fopening.py", "%2e%2e/app.py", "index.html", "x.py", "A.js", "nothing.js"):
            assert (await gateway.fetch("GET", f"{PLACE}/{name}")).status == 404, name


def test_the_policy_lets_nothing_run_but_the_pages_own_files() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in POLICY


async def test_data_says_what_a_browser_may_do_with_it() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        await gateway.ask(asked())
        for place in ("setup", "exchanges/r1", "exchanges/r1/capture", "exchanges/r1/formats", "overview"):
            got = await gateway.fetch("GET", f"/inspect/api/{place}")
            assert got.status == 200, place
            assert got.headers["Content-Security-Policy"] == POLICY, place
            assert got.headers["X-Content-Type-Options"] == "nosniff"
            assert got.headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in got.headers


# --- who may read ---------------------------------------------------------------------------------------------------


async def test_data_needs_a_key() -> None:
    async with inspecting(read_config(KEYED)) as gateway:
        for method, place in DATA:
            for headers in ({}, bearer("wrong")):
                got = await gateway.fetch(method, f"/inspect/api/{place}", headers=headers)
                assert (got.status, got.json()["error"]["code"]) == (401, "invalid_api_key"), place


async def test_a_key_sees_its_own_and_an_admin_sees_all() -> None:
    async with inspecting(read_config(KEYED)) as gateway:
        await post(gateway.server, asked(text="hers"), headers={"X-Request-Id": "hers", **bearer(HERS)})
        await post(gateway.server, {**asked(), "model": "other"}, headers={"X-Request-Id": "his", **bearer(HIS)})
        for ident, key, status in (
            ("hers", HERS, 200),
            ("hers", HIS, 404),
            ("his", HERS, 404),
            ("hers", ADMINS, 200),
            ("his", ADMINS, 200),
        ):
            for what in ("", "/capture", "/formats"):
                got = await gateway.fetch("GET", f"/inspect/api/exchanges/{ident}{what}", headers=bearer(key))
                assert got.status == status, (ident, key, what)
        assert (await gateway.ended("his", **bearer(ADMINS)))["status"] == 200
        assert (await gateway.ended("hers", **bearer(ADMINS)))["status"] == 200
        counted = {}
        for key in (HERS, HIS, ADMINS):
            _, overview = await gateway.get("overview", **bearer(key))
            counted[key] = {route["model"]: sum(route["requests"]) for route in overview["routes"]}
        assert counted == {HERS: {"m": 1, "other": 1}, HIS: {"other": 1}, ADMINS: {"m": 1, "other": 1}}


FOREIGN: list[Mapping[str, str]] = [
    {"Host": "evil.example"},
    {"Host": "evil.example:80"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "["},
    {"Host": "[::1"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


async def test_another_web_page_may_not_read() -> None:
    body = orjson.dumps(asked())
    async with inspecting(read_config(HELLO)) as gateway:
        for headers in FOREIGN:
            for method, place in DATA:
                got = await gateway.fetch(method, f"/inspect/api/{place}", headers=headers)
                if got.status == 400 and "Host" in headers:
                    continue  # the server has refused it before
                assert (got.status, got.json()["error"]["code"]) == (403, "origin_not_allowed"), (headers, place)
                assert "Access-Control-Allow-Origin" not in got.headers
            given = {**headers, "Content-Type": "application/json"}
            got = await gateway.fetch("POST", f"/inspect/try/hermes{CHAT}", headers=given, data=body)
            assert got.status in (400, 403), headers


async def test_the_page_itself_may_read() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        for headers in (
            {"Origin": gateway.url, "Sec-Fetch-Site": "same-origin"},
            {"Sec-Fetch-Site": "none"},
            {"Host": "localhost"},
            {"Host": "[::1]:80"},
        ):
            assert (await gateway.fetch("GET", "/inspect/api/setup", headers=headers)).status == 200, headers


async def test_with_keys_the_gateway_may_have_any_name() -> None:
    """Origins that may use the APIs may not read all the same."""
    async with inspecting(read_config({**KEYED, "cors": {"origins": ["http://app.example"]}})) as gateway:
        for host, origin, status in (
            ("toolwire.example", "toolwire.example", 200),
            ("toolwire.example", "evil.example", 403),
            ("localhost", "app.example", 403),
        ):
            headers = {"Host": host, "Origin": f"http://{origin}", **bearer(HERS)}
            assert (await gateway.fetch("GET", "/inspect/api/setup", headers=headers)).status == status, origin


# --- what is said ---------------------------------------------------------------------------------------------------


async def test_what_the_gateway_has() -> None:
    async with inspecting(read_config(KEYED)) as gateway:
        status, setup = await gateway.get("setup", **bearer(HERS))
    assert status == 200
    assert (setup["keys"], setup["live"], setup["file"]) == (True, True, None)
    assert [route["model"] for route in setup["routes"]] == ["m", "other"]
    assert setup["routes"][0]["backend"] == ["mock"]
    assert {"hermes", "sentinel", "mistral"} <= set(setup["formats"])
    assert {"name": "chat", "path": CHAT} in setup["apis"]
    assert HERS not in json.dumps(setup)


async def test_the_overview_counts_by_minute() -> None:
    async with answering(Say(CALL), Say("x", cut=True)) as (gateway, _):
        await gateway.ask(asked(CHAT, WEATHER))
        await gateway.ask(asked(CHAT, WEATHER))
        _, overview = await gateway.get("overview")
    assert len(overview["minutes"]) == 60
    assert overview["minutes"] == list(range(overview["minutes"][0], overview["minutes"][0] + 60))
    (route,) = overview["routes"]
    assert route["model"] == "*"
    assert [sum(route[what]) for what in ("requests", "calls", "failed")] == [2, 1, 1]
    assert [len(route[what]) for what in route if what != "model"] == [60] * 5
    assert [(one["name"], one["kind"]) for one in overview["backends"]] == [("up", "openai_chat")]


async def test_readings_of_every_format() -> None:
    text = f"So. {CALL}"
    async with answering(Say(text)) as (gateway, _):
        _, seen = await gateway.ask(asked(CHAT, WEATHER))
        _, readings = await gateway.get("exchanges/r1/formats")
        capture = await gateway.fetch("GET", "/inspect/api/exchanges/r1/capture")
        sent = await gateway.fetch("POST", "/inspect/api/formats", data=capture.body)
    assert readings == sent.json()
    assert readings["text"] == text
    by_name = {one["format"]: one for one in readings["formats"]}
    assert [name for name, one in by_name.items() if one["chosen"]] == [seen["head"]["format"]]
    assert readings["formats"][0]["chosen"], "that of the exchange is the first"
    assert by_name["mistral"]["calls"] == []
    assert by_name["mistral"]["text"] == text
    assert [one["name"] for one in by_name[seen["head"]["format"]]["calls"]] == ["weather"]


async def test_a_download_can_be_opened_again() -> None:
    async with answering(Say(f"So. {CALL}")) as (gateway, _):
        _, seen = await gateway.ask(asked(CHAT, WEATHER, stream=True))
        got = await gateway.fetch("GET", "/inspect/api/exchanges/r1/capture")
        assert got.headers["Content-Disposition"] == 'attachment; filename="r1.capture.jsonl"'
        assert read_capture(got.body).head["request_id"] == "r1"
        again = await gateway.fetch("POST", "/inspect/api/view", data=got.body)
    assert again.json() == seen


HEAD = b'{"toolwire_capture":1'
BROKEN = {
    "no capture": b'{"a": 1}',
    "a call in words": HEAD + b'}\n{"kind":"sent","at":1,"call":"x"}\n{"kind":"sent","at":1,"call":2}\n',
    "settings in words": HEAD + b',"config":7}\n',
    "a tool without a name": HEAD + b'}\n{"kind":"tool","at":1}\n',
}
"""Each of a kind: all faults of files are in `test_hostile_files.py`."""


async def test_a_file_that_is_no_capture() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        for case, data in BROKEN.items():
            got = await gateway.fetch("POST", "/inspect/api/view", data=data)
            assert (got.status, got.json()["error"]["code"]) == (400, "invalid_value"), (case, got.body)
            got = await gateway.fetch("POST", "/inspect/api/formats", data=data)
            assert got.status in (200, 400), f"{case}: it needs less"
        # An empty capture is one.
        got = await gateway.fetch("POST", "/inspect/api/view", data=HEAD + b"}\n")
        assert (got.status, got.json()["rounds"], got.json()["running"]) == (200, [], False)
        got = await gateway.fetch("POST", "/inspect/api/formats", data=HEAD + b"}\n")
        assert got.json()["text"] == ""


SMALL = {**HELLO, "capture": {"keep": 0, "exchange_bytes": 1000 // routes.UPLOADS}}


async def test_a_file_that_is_too_large() -> None:
    async with running(read_config(SMALL)) as gateway, asyncio.timeout(GUARD_S):
        body = HEAD + b"}\n" + b" " * 2000
        head = f"POST /inspect/api/view HTTP/1.1\r\nHost: localhost\r\nContent-Length: {10**9}\r\n\r\n".encode()
        async with gateway.connection() as (reader, writer):
            writer.write(head + body)  # and nothing of the rest
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 413 ")
            assert b"request_too_large" in await reader.read()


async def test_a_compressed_file_is_taken_as_what_it_holds() -> None:
    async with inspecting(read_config(SMALL)) as gateway:
        for blanks, status in ((0, 200), (2000, 413)):
            data = gzip.compress(HEAD + b"}\n" + b" " * blanks)
            got = await gateway.fetch("POST", "/inspect/api/view", data=data, headers={"Content-Encoding": "gzip"})
            assert got.status == status


ODD_IDENTS = [
    "..%2F..%2Fetc%2Fpasswd",
    "a%0d%0aX-Evil:%201",
    "a%22;%20filename=evil.html",
    "%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    "%ff%fe",
    "%00",
    "x" * 5000,
    "*",
]


async def test_ids_with_odd_characters() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        await gateway.ask(asked())
        for ident in ODD_IDENTS:
            for what in ("", "/capture", "/formats"):
                got = await gateway.fetch("GET", f"/inspect/api/exchanges/{ident}{what}")
                assert got.status in (400, 404), (ident[:50], got.body)
                assert "X-Evil" not in got.headers
                assert got.headers["Content-Type"].startswith("application/json")


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\r\nX-Evil: 1\r\n\u2028'\"--></style>"


async def test_hostile_text_is_data() -> None:
    async with answering(Say(f"{HOSTILE} {CALL}")) as (gateway, _):
        body = {**asked(CHAT, WEATHER, text=HOSTILE), "model": HOSTILE}
        _, seen = await gateway.ask(body, **{"User-Agent": "<b>x</b>"})
        assert lane(seen)[0] == ("text", HOSTILE.rstrip())
        assert seen["head"]["model"] == HOSTILE
        for place in ("", "/capture", "/formats"):
            got = await gateway.fetch("GET", f"/inspect/api/exchanges/r1{place}")
            assert "X-Evil" not in got.headers
            assert "script" not in str(dict(got.headers)).replace("script-src", "").replace("for 'script'", "")
            assert got.headers["Content-Type"].split(";")[0] in ("application/json", "application/jsonl")
        assert b"alert(1)" not in (await gateway.fetch("GET", PLACE)).body


# --- the playground -------------------------------------------------------------------------------------------------


async def tried(gateway: Inspected, path: str, body: Any, **headers: str) -> Any:
    data = orjson.dumps(body)
    return await gateway.fetch("POST", path, data=data, headers={"Content-Type": "application/json", **headers})


@every("path", [CHAT, RESPONSES, MESSAGES])
async def test_another_format_than_the_routes(path: str) -> None:
    async with answering(Say(CALL), defaults={"format": "mistral", "calls": {"recognise": "taught"}}) as (gateway, up):
        got = await tried(gateway, path, asked(path, WEATHER, stream=True), **{"X-Request-Id": "own"})
        assert got.status == 200
        view = await gateway.ended("own")
        assert (calls(view), view["head"]["format"]) == ([], "mistral")
        headers = {"X-Request-Id": "tried"}
        got = await tried(gateway, f"/inspect/try/hermes{path}", asked(path, WEATHER, stream=True), **headers)
        assert got.status == 200
        assert got.headers["X-Request-Id"] == "tried"
        view = await gateway.ended("tried")
        assert calls(view) == [("weather", {"city": "Paris"})]
        assert view["head"]["format"] == "hermes"
        assert "<tool_call>" in json.dumps(up.posts[1].json)
        assert "<tool_call>" not in json.dumps(up.posts[0].json)
        await tried(gateway, path, asked(path, WEATHER, stream=True), **{"X-Request-Id": "after"})
        assert (await gateway.ended("after"))["head"]["format"] == "mistral"


async def test_a_format_that_nobody_has() -> None:
    async with inspecting(read_config(HELLO)) as gateway:
        for name in ("nothing", "%3Cscript%3E", "..%2F"):
            got = await tried(gateway, f"/inspect/try/{name}{CHAT}", asked())
            assert (got.status, got.json()["error"]["code"]) == (404, "not_found"), name
        assert (await tried(gateway, "/inspect/try/hermes/v1/models", asked())).status == 404


async def test_the_playground_asks_for_keys_and_what_they_may() -> None:
    async with inspecting(read_config(KEYED)) as gateway:
        path = f"/inspect/try/hermes{CHAT}"
        assert (await tried(gateway, path, asked())).status == 401
        got = await tried(gateway, path, asked(), **bearer(HIS))
        assert (got.status, got.json()["error"]["code"]) == (403, "model_not_allowed")
        assert (await tried(gateway, path, asked(), **bearer(HERS))).status == 200
        got = await tried(gateway, "/inspect/api/check", {"api": "chat", "body": asked()}, **bearer(HIS))
        assert got.json()["error"]["code"] == "model_not_allowed"


async def test_a_request_is_only_checked() -> None:
    async with Upstream([Say("x")]) as upstream:
        config = {
            "inspect": True,
            "backends": {"up": {"url": upstream.url}},
            "routes": [{"model": "m", "backend": "up"}],
        }
        async with inspecting(read_config(config)) as gateway:

            async def checked(api: str, body: Any) -> Any:
                return (await tried(gateway, "/inspect/api/check", {"api": api, "body": body})).json()

            for name, path in (("chat", CHAT), ("responses", RESPONSES), ("messages", MESSAGES)):
                assert await checked(name, asked(path, WEATHER)) == {"ok": True, "error": None}
            bad = asked()
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            bad["messages"] = [{"role": "assistant", "tool_calls": [call, call]}]
            said = await checked("chat", bad)
            really = (await post(gateway.server, bad)).json()["error"]
            assert not said["ok"]
            assert {name: said["error"][name] for name in ("message", "param", "code")} == {
                name: really[name] for name in ("message", "param", "code")
            }
            assert (await checked("chat", {"messages": []}))["error"]["code"] == "missing_required_parameter"
            assert (await checked("chat", {**asked(), "model": "no"}))["error"]["code"] == "model_not_found"
            for wrong in (
                [1],
                {"api": "chat"},
                {"api": "no", "body": {}},
                {"api": ["chat"], "body": {}},
                {"api": "chat", "body": []},
            ):
                assert (await tried(gateway, "/inspect/api/check", wrong)).status == 400
            got = await gateway.fetch("POST", "/inspect/api/check", data=b"{")
            assert got.status == 400
        assert upstream.posts == []
