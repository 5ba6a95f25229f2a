"""Off nothing of it is there; how it is turned on, and where it may not be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from click.testing import CliRunner

from tests.cases import every
from tests.e2e.conftest import CHAT, post, read_config, serving
from tests.e2e.processes import ROOT, running
from tests.inspector.inspected import Inspected, asked, inspecting
from tests.waiting import GUARD_S
from toolwire.cli import main
from toolwire.config import GatewayConfig
from toolwire.configuration.config_schema import schema
from toolwire.configuration.settings import load
from toolwire.support.conversion import ConfigError

MOCK: dict[str, Any] = {"backends": {"mock": {"kind": "mock", "script": ["hello"]}}}

OFF = """
import gc, sys
from toolwire.app import create_app
from toolwire.config import GatewayConfig
from toolwire.pipeline.sending.delivery import Delivery
app = create_app({"backends": {"mock": {"kind": "mock"}}, "store": {"kind": "memory"}})
loaded = sorted(name for name in sys.modules if name.startswith("toolwire.extras.inspector"))
assert not loaded, loaded
def served():
    return [one for one in gc.get_objects() if isinstance(one, Delivery)]
before = served()
assert before
assert all(not delivery._observe for delivery in before)
assert not [resource.canonical for resource in app.router.resources() if "inspect" in resource.canonical]
app = create_app({"backends": {"mock": {"kind": "mock"}}, "store": {"kind": "memory"}, "inspect": True})
assert "toolwire.extras.inspector.feature" in sys.modules
after = [one for one in served() if one not in before]
assert after
assert any(delivery._observe for delivery in after)
"""


def test_off_nothing_is_imported_and_nobody_looks_on() -> None:
    done = subprocess.run([sys.executable, "-c", OFF], cwd=ROOT, capture_output=True, text=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr


@every("inspect", [None, False, {"bytes": 5_000_000}, {"on": False}])
async def test_off_there_is_no_page(inspect: Any) -> None:
    config = read_config(MOCK if inspect is None else {**MOCK, "inspect": inspect})
    async with serving(config) as server:
        page = Inspected(server)
        for path in ("/inspect", "/inspect/app.js", "/inspect/api/setup", "/inspect/api/feed"):
            assert (await page.fetch("GET", path)).status == 404
        assert (await post(server, asked(), path=f"/inspect/try/hermes{CHAT}")).status == 404


def read(inspect: Any) -> GatewayConfig:
    return read_config({**MOCK, "inspect": inspect})


def test_how_it_is_turned_on() -> None:
    assert read_config(MOCK).inspect.on is False
    assert read(True).inspect.on is True
    assert read(True).inspect == read({"on": True}).inspect
    assert read({"on": True, "bytes": 1_000_000}).inspect.bytes == 1_000_000
    assert load(None, env={"TOOLWIRE_INSPECT": "true"}, overrides=MOCK).inspect.on is True
    assert load(None, env={"TOOLWIRE_INSPECT__ON": "true"}, overrides=MOCK).inspect.on is True
    assert load(None, env={"TOOLWIRE_INSPECT__BYTES": "9999999"}, overrides=MOCK).inspect.bytes == 9_999_999


@every("inspect", ["perhaps", 3, {"on": "often"}, {"no": 1}, [True], {"bytes": "much"}])
def test_what_is_no_way_to_turn_it_on(inspect: Any) -> None:
    with pytest.raises(ConfigError, match="inspect"):
        read(inspect)


@every(
    ("sections", "good"),
    [
        ({"inspect": True}, True),
        ({"inspect": False}, True),
        ({"inspect": {"on": True, "bytes": 5}}, True),
        ({"inspect": "perhaps"}, False),
        ({"inspect": {"no": 1}}, False),
        ({"capture": 20}, True),
        ({"capture": {"keep": 20}}, True),
        ({"capture": "many"}, False),
    ],
)
def test_editors_are_told_the_same(sections: dict[str, Any], good: bool) -> None:
    written = orjson.loads((ROOT / "proxy/configuration/config.schema.json").read_bytes())
    assert written == orjson.loads(orjson.dumps(schema()))
    assert jsonschema_rs.is_valid(written, {**MOCK, **sections}) is good


CHECKED: list[tuple[dict[str, Any], bool]] = [
    ({"server": {"host": "0.0.0.0"}}, False),
    ({"server": {"host": "0.0.0.0", "insecure_public": True}}, False),
    ({"server": {"host": "::"}}, False),
    ({"server": {"host": "0.0.0.0"}, "auth": {"keys": ["tw-a-key-0123456789abcdef"]}}, True),
    ({"server": {"host": "127.0.0.1"}}, True),
    ({"server": {"host": "localhost"}}, True),
    ({"server": {"host": "::1"}}, True),
    ({}, True),
]


@pytest.mark.parametrize(("sections", "good"), CHECKED, ids=repr)
def test_where_it_may_be(tmp_path: Path, sections: dict[str, Any], good: bool) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_bytes(orjson.dumps({**MOCK, **sections, "inspect": True}))
    done = CliRunner().invoke(main, ["check", str(file)])
    assert (done.exit_code == 0) is good, done.output
    assert ("inspect.on" in done.output) is not good
    if good:
        return
    file.write_bytes(orjson.dumps({**MOCK, **sections}))
    assert "inspect.on" not in CliRunner().invoke(main, ["check", str(file)]).output


async def test_the_option_and_where_it_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    async with running(tmp_path / "one", {**MOCK, "store": {"kind": "none"}, "inspect": True}) as process:
        assert await process.process.line() == f"the inspector is at {process.url}/inspect\n".encode()


async def test_with_captures_each_has_its_own() -> None:
    async with inspecting(read_config({**MOCK, "inspect": True, "capture": 2})) as gateway:
        for _ in range(3):
            _, view = await gateway.ask(asked())
            assert view["status"] == 200
        _, overview = await gateway.get("overview")
        assert sum(overview["routes"][0]["requests"]) == 3
        for ident in ("r1", "r2", "r3"):
            assert (await gateway.get(f"exchanges/{ident}"))[0] == 200, "the folder keeps two, the inspector all"
