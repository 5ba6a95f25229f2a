"""Who may import whom.

Source of the rules: the import direction of the architecture (`model, events, errors` <- `protocols, formats, parsers` <- `backends,
store` <- `reply, lanes, middleware` <- `app`), that what is pure stays free of aiohttp and asyncio, and that a middleware, built in
or not, needs nothing but what is public.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = (
    ("proxy.model", "proxy.events", "proxy.errors"),
    (
        *("proxy.protocols.*", "proxy.formats.*"),
        *("proxy._grammar", "proxy._plan", "proxy._py*", "proxy.fastparse", "proxy._fastparse"),
    ),
    ("proxy.backends.*", "proxy.store.*"),
    ("proxy.stages", "proxy.reply", "proxy.lanes", "proxy.middleware"),
    ("proxy.app",),
)
"""Innermost first. A module that is in none of them may be imported by any, but leads no layer further out than it may go."""
PURE = LAYERS[0] + LAYERS[1]
LOOP = ("aiohttp", "aiohttp.*", "asyncio", "asyncio.*")


@dataclass(frozen=True)
class Import:
    """One imported module, or one name of it. `typing`: only the type checker sees it."""

    importer: str
    place: str
    module: str
    name: str | None
    typing: bool


def matches(module: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(module, pattern) for pattern in patterns)


def layer_of(module: str) -> int | None:
    return next((number for number, patterns in enumerate(LAYERS) if matches(module, patterns)), None)


def read(module: str, file: str, source: str, modules: frozenset[str]) -> list[Import]:
    """The imports of a source file anywhere in it, also inside functions. `modules` tells submodules from other names."""
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
            visit(child, typing)

    visit(ast.parse(source), False)
    return found


@cache
def everything() -> dict[str, list[Import]]:
    """The imports of every module of the two packages."""
    files = [path.relative_to(ROOT) for folder in ("proxy", "middlewares") for path in (ROOT / folder).rglob("*.py")]
    named = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    modules = frozenset(named) | {"proxy._fastparse"}
    return {
        module: read(module, str(path), (ROOT / path).read_text("utf-8"), modules) for module, path in named.items()
    }


def outward(imports: dict[str, list[Import]]) -> Iterator[str]:
    """Imports against the direction, direct ones and those by way of a module that is in no layer."""
    for module in imports:
        layer = layer_of(module)
        if layer is None:
            continue
        for chain in ways(module, imports):
            further = layer_of(chain[-1].module)
            if further is not None and further > layer:
                yield f"{chain[0].place}: {' -> '.join([module, *(step.module for step in chain)])} leads outwards"


def loops(imports: dict[str, list[Import]]) -> Iterator[str]:
    """Pure modules that need an event loop."""
    for module in imports:
        if not matches(module, PURE):
            continue
        for chain in ways(module, imports):
            if matches(chain[-1].module, LOOP):
                yield f"{chain[0].place}: {' -> '.join([module, *(step.module for step in chain)])} is not pure"


def ways(module: str, imports: dict[str, list[Import]]) -> Iterator[tuple[Import, ...]]:
    """A shortest chain of imports from `module` to each module it needs when it runs; direct ones for typing as well. Modules
    of a layer are judged on their own, so a chain ends there."""
    seen = {module}
    todo: list[tuple[Import, ...]] = [(step,) for step in imports[module]]
    while todo:
        chain = todo.pop(0)
        last = chain[-1].module
        if last in seen:
            continue
        seen.add(last)
        yield chain
        if layer_of(last) is None and not chain[-1].typing:
            todo += [(*chain, step) for step in imports.get(last, ()) if not step.typing]


def private(imports: dict[str, list[Import]]) -> Iterator[str]:
    """What middlewares import although its name says that it may go away."""
    for module, found in imports.items():
        if module.split(".")[0] != "middlewares":
            continue
        for step in found:
            path = [*step.module.split("."), *([step.name] if step.name else [])]
            if path[0] == "proxy" and any(part.startswith("_") for part in path):
                yield f"{step.place}: {'.'.join(path)} is not public"


def inwards(imports: dict[str, list[Import]]) -> Iterator[str]:
    """What the package imports of the built-in middlewares: they are plug-ins, found by name."""
    for module, found in imports.items():
        if module.split(".")[0] == "proxy":
            for step in found:
                if step.module.split(".")[0] == "middlewares":
                    yield f"{step.place}: proxy imports {step.module}"


RULES = (outward, loops, private, inwards)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_is_kept(rule):
    assert list(rule(everything())) == []


def test_every_layer_is_found():
    # A module that was renamed must not slip out of the rules.
    modules = [*everything(), "proxy._fastparse"]
    for patterns in LAYERS:
        for pattern in patterns:
            assert any(fnmatchcase(module, pattern) for module in modules), pattern


BROKEN = {
    "outward": {
        "proxy.protocols.x": "from ..backends import base",
        "proxy.reply": "if TYPE_CHECKING:\n    from .app import create_app",
        "proxy.model": "from .between import f",
        "proxy.between": "def f():\n    from . import reply",
    },
    "loops": {
        "proxy.formats.x": "import asyncio",
        "proxy.events": "from .between import f",
        "proxy.between": "def f():\n    from aiohttp.web import Response",
    },
    "private": {
        "middlewares.x": "from proxy.middleware import _call",
        "middlewares.y": "from proxy import _grammar",
        "middlewares.z": "import proxy._grammar",
    },
    "inwards": {"proxy.x": "from middlewares.validation import Validation"},
}
COUNTS = {"outward": 3, "loops": 2, "private": 3, "inwards": 1}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_told_with_its_place(rule):
    sources = BROKEN[rule.__name__]
    modules = frozenset({*sources, "proxy.backends.base", "proxy.app", "proxy.reply", "proxy._grammar"})
    imports = {m: read(m, m.replace(".", "/") + ".py", source, modules) for m, source in sources.items()}
    told = list(rule(imports))
    assert len(told) == COUNTS[rule.__name__], told
    assert all(line.split(":")[1].isdigit() for line in told), told
