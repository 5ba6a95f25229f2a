"""Tests an installation: `python -m toolwire.selftest`. Wheels are tested with it on every system (R27.2).

The compiled scanner must be present, and must find a call however its text is split.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

TEXT = 'Let me look. <tool_call>{"name":"get_weather","arguments":"{\\"city\\":\\"Oslo\\"}"}</tool_call> Done.'
WANTED = [("get_weather", '{"city":"Oslo"}')]


def check() -> str:
    """Returns the name of the scanner in use. Raises `RuntimeError` or `ImportError` with the reason if the package
    does not work."""
    import toolwire

    from .fastparse import IMPLEMENTATION

    missing = [name for name in toolwire.__all__ if not hasattr(toolwire, name)]
    if missing or find_spec("toolwire.middlewares") is None:
        raise RuntimeError(f"the package is incomplete: {', '.join(missing) or 'middlewares'}")
    for size in range(1, len(TEXT) + 1):
        if (calls := _calls(size)) != WANTED:
            raise RuntimeError(f"in pieces of {size} characters the calls are {calls}, not {WANTED}")
    return IMPLEMENTATION


def _calls(size: int) -> list[tuple[str | None, str]]:
    """Returns the calls found in the text, fed in pieces of `size` characters."""
    from . import BlockKind, Delta, Open, open_scanner

    scanner = open_scanner("sentinel", tools=["get_weather"])
    events = [event for at in range(0, len(TEXT), size) for event in scanner.feed(TEXT[at : at + size])]
    events += scanner.finish()
    arguments: dict[int, str] = {}
    for event in events:
        if isinstance(event, Delta):
            arguments[event.block] = arguments.get(event.block, "") + event.text
    opened = [event for event in events if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
    return [(event.name, arguments.get(event.block, "")) for event in opened]


def main() -> int:
    """Runs the test. Returns 0 if it succeeds with the compiled scanner, else prints the reason and returns 1."""
    try:
        scanner = check()
    except (ImportError, RuntimeError) as error:
        print(f"toolwire does not work here: {error}", file=sys.stderr)
        return 1
    print(f"toolwire works here, with the {scanner} scanner")
    if scanner != "compiled":
        print("the compiled scanner is missing", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
