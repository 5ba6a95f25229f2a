"""The example's tools as the gateway runs them: loaded from their folder, called with what a model may write."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from toolwire import ToolUse
from toolwire.config import ToolsConfig
from toolwire.servertools.folder import ToolFolder

FOLDER = Path(__file__).parents[1]


@pytest.fixture
async def tools() -> AsyncIterator[ToolFolder]:
    async with ToolFolder(ToolsConfig(folder=str(FOLDER), timeout_s=120.0, watch_s=0.0)).running() as running:
        yield running


async def test_the_module_is_a_good_one(tools: ToolFolder) -> None:
    (module,) = tools.shown()["modules"]
    assert (module["state"], module["error"]) == ("LOADED_WITH_TOOLS", None)
    assert [tool["name"] for tool in module["tools"]] == ["calculate", "local_time", "convert"]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("calculate", '{"expression":"(2 + 3) * 4 - -1"}', "21"),
        ("calculate", '{"expression":"7/2"}', "3.5"),
        ("calculate", '{"expression":"0.1+0.2"}', "0.3"),
        ("calculate", '{"expression":"2**64 // 3 % 1000"}', "205"),
        ("calculate", '{"expression":"1/0"}', "Error: division by zero"),
        ("calculate", '{"expression":"9**9**9"}', "Error: the number is too large"),
        ("calculate", '{"expression":"(-8) ** 0.5"}', "Error: the result is not a real number"),
        ("calculate", '{"expression":"2 +"}', "Error: '2 +' is not an arithmetic expression"),
        ("calculate", '{"expression":"(1)(2)"}', "Error: only numbers, + - * / // % ** and parentheses are known"),
        ("local_time", '{"at":"2026-01-31T12:00:00Z"}', "2026-01-31 12:00:00 UTC (UTC+0000), Saturday"),
        ("local_time", '{"at":"2026-01-31T12:00:00+02:00"}', "2026-01-31 10:00:00 UTC (UTC+0000), Saturday"),
        ("local_time", '{"at":"2026-01-31"}', "2026-01-31 00:00:00 UTC (UTC+0000), Saturday"),
        ("local_time", '{"at":"soon"}', "Error: Invalid isoformat string: 'soon'"),
        (
            "local_time",
            '{"zone":"Atlantis"}',
            "Error: there is no time zone 'Atlantis'; names are such as Europe/Paris",
        ),
        (
            "local_time",
            '{"zone":"../../etc/passwd"}',
            "Error: there is no time zone '../../etc/passwd'; names are such as Europe/Paris",
        ),
        ("convert", '{"value":1,"unit":"mi","to":"km"}', "1.609344 km"),
        ("convert", '{"value":-40,"unit":"f","to":"c"}', "-40 c"),
        ("convert", '{"value":0,"unit":"k","to":"c"}', "-273.15 c"),
        ("convert", '{"value":1,"unit":"kg","to":"km"}', "Error: kg is a unit of mass, km of length"),
    ],
)
async def test_what_the_tools_say(tools: ToolFolder, name: str, arguments: str, result: str) -> None:
    use = ToolUse("call_1", name, arguments)
    assert (await tools.tools.run(use, 30.0, lambda state: None)).text == result


@pytest.mark.parametrize("expression", ["__import__('os')", "a + 1", "'a' * 9", "[1]", "True"])
def test_nothing_else_is_worked_out(expression: str) -> None:
    calculate = runpy.run_path(str(FOLDER / "everyday.py"))["calculate"]
    with pytest.raises(ValueError, match="only numbers"):
        calculate(expression)
