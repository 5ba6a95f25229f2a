"""Keys are nowhere: not in the list, not in the feed, not in a view, not in a capture (R18.4)."""

from __future__ import annotations

import json
from typing import Any

from tests.cases import every
from tests.e2e.conftest import CHAT, post
from tests.inspector.inspected import MESSAGES, RESPONSES, Inspected, answering, asked
from toolwire.testing import Say

KEY = "tw-clients-key-0123456789abcdef"
OTHER = "tw-another-clients-key-0123456789"
BACKENDS = "backend-key-of-the-model-server"
PASTED = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
KEYED: dict[str, Any] = {
    "auth": {"keys": [{"key": KEY, "name": "her"}, {"key": OTHER, "name": "admin", "admin": True}]}
}


async def everything(gateway: Inspected, ident: str, key: str) -> str:
    """All that the inspector says."""
    headers = {"Authorization": f"Bearer {key}"}
    view = await gateway.ended(ident, **headers)
    found = [json.dumps(view, ensure_ascii=False)]
    for place in (*(f"exchanges/{ident}{what}" for what in ("", "/capture", "/formats")), "overview", "setup"):
        got = await gateway.fetch("GET", f"/inspect/api/{place}", headers=headers)
        assert got.status == 200
        found += [got.body.decode(), str(dict(got.headers))]
    listed = json.dumps(await gateway.rows(**headers), ensure_ascii=False)
    assert ident in listed
    found.append(listed)
    return "\n".join(found)


@every("stream", [True, False])
@every("path", [CHAT, RESPONSES, MESSAGES])
async def test_no_key_is_shown(path: str, stream: bool) -> None:
    """Wherever it was said: by the client, who pastes its own and others, and by the model."""
    pieces = [f"your key is {KEY[:12]}", f"{KEY[12:]}, mine is {BACKENDS[:9]}", f"{BACKENDS[9:]}; {PASTED}"]
    async with answering(Say(*pieces), backend={"api_key": BACKENDS}, **KEYED) as (gateway, upstream):
        body = {**asked(path, text=f"my key is {KEY}, and {PASTED}, and {OTHER}", stream=stream), "user": KEY}
        if path == MESSAGES:
            del body["user"]
        headers = {"X-Request-Id": "mine", "Authorization": f"Bearer {KEY}", "User-Agent": f"agent/{KEY} x"}
        await post(gateway.server, body, path=path, headers=headers)
        assert upstream.posts[0].headers["authorization"] == f"Bearer {BACKENDS}"
        for viewer in (KEY, OTHER):
            said = await everything(gateway, "mine", viewer)
            assert "my key is ****" in said
            for secret in (KEY, OTHER, BACKENDS, PASTED):
                assert secret not in said, said[max(0, said.find(secret) - 200) :][:300]


async def test_a_model_with_the_name_of_a_key() -> None:
    async with answering(Say("x"), **KEYED) as (gateway, _):
        headers = {"X-Request-Id": "mine", "x-api-key": KEY}
        await post(gateway.server, {**asked(), "model": PASTED}, headers=headers)
        said = await everything(gateway, "mine", OTHER)
        assert PASTED not in said
        await post(gateway.server, {**asked(), "model": KEY}, headers={**headers, "X-Request-Id": "again"})
        assert KEY not in await everything(gateway, "again", OTHER)


async def test_tools_and_errors_are_covered_too() -> None:
    async with answering(Say("x"), **KEYED) as (gateway, _):
        headers = {"X-Request-Id": "mine", "Authorization": f"Bearer {KEY}"}
        tool = {"type": "function", "function": {"name": "sk_proj_abcdefghijklmnopqrst0123456789"}}
        await post(gateway.server, {**asked(), "tools": [tool]}, headers=headers)
        said = await everything(gateway, "mine", OTHER)
        assert "sk_proj_abcdefghijklmnopqrst0123456789" not in said
