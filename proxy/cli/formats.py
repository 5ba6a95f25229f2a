"""The command `toolwire formats`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from .common import exit_on_error, formats, say, say_json

INDENT = "    "


@click.command("formats")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=formats)
@click.option("--model", metavar="NAME", help="Show only this model's format, as `format: auto` finds it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(names: tuple[str, ...], model: str | None, as_json: bool) -> None:
    """List the formats in which models write calls. Shows all, or those with a NAME, with models and an example.

    The exit status is 1 if no format is known for the --model.
    """
    from ..formats.model_families import format_for

    if model is not None:
        family = format_for(model)
        if family is None:
            raise click.ClickException(
                f"no format is known for {model!r}: `format: auto` teaches `hermes` and recognises calls in other forms"
            )
        names = (*names, family)
    with exit_on_error():
        found = list(_described(names))
    if as_json:
        say_json(found)
        return
    for one in found:
        also = f" (also {', '.join(one['aliases'])})" if one["aliases"] else ""
        say(f"{one['name']}{also}: {one['models'] or 'of a plug-in'}")
        for line in one["example"].splitlines():
            say(INDENT + line)


def _described(names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the formats, all or those with these names. Raises `ConfigError` for an unknown name."""
    from ..model import ToolUse
    from ..registry import registries

    registry = registries().formats
    known = {name: registry.get(name) for name in registry.names()}
    wanted = [registry.get(name) for name in names]
    use = ToolUse("call_1", "get_weather", '{"city":"Oslo","days":2}')
    for name in dict.fromkeys((*registry.builtins, *known)):
        made = known[name]
        if made.name != name and made.name in known:
            continue  # another name of a format
        if names and made not in wanted:
            continue
        yield {
            "name": name,
            "aliases": [other for other, one in known.items() if one is made and other != name],
            "models": made.models.text,
            "example": made.render_call(use) if made.render_calls is None else made.render_calls([use]),
        }
