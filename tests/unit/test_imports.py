"""Who may import whom: the code map in `CONTRIBUTING.md`, which says it for people, holds for every module.

Besides: a middleware, built in or not, needs nothing but what is public.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.cases import every
from tests.check import module_name

ROOT = Path(__file__).parents[2]
LOOP = ("aiohttp", "asyncio")


@dataclass(frozen=True)
class Wing:
    """A row of the code map. `order`: its place. `pure`: free of an event loop."""

    name: str
    order: int
    pure: bool


@cache
def rooms() -> dict[str, Wing]:
    """The code map: the wing of each room."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w+) \| ((?:`[a-z_.]+` ?)+)\| [^|]+ \| (yes|no) \|$", page, re.M)
    wings = [(Wing(name, order, loop == "no"), names) for order, (name, names, loop) in enumerate(rows)]
    return {f"toolwire.{room}": wing for wing, names in wings for room in re.findall(r"`(.+?)`", names)}


def name_of_room(module: str) -> str | None:
    """The room of a module; None for a package that only holds rooms."""
    parts = module.split(".")
    return next((name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in rooms()), None)


def room_of(module: str) -> Wing | None:
    """The wing of a module."""
    name = name_of_room(module)
    return None if name is None else rooms()[name]


def is_loop(module: str) -> bool:
    return module.split(".")[0] in LOOP


@dataclass(frozen=True)
class Import:
    """One imported module, or one name of it. `typing`: only the type checker sees it."""

    importer: str
    place: str
    module: str
    name: str | None
    typing: bool


def read(module: str, file: str, source: str, modules: frozenset[str]) -> list[Import]:
    """The imports of a source file anywhere in it, also inside functions. `modules` tells submodules from other
    names."""
    package = module.split(".") if file.endswith("__init__.py") else module.split(".")[:-1]
    found = []

    def add(node: ast.stmt, base: str, name: str | None, typing: bool) -> None:
        if name is not None and f"{base}.{name}" in modules:
            base, name = f"{base}.{name}", None
        found.append(Import(module, f"{file}:{node.lineno}", base, name, typing))

    def visit(node: ast.AST, typing: bool) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    add(node, alias.name, None, typing)
            case ast.ImportFrom():
                above = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    add(node, base, alias.name, typing)
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                for child in node.body:
                    visit(child, True)
                for child in node.orelse:
                    visit(child, typing)
                return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):  # no expression imports
                visit(child, typing)

    visit(ast.parse(source), False)
    return found


@cache
def everything() -> dict[str, list[Import]]:
    """The imports of every module of the two packages."""
    files = [path.relative_to(ROOT) for folder in ("proxy", "middlewares") for path in (ROOT / folder).rglob("*.py")]
    named = {module_name(path.as_posix()): path for path in files}
    modules = frozenset(named) | {"toolwire._fastparse"}
    return {
        module: read(module, str(path), (ROOT / path).read_text("utf-8"), modules) for module, path in named.items()
    }


def outward(imports: dict[str, list[Import]]) -> Iterator[str]:
    """Imports from a room below."""
    for module, found in imports.items():
        own = room_of(module)
        for step in found:
            other = room_of(step.module)
            if own is not None and other is not None and other.order > own.order:
                yield f"{step.place}: {own.name} imports {step.module}, of a wing below it"


def loops(imports: dict[str, list[Import]]) -> Iterator[str]:
    """Modules that need an event loop although their room says that it has none."""
    for module in imports:
        own = room_of(module)
        if own is None or not own.pure:
            continue
        for chain in ways(module, imports):
            if is_loop(chain[-1].module):
                yield f"{chain[0].place}: {' -> '.join([module, *(step.module for step in chain)])} is not pure"


def ways(module: str, imports: dict[str, list[Import]]) -> Iterator[tuple[Import, ...]]:
    """A shortest chain of imports from `module` to each module it needs when it runs. Modules of pure rooms are judged
    on their own, so a chain ends there."""
    seen = {module}
    todo: list[tuple[Import, ...]] = [(step,) for step in imports[module] if not step.typing]
    while todo:
        chain = todo.pop(0)
        last = chain[-1].module
        if last in seen:
            continue
        seen.add(last)
        yield chain
        room = room_of(last)
        if room is None or not room.pure:
            todo += [(*chain, step) for step in imports.get(last, ()) if not step.typing]


def private(imports: dict[str, list[Import]]) -> Iterator[str]:
    """What middlewares import although its name says that it may go away."""
    for module, found in imports.items():
        if not module.startswith(("toolwire.middlewares.", "toolwire.extras.middlewares.")):
            continue
        for step in found:
            path = [*step.module.split("."), *([step.name] if step.name else [])]
            if path[0] == "toolwire" and any(part.startswith("_") for part in path):
                yield f"{step.place}: {'.'.join(path)} is not public"


def circles(imports: dict[str, list[Import]]) -> Iterator[str]:
    """The first circle of modules that import each other, also inside functions or for the type checker alone."""
    names = {module: {step.module for step in found} & imports.keys() - {module} for module, found in imports.items()}
    try:
        TopologicalSorter(names).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        first = next(step for step in imports[circle[0]] if step.module == circle[1])
        yield f"{first.place}: {' -> '.join(circle)} is a circle"


def folder_circles(imports: dict[str, list[Import]]) -> Iterator[str]:
    """The first circle of folders beside each other."""
    graph: dict[str, dict[str, Import]] = {}
    for module, found in imports.items():
        own = module.split(".")[:-1]
        for step in found:
            other = step.module.split(".")[:-1]
            pairs = zip(own, other, strict=False)
            shared = next((n for n, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
            if shared and step.module in imports:
                mine, theirs = (".".join(names[: shared + 1]) for names in (own, other))
                graph.setdefault(mine, {}).setdefault(theirs, step)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        yield f"{graph[circle[0]][circle[1]].place}: {' -> '.join(circle)} is a circle of folders"


RULES = (outward, loops, private, circles, folder_circles)


@every("rule", RULES)
def test_the_rule_is_kept(rule):
    assert list(rule(everything())) == []


def test_every_module_has_a_room_and_every_room_a_module():
    modules = {*everything(), "toolwire._fastparse"} - {"toolwire", "toolwire.upstream"}
    assert [module for module in modules if room_of(module) is None] == []
    assert rooms().keys() == {name_of_room(module) for module in modules}


BROKEN = {
    "outward": {"toolwire.pipeline.answers.reply": "if TYPE_CHECKING:\n    from toolwire.app import create_app"},
    "loops": {
        "toolwire.events": "from .support.between import f",
        "toolwire.support.between": "def f():\n    from aiohttp.web import Response",
    },
    "private": {"toolwire.extras.middlewares.x": "from toolwire.scan import _grammar"},
    "circles": {
        "toolwire.store.x": "if TYPE_CHECKING:\n    from .y import Y",
        "toolwire.store.y": "def f():\n    from toolwire.store import x",
    },
    "folder_circles": {
        "toolwire.pipeline.chain.x": "from ..exchange import y",
        "toolwire.pipeline.exchange.y": "if TYPE_CHECKING:\n    from ..chain.w import W",
        "toolwire.pipeline.chain.w": "",
    },
}


@every("rule", RULES)
def test_a_broken_rule_is_told_with_its_place(rule):
    sources = BROKEN[rule.__name__]
    modules = frozenset({*sources, "toolwire.app", "toolwire.scan._grammar"})
    (told,) = rule({m: read(m, m.replace(".", "/") + ".py", source, modules) for m, source in sources.items()})
    assert told.split(":")[1].isdigit()
