"""What the gateway knows of a middleware the middleware says: a plug-in has all that a built-in one has, and nothing
central names it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.cases import every
from tests.options import IDLE
from toolwire.app import create_app
from toolwire.config import DEFAULT_CHAIN, ON_DEMAND, GatewayConfig
from toolwire.configuration.settings import load
from toolwire.model import ModelRequest
from toolwire.pipeline.chain.middleware import ChainPlace, Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.record import AccessField, CounterSpec
from toolwire.registry import MIDDLEWARES, Registries, registries
from toolwire.startup.chains import chain_of, start_notes
from toolwire.startup.names import check_names
from toolwire.support.conversion import ConfigError

ROOT = Path(__file__).parents[2]
SHOUTED = "toolwire_shouted_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoudOptions:
    """`word`: what is shouted; empty: nothing."""

    word: str = "hey"


class Loud(Middleware):
    """Counts, by the word that it was told."""

    Options: ClassVar[type] = LoudOptions
    access_fields: ClassVar[tuple[AccessField, ...]] = (
        AccessField("shouted", "How often it was shouted.", CounterSpec(SHOUTED, "Shouts", "word")),
        AccessField("heard", "How often it was heard.", CounterSpec("toolwire_heard_total", "Heard")),
    )

    @classmethod
    def idle(cls, place: ChainPlace) -> bool:
        return not place.options.word

    @classmethod
    def needs(cls, place: ChainPlace) -> Mapping[str, str]:
        return {"transformation": "which gives it something to shout about"} if place.options.word == "why" else {}

    @classmethod
    def start_note(cls, config: GatewayConfig, used: bool) -> str | None:
        return "somebody is loud"

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        exchange.record.count("shouted")
        exchange.record.label("shouted", self.options.word)
        exchange.record.count("heard", 2)
        return request


class Other(Middleware):
    """Says something else of the same counter."""

    access_fields: ClassVar[tuple[AccessField, ...]] = (AccessField("s", "S.", CounterSpec(SHOUTED, "Other", "word")),)


@pytest.fixture
def plugins() -> Registries:
    known = registries()
    known.middlewares.register("loud", Loud)
    known.middlewares.register("other", Other)
    return known


def config(*chain: Any, **sections: Any) -> GatewayConfig:
    backends = {"mock": {"kind": "mock", "script": [{"text": "Yes."}] * 3}}
    sections = {
        "backends": backends,
        "store": {"kind": "memory"},
        **({"chain": list(chain)} if chain else {}),
        **sections,
    }
    return load(None, env={}, overrides=sections)


def loud(word: str) -> dict[str, Any]:
    return {"use": "loud", "options": {"word": word}}


def names(settings: GatewayConfig, plugins: Registries, *, limited: bool = False) -> list[str]:
    (route,) = settings.routes
    return [entry.use for entry in chain_of(route, settings, plugins, limited=limited)]


async def test_its_counters_are_on_the_metrics_page(plugins: Registries) -> None:
    settings = config(loud("hey"), loud("ho"), loud(""), *DEFAULT_CHAIN)
    async with TestClient(TestServer(create_app(settings, plugins=plugins))) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status == 200
        page = await (await client.get("/metrics")).text()
    # A label is what one middleware said; without one all that was counted is added.
    assert re.findall(rf"^{SHOUTED}\{{.*", page, re.M) == [
        f'{SHOUTED}{{word="hey"}} 1.0',
        f'{SHOUTED}{{word="ho"}} 1.0',
    ]
    assert "toolwire_heard_total 4.0" in page
    assert "# HELP toolwire_heard_total Heard" in page


def test_it_is_left_out_where_its_options_say_so(plugins: Registries) -> None:
    settings = config(loud("hey"), loud(""), *DEFAULT_CHAIN, routes=[{"model": "*"}])
    assert names(settings, plugins).count("loud") == 1


def test_it_says_what_it_needs(plugins: Registries) -> None:
    check_names(config(loud("why"), *DEFAULT_CHAIN), plugins)
    check_names(config(*DEFAULT_CHAIN[:-1], loud("hey"), "forwarding"), plugins)
    with pytest.raises(ConfigError) as caught:
        check_names(config(*DEFAULT_CHAIN[:-1], loud("why"), "forwarding"), plugins)
    place = f"chain[{len(DEFAULT_CHAIN) - 1}]"
    said = f"{place}: `loud` needs `transformation` further in, which gives it something to shout about"
    assert caught.value.problems == (said,)


def test_what_an_operator_should_know(plugins: Registries) -> None:
    assert "somebody is loud" in start_notes(config(loud("hey"), *DEFAULT_CHAIN), plugins)
    assert "somebody is loud" not in start_notes(config(), plugins)


def test_a_counter_means_one_thing(plugins: Registries) -> None:
    with pytest.raises(ConfigError, match=f"two middlewares define the counter {SHOUTED}"):
        create_app(config(loud("hey"), "other", *DEFAULT_CHAIN), plugins=plugins)
    taken = CounterSpec("toolwire_requests_total", "Requests", "endpoint")
    mine: Any = type("Mine", (Middleware,), {"access_fields": (AccessField("x", "X.", taken),)})
    plugins.middlewares.register("mine", mine)
    with pytest.raises(ConfigError, match="toolwire_requests_total"):
        create_app(config("mine", *DEFAULT_CHAIN), plugins=plugins)


@every(
    ("sections", "resting"),
    [
        ({}, IDLE),
        ({"tools": {"folder": "."}}, IDLE - {"execution"}),
        ({"limits": {"calls_per_conversation": 3}}, IDLE - {"loop_detection"}),
        ({"defaults": {"loop_detect": {"repeats": 2}}}, IDLE - {"loop_detection"}),
        ({"defaults": {"bad_answers": {"reask": 0}}}, IDLE | {"reask"}),
        ({"defaults": {"mode": "hybrid"}}, IDLE - {"tool_mode"}),
        ({"defaults": {"mode": "auto"}}, IDLE - {"tool_mode"}),
    ],
)
def test_built_in_ones_without_work_are_left_out(
    sections: dict[str, Any], resting: set[str], plugins: Registries
) -> None:
    settings = config(**sections, routes=[{"model": "*"}])
    assert names(settings, plugins) == [name for name in DEFAULT_CHAIN if name not in resting]
    assert names(settings, plugins, limited=True)[: len(ON_DEMAND)] == list(ON_DEMAND)


def test_limits_hold_in_every_chain_and_where_it_says(plugins: Registries) -> None:
    own = config("validation", "rate_limit", "forwarding", routes=[{"model": "*"}])
    assert names(own, plugins, limited=True) == ["validation", "rate_limit", "forwarding"]
    assert names(own, plugins) == ["validation", "forwarding"]
    assert names(config("forwarding", routes=[{"model": "*"}]), plugins, limited=True) == ["rate_limit", "forwarding"]


CENTRAL = ("app.py", "cli", "configuration", "doctor", "observability", "server", "startup")


def test_nothing_central_knows_one_by_name() -> None:
    """No string there is the name of a middleware. (`arguments` is a key of JSON, too.)"""
    files = [file for place in CENTRAL for file in ((ROOT / "proxy" / place).rglob("*.py"), [ROOT / "proxy" / place])]
    known = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in (path for found in files for path in found if path.suffix == ".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in set(MIDDLEWARES) - {"arguments"}
    }
    assert not known
