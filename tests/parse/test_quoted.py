"""Quoted calls are text and real ones behind quotations are read (R30.3), for every family's taught form; thinking tags
have places (R6.7); JSON that can no longer become a call is shown at once (R30.7)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from types import ModuleType

from tests.cases import every
from tests.corpus.answers import Answer
from tests.corpus.formats import FORMATS
from tests.corpus.quoted import CALLS, MANNERS, written
from tests.options import route_options
from tests.parse.conftest import some
from tests.parse.reading import WHOLE, blocks, in_pieces, scanned
from tests.parse.test_recognition import read
from toolwire.events import BlockKind, Delta, Open
from toolwire.formats.recognised.recognition import Mode
from toolwire.scanner import open_scanner

BEFORE = (
    *("Let me use `list_files first.\n", 'It is 6" wide.\n', 'He said "go".\n', "Use `foo` then:\n\n"),
    *("```python\nprint(1)\n```\n\n", "> quoted line\n\n", "| a | b |\n| - | - |\n| `x` | y |\n\n"),
    *("- item `one`\n- item two\n", "The odd ` tick, and then:\n", "    indented code\n\n"),
    *("don't worry, users' books:\n", "“quoted” text\n", "1. first\n2. second `third\n\n"),
    *("````\n```\nx\n```\n````\n", "It names `<tool_call>` and `[TOOL_CALLS]`.\n"),
)
"""What stands before real calls, each ending its line."""

IN_LINE = ("The `odd tick: ", 'A 6" disc: ', "It's the users' choice: ", 'say "go" ')
CALL = '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>'


def taught() -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Each family's format, a call in it, the tools on offer, and the family's title."""
    calls = cycle(CALLS)
    for format in FORMATS:
        call = next(calls)
        yield format.name, written(format, [call]), (call.name, "list_files"), format.title


def answer(text: str, tools: tuple[str, ...]) -> Answer:
    return Answer("", text, tools, "")


def shown(twin: ModuleType, text: str, size: int = WHOLE) -> list[tuple[str, str]]:
    """The blocks of an answer: kind and text."""
    found = blocks(scanned(twin, "hermes", ["f"], in_pieces(text, size)))
    return [(block.kind, block.text) for block in found if block.text]


def test_quotations_of_the_taught_form_are_text(twin: ModuleType) -> None:
    sizes = cycle((3, WHOLE, WHOLE, 3, WHOLE))
    modes: Iterator[Mode] = cycle(("any", "any", "taught", "any", "taught", "any", "any"))
    for (format, manner), call, size, mode in some(twin, zip(product(FORMATS, MANNERS), cycle(CALLS), sizes, modes)):
        text = manner(format, written(format, [call]), call)
        if text is not None:
            got = read(twin, format.name, answer(text, (call.name, "list_files")), size, mode)
            assert got == ([], text), (format.title, manner.__name__, size)


def test_calls_behind_quotations_are_read(twin: ModuleType) -> None:
    sizes = cycle((WHOLE, 2))
    for name, text, tools, title in some(twin, taught()):
        plain = read(twin, name, answer("Text\n" + text, tools), WHOLE)
        if not plain[0]:
            continue  # the form counts only as a whole answer
        in_line = read(twin, name, answer("word " + text, tools), 2)[0]
        places = (*BEFORE, *IN_LINE) if in_line else BEFORE
        for before, size in zip(places, sizes, strict=False):
            calls, visible = read(twin, name, answer(before + text, tools), size)
            assert (calls, visible.strip()) == (plain[0], before.strip()), (title, before)


@every(
    "text",
    [
        f"`{CALL}`",
        f"The form is `{CALL}`.",
        f"The form is ``x {CALL} y``, as said.",
        f'"{CALL}" is a call.',
        f'text = "an example: {CALL} and so on"',
        f"print('{CALL}')",
        f"“{CALL}” is a call.",
        f"> {CALL}",
        f"> {CALL}\n\nThat is all.",
        f"So:\n  >{CALL}\n> {CALL}\nThat is all.",
        f"- > {CALL}",
        f"So:\n1. > {CALL}\n  * - > a\n12)  > b {CALL}",
        f"> He wrote {CALL} there.",
        f"> ```\n> {CALL}\n> ```",
        f"```\n> {CALL}\n```",
        f"So:\n```md\n  > {CALL}\n  > {CALL}\n```",
        f"```\n{CALL}\n```\nThat is all.",
        f"```\n{CALL}\n{CALL}\n```\nThat is all.",
        f"```\n# a call\n{CALL}\n```",
        f"````md\n```\n{CALL}\n```\n````",
        f"- like this:\n  ```\n  {CALL}\n  ```\n- and more",
        f"So:\n- ```xml\n  {CALL}\n  ```\n- and more",
        f"1. ```\n   {CALL}\n   ```\n2. - ```\n     {CALL}\n     ```\n\nThat is all.",
        f"~~~\n{CALL}\n~~~",
        f"~~~~ as I `said`\n```\n{CALL}\n```\n~~~\n{CALL}\n~~~~\nThat is all.",
        f"```\n- ```\n~~~\n{CALL}\n```\nThat is all.",
        f"```as I said\n{CALL}\n```",
        f"```\n{CALL}\n```\n```as I said\n{CALL}\n```",
        "The opener is `<tool_call>`, the closer `</tool_call>`.",
        "BEGIN <think> AFTER END",
        "```\n<think>\nx\n</think>\n```\nend",
        '{"text": "<think>no</think>"}',
        "- <think>x</think>",
        "`<think>`",
    ],
)
@every("size", [WHOLE, 1, 7])
def test_mentions_are_text(twin: ModuleType, text: str, size: int) -> None:
    assert shown(twin, text, size) == [("text", text)]


@every(
    ("text", "visible"),
    [
        (f"```\n{CALL}\n```", ""),
        (f"See:\n```xml\n{CALL}\n```\n", "See:"),
        (f"See:\n```xml\n{CALL}\n", "See:"),
        (f"See:\n\n- ```xml\n  {CALL}\n  ```", "See:\n\n-"),
        (f"~~~\nx\n~~~\n{CALL}", "~~~\nx\n~~~"),
        (f"about ~~~ five\n{CALL}", "about ~~~ five"),
        (f"    a + b\n    ~~~~^~~\n{CALL}\n    ~~~~^~~", "    a + b\n    ~~~~^~~\n~~~~^~~"),
        (f"- ~~~x\n  y\n  ~~~\n{CALL}", "- ~~~x\n  y\n  ~~~"),
        (f"```\n{CALL}\n```\n```\n{CALL}\n```", ""),
        (f"The `odd tick {CALL}", "The `odd tick"),
        (f"The `odd tick {CALL}\nand `more`", "The `odd tick\nand `more`"),
        (f"```py\nx = 1\n{CALL}", "```py\nx = 1"),
        (f"````xml\n{CALL}\n````", ""),
        (f"``` tool_call \n{CALL}\n``` \n````c:/d\n{CALL}\n````", ""),
        (f"```json as I said\n{CALL}", "```json as I said"),
        (f'````{{"a": 1}}\n{CALL}', '````{"a": 1}'),
        (f"[ {CALL}", "["),
        (f"> quoted\n{CALL}", "> quoted"),
        (f"1 > 0: {CALL}", "1 > 0:"),
        (f"-> {CALL}", "->"),
        (f"- -> {CALL}\n1.> {CALL}\n** > {CALL}\n- a > {CALL}", "- ->\n1.>\n** >\n- a >"),
        (f"> {{}}\n\n \t{CALL}", "> {}"),
        (f"[]\n{CALL}", "[]"),
        (f"Use `<tool_call>`: {CALL}", "Use `<tool_call>`:"),
    ],
)
@every("size", [WHOLE, 1, 7])
def test_calls_that_are_not_quoted(twin: ModuleType, text: str, visible: str, size: int) -> None:
    found = shown(twin, text, size)
    assert [body for kind, body in found if kind == "tool_call"] == ['{"a":1}'] * text.count(CALL)
    assert "".join(body for kind, body in found if kind == "text") == visible


@every(
    ("text", "thought", "rest"),
    [
        ("<think>a `</think>` b</think>c", "a `</think>` b", "c"),
        ("<think>a\n```\n</think>\n```\nb</think>c", "a\n```\n</think>\n```\nb", "c"),
        ("<think>an odd ` tick</think>c", "an odd ` tick", "c"),
        ("<think>an odd ` tick</think>\nc `d`", "an odd ` tick", "c `d`"),
        (" \n<think>a</think>c", "a", "c"),
        ("<think>a", "a", ""),
    ],
)
@every("size", [WHOLE, 1, 7])
def test_thinking_ends_outside_of_code(twin: ModuleType, text: str, thought: str, rest: str, size: int) -> None:
    found = shown(twin, text, size)
    assert [body for kind, body in found if kind == "reasoning"] == [thought]
    assert "".join(body for kind, body in found if kind == "text") == rest


def test_thinking_begins_behind_a_call_and_behind_thinking(twin: ModuleType) -> None:
    text = f"<think>a</think> <think>b</think>{CALL} <think>c</think>d"
    assert [kind for kind, _ in shown(twin, text)] == ["reasoning", "reasoning", "tool_call", "reasoning", "text"]


@every("format", ["bare_json", "hermes"])
@every(
    ("begun", "held"),
    [
        ('{"name": "Ada Lovelace"', False),
        ('[{"name": "Ada Lovelace"', False),
        ('{"id": 7, "type": "person", "name": "Ada Lovelace"', False),
        ('```json\n{"name": "Ada Lovelace"', False),
        ('{"title":', False),
        ('{"name": "f"', True),
        ('{"name": "find"', True),
        ('{"name": "finds"', True),  # a near miss is asked again (R23.4)
        ('{"arguments": {"name": "Ada Lovelace"}', True),
        ('{"name": "Ada', True),
        ('{"name": "\\u0066"', True),
        (f'{{"type": "{"x" * 256}", "name": "f"', True),  # too long to look for the name
        ('{"thought": "I know it.", "answer"', False),
        (f'```json\n{{"thought": "{"so " * 999}\\"so\\".",\n "mood"', False),
        (f'{{"thought": "{"so " * 999}\\"so\\".", "tool_calls"', True),
        ('{"thought": "I look.", "thought": "Yes.", "action": "f"', True),
        ('{"thought": "I look.", "name": "Ada Lovelace"', False),
        ('{"thought": "I look', True),
    ],
)
def test_json_is_shown_once_it_can_be_no_call(twin: ModuleType, format: str, begun: str, held: bool) -> None:
    scanner = open_scanner(format, ["f", "find"], options=route_options(), scanner=twin.CallScanner)
    events = [event for char in begun for event in scanner.feed(char)]
    text = "".join(event.text for event in events if isinstance(event, Delta))
    assert (text == "") is held
    assert held or text == begun
    assert all(event.kind is BlockKind.TEXT for event in events if isinstance(event, Open))
