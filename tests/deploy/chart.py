"""Renders the chart's templates without Helm: the small part of its language that they keep to.

What a template may use is what is here; anything else raises. `test_chart.py` compares the result with Helm's, where
there is one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

TAG = re.compile(r'\{\{(-)?\s*((?:"(?:[^"\\]|\\.)*"|.)*?)\s*(-)?\}\}', re.DOTALL)
WORD = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[()|]|[^\s()|]+)')

Dot = Mapping[str, Any]


class Failed(Exception):
    """The template says that something is missing."""


class Chart:
    """The chart in a folder."""

    def __init__(self, folder: Path) -> None:
        self.about = yaml.safe_load((folder / "Chart.yaml").read_text("utf-8"))
        self.values = yaml.safe_load((folder / "values.yaml").read_text("utf-8"))
        self._folder = folder
        self.files = {path.name: path.read_text("utf-8") for path in sorted((folder / "templates").iterdir())}

    def dot(self, values: Mapping[str, Any], release: str = "gateway") -> dict[str, Any]:
        """What the templates see. `values` are laid over those of the chart."""
        about = {name[0].upper() + name[1:]: value for name, value in self.about.items()}
        return {
            "Values": _laid_over(self.values, values),
            "Release": {"Name": release, "Service": "Helm"},
            "Chart": about,
            "Files": {"Get": lambda name: (self._folder / name).read_text("utf-8")},
        }

    def render(self, values: Mapping[str, Any], release: str = "gateway") -> dict[str, Any]:
        """The objects, by kind."""
        return objects(_Templates(self.files).render(self.dot(values, release)))


def objects(rendered: Mapping[str, str]) -> dict[str, Any]:
    """The objects in rendered templates, by kind."""
    found = [yaml.safe_load(text) for name, text in rendered.items() if name.endswith(".yaml")]
    return {_kind(item): item for item in found if item}


def _kind(item: Mapping[str, Any]) -> str:
    """The kind of an object; `Dashboard` for the ConfigMap that holds one."""
    dashboard = item["kind"] == "ConfigMap" and item["metadata"]["name"].endswith("-dashboard")
    return "Dashboard" if dashboard else str(item["kind"])


def _laid_over(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, Mapping):
        return {**below, **{key: _laid_over(below.get(key), value) for key, value in above.items()}}
    return above


class _Templates:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._parts: dict[str, list[Any]] = {}
        self._files = {name: self._parse(text) for name, text in files.items()}
        self._functions: dict[str, Callable[..., Any]] = {
            "contains": lambda part, text: part in text,
            "trunc": lambda most, text: text[:most],
            "trimSuffix": lambda end, text: text.removesuffix(end),
            "add": lambda *numbers: sum(numbers),
            "default": lambda other, value: value or other,
            "nindent": lambda width, text: "\n" + "\n".join(" " * width + line for line in text.split("\n")),
            "not": lambda value: not value,
            "printf": lambda form, *values: form % values,
            "quote": lambda value: json.dumps(value if isinstance(value, str) else str(value), ensure_ascii=False),
            "required": _required,
            "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
            "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
        }

    def render(self, dot: Dot) -> dict[str, str]:
        """Every file by its name."""
        return {name: self._run(part, dot) for name, part in self._files.items()}

    def _parse(self, text: str) -> list[Any]:
        return self._block(iter(_pieces(text)))[0]

    def _block(self, pieces: Iterator[tuple[str, str]]) -> tuple[list[Any], str]:
        """Everything up to `end` or `else`, and which of them it was."""
        out: list[Any] = []
        for kind, text in pieces:
            word, _, rest = text.partition(" ")
            if kind == "text":
                out.append(text)
            elif word in ("end", "else"):
                return out, word
            elif word == "define":
                self._parts[json.loads(rest)] = self._block(pieces)[0]
            elif word == "if":
                then, ended = self._block(pieces)
                out.append((rest, then, self._block(pieces)[0] if ended == "else" else []))
            else:
                out.append((text,))
        return out, ""

    def _run(self, block: list[Any], dot: Dot) -> str:
        out = []
        for piece in block:
            if isinstance(piece, str):
                out.append(piece)
            elif len(piece) == 1:
                out.append(str(self._value(piece[0], dot)))
            else:
                condition, then, other = piece
                out.append(self._run(then if self._value(condition, dot) else other, dot))
        return "".join(out)

    def _value(self, expression: str, dot: Dot) -> Any:
        words = WORD.findall(expression)
        value = self._pipeline(words, dot)
        assert not words, expression
        return value

    def _pipeline(self, words: list[str], dot: Dot) -> Any:
        piped: list[Any] = []
        while True:
            call: list[Any] = []
            while words and words[0] not in ("|", ")"):
                call.append(self._one(words, dot))
            first, *arguments = [*call, *piped]
            piped = [first(*arguments) if callable(first) else first]
            assert callable(first) or not arguments
            if not words or words[0] == ")":
                return piped[0]
            words.pop(0)

    def _one(self, words: list[str], dot: Dot) -> Any:
        word = words.pop(0)
        if word == "(":
            value = self._pipeline(words, dot)
            words.pop(0)
            return value
        if word[0] == '"':
            return json.loads(word)
        if word.isdigit():
            return int(word)
        if word == ".":
            return dot
        if word[0] == ".":
            value = dot
            for name in word[1:].split("."):
                value = value[name]
            return value
        if word == "include":
            return lambda name, at: self._run(self._parts[name], at)
        return self._functions[word]


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    at, trim = 0, False
    for tag in TAG.finditer(text):
        before = text[at : tag.start()]
        before = before.lstrip() if trim else before
        yield "text", before.rstrip() if tag[1] else before
        yield "tag", tag[2]
        at, trim = tag.end(), bool(tag[3])
    yield "text", text[at:].lstrip() if trim else text[at:]


def _required(why: str, value: Any) -> Any:
    if value in (None, ""):
        raise Failed(why)
    return value
