"""Builds the documentation as a site: `make docs`, or `python -m docs.website [FOLDER]`.

1. The pages are those of the repository. They are copied into a folder, and their links are rewritten: a link to a
   page leads to that page of the site, a link to another file of the repository to its address on GitHub.
2. The navigation is the index, `docs/README.md`: its headings are tabs and sections, the links below them are pages.
   A page that the index does not list is at its folder's link, or else joins the other pages of its folder. Decision
   records are not in the navigation; one page lists them.
3. `llms.txt` lists all pages for programs (https://llmstxt.org), and the Markdown of each page is beside its HTML as
   `index.html` with the suffix `.md`.

A link that leads nowhere ends the build.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "docs"
SOURCE: Final = "https://github.com/toolwire/toolwire"
INDEX: Final = "docs/README.md"
HOME: Final = "README.md"
DECISIONS: Final = "docs/adr"
OUTSIDE: Final[Mapping[str, str]] = {
    HOME: "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/models.md": "project/models.md",
    "deploy/README.md": "project/deploy.md",
}
"""Pages that are not in `docs/`, by their place on the site."""
SECTIONS: Final[Mapping[str, str]] = {
    "docs/tutorial": "Get started",
    "docs/how-to": "Guides",
    "docs/reference": "Reference",
    "docs/explanation": "Concepts",
}
"""The tab for the pages of a folder that the index does not list."""

CODE: Final = re.compile(
    r"^(?P<fence>[ ]*```+)(?P<info>[^`\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
LINK: Final = re.compile(r"(?<=\]\()(?P<target>[^)\s]+)(?=\))")
ENTRY: Final = re.compile(
    r"^(?P<level>#{2,3}) (?P<heading>.+)$|^- \[(?P<title>[^\]]+)\]\((?P<target>[^)\s]+)\)(?:: (?P<note>.+))?$", re.M
)
TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)

Navigation = list[dict[str, "str | Navigation"]]


class SiteError(Exception):
    """The site cannot be built; the message says which page to correct."""


def pages() -> dict[str, str]:
    """The pages of the repository by path, with their places on the site. The index is the navigation, not a page."""
    inside = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return {path: path.removeprefix("docs/") for path in sorted(inside) if path != INDEX} | dict(OUTSIDE)


def bent(path: str, text: str, places: Mapping[str, str]) -> str:
    """The text of a page with the links of the site. Raises `SiteError` for a link that leads nowhere."""
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

    def code(match: re.Match[str]) -> str:
        words = (match["info"] or "").split()
        if not words:
            return match[0]
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


class Section(NamedTuple):
    """A heading of the index: its level, its pages by path with their titles, and the notes behind their links."""

    level: int
    heading: str
    pages: dict[str, str]
    notes: dict[str, str]


def sections(places: Mapping[str, str]) -> list[Section]:
    """The sections of the index, with every page but the decision records in exactly one of them. A link to a folder
    stands for its pages that have no link of their own.

    Raises `SiteError` for a page in a folder that belongs to no section.
    """
    entries = list(ENTRY.finditer((ROOT / INDEX).read_text("utf-8")))
    targets = [posixpath.normpath(posixpath.join("docs", entry["target"] or ".")) for entry in entries]
    unlisted = [path for path in places if path not in {HOME, *targets} and posixpath.dirname(path) != DECISIONS]
    found: list[Section] = []
    homes: dict[str, Section] = {}
    for entry, path in zip(entries, targets, strict=True):
        if entry["heading"]:
            found.append(Section(len(entry["level"]), entry["heading"], {}, {}))
        elif path in SECTIONS:
            found[-1].pages.update({page: _title(page) for page in unlisted if posixpath.dirname(page) == path})
        elif path == DECISIONS or (path in places and path not in homes):
            found[-1].pages[path] = entry["title"]
            found[-1].notes[path] = entry["note"] or ""
            homes[posixpath.dirname(path)] = found[-1]
    by_heading = {section.heading: section for section in found}
    for path in unlisted:
        folder = posixpath.dirname(path)
        section = homes.get(folder) or by_heading.get(SECTIONS.get(folder, ""))
        if section is None:
            raise SiteError(f"{INDEX} has no section for {path}")
        if not any(path in one.pages for one in found):
            section.pages[path] = _title(path)
    return found


def navigation(places: Mapping[str, str]) -> Navigation:
    """The sections in the form that Zensical reads: tabs, with further sections inside them."""
    top: Navigation = [{"Home": "index.md"}]
    tab = top
    for section in sections(places):
        entries: Navigation = [
            {title: "adr/index.md" if path == DECISIONS else places[path]} for path, title in section.pages.items()
        ]
        (top if section.level == 2 else tab).append({section.heading: entries})
        tab = entries if section.level == 2 else tab
    return top


def llms_txt(places: Mapping[str, str]) -> str:
    """The list of all pages, in the form of https://llmstxt.org."""
    out = ["# toolwire", "", f"> {_setting('site_description')}", ""]
    out.append("Each page is also there as Markdown; the links below lead to it. `llms-full.txt` holds them all.")
    for section in sections(places):
        entries = [
            f"- [{title}]({_markdown_address('adr/index.md' if path == DECISIONS else places[path])})"
            + (f": {section.notes[path]}" if section.notes.get(path) else "")
            for path, title in section.pages.items()
        ]
        if entries:
            out += ["", f"## {section.heading}", "", *entries]
    return "\n".join(out) + "\n"


def _setting(name: str) -> str:
    settings = tomllib.loads((ROOT / "docs" / "website.toml").read_text("utf-8"))
    return str(settings["project"][name])


def _markdown_address(place: str) -> str:
    return _setting("site_url") + _markdown_place(place)


def _markdown_place(place: str) -> str:
    """The place of a page's Markdown on the site: beside its HTML."""
    folder = place.removesuffix("index.md").removesuffix(".md")
    return posixpath.join(folder, "index.html.md")


def as_markdown(place: str, text: str) -> str:
    """The page at `place` of the site with absolute links, so that it can be read from anywhere."""

    def link(match: re.Match[str]) -> str:
        target, hash_, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        address = _markdown_address(file) if file.endswith(".md") else _setting("site_url") + file
        return address + hash_ + anchor

    return _outside(CODE, text, lambda rest: LINK.sub(link, rest), lambda code: code[0])


def _write_markdown(pages_folder: Path, site: Path, places: Mapping[str, str]) -> None:
    """Write `llms.txt`, `llms-full.txt` and the Markdown of each page into the built site."""
    written: dict[str, str] = {}
    for file in pages_folder.rglob("*.md"):
        place = file.relative_to(pages_folder).as_posix()
        written[place] = as_markdown(place, file.read_text("utf-8"))
        (site / _markdown_place(place)).write_text(written[place], "utf-8")
    (site / "llms.txt").write_text(llms_txt(places), "utf-8")
    order = ["index.md", *(places[path] for part in sections(places) for path in part.pages if path in places)]
    (site / "llms-full.txt").write_text("\n".join(written[place] for place in order), "utf-8")


def _title(path: str) -> str:
    found = TITLE.search((ROOT / path).read_text("utf-8"))
    if found is None:
        raise SiteError(f"{path} has no title")
    return found[1].replace("`", "")


def _decisions(places: Mapping[str, str]) -> str:
    """The page that lists the decision records."""
    rows = [f"- [{_title(path)}]({path.rpartition('/')[2]})" for path in places if path.startswith(DECISIONS + "/")]
    about = (
        "Each record has one decision about the design: the reasons, the rejected alternatives, and the cost. A missing "
        "number belongs to a record that a later one replaces; its text is in the history of the repository."
    )
    return "\n".join(("# Decision records", "", about, "", *rows, ""))


def _toml(value: str | Navigation | dict[str, str | Navigation]) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case dict():
            return "{ " + ", ".join(f"{_toml(key)} = {_toml(below)}" for key, below in value.items()) + " }"


def write(folder: Path) -> None:
    """Put the sources of the site into an empty `folder`. Raises `SiteError`."""
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
    """Empties `folder`, builds the site in it, and returns the folder of the site. Raises `SiteError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    said = done.stdout + done.stderr
    if done.returncode or "warning" in said.lower():
        raise SiteError(said)
    _write_markdown(folder / "pages", folder / "site", pages())
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
