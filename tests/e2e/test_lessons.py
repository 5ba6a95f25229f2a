"""What one client's refusal teaches counts for that client, a second one's for all; both are shown and forgotten
(R33.6)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import aiohttp

from tests.cases import every
from tests.e2e.conftest import gateway_before, post, serving, upstream_config
from tests.e2e.test_taught_together import PARSE, READ, TAUGHT, asks, bearer, no_objects
from tests.e2e.test_tool_mode import NAMED
from toolwire.testing import Answer, Asked, Refuse, Say, Upstream

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PICTURE = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]}]}


def no_images(asked: Asked) -> Answer:
    return Refuse(400, "this model takes no image input") if b"image_url" in asked.body else Say("ok")(asked)


def no_top_k(asked: Asked) -> Answer:
    return Refuse(400, "top_k is not supported") if "top_k" in asked.json else Say("ok")(asked)


def no_grammar(asked: Asked) -> Answer:
    return Refuse(400, PARSE) if "grammar" in asked.json else TAUGHT(asked)


KINDS: dict[str, tuple[Callable[[Asked], Answer], dict[str, Any], dict[str, Any], Callable[[Asked], bool]]] = {
    "images": (no_images, PICTURE, {}, lambda asked: b"image_url" in asked.body),
    "sampling": (
        no_top_k,
        {"messages": [{"role": "user", "content": "hi"}], "top_k": 3},
        {"extra_parameters": ["top_k"]},
        lambda asked: "top_k" in asked.json,
    ),
    "choice_objects": (no_objects, asks(NAMED), {}, lambda asked: isinstance(asked.json.get("tool_choice"), dict)),
    "constraint": (no_grammar, asks("required", READ), {"preset": "llamacpp"}, lambda asked: "grammar" in asked.json),
}
"""A server that refuses it, a request with it, how the server is configured, and whether a request has it."""


async def refused(server: Any, place: str = "/ready", key: str = "one") -> Any:
    async with aiohttp.ClientSession(headers=bearer(key)) as session, session.get(server.make_url(place)) as answer:
        return await answer.json()


TURNS = [{"role": role, "content": role} for role in ("user", "user", "assistant", "system", "user")]
ROLES = {
    "alternating": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        lambda roles: any(one == other for one, other in pairwise(roles)) or "system" in roles[1:],
    ),
    "late_system": ("System message must be at the beginning.", lambda roles: "system" in roles[1:]),
    "system": ("System role not supported", lambda roles: "system" in roles),
    "system in other words": ("Only user and assistant roles are supported!", lambda roles: "system" in roles),
}
"""Words of chat templates, and which roles make them say so."""


@every("status", [400, 500])
@every("name", ROLES)
async def test_roles_that_a_template_refuses(name: str, status: int) -> None:
    words, refuses = ROLES[name]

    def script(asked: Asked) -> Answer:
        roles = [one["role"] for one in asked.json["messages"]]
        return Refuse(status, words) if refuses(roles) else Say("ok")(asked)

    async with gateway_before([script], backend={"preset": "generic"}) as (server, up):
        for _ in range(2):
            assert (await post(server, {"model": "m", "messages": TURNS})).status == 200
        assert (await refused(server))["refused"] == {"up": {"m": {"roles": "all"}}}
    assert len(up.posts) == 3
    assert all(word["content"] in up.posts[-1].body.decode() for word in TURNS), "nothing is left out"


@every("kind", KINDS)
async def test_two_keys_teach_the_third(kind: str) -> None:
    script, body, backend, has_it = KINDS[kind]
    mode = "prompt" if kind == "constraint" else "native"
    async with Upstream([script]) as up:
        sections = {"auth": {"keys": ["one", "two", "three"]}, "defaults": {"mode": mode}, "inspect": True}
        config = upstream_config(up.url, backend={"preset": "generic", **backend}, **sections)
        async with serving(config) as server:
            assert "refused" not in await refused(server)
            sent, shown = [], []
            for key in ("one", "one", "two", "three"):
                before = len(up.posts)
                assert (await post(server, {"model": "m", **body}, headers=bearer(key))).status == 200
                sent.append([has_it(one) for one in up.posts[before:]])
                shown.append((await refused(server))["refused"]["up"]["m"][kind])
            (overview,) = (await refused(server, "/inspect/api/overview"))["backends"]
    assert sent == [[True, False], [False], [True, False], [False]]
    assert shown == ["some", "some", "all", "all"]
    assert overview["refused"]["m"][kind] == "all"
