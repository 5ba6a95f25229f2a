"""Builds the compiled scanner. Everything else about the package is in `pyproject.toml`.

Without a compiler the package installs all the same and uses the Python twin (`toolwire --version` says which one
runs). Two environment variables change that:

- `TOOLWIRE_REQUIRE_EXTENSIONS=1`: any failure to build the extension is fatal. For wheels and CI, where a silent
  fallback must not pass.
- `TOOLWIRE_NO_EXTENSIONS=1`: do not build it.

The generated C is an intermediate file of the build and is never committed.
"""

import os
import sys

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


setup(ext_modules=extensions())
