"""`/openapi.json` is a valid document of exactly what is served, whatever is configured or plugged in (R27.1)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from jsonschema_rs import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.e2e.conftest import Gateway, read_config
from tests.openapi.documents import FULL, PLAIN, made, validator
from tests.protocols.test_request_schema import GOOD
from tests.protocols.tiny import TinyProtocol
from tests.waiting import PROGRAM_S
from toolwire.app import create_app
from toolwire.configuration.settings import load
from toolwire.errors import CODES, ClientFault
from toolwire.openapi.document import UNKNOWN
from toolwire.openapi.parts import OWN, read_part
from toolwire.openapi.routes import OPENAPI
from toolwire.protocols.shared.request_schema import RequestSchema
from toolwire.registry import Registries, registries

KEY = {"Authorization": "Bearer k"}
PRIVATE = "/inspect/"
CONFIGS = {"plain": PLAIN, "full": FULL}
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def with_tiny(**attributes: Any) -> Registries:
    """The built-in protocols and one of a plug-in."""
    found = registries()
    found.clients.register("tiny", type("Tiny", (TinyProtocol,), attributes))
    return found


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def routes(app: web.Application) -> set[tuple[str, str]]:
    """What the application serves, as its router has it."""
    found = {(route.method, resource.canonical) for resource in app.router.resources() for route in resource}
    return {(method, path) for method, path in found if method != "HEAD"}


# --- the document is one --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("config", "plugins"), [(PLAIN, registries), (FULL, with_tiny)], ids=["least", "most"])
def test_it_is_valid(config: Mapping[str, Any], plugins: Any) -> None:
    document = made(config, plugins())
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


@configs
def test_each_schema_is_used_and_there(config: Mapping[str, Any]) -> None:
    text = json.dumps(made(config))
    named = set(re.findall(r'"#/components/(\w+)/([\w-]+)"', text))
    components = json.loads(text)["components"]
    there = {(kind, name) for kind, values in components.items() if kind != "securitySchemes" for name in values}
    unused = {name for kind, name in there - named}
    assert named <= there
    if config is FULL:
        assert unused == set()


def test_it_can_be_written_without_a_gateway(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "docs.openapi", str(tmp_path / "openapi.json")]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True, timeout=PROGRAM_S)
    document = json.loads(tmp_path.joinpath("openapi.json").read_bytes())
    assert not list(OpenAPIV31SpecValidator(document).iter_errors())
    assert "securitySchemes" in document["components"]


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for _, _, operation in operations(made(FULL, with_tiny()))]
    assert len(set(names)) == len(names)


def test_it_is_the_same_every_time() -> None:
    assert json.dumps(made(FULL)) == json.dumps(made(FULL))


# --- it is what is served -------------------------------------------------------------------------------------------


@configs
@pytest.mark.parametrize("plugins", [registries, with_tiny])
def test_what_is_served_is_in_it_and_nothing_else(config: Mapping[str, Any], plugins: Any) -> None:
    app = create_app(config, plugins=plugins())
    served = routes(app)
    documented = {(method, path) for method, path, _ in operations(app[OPENAPI].of(app))}
    assert documented <= served
    missing = {
        (method, path)
        for method, path in served - documented
        if (method, path.removeprefix("/v1")) not in documented and (method, f"/v1{path}") not in documented
    }
    assert {path for _, path in missing if not path.startswith(PRIVATE)} == set()


def test_a_path_that_is_configured_is_there_as_it_is_written() -> None:
    paths = made(FULL)["paths"]
    assert "/v1/embeddings" in paths
    assert "/embeddings" not in paths
    assert "/tokenize" in paths
    assert "/v1/tokenize" not in paths


def test_something_is_said_of_each_path() -> None:
    unsaid = [path for _, path, one in operations(made(FULL)) if one.get("description") == UNKNOWN]
    assert unsaid == []
    assert all(operation["summary"] for _, _, operation in operations(made(FULL)))


def test_nothing_is_said_of_what_is_not_served() -> None:
    """In the parts that come with it."""
    app = create_app(FULL)
    served = routes(app)
    places = [OWN, *(side.api for side in registries().client_sides().sides if side.api is not None)]
    assert len(places) == 4
    said = {
        (method.upper(), path)
        for place in places
        for path, ways in read_part(place, "").paths.items()
        for method in ways
    }
    assert said <= served


def test_a_protocol_of_a_plug_in_is_there() -> None:
    document = made(PLAIN, with_tiny())
    operation = document["paths"]["/v1/tiny"]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    assert body["example"]["say"] == TinyProtocol.example["say"]
    assert operation["responses"]["400"] == {"$ref": "#/components/responses/TinyError400"}
    assert {"name": "tiny"} in document["tags"]
    assert "/v1/tiny" not in made()["paths"]


def test_a_plug_in_may_bring_a_part(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    part = {
        "x-toolwire": {"error": "TinyError"},
        "tags": [{"name": "small"}],
        "paths": {
            "/tiny": {"post": {"operationId": "ask", "summary": "Ask.", "responses": {"200": {"description": ""}}}}
        },
        "components": {"schemas": {"TinyError": {"type": "object", "required": ["wrong"]}}},
    }
    (tmp_path / "small_part").mkdir()
    (tmp_path / "small_part" / "__init__.py").write_text("")
    (tmp_path / "small_part" / "api.json").write_text(json.dumps(part))
    monkeypatch.syspath_prepend(str(tmp_path))
    document = made(PLAIN, with_tiny(api="small_part:api.json"))
    operation = document["paths"]["/v1/tiny"]["post"]
    assert (operation["operationId"], operation["tags"]) == ("ask", ["small"])
    error = document["components"]["responses"]["TinyError400"]["content"]["application/json"]
    assert error == {"schema": {"$ref": "#/components/schemas/TinyError"}}
    assert not list(OpenAPIV31SpecValidator(document).iter_errors())


async def test_a_path_of_a_program_that_embeds_it_is_there_below_its_prefix() -> None:
    inner = create_app(load(None, env={}, overrides=PLAIN))

    async def mine(request: web.Request) -> web.Response:
        return web.Response()

    inner.router.add_get("/mine", mine)
    outer = web.Application()
    outer.add_subapp("/gate", inner)
    server = TestServer(outer)
    await server.start_server()
    try:
        async with aiohttp.ClientSession() as session, session.get(server.make_url("/gate/openapi.json")) as answer:
            document = await answer.json()
    finally:
        await server.close()
    assert document["servers"] == [{"url": "/gate"}]
    assert document["paths"]["/mine"]["get"]["description"] == UNKNOWN
    assert document["paths"]["/v1/chat/completions"]["post"]["operationId"] == "createChatCompletion"


# --- what it says is so ---------------------------------------------------------------------------------------------


async def test_a_key_is_needed_where_it_says_so(gateway: Gateway) -> None:
    server = await gateway(load(None, env={}, overrides=FULL))
    document = made(FULL)
    assert document["security"] == [{"bearer": []}, {"key": []}]
    assert "security" not in made()
    async with aiohttp.ClientSession(str(server.make_url("/"))) as session:
        for method, path, operation in operations(document):
            at = re.sub(r"{\w+}", "x", path)
            async with session.request(method, at, allow_redirects=False) as answer:
                wanted = operation.get("security", document["security"]) != []
                assert (answer.status == 401) is wanted, (method, path)
                assert ("401" in operation["responses"]) is wanted, (method, path)


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}], ids=["plain", "Messages"])
async def test_who_has_no_key_hears_it_in_the_words_that_it_says(gateway: Gateway, headers: dict[str, str]) -> None:
    server = await gateway(load(None, env={}, overrides=FULL))
    document = made(FULL)
    async with aiohttp.ClientSession(str(server.make_url("/")), headers=headers) as session:
        for method, path, operation in operations(document):
            if "401" not in operation["responses"]:
                continue
            name = operation["responses"]["401"]["$ref"].rpartition("/")[2]
            said = document["components"]["responses"][name]["content"]["application/json"]["schema"]
            async with session.request(method, re.sub(r"{\w+}", "x", path), allow_redirects=False) as answer:
                assert answer.status == 401
                body = await answer.json()
            told = Draft202012Validator({**said, "components": document["components"]})
            assert told.is_valid(body), (method, path, body)


@configs
def test_errors_are_those_of_the_table(config: Mapping[str, Any]) -> None:
    """At each path where a model is asked: each code stands at the status that it has there."""
    document = made(config)
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"):
        responses = document["paths"][path]["post"]["responses"]
        texts = {
            status: document["components"]["responses"][one["$ref"].rpartition("/")[2]]["description"]
            for status, one in responses.items()
            if "$ref" in one
        }
        for code, row in CODES.items():
            if row.status in (405, 426, 499) or (row.status == 401 and config is PLAIN):
                continue
            status = 529 if code == "overloaded" and "messages" in path else row.status
            assert f"`{code}`: {row.when}" in texts[str(status)]


def test_headers_are_those_of_the_protocol() -> None:
    def names(config: Mapping[str, Any], path: str) -> set[str]:
        return set(made(config)["paths"][path]["post"]["responses"]["200"]["headers"])

    plain = names(PLAIN, "/v1/chat/completions")
    always = {"X-Request-Id", "x-client-request-id"}
    assert plain == {*always, "openai-processing-ms", "x-usage-source", "x-usage-tokenizer"}
    assert "openai-processing-ms" not in names(FULL, "/v1/messages")
    assert set(made(PLAIN)["paths"]["/health"]["get"]["responses"]["200"]["headers"]) == always
    listed = made(PLAIN)["paths"]["/v1/models"]["get"]["responses"]["200"]["headers"]
    assert set(listed) == {*always, "openai-processing-ms"}
    refused = made(PLAIN)["paths"]["/v1/chat/completions"]["post"]["responses"]["429"]["$ref"].rpartition("/")[2]
    shown = made(PLAIN)["components"]["responses"][refused]["headers"]
    assert set(shown) == {*always, "openai-processing-ms", "Retry-After", "retry-after-ms"}
    assert "x-ratelimit-remaining-tokens" in names(FULL, "/v1/chat/completions")
    assert {"request-id", "anthropic-ratelimit-requests-reset"} <= names(FULL, "/v1/messages")
    assert names(FULL, "/v1/embeddings") >= {"X-Request-Id", "x-ratelimit-limit-requests"}


VALUES = (None, True, 0, -3, 1.5, "", "x", "text", [], ["x"], [None], {}, {"type": "text"}, {"type": None}, {"name": 1})
FILES = {"ChatRequest": "chat_request", "ResponseRequest": "responses_request", "MessagesRequest": "messages_request"}


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to all that is in a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*at, key)
        yield from places(one, (*at, key))


def changed(body: Any, at: tuple[Any, ...], value: Any) -> Any:
    """`body` with another value at a place; without it for `...`."""
    body = deepcopy(body)
    inner = body
    for key in at[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[at[-1]]
    else:
        inner[at[-1]] = value
    return body


def is_taken(shape: RequestSchema, body: Any) -> bool:
    try:
        shape.check(body)
    except ClientFault:
        return False
    return True


@pytest.mark.parametrize("name", FILES)
def test_requests_are_checked_by_what_it_says(name: str) -> None:
    """What the gateway takes and what it refuses, with anything in the place of anything."""
    shape, said = RequestSchema(FILES[name], lambda path, code: code), validator(name)
    body = GOOD[FILES[name]]
    bodies = [changed(body, at, value) for at in places(body) for value in (..., *VALUES)]
    verdicts = [is_taken(shape, one) for one in (body, *bodies)]
    assert verdicts[0]
    assert 0.1 < sum(verdicts) / len(verdicts) < 0.9
    wrong = [one for one, verdict in zip((body, *bodies), verdicts, strict=True) if said.is_valid(one) is not verdict]
    assert wrong == []


def test_what_is_counted_needs_no_limit() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "t"}]}
    assert validator("MessagesCountRequest").is_valid(body)
    assert not validator("MessagesRequest").is_valid(body)


# --- how it is served -----------------------------------------------------------------------------------------------


async def test_it_is_served_with_a_key(gateway: Gateway) -> None:
    server = await gateway(read_config({**FULL, "store": {"kind": "none"}}))
    url = server.make_url("/openapi.json")
    page = {"Origin": "https://page.example"}
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert answer.status == 401
        async with session.get(url, headers={**KEY, **page}) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
            first = await answer.read()
        async with session.get(url, headers=KEY) as answer:
            assert await answer.read() == first
    assert json.loads(first) == made(FULL)
