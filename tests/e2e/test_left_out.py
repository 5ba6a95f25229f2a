"""What a chat backend has no form for: content is a note, other items are left out with a notice, nothing is lost in
silence."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Gateway, post

RESPONSES = "/v1/responses"


@pytest.mark.parametrize("kind", ["input_file", "input_image"])
async def test_content_that_only_its_server_knows_is_a_note(
    gateway: Gateway, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = {"type": kind, "file_id": "file_1"}
    user = {"role": "user", "content": [{"type": "input_text", "text": "read"}, part]}
    server = await gateway(script=["ok"])
    answer = await post(server, {"input": [{"role": "user", "content": "hi"}, user]}, path=RESPONSES)
    assert answer.status == 200
    assert {"input_file": "files_omitted", "input_image": "images_omitted"}[kind] in caplog.text


async def test_other_items_are_left_out_with_a_notice(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    server = await gateway(script=["ok"])
    items = [{"role": "user", "content": "hi"}, {"type": "shell_call", "id": "sh_1", "action": {}}]
    answer = await post(server, {"input": items}, path=RESPONSES)
    assert answer.status == 200
    assert "shell_call" in caplog.text
