"""No search that is written by hand takes more than linear time (R33.3): counted in lines, not in seconds."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pytest

from tests.cases import every
from tests.corpus.damaged import offered
from tests.linear.work import CountedBytes, CountedText, work
from tests.parse.policies import WordPolicy
from tests.parse.reading import scanned
from toolwire import fastparse
from toolwire.call_policy.json_calls import settle_arguments
from toolwire.extras.capture.files import Entry
from toolwire.extras.inspector.output import frames
from toolwire.observability.redaction import Redaction
from toolwire.pipeline.paths.relay import Relay
from toolwire.pipeline.scanning.preopened import closes_thoughts
from toolwire.pipeline.transforms.stopping import _Matcher
from toolwire.registry import registries, usual_server
from toolwire.repair.literals import braces_value, python_calls
from toolwire.repair.relaxed_json import compact_json, repair_json
from toolwire.scan import _pyguard, _pyparse, _pysse
from toolwire.scan._grammar import Grammar
from toolwire.upstream.servers.leak_detection import LeakDetector
from toolwire.upstream.servers.private_data import PrivateData
from toolwire.upstream.servers.upstream_errors import clean_text

UNITS: Final = (
    *("a", " ", "\n", "\r", "\t", "\\", '"', "'", "`", "<", ">", "{", "[", "(", "}", "]", ",", ":", ".", "=", "%", "*"),
    *("\\\\u", "\\u0041", "\\/", "%41", '\\"', '\\\\"', "eyJ", "sk-", "Bearer ", "Basic a", "http://", "[::", "a.b."),
    *(":\n\n", ":\r\r", "data: {}\r\r", "data: x\n\n", 'data: {"error"\n\n', "event: error\n"),
    *("<think>", "</think>", "</think>\n", "```\n", "~~~\n", "- ", "1. ", "<|", "[TOOL_"),
    *('{"a":', '[{"', "f(", "f(a='", "'a' ", "''' ", '"\\', "[f(x=1), ", '{"name": "f", "arguments": {'),
    *("a-.", "12.", "{'a': ", "[1,", "//", "secret-w", "stop", "sto", "Traceback ", '  File "'),
)
"""What texts repeat."""
FIRST: Final = 200
STEEP: Final = 2.5
SLACK: Final = 150
SECRET: Final = PrivateData(secrets=("secret-word-of-the-gateway",), hosts=("server.example",))


def _leaks(text: str) -> object:
    return LeakDetector(SECRET).frames(CountedBytes(text.encode()))


def _relay(text: str) -> object:
    relay = Relay(usual_server(None), 1 << 30, SECRET)
    data = text.encode()
    return [relay.feed(data[at : at + 16]) for at in range(0, len(data), 16)]


def _stopping(text: str) -> object:
    matcher = _Matcher("stopstopsto\n\n")
    return [matcher.feed(CountedText(text[at : at + 7])) for at in range(0, len(text), 7)]


def _frames(text: str) -> object:
    data = text.encode()
    return list(frames([Entry("received", 0.0, 1, data[at : at + 5]) for at in range(0, len(data), 5)]))


def _refused(function: Callable[[str], object]) -> Callable[[str], object]:
    def call(text: str) -> object:
        with contextlib.suppress(ValueError):
            return function(text)
        return None

    return call


SEARCHES: Final[Mapping[str, Callable[[str], object]]] = MappingProxyType(
    {
        "redaction": lambda text: Redaction(["a-known-word"], ["[0-9]{4}x"]).data(
            CountedBytes(text.encode()), b"secret-word"
        ),
        "secret in bytes": lambda text: SECRET.occurs_in(CountedBytes(text.encode())),
        "secrets in frames": _leaks,
        "relayed frames": _relay,
        "errors of servers": lambda text: clean_text(text, private=SECRET),
        "stop sequences": _stopping,
        "closed thoughts": lambda text: closes_thoughts(CountedText(text), [("<think>", "</think>")]),
        "repair": lambda text: repair_json(CountedText("[" + text)),
        "repair of strings": lambda text: repair_json(CountedText('{"a": "' + text)),
        "compact": lambda text: compact_json(CountedText(text)),
        "arguments": _refused(lambda text: settle_arguments(CountedText(text), repair=True)),
        "python": _refused(lambda text: python_calls(CountedText("[f(" + text))),
        "braces": _refused(lambda text: braces_value(CountedText("{a:" + text), '<|"|>')),
        "captures": lambda text: Redaction().value({"a": [text]}),
        "frames in captures": _frames,
    }
)


def steep(search: Callable[[str], object], unit: str, first: int = FIRST) -> str | None:
    """How the work for a repeated unit grows, if it grows faster than the text."""
    times = max(4, first // len(unit))
    before = work(lambda: search(unit * times))
    for _ in range(5):
        times *= 2
        lines = work(lambda: search(unit * times))  # noqa: B023  # called at once
        if lines <= STEEP * before + SLACK:
            return None
        before = lines
    return f"{unit!r} * {times}: {before}"


@pytest.fixture
def _twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twins in Python in the place of the compiled parts, whose work cannot be counted."""
    for name, twin in (("SecretGuard", _pyguard.SecretGuard), ("SseFramer", _pysse.SseFramer)):
        for module in [
            module for key, module in sys.modules.items() if key.startswith("toolwire.") and key != "toolwire.fastparse"
        ]:
            if getattr(module, name, None) is getattr(fastparse, name):
                monkeypatch.setattr(module, name, twin)


@pytest.mark.usefixtures("_twins")
@pytest.mark.parametrize("name", list(SEARCHES))
def test_no_search_is_more_than_linear(name: str) -> None:
    logging.disable(logging.ERROR)
    try:
        found = [said for unit in UNITS if (said := steep(SEARCHES[name], unit)) is not None]
    finally:
        logging.disable(logging.NOTSET)
    assert not found


@every("call", ['{"name":"shell"},', '{"name":"shell","arguments":{"cmd":"",}},', '{"name":"shel"},'])
@every(("before", "behind"), [("", ""), ("<tool_call>", "</tool_call>"), ("```json\n", "\n```")])
def test_no_block_of_many_calls_takes_more_than_linear_time(before: str, behind: str, call: str) -> None:
    def judge(text: str) -> object:
        return scanned(_pyparse, "hermes", offered(), [f"{before}[{text}{{}}]{behind}"], recognise="any")

    fewer, more = (work(lambda: judge(call * number)) for number in (100, 200))  # noqa: B023  # called at once
    assert more <= STEEP * fewer + SLACK


@every("line", ["tool_call shell_x\n", '{"name":"shell_x"}\n', "<|start|>shell_x\n"])
def test_no_line_costs_more_beside_many_tools(line: str) -> None:
    def cost(number: int) -> int:
        tools = [
            {"type": "function", "function": {"name": "shell" + "_" * (at % 50) + str(at)}} for at in range(number)
        ]
        _, few, more = (
            work(lambda: scanned(_pyparse, "hermes", tools, [line * times], recognise="any"))  # noqa: B023
            for times in (1, 20, 60)
        )
        return more - few

    assert cost(400) <= 1.5 * cost(100) + SLACK


def grammars() -> dict[Grammar, str]:
    """Each grammar once, and a format that has it."""
    formats = registries().formats
    return {formats.get(name).grammar: name for name in formats.names() if name != "auto"}


@every(("grammar", "form"), grammars().items())
def test_no_format_is_scanned_in_more_than_linear_time(grammar: Grammar, form: str) -> None:
    markers = list(grammar.markers)
    bare = any(not syntax.opener for syntax in grammar.syntaxes)  # may begin with any character
    units = [
        *(unit for unit in UNITS[:22] if bare or form == "sentinel" or unit in "".join(markers)),
        *markers,
        *(f"{marker} " for marker in markers),
        *(marker[:-1] for marker in markers if len(marker) > 1),
    ]

    def scan(text: str) -> object:
        scanner = _pyparse.CallScanner(grammar, WordPolicy(), reasoning=(("<think>", "</think>"),))
        return [*(scanner.feed(text[at : at + 11]) for at in range(0, len(text), 11)), scanner.finish()]

    assert not [said for unit in dict.fromkeys(units) if (said := steep(scan, unit, 60)) is not None]
