"""Every regular expression of the package: those that modules hold, and those that are made where they are used.

The call sites of `re` are read from the source, so that a new one cannot be missed: a pattern that is made when a
module is imported has to be found among the values of the module, a pattern inside of a function has to be a literal or
stand in `MADE` of the test.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.check import module_name

ROOT: Final = Path(__file__).parents[2]
FUNCTIONS: Final = frozenset({"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"})
ANCHORED: Final = frozenset({"match", "fullmatch"})
"""Methods that begin at one place only."""


@dataclass(frozen=True)
class Site:
    """A call of `re`: `module:name` of the constant, or `module:function`. `method` is the function of `re`."""

    module: str
    name: str
    method: str
    line: int
    literal: re.Pattern[Any] | None = None
    in_function: bool = False

    @property
    def key(self) -> str:
        """How tables of tests call it."""
        return f"{self.module}:{self.name}"


@dataclass
class Held:
    """Patterns that one name of a module holds, and the methods that anything in the package calls on them."""

    key: str
    patterns: list[re.Pattern[Any]]
    methods: set[str] = field(default_factory=set)

    @property
    def anchored(self) -> bool:
        """Whether the patterns are only tried at one place of a text."""
        return bool(self.methods) and self.methods <= ANCHORED


def modules() -> Iterator[tuple[str, Path]]:
    """The modules of the package and of the built-in middlewares."""
    for path in sorted([*(ROOT / "proxy").rglob("*.py"), *(ROOT / "middlewares").rglob("*.py")]):
        if path.name != "__main__.py":
            yield module_name(path.relative_to(ROOT).as_posix()), path


@cache
def _texts() -> Mapping[str, str]:
    return {name: path.read_text("utf-8") for name, path in modules()}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(_texts()[module])


@cache
def sites() -> Sequence[Site]:
    """Every call of a function of `re`."""
    found = []
    for module, text in _texts().items():
        if lines := [number for number, line in enumerate(text.splitlines(), 1) if re.search(r"\bre\.", line)]:
            found += _sites(module, _tree(module), lines, (), None, False)
    return found


def _sites(
    module: str, node: ast.AST, lines: list[int], scope: tuple[str, ...], target: str | None, inside: bool
) -> Iterator[Site]:
    for child in ast.iter_child_nodes(node):
        if (end := getattr(child, "end_lineno", None)) and not any(child.lineno <= line <= end for line in lines):  # type: ignore[attr-defined]
            continue  # nothing of `re` is in it
        names, name, within = scope, target, inside
        match child:
            case ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own):
                names, within = (*scope, own), True
            case ast.ClassDef(name=own):
                names = (*scope, own)
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)) if not inside:
                name = ".".join((*scope, own))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method)) if method in FUNCTIONS:
                yield Site(module, name or ".".join(scope), method, child.lineno, _literal(child), inside)
        yield from _sites(module, child, lines, names, name, within)


def _literal(call: ast.Call) -> re.Pattern[Any] | None:
    if not call.args or not isinstance(call.args[0], ast.Constant):
        return None
    flags = 0
    for given in [*call.args[1:], *(word.value for word in call.keywords if word.arg == "flags")]:
        for name in ast.walk(given):
            if isinstance(name, ast.Attribute) and isinstance(found := getattr(re, name.attr, None), re.RegexFlag):
                flags |= found
    return re.compile(call.args[0].value, flags)


@cache
def held() -> Sequence[Held]:
    """What modules hold, by the name that holds it."""
    return list(_held())


def _held() -> Iterator[Held]:
    for module, _ in modules():
        loaded = importlib.import_module(module)
        for name, value in vars(loaded).items():
            if isinstance(value, ModuleType):
                continue
            for holder, found in _owned(name, value, module):
                if patterns := list(_patterns(found)):
                    yield Held(f"{module}:{holder}", patterns, _methods(holder.rpartition(".")[2], value))


def _owned(name: str, value: object, module: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, type):
        if value.__module__ == module:
            yield from ((f"{name}.{own}", item) for own, item in vars(value).items())
    else:
        yield name, value


def _patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value and in its containers and dataclasses."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(getattr(value, "__self__", None), re.Pattern):
        yield value.__self__  # type: ignore[attr-defined]
    elif depth < 4:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _patterns(key, depth + 1)
                yield from _patterns(item, depth + 1)
        elif isinstance(value, tuple | list | set | frozenset):
            for item in value:
                yield from _patterns(item, depth + 1)


def _methods(name: str, value: object) -> set[str]:
    """What is called on a constant, wherever it is imported. A use that is no call of a method counts as `search`."""
    found: set[str] = set()
    for module, text in _texts().items():
        if name not in text or not re.search(rf"\b{name}\b", text):
            continue  # so that few modules are parsed
        if getattr(importlib.import_module(module), name, value) is value:
            found |= _uses(module).get(name, set())
    return found - {"pattern", "flags"}


@cache
def _uses(module: str) -> Mapping[str, set[str]]:
    """By each name in a module, the attributes that are asked of what the name holds, or of an item of it."""
    owners: dict[int, str] = {}
    found: dict[str, set[str]] = {}
    nodes = list(ast.walk(_tree(module)))
    for node in nodes:
        if isinstance(node, ast.Attribute):
            owner = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            owners[id(owner)] = node.attr
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            name = node.id if isinstance(node, ast.Name) else node.attr
            found.setdefault(name, set()).add(owners.get(id(node), "search"))
    return found
