"""First words of docstrings: a noun or a verb tells readers of a list or a tooltip what they are reading about."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = ROOT / "proxy" / "middlewares"
"""A link to `middlewares`, whose files are read there."""

REFUSED = re.compile(r"(What|Whoever|Nobody|Who|So|Those|It|That)\b")
QUOTED = re.compile(rf"[\"']\s*{REFUSED.pattern}")
"""A string that begins with a refused word. Only files with one are parsed, which saves seconds."""


def violations(file: str, source: str) -> Iterator[str]:
    """Yields file, line and text of each docstring that begins with a refused word."""
    for node in ast.walk(ast.parse(source)) if QUOTED.search(source) else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and REFUSED.match(text):
                yield f"{file}:{node.body[0].lineno}: {text.splitlines()[0]}"


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    files = [file for name in ("proxy", "middlewares") for file in sorted((ROOT / name).rglob("*.py"))]
    files = [file for file in files if not file.is_relative_to(LINK)]
    assert {"proxy", "middlewares"} == {file.relative_to(ROOT).parts[0] for file in files}
    found = [line for file in files for line in violations(str(file.relative_to(ROOT)), file.read_text("utf-8"))]
    assert not found, "Begin these docstrings with the name of the thing, or with a verb:\n" + "\n".join(found)


def test_every_kind_of_docstring_is_read() -> None:
    source = '''"""What this module is."""

class Kind:
    """Those of one request."""

    async def wait(self):
        def inner():
            """
            It waits.
            """

def item():
    """Items of a list: the word only begins like a refused one."""
    """That is no docstring."""
'''
    assert [line.split(": ")[0] for line in violations("a.py", source)] == ["a.py:1", "a.py:4", "a.py:8"]
