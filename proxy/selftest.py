"""Whether an installation works: `python -m toolwire.selftest`. What wheels are tested with on every system (R27.2).

The compiled scanner must be there, and a call that was cut anywhere must come out of it whole.
"""

from __future__ import annotations

import sys

TEXT = 'Let me look. <tool_call>{"name":"get_weather","arguments":"{\\"city\\":\\"Oslo\\"}"}</tool_call> Done.'
WANTED = [("get_weather", '{"city":"Oslo"}')]


def check() -> str:
    """Which scanner runs, if all is well. Raises `RuntimeError`, or `ImportError`, with what is wrong."""
    import toolwire
    import toolwire.middlewares
    from toolwire.fastparse import IMPLEMENTATION

    missing = [name for name in toolwire.__all__ if not hasattr(proxy, name) or not hasattr(toolwire, name)]
    if missing or not middlewares.__file__:
        raise RuntimeError(f"the package is not whole: {', '.join(missing) or 'middlewares'}")
    for size in range(1, len(TEXT) + 1):
        if (found := _calls(size)) != WANTED:
            raise RuntimeError(f"in pieces of {size} characters the calls are {found}, not {WANTED}")
    return IMPLEMENTATION


def _calls(size: int) -> list[tuple[str | None, str]]:
    """The calls in the text, given in pieces of `size` characters."""
    from toolwire import BlockKind, Delta, Open, open_scanner

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
    """The command: 0 if all is well with the compiled scanner, else 1 and the reason."""
    try:
        found = check()
    except (ImportError, RuntimeError) as error:
        print(f"toolwire does not work here: {error}", file=sys.stderr)
        return 1
    print(f"toolwire works here, with the {found} scanner")
    if found != "compiled":
        print("the compiled scanner is not there", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
