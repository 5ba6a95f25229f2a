"""Bodies that are nearly right, through the whole gateway: an answer or a clear 4xx, never a 5xx, always an
envelope."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import event, given
from hypothesis import strategies as st

from tests.cases import examples
from tests.e2e.conftest import CHAT, function, mock_config
from tests.fuzz.targets import CALL, MESSAGES, RESPONSES
from tests.fuzz.targets import CHAT as CHAT_BODIES
from tests.fuzz.targets import KEYS as KNOWN
from tests.fuzz.targets import LEAVES as FUZZED
from tests.waiting import GUARD_S
from toolwire.app import create_app
from toolwire.errors import CODES
from toolwire.testing import WireAnswer

FLAT = {
    "type": "function",
    "name": "flat",
    "parameters": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/b"}},
        "$defs": {"b": {"enum": [1, "x"]}},
    },
}
VALID: list[dict[str, Any]] = [
    *CHAT_BODIES,
    {
        "model": "m",
        "messages": [
            {"role": "developer", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL, {**CALL, "id": "c2"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
            {"role": "user", "content": "y", "name": "ann"},
        ],
        "tools": [function("read_file", path="string"), function("strict", strict=True, a="integer"), FLAT],
        "tool_choice": {"type": "function", "function": {"name": "flat"}},
        "parallel_tool_calls": False,
        "max_completion_tokens": 9,
        "metadata": {"a": "b"},
    },
]

LEAVES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from([value for value in FUZZED if value != "\ud83d"]).map(copy.deepcopy),
)
KEYS = st.text(max_size=4) | st.sampled_from(KNOWN)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as (container, key)."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            found += places(value[key])
    return found


@st.composite
def bodies(draw: st.DrawFn, valid: list[dict[str, Any]] = VALID) -> Any:
    """A valid body with a few places changed, taken away, doubled, or put somewhere else."""
    body = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 4))):
        known = places(body)
        if not known:
            break
        container, key = draw(st.sampled_from(known))
        match draw(st.sampled_from(["replace", "remove", "double", "move", "add"])):
            case "replace":
                container[key] = draw(VALUES)
            case "remove":
                del container[key]
            case "double" if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case "move":
                other, place = draw(st.sampled_from(known))
                if isinstance(other, dict) or place < len(other):
                    other[place] = copy.deepcopy(container[key])
            case _:
                if isinstance(container, dict):
                    container[draw(KEYS)] = draw(VALUES)
    return body


Send = Callable[..., WireAnswer]


@pytest.fixture(scope="module", params=["prompt", "native"])
def send(request: pytest.FixtureRequest) -> Iterator[Send]:
    """One gateway with the built-in answer for the whole module."""

    async def start() -> TestClient[Any, Any]:
        client: TestClient[Any, Any] = TestClient(TestServer(create_app(mock_config(None, mode=request.param))))
        await client.start_server()
        return client

    async def post(raw: bytes, path: str = CHAT) -> WireAnswer:
        async with asyncio.timeout(GUARD_S):
            async with client.post(path, data=raw, headers={"Content-Type": "application/json"}) as response:
                return WireAnswer(status=response.status, headers=response.headers.copy(), body=await response.read())

    logger = logging.getLogger("toolwire")
    logger.setLevel(logging.CRITICAL)
    with asyncio.Runner() as runner:
        client = runner.run(start())
        yield lambda *given: runner.run(post(*given))
        runner.run(client.close())
    logger.setLevel(logging.NOTSET)


def check(answer: WireAnswer) -> None:
    event(f"{answer.status}")
    assert answer.status == 200 or 400 <= answer.status < 500, answer.body
    if answer.status == 200:
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            assert answer.frames()[-1] == "[DONE]"
            assert not any("error" in frame for frame in answer.frames()[:-1])
        else:
            assert answer.json()["choices"][0]["finish_reason"]
        return
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], answer.status) == (CODES[error["code"]].type, CODES[error["code"]].status)
    assert isinstance(error["message"], str)
    assert 0 < len(error["message"]) < 1000
    assert error["param"] is None or (isinstance(error["param"], str) and error["param"])


@given(body=bodies())
def test_bodies_that_are_nearly_right(send: Send, body: Any) -> None:
    check(send(json.dumps(body).encode()))


PATHS = {
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": RESPONSES,
    "/v1/responses/compact": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
}


@examples(0.4)
@given(data=st.data())
@pytest.mark.parametrize("path", PATHS)
def test_bodies_of_other_protocols_that_are_nearly_right(send: Send, path: str, data: st.DataObject) -> None:
    """An answer that ends well, or a refusal in the protocol's words."""
    raw = json.dumps(data.draw(bodies(PATHS[path]))).encode()
    answer = send(raw, path)
    event(f"{answer.status}")
    if answer.status != 200:
        assert 400 <= answer.status < 500, answer.body
        error = answer.json()["error"]
        assert 0 < len(error["message"]) < 1000
        assert error["type"]
    elif answer.headers["Content-Type"].startswith("text/event-stream"):
        assert answer.frames()[-1]["type"] in ("response.completed", "response.incomplete", "message_stop")
    else:
        assert answer.json()
