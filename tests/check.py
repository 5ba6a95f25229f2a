"""`make check`: format, lint and types of everything, then the tests nearest to the change at hand, until the time is
up.

    python -m tests.check [--since REF] [--seconds 75] [--list] [-- ARGUMENTS FOR PYTEST]

The change is what differs from where the branch left `main` (on `main` itself, from the last commit), new files
included. Near is a test file that was changed itself; then those that import a changed module or name it in a string,
as `monkeypatch` does; then those that do so by way of one other module, and so on. A changed file that is no module
concerns the tests that name it, its folder, or a pattern such as `*.md`. Where nothing was changed, or no test is near,
the core is run: the fast half of the unit tests and of the parser's. What there was no time for is skipped, counted and
said: this is for between two edits, `make test` for before the push.

It reads imports and keeps nothing, so it is as good on the first run in a fresh clone as on any other, for the compiled
scanner and for pages as for modules. (pytest-testmon, which records what each test executes, needs a run of the whole
suite first, three times as long as one without it, and sees neither of those.)
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SOURCES = ("proxy", "middlewares", "tests", "examples")
CORE = ("tests/unit", "tests/parse", "tests/protocols", "tests/chain")
COMPILED = "toolwire._fastparse"
PARTS = "proxy/scan/parts/"
"""Modules that are compiled as well, for `COMPILED`."""
SECONDS = 75
"""From the start of the command, and leaves what the last test may take up to a minute and a half."""
MOST = 60
"""Test files: more than there is time for, and few enough not to spend it on collecting them."""
SUFFIX = re.compile(r"(?:.*/)?\*\.\w+")
DOTTED = re.compile(r"[a-z_]\w*(?:\.\w+)+")
PLAIN_FOLDERS = frozenset({"proxy", "tests", "docs", "examples", "toolwire"})
"""Named by so many tests that it says nothing."""
QUICK_FIRST = (
    "unit",
    "protocols",
    "chain",
    "servertools",
    "backends",
    "store",
    "parse",
    "formats",
    "tuning",
    "ratelimit",
    "deploy",
)
"""Folders of tests that are equally near; all others come last."""


class Module:
    """What a source file says about others: dotted names that it imports or writes in strings, and those strings."""

    def __init__(self, path: str, source: str) -> None:
        self.name = module_name(path)
        self.package = self.name if path.endswith("/__init__.py") else self.name.rpartition(".")[0]
        self.names: set[str] = set()
        self.strings: set[str] = set()
        self.exported: dict[str, str] = {}
        """What it imports from where: for whoever imports that from here."""
        self._read(ast.parse(source), typing=False)

    def _read(self, node: ast.AST, typing: bool) -> None:
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                typing = True
            case ast.Import() if not typing:
                self.names.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                above = self.package.split(".")[: len(self.package.split(".")) + 1 - node.level] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    self.exported[alias.asname or alias.name] = f"{base}.{alias.name}"
                    if not typing:
                        self.names.add(f"{base}.{alias.name}")
            case ast.Constant(value=str(text)) if len(text) < 200:
                self.strings.add(text)
                self.names.update(DOTTED.findall(text))
        for child in ast.iter_child_nodes(node):
            self._read(child, typing)


def module_name(path: str) -> str:
    """The name under which a file of the repository is imported: `proxy` is installed as `toolwire`."""
    folder, _, rest = path.removesuffix(".py").removesuffix("/__init__").partition("/")
    name = {"proxy": "toolwire", "middlewares": "toolwire.middlewares"}.get(folder, folder)
    return f"{name}.{rest}".rstrip(".").replace("/", ".")


def read_all(folders: Iterable[str] = SOURCES) -> dict[str, Module]:
    """Every module by its path."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if "node_modules" not in path.parts]
    return {
        name: Module(name, path.read_text("utf-8"))
        for name, path in sorted((path.relative_to(ROOT).as_posix(), path) for path in paths)
    }


def needs(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """What each file needs directly: a module that it names, and the `conftest.py` of its folder and of those above."""
    paths = {module.name: path for path, module in modules.items()} | {COMPILED: COMPILED}

    def found(name: str) -> Iterator[str]:
        whole = name
        while name and name not in paths:
            name = name.rpartition(".")[0]
        if name:
            yield paths[name]
            if name != COMPILED and (own := whole.removeprefix(name + ".").partition(".")[0]) != whole:
                further = modules[paths[name]].exported.get(own)
                if further is not None and further != whole:
                    yield from found(further)

    graph = {path: {other for name in module.names for other in found(name)} for path, module in modules.items()}
    for path in modules:
        folders = PurePosixPath(path).parents if path.startswith("tests/") else ()
        graph[path] |= {f"{folder}/conftest.py" for folder in folders} & modules.keys() - {path}
    return graph


def concerned(changed: Iterable[str], modules: Mapping[str, Module]) -> dict[str, int]:
    """The files that a change concerns, with the number of steps to it."""
    steps: dict[str, int] = {}
    for path in changed:
        if path in modules:
            steps[path] = 0
        if path.endswith((".pyx", ".pxi", ".pxd")) or path.startswith(PARTS):
            steps[COMPILED] = 0
        file = PurePosixPath(path)
        folders = {folder.name for folder in file.parents} - PLAIN_FOLDERS - {""} if path not in modules else set()
        for other, module in modules.items():
            texts = module.strings
            if (
                any(text == file.name or text.endswith(f"/{file.name}") for text in texts)
                or folders & texts
                or any(fnmatchcase(file.name, text.rpartition("/")[2]) for text in texts if SUFFIX.fullmatch(text))
            ):
                steps.setdefault(other, 1)
    needed_by: dict[str, set[str]] = {}
    for path, others in needs(modules).items():
        for other in others:
            needed_by.setdefault(other, set()).add(path)
    reached = sorted(steps, key=steps.__getitem__)
    for path in reached:  # grows meanwhile; in the order of steps, as all that is added is one step further
        for other in sorted(needed_by.get(path, set()) - steps.keys()):
            steps[other] = steps[path] + 1
            reached.append(other)
    return steps


def nearest(changed: Iterable[str], modules: Mapping[str, Module]) -> list[str]:
    """The test files that a change concerns, the nearest first."""
    steps = concerned(changed, modules)
    tests = [path for path in steps if PurePosixPath(path).name.startswith("test_")]
    ranks = {f"tests/{folder}": rank for rank, folder in enumerate(QUICK_FIRST)}
    return sorted(tests, key=lambda path: (steps[path], ranks.get(path.rpartition("/")[0], len(ranks)), path))


def changed_files(since: str | None = None) -> list[str]:
    """The files of the change at hand that still exist, new ones included."""
    if since is None:
        branch = git("rev-parse", "--abbrev-ref", "HEAD").strip()
        main = next(
            (ref for ref in ("main", "origin/main") if branch != "main" and git("rev-parse", "-q", "--verify", ref)),
            None,
        )
        since = git("merge-base", "HEAD", main).strip() if main else "HEAD"
    named = git("diff", "--name-only", since) + git("ls-files", "--others", "--exclude-standard")
    return sorted(path for path in set(named.splitlines()) if (ROOT / path).is_file())


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


def run(*command: str) -> None:
    print("$", " ".join(command[2:] if command[0] == sys.executable else command)[:200], flush=True)
    if status := subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(status)


def main(arguments: Sequence[str] | None = None) -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser(
        prog="make check", description="The checks that are nearest to the change at hand."
    )
    parser.add_argument(
        "--since", metavar="REF", help="the change is what differs from REF; default: from the branch point"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no test is begun later (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="only name the test files")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    given = parser.parse_args(arguments)
    changed = changed_files(given.since)
    tests = nearest(changed, read_all())
    if given.list:
        print(*tests, sep="\n")
        return
    run(sys.executable, "-m", "ruff", "format", "--check", "--quiet", ".")
    run(sys.executable, "-m", "ruff", "check", "--quiet", ".")
    run(sys.executable, "-m", "mypy", "--no-error-summary")
    print(
        f"{len(changed)} files changed; of {len(tests)} test files concerned the nearest {MOST}, if so many", flush=True
    )
    chosen = tests[:MOST] or [*CORE, "-m", "not hypothesis"]
    until = time.time() + given.seconds - (time.monotonic() - start)
    parallel = ("-n", "logical", "--dist", "load", "--maxschedchunk", "20")
    run(sys.executable, "-m", "pytest", "-q", *parallel, f"--until={until:.0f}", *chosen, *given.pytest)


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    main()
