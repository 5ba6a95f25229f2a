"""Captures and the page in one HTML file, which opens without a gateway.

Rules:

1. The file holds everything that the page shows and loads nothing: its policy (`Content-Security-Policy`) permits only
   its own script and its own styles, by their hashes, and no connection.
2. Captures are data: JSON in which `<` is escaped, so no text of a model can end the element or begin another one.
   Secrets are masked as in captures.
3. The modules of the page are joined into one script, because browsers do not load modules from files.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from ...config import LimitsConfig
from ...protocols.shared.wire import dump_in_pieces
from ...registry import Registries, registries
from ..capture.files import CapturedExchange
from ..capture.recording import RecordingError
from .bounds import within_bounds
from .file_holder import FileHolder, file_setup
from .formats import read_in_all_formats
from .view import UNREADABLE, view

START: Final = "app.js"
"""The module with which the page begins."""

_IMPORT: Final = re.compile(r'^import \{([\w\s,]{0,2000})\} from "\./([a-z]{1,30}\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function\*? ?|class |const )(\w{1,60})", re.MULTILINE)
_STYLE: Final = '<link rel="stylesheet" href="inspect/style.css" />'
_SCRIPT: Final = '<script type="module" src="inspect/app.js"></script>'
_CHARSET: Final = '<meta charset="utf-8" />'


def assets() -> dict[str, bytes]:
    """Returns the files of the page, by name."""
    folder = resources.files("toolwire.extras.inspector").joinpath("page")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def share(
    captures: Sequence[tuple[CapturedExchange, bytes]],
    plugins: Registries | None = None,
    limits: LimitsConfig | None = None,
) -> bytes:
    """Returns the page with these captures, each given as read and as bytes. Raises `RecordingError` if one cannot be
    read."""
    plugins, limits = plugins or registries(), limits or LimitsConfig()
    try:
        data = _data([(within_bounds(captured, limits), content) for captured, content in captures], plugins)
    except UNREADABLE as error:
        raise RecordingError(f"the capture cannot be read: {error}") from error
    return page_with(data)


def _data(captures: Sequence[tuple[CapturedExchange, bytes]], plugins: Registries) -> dict[str, Any]:
    holder = FileHolder(captures)
    exchanges = {
        row["id"]: {
            "view": view(captured, plugins),
            "formats": read_in_all_formats(captured, plugins),
            "capture": content.decode(errors="replace"),
        }
        for row, (captured, content) in zip(holder.rows, captures, strict=True)
    }
    return {"setup": file_setup(holder.rows, plugins), "rows": holder.rows, "exchanges": exchanges}


def page_with(data: Mapping[str, Any]) -> bytes:
    """Returns the page as HTML with this data in it."""
    files = {name: content.decode() for name, content in assets().items()}
    script, style = joined(files), files["style.css"]
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    parts = {
        _CHARSET: f'{_CHARSET}\n    <meta http-equiv="Content-Security-Policy" content="{policy}" />',
        _STYLE: f"<style>{style}</style>",
        _SCRIPT: f'<script type="application/json" id="shared">\0</script><script type="module">{script}</script>',
    }
    page = files["index.html"]
    for old, new in parts.items():
        page = page.replace(old, new)
    before, after = page.split("\0")
    return before.encode() + escaped(dump_in_pieces(data)) + after.encode()


def escaped(json: bytes) -> bytes:
    """Returns JSON that contains no `<` and no line separators, so that it can stand in any element of a page."""
    separators = ((b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))
    json = json.replace(b"<", rb"\u003c")
    for char, escape in separators:
        json = json.replace(char, escape)
    return json


def joined(files: Mapping[str, str]) -> str:
    """Returns the modules of the page as one script: each is a function that returns its exports, after those that it
    imports."""
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        code = files[name]
        for found in _IMPORT.finditer(code):
            add(found[2])
        exported = ", ".join(found[2] for found in _EXPORT.finditer(code))
        code = _IMPORT.sub(lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = {_variable(found[2])};\n", code)
        code = _EXPORT.sub(lambda found: f"{found[1]}{found[2]}", code)
        parts[name] = f"const {_variable(name)} = (() => {{\n{code}return {{ {exported} }};\n}})();\n"

    add(START)
    return "".join(parts.values())


def _variable(module: str) -> str:
    return f"module_{module.removesuffix('.js')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
