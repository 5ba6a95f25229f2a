"""No request takes more than linear time to be read, checked and refused (R33.3): counted in lines, not in seconds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import orjson

from tests.cases import every
from tests.linear.work import work
from tests.unit.test_validation import CHAT, Case
from toolwire.config import LimitsConfig
from toolwire.errors import ClientFault
from toolwire.ingress.bodies import parse_body
from toolwire.pipeline.exchange.request_state import Exchange
from toolwire.protocols.shared.mending import Mending
from toolwire.record import AccessRecord

SIZES: Final = (30, 60, 120, 240)
STEEP: Final = 2.5
SLACK: Final = 400
LIMITS: Final = LimitsConfig(json_values=1_000_000, json_depth=1_000)


def said(content: str) -> bytes:
    """A request whose only message has this content, whether it is JSON or not."""
    return b'{"model":"m","messages":[{"role":"user","content":%b}]}' % content.encode()


def asked(*messages: Any, **more: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": messages or [{"role": "user", "content": "hi"}], **more})


def schema(**fields: Any) -> bytes:
    """A request with a tool of this schema."""
    parameters = {"type": "object", **fields}
    return asked(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}])


def nested(levels: int, key: str) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        inner = {key: {"a": inner} if key == "properties" else [inner]}
    return inner


def named(number: int, value: Callable[[int], Any]) -> dict[str, Any]:
    return {f"p{at}": value(at) for at in range(number)}


def calls(ids: Iterable[str]) -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def results(number: int) -> list[Any]:
    """Every call has its result, the last one first."""
    ids = [f"c{at}" for at in range(number)]
    return [calls(ids), *({"role": "tool", "tool_call_id": one, "content": "x"} for one in reversed(ids))]


REQUESTS: Final[Mapping[str, Callable[[int], bytes]]] = {
    "levels that never end": lambda n: said("[" * n),
    "levels of objects": lambda n: said('{"a":' * n + "1" + "}" * n),
    "values": lambda n: said("[" + "0," * n + "0]"),
    "objects": lambda n: said("[" + "{}," * n + "{}]"),
    "escapes": lambda n: said('"' + r"\u0041" * n + '"'),
    "halves of characters": lambda n: said('"' + r"\udc00" * n + '"'),
    "quotes": lambda n: said('"' + r"\"" * n + '"'),
    "openers": lambda n: said('"' + "<tool_call>" * n + '"'),
    "openers beside a tool": lambda n: asked(
        {"role": "user", "content": "<tool_call>" * n}, tools=[{"type": "function", "function": {"name": "f"}}]
    ),
    "the same key": lambda n: b"{" + b'"a":1,' * n + b'"a":2}',
    "unknown fields": lambda n: asked(**named(n, lambda at: 0)),
    "messages": lambda n: asked(*[{"role": "user", "content": ""}] * n),
    "parts": lambda n: asked({"role": "user", "content": [{"type": "text", "text": "a"}] * n}),
    "a part that is none, behind others": lambda n: asked({"role": "user", "content": [{"type": "x"}] * n + [1]}),
    "calls": lambda n: asked(calls(f"c{at}" for at in range(n))),
    "calls of one id": lambda n: asked(calls(["c"] * n)),
    "calls and results": lambda n: asked(*results(n)),
    "results without ids": lambda n: asked(calls(map(str, range(n))), *[{"role": "tool", "content": "x"}] * n),
    "results of another tool": lambda n: asked(
        calls(map(str, range(n))), *[{"role": "tool", "name": "g", "content": "x"}] * n
    ),
    "tools": lambda n: asked(tools=[{"type": "function", "function": {"name": f"t{at}"}} for at in range(n)]),
    "properties": lambda n: schema(properties=named(n, lambda at: {"type": "string", "enum": [str(at)]})),
    "required": lambda n: schema(properties=named(n, lambda at: {}), required=list(named(n, int))),
    "levels of a schema": lambda n: schema(properties={"a": nested(n // 10, "properties")}),
    "levels of choices": lambda n: schema(properties={"a": nested(n // 10, "anyOf")}),
    "an enum": lambda n: schema(properties={"a": {"enum": list(range(n))}}),
    "patterns of names": lambda n: schema(patternProperties={rf"^p{at}\w+$": {} for at in range(n // 10)}),
    "choices": lambda n: schema(anyOf=[{"type": "object"}] * n),
    "patterns": lambda n: schema(properties=named(n // 10, lambda at: {"type": "string", "pattern": f"^(a|b){at}$"})),
    "a chain of references": lambda n: schema(
        properties={"a": {"$ref": "#/$defs/p0"}}, **{"$defs": named(n, lambda at: {"$ref": f"#/$defs/p{at + 1}"})}
    ),
    "references that double": lambda n: schema(
        properties={"a": {"$ref": "#/$defs/p0"}},
        **{"$defs": named(n, lambda at: {"anyOf": [{"$ref": f"#/$defs/p{min(at + 1, n - 1)}"}] * 2})},
    ),
}
"""Each of a size."""


def read(body: bytes) -> None:
    """As far as a request comes before a server is asked, mended if it is odd. Every one is the first of a gateway."""

    async def reading() -> None:
        case = Case()
        value = await parse_body(body, LIMITS)
        try:
            request = CHAT.read_request(value, body)
        except ClientFault:
            mended = CHAT.mended(value, Mending())
            request = CHAT.read_request(mended, body)
        exchange = Exchange("r", CHAT, case.route, request, request, value, AccessRecord())
        await case.middleware.on_request(exchange, request)

    with contextlib.suppress(ClientFault):
        asyncio.run(reading())


@every("name", REQUESTS)
def test_no_request_is_more_than_linear(name: str) -> None:
    bodies = [REQUESTS[name](size) for size in SIZES]
    read(bodies[0])  # what is compiled once is
    counted = [work(lambda body=body: read(body)) for body in bodies]  # type: ignore[misc]
    assert counted[-1] <= STEEP * counted[-2] + SLACK, counted
