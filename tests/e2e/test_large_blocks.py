"""Large blocks are judged in a thread: others are served meanwhile, and what comes behind one stays behind it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, first_and_in_turn
from tests.e2e.conftest import CHAT, function, gateway_before, post
from tests.e2e.meaning import CLIENTS, MESSAGES, RESPONSES, asking
from tests.e2e.speaking import in_pieces
from tests.waiting import until
from toolwire.call_policy.policy import CallPolicy
from toolwire.config import LimitsConfig, RouteOptions
from toolwire.errors import Unavailable
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.model import ToolChoice, ToolSpec
from toolwire.pipeline.answers.stage_chain import StageChain
from toolwire.pipeline.scanning import scan_stage
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.registry import registries
from toolwire.support.offload import OFFLOAD_BYTES
from toolwire.testing import Say

TOOL: Final = function("write", text="string")
TEXT: Final = "lorem ipsum\n" * (2 * OFFLOAD_BYTES // 12)
BLOCK: Final = f'<tool_call>{{"name":"write","arguments":{{"text":"{TEXT}"}}}}</tool_call>'
"""It needs repair: its line ends are not escaped."""
PIECES: Final = ("Before. ", *in_pieces(BLOCK, 1000), " After.")
FORMAT: Final = {"defaults": {"format": "hermes", "retry": {"attempts": 1}}}


class Judge:
    """Holds up whoever judges a block in a thread."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_go = threading.Event()
        self.in_loop: list[bool] = []


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    judge = Judge()
    real, loop = CallPolicy.block, threading.current_thread()

    def block(policy: CallPolicy, *args: Any) -> Any:
        judge.in_loop.append(threading.current_thread() is loop)
        if not judge.in_loop[-1]:
            judge.asked.set()
            judge.may_go.wait()
        return real(policy, *args)

    monkeypatch.setattr(CallPolicy, "block", block)
    yield judge
    judge.may_go.set()


def asked(path: str, *, stream: bool, tools: bool = True) -> dict[str, Any]:
    inner = TOOL["function"]
    offered: dict[str, Any] = {
        CHAT: TOOL,
        RESPONSES: {"type": "function", **inner},
        MESSAGES: {"name": inner["name"], "input_schema": inner["parameters"]},
    }
    return {"model": "m", **asking(path, stream), "tools": [offered[path]] if tools else []}


def says(request: Any) -> Any:
    return Say(*PIECES)(request) if "write" in orjson.dumps(request.json).decode() else Say("Small.")(request)


@pytest.mark.parametrize(("path", "stream"), first_and_in_turn(CLIENTS, [True, False]))
async def test_others_are_served_while_one_is_judged(judge: Judge, path: str, stream: bool) -> None:
    async with gateway_before([says], **FORMAT) as (server, _):
        large = asyncio.create_task(post(server, asked(path, stream=stream), path=path))
        await until(judge.asked.is_set)
        small = await post(server, asked(path, stream=stream, tools=False), path=path)
        assert small.status == 200
        assert b"Small." in small.body
        assert not large.done()
        judge.may_go.set()
        answer = await large
    assert answer.status == 200
    assert judge.in_loop == [False]
    body = answer.body.decode()
    assert body.index("Before.") < body.index("lorem ipsum")
    assert body.count("lorem ipsum") >= TEXT.count("lorem ipsum")
    assert "<tool_call>" not in body


# --- the law: it makes no difference where a block is judged ---------------------------------------------------------

LOOK: Final = ToolSpec("look", "", {"type": "object", "properties": {"at": {"type": "string"}}})
PARTS: Final = st.sampled_from(
    ["So ", "be it. ", '<tool_call>{"name":"look","arguments":{"at":"x"}}</tool_call>', "<tool_call>{'name':",
     "</tool_call>", "<think>hm</think>", "<", "\n", '{"name":"look","arguments":{}}']
)  # fmt: skip


def stage() -> ScanStage:
    offer = OfferedTools((LOOK,), ToolChoice("auto"), True, registries().formats.get("hermes"), (LOOK,))
    return ScanStage(offer, RouteOptions(), LimitsConfig(), lambda name: None)


def plain(events: list[Event]) -> list[str]:
    return [re.sub(r"call_\w+", "ID", repr(event)) for event in events]


async def batches(texts: list[str], last: Event) -> AsyncIterator[list[Event]]:
    yield [Start("r", "m", 0), Open(0, BlockKind.TEXT)]
    for text in texts:
        yield [Delta(0, text)]
    yield [Close(0), last]


async def come_out(texts: list[str], last: Event) -> list[str]:
    return plain([event async for batch in StageChain([stage()]).through(batches(texts, last)) for event in batch])


LAST: Final[dict[str, Callable[[], Event]]] = {
    "stop": Finish,
    "length": lambda: Finish("length"),
    "fault": lambda: Fault(Unavailable("no")),
}


@given(texts=st.lists(PARTS, max_size=6), last=st.sampled_from(sorted(LAST)), size=st.integers(1, 9))
def test_law_it_makes_no_difference_where_a_block_is_judged(texts: list[str], last: str, size: int) -> None:
    said = "".join(texts)
    cut = in_pieces(said, size)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        for large in (0, 8, 1 << 30):
            patch.setattr(scan_stage, "_LARGE", large)
            seen.append(asyncio.run(come_out(cut, LAST[last]())))
    assert seen[0] == seen[1] == seen[2]


@every("name", sorted(registries().formats.names()))
def test_what_ends_a_block_is_seen(name: str) -> None:
    grammar = registries().formats.get(name).grammar
    assert all(scan_stage._MAY_END.search(syntax.closer[-1]) for syntax in grammar.syntaxes if syntax.closer)
