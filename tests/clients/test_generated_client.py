"""A client that a generator makes of `/openapi.json` works: all of it can be imported, answers have their types, and so
do errors (R27.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients.pip import run
from tests.e2e.agent import block
from tests.e2e.conftest import Gateway, read_config

ARGUMENTS = {"path": "a.txt"}


@pytest.mark.slow
async def test_a_generated_client(plain_gateway: Gateway, shared: Path) -> None:
    answer = "I look. " + block("read_file", ARGUMENTS)
    server = await plain_gateway(
        read_config(
            {
                "backends": {"mock": {"kind": "mock", "script": [answer] * 3}},
                "routes": [{"model": "m", "backend": "mock"}],
                "auth": {"keys": ["k"]},
                "server": {"pass_through": ["/v1/embeddings"]},
            }
        )
    )
    address = str(server.make_url("/")).rstrip("/")
    status, out, err = await run("generated/generate_and_ask.py", address, shared, TOOLWIRE_KEY="k")
    assert status == 0, err or out
    got = json.loads(out)
    assert got.pop("modules") > 150
    chat = got.pop("chat")
    assert json.loads(chat.pop()) == ARGUMENTS
    assert chat == ["ChatCompletion", "ChatFunctionCall", "read_file"]
    response = got.pop("responses")
    assert json.loads(response.pop()) == ARGUMENTS
    assert response == ["ResponseResource", "completed"]
    assert got == {
        "kept": ["ResponseResource", True],
        "messages": ["MessageAnswer", ARGUMENTS],
        "models": ["ModelList", ["m"]],
        "unknown": [404, "Error", "model_not_found"],
        "refused": [401, "Error", "invalid_api_key"],
        "ready": ["Readiness", "ready"],
    }
