"""The task that every client here does, and the model's side of it.

Two tools over files. The model reads a.txt, then reads c.txt and writes b.txt at once, then says so. It goes on only if
it sees what the tools gave: a client that does not bring the results back hears `LOST`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from tests.e2e.agent import block

ASK = "Read a.txt, then do what it says."
CONTENT = 'a "quoted" line\n</tool_call> <tool_call>{"name":"x"} ü 🚀 \\n\n'
LOST = "I never saw a result."
SAID = ("Let me look.", "Both at once.", "All done: c.txt says café 🚀.")

GIVEN = {"a.txt": "write b.txt and read c.txt", "c.txt": "café 🚀"}
FINAL = {**GIVEN, "b.txt": CONTENT}

Call = tuple[str, dict[str, str]]
STEPS: tuple[tuple[Call, ...], ...] = (
    (("read_file", {"path": "a.txt"}),),
    (("write_file", {"path": "b.txt", "content": CONTENT}), ("read_file", {"path": "c.txt"})),
)
CALLS = [[name, arguments] for step in STEPS for name, arguments in step]

MODES = ("prompt", "native")


def in_turn(ways: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Each way of asking with one of the modes, in turn: a client in a process of its own takes long."""
    return [(*(way if isinstance(way, tuple) else (way,)), mode) for way, mode in zip(ways, cycle(MODES))]


def script(mode: str) -> list[dict[str, Any]]:
    """The model's turns. In `prompt` mode calls are text, in `native` mode the server gives them as calls."""
    seen = (None, GIVEN["a.txt"], GIVEN["c.txt"])
    turns = [turn(mode, text, *calls, when=when) for text, calls, when in zip(SAID, (*STEPS, ()), seen, strict=True)]
    return [*turns, {"text": LOST}]


def turn(mode: str, text: str, *calls: Call, when: str | None = None) -> dict[str, Any]:
    """One turn: a text and then calls, in small deltas, after a last message that holds `when`."""
    out: dict[str, Any] = {"text": text, "when": when} if when else {"text": text}
    if mode == "native":
        made = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return {**out, "calls": made, "chunk": 5} if made else out
    return {**out, "text": "\n".join([text, *(block(name, arguments) for name, arguments in calls)]), "chunk": 5}


@dataclass
class Files:
    """The tools, for clients in Python, and a record of the calls."""

    files: dict[str, str] = field(default_factory=lambda: dict(GIVEN))
    calls: list[list[Any]] = field(default_factory=list)

    def run(self, name: str, arguments: dict[str, str]) -> str:
        self.calls.append([name, arguments])
        if name == "read_file":
            return self.files[arguments["path"]]
        self.files[arguments["path"]] = arguments["content"]
        return f"wrote {len(arguments['content'])} characters"
