"""Real engines: installs each into a folder that is kept, starts it with a small model, and plays the situations
through a gateway in front of it.

    python -m tests.engines                          all engines, one after the other
    python -m tests.engines vllm -k constraints      some situations of one
    python -m tests.engines --install                only install
    python -m tests.engines llamacpp --at URL        one that runs already; no restarts

What was seen goes into `tests/engines/results.json`, from which `python -m docs.generate` makes
`docs/reference/engines.md`. The exit status is 1 if the gateway broke a promise.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from tests.engines import results
from tests.engines.kept import VARIABLE, NotHere, Running, default_folder, install, version
from tests.engines.recipes import MODEL, RECIPES, Kept, Recipe
from tests.engines.suite import Outcome, Server, Situation, beginning, play


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


Save = Callable[[Situation, Outcome], None]


async def run(server: Server, chosen: list[Situation], save: Save) -> dict[str, Outcome]:
    """Play situations over an engine that runs. Each outcome is saved at once, since all of them take long."""
    outcomes = {}
    async with beginning(server) as suite:
        for one in chosen:
            begun = time.monotonic()
            outcome = outcomes[one.name] = await play(suite, one)
            save(one, outcome)
            say(f"  {_told(outcome):8} {one.name} ({time.monotonic() - begun:.0f} s): {_line(outcome)}")
    return outcomes


def _told(outcome: Outcome) -> str:
    if outcome.skipped:
        return "skipped"
    return "BROKEN" if outcome.gateway else "engine" if outcome.engine else "kept"


def _line(outcome: Outcome) -> str:
    return "; ".join(filter(None, (outcome.skipped, outcome.gateway, *outcome.engine, outcome.seen)))


async def over(recipe: Recipe, kept: Kept, chosen: list[Situation], at: str | None) -> dict[str, Outcome]:
    """Install and start an engine, and play situations over it. Raises `NotHere`."""
    if at is not None:
        return await run(Server(recipe.name, at, await _first_model(at)), chosen, lambda one, outcome: None)
    install(recipe, kept, say, RECIPES)
    running = Running(recipe, kept)
    about = {"title": recipe.title, "version": f"{recipe.package} {version(recipe, kept)}", "model": MODEL}
    say(f"starting {about['version']} at {running.url}")

    def save(one: Situation, outcome: Outcome) -> None:
        results.keep(recipe.name, about, {one.name: outcome}, datetime.now(UTC).date().isoformat())

    try:
        await running.start()
        server = Server(recipe.name, running.url, recipe.served(kept), running.kill, running.start)
        return await run(server, chosen, save)
    finally:
        await running.kill()


async def _first_model(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url + "/v1/models") as answer:
        return str((await answer.json())["data"][0]["id"])


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=f"any of {', '.join(RECIPES)}; default: all")
    parser.add_argument("-k", metavar="WORD", help="only situations in whose name this stands")
    parser.add_argument("--folder", type=Path, default=None, help=f"where engines are kept; default: {VARIABLE}, or ~/.cache/toolwire/engines")  # fmt: skip
    parser.add_argument("--install", action="store_true", help="install, and run nothing")
    parser.add_argument("--at", metavar="URL", help="an engine that runs already; its results are only printed")
    options = parser.parse_args(argv)
    names = options.engines or list(RECIPES)
    if unknown := sorted(set(names) - set(RECIPES)):
        parser.error(f"unknown engines: {', '.join(unknown)}; known are {', '.join(RECIPES)}")
    if options.at and len(names) != 1:
        parser.error("--at needs the name of one engine")
    chosen = [one for one in results.ordered() if options.k is None or options.k in one.name]
    kept = Kept((options.folder or default_folder()).resolve())
    kept.folder.mkdir(parents=True, exist_ok=True)
    broken = False
    for name in names:
        broken |= _one(RECIPES[name], kept, chosen, options)
    return int(broken)


def _one(recipe: Recipe, kept: Kept, chosen: list[Situation], options: argparse.Namespace) -> bool:
    """Whether the gateway broke a promise over this engine."""
    try:
        if options.install:
            install(recipe, kept, say, RECIPES)
            return False
        say(f"{recipe.title}: {len(chosen)} situations")
        outcomes = asyncio.run(over(recipe, kept, chosen, options.at))
    except NotHere as reason:
        say(f"{recipe.title}: skipped, {reason}")
        if options.at is None:
            results.skip(recipe.name, recipe.title, str(reason))
        return False
    broken = [name for name, outcome in outcomes.items() if outcome.gateway]
    say(f"{recipe.title}: {len(outcomes) - len(broken)} of {len(outcomes)} without a fault of the gateway")
    return bool(broken)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
