"""Builds the compiled scanner, and the README for registries. Everything else about the package is in `pyproject.toml`.

The core of the scanner is `proxy/_fastparse.pyx`. Some of its parts are the Python modules in `proxy/scan/parts`, which
are compiled as modules of `toolwire.scan.fast`, with the C types in its `.pxd` files.

Without a compiler the package installs all the same and uses the Python twin (`toolwire --version` says which one
runs). Two environment variables change that:

- `TOOLWIRE_REQUIRE_EXTENSIONS=1`: any failure to build the extension is fatal. For wheels and CI, where a silent
  fallback must not pass.
- `TOOLWIRE_NO_EXTENSIONS=1`: do not build it.

The generated C is an intermediate file of the build and is never committed.
"""

import os
import re
import shutil
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.modified import newer

TYPES = Path("build/cython-types")
REQUIRED = bool(os.environ.get("TOOLWIRE_REQUIRE_EXTENSIONS"))


DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # types stand in the `.pxd`: an `int` of Python is no `Py_ssize_t`
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": False,
    "cdivision": True,
    "binding": True,
    "embedsignature": False,
}


def packages() -> list[str]:
    """The folders of `proxy` and `middlewares` by the names under which they are installed."""
    inner = find_packages(
        "proxy", exclude=["middlewares", "middlewares.*"]
    )  # there: a link, for work in the repository
    return ["toolwire", *(f"toolwire.{name}" for name in inner), "toolwire.middlewares"]


def _stage(types: list[Path]) -> None:
    """Copies the C types to where `cimport` finds them by their installed name."""
    for path in types:
        target = TYPES / "toolwire" / path.relative_to("proxy")
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in target.relative_to(TYPES).parents[:-1]:
            (TYPES / folder / "__init__.py").touch()
        if not target.exists() or target.read_bytes() != path.read_bytes():
            shutil.copyfile(path, target)


def extensions() -> list[Extension]:
    """The extension modules to build. One that is missing counts as all of them."""
    if os.environ.get("TOOLWIRE_NO_EXTENSIONS"):
        if REQUIRED:
            sys.exit("TOOLWIRE_NO_EXTENSIONS and TOOLWIRE_REQUIRE_EXTENSIONS contradict each other")
        return []
    from Cython.Build import cythonize

    flags = [] if sys.platform == "win32" else ["-O3", "-Wall", *(["-Werror"] if REQUIRED else [])]
    asked = os.environ.get("CFLAGS", "").split()
    if flags and not {"-O0", "-O1"}.isdisjoint(asked):
        flags.remove("-O3")  # who asks for less wants the compiler to be done soon
    if flags and "-g" not in asked:
        flags.append("-g0")  # many a Python asks for debug information, which takes a third of the compiler's time
    sources = {"toolwire._fastparse": "proxy/_fastparse.pyx"}
    types = sorted(Path("proxy/scan").rglob("*.pxd"))
    _stage(types)
    parts = sorted(Path("proxy/scan/fast").glob("*.pxd"))
    for path in parts:
        sources[f"toolwire.scan.fast.{path.stem}"] = f"proxy/scan/parts/{path.stem}.py"
    modules = cythonize(
        [Extension(name, [source], extra_compile_args=flags) for name, source in sources.items()],
        include_path=[str(TYPES)],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
        force=any(  # it looks for types beside the parts only
            newer(path, f"build/cython/proxy/scan/parts/{part.stem}.c") for path in types for part in parts
        ),
    )
    for module in modules:
        module.optional = not REQUIRED  # set here: cythonize does not carry it over
    return list(modules)


REPOSITORY = "https://github.com/toolwire/toolwire"
RAW = "https://raw.githubusercontent.com/toolwire/toolwire"


def long_description() -> str:
    """README.md as a registry's page shows it: there is no tree around it, so links lead to that of the release."""
    root = Path(__file__).parent
    version = re.findall(r'^__version__ = "(.+)"', (root / "proxy" / "_version.py").read_text("utf-8"), re.MULTILINE)[0]

    def absolute(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z][a-z0-9+.-]*:|#|//", target, re.IGNORECASE):
            return match[0]
        image = before.startswith(("!", "src"))
        kind = "tree" if (root / target.partition("#")[0]).is_dir() else "blob"
        return f"{before}{f'{RAW}/v{version}' if image else f'{REPOSITORY}/{kind}/v{version}'}/{target}{after}"

    text = (root / "README.md").read_text("utf-8")
    pieces = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)  # every second is code
    for at in range(0, len(pieces), 2):
        pieces[at] = re.sub(r"(!?\[[^\]]*\]\()([^)\s]+)(\))", absolute, pieces[at])
        pieces[at] = re.sub(r'((?:src|srcset|href)=")([^"\s]+)(")', absolute, pieces[at])
    return "".join(pieces)


setup(
    packages=packages(),
    ext_modules=extensions(),
    long_description=long_description(),
    long_description_content_type="text/markdown; charset=UTF-8; variant=GFM",
)
