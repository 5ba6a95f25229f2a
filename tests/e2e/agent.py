"""A coding agent and its model, scripted: 30 steps over a small repository.

`STEPS` is what the model says, one turn after the other, as (tool, arguments). `Workspace` runs the tools for real on a
folder, so the test can compare files at the end. The plan was written for these tests; it exercises what agents' calls
contain: code with quotes and tags, patches, unicode, empty files, Windows line ends, text that looks like a call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.conftest import function

MAIN = 'def main() -> None:\n    print("<tool_call> is only text here", \'</tool_call>\')\n\n\nif __name__ == "__main__":\n    main()\n'
README = '# Ünïcode 日本語 🚀\n\nA "quoted" line, a back\\slash, a tab\t.\n'
CONFIG = "[tool]\r\nname = 'x'\r\n"
TESTS = (
    'import main\n\n\ndef test_main(capsys):\n    main.main()\n    assert "<tool_call>" in capsys.readouterr().out\n'
)
HTML = "<div class=\"a\">{{ value }}</div>\n<script>if (a < b && c > d) { f('</script>'); }</script>\n"


def _write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("list_files", {"path": "."}),
    _write("src/main.py", MAIN),
    ("read_file", {"path": "src/main.py"}),
    _write("README.md", README),
    ("read_file", {"path": "README.md"}),
    ("search", {"pattern": "日本語"}),
    _write("setup.cfg", CONFIG),
    ("read_file", {"path": "setup.cfg"}),
    _write("tests/test_main.py", TESTS),
    ("list_files", {"path": "tests"}),
    ("search", {"pattern": "<tool_call>"}),
    ("apply_patch", {"path": "src/main.py", "old": "is only text here", "new": "stays text"}),
    ("read_file", {"path": "src/main.py"}),
    ("search", {"pattern": "stays text"}),
    _write("web/index.html", HTML),
    ("read_file", {"path": "web/index.html"}),
    ("apply_patch", {"path": "web/index.html", "old": "{{ value }}", "new": '{"json": [1, 2, {"deep": "\\""}]}'}),
    ("search", {"pattern": "deep"}),
    _write("src/__init__.py", ""),
    ("list_files", {"path": "src"}),
    ("read_file", {"path": "src/__init__.py"}),
    ("read_file", {"path": "missing.txt"}),
    _write("notes.txt", '<tool_call>{"name":"write_file","arguments":"{}"}</tool_call>\n'),
    ("read_file", {"path": "notes.txt"}),
    ("apply_patch", {"path": "notes.txt", "old": "write_file", "new": "nothing"}),
    ("search", {"pattern": "nothing"}),
    _write("data.json", json.dumps({"n": 10**20, "f": 1e-07, "s": "\u2028"}, ensure_ascii=False)),
    ("read_file", {"path": "data.json"}),
    ("apply_patch", {"path": "README.md", "old": "# Ünïcode", "new": "# Done:"}),
    ("list_files", {"path": "."}),
]

FINAL = {
    "src/main.py": MAIN.replace("is only text here", "stays text"),
    "README.md": README.replace("# Ünïcode", "# Done:"),
    "setup.cfg": CONFIG,
    "tests/test_main.py": TESTS,
    "web/index.html": HTML.replace("{{ value }}", '{"json": [1, 2, {"deep": "\\""}]}'),
    "src/__init__.py": "",
    "notes.txt": '<tool_call>{"name":"nothing","arguments":"{}"}</tool_call>\n',
    "data.json": json.dumps({"n": 10**20, "f": 1e-07, "s": "\u2028"}, ensure_ascii=False),
}


TOOLS = [
    function("list_files", path="string"),
    function("read_file", path="string"),
    function("write_file", path="string", content="string"),
    function("search", pattern="string"),
    function("apply_patch", path="string", old="string", new="string"),
]


def block(name: str, arguments: dict[str, Any]) -> str:
    """A call as the sentinel format teaches it."""
    inner = json.dumps(arguments, ensure_ascii=False)
    return f"<tool_call>{json.dumps({'name': name, 'arguments': inner}, ensure_ascii=False)}</tool_call>"


@dataclass
class Workspace:
    """The tools of the agent, on a real folder. Files are kept byte for byte."""

    root: Path

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        try:
            return str(getattr(self, name)(**arguments))
        except OSError as error:
            return f"Error: {type(error).__name__}"

    def list_files(self, path: str) -> str:
        return "\n".join(sorted(p.name for p in (self.root / path).iterdir()))

    def read_file(self, path: str) -> str:
        return (self.root / path).read_bytes().decode()

    def write_file(self, path: str, content: str) -> str:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode())
        return "ok"

    def search(self, pattern: str) -> str:
        hits = [p for p in sorted(self.root.rglob("*")) if p.is_file() and pattern in p.read_bytes().decode()]
        return "\n".join(p.relative_to(self.root).as_posix() for p in hits)

    def apply_patch(self, path: str, old: str, new: str) -> str:
        text = self.read_file(path)
        if text.count(old) != 1:
            return "Error: the text to replace must occur once"
        return self.write_file(path, text.replace(old, new))

    def files(self) -> dict[str, str]:
        return {
            p.relative_to(self.root).as_posix(): p.read_bytes().decode() for p in self.root.rglob("*") if p.is_file()
        }
