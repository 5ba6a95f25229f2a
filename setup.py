"""Builds the compiled scanner, and the README for registries. Everything else about the package is in `pyproject.toml`.

Without a compiler the package installs all the same and uses the Python twin (`toolwire --version` says which one
runs). Two environment variables change that:

- `TOOLWIRE_REQUIRE_EXTENSIONS=1`: any failure to build the extension is fatal. For wheels and CI, where a silent
  fallback must not pass.
- `TOOLWIRE_NO_EXTENSIONS=1`: do not build it.

The generated C is an intermediate file of the build and is never committed.
"""

import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup

REQUIRED = bool(os.environ.get("TOOLWIRE_REQUIRE_EXTENSIONS"))


def extensions() -> list[Extension]:
    """The extension modules to build."""
    if os.environ.get("TOOLWIRE_NO_EXTENSIONS"):
        if REQUIRED:
            sys.exit("TOOLWIRE_NO_EXTENSIONS and TOOLWIRE_REQUIRE_EXTENSIONS contradict each other")
        return []
    from Cython.Build import cythonize

    flags = [] if sys.platform == "win32" else ["-O3", "-Wall", *(["-Werror"] if REQUIRED else [])]
    modules = cythonize(
        [Extension("proxy._fastparse", ["proxy/_fastparse.pyx"], extra_compile_args=flags)], build_dir="build/cython"
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
    ext_modules=extensions(),
    long_description=long_description(),
    long_description_content_type="text/markdown; charset=UTF-8; variant=GFM",
)
