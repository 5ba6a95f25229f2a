"""A route that renames: the client reads the name that it asked for, and no other byte changes (R28.8)."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.meaning import MESSAGES, RESPONSES, asking, says
from toolwire.model import Text, ToolUse
from toolwire.pipeline.answers.renaming import Renaming, find_model
from toolwire.testing import Answer, Asked, Upstream

KINDS = {CHAT: "openai_chat", MESSAGES: "anthropic_messages", RESPONSES: "openai_responses"}
TEXT = Text('It is "model":"m", and {"model": "m"}. é')
CALL = ToolUse("call_1", "read", '{"model":"m","path":"a","deep":{"model":"m"}}')


def named(body: bytes, path: str, name: str) -> bytes:
    """The answer of the server, with another name in the places that name the model."""
    lines = []
    for line in body.splitlines(keepends=True):
        data = line.removeprefix(b"data: ")
        if not data.startswith(b"{"):
            lines.append(line)
            continue
        value = orjson.loads(data)
        holder = value if path == CHAT or line == data else value.get("message", value.get("response"))
        if holder is not None:
            holder["model"] = name
        lines.append(line.removesuffix(data) + orjson.dumps(value) + data[len(data.rstrip(b"\n")) :])
    return b"".join(lines)


@every("path", KINDS)
async def test_bytes_that_pass(path: str) -> None:
    written: list[bytes] = []

    def answer(asked: Asked) -> Answer:
        said = says(KINDS[path], TEXT, CALL)(asked)
        written.append(b"".join(step for step in said.steps if isinstance(step, bytes)))
        return said

    async with Upstream([answer]) as up:
        backend = {"kind": KINDS[path], "url": up.url}
        routes = [{"model": "asked", "backend": "b", "upstream_model": "m"}, {"model": "m", "backend": "b"}]
        config = read_config({"backends": {"b": backend}, "routes": routes, "defaults": {"mode": "native"}})
        async with serving(config) as server:
            for name, stream in product(("asked", "m"), (False, True)):
                fields = asking(path, stream).items()
                body = {key: value for key, value in fields if key not in ("tools", "stream_options")}
                got = await post(server, {**body, "model": name, "store": False}, path=path)
                assert got.body == named(written[-1], path, name), (name, stream)


JSON = st.recursive(
    st.none() | st.text(alphabet='mo"del:\\{}[]real ') | st.just("real"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "message", "a"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["model", "message", "a"]), JSON, max_size=3), st.sampled_from([None, "message"])
)
def test_only_the_models_name_is_replaced(value: dict[str, Any], parent: str | None) -> None:
    """Law: what comes out is the value with that one name changed."""
    found = find_model(json.dumps(value).encode(), None if parent is None else json.dumps(parent).encode())
    holder = value if parent is None else value.get(parent)
    right = isinstance(holder, dict) and isinstance(holder.get("model"), str)
    assert (found is not None) == right
    renaming = Renaming("new", parent)
    line = b"data: " + json.dumps(value).encode() + b"\n\n"
    out = json.loads(renaming.frames(line)[6:])
    if right:
        assert isinstance(holder, dict)
        holder["model"] = "new"
    assert out == value
