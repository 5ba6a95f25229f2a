"""Handlers and modules that misbehave harm only their own call. What ends a process is in `test_processes.py`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.servertools.conftest import Start, call, module, tool
from tests.waiting import GUARD_S

FINE = module(tool("fine"), handler="def handle_tool_call(name, values):\n    return 'fine'\n")
AFINE = module(tool("afine"), handler="async def handle_tool_call(name, values):\n    return 'fine'\n")


RAISES = {
    "recursion": "def handle_tool_call(name, values):\n    return handle_tool_call(name, values)\n",
    "an exception without a text": (
        "class Mute(Exception):\n    def __str__(self): raise RuntimeError\n"
        "def handle_tool_call(name, values):\n    raise Mute\n"
    ),
    "the end of a generator": "def handle_tool_call(name, values):\n    raise GeneratorExit\n",
    "a cancellation": "import asyncio\ndef handle_tool_call(name, values):\n    raise asyncio.CancelledError\n",
    "the end of everything": "import sys\ndef handle_tool_call(name, values):\n    sys.exit('gone')\n",
    "an interrupt": "def handle_tool_call(name, values):\n    raise KeyboardInterrupt\n",
    "no memory": "def handle_tool_call(name, values):\n    raise MemoryError\n",
    "a forgotten coroutine": "async def f(): pass\ndef handle_tool_call(name, values):\n    return f()\n",
    "the wrong arguments": "def handle_tool_call():\n    return ''\n",
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_one_that_raises_is_an_error_for_the_model(start: Start, asynchronous: bool) -> None:
    texts = list(RAISES.values())
    if asynchronous:
        texts = [
            t.replace("def handle", "async def handle").replace("return handle", "return await handle") for t in texts
        ]
    files = {f"m{n}.py": module(tool(f"bad{n}"), handler=text) for n, text in enumerate(texts)}
    tools = await start({**files, "x.py": FINE, "y.py": AFINE})
    for n in range(len(texts)):
        assert (await call(tools, f"bad{n}")).startswith("Error: ")
        assert await call(tools, "fine") == await call(tools, "afine") == "fine"


async def test_a_task_that_a_coroutine_leaves_behind_may_raise_anything(start: Start) -> None:
    text = (
        "import asyncio\nasync def bad(): raise SystemExit\n"
        "async def handle_tool_call(name, values):\n    asyncio.ensure_future(bad())\n    await asyncio.sleep(0.01)\n    return 'done'\n"
    )
    tools = await start({"a.py": module(tool("bad"), handler=text), "c.py": AFINE})
    assert await call(tools, "bad") == "done"
    assert await call(tools, "afine") == "fine"


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_what_is_printed_goes_to_the_log(
    start: Start, asynchronous: bool, capfd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kind = "async def" if asynchronous else "def"
    text = (
        f"import sys\n{kind} handle_tool_call(name, values):\n"
        "    sys.stderr.writelines(['y', 'z\\n']); sys.stdout.buffer.write(b'w\\xff\\n'); sys.stdout.flush()\n"
        "    print('\\x1b[2J\\rred\\u202e', chr(0xdc80), end='')\n    return 'done'\n"
    )
    with caplog.at_level(logging.INFO, "toolwire.tools"):
        tools = await start({"a.py": "print('loaded')\n" + module(tool("bad"), handler=text)})
        assert await call(tools, "bad") == "done"
        assert await call(tools, "bad") == "done"  # what has no end of line is there by then
    print("mine", flush=True)
    assert capfd.readouterr() == ("mine\n", "")
    said = [record.getMessage() for record in caplog.records if "fields" in record.__dict__]
    of_one = ["bad: yz", "bad: w\\xff", "bad: \\x1b[2J\\rred\\u202e \\udc80"]
    assert said[: 1 + len(of_one)] == ["a.py: loaded", *of_one]
    assert {"tool": "bad", "module": "a.py"} in [record.__dict__.get("fields") for record in caplog.records]


MODULES = {
    "raises": ("raise ValueError('not today')", "ValueError", "not today"),
    "exits": ("import sys; sys.exit(3)", "SystemExit", "3"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
    "no Python": ("def", "SyntaxError", "line 1"),
    "no text": ("\0", "SyntaxError", "null bytes"),
    "imports nothing": ("import no_such_module", "ModuleNotFoundError", "no_such_module"),
    "recurses": ("def f(): f()\nf()", "RecursionError", ""),
    "cannot be made": (
        "class PromptGenerator:\n    def __init__(self): raise OSError('no disk')",
        "OSError",
        "no disk",
    ),
    "cannot tell its tools": ("def get_tools(): raise OSError('no disk')", "OSError", "no disk"),
    "breaks the rules": ("TOOLS = 7", "TypeError", "list or None"),
    "no handler": (f"TOOLS = {[tool()]!r}", "MissingMethod", "handle_tool_call"),
    "handler cannot be called": (f"TOOLS = {[tool()]!r}\nhandle_tool_call = 7", "MissingMethod", "handle_tool_call"),
}


async def test_modules_that_fail_stop_nobody(start: Start) -> None:
    more = {
        "ends": ("import os; os._exit(4)", "ProcessEnded", "The module's code ended its process (exit status 4)."),
        "is killed": ("import os; os.kill(os.getpid(), 9)", "ProcessEnded", "SIGKILL"),
        "a tuple": (f"TOOLS = ({tool()!r},)\ndef handle_tool_call(n, v): return n", "TypeError", "not tuple."),
        "an object": ("class Other: pass\nTOOLS = Other()", "TypeError", "not Other."),
        "a circle": (
            "schema = {'type': 'object', 'properties': {}}\nschema['properties']['a'] = schema\n"
            f"TOOLS = [{tool('a')!r}]\nTOOLS[0]['function']['parameters'] = schema\ndef handle_tool_call(n, v): return n",
            "ValidationError",
            "without end",
        ),
        "too much": ("TOOLS = list(range(10**6))", "NotDeclarable", "more than"),
    }
    cases = {**MODULES, **more}
    files = {f"m{n:02}.py": text for n, (text, _, _) in enumerate(cases.values())}
    tools = await start({**files, "z.py": FINE}, load_timeout_s=GUARD_S)
    for shown, which in zip(tools.shown()["modules"], cases, strict=False):
        _, kind, said = cases[which]
        assert (shown["state"], shown["error"]["kind"]) == ("FAILED_VALIDATION", kind), which
        assert said in shown["error"]["message"]
    assert await call(tools, "fine") == "fine"


async def test_a_module_that_loops_is_given_up(start: Start) -> None:
    tools = await start({"a.py": "while True: pass"}, load_timeout_s=0.5)
    shown = tools.shown()["modules"][0]
    assert (shown["state"], shown["error"]["kind"]) == ("FAILED_VALIDATION", "TimeoutError")
