"""The tutorial for authors of middlewares, followed as it is printed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.docs.steps import walking

PAGE = Path("docs/tutorial/first-middleware.md")


def test_it_works_as_printed(tmp_path: Path) -> None:
    """R35.2. Also in several workers, and with a module that a reload names first."""
    with walking(tmp_path, TOOLWIRE_SERVER__WORKERS="2") as walk:
        tested, checked, answered, refused = walk.follow(PAGE)
        assert "3 passed" in tested
        assert checked.startswith("gateway.yaml: valid\n")
        assert json.loads(answered)["choices"][0]["message"]["content"] == "HELLO"
        assert json.loads(refused)["error"]["message"] == "The tool 'format_disk' is not allowed here."

        module, file = walk.home / "shouting.py", walk.home / "gateway.yaml"
        (walk.home / "whispering.py").write_text(module.read_text().replace(".upper()", ".title()"))
        file.write_text(file.read_text().replace("shouting:Shouting", "whispering:Shouting"))
        os.kill(walk.pid, signal.SIGHUP)
        walk.logged("reloaded the configuration", times=2)
        answer = walk.run(f"curl -s {walk.address}/v1/responses -H 'Content-Type: application/json' -d '{BODY}'")
        assert json.loads(answer)["output"][0]["content"][0]["text"] == "Hello"


BODY = '{"model": "m", "input": "hi"}'
