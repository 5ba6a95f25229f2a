"""The site: every page of the repository stands on it as it reads there, every link leads somewhere, nothing is loaded
from elsewhere, and a search finds. Needs the extra `docs`.
"""

from __future__ import annotations

import importlib.util
import json
import posixpath
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from docs import website
from docs.website import ROOT, SOURCE, SiteError, bent, pages

COUNTED = ("h1", "h2", "h3", "h4", "li", "table", "tr", "pre", "img", "blockquote", "hr", "strong", "em")

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href", "use": "href"}


class Read(HTMLParser):
    """What a page consists of: links, ids, what it loads, and how often each element stands in its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.elements: Counter[str] = Counter()
        self._inside = "<article" not in text
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = dict(attributes)
        self._inside |= tag == "article"
        self.ids.update(value for key in ("id", "name") if (value := has.get(key)))
        if tag == "a" and (href := has.get("href")):
            self.links.append(href)
        if tag in LOADS and has.get("rel") != "canonical" and (address := has.get(LOADS[tag])):
            self.loads.append(address)
        if self._inside and tag in COUNTED:
            self.elements[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("needs the extra `docs`")
    return website.build(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Read]:
    """Each built page by its path."""
    return {file.relative_to(site).as_posix(): Read(file.read_text("utf-8")) for file in site.rglob("*.html")}


def _html(place: str) -> str:
    folder = place.removesuffix("index.md").removesuffix(".md")
    return f"{folder.removesuffix('/')}/index.html".removeprefix("/")


# --- what is built --------------------------------------------------------------------------------------------------


def test_every_page_of_the_documentation_is_there(built: dict[str, Read]) -> None:
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} - set(pages()) == {
        "docs/README.md"
    }
    assert [place for place in pages().values() if _html(place) not in built] == []


def test_a_page_reads_as_in_the_repository(built: dict[str, Read]) -> None:
    """As many of each element as in the Markdown that the repository's view shows."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    wrong = {}
    for path, place in pages().items():
        text = (ROOT / path).read_text("utf-8")
        own = Read(reader.render(text)).elements
        shown = built[_html(place)].elements
        differing = {tag: (own[tag], shown[tag]) for tag in COUNTED if own[tag] != shown[tag]}
        if differing:
            wrong[path] = differing
    assert wrong == {}


def test_links_of_the_built_pages_lead_somewhere(site: Path, built: dict[str, Read]) -> None:
    broken = []
    files = {file.relative_to(site).as_posix() for file in site.rglob("*") if file.is_file()}
    for name, page in built.items():
        if name == "404.html":  # shown at any address, so its links begin with that of the site
            continue
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path) or "."))
            folder = posixpath.normpath(f"{target}/index.html")
            file = name if not parts.path else folder if folder in files else target
            if file not in files or (
                parts.fragment and file in built and unquote(parts.fragment) not in built[file].ids
            ):
                broken.append((name, link))
    assert broken == []


def test_links_to_sources_are_those_of_files_that_exist(built: dict[str, Read]) -> None:
    links = {link for page in built.values() for link in page.links}
    sources = [link for link in links if link.startswith(SOURCE + "/")]
    assert f"{SOURCE}/tree/main/changes" in sources
    assert [s for s in sources if not (ROOT / s.removeprefix(SOURCE).split("/", 3)[3].partition("#")[0]).exists()] == []


def test_nothing_is_loaded_from_elsewhere(site: Path, built: dict[str, Read]) -> None:
    assert {address for page in built.values() for address in page.loads if urlsplit(address).netloc} == set()
    styles = "".join(file.read_text("utf-8") for file in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_the_index_of_the_search_holds_the_words_of_the_pages(site: Path) -> None:
    items = json.loads((site / "search.json").read_text("utf-8"))["items"]
    found = {place: " ".join(i["text"] + i["title"] for i in items if i["location"].startswith(place)) for place in (
        "how-to/scale-out/", "reference/configuration/", "explanation/glossary/", "adr/0010-grammars/",
        "project/contributing/",
    )}  # fmt: skip
    assert "Redis" in found["how-to/scale-out/"]
    assert "max_iterations" in found["reference/configuration/"]
    assert "near miss" in found["explanation/glossary/"].lower()
    assert "grammar" in found["adr/0010-grammars/"]
    assert "Code map" in found["project/contributing/"]


# --- what ends the build --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[a](how-to/clients.md#x)", "[a](how-to/clients.md#x)"),
        ("[a](../CONTRIBUTING.md#code-map)", "[a](project/contributing.md#code-map)"),
        ("[a](../proxy/model.py)", f"[a]({SOURCE}/blob/main/proxy/model.py)"),
        ("[a](../deploy/systemd)", f"[a]({SOURCE}/tree/main/deploy/systemd)"),
        ("[a](adr)", "[a](adr/index.md)"),
        ("[a](README.md)", "[a](index.md)"),
        ("[a](#here) [b](https://example.org/x.md)", "[a](#here) [b](https://example.org/x.md)"),
        ("`[a](nowhere.md)`", "`[a](nowhere.md)`"),
        ("```text output\n[a](nowhere.md)\n```\n", "```text\n[a](nowhere.md)\n```\n"),
        ("```python file=a.py\nb\n```\n", '```python title="a.py"\nb\n```\n'),
    ],
)
def test_links_are_bent(text: str, place: str) -> None:
    assert bent("docs/requirements.md", text, pages()) == place


@pytest.mark.parametrize("text", ["[a](nowhere.md)", "![a](images/none.png)"])
def test_what_is_not_there_is_an_error(text: str) -> None:
    with pytest.raises(SiteError, match=r"^docs/requirements.md: "):
        bent("docs/requirements.md", "# A\n" + text, pages())


def test_a_page_without_a_section_is_an_error() -> None:
    with pytest.raises(SiteError, match=r"no section for docs/other/new.md"):
        website.sections(pages() | {"docs/other/new.md": "other/new.md"})


def test_the_tabs_are_the_usual_ones() -> None:
    """R35.5. Decision records have one page in the navigation, not one for each."""
    tabs = website.navigation(pages())
    assert [name for tab in tabs for name in tab] == ["Home", "Get started", "Guides", "Reference", "Concepts"]
    assert re.findall(r"adr/[^'\"]+", str(tabs)) == ["adr/index.md"]


def test_the_documents_stay_short() -> None:
    """R35.5. Counted as `wc -w` does, without the bars of tables. Say it on one page and link to it from others."""
    texts = [(ROOT / path).read_text("utf-8") for path in pages() if re.match("docs/(?!adr/)", path)]
    assert sum(not re.fullmatch(r"[|:-]+", word) for text in texts for word in text.split()) <= 60_000


def test_programs_find_each_page_as_markdown(site: Path) -> None:
    """R35.5: `llms.txt` has a title, a summary and sections of links. Each leads to Markdown with full addresses."""
    text = (site / "llms.txt").read_text("utf-8")
    assert re.match(r"# toolwire\n\n> \S.+\n", text)
    address = website._setting("site_url")
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: .+)?$", text, re.MULTILINE)
    files = {link.removeprefix(address) for link in links}
    assert len(files) == len(links) > 50
    assert [file for file in files if not (site / file).is_file()] == []
    for file in site.rglob("*.html.md"):
        assert file.with_suffix("").is_file()
        for link in re.findall(r"\]\((" + re.escape(address) + r"[^)#]+)", file.read_text("utf-8")):
            assert (site / link.removeprefix(address)).is_file(), (file, link)
    assert "max_iterations" in (site / "llms-full.txt").read_text("utf-8")
