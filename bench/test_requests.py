"""Work that is done once per request or per call: reading the body, describing the tools, judging, checking."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from bench import corpus
from bench.measuring import Measure
from bench.test_scanner import policy
from toolwire.config import LimitsConfig, PromptConfig
from toolwire.formats.engine.toolset import KnownTools
from toolwire.formats.families.sentinel import FORMAT
from toolwire.ingress.bodies import parse_body
from toolwire.model import ModelRequest
from toolwire.observability.logs import flush_logs, set_up_logging
from toolwire.observability.telemetry import ACCESS, Metrics
from toolwire.prompting.prompt import content_key, segment
from toolwire.prompting.transcript import inject
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.record import AccessRecord
from toolwire.scan._grammar import Block
from toolwire.schemas.schema import SchemaCache, compile_schema
from toolwire.support.cache import BudgetedCache, CacheBudget

CHAT: Final = ChatProtocol()
ARGUMENTS: Final = '{"city":"S\u00e3o Paulo","unit":"celsius","days":3}'
BODY: Final = corpus.call_text("get_weather", orjson.loads(ARGUMENTS)).removeprefix("<tool_call>")
PARAMETERS: Final = corpus.tools(1)[0]["function"]["parameters"]
PROMPT: Final = PromptConfig()
LIMITS: Final = LimitsConfig()
REPEATS: Final = 200


def read(tool_count: int) -> ModelRequest:
    raw = corpus.request_body(tool_count, stream=True)
    return CHAT.read_request(orjson.loads(raw), raw)


def delivered(raw: bytes, known: KnownTools | None) -> ModelRequest:
    """Reads a small body as delivery does, without waiting."""
    try:
        parse_body(raw, LIMITS, known).send(None)
    except StopIteration as done:
        return CHAT.read_request(done.value, raw)
    raise AssertionError("it waits")


def taught(request: ModelRequest, cache: BudgetedCache[str]) -> ModelRequest:
    """Writes the tools into the prompt as `injection` does."""
    key = content_key(request, FORMAT.name, PROMPT)
    text = cache.get(key)
    if text is None:
        text = segment(request, FORMAT, PROMPT)
        cache.put(key, text, len(text))
    return inject(request, text, FORMAT, placement=PROMPT.placement, flatten="sentinel")


def written(body: str) -> Block:
    """Returns a block as the scanner finds it."""
    return Block(FORMAT.grammar.syntaxes[0], body, (("call", body),))


def repeated(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(REPEATS):
            work()

    return run


def once(measure: Measure, row: str, run: Callable[[], None]) -> None:
    """Measures a run that does the work `REPEATS` times."""
    measure(run, table="Once per request or call", row=row, column="each", units=REPEATS, unit="request or call")


@pytest.mark.parametrize("tool_count", [0, 10])
@pytest.mark.parametrize("name", ["parse only", "parse and read", "parse and read, known tools", "write"])
def test_request(measure: Measure, name: str, tool_count: int) -> None:
    raw = corpus.request_body(tool_count, stream=True)
    request = replace(read(tool_count), origin=None)
    known = KnownTools(CacheBudget().cache("tools"))
    work: dict[str, Callable[[], Any]] = {
        "parse only": lambda: orjson.loads(raw),
        "parse and read": lambda: delivered(raw, None),
        "parse and read, known tools": lambda: delivered(raw, known),
        "write": lambda: orjson.dumps(CHAT.write_request(request)),
    }
    row = f"request of {len(raw):,} bytes with {tool_count or 'no'} tools: {name}"
    once(measure, row, repeated(work[name]))


@pytest.mark.parametrize("name", ["counters", "counters and line"])
def test_finish(measure: Measure, tmp_path: Path, name: str) -> None:
    metrics = Metrics()
    before = ACCESS.level
    log = (tmp_path / "log").open("w")
    set_up_logging("text", "info", log)
    ACCESS.setLevel("INFO" if "line" in name else "WARNING")

    def finish() -> None:
        record = AccessRecord()
        record.status = 200
        record.note("route", "example-8b-instruct")
        record.note("backend", "default")
        record.count("calls")
        record.wrote()
        metrics.finish(record, endpoint="chat", request_id="req_6f1c2f7e9f0a4c0f9b1d3a5c7e9f1b3d")

    async def run() -> None:
        repeated(finish)()

    once(measure, f"counting a request: {name}", lambda: asyncio.run(run()))
    flush_logs()
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    log.close()
    ACCESS.setLevel(before)


@pytest.mark.parametrize("name", ["known tools", "new tools"])
def test_injection(measure: Measure, name: str) -> None:
    request = read(10)
    warm: BudgetedCache[str] = CacheBudget().cache("prompts")
    work = {
        "known tools": lambda: taught(request, warm),
        "new tools": lambda: taught(request, CacheBudget().cache("prompts")),
    }[name]
    once(measure, f"teaching 10 tools: {name}", repeated(work))


@pytest.mark.parametrize("name", ["parse only", "well-formed", "trailing comma, repaired"])
def test_judge(measure: Measure, name: str) -> None:
    body = BODY.removesuffix("</tool_call>")
    work: dict[str, Callable[[], Any]] = {
        "parse only": lambda: orjson.loads(orjson.loads(body)["arguments"]),
        "well-formed": lambda: policy().block(written(body)),
        "trailing comma, repaired": lambda: policy().block(written(body[:-1] + ",}")),
    }
    assert not name.startswith(("well", "trailing")) or work[name]().calls[0].arguments == ARGUMENTS
    once(measure, f"judging a call: {name}", repeated(work[name]))


@pytest.mark.parametrize("name", ["check", "look up a known schema", "compile"])
def test_schema(measure: Measure, name: str) -> None:
    compiled = compile_schema(PARAMETERS)
    assert compiled.check(ARGUMENTS) is None
    known = SchemaCache(CacheBudget())
    work: dict[str, Callable[[], Any]] = {
        "check": lambda: compiled.check(ARGUMENTS),
        "look up a known schema": lambda: known.get(PARAMETERS),
        "compile": lambda: compile_schema(PARAMETERS),
    }
    once(measure, f"a schema with three properties: {name}", repeated(work[name]))
