"""No text of a server, a model or a file is obeyed by a terminal."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Final

import click
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import toolwire
from tests.cases import every, examples
from toolwire.cli import main
from toolwire.observability.log_forms import JsonFormatter, TextFormatter
from toolwire.support.legible import visible, visible_json, visible_lines

HOSTILE: Final = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202egnp.exe\u2066\u200b\u2028\ud800\U000e0041\r\x08"
TEXTS: Final = st.text(st.characters(categories=None) | st.sampled_from(HOSTILE))
PRINTERS: Final = {
    "toolwire.cli.common": {"say", "say_json"},
    "toolwire.extras.demo.walkthrough": {"_say", "_tick", "__exit__"},
    "toolwire.extras.demo.engine": {"serve", "main", "run"},
    "toolwire.server.serving": {"_print"},
}
"""The functions that print, which make what they print visible, or print nothing of others."""


def is_harmless(text: str) -> bool:
    """Whether every character of these lines is one that is shown."""
    return text.replace("\n", "").replace("\t", "").isprintable()


@given(TEXTS)
def test_a_line_holds_nothing_that_is_obeyed(text: str) -> None:
    assert visible(text).isprintable()


@given(TEXTS)
def test_lines_keep_their_ends_and_nothing_else(text: str) -> None:
    assert visible_lines(text).split("\n") == [visible(line, keep="\t") for line in text.split("\n")]


@given(st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" ")))
def test_what_is_shown_stays(text: str) -> None:
    assert visible(text) == text


@examples(0.4)
@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_json_says_the_same(value: object) -> None:
    shown = visible_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert is_harmless(shown)
    # Halves that stand side by side are read as one character.
    assert json.loads(shown) == json.loads(json.dumps(value))


@every("form", [TextFormatter(), JsonFormatter()])
def test_log_lines_hold_nothing_that_is_obeyed(form: logging.Formatter) -> None:
    record = logging.LogRecord("toolwire", logging.INFO, "", 0, "says %s", (HOSTILE,), None)
    record.fields = {"model": HOSTILE[:20]}
    assert is_harmless(form.format(record))


CONFIGURATION = b'backends: {"a\\e]0;x\\a": {url: "http://127.0.0.1:9\\e[2J"}}\nnosuch: "\\x9b"\n"k\\u202e": 1\n'
ANSWER = HOSTILE[:-5].encode() + b'[TOOL_CALL]{"name": "a\x1b]0;x\x07", "arguments": {"x\x9b": "\x1b[2J"}}'


@every(
    ("argv", "content"),
    [
        (["replay", f"nosuch{HOSTILE[:20]}"], b""),
        (["check", f"--nosuch{HOSTILE[:20]}"], b""),
        ([f"nosuch{HOSTILE[:20]}"], b""),
        (["check", f"nosuch{HOSTILE[:20]}.yaml"], b""),
        (["bench", "parse", "--format", f"nosuch{HOSTILE[:20]}"], b""),
        (["replay", "--chunks", HOSTILE[:20], "FILE"], b""),
        (["check", "FILE"], CONFIGURATION),
        (["replay", "FILE"], ANSWER),
        (["replay", "--json", "FILE"], ANSWER),
    ],
)
def test_neither_the_command_line_nor_a_file_is_shown_raw(tmp_path: Path, argv: list[str], content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    got = CliRunner().invoke(main, [str(tmp_path / "file") if word == "FILE" else word for word in argv])
    assert (got.exit_code == 0) == (content == ANSWER)
    assert is_harmless(got.output), got.output
    assert "--json" not in argv or all(json.loads(line) for line in got.output.splitlines())


WAYS: Final = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}


def test_there_is_one_way_to_the_terminal() -> None:
    """`print`, `click.echo` and writing to a standard stream stand in a few functions, all of which are known."""
    found: dict[str, set[str]] = {}
    root = Path(toolwire.__file__).parent
    for path in root.rglob("*.py"):
        if "servertools/worker" in path.as_posix() or path.name == "selftest.py":
            continue  # other processes, whose output the gateway reads
        text = path.read_text("utf-8")
        if not any(word in text for word in ("print(", "echo(", ".write(")):
            continue
        module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(node, ast.Call) and ast.unparse(node.func) in WAYS for node in ast.walk(function)
            ):
                found.setdefault(module, set()).add(function.name)
    assert found.keys() == PRINTERS.keys()
    assert {module: names - PRINTERS[module] for module, names in found.items() if names - PRINTERS[module]} == {}
    assert click.echo is not None
