"""What a chat backend has no form for: content is refused, other items are left out with a notice, nothing is lost in
silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Gateway, post

RESPONSES = "/v1/responses"


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"type": "input_file", "file_id": "file_1"}, "unsupported_content"),
        ({"type": "input_image", "file_id": "file_1"}, "unsupported_content"),
    ],
)
async def test_content_without_a_form_is_refused(gateway: Gateway, part: dict[str, Any], code: str) -> None:
    server = await gateway(script=["ok"])
    user = {"role": "user", "content": [{"type": "input_text", "text": "read"}, part]}
    answer = await post(server, {"input": [{"role": "user", "content": "hi"}, user]}, path=RESPONSES)
    assert answer.status == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, "input[1].content[1]")


async def test_other_items_are_left_out_with_a_notice(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    server = await gateway(script=["ok"])
    items = [{"role": "user", "content": "hi"}, {"type": "shell_call", "id": "sh_1", "action": {}}]
    answer = await post(server, {"input": items}, path=RESPONSES)
    assert answer.status == 200
    assert "shell_call" in caplog.text
