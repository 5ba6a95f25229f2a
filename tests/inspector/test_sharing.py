"""Captures that are handed on: several in one file, and the page with them in one HTML file (R35.4)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from tests.cases import every
from tests.e2e.conftest import CHAT
from tests.inspector.inspected import CALL, WEATHER, Inspected, answering, asked
from toolwire.cli import main
from toolwire.extras.capture.files import read_capture, split_captures
from toolwire.extras.inspector import routes
from toolwire.extras.inspector.offline import offline
from toolwire.extras.inspector.sharing import START, assets, joined, share
from toolwire.testing import Say

HOSTILE = "</script><script>alert(1)</script><!--<script> \u2028\u2029 ]]> </style> \0 &lt;"


@asynccontextmanager
async def two_exchanges() -> AsyncIterator[Inspected]:
    async with answering(Say(CALL), Say(HOSTILE)) as (gateway, _):
        await gateway.ask(asked(CHAT, WEATHER, text=HOSTILE))
        await gateway.ask(asked(CHAT, WEATHER, text="second"))
        yield gateway


async def exported(gateway: Inspected, ids: object, kind: object = "captures", **headers: str) -> Any:
    body = orjson.dumps({"ids": ids, "as": kind})
    return await gateway.fetch("POST", "/inspect/api/export", data=body, headers=headers)


class Page(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.texts.append((tag, ""))
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, text = self.texts[-1]
            self.texts[-1] = tag, text + data


async def test_one_file_with_several_exchanges() -> None:
    async with two_exchanges() as gateway:
        singles = [(await gateway.fetch("GET", f"/inspect/api/exchanges/{one}/capture")).body for one in ("r1", "r2")]
        got = await exported(gateway, ["r1", "r2", "r1"])
    assert split_captures(got.body) == singles
    server = TestServer(offline([(read_capture(part), part) for part in split_captures(got.body)]))
    await server.start_server()
    try:
        page = Inspected(server)
        assert (await page.get("setup"))[1]["file"] is None
        assert [row["id"] for row in await page.rows()] == ["r1", "r2"]
        assert (await page.get("exchanges/r2"))[1]["head"]["question"] == "second"
        assert (await exported(page, ["r2"])).body == singles[1]
    finally:
        await server.close()


@every("ids", [["r1"], ["r1", "r2"]])
async def test_the_page_in_one_file(ids: list[str]) -> None:
    """Texts end no element, nothing is loaded, and only the page's own script may run."""
    async with two_exchanges() as gateway:
        views = {one: (await gateway.get(f"exchanges/{one}"))[1] for one in ids}
        captures = {one: (await gateway.fetch("GET", f"/inspect/api/exchanges/{one}/capture")).body for one in ids}
        got = await exported(gateway, ids, "html")
    assert got.headers["Content-Type"] == "text/html; charset=utf-8"
    assert got.headers["Content-Disposition"].startswith("attachment")
    page = Page(got.body.decode())
    assert [tag for tag, _ in page.texts] == ["style", "script", "script"]
    assert not [tag for tag, attributes in page.elements if tag == "link" and attributes["rel"] == "stylesheet"]
    assert all("src" not in attributes for _, attributes in page.elements)
    (_, style), (_, data), (_, script) = page.texts
    (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    rules = dict(rule.strip().split(" ", 1) for rule in str(policy).split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    for rule, text in (("script-src", script), ("style-src", style)):
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not re.search("[<\u2028\u2029]", data)
    shared = json.loads(data)
    assert {one: shared["exchanges"][one]["view"] for one in ids} == views
    assert {one: shared["exchanges"][one]["capture"].encode() for one in ids} == captures
    assert [row["id"] for row in shared["rows"]] == ids
    assert shared["setup"]["file"] == (ids[0] if len(ids) == 1 else None)


def test_all_modules_are_in_it_once_after_those_they_import() -> None:
    files = {name: content.decode() for name, content in assets().items()}
    script = joined(files)
    order = re.findall(r"^const module_(\w+) = ", script, re.MULTILINE)
    assert sorted(f"{name}.js" for name in order) == sorted(name for name in files if name.endswith(".js"))
    assert order[-1] == START.removesuffix(".js")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    for name, code in files.items():
        for imported in re.findall(r'from "\./(\w+)\.js"', code):
            assert order.index(imported) < order.index(name.removesuffix(".js")), (name, imported)
    assert "</script" not in script
    assert "<!--" not in script


async def test_what_cannot_be_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_EXPORTED", 2)
    async with two_exchanges() as gateway:
        for ids, kind, status, code in (
            (None, "captures", 400, "invalid_value"),
            ([], "captures", 400, "invalid_value"),
            ([1], "captures", 400, "invalid_value"),
            (["r1", "r2", "r1"], "captures", 400, "invalid_value"),
            (["r1"], "pdf", 400, "invalid_value"),
            (["r1", "r3"], "captures", 404, "not_found"),
        ):
            got = await exported(gateway, ids, kind)
            assert (got.status, got.json()["error"]["code"]) == (status, code), ids
        monkeypatch.setattr(routes, "EXPORT_BYTES", 100)
        got = await exported(gateway, ["r1"])
        assert (got.status, got.json()["error"]["code"]) == (413, "request_too_large")
        got = await gateway.fetch("POST", "/inspect/api/html", data=b"no capture")
        assert (got.status, got.json()["error"]["code"]) == (400, "invalid_value")


async def test_the_command_writes_the_page(tmp_path: Path) -> None:
    async with two_exchanges() as gateway:
        content = (await exported(gateway, ["r1", "r2"])).body
        uploaded = await gateway.fetch("POST", "/inspect/api/html", data=split_captures(content)[0])
    file, out = tmp_path / "two.capture.jsonl", tmp_path / "two.html"
    file.write_bytes(content)
    done = CliRunner().invoke(main, ["inspect", str(file), "--html", str(out)])
    assert (done.exit_code, done.output) == (0, "")
    parts = split_captures(content)
    assert out.read_bytes() == share([(read_capture(part), part) for part in parts])
    assert uploaded.body == share([(read_capture(parts[0]), parts[0])])


def test_several_captures_are_replayed_one_after_the_other() -> None:
    done = CliRunner().invoke(main, ["replay", "-"], input=b'{"toolwire_capture":1}\n{"toolwire_capture":1}\n')
    assert done.exit_code == 0
    assert (
        done.output.count("cannot be run again: the gateway refused the request, so the capture does not hold it") == 2
    )
