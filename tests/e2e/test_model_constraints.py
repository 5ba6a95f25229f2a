"""With the embedded model: what its server, llama.cpp's own, makes of our grammars (R10.10, R23.2)."""

from __future__ import annotations

from typing import Any

import aiohttp

from tests.cases import every
from tests.e2e.embedded import SHORT, WEATHER, ask, fitting, in_one_loop, served, with_model
from tests.formats.sampler import Acceptor, Grammar
from tests.formats.toolsets import CODING, OFFICE
from tests.options import in_sections
from toolwire.config import DEFAULT_CHAIN, ReasoningConfig
from toolwire.configuration.settings import load
from toolwire.events import Delta, Event, Kind
from toolwire.extras.demo.engine import Engine
from toolwire.formats.base import whole_answer
from toolwire.formats.gbnf.grammar import AllowedText
from toolwire.formats.gbnf.rules import MAX_REPEAT
from toolwire.model import Constraint, ModelRequest, ToolSpec
from toolwire.pipeline.chain.middleware import Middleware
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.registry import registries
from toolwire.scanner import reasoning_tags

pytestmark = with_model

# --- grammars are taken -----------------------------------------------------------------------------------------------

CALLS = tuple(name for name in registries().formats.names() if registries().formats.get(name).layout is not None)


async def taken(engine: Engine, gbnf: str) -> tuple[int, str]:
    """What the server says to a grammar: its status and its answer."""
    body = {"messages": [{"role": "user", "content": "hi"}], "grammar": gbnf, "max_tokens": 0, "temperature": 0}
    key = {"Authorization": f"Bearer {engine.key}"}
    async with (
        aiohttp.ClientSession(headers=key) as session,
        session.post(f"{engine.url}/v1/chat/completions", json=body) as answer,
    ):
        return answer.status, await answer.text()


@in_one_loop
@every("name, kind, tools", [(name, n % 3, (CODING, OFFICE)[n % 2]) for n, name in enumerate(CALLS)])
async def test_the_server_takes_the_grammars_of_every_format(
    engine: Engine, name: str, kind: int, tools: tuple[ToolSpec, ...]
) -> None:
    """For tools as agents have them, one of three kinds of grammar for each format. The gateway would answer without a
    grammar that is refused, so the server is asked itself."""
    tool_format = registries().formats.get(name)
    assert tool_format.gbnf is not None
    tags = reasoning_tags(tool_format.grammar, ReasoningConfig())
    if kind == 0:
        gbnf = tool_format.gbnf(tools, True)
    elif kind == 1:
        gbnf = whole_answer(tool_format, tools, True, around=AllowedText(text=True, thinking=tags))
    else:
        gbnf = whole_answer(tool_format, tools, False, around=AllowedText(thinking=tags, preopened=True))
    status, said = await taken(engine, gbnf)
    assert status == 200, said


@in_one_loop
@every(
    "gbnf", [f'root ::= ("a" [b-c] item){{0,{MAX_REPEAT + 1}}}\nitem ::= "x"\n', "root ::= missing\n", 'root ::= "a']
)
async def test_it_would_say_if_it_did_not(engine: Engine, gbnf: str) -> None:
    status, said = await taken(engine, gbnf)
    assert (status, "grammar" in said) == (400, True)


# --- grammars are kept ------------------------------------------------------------------------------------------------


class Recorder(Middleware):
    """Next to the backend: the constraint that is sent, and what the model wrote under it."""

    wants = Kind.TEXT

    def __init__(self) -> None:
        super().__init__(name="recorder")
        self.sent: Constraint | None = None
        self.wrote = ""

    async def on_request(self, exchange: Exchange, request: ModelRequest) -> ModelRequest:
        self.sent, self.wrote = request.constraint, ""
        return request

    def on_event(self, exchange: Exchange, event: Event) -> Event:
        if isinstance(event, Delta):
            self.wrote += event.text
        return event


def earlier(unit: str) -> list[Any]:
    """A conversation in which the tool was called with this unit again and again, so that even a small model goes on to
    call it."""
    messages: list[Any] = []
    for number, city in enumerate(("Paris", "Oslo", "Lima")):
        arguments = f'{{"city":"{city}","unit":"{unit}"}}'
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        messages += [
            {"role": "user", "content": f"What is the weather in {city}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "21, clear"},
            {"role": "assistant", "content": f"In {city} it is 21 degrees and clear."},
        ]
    return [*messages, {"role": "user", "content": "What is the weather in Rome?"}]


@in_one_loop
async def test_under_auto_a_call_that_has_begun_fits(engine: Engine) -> None:
    """The model has seen the tool called with a unit that it does not know any more, and would write that again."""
    recorder = Recorder()
    chain = list(DEFAULT_CHAIN)
    chain.insert(chain.index("forwarding"), recorder.name)
    options = in_sections({"format": "bare_json", "prompt": {"template": SHORT}})
    config = {
        "backends": {"engine": {"url": engine.url, "api_key": engine.key, "preset": "llamacpp"}},
        "routes": [{"model": "m", "upstream_model": engine.model, "options": options}],
        "chain": chain,
        "store": {"kind": "memory"},
    }
    asked = {"model": "m", "tools": [WEATHER], "max_completion_tokens": 60}
    async with served(load(None, env={}, overrides=config), recorder) as client:
        message, reason = await ask(client, earlier("degrees"), stream=False, **asked)
    assert recorder.sent is not None
    assert recorder.sent.free
    acceptor = Acceptor(Grammar(recorder.sent.gbnf))
    assert acceptor.may_begin(recorder.wrote)
    if reason != "length":
        assert acceptor.accepts(recorder.wrote)
    (call,) = message.tool_calls
    fitting(call)
