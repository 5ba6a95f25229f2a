"""What a chat backend has no form for: content is a note, other items are left out with a notice, nothing is lost in
silence."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Gateway, post

RESPONSES = "/v1/responses"


async def test_what_a_chat_server_has_no_form_for(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    server = await gateway(script=["ok"])
    hi = {"role": "user", "content": "hi"}
    for item, notice in (
        ({"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}, "files_omitted"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}, "images_omitted"),
        ({"type": "shell_call", "id": "sh_1", "action": {}}, "shell_call"),
    ):
        assert (await post(server, {"input": [hi, item]}, path=RESPONSES)).status == 200
        assert notice in caplog.text
