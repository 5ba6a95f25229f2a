"""The log of a starting gateway as an operator reads it: once, however many workers there are."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.processes import running

CONFIG = {"backends": {"mock": {"kind": "mock"}}, "server": {"port": 0, "workers": 2}}


async def test_the_start_says_what_is_slow_and_where_conversations_are(tmp_path: Path) -> None:
    async with running(tmp_path, CONFIG, TOOLWIRE_NO_EXTENSIONS="1") as gateway:
        assert gateway.log.count("the compiled scanner is not in use") == 1
        assert "WARNING toolwire.serving: the compiled scanner" in gateway.log
        assert (
            gateway.log.count(f"conversations are stored in the SQLite file {tmp_path}/responses.sqlite3: for 24 h")
            == 1
        )
        gateway.write({**CONFIG, "store": {"kind": "memory", "max_age_s": 60}})
        await gateway.reload()
        assert "conversations are stored in the memory of this process" in gateway.log
