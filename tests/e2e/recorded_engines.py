"""Answers of real model servers, recorded as their versions gave them (`engines` in the folder that `TOOLWIRE_SHARED`
names): the same answers again, over real sockets."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pytest

from tests.e2e.engines import page
from tests.protocols.published import SHARED
from toolwire.testing import Answer, Asked, Refuse

RECORDED = SHARED / "engines"
VLLM = "vllm-0.32.0-plain"
SGLANG = "sglang-0.5.23-cpu-stub"
LLAMACPP = "llamacpp-xllamacpp-2026.10.11549-jinja"
TRANSFORMERS = "transformers-5.24.0-serve"
SMG = "smg-1.13.0-over-vllm-0.32.0"
VLLM_ROUTER = "vllm-router-0.1.17-over-vllm-0.32.0"


def recorded(engine: str, name: str) -> Any:
    """The exchange: its request, status and body."""
    path = RECORDED / engine / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"no recorded answers at {path}; set TOOLWIRE_SHARED")
    return orjson.loads(path.read_bytes())


def answered(engine: str, name: str) -> Answer:
    """The answer to a recorded request, streamed if it was."""
    stream = RECORDED / engine / f"{name}.sse"
    if stream.is_file():
        return Answer([stream.read_bytes()], headers={"Content-Type": "text/event-stream"})
    said = recorded(engine, name)
    return page(said["body"], said["status"])


def _page_of(engine: str, asked: Asked) -> Answer:
    name = asked.path.removeprefix("/v1/").strip("/") or "root"
    path = RECORDED / engine / f"{name.replace('/', '_')}.json"
    if not path.is_file():
        return Refuse(404, "Not Found")
    said = orjson.loads(path.read_bytes())
    return page(said["body"], said["status"])


def pages(engine: str) -> Any:
    """Whatever is at the paths that say what a server is."""
    recorded(engine, "models")
    return partial(_page_of, engine)
