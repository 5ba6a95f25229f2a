"""The set-up pages of clients, in `docs/how-to/clients`: tests run the lines that a page gives to users.

A block `LANGUAGE file=~/NAME` is a file in the user's home. A block `sh client` has the commands; the last one starts
the client, and a test adds arguments to it. Where the page has its address the gateway of the test stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from aiohttp.test_utils import TestServer

from tests.docs.pages import blocks, write_files

PAGES: Final = Path("docs/how-to/clients")
ADDRESS: Final = "http://127.0.0.1:8665"
NO_WORDS: Final[Mapping[str, str]] = MappingProxyType({})


def write(name: str, folder: Path, server: TestServer, words: Mapping[str, str] = NO_WORDS) -> None:
    """Write the files of the page `name` into `folder`, which is the user's home. `words` are words of the page's
    lines, and what to write instead. Raises `AssertionError` if neither a file nor a command has one of them."""
    files = write_files(PAGES / f"{name}.md", folder)
    texts = [file.read_text("utf-8") for file in files]
    for old in words:
        assert any(old in text for text in (*texts, *_commands(name))), f"{name}: {old} is not there"
    for file, text in zip(files, texts, strict=True):
        file.write_text(_at(server, _with(words, text)), "utf-8")


def command(name: str, server: TestServer, *arguments: str, words: Mapping[str, str] = NO_WORDS) -> tuple[str, ...]:
    """The commands of the page `name`, with arguments for the last one. `words`: see `write`."""
    [lines] = _commands(name)
    return ("bash", "-euc", f'{_at(server, _with(words, lines)).rstrip()} "$@"', name, *arguments)


def _commands(name: str) -> list[str]:
    return [block.text for block in blocks(PAGES / f"{name}.md") if block.info == ["sh", "client"]]


def _with(words: Mapping[str, str], text: str) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text


def _at(server: TestServer, text: str) -> str:
    return text.replace(ADDRESS, str(server.make_url("/")).rstrip("/"))


def python(name: str, server: TestServer) -> str:
    """The Python program of the page `name`."""
    [program] = [block.text for block in blocks(PAGES / f"{name}.md") if block.info[0] == "python"]
    return _at(server, program)
