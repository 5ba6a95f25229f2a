"""The drawings of the pages as pictures, for the site: `python -m docs.drawn` makes those that are not there.

In the repository's view a drawing is its Mermaid. On the site it is an SVG that was made of it once, so that a page
needs no script of several megabytes. The name of the file is made from the Mermaid: a drawing that was changed has no
picture until this is run, and the build of the site says so.

Needs npm, for Mermaid itself, and Chromium with its driver.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

FOLDER: Final = Path(__file__).with_name("images")
MERMAID: Final = "mermaid@11.16.0"
BLOCK: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DRAW: Final = """
const [text, id, done] = arguments;
mermaid.initialize({startOnLoad: false, theme: "neutral", fontFamily: "system-ui, sans-serif"});
mermaid.render(id, text).then(({svg}) => {
    const holder = document.createElement("div");
    holder.innerHTML = svg;
    done(new XMLSerializer().serializeToString(holder.firstChild));
}, error => done("error: " + error));
"""


def picture(text: str) -> Path:
    """The file of a drawing, which need not be there."""
    return FOLDER / f"drawn-{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"


def drawings() -> Iterator[str]:
    """The Mermaid of every drawing in the documentation."""
    for page in sorted(FOLDER.parent.rglob("*.md")):
        yield from BLOCK.findall(page.read_text("utf-8"))


def main() -> None:
    """Draw what has no picture, and delete the pictures of drawings that are gone."""
    wanted = {picture(text): text for text in drawings()}
    for file in set(FOLDER.glob("drawn-*.svg")) - set(wanted):
        file.unlink()
    missing = {file: text for file, text in wanted.items() if not file.exists()}
    if not missing:
        return
    from tests.inspector.browser import browsing

    with TemporaryDirectory() as folder, browsing() as driver:
        subprocess.run(["npm", "pack", "--silent", MERMAID], cwd=folder, check=True, stdout=sys.stderr)
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extract("package/dist/mermaid.min.js", folder, filter="data")
        page = Path(folder, "page.html")
        page.write_text('<!doctype html><meta charset="utf-8"><script src="package/dist/mermaid.min.js"></script>')
        driver.get(page.as_uri())
        for file, text in missing.items():
            svg = driver.execute_async_script(DRAW, text, file.stem)
            if not svg.startswith("<svg"):
                raise SystemExit(f"{text}\n{svg}")
            file.write_text(svg + "\n", "utf-8")
            print(file)


if __name__ == "__main__":
    main()
