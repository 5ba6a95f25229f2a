"""Builds the documentation as a site, strictly: `make docs`, or `python -m docs.website [FOLDER]`.

Rules:

1. The pages are those of the repository; what is written there reads well there too. They are copied into a folder and
   on the way links are bent: one to a page leads to that page of the site, one to any other file of the repository to
   its place on the web.
2. The navigation is the index, `docs/README.md`: its headings and the links below them. A page that it does not name,
   and a link that leads nowhere, end the build.
3. A drawing in Mermaid is shown as the picture that `docs/drawn.py` made of it, so no page loads a script for it.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from docs.drawn import picture

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "docs"
SOURCE: Final = "https://github.com/toolwire/toolwire"
INDEX: Final = "docs/README.md"
DECISIONS: Final = "docs/adr"
OUTSIDE: Final[Mapping[str, str]] = {
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/models.md": "project/models.md",
    "deploy/README.md": "project/deploy.md",
}
"""Pages that are not in `docs/`, by their place on the site."""

CODE: Final = re.compile(
    r"^(?P<fence>[ ]*```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
LINK: Final = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?=\))")
ENTRY: Final = re.compile(r"^(?P<level>#{2,3}) (?P<heading>.+)$|^- \[(?P<title>[^\]]+)\]\((?P<target>[^)\s]+)\)", re.M)
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)

Navigation = list[dict[str, "str | Navigation"]]


class SiteError(Exception):
    """The site cannot be built; the message says what has to be mended where."""


def pages() -> dict[str, str]:
    """The pages of the repository by path, and their places on the site. The index is the navigation instead."""
    inside = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return {path: path.removeprefix("docs/") for path in sorted(inside) if path != INDEX} | dict(OUTSIDE)


def bent(path: str, text: str, places: Mapping[str, str]) -> str:
    """The page at `path` as it stands on the site. Raises `SiteError` for a link that leads nowhere."""
    here = posixpath.dirname(places[path])

    def link(match: re.Match[str]) -> str:
        target, hash_, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if file in places:
            return posixpath.relpath(places[file], here or ".") + hash_ + anchor
        if file == INDEX:
            return posixpath.relpath("index.md", here or ".")
        if file == DECISIONS:
            return posixpath.relpath("adr/index.md", here or ".")
        if not (ROOT / file).exists():
            raise SiteError(f"{path}: {match['target']} leads nowhere")
        if file.startswith("docs/images/"):
            return posixpath.relpath(file.removeprefix("docs/"), here or ".")
        return f"{SOURCE}/{'tree' if (ROOT / file).is_dir() else 'blob'}/main/{file}{hash_}{anchor}"

    def drawing(mermaid: str, above: str) -> str:
        file = picture(mermaid)
        if not file.exists():
            raise SiteError(f"{path}: a drawing was changed and has no picture; make it by `python -m docs.drawn`")
        place = posixpath.relpath(file.relative_to(ROOT / "docs").as_posix(), here or ".")
        return f"[![{HEADING.findall(above)[-1]}]({place})]({place})"

    def code(match: re.Match[str]) -> str:
        words = (match["info"] or "").split()
        if not words:
            return match[0]
        if words[0] == "mermaid":
            return drawing(match["text"], text[: match.start()])
        named = next((word.removeprefix("file=") for word in words if word.startswith("file=")), None)
        title = f' title="{named}"' if named else ""
        return f"{match['fence']}{words[0]}{title}\n{match['text']}{match['fence']}"

    return _outside(CODE, text, lambda rest: LINK.sub(link, rest), code)


def _outside(
    pattern: re.Pattern[str], text: str, rest: Callable[[str], str], found: Callable[[re.Match[str]], str]
) -> str:
    """`text` with what matches replaced by `found`, and what stands between by `rest`."""

    def parts() -> Iterator[str]:
        end = 0
        for match in pattern.finditer(text):
            yield rest(text[end : match.start()])
            yield found(match)
            end = match.end()
        yield rest(text[end:])

    return "".join(parts())


def navigation(places: Mapping[str, str]) -> Navigation:
    """The index as Zensical wants it. Raises `SiteError` for a page that the index does not name."""
    top: Navigation = [{"Home": "index.md"}]
    levels = {1: top}
    named = {"docs/index.md"}
    for entry in ENTRY.finditer((ROOT / INDEX).read_text("utf-8")):
        if entry["heading"]:
            below: Navigation = []
            levels[len(entry["level"])] = below
            levels[len(entry["level"]) - 1].append({entry["heading"]: below})
            levels = {level: entries for level, entries in levels.items() if level <= len(entry["level"])}
            continue
        file = posixpath.normpath(posixpath.join("docs", entry["target"]))
        here = levels[max(levels)]
        if file == DECISIONS:
            records = [path for path in places if path.startswith(DECISIONS + "/")]
            here += [{"All": "adr/index.md"}, *({_title(path): places[path]} for path in records)]
            named.update(records)
        elif file in places and file not in named:
            here.append({entry["title"]: places[file]})
            named.add(file)
    if missing := [path for path in places if path not in named]:
        raise SiteError(f"{INDEX} does not name {', '.join(missing)}")
    return top


def _title(path: str) -> str:
    found = TITLE.search((ROOT / path).read_text("utf-8"))
    if found is None:
        raise SiteError(f"{path} has no title")
    return found[1].replace("`", "")


def _decisions(places: Mapping[str, str]) -> str:
    """The page that lists the decision records."""
    rows = [f"- [{_title(path)}]({path.rpartition('/')[2]})" for path in places if path.startswith(DECISIONS + "/")]
    return "\n".join(("# Decision records", "", "What was decided, why, and what it costs.", "", *rows, ""))


def _toml(value: str | Navigation | dict[str, str | Navigation]) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case dict():
            return "{ " + ", ".join(f"{_toml(key)} = {_toml(below)}" for key, below in value.items()) + " }"


def write(folder: Path) -> None:
    """Put everything that the site is built from into an empty `folder`. Raises `SiteError`."""
    places = pages()
    for path, place in places.items():
        file = folder / "pages" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(bent(path, (ROOT / path).read_text("utf-8"), places), "utf-8")
    (folder / "pages" / "adr" / "index.md").write_text(_decisions(places), "utf-8")
    shutil.copytree(ROOT / "docs" / "images", folder / "pages" / "images")
    shutil.copy(ROOT / "docs" / "website.css", folder / "pages")
    settings = (ROOT / "docs" / "website.toml").read_text("utf-8")
    nav = f"nav = {_toml(navigation(places))}\n"
    (folder / "zensical.toml").write_text(settings.replace("[project]\n", "[project]\n" + nav, 1), "utf-8")


def build(folder: Path) -> Path:
    """Build the site anew below `folder`, which is emptied, and return where it is. Raises `SiteError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        raise SiteError(said)
    return folder / "site"


def main() -> int:
    """The command."""
    try:
        print(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else BUILD) / "index.html")
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
