"""The Markdown pages of the repository, and the fenced blocks in them.

What a block is for stands behind its language:

- `python run`: executed; the blocks of a page share one namespace, in order. A `text output` block right behind one is
  what it prints.
- `python gateway`: the same in front of a running gateway, whose address stands for the one that is printed.
- `yaml config`: a configuration file, or a part of one; it loads, and every name in it is found.
- `yaml cases`: cases for `toolwire tune`.
- `sh client`: commands that set up a client and start it; `tests/clients` runs them.
- `LANGUAGE file=NAME`: a file of the page's example; the tests among them are run with pytest.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
SKIPPED: Final = frozenset({"build", "dist", "node_modules"})
FENCE: Final = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block: the words behind its fence, its text, and the line where it starts."""

    info: list[str]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The name of the example's file that it is."""
        named = (word.removeprefix("file=") for word in self.info[1:] if word.startswith("file="))
        return next(named, None)


def _pages() -> list[Path]:
    """The pages outside of folders that are skipped, which are not entered: an environment has thousands."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        pages = (name for name in files if name.endswith(".md") and not name.startswith("."))
        found += (Path(folder, name).relative_to(ROOT) for name in pages)
    return sorted(found)


PAGES: Final = _pages()


def read(page: Path) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: Path) -> list[Block]:
    return [_block(match, read(page)) for match in FENCE.finditer(read(page))]


def _block(match: re.Match[str], text: str) -> Block:
    own = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
    return Block(match["info"].split(), own, text.count("\n", 0, match.start()) + 1)


def pages_with(*words: str) -> list[Path]:
    """The pages that have a block with these words."""
    return [page for page in PAGES if any(block.info[: len(words)] == list(words) for block in blocks(page))]


def write_files(page: Path, folder: Path) -> list[Path]:
    """Put the files of a page's example into `folder`, which is also the home of the user. Returns where they are."""
    files = []
    for block in blocks(page):
        if block.file:
            file = folder / block.file.removeprefix("~/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, "utf-8")
            files.append(file)
    return files
